//! Small objects that come while others are being written are written together, as one pack in one stripe: group commit.
//!
//! A put that comes while this client writes no other small object is written at once, by itself. Those that come meanwhile
//! wait, and when a write ends, all that wait begin as the next one. Two writes are under way at most, the second only if it is
//! about as large as those before it: a small write costs as much as a large one.
//!
//! Writers whose objects were just written send their next ones now. So the next write first waits for them, for half as long as the
//! last one took at most (`Gather`); unless that was of no use lately. A writer alone waits for nobody.
//!
//! Invariants: a member is acknowledged when the transaction that made it visible is durable, and not before; what
//! becomes of one member does not depend on the others, except that an error of the whole write is an error of each.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kintsu_wire::message::{
    Attributes, BeginPack, CommitPack, Encoding, MOST_MEMBERS, MemberEnd, MemberReply, NewMember, ObjectInfo,
    PACK_BYTES, PackReply, PutTicket, SMALL_BYTES, pack_bytes,
};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::checksum::Running;
use crate::write::{Begun, Finish, PutOptions, Writes};
use crate::{Client, ClientError, ReadAt};

/// Most bytes of what is said about the members of a pack, nearly all of which is in the label of each block.
pub(crate) const SAID_BYTES: usize = 64 << 10;

/// Most writes of small objects at a time.
const WRITES: usize = 2;

/// What objects must have in common to share a stripe.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Kind {
    pub code: String,
    pub block_bytes: Option<u64>,
    pub cell_bytes: Option<u32>,
}

impl Kind {
    /// Most bytes of a pack: it has one stripe.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.block_bytes.map_or(PACK_BYTES, pack_bytes)
    }
}

/// The small objects that a client writes.
#[derive(Default)]
pub(crate) struct Packs(Mutex<HashMap<Kind, Line>>);

/// Those of a kind.
#[derive(Default)]
struct Line {
    /// Of each write under way, how many objects it has.
    writing: Vec<usize>,
    /// How many those had that began lately: the most, a quarter less with each that begins.
    usual: usize,
    waiting: VecDeque<Small>,
    gather: Option<Gather>,
    /// How many more writes end before the next gathering.
    skip: u32,
    /// How many the last gathering of no use made to be skipped.
    skipped: u32,
}

/// The next write waits until as many have come as may come soon.
struct Gather {
    /// Those of the write that has ended, and those that waited then.
    wanted: usize,
    waited: usize,
    until: Instant,
}

/// Most gatherings that are skipped.
const MOST_SKIPPED: u32 = 63;

/// A small object that waits.
struct Small {
    new: NewMember,
    bytes: Bytes,
    end: MemberEnd,
    since: Instant,
    tell: oneshot::Sender<Turn>,
}

/// What becomes of a small object that has waited.
enum Turn {
    /// It is written by itself; nothing of it is visible.
    Alone(Option<Writing>),
    /// It was written with others.
    Ended(Result<ObjectInfo, ClientError>),
}

/// One of the writes under way. When it is dropped, the next one begins.
struct Writing {
    client: Client,
    kind: Kind,
    count: usize,
    since: Instant,
}

impl Writing {
    fn new(client: &Client, kind: &Kind, count: usize) -> Self {
        Self { client: client.clone(), kind: kind.clone(), count, since: Instant::now() }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let now = Instant::now();
        let until = {
            let mut lines = self.client.packs().lines();
            let Some(line) = lines.get_mut(&self.kind) else { return };
            line.ended(self.count, now - self.since, now)
        };
        self.client.go_on(&self.kind);
        if let (Some(until), Ok(runtime)) = (until, tokio::runtime::Handle::try_current()) {
            let (client, kind) = (self.client.clone(), self.kind.clone());
            runtime.spawn(async move {
                tokio::time::sleep_until(until).await;
                client.go_on(&kind);
            });
        }
    }
}

