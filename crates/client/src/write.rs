//! Writing an object: stripe by stripe, then all at once visible.
//!
//! Invariants: nothing is visible before the coordinator has accepted the digests of all blocks, each
//! durable by then; whatever ends the put before (an error, a dropped future, a dead process) leaves
//! only blocks that the coordinator deletes, at once or when the lease runs out. Memory is
//! bounded by the slices in flight of the stripes under way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kintsu_code::USER;
use kintsu_wire::message::{BeginPut, CommitPut, Encoding, ObjectInfo, PutTicket, WrittenStripe};
use tokio::task::JoinHandle;

use crate::codes::{parse_code, received_code};
use crate::lease::Lease;
use crate::stripe::by_id;
use crate::write_stripe::{Put, StripeWrite};
use crate::{Client, ClientError, ReadAt};

/// Stripes written at the same time.
const STRIPES_AT_ONCE: usize = 2;

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// How an object is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOptions {
    /// Name of the code.
    pub code: String,
    /// When parity is made.
    pub encoding: Encoding,
    /// Largest block in bytes; none: what fits the code (see [`kintsu_plan::Layout::sizes`]).
    pub block_bytes: Option<u64>,
    /// Cell in bytes; none: what fits the code (see [`kintsu_plan::Layout::sizes`]).
    pub cell_bytes: Option<u32>,
    /// Whether an object of this name may be replaced.
    pub replace: bool,
}

impl PutOptions {
    /// Encoded online with this code, in blocks and cells that fit it (of 64 MiB and 128 KiB, or somewhat more);
    /// a name that exists is refused.
    pub fn new(code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            encoding: Encoding::Online,
            block_bytes: None,
            cell_bytes: None,
            replace: false,
        }
    }
}

impl Client {
    /// Stores the bytes of `source` as an object. `progress` is told bytes done and bytes in all.
    /// Dropping the future gives the put up.
    ///
    /// # Errors
    /// `Exists` without `replace`; `Invalid` for a bad code or size; `Placement` and `Full` when
    /// there are too few nodes or too little room; `Io` of the source, also when it changed while it
    /// was read. The cluster is then as before.
    pub async fn put(
        &self,
        source: Arc<dyn ReadAt>,
        name: &str,
        options: PutOptions,
        progress: impl Fn(u64, u64),
    ) -> Result<ObjectInfo, ClientError> {
        if !options.code.starts_with(USER) {
            parse_code(&options.code)?;
        }
        let size = source.len();
        let begin = BeginPut {
            name: name.to_owned(),
            size,
            code: options.code.clone(),
            encoding: options.encoding,
            block_bytes: options.block_bytes,
            cell_bytes: options.cell_bytes,
            replace: options.replace,
        };
        let mut ticket = self
            .call(|mut c| {
                let begin = begin.clone();
                async move { c.begin_put(begin).await }
            })
            .await?;
        let mut lease = Lease::hold(self, ticket.put, ticket.lease_ms);
        let code = received_code(&options.code, ticket.definition.take()).await?;
        let writing = write_all(self, source.clone(), code, options.encoding, ticket, &progress);
        let commit = tokio::select! {
            commit = writing => commit?,
            lost = lease.lost() => return Err(lost),
        };
        source.check_unchanged()?;
        let object = self
            .call_patiently(|mut c| {
                let commit = commit.clone();
                async move { c.commit_put(commit).await }
            })
            .await?;
        lease.fulfilled();
        Ok(object)
    }
}

async fn write_all(
    client: &Client,
    source: Arc<dyn ReadAt>,
    code: Arc<dyn kintsu_code::Code>,
    encoding: Encoding,
    ticket: PutTicket,
    progress: &impl Fn(u64, u64),
) -> Result<CommitPut, ClientError> {
    let total = source.len();
    let granted: u64 = ticket.stripes.iter().map(|s| s.layout.data_bytes).sum();
    if granted != total {
        return Err(ClientError::Corrupt(format!(
            "expected stripes for {total} bytes, got stripes for {granted}"
        )));
    }
    let nodes = by_id(ticket.nodes);
    let put = Arc::new(Put::new(client.clone(), ticket.put, source, code, encoding, nodes));
    let (mut under_way, mut stripes, mut offset) = (VecDeque::new(), Vec::new(), 0);
    let mut grants = ticket.stripes.into_iter();
    progress(0, total);
    loop {
        while under_way.len() < STRIPES_AT_ONCE {
            let Some(grant) = grants.next() else { break };
            let data_bytes = grant.layout.data_bytes;
            under_way.push_back(Writer(tokio::spawn(StripeWrite::new(put.clone(), grant, offset).write())));
            offset += data_bytes;
        }
        let Some(mut writer) = under_way.pop_front() else { break };
        stripes.push(writer.end(|| progress(put.done().min(total), total)).await?);
    }
    progress(total, total);
    Ok(CommitPut { put: ticket.put, stripes })
}

/// A stripe that is being written; dropping it ends it.
struct Writer(JoinHandle<Result<WrittenStripe, ClientError>>);

impl Writer {
    async fn end(&mut self, tell: impl Fn()) -> Result<WrittenStripe, ClientError> {
        let mut clock = tokio::time::interval(TELL_EVERY);
        loop {
            tokio::select! {
                ended = &mut self.0 => {
                    return ended.unwrap_or_else(|e| Err(ClientError::Io(format!("a write task ended early: {e}"))));
                }
                _ = clock.tick() => tell(),
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.abort();
    }
}
