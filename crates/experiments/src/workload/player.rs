//! Runs workloads on a cluster.
//!
//! A number of tasks draw operations from one sequence. In a closed loop, as YCSB runs, each begins its next operation
//! when the last one has ended. In an open loop an operation is due at its own time, and its latency counts from then,
//! also if it begins late because all tasks are busy.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use kintsu_client::{Client, ClientError, PutOptions, ReadAt};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Operation, Score, Verb, Work, key};
use crate::error::{ExperimentError, Result};

/// How often an operation is tried again that another one has interrupted.
const ATTEMPTS: usize = 20;
/// The pause after an operation that failed.
const PAUSE: Duration = Duration::from_millis(50);
/// A run ends when this many operations have failed, and more than have not.
const MOST_FAILED: u64 = 100;

/// When operations begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// When an earlier one has ended.
    Closed,
    /// At the recorded times, divided by this factor.
    Open(f64),
}

/// A part of a run.
#[derive(Debug)]
pub struct Leg {
    /// What is done in it.
    pub work: Work,
    /// How long; `None`: until its last operation has begun.
    pub span: Option<Duration>,
}

/// Runs operations through some clients.
#[derive(Debug, Clone)]
pub struct Player {
    /// The clients, which the tasks share.
    pub clients: Vec<Client>,
    /// How values are stored.
    pub put: PutOptions,
    /// How many operations run at once.
    pub tasks: usize,
    /// When operations begin.
    pub arrivals: Arrivals,
}

impl Player {
    /// A player in a closed loop.
    pub fn new(clients: Vec<Client>, code: &str, tasks: usize) -> Self {
        let put = PutOptions { replace: true, ..PutOptions::new(code) };
        Self { clients, put, tasks, arrivals: Arrivals::Closed }
    }

    /// Writes the values that a workload works on, unless its keys are there; `watch` gets how many are written.
    ///
    /// # Errors
    /// When one cannot be written.
    pub async fn fill(&self, work: &Work, watch: impl Fn(usize)) -> Result<()> {
        let there = self.client(0)?.list(&format!("{}/", work.name), None, 1).await?;
        if !there.objects.is_empty() {
            return Ok(());
        }
        let mut running = JoinSet::new();
        for (number, record) in work.records.iter().enumerate() {
            if running.len() >= self.tasks.max(1) {
                joined(running.join_next().await)?;
                watch(number + 1 - running.len());
            }
            let (client, put) = (self.client(number)?.clone(), self.put.clone());
            let (name, bytes) = (key(&work.name, number as u64, record.key_bytes), record.bytes);
            running.spawn(async move { write(&client, &name, put, bytes).await });
        }
        while let Some(done) = running.join_next().await {
            joined(Some(done))?;
        }
        Ok(())
    }

    /// Removes all values of a workload.
    ///
    /// # Errors
    /// When one cannot be removed.
    pub async fn clear(&self, work: &str) -> Result<()> {
        let client = self.client(0)?;
        loop {
            let page = client.list(&format!("{work}/"), None, 500).await?;
            if page.objects.is_empty() {
                return Ok(());
            }
            let names = page.objects.iter().map(|object| client.remove(&object.name));
            futures::future::try_join_all(names).await?;
        }
    }

    /// Runs the parts one after the other, until the last one ends or `stop` is cancelled. Each task goes on to the next part by
    /// itself, so that a long operation holds up nobody else.
    ///
    /// # Errors
    /// When most operations fail.
    pub async fn run(&self, legs: Vec<Leg>, score: &Arc<Score>, stop: &CancellationToken) -> Result<()> {
        let part = |leg| Arc::new(Part::new(self, leg, score.clone(), stop.clone()));
        self.play(legs.into_iter().map(part).collect()).await
    }

    /// The same after a prelude whose operations count nowhere. The score begins anew with the first part after it.
    ///
    /// # Errors
    /// When most operations fail.
    pub async fn run_after(
        &self,
        prelude: Leg,
        legs: Vec<Leg>,
        score: &Arc<Score>,
        stop: &CancellationToken,
    ) -> Result<()> {
        let part = |leg| Part::new(self, leg, score.clone(), stop.clone());
        let mut parts = vec![Part::new(self, prelude, Arc::default(), stop.clone())];
        parts.extend(legs.into_iter().map(part));
        if let Some(first) = parts.get_mut(1) {
            first.restarts = true;
        }
        self.play(parts.into_iter().map(Arc::new).collect()).await
    }

