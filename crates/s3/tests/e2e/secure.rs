//! The gateway in TLS.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kintsu_s3::{Config, Listen, Server};
use kintsu_wire::tls::{Authority, CA_FILE, Issue};
use kintsu_wire::{ClusterId, Tls};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::site::{ALICE, Answer, Site, answer, noise, request};

/// A client that shows no certificate and trusts the authority of a folder, or nobody.
fn trusting(folder: Option<&Path>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    if let Some(folder) = folder {
        roots.add(CertificateDer::from_pem_file(folder.join(CA_FILE)).unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsConnector::from(Arc::new(client.with_root_certificates(roots).with_no_client_auth()))
}

/// One signed request over a connection of its own.
async fn call(
    connector: &TlsConnector,
    addr: SocketAddr,
    method: &str,
    target: &str,
    body: &[u8],
) -> std::io::Result<Answer> {
    let tcp = TcpStream::connect(addr).await?;
    let mut stream = connector.connect(ServerName::try_from("127.0.0.1").unwrap(), tcp).await?;
    let head = request(ALICE, addr, method, target, &[]);
    let head = format!("{head}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    Ok(answer(&bytes))
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_trust_the_authority_put_and_get_over_https() {
    let site = Site::start().await;
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::init(&dir.path().join("ca"), ClusterId([0xaa; 16])).unwrap();
    let out = dir.path().join("door");
    let (roles, hosts) = (vec!["client/s3".parse().unwrap()], vec!["127.0.0.1".to_owned()]);
    let valid = Duration::from_secs(3600);
    authority.issue(&Issue { roles, hosts, valid, out: out.clone(), replace: false }).unwrap();
    let tls = Some(Tls::open(&out).unwrap());
    let listen = Listen { addr: ([127, 0, 0, 1], 0).into(), trusted: None, tls };
    let config = Config::new("rs:n=4,k=2");
    let door = Server::start(site.client.clone(), site.keys.clone(), config, listen).await.unwrap();
    let client = trusting(Some(&out));
    let call_door = async |method: &str, target: &str, body: &[u8]| {
        call(&client, door.addr(), method, target, body).await.unwrap()
    };
    let bytes = noise(5 << 20);
    call_door("PUT", "/secret", b"").await.ok();
    call_door("PUT", "/secret/k", &bytes).await.ok();
    assert!(call_door("GET", "/secret/k", b"").await.ok().body == bytes);
    // A policy can tell the doors of a bucket apart.
    let policy = br#"{"Statement": [{"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject",
        "Resource": "arn:aws:s3:::secret/*", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}]}"#;
    call_door("PUT", "/secret?policy", policy).await.ok();
    call_door("GET", "/secret/k", b"").await.ok();
    site.get("/secret/k").await.is_error(403, "AccessDenied");

    let refused = call(&trusting(None), door.addr(), "GET", "/secret/k", b"").await.unwrap_err();
    assert!(refused.to_string().contains("UnknownIssuer"), "{refused}");
    // Plain text is not answered there.
    let mut plain = TcpStream::connect(door.addr()).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut heard = Vec::new();
    let _ = plain.read_to_end(&mut heard).await;
    assert!(!heard.starts_with(b"HTTP"), "{heard:?}");
}
