//! The server: accepts connections, keeps limits, ends in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kintsu_wire::Tls;
use kintsu_wire::net::Serving;
use tokio::io::{BufReader, join, split};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::connection::serve;
use crate::device::{BlockSizes, Device};
use crate::error::NbdError;
use crate::listener::{Halves, Input, Listen, Listener, Output};
use crate::negotiate::{Agreed, Secrecy, Session, greet, haggle};
use crate::numbers::MAX_STRING_BYTES;

/// Small requests are read in one go.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// What clients may use. The memory for data is at most `connections * data_bytes`.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at one time; further ones are closed at once.
    pub connections: usize,
    /// A handshake ends within this time, or the connection does.
    pub handshake: Duration,
    /// Requests under way on one connection; further ones wait.
    pub requests: usize,
    /// Bytes of data that the requests under way on one connection hold, and so the most data of one request. At least
    /// 32 MiB, the length that clients may use without asking.
    pub data_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 16, handshake: Duration::from_secs(10), requests: 128, data_bytes: 32 << 20 }
    }
}

/// A server of one device. Dropping it ends it at once; [`Server::shutdown`] ends it in order.
#[derive(Debug)]
pub struct Server {
    uri: String,
    addr: Option<SocketAddr>,
    serving: Serving,
}

impl Server {
    /// Serves a device under a name; clients that name no export get it too.
    ///
    /// # Errors
    /// `Invalid`: a name that is too long, sizes that the protocol does not allow, or limits that are too small; those of
    /// listening.
    pub async fn start<D: Device>(
        device: Arc<D>,
        name: &str,
        listen: Listen,
        limits: Limits,
    ) -> Result<Self, NbdError> {
        check(name, device.block_sizes(), &limits)?;
        let tls = listen.tls().cloned();
        let listener = Listener::bind(listen).await?;
        let failed = |source| NbdError::Listen { on: name.to_owned(), source };
        let (uri, addr) = (listener.uri(name, tls.is_some()).map_err(failed)?, listener.addr());
        let ending = CancellationToken::new();
        let (most, name) = (limits.connections, name.to_owned());
        let served = Arc::new(Served { device, name: name.clone(), limits, tls, ending: ending.clone() });
        let serving = Serving::start(listener, name, most, ending, move |(from, halves)| {
            let served = served.clone();
            async move {
                let from = from.map_or_else(|| "this host".to_owned(), |from| from.to_string());
                match one(halves, &from, &served).await {
                    Ok(()) => {}
                    Err(error @ NbdError::Stranger(_)) => {
                        let name = &served.name;
                        tracing::warn!(target: "audit", from, "refused a connection to {name}: {error}");
                    }
                    Err(error) => tracing::debug!(from, "a connection to {}: {error}", served.name),
                }
            }
        });
        Ok(Self { uri, addr, serving })
    }

    /// What clients call the export, such as `nbd://127.0.0.1:10809/disk`.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The TCP address; `None` for a Unix socket.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.addr
    }

    /// Connections at this moment.
    pub fn connections(&self) -> usize {
        self.serving.connections()
    }

    /// Takes no more connections and requests, and waits until those under way are answered. After `wait` they
    /// are dropped. Returns whether all were answered.
    pub async fn shutdown(self, wait: Duration) -> bool {
        self.serving.shutdown(wait).await
    }
}

fn check(name: &str, sizes: BlockSizes, limits: &Limits) -> Result<(), NbdError> {
    let invalid = |what, expected: String, got: String| Err(NbdError::Invalid { what, expected, got });
    if name.is_empty() || name.len() > MAX_STRING_BYTES || name.contains('\0') {
        let expected = format!("1 to {MAX_STRING_BYTES} bytes without NUL");
        return invalid("name of an export", expected, format!("{} bytes", name.len()));
    }
    let BlockSizes { minimum, preferred } = sizes;
    let least = minimum.max(512);
    let fits = minimum.is_power_of_two() && minimum <= 64 << 10;
    if !fits || !preferred.is_power_of_two() || preferred < least || preferred > limits.data_bytes {
        let expected = format!("powers of two: 1 to 65536, and at least {least}");
        return invalid("block sizes", expected, format!("{minimum} and {preferred}"));
    }
    if limits.connections == 0 || limits.requests == 0 || limits.data_bytes < 32 << 20 {
        let expected = "at least one connection, one request and 32 MiB".to_owned();
        return invalid("limits", expected, format!("{limits:?}"));
    }
    Ok(())
}

/// What each connection gets.
struct Served<D> {
    device: Arc<D>,
    name: String,
    limits: Limits,
    tls: Option<Tls>,
    ending: CancellationToken,
}

/// One connection, from its first byte to its last.
async fn one<D: Device>(halves: Halves, from: &str, served: &Served<D>) -> Result<(), NbdError> {
    let Served { device, limits, ending, .. } = served;
    let agreed = tokio::select! {
        agreed = timeout(limits.handshake, agree(halves, from, served)) => agreed,
        () = ending.cancelled() => return Ok(()),
    };
    match agreed.map_err(|_| NbdError::Slow(limits.handshake))?? {
        Some((session, reader, writer)) => {
            serve(reader, writer, device.clone(), session, limits, ending).await
        }
        None => Ok(()),
    }
}

/// The handshake; if the server has TLS, in TLS. `None` if the client leaves.
async fn agree<D: Device>(
    (reader, mut writer): Halves,
    from: &str,
    served: &Served<D>,
) -> Result<Option<(Session, BufReader<Input>, Output)>, NbdError> {
    let Served { device, name, limits, tls, .. } = served;
    let session = || Session::new(&**device, limits.data_bytes);
    let mut reader = BufReader::with_capacity(READ_BUFFER_BYTES, reader);
    let Some(greeted) = greet(&mut reader, &mut writer).await? else { return Ok(None) };
    let mut secrecy = Secrecy::Plain;
    if let Some(tls) = tls {
        let agreed = haggle(&mut reader, &mut writer, name, session(), greeted, Secrecy::Wanted).await?;
        if agreed != Agreed::Tls {
            return Ok(None);
        }
        // A client waits for the answer. Anybody on the way could have put this there.
        let early = reader.buffer().len();
        if early > 0 {
            return Err(NbdError::Protocol {
                what: "start of TLS",
                expected: "nothing before its answer".into(),
                got: format!("{early} bytes"),
            });
        }
        let accepted = tls.accept_user(join(reader.into_inner(), writer)).await;
        let (stream, who) = accepted.map_err(NbdError::Stranger)?;
        tracing::info!(from, "{who} uses {name}");
        let (input, output) = split(stream);
        reader = BufReader::with_capacity(READ_BUFFER_BYTES, Box::new(input));
        writer = Box::new(output);
        secrecy = Secrecy::Tls;
    }
    match haggle(&mut reader, &mut writer, name, session(), greeted, secrecy).await? {
        Agreed::Session(session) => Ok(Some((session, reader, writer))),
        Agreed::Tls | Agreed::Nothing => Ok(None),
    }
}
