//! Writing an object: stripe by stripe; then it becomes visible as a whole.
//!
//! Invariants: nothing is visible before the coordinator has accepted the digests of all blocks, each of which is
//! durable by then. If the put ends before that (by an error, a dropped future, a dead process), it leaves only
//! blocks that the coordinator deletes, at once or when the lease expires. Memory is bounded by the slices in
//! flight of the stripes being written, and the digests of one batch of stripes; for a stream also by a few whole
//! stripes (`feed`).

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kintsu_code::USER;
use kintsu_plan::Layout;
use kintsu_wire::message::{
    Attributes, BeginPut, CommitPut, CommitReply, Encoding, Ending, ObjectInfo, PutTicket, RefusedStripe,
    StripeGrant, StripeOfVolume, WrittenStripe,
};
use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::codes::received_code;
use crate::feed::{Feed, KEPT_BYTES, Stream};
use crate::grants::Grants;
use crate::lease::Lease;
use crate::pack::is_small;
use crate::volume::stripe_name;
use crate::write_stripe::{Put, StripeSource, StripeWrite};
use crate::{Client, ClientError, ReadAt};

/// Stripes of a file written at the same time.
const STRIPES_AT_ONCE: usize = 2;

/// How often one stripe is rewritten because its blocks are gone when the put is committed.
const MAX_REWRITES: usize = 3;

/// How often a put is committed with an ending whose checks do not hold.
const MAX_ENDINGS: usize = 64;

/// Most object bytes of a stripe of a stream, which is kept in memory.
const MOST_STREAM_STRIPE_BYTES: u64 = 1 << 30;

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
    /// What its user says about it.
    pub attributes: Attributes,
    /// Most bytes of a stream that are kept in memory, but at least three stripes; `None` for 144 MiB.
    pub kept_bytes: Option<usize>,
    /// Whether it gets a stripe of its own even if it is small: it is to be joined with others.
    pub alone: bool,
}

