//! Channels to coordinators and agents, and the servers at their other ends, with one set of
//! limits: both sides notice within seconds that the other one is gone.

use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use tonic::service::Routes;
use tonic::service::interceptor::{InterceptedService, InterceptorLayer};
use tonic::transport::{Channel, Endpoint, Server};

use crate::agent::agent_client::AgentClient;
use crate::agent::agent_server::{Agent, AgentServer};
use crate::beside::beside_client::BesideClient;
use crate::beside::beside_server::{Beside, BesideServer};
use crate::inflow::Inflow;
use crate::membership::membership_client::MembershipClient;
use crate::membership::membership_server::{Membership, MembershipServer};
use crate::net::{self, TcpListener};
use crate::objects::objects_client::ObjectsClient;
use crate::objects::objects_server::{Objects, ObjectsServer};
use crate::operation::operation_client::OperationClient;
use crate::operation::operation_server::{Operation, OperationServer};
use crate::peer::Only;
use crate::security::{Credentials, Incoming, Outgoing};
use crate::tls::Wanted;
use crate::version::{STRIPE_EPOCHS, Since};
use crate::volumes::volumes_client::VolumesClient;
use crate::volumes::volumes_server::{Volumes, VolumesServer};
use crate::{MAX_MESSAGE_BYTES, WireError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

type Shown = InterceptedService<Channel, Outgoing>;

/// A client of an agent; cheap to clone, all clones share a connection.
pub type AgentChannel = AgentClient<Shown>;

/// An agent's client of a coordinator; cheap to clone, all clones share a connection.
pub type MembershipChannel = MembershipClient<Shown>;

/// A client of a coordinator's services; cheap to clone, all services and clones share a connection.
#[derive(Debug, Clone)]
pub struct CoordinatorChannel {
    /// What agents call.
    pub membership: MembershipChannel,
    /// What clients call.
    pub objects: ObjectsClient<Shown>,
    /// What clients of volumes call.
    pub volumes: VolumesClient<Shown>,
    /// What operators call.
    pub operation: OperationClient<Shown>,
    /// What readers call, of a coordinator beside another store.
    pub beside: BesideClient<Shown>,
}

/// A channel to the agent at `addr` (`host:port`), of whatever node it is. Connects at the first call, and again after
/// a connection broke; a call in between fails with `Unavailable`.
///
/// # Errors
/// `Invalid` if `addr` is not an address.
pub fn connect_agent(
    addr: impl std::fmt::Display,
    credentials: &Credentials,
) -> Result<AgentChannel, WireError> {
    to_agent(&addr.to_string(), credentials, Wanted::AnyAgent)
}

/// The same to the agent of this node: in TLS nobody else is called.
///
/// # Errors
/// Those of [`connect_agent`].
pub fn connect_agent_of(
    node: NodeId,
    addr: impl std::fmt::Display,
    credentials: &Credentials,
) -> Result<AgentChannel, WireError> {
    to_agent(&addr.to_string(), credentials, Wanted::Agent(node))
}

fn to_agent(addr: &str, credentials: &Credentials, wanted: Wanted) -> Result<AgentChannel, WireError> {
    let channel = channel(addr, credentials, wanted)?;
    let channel = InterceptedService::new(channel, Outgoing::new(credentials));
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
    let channel = channel(&addr.to_string(), credentials, Wanted::Coordinator)?;
    let member = InterceptedService::new(channel.clone(), Outgoing::new(credentials));
    // An older coordinator would overlook what it does not know of a client's call.
    let channel = InterceptedService::new(channel, Outgoing::newest(credentials));
    Ok(CoordinatorChannel {
        membership: MembershipClient::new(member)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES),
        objects: ObjectsClient::new(channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES),
        volumes: VolumesClient::new(channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES),
        beside: BesideClient::new(channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES),
        operation: OperationClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES),
    })
}

