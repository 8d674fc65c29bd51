//! Who may listen where, and who may speak: the listener rule, the token, the version check.
//!
//! A listener may leave loopback with TLS (`tls.rs`), or for a network that its owner has declared to be trusted. The
//! token separates the clusters and users of one machine or of such a network.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Code, Request, Status};

use crate::version::{Speaks, Spoken};
use crate::{CLUSTER_KEY, ClusterId, PROTOCOL_VERSION, Peer, Tls, WireError, audit};

const AUTHORIZATION: &str = "authorization";

/// What a process shows to its peers and demands of them: the token, and its cluster as soon as that is known; and in which
/// version it calls them. Clones share the cluster and the version.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    token: Option<String>,
    tls: Option<Tls>,
    cluster: Arc<OnceLock<ClusterId>>,
    speaks: Speaks,
}

impl Credentials {
    /// No token is shown or demanded.
    pub fn none() -> Self {
        Self::default()
    }

    /// This token is shown and demanded.
    ///
    /// # Errors
    /// `Invalid` unless it is 1 to 256 printable ASCII characters without spaces.
    pub fn token(token: &str) -> Result<Self, WireError> {
        if token.is_empty() || token.len() > 256 || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(WireError::Invalid {
                what: "token",
                expected: "1 to 256 printable ASCII characters without spaces".into(),
                got: format!("{} bytes", token.len()),
            });
        }
        Ok(Self { token: Some(token.to_owned()), ..Self::default() })
    }

    /// These, if they are given: a token, and TLS for all connections. A certificate says to which cluster we belong.
    ///
    /// # Errors
    /// As [`Credentials::token`].
    pub fn of(token: Option<&str>, tls: Option<&Tls>) -> Result<Self, WireError> {
        let shown = token.map_or(Ok(Self::none()), Self::token)?;
        if let Some(tls) = tls {
            shown.join(tls.badge().cluster())?;
        }
        Ok(Self { tls: tls.cloned(), ..shown })
    }

    /// What secures all connections, if anything.
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Refuses a peer whose certificate is of another cluster.
    ///
    /// # Errors
    /// `Foreign` with both ids.
    pub fn check_peer(&self, peer: &Peer) -> Result<(), WireError> {
        self.check_cluster(peer.badge.as_ref().map(|badge| badge.cluster()), false)
    }

    /// The cluster that this process belongs to, once that is known.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster.get().copied()
    }

    /// From now on this process belongs to `cluster`.
    ///
    /// # Errors
    /// `Foreign` if it belongs to another one; nothing is changed then.
    pub fn join(&self, cluster: ClusterId) -> Result<(), WireError> {
        match *self.cluster.get_or_init(|| cluster) {
            own if own == cluster => Ok(()),
            own => Err(WireError::Foreign { expected: own.to_string(), got: cluster.to_string() }),
        }
    }

    /// Checks the cluster that a peer shows. If `demanded`, a peer that shows none is refused too.
    ///
    /// # Errors
    /// `Foreign` with both ids. A process that belongs to no cluster yet refuses nobody.
    pub fn check_cluster(&self, shown: Option<ClusterId>, demanded: bool) -> Result<(), WireError> {
        match (self.cluster(), shown) {
            (Some(own), Some(shown)) if own == shown => Ok(()),
            (Some(own), Some(shown)) => {
                Err(WireError::Foreign { expected: own.to_string(), got: shown.to_string() })
            }
            (Some(own), None) if demanded => {
                Err(WireError::Foreign { expected: own.to_string(), got: "none".into() })
            }
            _ => Ok(()),
        }
    }

    /// The version in which this process calls agents, and an agent its coordinator.
    pub fn speaks(&self) -> &Speaks {
        &self.speaks
    }

    /// The token, if there is one.
    pub fn as_token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Whether a peer that shows `got` is accepted: yes if no token is demanded, else only with exactly this
    /// token. Takes the same time wherever the first difference is.
    pub fn accepts(&self, got: Option<&str>) -> bool {
        let Some(expected) = &self.token else { return true };
        let got = got.unwrap_or_default();
        let same = expected.bytes().zip(got.bytes()).fold(0, |differences, (a, b)| differences | (a ^ b));
        expected.len() == got.len() && same == 0
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = match (&self.token, &self.tls) {
            (Some(_), Some(_)) => "token, TLS",
            (Some(_), None) => "token",
            (None, Some(_)) => "TLS",
            (None, None) => "none",
        };
        write!(f, "Credentials({shown})")
    }
}

/// A network that belongs to the cluster's owner alone, where plain text is allowed: `10.77.0.0/16`. Anybody on
/// this network can read the traffic: what is stored, and the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedNetwork {
    network: IpAddr,
    prefix: u8,
}

