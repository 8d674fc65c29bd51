//! Connecting to others: a slice stream, or a gRPC channel.

use std::io::{Error, Result};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tonic::codegen::{BoxFuture, Service, http::Uri};
use tonic::transport::{Channel, Endpoint};

use super::{Stream, TcpStream};
use crate::tls::Wanted;
use crate::{Tls, ambient};

/// Connects; in TLS if there is one, and then only to whom is `wanted`.
///
/// # Errors
/// Nobody listens there, the host cannot be reached, or the peer is somebody else.
pub async fn connect(addr: SocketAddr, tls: Option<&Tls>, wanted: Wanted) -> Result<Stream> {
    let tcp = TcpStream::connect(addr).await?;
    match tls {
        None => Ok(Stream::Bare(tcp)),
        Some(tls) => tls.connect(tcp, wanted).await,
    }
}

/// A channel that connects at the first call.
pub(crate) fn connect_lazily(endpoint: &Endpoint, tls: Option<Tls>, wanted: Wanted) -> Channel {
    if tls.is_none() && !ambient::simulated() {
        return endpoint.connect_lazy();
    }
    endpoint.connect_with_connector_lazy(Connector { tls, wanted })
}

/// Connects the channels in TLS, and those of a simulation.
#[derive(Clone)]
struct Connector {
    tls: Option<Tls>,
    wanted: Wanted,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let Self { tls, wanted } = self.clone();
        Box::pin(async move {
            let mut failed = None;
            for addr in addresses(to.authority().map_or("", |authority| authority.as_str())).await? {
                match connect(addr, tls.as_ref(), wanted).await {
                    Ok(stream) => {
                        super::leave_at_once(stream.tcp(), UNSENT_BYTES)?;
                        return Ok(TokioIo::new(stream));
                    }
                    Err(error) => failed = Some(error),
                }
            }
            Err(failed.unwrap_or_else(|| Error::other("expected a host with an address, got none")))
        })
    }
}

/// Most bytes in a socket that the kernel has not sent yet. More would only wait there.
const UNSENT_BYTES: u32 = 256 << 10;

/// The addresses of `host:port`.
async fn addresses(host: &str) -> Result<Vec<SocketAddr>> {
    match host.parse() {
        Ok(addr) => Ok(vec![addr]),
        Err(_) => Ok(tokio::net::lookup_host(host).await?.collect()),
    }
}
