//! The data plane of one process: it accepts slice streams and hands them to the programs that expect them.
//!
//! The sender of a stream connects to its receiver. A client has no listener, so it connects to the nodes it sends
//! to and to those it receives from. A connection must introduce itself (the TLS handshake, if there is one, then a `Hello`)
//! within a few seconds. Then it waits until a program claims it, for a limited time. When too many connections wait in
//! either state, the oldest is closed; a well-behaved peer does not wait that long. What this is not: it knows nothing
//! about slices.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_plan::RunId;
use kintsu_wire::frame::{self, FrameVersion, HEADER_BYTES, Header, Hello, Kind};
use kintsu_wire::message::{Fault, FaultKind};
use kintsu_wire::net::{self, Strangers, Stream, TcpListener, TcpStream, leave_at_once};
use kintsu_wire::tls::Wanted;
use kintsu_wire::{Credentials, TrustedNetwork, WireError, check_listen};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::budget::Budget;
use crate::fault::fault;
use crate::limits::patiently;

/// How long a connection that has introduced itself may wait for its program.
const UNCLAIMED_TIMEOUT: Duration = Duration::from_secs(10);

/// Most connections that wait for their programs; one more closes the oldest.
const MOST_UNCLAIMED: usize = 512;

/// Most bytes in a socket that the kernel has not sent yet: enough to keep a link busy while the sender sleeps,
/// and few enough that a slow link does not hold seconds of slices.
const UNSENT_BYTES: u32 = 256 << 10;

/// The largest `Hello`.
const HELLO_BYTES: usize = 4096;

/// Why a process cannot take part in slice streams.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaneError {
    /// Listening on this address is not allowed.
    #[error(transparent)]
    Refused(#[from] WireError),
    /// The operating system refused.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// Where.
        addr: SocketAddr,
        /// Its reason.
        source: std::io::Error,
    },
}

/// Which stream a connection carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StreamKey {
    pub job: RunId,
    pub lane: u16,
    pub from: NodeId,
    pub to: NodeId,
}

/// Where one process sends and receives slices; shared by all its runs.
pub struct DataPlane {
    credentials: Credentials,
    addr: Option<SocketAddr>,
    meeting: Arc<Meeting>,
    pub(crate) budget: Budget,
    /// Bytes kept of blocks whose slices are shorter than a checksum unit.
    pub(crate) kept: Arc<AtomicUsize>,
    /// The task that accepts connections.
    accepting: Mutex<JoinSet<()>>,
}

/// Connections without a program, and programs without a connection.
#[derive(Default)]
struct Meeting {
    table: Mutex<Table>,
    strangers: Strangers,
}

#[derive(Default)]
struct Table {
    entries: HashMap<StreamKey, Entry>,
    /// Parked connections, oldest first.
    parked: BTreeMap<u64, StreamKey>,
    /// How many connections were ever parked.
    count: u64,
}

enum Entry {
    /// A program waits for the connection.
    Expected(oneshot::Sender<Stream>),
    /// The connection waits for a program; its keeper task ends when this entry is removed.
    Parked { stream: Stream, number: u64, _keeper: oneshot::Sender<()> },
}

