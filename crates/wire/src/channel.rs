//! Channels to coordinators and agents, and the servers at their other ends, with one set of
//! limits: both sides notice within seconds that the other one is gone.

use std::time::Duration;

use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Server};

use crate::agent::agent_client::AgentClient;
use crate::agent::agent_server::{Agent, AgentServer};
use crate::coordinator::coordinator_client::CoordinatorClient;
use crate::coordinator::coordinator_server::{Coordinator, CoordinatorServer};
use crate::net::{self, TcpListener};
use crate::security::{Credentials, Incoming, Outgoing};
use crate::{MAX_MESSAGE_BYTES, WireError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of an agent; cheap to clone, all clones share a connection.
pub type AgentChannel = AgentClient<InterceptedService<Channel, Outgoing>>;

/// A client of a coordinator; cheap to clone, all clones share a connection.
pub type CoordinatorChannel = CoordinatorClient<InterceptedService<Channel, Outgoing>>;

/// A channel to the agent at `addr` (`host:port`). Connects at the first call, and again after
/// a connection broke; a call in between fails with `Unavailable`.
///
/// # Errors
/// `Invalid` if `addr` is not an address.
pub fn connect_agent(
    addr: impl std::fmt::Display,
    credentials: &Credentials,
) -> Result<AgentChannel, WireError> {
    let channel = InterceptedService::new(channel(&addr.to_string())?, Outgoing::new(credentials));
    Ok(AgentClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES))
}

/// A channel to the coordinator at `addr` (`host:port`). Connects at the first call, and again
/// after a connection broke; a call in between fails with `Unavailable`.
///
/// # Errors
/// `Invalid` if `addr` is not an address.
pub fn connect_coordinator(
    addr: impl std::fmt::Display,
    credentials: &Credentials,
) -> Result<CoordinatorChannel, WireError> {
    let channel = InterceptedService::new(channel(&addr.to_string())?, Outgoing::new(credentials));
    Ok(CoordinatorClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES))
}

/// Wraps an agent's service with checks of version, token, cluster and size. Once the agent belongs to a cluster,
/// every caller must show that it belongs to it too.
pub fn guard_agent<T: Agent>(
    service: T,
    credentials: &Credentials,
) -> InterceptedService<AgentServer<T>, Incoming> {
    let server = AgentServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    InterceptedService::new(server, Incoming::members_only(credentials))
}

/// Wraps a coordinator's service with checks of version, token, cluster and size. A caller that does not know the
/// cluster yet need not show it.
pub fn guard_coordinator<T: Coordinator>(
    service: T,
    credentials: &Credentials,
) -> InterceptedService<CoordinatorServer<T>, Incoming> {
    let server = CoordinatorServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    InterceptedService::new(server, Incoming::new(credentials))
}

/// A server with the time limits of this protocol, without services yet; see [`incoming`].
pub fn server() -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
}

/// The connections that a listener accepts, for a [`server`]. They send small messages without delay
/// (`TCP_NODELAY`), which a server over a plain stream of connections would not do.
pub fn incoming(listener: impl Into<TcpListener>) -> net::Incoming {
    net::incoming(listener.into())
}

fn channel(addr: &str) -> Result<Channel, WireError> {
    let host = addr.strip_prefix("http://").unwrap_or(addr);
    let port = host.rsplit_once(':').and_then(|(name, port)| (!name.is_empty()).then_some(port));
    let invalid = |_| WireError::Invalid { what: "address", expected: "host:port".into(), got: addr.into() };
    port.unwrap_or_default().parse::<u16>().map_err(|_| ()).map_err(invalid)?;
    let endpoint = Endpoint::from_shared(format!("http://{host}")).map_err(|_| invalid(()))?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    Ok(net::connect_lazily(&endpoint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_are_host_and_port() {
        for good in ["127.0.0.1:7400", "[::1]:7400", "http://127.0.0.1:1", "localhost:80"] {
            connect_agent(good, &Credentials::none()).unwrap();
        }
        for bad in ["", "7400", ":7400", "localhost", "localhost:", "localhost:99999", "a b:1"] {
            let error = connect_coordinator(bad, &Credentials::none()).unwrap_err();
            assert!(error.to_string().contains("expected host:port"), "{error}");
        }
    }
}
