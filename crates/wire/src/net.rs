//! TCP as this program uses it: tokio's, or inside a simulation (feature `sim`) the simulated network's; and what goes
//! over it, bare or in TLS ([`Stream`]).
//!
//! Without the feature the types of TCP are tokio's own, so that the choice costs nothing.

#[macro_use]
mod delegate;

mod connect;
#[cfg(feature = "sim")]
mod either;
mod incoming;
mod serving;
mod strangers;
mod stream;

pub use connect::connect;
pub(crate) use connect::connect_lazily;
pub use incoming::Incoming;
pub use serving::{Accept, Places, Serving};
pub use strangers::{Introducing, Strangers};
pub use stream::{ReadEnd, Stream, WriteEnd};

#[cfg(feature = "sim")]
pub use either::{OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream};
#[cfg(not(feature = "sim"))]
pub use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
#[cfg(not(feature = "sim"))]
pub use tokio::net::{TcpListener, TcpStream};

#[cfg(feature = "sim")]
use either::Accepted;
#[cfg(not(feature = "sim"))]
use tonic::transport::server::TcpIncoming as Accepted;

/// The bare connections that a listener accepts. Small messages are sent at once.
fn accepted(listener: TcpListener) -> Accepted {
    #[cfg(feature = "sim")]
    return Accepted::new(listener);
    #[cfg(not(feature = "sim"))]
    Accepted::from(listener).with_nodelay(Some(true))
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