impl Packs {
    fn lines(&self) -> MutexGuard<'_, HashMap<Kind, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn is_idle(&self) -> bool {
        self.writing.is_empty() && self.waiting.is_empty() && self.gather.is_none()
    }

    /// A write of `count` objects has ended, which took so long. Returns until when the next one waits, if it does.
    fn ended(&mut self, count: usize, took: Duration, now: Instant) -> Option<Instant> {
        if let Some(at) = self.writing.iter().position(|writing| *writing == count) {
            self.writing.swap_remove(at);
        }
        let waited = self.waiting.len();
        let wanted = (waited + count).min(MOST_MEMBERS);
        if wanted < 2 || !self.writing.is_empty() {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        let until = now + took / 2;
        self.gather = Some(Gather { wanted, waited, until });
        Some(until)
    }

    /// Whether the next write waits for more objects.
    fn gathers(&mut self, most_bytes: u64, now: Instant) -> bool {
        let Some(Gather { wanted, waited, until }) = self.gather else { return false };
        let came = self.waiting.len();
        let is_full = || self.waiting.iter().map(|small| small.new.size).sum::<u64>() >= most_bytes;
        if came < wanted && now < until && !is_full() {
            return true;
        }
        // In one and a half times the time, one and a half times as many.
        let is_of_use = came >= wanted || came >= 2 && 2 * came >= 3 * waited;
        self.skipped = if is_of_use { 0 } else { (2 * self.skipped + 1).min(MOST_SKIPPED) };
        (self.gather, self.skip) = (None, self.skipped);
        false
    }

    /// The writes that begin now.
    fn begin(&mut self, most_bytes: u64, now: Instant) -> Vec<Vec<Small>> {
        let mut begun = Vec::new();
        while self.writing.len() < WRITES {
            self.waiting.retain(|small| !small.tell.is_closed());
            let alone = self.writing.is_empty();
            if alone && self.gathers(most_bytes, now)
                || self.waiting.is_empty()
                || !alone && self.waiting.len() < self.usual
            {
                break;
            }
            let members = self.next(most_bytes);
            self.usual = members.len().max(self.usual - self.usual.div_ceil(4));
            self.writing.push(members.len());
            begun.push(members);
        }
        begun
    }

    /// Takes the first that fit in one pack; at least one.
    fn next(&mut self, most_bytes: u64) -> Vec<Small> {
        let (mut bytes, mut said, mut count) = (0, 0, 0);
        for small in self.waiting.iter().take(MOST_MEMBERS) {
            bytes += small.new.size;
            said += said_bytes(&small.new, &small.end);
            if count > 0 && (bytes > most_bytes || said > SAID_BYTES) {
                break;
            }
            count += 1;
        }
        self.waiting.drain(..count).collect()
    }
}

/// About how many bytes are said about a member.
fn said_bytes(new: &NewMember, end: &MemberEnd) -> usize {
    let Attributes { content_type, user, facts } = &new.attributes;
    let more = end.ending.iter().flat_map(|ending| &ending.facts);
    let pairs = user.iter().chain(facts).chain(more).map(|(key, value)| key.len() + value.len());
    new.name.len() + content_type.as_ref().map_or(0, String::len) + pairs.sum::<usize>()
}

/// Whether an object may share a stripe with others.
pub(crate) fn is_small(len: u64, options: &PutOptions) -> bool {
    let most = SMALL_BYTES.min(options.block_bytes.unwrap_or(u64::MAX));
    !options.alone && options.encoding == Encoding::Online && (1..=most).contains(&len)
}

impl Client {
    /// Stores a small object: by itself, or with others that come at the same time. `progress` as in [`Client::put`].
    ///
    /// # Errors
    /// As [`Client::put`].
    pub(crate) async fn put_small(
        &self,
        source: Arc<dyn ReadAt>,
        name: &str,
        options: PutOptions,
        finish: Option<&dyn Finish>,
        progress: impl Fn(u64, u64),
    ) -> Result<ObjectInfo, ClientError> {
        let (size, since) = (source.len(), Instant::now());
        let PutOptions { code, block_bytes, cell_bytes, replace, attributes, .. } = options.clone();
        let kind = Kind { code, block_bytes, cell_bytes };
        if let Some(_writing) = self.write_now(&kind) {
            return self.put_by_itself(source, (name, None), options, finish, progress).await;
        }
        let bytes = whole(&source).await?;
        let ending = match finish {
            Some(finish) => Some(finish.finish().await?),
            None => None,
        };
        let mut sum = Running::new();
        sum.update(&bytes);
        let new = NewMember { name: name.to_owned(), size, replace, attributes, moves: None };
        let end = MemberEnd { checksum: Some(sum.end()), ending, given_up: false };
        let (tell, told) = oneshot::channel();
        progress(0, size);
        self.write_soon(&kind, Small { new, bytes, end, since, tell });
        let early = |_| ClientError::Interrupted("a write of small objects ended early".into());
        match told.await.map_err(early)? {
            Turn::Ended(ended) => {
                progress(size, size);
                ended
            }
            Turn::Alone(_writing) => {
                self.put_by_itself(source, (name, None), options, finish, progress).await
            }
        }
    }