impl TrustedNetwork {
    /// Whether this is the address of one interface on the network; the address of all interfaces is not.
    pub fn contains(self, addr: IpAddr) -> bool {
        let of_one_kind = addr.is_ipv4() == self.network.is_ipv4();
        of_one_kind
            && !addr.is_unspecified()
            && leading(addr, self.prefix) == leading(self.network, self.prefix)
    }
}

/// The first `prefix` bits of an address, the others cleared.
fn leading(addr: IpAddr, prefix: u8) -> u128 {
    let (bits, length) = match addr {
        IpAddr::V4(addr) => (u128::from(addr.to_bits()), 32),
        IpAddr::V6(addr) => (addr.to_bits(), 128),
    };
    let host_bits = u32::from(length - prefix);
    bits >> host_bits << host_bits
}

impl FromStr for TrustedNetwork {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        let invalid = |expected: &str| WireError::Invalid {
            what: "trusted network",
            expected: expected.to_owned(),
            got: format!("{text:?}"),
        };
        let form = "ADDRESS/PREFIX such as 10.77.0.0/16";
        let (network, prefix) = text.split_once('/').ok_or_else(|| invalid(form))?;
        let network: IpAddr = network.parse().map_err(|_| invalid(form))?;
        let length = if network.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.parse().ok().filter(|prefix| (1..=length).contains(prefix));
        let prefix = prefix.ok_or_else(|| invalid(&format!("a prefix of 1 to {length} bits")))?;
        if leading(network, prefix) != leading(network, length) {
            return Err(invalid("an address whose bits after the prefix are zero"));
        }
        Ok(Self { network, prefix })
    }
}

impl std::fmt::Display for TrustedNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

/// Checks that a listener may be bound to `addr`: on loopback and with TLS always, otherwise only with a token on a
/// trusted network.
///
/// # Errors
/// `Exposed`.
pub fn check_listen(
    addr: SocketAddr,
    credentials: &Credentials,
    trusted: Option<TrustedNetwork>,
) -> Result<(), WireError> {
    let inside = trusted.is_some_and(|network| network.contains(addr.ip()));
    let token = credentials.as_token().is_some();
    if addr.ip().is_loopback() || credentials.tls().is_some() || (inside && token) {
        return Ok(());
    }
    let (expected, got) = match trusted {
        Some(_) => (
            "a loopback address, TLS (--tls), or an address inside the trusted network and a token",
            if inside { "no token" } else { "an address outside of the trusted network" },
        ),
        None => (
            "a loopback address, TLS (--tls DIR; `kintsu ca` makes the files), or a trusted network and a token",
            if token { "a token only" } else { "none of these" },
        ),
    };
    Err(WireError::Exposed { addr, expected, got })
}

/// Client side: adds versions, token and cluster to every call.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// The version of all calls; `None`: the one that the credentials say at the time.
    fixed: Option<u32>,
    authorization: Option<MetadataValue<Ascii>>,
    credentials: Credentials,
}

impl Outgoing {
    /// Shows these credentials, and calls in the version that they say.
    pub fn new(credentials: &Credentials) -> Self {
        let authorization = credentials.as_token().map(|token| {
            let mut value: MetadataValue<Ascii> =
                format!("Bearer {token}").parse().expect("a token is printable ASCII");
            value.set_sensitive(true);
            value
        });
        let credentials = credentials.clone();
        Self { fixed: None, authorization, credentials }
    }

    /// The same, but always in the version of this release.
    pub fn newest(credentials: &Credentials) -> Self {
        Self { fixed: Some(PROTOCOL_VERSION), ..Self::new(credentials) }
    }
}

impl Interceptor for Outgoing {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let now = self.fixed.unwrap_or_else(|| self.credentials.speaks.now());
        let said = request.extensions().get().copied().unwrap_or(Spoken { now, ..Spoken::OWN });
        said.write(request.metadata_mut());
        if let Some(value) = &self.authorization {
            request.metadata_mut().insert(AUTHORIZATION, value.clone());
        }
        if let Some(value) = self.credentials.cluster().and_then(|id| id.to_string().parse().ok()) {
            request.metadata_mut().insert(CLUSTER_KEY, value);
        }
        Ok(request)
    }
}

/// Server side: refuses calls of versions that it does not speak, or of another cluster (`FailedPrecondition`), or without the
/// token (`Unauthenticated`) before their message is read. A caller that is refused for what it shows has a line in the audit log.
#[derive(Debug, Clone)]
pub struct Incoming {
    credentials: Credentials,
    /// Callers that show no cluster are refused too.
    members_only: bool,
}

