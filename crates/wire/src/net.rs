//! TCP as this program uses it: tokio's, or inside a simulation (feature `sim`) the simulated network's.
//!
//! Without the feature the types are tokio's own, so that the choice costs nothing.

#[cfg(feature = "sim")]
mod either;

#[cfg(feature = "sim")]
pub use either::{Incoming, OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream};
#[cfg(not(feature = "sim"))]
pub use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
#[cfg(not(feature = "sim"))]
pub use tokio::net::{TcpListener, TcpStream};
#[cfg(not(feature = "sim"))]
pub use tonic::transport::server::TcpIncoming as Incoming;

use tonic::transport::{Channel, Endpoint};

/// The connections that a listener accepts, for a server. Small messages are sent at once; a server over a
/// plain stream of connections would hold them back.
pub(crate) fn incoming(listener: TcpListener) -> Incoming {
    #[cfg(feature = "sim")]
    return Incoming::new(listener);
    #[cfg(not(feature = "sim"))]
    Incoming::from(listener).with_nodelay(Some(true))
}

/// A channel that connects at the first call.
pub(crate) fn connect_lazily(endpoint: &Endpoint) -> Channel {
    #[cfg(feature = "sim")]
    if crate::ambient::simulated() {
        return endpoint.connect_with_connector_lazy(either::Connector);
    }
    endpoint.connect_lazy()
}

/// Sends written data at once. If more than `unsent_bytes` are not sent yet, further data wait in queues of
/// this program and not in the socket's.
///
/// # Errors
/// The operating system refuses.
pub fn leave_at_once(stream: &TcpStream, unsent_bytes: u32) -> std::io::Result<()> {
    #[cfg(feature = "sim")]
    let TcpStream::Real(stream) = stream else { return Ok(()) };
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(unsent_bytes)?;
    #[cfg(not(target_os = "linux"))]
    let _ = unsent_bytes;
    Ok(())
}