/// Decides how a put ends, when all of its bytes are read and nothing is visible yet.
pub trait Finish: Send + Sync {
    /// What happens together with the commit. It is asked once more each time a check did not hold: the objects have
    /// changed since it looked. An error abandons the put. For a small object it may be asked before the bytes are written.
    fn finish(&self) -> Pin<Box<dyn Future<Output = Result<Ending, ClientError>> + Send + '_>>;
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
            attributes: Attributes::default(),
            kept_bytes: None,
            alone: false,
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
        self.put_as(source, (name, None), options, None, progress).await
    }

    /// As [`Client::put`]; `finish` decides how it ends.
    ///
    /// # Errors
    /// As [`Client::put`], and those of `finish`.
    pub async fn put_then(
        &self,
        source: Arc<dyn ReadAt>,
        name: &str,
        options: PutOptions,
        finish: &dyn Finish,
    ) -> Result<ObjectInfo, ClientError> {
        self.put_as(source, (name, None), options, Some(finish), |_, _| {}).await
    }

    /// As [`Client::put_stream`]; `finish` decides how it ends.
    ///
    /// # Errors
    /// As [`Client::put_stream`], and those of `finish`.
    pub async fn put_stream_then(
        &self,
        stream: &mut (dyn AsyncRead + Unpin + Send),
        name: &str,
        options: PutOptions,
        finish: &dyn Finish,
    ) -> Result<ObjectInfo, ClientError> {
        self.put_pieces(Stream::Here(stream), name, options, Some(finish), |_| {}).await
    }

    /// Stores a stripe of a volume.
    ///
    /// # Errors
    /// As [`Client::put`]; `Interrupted` if another writer has taken the volume over.
    pub(crate) async fn put_stripe(
        &self,
        bytes: Bytes,
        of: StripeOfVolume,
        options: PutOptions,
    ) -> Result<(), ClientError> {
        let name = stripe_name(of.volume, of.index);
        self.put_as(Arc::new(bytes), (&name, Some(of)), options, None, |_, _| {}).await.map(drop)
    }

    async fn put_as(
        &self,
        source: Arc<dyn ReadAt>,
        (name, volume): (&str, Option<StripeOfVolume>),
        options: PutOptions,
        finish: Option<&dyn Finish>,
        progress: impl Fn(u64, u64),
    ) -> Result<ObjectInfo, ClientError> {
        if volume.is_none() && is_small(source.len(), &options) {
            return self.put_small(source, name, options, finish, progress).await;
        }
        self.put_by_itself(source, (name, volume), options, finish, progress).await
    }

    /// Stores an object in stripes of its own.
    pub(crate) async fn put_by_itself(
        &self,
        source: Arc<dyn ReadAt>,
        (name, volume): (&str, Option<StripeOfVolume>),
        options: PutOptions,
        finish: Option<&dyn Finish>,
        progress: impl Fn(u64, u64),
    ) -> Result<ObjectInfo, ClientError> {
        if !options.code.starts_with(USER) {
            received_code(&options.code, None).await?;
        }
        let (size, began) = (source.len(), Instant::now());
        let Begun { put, mut lease, grants, timed } =
            self.begin((name, volume), &options, Some(size)).await?;
        let tell = |done: u64| progress(done.min(size), size);
        let mut writes = Writes::new(put, &tell);
        lease.during(writes.all(&source, grants)).await?;
        loop {
            source.check_unchanged()?;
            let refused = match self.commit(&writes, size, finish).await? {
                CommitReply::Visible(object) => {
                    lease.fulfilled();
                    self.felt(timed, began.elapsed());
                    return Ok(object);
                }
                CommitReply::Refused(refused) => refused,
                CommitReply::Unmet(_) => return Err(unmet()),
            };
            lease.during(writes.again(&source, refused)).await?;
        }
    }

    /// Stores the bytes of a stream, to its end, as an object. Keeps a few stripes in memory, which are shorter than
    /// those of [`Client::put`] unless `options` say how long a block is. A stream that fits in one of them is stored
    /// like a file with the same bytes. `progress` gets the bytes done. Dropping the future abandons the put.
    ///
    /// # Errors
    /// As [`Client::put`]; `Interrupted` if a node loses what was written of a stripe, so that it must be written
    /// again, after its bytes have gone by. The cluster is then as before.
    pub async fn put_stream(
        &self,
        stream: &mut (dyn AsyncRead + Unpin + Send),
        name: &str,
        options: PutOptions,
        progress: impl Fn(u64),
    ) -> Result<ObjectInfo, ClientError> {
        self.put_pieces(Stream::Here(stream), name, options, None, progress).await
    }

    /// The same for a stream whose reads block, such as a pipe. A thread for blocking work reads it, ahead of what is
    /// written. If the put ends early, that thread ends with the read that it is in; a runtime that is shut down
    /// without a limit of time waits for it.
    ///
    /// # Errors
    /// As [`Client::put_stream`].
    pub async fn put_reader(
        &self,
        reader: impl Read + Send + 'static,
        name: &str,
        options: PutOptions,
        progress: impl Fn(u64),
    ) -> Result<ObjectInfo, ClientError> {
        self.put_pieces(Stream::Blocking(Box::new(reader)), name, options, None, progress).await
    }

    async fn put_pieces(
        &self,
        stream: Stream<'_>,
        name: &str,
        options: PutOptions,
        finish: Option<&dyn Finish>,
        progress: impl Fn(u64),
    ) -> Result<ObjectInfo, ClientError> {
        let definition = match options.code.starts_with(USER) {
            true => Some(self.find_code(&options.code).await?),
            false => None,
        };
        let code = received_code(&options.code, definition).await?;
        let (block, cell) = Layout::stream_sizes(code.k(), code.w(), options.block_bytes, options.cell_bytes);
        let (piece, kept) = (stripe_bytes(code.k(), block)?, options.kept_bytes.unwrap_or(KEPT_BYTES));
        let mut feed = Feed::new(stream, piece, kept, self.spares());
        let first = feed.next().await?;
        if first.size.is_some() {
            return self.put_as(first.bytes, (name, None), options, finish, |done, _| progress(done)).await;
        }
        let options = PutOptions { block_bytes: Some(block), cell_bytes: Some(cell), ..options };
        let Begun { put, mut lease, grants, .. } = self.begin((name, None), &options, None).await?;
        let tell = |done: u64| progress(done);
        let mut writes = Writes::new(put, &tell);
        let (queue, pieces) = mpsc::channel(1);
        let at_once = feed.at_once();
        let written =
            async { tokio::try_join!(feed.run(queue), writes.stream(first, pieces, grants, at_once)) };
        let ((), size) = lease.during(written).await?;
        match self.commit(&writes, size, finish).await? {
            CommitReply::Visible(object) => {
                lease.fulfilled();
                Ok(object)
            }
            CommitReply::Unmet(_) => Err(unmet()),
            CommitReply::Refused(refused) => {
                let why = refused.first().map_or("it does not say why", |stripe| &stripe.detail);
                let what = "the stream cannot be read again, and some of it must be written again";
                Err(ClientError::Interrupted(format!("{what}: {why}")))
            }
        }
    }

    async fn begin(
        &self,
        (name, volume): (&str, Option<StripeOfVolume>),
        options: &PutOptions,
        size: Option<u64>,
    ) -> Result<Begun, ClientError> {
        let begin = BeginPut {
            volume,
            name: name.to_owned(),
            size,
            code: options.code.clone(),
            encoding: options.encoding,
            block_bytes: options.block_bytes,
            cell_bytes: options.cell_bytes,
            replace: options.replace,
            attributes: options.attributes.clone(),
        };
        let ticket = self.call(|mut c| {
            let begin = begin.clone();
            async move { c.objects.begin_put(begin).await }
        });
        self.begun(ticket.await?, &options.code, options.encoding).await
    }

    /// A put that the coordinator has begun.
    pub(crate) async fn begun(
        &self,
        ticket: PutTicket,
        code: &str,
        encoding: Encoding,
    ) -> Result<Begun, ClientError> {
        let lease = Lease::hold(self, ticket.put, ticket.lease_ms);
        self.join(ticket.cluster)?;
        let code = received_code(code, ticket.definition).await?;
        let (nodes, label) = (self.told(ticket.nodes), (ticket.cluster, ticket.label));
        let writes = lease.writes.clone();
        let put = Arc::new(Put::new(self.clone(), ticket.put, code, encoding, label, nodes, writes));
        Ok(Begun { put, lease, grants: ticket.stripes.into(), timed: ticket.timed })
    }

    async fn commit<P>(
        &self,
        writes: &Writes<'_, P>,
        size: u64,
        finish: Option<&dyn Finish>,
    ) -> Result<CommitReply, ClientError> {
        let (put, checksum) = (writes.number(), writes.put.checksum(size));
        let mut tries = 0;
        loop {
            let ending = match finish {
                Some(finish) => Some(finish.finish().await?),
                None => None,
            };
            let commit = CommitPut { put, stripes: writes.written(), checksum, ending };
            let reply = self.call_patiently(|mut c| {
                let commit = commit.clone();
                async move { c.objects.commit_put(commit).await }
            });
            tries += 1;
            match reply.await? {
                CommitReply::Unmet(_) if finish.is_some() && tries < MAX_ENDINGS => {}
                reply => return Ok(reply),
            }
        }
    }
}

