//! Sockets of tokio or of the simulated network; which of them is decided when a socket is created.

use std::io::{IoSlice, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_stream::Stream;
use tonic::codegen::{BoxFuture, Service, http::Uri};
use tonic::transport::server::{Connected, TcpConnectInfo, TcpIncoming};

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

macro_rules! each {
    ($self:ident, $io:ident => $call:expr) => {
        match $self.get_mut() {
            Self::Real($io) => $call,
            Self::Sim($io) => $call,
        }
    };
}

macro_rules! reads {
    ($name:ty) => {
        impl AsyncRead for $name {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
                each!(self, io => Pin::new(io).poll_read(cx, buf))
            }
        }
    };
}

macro_rules! writes {
    ($name:ty) => {
        impl AsyncWrite for $name {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
                each!(self, io => Pin::new(io).poll_write(cx, buf))
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<Result<usize>> {
                each!(self, io => Pin::new(io).poll_write_vectored(cx, bufs))
            }

            fn is_write_vectored(&self) -> bool {
                matches!(self, Self::Real(_))
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
                each!(self, io => Pin::new(io).poll_flush(cx))
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
                each!(self, io => Pin::new(io).poll_shutdown(cx))
            }
        }
    };
}

reads!(TcpStream);
reads!(OwnedReadHalf);
writes!(TcpStream);
writes!(OwnedWriteHalf);

impl Connected for TcpStream {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        match self {
            Self::Real(stream) => stream.connect_info(),
            Self::Sim(stream) => {
                TcpConnectInfo { local_addr: stream.local_addr().ok(), remote_addr: stream.peer_addr().ok() }
            }
        }
    }
}

/// The connections that a listener accepts.
pub struct Incoming(Pin<Box<dyn Stream<Item = Result<TcpStream>> + Send>>);

impl Incoming {
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

impl Stream for Incoming {
    type Item = Result<TcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

/// Connects the channels of a simulation.
#[derive(Clone)]
pub(super) struct Connector;

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = std::io::Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        Box::pin(async move {
            let no_address = |e| std::io::Error::new(std::io::ErrorKind::InvalidInput, e);
            let addr = to.authority().map_or("", |authority| authority.as_str());
            let addr = addr.parse::<SocketAddr>().map_err(no_address)?;
            TcpStream::connect(addr).await.map(TokioIo::new)
        })
    }
}
