//! The HTTP server: connections, their limits, and an orderly shutdown.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use http::header::{CONNECTION, EXPECT};
use http::{HeaderValue, Method, Request, Response};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kintsu_client::Client;
use kintsu_wire::net::Serving;
use kintsu_wire::{Tls, TrustedNetwork};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::stream::DynByteStream;
use s3s::{Body, HttpError, HttpResponse, S3Error, S3ErrorCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::access::{AccessCheck, Origin, Secrets};
use crate::arriving::{self, DOCUMENT_BYTES, FIELD_BYTES, FORM_BYTES, PIECE_BYTES, Pieces};
use crate::body::hex;
use crate::cors::Crossing;
use crate::error::{Asked, REQUEST, because};
use crate::gateway::{Config, Gateway, Operations};
use crate::memory::Line;
use crate::metrics::{Counted, Numbers};
use crate::patience::{BUSY_RATE, LEAST_RATE, Sent, Taken, Terms};
use crate::places::{Place, Places};
use crate::{Keys, S3GatewayError, get, signed, skew};

/// Most bytes that a connection buffers of what it reads, and of what it writes. The head of a request (its first line and
/// headers) must fit. Bodies pass in pieces of at most this size, so it is more than heads need.
const BUFFER_BYTES: usize = 256 << 10;

/// Connections that make room for others take a moment to end. So many may do so at the same time.
const ENDING: usize = 64;

/// Answers of at most this many bytes are not counted as memory.
const SHORT_BYTES: usize = 4 << 10;

/// The least memory that is enough for one request.
const LEAST_MEMORY: usize = 128 << 20;

/// What clients may use together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time, and half of that from one network (an address of IPv4, or a /64 of IPv6). One more closes one without a
    /// request, or else is closed at once.
    pub connections: usize,
    /// Requests that are carried out at one time; further ones wait.
    pub requests: usize,
    /// Bytes of objects in memory, at least 128 MiB; requests that need more wait. One user has half of them, and so have all callers
    /// without a key.
    pub memory_bytes: usize,
    /// A request that waits for its turn or for memory longer than this is refused with `SlowDown`. Whoever holds memory for which others
    /// wait, and sends or takes less than 256 KiB a second in a quarter of this time, loses its request.
    pub patience: Duration,
    /// From its begin a connection has so long for the handshake and the head of its first request.
    pub first: Duration,
    /// The head of a later request comes within this time.
    pub head: Duration,
    /// A client that sends or takes nothing for this long, or less than 1 KiB a second, loses its request.
    pub idle: Duration,
    /// Least bytes of a part of a multipart upload, except the last one.
    pub part_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            requests: 256,
            memory_bytes: 1 << 30,
            patience: Duration::from_secs(20),
            first: Duration::from_secs(10),
            head: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            part_bytes: 5 << 20,
        }
    }
}

impl Limits {
    pub(crate) fn check(&self) -> Result<(), S3GatewayError> {
        if self.connections == 0 || self.requests == 0 || self.memory_bytes < LEAST_MEMORY {
            return Err(S3GatewayError::Invalid {
                what: "limits",
                expected: format!("at least one connection, one request and {LEAST_MEMORY} bytes of memory"),
                got: format!("{}, {} and {}", self.connections, self.requests, self.memory_bytes),
            });
        }
        Ok(())
    }

    fn terms(&self) -> Terms {
        Terms { idle: self.idle, busy: (self.patience / 4).max(Duration::from_millis(100)) }
    }
}

/// Where to listen.
#[derive(Debug, Clone)]
pub struct Listen {
    /// The address; port 0 for any free one.
    pub addr: SocketAddr,
    /// The network that is the operator's alone, where the address may lie.
    pub trusted: Option<TrustedNetwork>,
    /// Encrypts all connections. Clients need no certificate: their requests are signed.
    pub tls: Option<Tls>,
}

/// The S3 server of a cluster. Dropping it ends it at once; [`Server::shutdown`] lets requests finish.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    serving: Serving,
    numbers: Numbers,
    /// Carries out lifecycle rules; ends when it is dropped.
    _expiring: JoinSet<()>,
}