impl DataPlane {
    /// Listens on `addr` (port 0: any) for streams that show these credentials.
    ///
    /// # Errors
    /// `Refused` beyond loopback, except with TLS, or on a trusted network with a token; `Listen`.
    pub async fn listen(
        addr: SocketAddr,
        credentials: Credentials,
        trusted: Option<TrustedNetwork>,
    ) -> Result<Arc<Self>, PlaneError> {
        check_listen(addr, &credentials, trusted)?;
        let failed = |source| PlaneError::Listen { addr, source };
        let listener = TcpListener::bind(addr).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let meeting = Arc::new(Meeting::default());
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, meeting.clone(), credentials.clone()));
        Ok(Arc::new(Self {
            credentials,
            addr: Some(bound),
            meeting,
            budget: Budget::default(),
            kept: Arc::default(),
            accepting: Mutex::new(accepting),
        }))
    }

    /// Only connects to others, with these credentials; does not listen.
    pub fn client(credentials: Credentials) -> Arc<Self> {
        Arc::new(Self {
            credentials,
            addr: None,
            meeting: Arc::default(),
            budget: Budget::default(),
            kept: Arc::default(),
            accepting: Mutex::default(),
        })
    }

    /// Stops listening; the address is free afterwards, whoever still holds this. Accepted connections stay.
    pub async fn close(&self) {
        let mut accepting =
            std::mem::take(&mut *self.accepting.lock().unwrap_or_else(PoisonError::into_inner));
        accepting.shutdown().await;
    }

    /// Where it listens; `None` for a client.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.addr
    }

    /// The connection that `peer` opens for this stream; waits for it up to `wait`.
    pub(crate) async fn claim(&self, key: StreamKey, peer: NodeId, wait: Duration) -> Result<Stream, Fault> {
        let (sender, arrival) = oneshot::channel();
        {
            let mut table = self.meeting.table();
            match table.take(key) {
                Some(Entry::Parked { stream, .. }) => return Ok(stream),
                Some(expected) => {
                    table.entries.insert(key, expected);
                    let detail = format!("{key:?}: expected one claim for this stream, got a second one");
                    return Err(fault(FaultKind::Invalid, peer, detail));
                }
                None => table.entries.insert(key, Entry::Expected(sender)),
            };
        }
        let _forget = Forget { meeting: &self.meeting, key };
        match patiently(wait, arrival).await {
            Some(Ok(stream)) => Ok(stream),
            _ => Err(fault(FaultKind::Lost, peer, format!("did not connect within {wait:?}"))),
        }
    }

    /// Connects to `peer` at `addr` to carry this stream.
    pub(crate) async fn connect(
        &self,
        key: StreamKey,
        frames: FrameVersion,
        peer: NodeId,
        addr: SocketAddr,
        wait: Duration,
    ) -> Result<Stream, Fault> {
        let token = self.credentials.as_token().map(str::to_owned);
        let StreamKey { job, lane, from, to } = key;
        let lost = |detail: String| fault(FaultKind::Lost, peer, format!("connecting to {addr}: {detail}"));
        let hello = Hello { job, lane, from, to, token, cluster: self.credentials.cluster() };
        let hello = frame::hello(frames, &hello).map_err(|e| lost(e.to_string()))?;
        let connecting = async {
            let tls = self.credentials.tls();
            let mut stream = net::connect(addr, tls, Wanted::Agent(peer)).await?;
            leave_at_once(stream.tcp(), UNSENT_BYTES)?;
            stream.write_all(&hello).await?;
            stream.flush().await?;
            Ok::<_, std::io::Error>(stream)
        };
        match patiently(wait, connecting).await {
            Some(Ok(stream)) => Ok(stream),
            Some(Err(error)) => Err(lost(error.to_string())),
            None => Err(lost(format!("no answer within {wait:?}"))),
        }
    }
}

impl Table {
    /// Removes the entry of a stream.
    fn take(&mut self, key: StreamKey) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        if let Entry::Parked { number, .. } = &entry {
            self.parked.remove(number);
        }
        Some(entry)
    }

    /// Keeps a connection until its program claims it; closes the oldest if there are too many.
    fn park(&mut self, key: StreamKey, stream: Stream) -> (u64, oneshot::Receiver<()>) {
        if self.parked.len() >= MOST_UNCLAIMED
            && let Some((_, oldest)) = self.parked.pop_first()
        {
            tracing::warn!(?oldest, limit = MOST_UNCLAIMED, "closed a connection: too many are unclaimed");
            self.entries.remove(&oldest);
        }
        let number = self.count;
        self.count += 1;
        let (keeper, claimed) = oneshot::channel();
        self.parked.insert(number, key);
        self.entries.insert(key, Entry::Parked { stream, number, _keeper: keeper });
        (number, claimed)
    }
}

impl Meeting {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection introduce itself, and hands it to its program.
    fn welcome(self: &Arc<Self>, tcp: TcpStream, from: SocketAddr, credentials: Credentials) {
        let meeting = self.clone();
        self.strangers.introduce(Some(from.ip()), |introducing| async move {
            let mut stream = match credentials.tls() {
                None => Stream::Bare(tcp),
                Some(tls) => match tls.accept(tcp).await {
                    Ok(stream) => stream,
                    Err(error) => {
                        return tracing::warn!(target: "audit", %from, "refused a connection: {error}");
                    }
                },
            };
            let mut frames = FrameVersion::default();
            let introduced = introduction(&mut stream, &credentials, &mut frames).await;
            drop(introducing);
            match introduced {
                Ok(key) => meeting.bring(key, stream).await,
                Err(detail) => refuse(stream, frames, from, detail).await,
            }
        });
    }

