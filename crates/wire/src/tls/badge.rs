//! What a certificate says about its owner: the cluster, and its roles there.
//!
//! Each role is a URI among the certificate's alternative names: `kintsu://CLUSTER/ROLE`. Other names in a certificate
//! are ignored.

use std::fmt;
use std::str::FromStr;

use kintsu_dag::NodeId;
use rustls::pki_types::CertificateDer;

use crate::{ClusterId, WireError};

const SCHEME: &str = "kintsu://";

/// What somebody is in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Role {
    /// Keeps the metadata and decides: `coordinator`.
    Coordinator,
    /// Keeps the blocks of this node: `agent/3`.
    Agent(NodeId),
    /// Reads and writes objects and volumes: `client` or `client/NAME`.
    Client(Option<String>),
    /// Looks after the cluster, and may do what clients may: `operator` or `operator/NAME`.
    Operator(Option<String>),
}

/// Whom one wants to talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The coordinator.
    Coordinator,
    /// The agent of any node.
    AnyAgent,
    /// The agent of this node.
    Agent(NodeId),
    /// A client or an operator.
    User,
    /// An operator.
    Operator,
}

/// Who somebody is, as its certificate says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Badge {
    cluster: ClusterId,
    /// At least one.
    roles: Vec<Role>,
}

impl Badge {
    /// The badge with these roles.
    ///
    /// # Errors
    /// `Invalid` without a role.
    pub fn new(cluster: ClusterId, roles: Vec<Role>) -> Result<Self, WireError> {
        if roles.is_empty() {
            return Err(invalid("a role such as client or agent/3", "none".into()));
        }
        Ok(Self { cluster, roles })
    }

    /// What a certificate says. It is not verified here.
    ///
    /// # Errors
    /// `Invalid` if it is none, says nothing about a cluster or contradicts itself.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, WireError> {
        let parsed = webpki::EndEntityCert::try_from(certificate);
        let parsed = parsed.map_err(|error| invalid("an X.509 certificate", error.to_string()))?;
        Self::of_uris(parsed.valid_uri_names())
    }

    pub(crate) fn of_uris<'a>(names: impl Iterator<Item = &'a str>) -> Result<Self, WireError> {
        let form = "URIs such as kintsu://CLUSTER/client, with the cluster's id of 32 hex digits";
        let mut badge: Option<Self> = None;
        for name in names {
            let Some(rest) = name.strip_prefix(SCHEME) else { continue };
            let (cluster, role) = rest.split_once('/').ok_or_else(|| invalid(form, name.to_owned()))?;
            let (cluster, role): (ClusterId, Role) = (cluster.parse()?, role.parse()?);
            match &mut badge {
                None => badge = Some(Self { cluster, roles: vec![role] }),
                Some(badge) if badge.cluster == cluster => badge.roles.push(role),
                Some(badge) => {
                    let got = format!("roles in {} and {cluster}", badge.cluster);
                    return Err(invalid("roles in one cluster", got));
                }
            }
        }
        badge.ok_or_else(|| invalid(form, "none".into()))
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The roles; at least one.
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// Whether this is somebody who is wanted.
    pub fn is(&self, wanted: Wanted) -> bool {
        self.roles.iter().any(|role| match wanted {
            Wanted::Coordinator => *role == Role::Coordinator,
            Wanted::AnyAgent => matches!(role, Role::Agent(_)),
            Wanted::Agent(node) => *role == Role::Agent(node),
            Wanted::User => matches!(role, Role::Client(_) | Role::Operator(_)),
            Wanted::Operator => matches!(role, Role::Operator(_)),
        })
    }

    /// The only node whose agent this is, if there is exactly one.
    pub fn node(&self) -> Option<NodeId> {
        let mut nodes = self.roles.iter().filter_map(|role| match role {
            Role::Agent(node) => Some(*node),
            _ => None,
        });
        nodes.next().filter(|_| nodes.next().is_none())
    }

    /// The roles as the URIs of a certificate.
    pub fn uris(&self) -> Vec<String> {
        self.roles.iter().map(|role| format!("{SCHEME}{}/{role}", self.cluster)).collect()
    }
}

