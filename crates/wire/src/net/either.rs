//! Sockets of tokio or of the simulated network; which of them is decided when a socket is created.

use std::io::Result;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_stream::Stream;
use tonic::transport::server::TcpIncoming;

use crate::ambient::simulated;

/// A connection.
#[derive(Debug)]
pub enum TcpStream {
    /// Of the operating system.
    Real(tokio::net::TcpStream),
    /// Of the simulated network.
    Sim(turmoil::net::TcpStream),
}

/// The half of a connection to read from.
#[derive(Debug)]
pub enum OwnedReadHalf {
    /// Of the operating system.
    Real(tokio::net::tcp::OwnedReadHalf),
    /// Of the simulated network.
    Sim(turmoil::net::tcp::OwnedReadHalf),
}

/// The half of a connection to write to.
#[derive(Debug)]
pub enum OwnedWriteHalf {
    /// Of the operating system.
    Real(tokio::net::tcp::OwnedWriteHalf),
    /// Of the simulated network.
    Sim(turmoil::net::tcp::OwnedWriteHalf),
}

/// Accepts connections.
pub enum TcpListener {
    /// From the operating system.
    Real(tokio::net::TcpListener),
    /// From the simulated network, with the address of the host.
    Sim(turmoil::net::TcpListener, IpAddr),
}

impl From<tokio::net::TcpListener> for TcpListener {
    fn from(listener: tokio::net::TcpListener) -> Self {
        Self::Real(listener)
    }
}

impl TcpListener {
    /// Listens on an address. In a simulation it must be the host's own.
    ///
    /// # Errors
    /// The address is in use, or the system refuses to listen on it.
    pub async fn bind(addr: SocketAddr) -> Result<Self> {
        if simulated() {
            let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), addr.port());
            return Ok(Self::Sim(turmoil::net::TcpListener::bind(any).await?, addr.ip()));
        }
        Ok(Self::Real(tokio::net::TcpListener::bind(addr).await?))
    }

    /// The next connection, and the address that it comes from.
    ///
    /// # Errors
    /// The operating system's.
    pub async fn accept(&self) -> Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Real(listener) => listener.accept().await.map(|(s, from)| (TcpStream::Real(s), from)),
            Self::Sim(listener, _) => listener.accept().await.map(|(s, from)| (TcpStream::Sim(s), from)),
        }
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// The operating system's.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        match self {
            Self::Real(listener) => listener.local_addr(),
            Self::Sim(listener, host) => Ok(SocketAddr::new(*host, listener.local_addr()?.port())),
        }
    }
}

impl TcpStream {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there, or the host cannot be reached.
    pub async fn connect(addr: SocketAddr) -> Result<Self> {
        if simulated() {
            return turmoil::net::TcpStream::connect(addr).await.map(Self::Sim);
        }
        tokio::net::TcpStream::connect(addr).await.map(Self::Real)
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        match self {
            Self::Real(stream) => stream.peer_addr(),
            Self::Sim(stream) => stream.peer_addr(),
        }
    }

    /// Splits it into its two halves; the connection is closed when both are dropped.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        match self {
            Self::Real(stream) => {
                let (read, write) = stream.into_split();
                (OwnedReadHalf::Real(read), OwnedWriteHalf::Real(write))
            }
            Self::Sim(stream) => {
                let (read, write) = stream.into_split();
                (OwnedReadHalf::Sim(read), OwnedWriteHalf::Sim(write))
            }
        }
    }
}

reads!(TcpStream: Real, Sim);
reads!(OwnedReadHalf: Real, Sim);
writes!(TcpStream: Real, Sim);
writes!(OwnedWriteHalf: Real, Sim);

/// The connections that a listener accepts.
pub(super) struct Accepted(Pin<Box<dyn Stream<Item = Result<TcpStream>> + Send>>);

impl Accepted {
    pub(super) fn new(listener: TcpListener) -> Self {
        use tokio_stream::StreamExt;
        match listener {
            TcpListener::Real(listener) => {
                let accepted = TcpIncoming::from(listener).with_nodelay(Some(true));
                Self(Box::pin(accepted.map(|stream| stream.map(TcpStream::Real))))
            }
            listener => {
                let (to, accepted) = tokio::sync::mpsc::channel(1);
                tokio::spawn(async move {
                    loop {
                        let stream = tokio::select! {
                            stream = listener.accept() => stream.map(|(stream, _)| stream),
                            () = to.closed() => return,
                        };
                        if to.send(stream).await.is_err() {
                            return;
                        }
                    }
                });
                Self(Box::pin(tokio_stream::wrappers::ReceiverStream::new(accepted)))
            }
        }
    }
}

impl Stream for Accepted {
    type Item = Result<TcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}
