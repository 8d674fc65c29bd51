//! Writing an object: stripe by stripe; then it becomes visible as a whole.
//!
//! Invariants: nothing is visible before the coordinator has accepted the digests of all blocks, each of which is
//! durable by then. If the put ends before that (by an error, a dropped future, a dead process), it leaves only
//! blocks that the coordinator deletes, at once or when the lease expires. Memory is bounded by the slices in
//! flight of the stripes being written, and the digests of one batch of stripes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kintsu_code::USER;
use kintsu_wire::message::{
    BeginPut, CommitPut, CommitReply, Encoding, ObjectInfo, RefusedStripe, StripeGrant, WrittenStripe,
};
use tokio::task::JoinHandle;

use crate::codes::received_code;
use crate::lease::Lease;
use crate::stripe::by_id;
use crate::write_stripe::{Put, StripeWrite};
use crate::{Client, ClientError, ReadAt};

/// Stripes written at the same time.
const STRIPES_AT_ONCE: usize = 2;

/// How often one stripe is rewritten because its blocks are gone when the put is committed.
const MAX_REWRITES: usize = 3;

/// Least time between two progress reports.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// How an object is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOptions {
    /// Name of the code.
    pub code: String,
    /// When parity is made.
    pub encoding: Encoding,
    /// Largest block in bytes; `None` for a size that fits the code (see [`kintsu_plan::Layout::sizes`]).
    pub block_bytes: Option<u64>,
    /// Cell in bytes; `None` for a size that fits the code (see [`kintsu_plan::Layout::sizes`]).
    pub cell_bytes: Option<u32>,
    /// Whether an object of this name may be replaced.
    pub replace: bool,
}

impl PutOptions {
    /// The defaults for a code: encoded online, in blocks and cells that fit the code (64 MiB and 128 KiB, or
    /// somewhat more); a name that exists is refused.
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
    /// Stores the bytes of `source` as an object. `progress` gets the bytes done and the total. Dropping the
    /// future abandons the put.
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
            received_code(&options.code, None).await?;
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
                async move { c.objects.begin_put(begin).await }
            })
            .await?;
        let mut lease = Lease::hold(self, ticket.put, ticket.lease_ms);
        self.join(ticket.cluster)?;
        let code = received_code(&options.code, ticket.definition.take()).await?;
        let nodes = by_id(ticket.nodes);
        let label = (ticket.cluster, ticket.label);
        let put = Put::new(self.clone(), ticket.put, source.clone(), code, options.encoding, label, nodes);
        let mut writes = Writes { put: Arc::new(put), total: size, untold: Vec::new(), progress: &progress };
        tokio::select! {
            written = writes.all(ticket.stripes) => written?,
            lost = lease.lost() => return Err(lost),
        }
        let mut rewritten = HashMap::new();
        loop {
            source.check_unchanged()?;
            let commit = CommitPut { put: ticket.put, stripes: writes.untold.clone() };
            let reply = self.call_patiently(|mut c| {
                let commit = commit.clone();
                async move { c.objects.commit_put(commit).await }
            });
            let refused = match reply.await? {
                CommitReply::Visible(object) => {
                    lease.fulfilled();
                    return Ok(object);
                }
                CommitReply::Refused(refused) => refused,
            };
            give_up_at_last(&mut rewritten, &refused)?;
            tokio::select! {
                written = writes.again(refused) => written?,
                lost = lease.lost() => return Err(lost),
            }
        }
    }
}

/// Counts how often each stripe (named by its first byte in the object) was refused; fails beyond the limit.
fn give_up_at_last(counts: &mut HashMap<u64, usize>, refused: &[RefusedStripe]) -> Result<(), ClientError> {
    if refused.is_empty() {
        return Err(ClientError::Corrupt("expected the stripes that a commit refuses, got none".into()));
    }
    for stripe in refused {
        let count = counts.entry(stripe.offset).or_insert(0);
        *count += 1;
        if *count > MAX_REWRITES {
            let why =
                format!("what was written is gone again after {MAX_REWRITES} rewrites: {}", stripe.detail);
            return Err(ClientError::Interrupted(why));
        }
    }
    Ok(())
}

/// The stripes of one put, written a few at a time.
struct Writes<'a, P> {
    put: Arc<Put>,
    /// Bytes of the object.
    total: u64,
    /// Written stripes that the coordinator has not been told of yet.
    untold: Vec<WrittenStripe>,
    progress: &'a P,
}

impl<P: Fn(u64, u64)> Writes<'_, P> {
    /// Writes the whole object, beginning with the stripes that were granted first.
    async fn all(&mut self, first: Vec<StripeGrant>) -> Result<(), ClientError> {
        (self.progress)(0, self.total);
        let (mut under_way, mut offset, mut granted) = (VecDeque::new(), 0, 0);
        let mut grants = VecDeque::from(first);
        loop {
            while under_way.len() < STRIPES_AT_ONCE {
                if grants.is_empty() && offset < self.total {
                    grants = self.put.more_stripes(granted, &mut self.untold).await?.into();
                }
                let Some(grant) = grants.pop_front() else { break };
                let data_bytes = grant.layout.data_bytes;
                if data_bytes == 0 || data_bytes > self.total - offset {
                    let rest = self.total - offset;
                    let why = format!("expected a stripe for 1 to {rest} bytes, got one for {data_bytes}");
                    return Err(ClientError::Corrupt(why));
                }
                under_way.push_back(RunningWrite::start(
                    StripeWrite::new(self.put.clone(), grant, offset).write(),
                ));
                (offset, granted) = (offset + data_bytes, granted + 1);
            }
            let Some(mut writer) = under_way.pop_front() else { break };
            self.end(&mut writer).await?;
        }
        (self.progress)(self.total, self.total);
        Ok(())
    }

    /// Rewrites the stripes that a commit refused.
    async fn again(&mut self, refused: Vec<RefusedStripe>) -> Result<(), ClientError> {
        let gone: HashSet<_> = refused.iter().map(|stripe| stripe.grant.id).collect();
        self.untold.retain(|written| !gone.contains(&written.id));
        let (mut under_way, mut rest) = (VecDeque::new(), refused.into_iter());
        loop {
            while under_way.len() < STRIPES_AT_ONCE {
                let Some(RefusedStripe { grant, offset, node, detail }) = rest.next() else { break };
                let write = StripeWrite::new(self.put.clone(), grant, offset);
                under_way.push_back(RunningWrite::start(write.write_anew(node, detail)));
            }
            let Some(mut writer) = under_way.pop_front() else { return Ok(()) };
            self.end(&mut writer).await?;
        }
    }

    async fn end(&mut self, writer: &mut RunningWrite) -> Result<(), ClientError> {
        let written = writer.end(|| (self.progress)(self.put.done().min(self.total), self.total)).await?;
        self.untold.push(written);
        Ok(())
    }
}

/// A stripe that is being written; dropping it ends it.
struct RunningWrite(JoinHandle<Result<WrittenStripe, ClientError>>);

impl RunningWrite {
    fn start(write: impl Future<Output = Result<WrittenStripe, ClientError>> + Send + 'static) -> Self {
        Self(tokio::spawn(write))
    }

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

impl Drop for RunningWrite {
    fn drop(&mut self) {
        self.0.abort();
    }
}