/// The objects changed each time between a look at them and the commit.
fn unmet() -> ClientError {
    ClientError::Interrupted(format!(
        "others change the same object all the time: its state was another one in {MAX_ENDINGS} commits"
    ))
}

/// A put that the coordinator knows.
pub(crate) struct Begun {
    pub put: Arc<Put>,
    pub lease: Lease,
    /// Its first stripes.
    pub grants: VecDeque<StripeGrant>,
    /// The coordinator wants to know how long it takes.
    pub timed: bool,
}

/// Bytes of a stripe of a stream.
fn stripe_bytes(k: usize, block: u64) -> Result<usize, ClientError> {
    let bytes = block.saturating_mul(k as u64);
    let fits = usize::try_from(bytes).ok().filter(|_| (1..=MOST_STREAM_STRIPE_BYTES).contains(&bytes));
    fits.ok_or_else(|| {
        let most = MOST_STREAM_STRIPE_BYTES / (k as u64).max(1);
        ClientError::Invalid(format!(
            "block size: expected 1 to {most} bytes for a stream, whose stripes are kept in memory, got {block}"
        ))
    })
}

/// Counts how often each stripe was refused; fails beyond the limit.
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
pub(crate) struct Writes<'a, T> {
    put: Arc<Put>,
    /// Written stripes that the coordinator has not been told of yet.
    untold: Vec<WrittenStripe>,
    /// How often each stripe, named by its first byte in the object, was refused.
    refused: HashMap<u64, usize>,
    /// Gets the bytes done.
    tell: &'a T,
}

impl<'a, T> Writes<'a, T> {
    pub(crate) fn new(put: Arc<Put>, tell: &'a T) -> Self {
        Self { put, untold: Vec::new(), refused: HashMap::new(), tell }
    }

    /// The number of the put.
    pub(crate) fn number(&self) -> u64 {
        self.put.number()
    }

    /// What was written, as far as the coordinator was not told of it.
    pub(crate) fn written(&self) -> Vec<WrittenStripe> {
        self.untold.clone()
    }
}

