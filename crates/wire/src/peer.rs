//! Who is at the other end of a connection, as far as that is known.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use kintsu_dag::NodeId;
use tonic::service::Interceptor;
use tonic::{Extensions, Request, Status};

use crate::tls::{Badge, Wanted};

/// The other end of a connection. Every call has it among its extensions.
#[derive(Debug, Clone, Default)]
pub struct Peer {
    /// Where it comes from.
    pub addr: Option<SocketAddr>,
    /// What its certificate says. Without TLS this is not known, and the peer may do whatever its token lets it.
    pub badge: Option<Arc<Badge>>,
}

impl Peer {
    /// Who calls.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Refuses a peer that is known to be nobody of those who are `wanted`.
    ///
    /// # Errors
    /// `PermissionDenied`, with what was expected and who came.
    pub fn demand(&self, wanted: &[Wanted]) -> Result<(), Status> {
        let Some(badge) = &self.badge else { return Ok(()) };
        if wanted.iter().any(|wanted| badge.is(*wanted)) {
            return Ok(());
        }
        let expected: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        Err(Status::permission_denied(format!(
            "this needs the certificate of another role: expected {}, got {badge}; `kintsu ca issue` makes one",
            expected.join(" or ")
        )))
    }

    /// Refuses a peer that is known not to be the agent of `node`.
    ///
    /// # Errors
    /// As [`Peer::demand`].
    pub fn demand_node(&self, node: NodeId) -> Result<(), Status> {
        self.demand(&[Wanted::Agent(node)])
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.badge {
            Some(badge) => write!(f, "{}", crate::tls::Roles(badge.roles()))?,
            None => write!(f, "somebody")?,
        }
        match self.addr {
            Some(addr) => write!(f, " from {addr}"),
            None => Ok(()),
        }
    }
}

/// Lets only these roles call a service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Only(pub &'static [Wanted]);

impl Interceptor for Only {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        Peer::of(request.extensions()).demand(self.0)?;
        Ok(request)
    }
}
