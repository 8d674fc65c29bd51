//! A cluster's own certificate authority: a folder with its key, which issues the folders that [`super::Tls`] reads.
//!
//! The folder has `ca.pem`, `ca-key.pem` and `cluster` (the id). Whoever has the key can be anybody in the cluster: it belongs on
//! no node.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType, string::Ia5String,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::badge::{Badge, Role, Roles};
use super::files::{CA_FILE, CERT_FILE, KEY_FILE};
use crate::{ClusterId, WireError, ambient};

const CA_KEY_FILE: &str = "ca-key.pem";
const CLUSTER_FILE: &str = "cluster";

/// How long the authority's own certificate is valid.
const AUTHORITY_DAYS: u32 = 3650;

/// A certificate is valid from this long before it is issued: clocks differ.
const CLOCKS_DIFFER: Duration = Duration::from_secs(3600);

const DAY: Duration = Duration::from_secs(86_400);

/// A certificate to be issued.
#[derive(Debug, Clone)]
pub struct Issue {
    /// What its owner is.
    pub roles: Vec<Role>,
    /// Names and addresses of its host, for clients that compare them, such as those of the S3 gateway.
    pub hosts: Vec<String>,
    /// How long it is valid.
    pub valid: Duration,
    /// The folder for its files; created if absent.
    pub out: PathBuf,
    /// Whether files that are there may be replaced.
    pub replace: bool,
}

/// A cluster's certificate authority.
#[derive(Debug)]
pub struct Authority {
    cluster: ClusterId,
    certificate: String,
    key: KeyPair,
}

impl Authority {
    /// Makes the authority of `cluster` and writes its folder. Blocking.
    ///
    /// # Errors
    /// `Invalid` if the folder has an authority already, or cannot be written.
    pub fn init(dir: &Path, cluster: ClusterId) -> Result<Self, WireError> {
        // A folder without the key, which is kept elsewhere, must get no other one.
        [CA_KEY_FILE, CA_FILE, CLUSTER_FILE].iter().try_for_each(|name| absent(&dir.join(name)))?;
        let key = KeyPair::generate().map_err(|error| failed(dir, &error))?;
        let made = root(cluster)?.self_signed(&key).map_err(|error| failed(dir, &error))?;
        let authority = Self { cluster, certificate: made.pem(), key };
        std::fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
        write(&dir.join(CA_KEY_FILE), &authority.key.serialize_pem(), true, false)?;
        write(&dir.join(CA_FILE), &authority.certificate, false, false)?;
        write(&dir.join(CLUSTER_FILE), &format!("{cluster}\n"), false, false)?;
        Ok(authority)
    }

    /// Reads the folder of an authority. Blocking.
    ///
    /// # Errors
    /// `Invalid` if it has none, or its key is not that of its certificate.
    pub fn open(dir: &Path) -> Result<Self, WireError> {
        let read = |name: &str| {
            let path = dir.join(name);
            std::fs::read_to_string(&path).map_err(|error| WireError::Invalid {
                what: "certificate authority",
                expected: format!("{} (made by `kintsu ca init`)", path.display()),
                got: error.to_string(),
            })
        };
        let cluster = read(CLUSTER_FILE)?.trim().parse()?;
        let (key, certificate) = (read(CA_KEY_FILE)?, read(CA_FILE)?);
        let invalid = |name: &str, expected: String, got: String| WireError::Invalid {
            what: "certificate authority",
            expected: format!("{expected} in {}", dir.join(name).display()),
            got,
        };
        let key = KeyPair::from_pem(&key)
            .map_err(|error| invalid(CA_KEY_FILE, "a private key (PEM)".into(), error.to_string()))?;
        let unusable =
            |error: &dyn std::fmt::Display| invalid(CA_FILE, "certificates (PEM)".into(), error.to_string());
        let mut fits = false;
        for found in CertificateDer::pem_slice_iter(certificate.as_bytes()) {
            let found = found.map_err(|error| unusable(&error))?;
            let parsed = webpki::EndEntityCert::try_from(&found).map_err(|error| unusable(&error))?;
            fits |= parsed.subject_public_key_info().as_ref() == key.subject_public_key_info();
        }
        if !fits {
            let (expected, got) = (format!("the key of {CA_FILE}"), "another one".into());
            return Err(invalid(CA_KEY_FILE, expected, got));
        }
        Ok(Self { cluster, certificate, key })
    }