    async fn play(&self, parts: Vec<Arc<Part>>) -> Result<()> {
        let mut tasks = JoinSet::new();
        for number in 0..self.tasks.max(1) {
            let (client, parts) = (self.client(number)?.clone(), parts.clone());
            tasks.spawn(async move {
                let mut over = Instant::now();
                for part in &parts {
                    over = part.task(&client, over).await?;
                }
                Ok::<_, ExperimentError>(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            joined(Some(done))?;
        }
        Ok(())
    }

    fn client(&self, number: usize) -> Result<&Client> {
        let client = self.clients.get(number % self.clients.len().max(1));
        client.ok_or_else(|| ExperimentError::invalid("clients", "at least one", 0))
    }
}

/// A part of a run, which its tasks share.
struct Part {
    name: String,
    key_bytes: Vec<u16>,
    new_key_bytes: u16,
    operations: Mutex<Box<dyn Iterator<Item = Operation> + Send>>,
    /// Keys whose insert has not ended.
    inserting: Mutex<BTreeSet<u64>>,
    put: PutOptions,
    arrivals: Arrivals,
    /// Set by the first task that comes to it.
    began: OnceLock<Instant>,
    span: Option<Duration>,
    score: Arc<Score>,
    /// Whether the score begins anew with it.
    restarts: bool,
    stop: CancellationToken,
}

impl Part {
    fn new(player: &Player, Leg { work, span }: Leg, score: Arc<Score>, stop: CancellationToken) -> Self {
        Self {
            key_bytes: work.records.iter().map(|record| record.key_bytes).collect(),
            new_key_bytes: work.key_bytes,
            name: work.name,
            operations: Mutex::new(work.operations),
            inserting: Mutex::default(),
            put: player.put.clone(),
            arrivals: player.arrivals,
            began: OnceLock::new(),
            span,
            score,
            restarts: false,
            stop,
        }
    }

    /// When it began: when the one before it was over, as the first task says that comes here.
    fn began(&self, before: Instant) -> Instant {
        *self.began.get_or_init(|| {
            if self.restarts {
                self.score.restart();
            }
            before
        })
    }

    /// Operation after operation, until there are no more or the part is over. The last one ends as it will. Returns when the part
    /// was over.
    async fn task(&self, client: &Client, before: Instant) -> Result<Instant> {
        let start = self.began(before);
        let end = self.span.map(|span| start + span);
        let is_over = |now: Instant| end.filter(|end| *end <= now);
        loop {
            if let Some(end) = is_over(Instant::now()) {
                return Ok(end);
            }
            let next = if self.stop.is_cancelled() { None } else { lock(&self.operations).next() };
            let Some(operation) = next else { return Ok(Instant::now()) };
            let began = match self.arrivals {
                Arrivals::Closed => Instant::now(),
                Arrivals::Open(speed) => {
                    let due = start + Duration::from_secs_f64(operation.at / speed.max(1e-9));
                    tokio::select! {
                        () = tokio::time::sleep_until(end.map_or(due, |end| due.min(end))) => {}
                        () = self.stop.cancelled() => return Ok(Instant::now()),
                    }
                    if let Some(end) = is_over(due) {
                        return Ok(end);
                    }
                    due
                }
            };
            match self.operate(client, operation).await {
                Ok(bytes) => self.score.ended(operation.verb, began.elapsed(), bytes),
                Err(error) => {
                    let (failed, done) = self.score.failed(&error);
                    if failed > MOST_FAILED && failed > done {
                        return Err(error.into());
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Returns the bytes that were read and written.
    async fn operate(&self, client: &Client, operation: Operation) -> Result<u64, ClientError> {
        let Operation { verb, key, bytes, values, .. } = operation;
        match verb {
            Verb::Insert => {
                lock(&self.inserting).insert(key);
                let written = write(client, &self.key(key), self.put.clone(), bytes).await;
                lock(&self.inserting).remove(&key);
                written
            }
            Verb::Update => write(client, &self.key(key), self.put.clone(), bytes).await,
            Verb::Read => read(client, &self.key(self.there(key))).await,
            Verb::Scan => self.scan(client, self.there(key), values).await,
            Verb::ReadModifyWrite => {
                let name = self.key(self.there(key));
                let read = read(client, &name).await?;
                Ok(read + write(client, &name, self.put.clone(), bytes).await?)
            }
        }
    }

    async fn scan(&self, client: &Client, first: u64, values: u32) -> Result<u64, ClientError> {
        let name = self.key(first);
        let mut bytes = read(client, &name).await?;
        if values > 1 {
            let page = client.list(&format!("{}/", self.name), Some(&name), values - 1).await?;
            for object in &page.objects {
                bytes += read(client, &object.name).await?;
            }
        }
        Ok(bytes)
    }

    /// The key, or the last one before it whose insert has ended, as YCSB reads only what was acknowledged.
    fn there(&self, mut key: u64) -> u64 {
        let inserting = lock(&self.inserting);
        while key > 0 && inserting.contains(&key) {
            key -= 1;
        }
        key
    }

    fn key(&self, number: u64) -> String {
        key(&self.name, number, self.key_bytes.get(number as usize).copied().unwrap_or(self.new_key_bytes))
    }
}

async fn read(client: &Client, name: &str) -> Result<u64, ClientError> {
    let mut left = ATTEMPTS;
    loop {
        match client.get(name, None, &mut tokio::io::sink(), |_, _| {}).await {
            Err(ClientError::Interrupted(_)) if left > 0 => left -= 1,
            other => return other.map(|report| report.bytes),
        }
    }
}

async fn write(client: &Client, name: &str, put: PutOptions, bytes: u64) -> Result<u64, ClientError> {
    let mut left = ATTEMPTS;
    loop {
        match client.put(Arc::new(Value { bytes }), name, put.clone(), |_, _| {}).await {
            Err(ClientError::Interrupted(_)) if left > 0 => left -= 1,
            other => return other.map(|_| bytes),
        }
    }
}

fn joined<T, E: Into<ExperimentError>>(
    done: Option<Result<Result<T, E>, tokio::task::JoinError>>,
) -> Result<()> {
    match done {
        Some(Err(error)) => Err(ExperimentError::io("a task of the load")(io::Error::other(error))),
        Some(Ok(Err(error))) => Err(error.into()),
        Some(Ok(Ok(_))) | None => Ok(()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes of all values are the same, over and over.
static PATTERN: [u8; 64 << 10] = pattern();

const fn pattern() -> [u8; 64 << 10] {
    let mut bytes = [0; 64 << 10];
    let (mut state, mut i) = (0x9e37_79b9u32, 0);
    while i < bytes.len() {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        bytes[i] = state as u8;
        i += 1;
    }
    bytes
}

/// A value to write.
struct Value {
    bytes: u64,
}

impl ReadAt for Value {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn in_memory(&self) -> bool {
        true
    }

    fn lend(&self, offset: u64, len: usize) -> Option<Bytes> {
        let start = offset as usize % PATTERN.len();
        PATTERN.get(start..start + len).map(Bytes::from_static)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut at = offset as usize % PATTERN.len();
        let mut rest = buffer;
        while !rest.is_empty() {
            let len = rest.len().min(PATTERN.len() - at);
            let (part, more) = rest.split_at_mut(len);
            part.copy_from_slice(&PATTERN[at..at + len]);
            (rest, at) = (more, 0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kintsu_cluster::Cluster;

    use super::*;

    const SMALL: u64 = 7;

    /// One operation that takes far longer than any part, then small ones.
    fn writes(name: &str, first: u64) -> Work {
        let write = move |key| Operation {
            at: 0.0,
            verb: Verb::Insert,
            key,
            bytes: if key == 0 { first } else { SMALL },
            values: 1,
        };
        Work {
            name: name.into(),
            records: Vec::new(),
            key_bytes: 20,
            operations: Box::new((0..3).map(write)),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tasks_go_on_to_the_next_part_by_themselves_and_a_prelude_counts_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Cluster::start(kintsu_cluster::Options::new(dir.path(), 3, 3)).await.unwrap();
        let client = Client::connect(&cluster.endpoint(), kintsu_client::Options::default()).await.unwrap();
        let player = Player::new(vec![client], "replication:n=3", 2);
        let span = Some(Duration::from_millis(1));
        let first = |name| Leg { work: writes(name, 64 << 20), span };
        let second = |name| Leg { work: writes(name, SMALL), span: None };
        let score = Arc::new(Score::with_log());
        player.run(vec![first("a"), second("b")], &score, &CancellationToken::new()).await.unwrap();
        let log = score.take_log();
        let long = log.iter().find(|ended| ended.bytes > SMALL).unwrap();
        let meanwhile =
            log.iter().filter(|ended| ended.bytes == SMALL && ended.began < long.began + long.took);
        assert!(meanwhile.count() >= 3, "{log:?}");
        let legs = vec![second("d")];
        player.run_after(first("c"), legs, &score, &CancellationToken::new()).await.unwrap();
        let log = score.take_log();
        assert!(log.len() == 3 && log.iter().all(|ended| ended.bytes == SMALL), "{log:?}");
        assert_eq!(score.read().all.operations, 3);
        cluster.shutdown().await.unwrap();
    }

    #[test]
    fn a_value_is_the_same_lent_or_read() {
        let value = Value { bytes: 200_000 };
        let mut whole = vec![0; 200_000];
        value.read_at(0, &mut whole).unwrap();
        for (offset, len) in [(0, 10), (65_530, 6), (65_536, 65_536), (131_000, 500)] {
            let mut part = vec![0; len];
            value.read_at(offset, &mut part).unwrap();
            assert_eq!(part, whole[offset as usize..][..len]);
            if let Some(lent) = value.lend(offset, len) {
                assert_eq!(lent, part);
            }
        }
        assert!(value.lend(65_530, 10).is_none() && value.lend(65_530, 6).is_some());
        assert!(value.read_at(199_999, &mut [0; 2]).is_err());
    }
}