/// Wraps an agent's service with checks of version, token, cluster and size. Once the agent belongs to a cluster,
/// every caller must show that it belongs to it too. What users send is bounded, of all calls together.
pub fn guard_agent<T: Agent>(
    service: T,
    credentials: &Credentials,
) -> Inflow<InterceptedService<AgentServer<T>, Incoming>> {
    let server = AgentServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    Inflow::new(InterceptedService::new(server, Incoming::members_only(credentials)))
}

/// The service for agents, to be served by [`serve`]; with TLS for nobody else.
pub fn membership_routes<T: Membership>(service: Arc<T>) -> Routes {
    let service = MembershipServer::from_arc(service)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    Routes::new(InterceptedService::new(service, Only(&[Wanted::AnyAgent], "Membership")))
}

/// The services of a coordinator beside another store, to be served by [`serve`]: for agents, and for readers.
pub fn beside_routes<M: Membership, B: Beside>(agents: Arc<M>, readers: B) -> Routes {
    let readers = BesideServer::new(readers)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    membership_routes(agents).add_service(InterceptedService::new(readers, Only(&[Wanted::User], "Beside")))
}

/// The services of a coordinator, to be served by [`serve`]; with TLS each for its own callers.
pub fn coordinator_routes<T: Membership + Objects + Volumes + Operation>(service: Arc<T>) -> Routes {
    let objects = ObjectsServer::from_arc(service.clone())
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let volumes = VolumesServer::from_arc(service.clone())
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let operation = OperationServer::from_arc(service.clone())
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let volumes = InterceptedService::new(volumes, Since(STRIPE_EPOCHS, "volumes"));
    membership_routes(service)
        .add_service(InterceptedService::new(objects, Only(&[Wanted::User], "Objects")))
        .add_service(InterceptedService::new(volumes, Only(&[Wanted::User], "Volumes")))
        .add_service(InterceptedService::new(operation, Only(&[Wanted::Operator], "Operation")))
}

/// Serves a coordinator's services on a listener until `end`, with checks of version, token and cluster before every call,
/// also of methods that do not exist: so a peer of another version is told that it is one. A caller that does not know the
/// cluster yet need not show it.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    routes: Routes,
    credentials: Credentials,
    listener: impl Into<TcpListener>,
    end: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let mut server = server().layer(InterceptorLayer::new(Incoming::new(&credentials)));
    server.add_routes(routes).serve_with_incoming_shutdown(incoming(listener, &credentials), end).await
}

/// A server with the time limits of this protocol, without services yet; see [`incoming`].
pub fn server() -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
}

/// The connections that a listener accepts, for a [`server`]; in TLS if the credentials have it. They send small messages without delay
/// (`TCP_NODELAY`), which a server over a plain stream of connections would not do.
pub fn incoming(listener: impl Into<TcpListener>, credentials: &Credentials) -> net::Incoming {
    net::Incoming::new(listener.into(), credentials.tls().cloned())
}

fn channel(addr: &str, credentials: &Credentials, wanted: Wanted) -> Result<Channel, WireError> {
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
    Ok(net::connect_lazily(&endpoint, credentials.tls().cloned(), wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Nothing;
    use crate::security::words;
    use tonic::Code;

    #[tokio::test]
    async fn whoever_may_not_call_is_refused_before_the_call_is_looked_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let secret = Credentials::token("secret").unwrap();
        tokio::spawn(serve(Routes::default(), secret.clone(), listener, std::future::pending()));
        let call = async |shown: &Credentials| {
            let mut peer = connect_agent(addr, shown).unwrap();
            peer.shutdown(Nothing {}).await.unwrap_err()
        };
        assert_eq!(call(&Credentials::none()).await.code(), Code::Unauthenticated);
        let unknown = call(&secret).await;
        assert_eq!(unknown.code(), Code::Unimplemented);
        assert!(words(&unknown).contains("version"), "{unknown:?}");
    }

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