impl Incoming {
    /// Demands these credentials. A caller may show no cluster, but not another one.
    pub fn new(credentials: &Credentials) -> Self {
        Self { credentials: credentials.clone(), members_only: false }
    }

    /// Demands these credentials; a caller must show the cluster.
    pub fn members_only(credentials: &Credentials) -> Self {
        Self { credentials: credentials.clone(), members_only: true }
    }

    /// Refuses a caller that shows another certificate, token or cluster than ours.
    fn admit(&self, peer: &Peer, shown: &MetadataMap) -> Result<(), Status> {
        let text = |key: &str| shown.get(key).and_then(|value| value.to_str().ok());
        self.credentials.check_peer(peer).map_err(|error| self.foreign(&error))?;
        let token = text(AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        if !self.credentials.accepts(token) {
            let got = if token.is_some() { "another one" } else { "none" };
            return Err(Status::unauthenticated(format!("expected this cluster's token, got {got}")));
        }
        let cluster = text(CLUSTER_KEY).map(str::parse).transpose();
        let checked = cluster.and_then(|shown| self.credentials.check_cluster(shown, self.members_only));
        checked.map_err(|error| self.foreign(&error))
    }

    /// The refusal of a peer of another cluster; it carries our cluster's id, for [`other_cluster`].
    fn foreign(&self, error: &WireError) -> Status {
        let mut status = Status::failed_precondition(error.to_string());
        if let Some(value) = self.credentials.cluster().and_then(|id| id.to_string().parse().ok()) {
            status.metadata_mut().insert(CLUSTER_KEY, value);
        }
        status
    }
}

/// The peer's cluster, from its refusal of a call by a member of another cluster.
pub fn other_cluster(refusal: &Status) -> Option<ClusterId> {
    refusal.metadata().get(CLUSTER_KEY)?.to_str().ok()?.parse().ok()
}

/// What a peer's refusal says; never empty. A peer that does not know a call has no words for that.
pub fn words(refusal: &Status) -> String {
    match refusal.message() {
        "" if refusal.code() == Code::Unimplemented => {
            format!(
                "it does not know this call: expected a peer of version {PROTOCOL_VERSION} of the protocol, got one of another \
                 version, or another kind of process (an agent has no calls of a coordinator)"
            )
        }
        "" => format!("no reason given ({})", refusal.code().description().to_lowercase()),
        words => match root(refusal) {
            // What broke a connection is said by the error at the root only.
            Some(root) if !words.contains(&root) => format!("{words}: {root}"),
            _ => words.to_owned(),
        },
    }
}

/// The text of the error at the root.
fn root(error: &dyn std::error::Error) -> Option<String> {
    let mut root = error.source()?;
    while let Some(deeper) = root.source() {
        root = deeper;
    }
    Some(root.to_string())
}

impl Interceptor for Incoming {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let spoken = Spoken::read(request.metadata())?;
        let peer = Peer::of(request.extensions());
        // Which method it wanted is not known here.
        audit::checked_stranger(&peer, "call", self.admit(&peer, request.metadata()))?;
        request.extensions_mut().insert(spoken);
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Only;
    use crate::tls::{Badge, Wanted};

