//! Who may listen where, and who may speak: the listener rule, the token, the version check.
//!
//! What this is not: encryption. Until listeners can wear TLS, none may leave loopback; the
//! token keeps apart the clusters and users of one machine.

use std::net::SocketAddr;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::{PROTOCOL_VERSION, VERSION_KEY, WireError};

const AUTHORIZATION: &str = "authorization";

/// What a process shows to its peers and demands of them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    token: Option<String>,
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
        Ok(Self { token: Some(token.to_owned()) })
    }

    /// The token, if there is one.
    pub fn as_token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Whether a peer that shows `got` may speak: yes where no token is demanded, else only with
    /// this very token. Takes the same time wherever the first difference is.
    pub fn accepts(&self, got: Option<&str>) -> bool {
        let Some(expected) = &self.token else { return true };
        let got = got.unwrap_or_default();
        let same = expected.bytes().zip(got.bytes()).fold(0, |differences, (a, b)| differences | (a ^ b));
        expected.len() == got.len() && same == 0
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.token.is_some() { "Credentials(token)" } else { "Credentials(none)" })
    }
}

/// Checks that a listener may be bound to `addr`: on loopback always, beyond it only with TLS and
/// a token.
///
/// # Errors
/// `Exposed`.
pub fn check_listen(addr: SocketAddr, tls: bool, token: Option<&str>) -> Result<(), WireError> {
    if addr.ip().is_loopback() || (tls && token.is_some()) {
        return Ok(());
    }
    Err(WireError::Exposed {
        addr,
        expected: "a loopback address, or TLS and a token (TLS is not implemented yet)",
        got: match (tls, token) {
            (true, _) => "no token",
            (false, Some(_)) => "a token without TLS",
            (false, None) => "neither",
        },
    })
}

/// Client side: adds version and token to every call.
#[derive(Debug, Clone)]
pub struct Outgoing {
    version: MetadataValue<Ascii>,
    authorization: Option<MetadataValue<Ascii>>,
}

impl Outgoing {
    /// Shows these credentials.
    pub fn new(credentials: &Credentials) -> Self {
        let authorization = credentials.as_token().map(|token| {
            let mut value: MetadataValue<Ascii> =
                format!("Bearer {token}").parse().expect("a token is printable ASCII");
            value.set_sensitive(true);
            value
        });
        Self { version: MetadataValue::from(PROTOCOL_VERSION), authorization }
    }
}

impl Interceptor for Outgoing {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(VERSION_KEY, self.version.clone());
        if let Some(value) = &self.authorization {
            request.metadata_mut().insert(AUTHORIZATION, value.clone());
        }
        Ok(request)
    }
}

/// Server side: refuses calls of another version (`FailedPrecondition`) or without the token
/// (`Unauthenticated`) before their message is read.
#[derive(Debug, Clone)]
pub struct Incoming {
    credentials: Credentials,
}

impl Incoming {
    /// Demands these credentials.
    pub fn new(credentials: &Credentials) -> Self {
        Self { credentials: credentials.clone() }
    }
}

impl Interceptor for Incoming {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let text = |key: &str| request.metadata().get(key).and_then(|v| v.to_str().ok());
        let version = text(VERSION_KEY);
        if version.and_then(|v| v.parse().ok()) != Some(PROTOCOL_VERSION) {
            let got = version.unwrap_or("none");
            return Err(Status::failed_precondition(format!(
                "the peer speaks another version of the protocol: expected {PROTOCOL_VERSION}, got {got}"
            )));
        }
        let shown = text(AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        if !self.credentials.accepts(shown) {
            let got = if shown.is_some() { "another one" } else { "none" };
            return Err(Status::unauthenticated(format!("expected this cluster's token, got {got}")));
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_free_to_listen_on() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        for free in ["127.0.0.1:0", "127.9.9.9:7400", "[::1]:7400"] {
            check_listen(at(free), false, None).unwrap();
        }
        for open in ["0.0.0.0:7400", "192.168.1.2:1", "[::]:7400", "[2001:db8::1]:5"] {
            assert!(check_listen(at(open), false, None).is_err());
            assert!(check_listen(at(open), true, None).is_err());
            let text = check_listen(at(open), false, Some("secret")).unwrap_err().to_string();
            assert!(text.contains("TLS is not implemented yet"), "{text}");
            assert!(!text.contains("secret"), "{text}");
            check_listen(at(open), true, Some("secret")).unwrap();
        }
    }

    #[test]
    fn calls_need_this_version_and_this_token() {
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

        let mut request = Request::new(());
        request.metadata_mut().insert(VERSION_KEY, "7".parse().unwrap());
        let status = Incoming::new(&Credentials::none()).call(request).unwrap_err();
        assert!(status.message().contains("expected 2, got 7"), "{}", status.message());
        let status = Incoming::new(&Credentials::none()).call(Request::new(())).unwrap_err();
        assert!(status.message().contains("expected 2, got none"), "{}", status.message());
    }

    #[test]
    fn tokens_are_printable_and_never_shown() {
        for bad in ["", "a b", "a\n", "ä", &"x".repeat(257)] {
            assert!(Credentials::token(bad).is_err(), "{bad:?}");
        }
        assert!(!format!("{:?}", Credentials::token("secret").unwrap()).contains("secret"));
    }
}
