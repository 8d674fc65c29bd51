//! A connection between two processes: bare, or in TLS.

use std::sync::Arc;

use tokio::io::{ReadHalf, WriteHalf};
use tokio_rustls::TlsStream;
use tonic::transport::server::Connected;

use super::{OwnedReadHalf, OwnedWriteHalf, TcpStream};
use crate::Peer;
use crate::tls::Badge;

/// A connection. What is written in TLS leaves for sure only after a flush.
#[derive(Debug)]
pub enum Stream {
    /// Plain text.
    Bare(TcpStream),
    /// In TLS, with what the peer's certificate says.
    Secure(Box<TlsStream<TcpStream>>, Arc<Badge>),
}

/// The half of a connection to read from.
#[derive(Debug)]
pub enum ReadEnd {
    /// Plain text.
    Bare(OwnedReadHalf),
    /// In TLS.
    Secure(ReadHalf<Box<TlsStream<TcpStream>>>),
}

/// The half of a connection to write to. What is written in TLS leaves for sure only after a flush.
#[derive(Debug)]
pub enum WriteEnd {
    /// Plain text.
    Bare(OwnedWriteHalf),
    /// In TLS.
    Secure(WriteHalf<Box<TlsStream<TcpStream>>>),
}

impl Stream {
    /// The TCP connection below.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Bare(tcp) => tcp,
            Self::Secure(tls, _) => tls.get_ref().0,
        }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        let badge = match self {
            Self::Bare(_) => None,
            Self::Secure(_, badge) => Some(badge.clone()),
        };
        Peer { addr: self.tcp().peer_addr().ok(), badge }
    }

    /// Splits it into its two halves; the connection is closed when both are dropped.
    pub fn into_split(self) -> (ReadEnd, WriteEnd) {
        match self {
            Self::Bare(tcp) => {
                let (read, write) = tcp.into_split();
                (ReadEnd::Bare(read), WriteEnd::Bare(write))
            }
            Self::Secure(tls, _) => {
                let (read, write) = tokio::io::split(tls);
                (ReadEnd::Secure(read), WriteEnd::Secure(write))
            }
        }
    }
}

impl Connected for Stream {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer()
    }
}

reads!(Stream: Bare, Secure);
reads!(ReadEnd: Bare, Secure);
writes!(Stream: Bare, Secure);
writes!(WriteEnd: Bare, Secure);