    /// The cluster whose members it issues certificates to.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Issues a certificate with a new key, and writes `ca.pem`, `cert.pem` and `key.pem`. Blocking.
    ///
    /// # Errors
    /// `Invalid`: no role, files that are there already, a folder that cannot be written.
    pub fn issue(&self, issue: &Issue) -> Result<Badge, WireError> {
        self.issue_in(self.cluster, issue)
    }

    /// As [`Authority::issue`], for a member of any cluster.
    pub(super) fn issue_in(&self, cluster: ClusterId, issue: &Issue) -> Result<Badge, WireError> {
        let out = &issue.out;
        let badge = Badge::new(cluster, issue.roles.clone())?;
        let mut params = valid_for(issue.valid)?;
        params.distinguished_name = named(&Roles(&issue.roles).to_string());
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        for uri in badge.uris() {
            let uri = Ia5String::try_from(uri).map_err(|error| failed(out, &error))?;
            params.subject_alt_names.push(SanType::URI(uri));
        }
        for host in &issue.hosts {
            params.subject_alt_names.push(match host.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => {
                    let name = Ia5String::try_from(host.as_str());
                    SanType::DnsName(name.map_err(|error| failed(out, &error))?)
                }
            });
        }
        let key = KeyPair::generate().map_err(|error| failed(out, &error))?;
        let issuer = Issuer::new(root(self.cluster)?, &self.key);
        let made = params.signed_by(&key, &issuer).map_err(|error| failed(out, &error))?;
        std::fs::create_dir_all(out).map_err(|error| failed(out, &error))?;
        // The key comes last: until it fits the certificate, a running process keeps its former files.
        write(&out.join(CA_FILE), &self.certificate, false, issue.replace)?;
        write(&out.join(CERT_FILE), &made.pem(), false, issue.replace)?;
        write(&out.join(KEY_FILE), &key.serialize_pem(), true, issue.replace)?;
        Ok(badge)
    }
}

/// What the authority's own certificate says; the same for each call of one cluster, except for the times.
fn root(cluster: ClusterId) -> Result<CertificateParams, WireError> {
    let mut params = valid_for(DAY * AUTHORITY_DAYS)?;
    params.distinguished_name = named(&format!("Kintsu cluster {cluster}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    // The longest that X.509 allows.
    distinguished.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    distinguished
}

/// An otherwise empty certificate that is valid from now on for this long.
fn valid_for(time: Duration) -> Result<CertificateParams, WireError> {
    // Two-digit years end in 2049, and four-digit ones in 9999.
    let longest = DAY * 365 * 100;
    if time > longest {
        return Err(WireError::Invalid {
            what: "validity",
            expected: "at most 100 years".into(),
            got: format!("{} days", time.as_secs() / DAY.as_secs()),
        });
    }
    let (epoch, now) = (rcgen::date_time_ymd(1970, 1, 1), ambient::since_epoch());
    let mut params = CertificateParams::default();
    params.not_before = epoch + now.saturating_sub(CLOCKS_DIFFER);
    params.not_after = epoch + (now + time);
    Ok(params)
}

/// Writes a file under its name at once, whole. A secret one can be read by its owner only.
fn write(path: &Path, text: &str, secret: bool, replace: bool) -> Result<(), WireError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    if !replace {
        absent(path)?;
    }
    let aside = path.with_extension("pem.new");
    let mode = if secret { 0o600 } else { 0o644 };
    let writing = || {
        let _ = std::fs::remove_file(&aside);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&aside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&aside, path)
    };
    writing().map_err(|error| failed(path, &error))
}

/// There is no such file yet.
fn absent(path: &Path) -> Result<(), WireError> {
    if !path.exists() {
        return Ok(());
    }
    Err(WireError::Invalid {
        what: "file",
        expected: format!("no {} yet", path.display()),
        got: "one; remove it, choose another folder, or (for `kintsu ca issue`) say --replace".into(),
    })
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> WireError {
    WireError::Invalid {
        what: "certificate authority",
        expected: format!("to write {}", path.display()),
        got: error.to_string(),
    }
}
