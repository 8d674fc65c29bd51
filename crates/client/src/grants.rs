//! The stripes that the coordinator grants to a stream, asked for before they are needed: an answer takes as long as the
//! coordinator's disk, and meanwhile the buffers of a stream would fill.
//!
//! Invariant: at most one request is under way.

use std::collections::VecDeque;
use std::sync::Arc;

use kintsu_wire::message::{StripeGrant, WrittenStripe};
use tokio::task::JoinSet;

use crate::ClientError;
use crate::write_stripe::{Put, StripeSource};

/// Granted stripes that no piece has got yet.
pub(crate) struct Grants {
    put: Arc<Put>,
    ready: VecDeque<StripeGrant>,
    /// Position of the next piece.
    position: u64,
    /// More are requested when fewer than this are ready.
    least: usize,
    /// The request under way. Dropping it ends it.
    coming: JoinSet<Result<Vec<StripeGrant>, ClientError>>,
}

impl Grants {
    /// The stripes granted first; `least` should be ready at any time.
    pub(crate) fn new(put: Arc<Put>, ready: VecDeque<StripeGrant>, least: usize) -> Self {
        Self { put, ready, position: 0, least, coming: JoinSet::new() }
    }

    /// The stripe for the next piece. What was written meanwhile (`untold`) is reported along with a request.
    ///
    /// # Errors
    /// Those of the coordinator; `Corrupt` if it grants a stripe of another length.
    pub(crate) async fn next(
        &mut self,
        piece: &StripeSource,
        untold: &mut Vec<WrittenStripe>,
    ) -> Result<StripeGrant, ClientError> {
        if piece.size.is_some() {
            // The size decides what the last stripe is like.
            self.come().await?;
            self.ready = self.put.more_stripes(self.position, piece.size, untold).await?.into();
        } else if self.ready.is_empty() {
            self.request(untold);
            self.come().await?;
        }
        let (grant, len) = (self.ready.pop_front(), piece.bytes.len());
        let grant = grant.filter(|grant| grant.layout.data_bytes == len).ok_or_else(|| {
            ClientError::Corrupt(format!("expected a stripe for {len} bytes, got another one"))
        })?;
        self.position += 1;
        if piece.size.is_none() && self.ready.len() < self.least {
            self.request(untold);
        }
        Ok(grant)
    }

    /// Requests more, unless that is done already.
    fn request(&mut self, untold: &mut Vec<WrittenStripe>) {
        if self.coming.is_empty() {
            let (put, mut untold) = (self.put.clone(), std::mem::take(untold));
            let from = self.position + self.ready.len() as u64;
            self.coming.spawn(async move { put.more_stripes(from, None, &mut untold).await });
        }
    }

    /// Waits for the request under way, if there is one.
    async fn come(&mut self) -> Result<(), ClientError> {
        match self.coming.join_next().await {
            Some(Ok(more)) => self.ready.extend(more?),
            Some(Err(e)) => return Err(ClientError::Io(format!("a request ended early: {e}"))),
            None => {}
        }
        Ok(())
    }
}