impl<T: Fn(u64)> Writes<'_, T> {
    /// Writes a whole object, beginning with the stripes that were granted first.
    pub(crate) async fn all(
        &mut self,
        source: &Arc<dyn ReadAt>,
        mut grants: VecDeque<StripeGrant>,
    ) -> Result<(), ClientError> {
        (self.tell)(0);
        let (mut under_way, mut offset, mut granted) = (VecDeque::new(), 0, 0);
        let total = source.len();
        loop {
            while under_way.len() < STRIPES_AT_ONCE {
                if grants.is_empty() && offset < total {
                    grants = self.put.more_stripes(granted, None, &mut self.untold).await?.into();
                }
                let Some(grant) = grants.pop_front() else { break };
                let data_bytes = grant.layout.data_bytes;
                if data_bytes == 0 || data_bytes > total - offset {
                    let rest = total - offset;
                    let why = format!("expected a stripe for 1 to {rest} bytes, got one for {data_bytes}");
                    return Err(ClientError::Corrupt(why));
                }
                under_way.push_back(self.start(grant, part(source, offset)));
                (offset, granted) = (offset + data_bytes, granted + 1);
            }
            let Some(mut writer) = under_way.pop_front() else { break };
            self.end(&mut writer).await?;
        }
        (self.tell)(total);
        Ok(())
    }

    /// Writes the pieces of a stream, some `at_once`: the first one, and those that follow. Returns the size of the
    /// object.
    async fn stream(
        &mut self,
        first: StripeSource,
        mut pieces: mpsc::Receiver<StripeSource>,
        grants: VecDeque<StripeGrant>,
        at_once: usize,
    ) -> Result<u64, ClientError> {
        let mut grants = Grants::new(self.put.clone(), grants, at_once);
        let grant = grants.next(&first, &mut self.untold).await?;
        let mut under_way = VecDeque::from([self.start(grant, first)]);
        let mut size = None;
        while size.is_none() || !under_way.is_empty() {
            let more = size.is_none() && under_way.len() < at_once;
            tokio::select! {
                piece = pieces.recv(), if more => {
                    // The pieces end early only if reading them has failed, which ends the put.
                    let Some(piece) = piece else { return std::future::pending().await };
                    size = piece.size;
                    let grant = grants.next(&piece, &mut self.untold).await?;
                    under_way.push_back(self.start(grant, piece));
                }
                ended = first_end(&mut under_way, || (self.tell)(self.put.done())) => self.untold.push(ended?),
            }
        }
        Ok(size.unwrap_or_default())
    }

    fn start(&self, grant: StripeGrant, source: StripeSource) -> RunningWrite {
        self.put.writes.start(StripeWrite::new(self.put.clone(), grant, source).write())
    }

    /// Rewrites the stripes that a commit refused; fails if that is in vain again and again.
    pub(crate) async fn again(
        &mut self,
        source: &Arc<dyn ReadAt>,
        refused: Vec<RefusedStripe>,
    ) -> Result<(), ClientError> {
        give_up_at_last(&mut self.refused, &refused)?;
        let gone: HashSet<_> = refused.iter().map(|stripe| stripe.grant.id).collect();
        self.untold.retain(|written| !gone.contains(&written.id));
        let (mut under_way, mut rest) = (VecDeque::new(), refused.into_iter());
        loop {
            while under_way.len() < STRIPES_AT_ONCE {
                let Some(RefusedStripe { grant, offset, node, detail }) = rest.next() else { break };
                let write = StripeWrite::new(self.put.clone(), grant, part(source, offset));
                under_way.push_back(self.put.writes.start(write.write_anew(node, detail)));
            }
            let Some(mut writer) = under_way.pop_front() else { return Ok(()) };
            self.end(&mut writer).await?;
        }
    }

    async fn end(&mut self, writer: &mut RunningWrite) -> Result<(), ClientError> {
        let written = ended(writer, || (self.tell)(self.put.done())).await?;
        self.untold.push(written);
        Ok(())
    }
}

/// The stripe that begins at `offset` of an object whose bytes can be read at any time.
fn part(source: &Arc<dyn ReadAt>, offset: u64) -> StripeSource {
    StripeSource { bytes: source.clone(), from: offset, offset, size: Some(source.len()) }
}

/// Waits for the end of the first write; for ever if there is none.
async fn first_end(
    under_way: &mut VecDeque<RunningWrite>,
    tell: impl Fn(),
) -> Result<WrittenStripe, ClientError> {
    let Some(first) = under_way.front_mut() else { return std::future::pending().await };
    let written = ended(first, tell).await;
    under_way.pop_front();
    written
}

/// A stripe that is being written.
type RunningWrite = JoinHandle<Result<WrittenStripe, ClientError>>;

/// Waits for its end.
async fn ended(write: &mut RunningWrite, tell: impl Fn()) -> Result<WrittenStripe, ClientError> {
    let mut clock = tokio::time::interval(TELL_EVERY);
    loop {
        tokio::select! {
            done = &mut *write => {
                return done.unwrap_or_else(|e| Err(ClientError::Io(format!("a write task ended early: {e}"))));
            }
            _ = clock.tick() => tell(),
        }
    }
}