    #[test]
    fn only_loopback_is_free_to_listen_on() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        for free in ["127.0.0.1:0", "127.9.9.9:7400", "[::1]:7400"] {
            check_listen(at(free), &Credentials::none(), None).unwrap();
        }
        for open in ["0.0.0.0:7400", "192.168.1.2:1", "[::]:7400", "[2001:db8::1]:5"] {
            assert!(check_listen(at(open), &Credentials::none(), None).is_err());
            let secret = Credentials::token("secret").unwrap();
            let text = check_listen(at(open), &secret, None).unwrap_err().to_string();
            assert!(text.contains("got a token only") && text.contains("--tls"), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn a_trusted_network_opens_its_own_addresses_and_no_others() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let network: TrustedNetwork = "10.77.0.0/16".parse().unwrap();
        let (none, secret) = (Credentials::none(), Credentials::token("secret").unwrap());
        let check = |addr, shown| check_listen(at(addr), shown, Some(network));
        for inside in ["10.77.0.1:7400", "10.77.255.254:0", "127.0.0.1:1"] {
            check(inside, &secret).unwrap();
        }
        assert!(check("10.77.0.1:7400", &none).unwrap_err().to_string().contains("no token"));
        for outside in ["10.78.0.1:1", "0.0.0.0:1", "[::]:1", "[::ffff:10.77.0.1]:1", "192.168.0.1:1"] {
            let text = check(outside, &secret).unwrap_err().to_string();
            assert!(text.contains("outside of the trusted network"), "{text}");
        }
        // The address of all interfaces is on no network, however wide.
        let wide: TrustedNetwork = "0.0.0.0/1".parse().unwrap();
        assert!(check_listen(at("0.0.0.0:1"), &secret, Some(wide)).is_err());
        let six: TrustedNetwork = "fd00::/8".parse().unwrap();
        check_listen(at("[fd12::1]:1"), &secret, Some(six)).unwrap();
        assert_eq!(six.to_string(), "fd00::/8");
        for bad in ["", "10.77.0.0", "10.77.0.0/0", "10.77.0.0/33", "10.77.0.1/16", "fd00::/129", "x/8"] {
            assert!(bad.parse::<TrustedNetwork>().unwrap_err().to_string().contains("expected"), "{bad}");
        }
    }

    #[test]
    fn calls_need_this_token() {
        let credentials = Credentials::token("open-sesame").unwrap();
        let call = |shown: &Credentials, demanded: &Credentials| {
            Incoming::new(demanded).call(Outgoing::new(shown).call(Request::new(())).unwrap())
        };
        call(&credentials, &credentials).unwrap();
        call(&credentials, &Credentials::none()).unwrap();
        let other = Credentials::token("open-sesamE").unwrap();
        for wrong in [Credentials::none(), other, Credentials::token("open-sesame-2").unwrap()] {
            let status = call(&wrong, &credentials).unwrap_err();
            assert_eq!(status.code(), tonic::Code::Unauthenticated);
        }
    }

    #[test]
    fn whoever_belongs_to_another_cluster_is_refused_with_both_ids() {
        let (a, b) = (ClusterId([0xaa; 16]), ClusterId([0xbb; 16]));
        let of = |cluster: Option<ClusterId>| {
            let credentials = Credentials::none();
            cluster.map_or(Ok(()), |id| credentials.join(id)).unwrap();
            credentials
        };
        let call = |shown: &Credentials, server: &mut Incoming| {
            server.call(Outgoing::new(shown).call(Request::new(())).unwrap())
        };
        let mut lenient = Incoming::new(&of(Some(a)));
        let mut strict = Incoming::members_only(&of(Some(a)));
        call(&of(Some(a)), &mut lenient).unwrap();
        call(&of(Some(a)), &mut strict).unwrap();
        call(&of(None), &mut lenient).unwrap();
        call(&of(Some(b)), &mut Incoming::members_only(&of(None))).unwrap();
        assert!(call(&of(None), &mut strict).unwrap_err().message().contains("got none"));
        for server in [&mut lenient, &mut strict] {
            let status = call(&of(Some(b)), server).unwrap_err();
            assert_eq!(status.code(), tonic::Code::FailedPrecondition);
            assert_eq!(other_cluster(&status), Some(a));
            let both = status.message().contains(&a.to_string()) && status.message().contains(&b.to_string());
            assert!(both, "{}", status.message());
        }
        let credentials = of(Some(a));
        credentials.join(a).unwrap();
        assert!(credentials.join(b).is_err() && credentials.cluster() == Some(a));
    }

    #[test]
    fn a_certificate_of_another_cluster_is_refused_whatever_else_is_shown() {
        let (own, other) = (ClusterId([0xaa; 16]), ClusterId([0xbb; 16]));
        let credentials = Credentials::none();
        credentials.join(own).unwrap();
        let call = |cluster, role: &str| {
            let mut request = Outgoing::new(&credentials).call(Request::new(())).unwrap();
            let badge = Badge::new(cluster, vec![role.parse().unwrap()]).unwrap();
            request.extensions_mut().insert(Peer { addr: None, badge: Some(badge.into()) });
            let mut incoming = Incoming::new(&credentials);
            incoming.call(request).and_then(|request| Only(&[Wanted::Operator], "Operation").call(request))
        };
        call(own, "operator").unwrap();
        let foreign = call(other, "operator").unwrap_err();
        assert_eq!(other_cluster(&foreign), Some(own));
        let role = call(own, "client/eve").unwrap_err();
        assert_eq!(role.code(), tonic::Code::PermissionDenied);
        assert!(role.message().contains("expected an operator, got client/eve"), "{role:?}");
    }

    #[test]
    fn tokens_are_printable_and_never_shown() {
        for bad in ["", "a b", "a\n", "ä", &"x".repeat(257)] {
            assert!(Credentials::token(bad).is_err(), "{bad:?}");
        }
        assert!(!format!("{:?}", Credentials::token("secret").unwrap()).contains("secret"));
    }
}