    /// Hands the connection to the program that expects it, or keeps it for a while.
    async fn bring(&self, key: StreamKey, stream: Stream) {
        let (number, claimed) = {
            let mut table = self.table();
            if let Some(Entry::Parked { .. }) = table.entries.get(&key) {
                return tracing::warn!(?key, "refused a second connection for a stream");
            }
            if let Some(Entry::Expected(program)) = table.take(key) {
                // A program that has just given up drops the connection.
                return drop(program.send(stream));
            }
            table.park(key, stream)
        };
        if patiently(UNCLAIMED_TIMEOUT, claimed).await.is_none() {
            let mut table = self.table();
            if table.parked.contains_key(&number) {
                table.take(key);
                tracing::debug!(?key, "closed a connection that no program claimed");
            }
        }
    }
}

/// Removes the expectation when its program no longer waits.
struct Forget<'a> {
    meeting: &'a Meeting,
    key: StreamKey,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let mut table = self.meeting.table();
        if let Some(Entry::Expected(_)) = table.entries.get(&self.key) {
            table.entries.remove(&self.key);
        }
    }
}

async fn accept(listener: TcpListener, meeting: Arc<Meeting>, credentials: Credentials) {
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a slice stream");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        meeting.welcome(stream, from, credentials.clone());
    }
}

/// Reads the `Hello` of a connection, and not a byte more. `frames` becomes the version of that frame, if it is known.
async fn introduction(
    stream: &mut Stream,
    credentials: &Credentials,
    frames: &mut FrameVersion,
) -> Result<StreamKey, String> {
    leave_at_once(stream.tcp(), UNSENT_BYTES).map_err(|error| error.to_string())?;
    let mut bytes = [0; HEADER_BYTES];
    stream.read_exact(&mut bytes).await.map_err(|error| error.to_string())?;
    *frames = FrameVersion::of_frame(&bytes).unwrap_or_default();
    let header = Header::decode(&bytes).map_err(|error| error.to_string())?;
    if header.kind != Kind::Hello || header.payload_bytes() > HELLO_BYTES {
        let got = format!("{:?} of {} bytes", header.kind, header.payload_bytes());
        return Err(format!("first frame: expected a hello of at most {HELLO_BYTES} bytes, got {got}"));
    }
    let mut payload = vec![0; header.payload_bytes()];
    stream.read_exact(&mut payload).await.map_err(|error| error.to_string())?;
    header.check_payload(&payload).map_err(|error| error.to_string())?;
    let hello: Hello = frame::unpack(&payload).map_err(|error| error.to_string())?;
    if !credentials.accepts(hello.token.as_deref()) {
        return Err("expected this cluster's token, got another one or none".into());
    }
    credentials.check_cluster(hello.cluster, true).map_err(|error| error.to_string())?;
    let peer = stream.peer();
    credentials.check_peer(&peer).map_err(|error| error.to_string())?;
    // Whoever connects is one of the stream's ends; we are the other one.
    let wanted = [hello.from, hello.to].map(|end| match end.is_client() {
        true => Wanted::User,
        false => Wanted::Agent(end),
    });
    peer.demand(&wanted).map_err(|refused| refused.message().to_owned())?;
    Ok(StreamKey { job: hello.job, lane: hello.lane, from: hello.from, to: hello.to })
}

/// Tells the other side the reason, if it still listens.
async fn refuse(mut stream: Stream, frames: FrameVersion, from: SocketAddr, detail: String) {
    tracing::warn!(target: "audit", %from, "refused a connection: {detail}");
    let reason = fault(FaultKind::Invalid, NodeId::CLIENT, format!("connection refused: {detail}"));
    if let Ok(frame) = frame::abort(frames, 0, &reason) {
        let saying = async {
            stream.write_all(&frame).await?;
            stream.shutdown().await
        };
        let _ = timeout(Duration::from_secs(1), saying).await;
    }
}

#[cfg(test)]
mod tests {
    use kintsu_wire::tls::{Authority, Issue};
    use kintsu_wire::{ClusterId, Tls};

    use super::*;

