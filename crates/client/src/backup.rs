//! A copy of the cluster's metadata, checked while it is received.

use bytes::Bytes;
use kintsu_wire::copy::{CheckedCopy, CopyCheck, CopyHeader};
use kintsu_wire::message::{self, CopyChunk};
use tonic::Streaming;

use crate::{Client, ClientError};

/// A copy that is being received. Do not use its bytes before [`Backup::finish`] has confirmed them.
pub struct Backup {
    client: Client,
    pieces: Streaming<CopyChunk>,
    check: CopyCheck,
    stripes: u64,
}

impl std::fmt::Debug for Backup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backup").field("check", &self.check).finish_non_exhaustive()
    }
}

impl Client {
    /// Fetches a consistent copy of all metadata, taken now.
    ///
    /// # Errors
    /// The coordinator does not answer.
    pub async fn backup(&self) -> Result<Backup, ClientError> {
        let pieces =
            self.call(|mut c| async move { c.operation.backup(message::Backup::default()).await }).await?;
        Ok(Backup { client: self.clone(), pieces, check: CopyCheck::default(), stripes: 0 })
    }
}

impl Backup {
    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// The coordinator went away or failed; the bytes are not a copy.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let piece = self.pieces.message().await;
        let piece = piece.map_err(|status| ClientError::from_status(self.client.endpoint(), &status))?;
        let Some(piece) = piece else { return Ok(None) };
        self.check.push(&piece.bytes).map_err(|e| ClientError::Corrupt(e.to_string()))?;
        self.stripes = piece.done;
        Ok(Some(piece.bytes))
    }

    /// What the copy says about itself, once its first bytes have come.
    pub fn header(&self) -> Option<&CopyHeader> {
        self.check.header()
    }

    /// Stripes received so far.
    pub fn stripes(&self) -> u64 {
        self.stripes
    }

    /// Checks the received copy.
    ///
    /// # Errors
    /// `Corrupt` when bytes are missing or changed.
    pub fn finish(self) -> Result<CheckedCopy, ClientError> {
        self.check.finish().map_err(|e| ClientError::Corrupt(e.to_string()))
    }
}