impl fmt::Display for Badge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of cluster {}", Roles(&self.roles), self.cluster)
    }
}

/// Roles as text, separated by commas.
pub(crate) struct Roles<'a>(pub &'a [Role]);

impl fmt::Display for Roles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, role) in self.0.iter().enumerate() {
            write!(f, "{}{role}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinator => write!(f, "coordinator"),
            Self::Agent(node) => write!(f, "agent/{}", node.0),
            Self::Client(None) => write!(f, "client"),
            Self::Client(Some(name)) => write!(f, "client/{name}"),
            Self::Operator(None) => write!(f, "operator"),
            Self::Operator(Some(name)) => write!(f, "operator/{name}"),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinator => write!(f, "the coordinator"),
            Self::AnyAgent => write!(f, "an agent"),
            Self::Agent(node) => write!(f, "agent/{}", node.0),
            Self::User => write!(f, "a client or operator"),
            Self::Operator => write!(f, "an operator"),
        }
    }
}

impl FromStr for Role {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        let expected = "coordinator, agent/NODE, client, client/NAME, operator or operator/NAME, with a name of up to \
                        64 letters, digits, dots, dashes and underscores";
        let wrong = || invalid(expected, format!("{text:?}"));
        let named = |name: &str| {
            let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
            let good = (1..=64).contains(&name.len()) && name.bytes().all(fits);
            good.then(|| Some(name.to_owned())).ok_or_else(wrong)
        };
        match text.split_once('/') {
            None if text == "coordinator" => Ok(Self::Coordinator),
            None if text == "client" => Ok(Self::Client(None)),
            None if text == "operator" => Ok(Self::Operator(None)),
            Some(("client", name)) => named(name).map(Self::Client),
            Some(("operator", name)) => named(name).map(Self::Operator),
            Some(("agent", node)) if node.bytes().all(|b| b.is_ascii_digit()) => {
                let node = node.parse().ok().map(NodeId).filter(|node| !node.is_client());
                node.map(Self::Agent).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

fn invalid(expected: &str, got: String) -> WireError {
    WireError::Invalid { what: "certificate", expected: expected.to_owned(), got }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_badge_is_what_the_uris_say() {
        let id = "ab".repeat(16);
        let of = |paths: &[&str]| {
            let names: Vec<String> = paths.iter().map(|path| format!("kintsu://{path}")).collect();
            Badge::of_uris(names.iter().map(String::as_str).chain(["spiffe://example/x"]))
        };
        let badge = of(&[&format!("{id}/agent/3"), &format!("{id}/client/alice")]).unwrap();
        assert!(badge.is(Wanted::Agent(NodeId(3))) && badge.is(Wanted::User) && badge.is(Wanted::AnyAgent));
        assert!(!badge.is(Wanted::Agent(NodeId(4))) && !badge.is(Wanted::Operator));
        assert!(!badge.is(Wanted::Coordinator));
        assert_eq!(badge.node(), Some(NodeId(3)));
        assert_eq!(badge.uris(), [format!("kintsu://{id}/agent/3"), format!("kintsu://{id}/client/alice")]);
        assert_eq!(badge.to_string(), format!("agent/3, client/alice of cluster {id}"));
        let other = "cd".repeat(16);
        let two = format!("{other}/client");
        for bad in [vec![], vec![&format!("{id}/agent/3")[..], &two], vec!["x/client"], vec![&id]] {
            assert!(of(&bad).unwrap_err().to_string().contains("expected"), "{bad:?}");
        }
    }

    #[test]
    fn roles_are_read_as_they_are_written() {
        for good in ["coordinator", "agent/0", "agent/4294967294", "client", "client/a.b-c_1", "operator/x"] {
            assert_eq!(good.parse::<Role>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "agent",
            "agent/",
            "agent/x",
            "agent/4294967295",
            "agent/+1",
            "root",
            "client/",
            "client/a b",
        ] {
            assert!(bad.parse::<Role>().is_err(), "{bad}");
        }
    }
}