    #[tokio::test]
    async fn a_pause_of_our_own_is_not_held_against_a_peer_that_connects() {
        let (peer, us) = (NodeId(1), NodeId(2));
        let key = StreamKey { job: RunId(7), lane: 0, from: peer, to: us };
        let plane = DataPlane::client(Credentials::none());
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let stream = Stream::Bare(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
        let wait = Duration::from_millis(300);
        let arriving = async {
            std::thread::sleep(2 * wait);
            tokio::time::sleep(wait / 30).await;
            plane.meeting.bring(key, stream).await;
        };
        let (claimed, ()) = tokio::join!(plane.claim(key, peer, wait), arriving);
        claimed.unwrap();
        assert_eq!(plane.claim(key, peer, wait).await.unwrap_err().kind, FaultKind::Lost, "nobody connects");
    }

    /// Issues certificates of one cluster.
    struct Stage {
        dir: tempfile::TempDir,
        authority: Authority,
    }

    impl Stage {
        fn new(cluster: ClusterId) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let authority = Authority::init(&dir.path().join("ca"), cluster).unwrap();
            Self { dir, authority }
        }

        fn credentials(&self, role: &str) -> Credentials {
            let out = self.dir.path().join(role.replace('/', "-"));
            let (roles, valid) = (vec![role.parse().unwrap()], Duration::from_secs(3600));
            let issue = Issue { roles, hosts: Vec::new(), valid, out: out.clone(), replace: true };
            self.authority.issue(&issue).unwrap();
            Credentials::of(None, Some(&Tls::open(&out).unwrap())).unwrap()
        }
    }

    /// What a listener says to whoever opens a stream that it refuses.
    async fn said(mut stream: Stream) -> String {
        let mut bytes = Vec::new();
        // The end of a connection in TLS may be abrupt.
        let _ = stream.read_to_end(&mut bytes).await;
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[tokio::test]
    async fn a_stream_is_opened_by_one_of_its_ends_as_its_certificate_says() {
        const SHORT: Duration = Duration::from_millis(50);
        const LONG: Duration = Duration::from_secs(10);
        let (us, peer, other, client) = (NodeId(1), NodeId(2), NodeId(3), NodeId::CLIENT);
        let (stage, elsewhere) = (Stage::new(ClusterId([1; 16])), Stage::new(ClusterId([1; 16])));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let plane = DataPlane::listen(any, stage.credentials("agent/1"), None).await.unwrap();
        let addr = plane.addr().unwrap();
        let mut job = 0;
        let mut open = async |credentials: Credentials, from, to| {
            job += 1;
            let key = StreamKey { job: RunId(job), lane: 0, from, to };
            let opener = DataPlane::client(credentials);
            (key, opener.connect(key, FrameVersion::default(), us, addr, LONG).await)
        };
        for (role, from, to) in [
            ("agent/2", peer, us),
            ("client/alice", client, us),
            ("client/alice", us, client),
            ("operator/carol", client, us),
        ] {
            let (key, opened) = open(stage.credentials(role), from, to).await;
            let claimed = plane.claim(key, from, LONG).await;
            assert!(opened.is_ok() && claimed.is_ok(), "{role} {from} {to}: {claimed:?}");
        }
        for (role, from, to, words) in [
            ("client/alice", peer, us, "expected agent/2 or agent/1, got client/alice"),
            ("operator/carol", peer, us, "got operator/carol"),
            ("agent/3", peer, us, "expected agent/2 or agent/1, got agent/3"),
            ("agent/3", client, us, "expected a client or operator or agent/1, got agent/3"),
            ("agent/2", us, other, "expected agent/1 or agent/3, got agent/2"),
            ("coordinator", peer, us, "got coordinator"),
            ("coordinator", client, us, "got coordinator"),
        ] {
            let (key, opened) = open(stage.credentials(role), from, to).await;
            let said = said(opened.unwrap()).await;
            assert!(said.contains(words), "{role} {from} {to}: {said}");
            let claimed = plane.claim(key, from, SHORT).await;
            assert_eq!(claimed.unwrap_err().kind, FaultKind::Lost, "{role} {from} {to}");
        }
        // No certificate at all, and one of another authority.
        let plain = Credentials::none();
        plain.join(ClusterId([1; 16])).unwrap();
        for credentials in [plain, elsewhere.credentials("agent/2")] {
            let (key, opened) = open(credentials, peer, us).await;
            if let Ok(stream) = opened {
                assert!(!said(stream).await.contains("connection refused"), "it does not get so far");
            }
            assert_eq!(plane.claim(key, peer, SHORT).await.unwrap_err().kind, FaultKind::Lost);
        }
    }
}
