//! The files of a TLS folder, and the configurations made of them.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WantsClientCert, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
    version,
};

use super::badge::Badge;
use crate::WireError;

/// The certificates of the authorities that are trusted, PEM.
pub const CA_FILE: &str = "ca.pem";
/// Our certificate, then intermediate ones if there are any, PEM.
pub const CERT_FILE: &str = "cert.pem";
/// Our private key, PEM.
pub const KEY_FILE: &str = "key.pem";

/// What the files look like from outside; changes when one of them is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp([Option<(SystemTime, u64)>; 3]);

impl Stamp {
    pub(super) fn of(dir: &Path) -> Self {
        Self([CA_FILE, CERT_FILE, KEY_FILE].map(|name| {
            let found = std::fs::metadata(dir.join(name)).ok()?;
            Some((found.modified().ok()?, found.len()))
        }))
    }
}

/// Both sides' configurations, made of one state of the files.
#[derive(Clone)]
pub(super) struct Configs {
    pub server: Arc<ServerConfig>,
    /// For clients that show no certificate.
    pub open: Arc<ServerConfig>,
    pub client: Arc<ClientConfig>,
    pub badge: Arc<Badge>,
}

impl Configs {
    /// Reads the folder.
    pub(super) fn read(dir: &Path) -> Result<Self, WireError> {
        let roots = Arc::new(roots(dir)?);
        let chain = certificates(dir, CERT_FILE)?;
        let badge = Arc::new(Badge::read(&chain[0])?);
        let key = PrivateKeyDer::from_pem_file(dir.join(KEY_FILE));
        let key = key.map_err(|error| invalid(dir, KEY_FILE, "a private key (PEM)", error))?;

        let provider = Arc::new(ring::default_provider());
        let fits = format!("a certificate that fits {KEY_FILE}");
        let unusable = |error: Error| invalid(dir, CERT_FILE, &fits, error);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let verifier = verifier.map_err(|error| invalid(dir, CA_FILE, "usable authorities", error))?;
        let server = ServerConfig::builder_with_provider(provider.clone());
        let server = server.with_protocol_versions(&[&version::TLS13]).map_err(unusable)?;
        let server = server.with_client_cert_verifier(verifier);
        let mut server = server.with_single_cert(chain.clone(), key.clone_key()).map_err(unusable)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let open = ServerConfig::builder_with_provider(provider.clone());
        let open = open.with_protocol_versions(&[&version::TLS13]).map_err(unusable)?.with_no_client_auth();
        let open = open.with_single_cert(chain.clone(), key.clone_key()).map_err(unusable)?;
        let client = client(roots, provider).map_err(unusable)?;
        let mut client = client.with_client_auth_cert(chain, key).map_err(unusable)?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Self { server: Arc::new(server), open: Arc::new(open), client: Arc::new(client), badge })
    }
}

/// A client's configuration, to which only its own certificate is missing.
fn client(
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let client = ClientConfig::builder_with_provider(provider.clone());
    let client = client.with_protocol_versions(&[&version::TLS13])?;
    let verifier = Arc::new(ByAuthority { roots, provider });
    Ok(client.dangerous().with_custom_certificate_verifier(verifier))
}

/// A client that shows no certificate.
#[cfg(test)]
pub(super) fn anonymous(dir: &Path) -> Result<ClientConfig, Error> {
    let roots = roots(dir).map_err(|error| Error::General(error.to_string()))?;
    Ok(client(Arc::new(roots), Arc::new(ring::default_provider()))?.with_no_client_auth())
}

/// The authorities that are trusted.
fn roots(dir: &Path) -> Result<RootCertStore, WireError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(dir, CA_FILE)? {
        let added = roots.add(authority);
        added.map_err(|error| invalid(dir, CA_FILE, "an authority's certificate", error))?;
    }
    Ok(roots)
}

/// The certificates in a file; at least one.
fn certificates(dir: &Path, name: &str) -> Result<Vec<CertificateDer<'static>>, WireError> {
    let expected = "one or more certificates (PEM)";
    let read = CertificateDer::pem_file_iter(dir.join(name)).and_then(Iterator::collect);
    let read: Vec<CertificateDer<'static>> = read.map_err(|error| invalid(dir, name, expected, error))?;
    if read.is_empty() {
        return Err(invalid(dir, name, expected, "none"));
    }
    Ok(read)
}

fn invalid(dir: &Path, name: &str, expected: &str, got: impl std::fmt::Display) -> WireError {
    WireError::Invalid {
        what: "TLS folder",
        expected: format!("{expected} in {}", dir.join(name).display()),
        got: got.to_string(),
    }
}

/// Verifies a server's certificate as usual, except for its host name: its badge is compared instead, after the handshake.
#[derive(Debug)]
struct ByAuthority {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByAuthority {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