    /// Begins a write if none is under way.
    fn write_now(&self, kind: &Kind) -> Option<Writing> {
        let mut lines = self.packs().lines();
        let line = lines.entry(kind.clone()).or_default();
        line.is_idle().then(|| {
            line.writing.push(1);
            Writing::new(self, kind, 1)
        })
    }

    /// An object waits for the next write; begins that if it may.
    fn write_soon(&self, kind: &Kind, small: Small) {
        self.packs().lines().entry(kind.clone()).or_default().waiting.push_back(small);
        self.go_on(kind);
    }

    /// Begins the writes that may begin.
    fn go_on(&self, kind: &Kind) {
        let begun = {
            let mut lines = self.packs().lines();
            let Some(line) = lines.get_mut(kind) else { return };
            let begun = line.begin(kind.most_bytes(), Instant::now());
            if line.is_idle() {
                lines.remove(kind);
            }
            begun
        };
        for mut members in begun {
            let writing = Writing::new(self, kind, members.len());
            if members.len() == 1 {
                // If nobody waits for it any more, the next write begins.
                let _ = members.remove(0).tell.send(Turn::Alone(Some(writing)));
            } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(write_pack(writing, members));
            }
        }
    }

    /// Writes a pack with the bytes of these members, which end as `ends` says when they are written. Returns what became of each
    /// member, and whether the coordinator wants to know how long it took.
    pub(crate) async fn pack(
        &self,
        kind: &Kind,
        members: Vec<(NewMember, Bytes)>,
        ends: impl Fn() -> Vec<MemberEnd>,
    ) -> Result<(Vec<MemberReply>, bool), ClientError> {
        let Kind { code, block_bytes, cell_bytes } = kind.clone();
        let (members, parts): (Vec<_>, Vec<_>) = members.into_iter().unzip();
        let count = members.len();
        let begin = BeginPack { code, block_bytes, cell_bytes, members };
        let ticket = self.call(|mut c| {
            let begin = begin.clone();
            async move { c.objects.begin_pack(begin).await }
        });
        let ticket: PutTicket = ticket.await?;
        let Begun { put, mut lease, grants, timed } =
            self.begun(ticket, &kind.code, Encoding::Online).await?;
        let mut bytes = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let source: Arc<dyn ReadAt> = Arc::new(bytes.freeze());
        let tell = |_| {};
        let mut writes = Writes::new(put, &tell);
        lease.during(writes.all(&source, grants)).await?;
        loop {
            let commit = CommitPack { put: writes.number(), stripes: writes.written(), members: ends() };
            let reply = self.call_patiently(|mut c| {
                let commit = commit.clone();
                async move { c.objects.commit_pack(commit).await }
            });
            let refused = match reply.await? {
                PackReply::Done(replies) if replies.len() == count => {
                    lease.fulfilled();
                    return Ok((replies, timed));
                }
                PackReply::Done(replies) => {
                    let got = replies.len();
                    return Err(ClientError::Corrupt(format!("expected {count} answers, got {got}")));
                }
                PackReply::Refused(refused) => refused,
            };
            lease.during(writes.again(&source, refused)).await?;
        }
    }
}

/// Writes a pack, and tells its members what became of them.
async fn write_pack(writing: Writing, members: Vec<Small>) {
    let client = writing.client.clone();
    let new = members.iter().map(|small| (small.new.clone(), small.bytes.clone())).collect();
    let end = |small: &Small| MemberEnd { given_up: small.tell.is_closed(), ..small.end.clone() };
    let ends = || members.iter().map(end).collect();
    let turns: Vec<Turn> = match client.pack(&writing.kind, new, ends).await {
        Ok((replies, timed)) => {
            let turn = |(reply, small): (MemberReply, &Small)| match reply {
                MemberReply::Visible(object) => {
                    client.felt(timed, small.since.elapsed());
                    Turn::Ended(Ok(object))
                }
                // Its end is decided anew.
                MemberReply::Unmet(_) => Turn::Alone(None),
                MemberReply::Refused { code, words } => {
                    let status = Status::new(Code::from_i32(code), words);
                    Turn::Ended(Err(ClientError::from_status(client.endpoint(), &status)))
                }
            };
            replies.into_iter().zip(&members).map(turn).collect()
        }
        // One of them may be bad: each finds out for itself.
        Err(ClientError::Invalid(_)) => members.iter().map(|_| Turn::Alone(None)).collect(),
        Err(error) => members.iter().map(|_| Turn::Ended(Err(error.clone()))).collect(),
    };
    // The next write begins before the members hear of this one: what they send next can go along with the one after it.
    drop(writing);
    for (small, turn) in members.into_iter().zip(turns) {
        // Somebody may not wait any more.
        let _ = small.tell.send(turn);
    }
}

