//! Who is at the other end of a connection, as far as that is known.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tonic::service::Interceptor;
use tonic::{Extensions, Request, Status};

use crate::audit;
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

    /// The same for a call of `what`, with a line in the audit log for a refusal.
    ///
    /// # Errors
    /// As [`Peer::demand`].
    pub fn admit(&self, wanted: &[Wanted], what: &str) -> Result<(), Status> {
        audit::checked(self, what, self.demand(wanted))
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

/// Lets only these roles call the service of this name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Only(pub &'static [Wanted], pub &'static str);

impl Interceptor for Only {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        Peer::of(request.extensions()).admit(self.0, self.1)?;
        Ok(request)
    }
}