impl Server {
    /// Serves a cluster.
    ///
    /// # Errors
    /// `Address` if plain text is not allowed there, `Listen` if it cannot be listened on, `Invalid` for codes or limits.
    pub async fn start(
        client: Client,
        keys: Arc<Keys>,
        config: Config,
        listen: Listen,
    ) -> Result<Self, S3GatewayError> {
        config.check()?;
        let Listen { addr, trusted, tls } = listen;
        // Requests are signed with keys, so no token is needed; but everybody on the way can read them.
        if tls.is_none()
            && !addr.ip().is_loopback()
            && !trusted.is_some_and(|network| network.contains(addr.ip()))
        {
            return Err(S3GatewayError::Address(format!(
                "cannot listen on {addr}: expected a loopback address, one inside a trusted network, or TLS, because requests and \
                 answers are not encrypted without it"
            )));
        }
        let failed = |source| S3GatewayError::Listen { on: addr, source };
        let listener = TcpListener::bind(addr).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let limits = config.limits.clone();
        let gateway = Arc::new(Gateway::new(client, keys.clone(), config));
        let served = Served {
            service: service(gateway.clone(), keys),
            gateway: gateway.clone(),
            turns: Arc::new(Semaphore::new(limits.requests)),
            limits: limits.clone(),
            tls,
            ending: CancellationToken::new(),
        };
        let ending = served.ending.clone();
        let mut expiring = JoinSet::new();
        expiring.spawn(gateway.clone().expire(ending.clone()));
        let served = Arc::new(served);
        let places = Places::new(limits.connections);
        let most = limits.connections + ENDING;
        let serving = Serving::start(listener, "S3".to_owned(), most, ending, move |(stream, peer)| {
            let served = served.clone();
            // Here and not in the task, which may begin after that of a later connection: the oldest makes room first.
            let place = places.take(address(peer));
            async move {
                let counts = &served.gateway.counts;
                let Some(place) = place else {
                    counts.without_place.fetch_add(1, Relaxed);
                    tracing::warn!(
                        "refused a connection to S3 from {peer}: all places, or half of them for it, have requests"
                    );
                    return;
                };
                tokio::select! {
                    done = one(stream, address(peer), &served, &place) => if let Err(error) = done {
                        tracing::debug!("a connection from {peer}: {error}");
                    },
                    () = place.gone() => {
                        counts.without_place.fetch_add(1, Relaxed);
                        tracing::debug!("closed a connection from {peer} without a request, which made room for another one");
                    }
                }
            }
        });
        let numbers = Numbers::new(gateway, serving.places());
        Ok(Self { addr, serving, numbers, _expiring: expiring })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Connections at this moment.
    pub fn connections(&self) -> usize {
        self.serving.connections()
    }

    /// What it does, in numbers.
    pub fn numbers(&self) -> Numbers {
        self.numbers.clone()
    }

    /// Takes no more connections and requests, and waits until those under way are answered. After `wait` they are
    /// dropped. Returns whether all were answered.
    pub async fn shutdown(self, wait: Duration) -> bool {
        // A removal by a lifecycle rule is one transaction, so nothing waits for its end.
        self.serving.shutdown(wait).await
    }
}

fn service(gateway: Arc<Gateway>, keys: Arc<Keys>) -> S3Service {
    let mut config = S3Config::default();
    config.xml_max_body_size = DOCUMENT_BYTES;
    config.post_object_max_file_size = FORM_BYTES as u64;
    config.form_max_field_size = FIELD_BYTES;
    config.form_max_fields_size = FIELD_BYTES + PIECE_BYTES;
    let mut builder = S3ServiceBuilder::new(Operations(gateway.clone()));
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    builder.set_auth(Secrets(keys));
    builder.set_access(AccessCheck(gateway));
    builder.build()
}

/// What each connection gets.
struct Served {
    service: S3Service,
    gateway: Arc<Gateway>,
    /// A turn for each request that is carried out.
    turns: Arc<Semaphore>,
    limits: Limits,
    tls: Option<Tls>,
    ending: CancellationToken,
}

/// The address that a peer is known by. A listener of IPv6 may see one of IPv4 written as one of IPv6 (`::ffff:10.77.0.3`), which
/// the networks in policies would not contain.
fn address(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

/// One connection, from its handshake to its end.
async fn one(
    stream: TcpStream,
    peer: IpAddr,
    served: &Arc<Served>,
    place: &Place,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    // An answer in small pieces must not wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let first = Instant::now() + served.limits.first;
    let line = Line::new(peer);
    match &served.tls {
        None => speak(stream, Origin { peer, tls: false }, served, (line, place, first)).await?,
        Some(tls) => {
            let encrypted = timeout_at(first, tls.accept_anybody(stream)).await??;
            speak(encrypted, Origin { peer, tls: true }, served, (line, place, first)).await?;
        }
    }
    Ok(())
}

/// Answers the requests on a connection, if the head of the first one comes in time.
async fn speak<S>(
    stream: S,
    origin: Origin,
    served: &Arc<Served>,
    (line, place, first): (Arc<Line>, &Place, Instant),
) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let answering = service_fn(|request| {
        let asking = place.asks();
        let answering = answer(request, origin, served.clone(), line.clone());
        async move { Ok::<_, HttpError>(answering.await?.map(|body| body.with(asking))) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(served.limits.head)
        .max_buf_size(BUFFER_BYTES)
        .half_close(false);
    let stream = Taken::new(stream, served.limits.terms(), line.clone());
    let connection = http.serve_connection(TokioIo::new(stream), answering);
    let mut connection = std::pin::pin!(connection);
    let silent = async {
        sleep_until(first).await;
        if place.has_asked() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        ended = &mut connection => return ended,
        () = silent => return Ok(()),
        () = served.ending.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

/// Gives a request an id and carries it out; the answer has the id.
async fn answer(
    request: Request<Incoming>,
    origin: Origin,
    served: Arc<Served>,
    line: Arc<Line>,
) -> Result<Response<Counted<Body>>, HttpError> {
    let mut random = [0; 8];
    let id = getrandom::fill(&mut random).map_or_else(|_| String::new(), |()| hex(&random));
    let header = HeaderValue::try_from(&id);
    let asked = Arc::new(Asked { id, line: Some(line.clone()), ..Asked::default() });
    let mut under_way = served.gateway.counts.begin(asked.clone());
    let last = waits_for_nothing(&request);
    let mut answer = match REQUEST.scope(asked.clone(), carry_out(request, origin, served, line)).await {
        Ok(answer) => answer,
        Err(Failed::Told(error)) => {
            error.to_http_response().map_err(|error| HttpError::new(Box::new(error)))?
        }
        Err(Failed::Broken(error)) => return Err(error),
    };
    if let Some(unsigned) = asked.unsigned.get() {
        signed::tell(&mut answer, unsigned, &asked.id);
    }
    if let Ok(id) = header {
        answer.headers_mut().insert("x-amz-request-id", id);
    }
    if last {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    under_way.status = answer.status().as_u16();
    Ok(answer.map(|body| Counted::sent(body, under_way)))
}

/// Whether a client waits to be told to send a body that is empty. It gets its answer without being told (RFC 9110, 10.1.1), and botocore
/// (1.43) then reads the next answer on this connection wrongly, so there is none.
fn waits_for_nothing(request: &Request<Incoming>) -> bool {
    request.headers().contains_key(EXPECT) && request.body().is_end_stream()
}

/// Why a request was not carried out.
enum Failed {
    /// The client gets this error as the answer.
    Told(S3Error),
    /// The connection ends.
    Broken(HttpError),
}

impl From<S3Error> for Failed {
    fn from(error: S3Error) -> Self {
        Self::Told(error)
    }
}

/// Carries out a request when its turn comes. The turn ends when the head of the answer is ready; the limit of memory
/// covers its body, whether that is of an object or was made here.
async fn carry_out(
    request: Request<Incoming>,
    origin: Origin,
    served: Arc<Served>,
    line: Arc<Line>,
) -> Result<HttpResponse, Failed> {
    let Served { gateway, limits, .. } = &*served;
    skew::check(request.headers(), SystemTime::now())?;
    let late = Arc::new(AtomicBool::new(false));
    let (mut head, body) = request.into_parts();
    let body = Counted::received(body, gateway.counts.clone());
    let body = Sent::new(body, limits.terms(), line, late.clone());
    // Without a turn: whoever sends a form may be a stranger who takes its time.
    let (body, _memory) = arriving::received(gateway, &mut head, body).await?;
    let turn = timeout(limits.patience, served.turns.clone().acquire_owned()).await;
    let Ok(Ok(_turn)) = turn else {
        gateway.counts.without_turn.fetch_add(1, Relaxed);
        return Err(because(S3ErrorCode::SlowDown, "the server is busy; try again later").into());
    };
    if head.method == Method::OPTIONS {
        Asked::is("Preflight");
        return Ok(gateway.preflight(&head.uri, &head.headers).await?);
    }
    head.extensions.insert(origin);
    let crossing = Crossing::of(&head.method, &head.uri, &head.headers);
    let mut answer = served.service.call(Request::from_parts(head, body)).await.map_err(Failed::Broken)?;
    if late.load(Relaxed) {
        let why =
            format!("fewer than {LEAST_RATE} bytes a second, or {BUSY_RATE} where others wait for memory");
        return Err(arriving::too_slow(&why).into());
    }
    if Asked::asks_for("GetObjectAttributes")
        && let Some(unquoted) = answer.body().bytes().and_then(|document| get::unquoted(&document))
    {
        *answer.body_mut() = Body::from(unquoted);
    }
    if let Some(crossing) = crossing {
        gateway.allow_crossing(&crossing, &mut answer).await;
    }
    // A list, or another document: it is kept until the client has taken it.
    let kept = answer.body().bytes().filter(|bytes| bytes.len() > SHORT_BYTES);
    if let Some(bytes) = kept {
        let memory = gateway.memory(bytes.len()).await?;
        *answer.body_mut() = Body::from(Box::pin(Pieces::of(bytes, Some(memory))) as DynByteStream);
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ipv4_is_known_as_such() {
        for (peer, addr) in
            [("[::ffff:10.77.0.3]:5", "10.77.0.3"), ("10.77.0.3:5", "10.77.0.3"), ("[::1]:5", "::1")]
        {
            assert_eq!(address(peer.parse().unwrap()).to_string(), addr);
        }
    }

    #[test]
    fn limits_leave_room_for_one_request() {
        Limits::default().check().unwrap();
        for wrong in [
            Limits { connections: 0, ..Limits::default() },
            Limits { requests: 0, ..Limits::default() },
            Limits { memory_bytes: 1 << 20, ..Limits::default() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