/// All bytes of a source.
async fn whole(source: &Arc<dyn ReadAt>) -> Result<Bytes, ClientError> {
    let len = source.len() as usize;
    if let Some(bytes) = source.lend(0, len) {
        return Ok(bytes);
    }
    let source = source.clone();
    let read = move || {
        let mut bytes = vec![0; len];
        source.read_at(0, &mut bytes)?;
        source.check_unchanged()?;
        Ok::<_, std::io::Error>(Bytes::from(bytes))
    };
    let read = kintsu_wire::ambient::blocking(read).await;
    let read = read.map_err(|e| ClientError::Io(format!("reading the source ended early: {e}")))?;
    Ok(read?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    impl Line {
        /// An object comes; returns how many objects the writes have that begin.
        fn come(&mut self, now: Instant) -> Vec<usize> {
            let new = NewMember {
                name: String::new(),
                size: 4096,
                replace: false,
                attributes: Attributes::default(),
                moves: None,
            };
            let end = MemberEnd { checksum: None, ending: None, given_up: false };
            let (tell, told) = oneshot::channel();
            // It waits for ever.
            Box::leak(Box::new(told));
            self.waiting.push_back(Small { new, bytes: Bytes::new(), end, since: now, tell });
            self.begun(now)
        }

        fn begun(&mut self, now: Instant) -> Vec<usize> {
            self.begin(PACK_BYTES, now).iter().map(Vec::len).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn writers_that_come_back_go_together() {
        let (mut line, mut now) = (Line::default(), Instant::now());
        let mut begun: Vec<usize> = (0..16).flat_map(|_| line.come(now)).collect();
        // Each write takes 8 ms; whoever was in it comes back within 3.
        let mut sizes = Vec::new();
        for _ in 0..20 {
            let size = begun.remove(0);
            now += 8 * MS;
            line.ended(size, 8 * MS, now);
            begun.extend(line.begun(now));
            for i in 0..size as u32 {
                begun.extend(line.come(now + 3 * MS * i / 16));
            }
            now += 3 * MS;
            sizes.push(size);
        }
        assert!(sizes[8..].iter().all(|size| *size == 16), "{sizes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_waits_seldom_for_writers_that_do_not_come_back() {
        let (mut line, mut now) = (Line::default(), Instant::now());
        let (mut begun, mut waits) = (line.come(now), 0);
        for _ in 0..200 {
            let size = begun.remove(0);
            // Others come while it is written, evenly.
            for _ in 0..4 {
                now += 2 * MS;
                begun.extend(line.come(now));
            }
            // A second one ends with it.
            let more = std::mem::take(&mut begun);
            line.ended(size, 8 * MS, now);
            let until = more.into_iter().filter_map(|size| line.ended(size, 8 * MS, now)).next_back();
            begun.extend(line.begun(now));
            if begun.is_empty() {
                waits += 1;
                now = until.unwrap_or(now + 4 * MS);
                begun.extend(line.begun(now));
            }
            assert!(!begun.is_empty());
        }
        assert!(waits < 20, "{waits}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_alone_never_waits() {
        let (mut line, now) = (Line::default(), Instant::now());
        for _ in 0..5 {
            assert_eq!(line.come(now), [1]);
            assert_eq!(line.ended(1, 8 * MS, now), None);
            assert!(line.is_idle());
        }
        // Nobody comes back of many.
        line.ended(16, 8 * MS, now);
        assert!(!line.is_idle() && line.begun(now).is_empty());
        assert!(line.begun(now + 4 * MS).is_empty() && line.is_idle());
    }
}
