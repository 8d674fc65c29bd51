use std::net::SocketAddr;

use kintsu_dag::NodeId;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::ClusterId;
use crate::net::{TcpListener, connect};

const CLUSTER: ClusterId = ClusterId([0xaa; 16]);
const LONG: Duration = Duration::from_secs(3600);

/// An authority, and the folders that it issued.
struct Stage {
    dir: TempDir,
    authority: Authority,
}

impl Stage {
    fn new(cluster: ClusterId) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::init(&dir.path().join("ca"), cluster).unwrap();
        Self { dir, authority }
    }

    fn folder(&self, role: &str, valid: Duration) -> PathBuf {
        let out = self.dir.path().join(role.replace('/', "-"));
        let roles = vec![role.parse().unwrap()];
        self.authority
            .issue(&Issue { roles, hosts: Vec::new(), valid, out: out.clone(), replace: true })
            .unwrap();
        out
    }

    fn tls(&self, role: &str) -> Tls {
        Tls::open(&self.folder(role, LONG)).unwrap()
    }
}

/// Accepts connections for ever: says one byte to each peer whose handshake is done, and tells what came of it.
async fn server(tls: Tls) -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<Result<String, String>>) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (told, results) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let result = match tls.accept(tcp).await {
                Ok(mut stream) => {
                    stream.write_all(b"!").await.unwrap();
                    stream.flush().await.unwrap();
                    Ok(stream.peer().badge.unwrap().to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            told.send(result).unwrap();
        }
    });
    (addr, results)
}

/// Connects and waits for the byte; the error says why there is none.
async fn hear(addr: SocketAddr, tls: Option<&Tls>, wanted: Wanted) -> Result<(), String> {
    let heard = async {
        let mut stream = connect(addr, tls, wanted).await?;
        if tls.is_none() {
            stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
        }
        match stream.read_u8().await? {
            b'!' => Ok(()),
            // A refusal in plain text is an alert.
            other => Err(io::Error::other(format!("byte {other}"))),
        }
    };
    let heard: io::Result<()> = heard.await;
    heard.map_err(|error| error.to_string())
}

#[tokio::test]
async fn both_sides_know_each_other() {
    let stage = Stage::new(CLUSTER);
    let (addr, mut results) = server(stage.tls("agent/3")).await;
    let client = stage.tls("client/alice");
    hear(addr, Some(&client), Wanted::Agent(NodeId(3))).await.unwrap();
    assert_eq!(results.recv().await.unwrap().unwrap(), format!("client/alice of cluster {CLUSTER}"));
    hear(addr, Some(&client), Wanted::AnyAgent).await.unwrap();
    // The client goes away from whoever is not the one that it wants.
    for wanted in [Wanted::Agent(NodeId(4)), Wanted::Coordinator] {
        let error = hear(addr, Some(&client), wanted).await.unwrap_err();
        assert!(error.contains(&format!("expected {wanted}")) && error.contains("got agent/3"), "{error}");
    }
}

#[tokio::test]
async fn strangers_are_refused_in_the_handshake() {
    let (stage, other) = (Stage::new(CLUSTER), Stage::new(CLUSTER));
    let (addr, mut results) = server(stage.tls("coordinator")).await;
    let mut refused = async |tls: Option<&Tls>, words: &str| {
        let seen = hear(addr, tls, Wanted::Coordinator).await;
        let told = results.recv().await.unwrap();
        assert!(seen.is_err(), "{words}: the peer was answered");
        assert!(told.clone().unwrap_err().contains(words), "expected {words}, got {told:?}");
    };
    refused(None, "").await;
    refused(Some(&stage.tls("client").without_certificate()), "no certificates").await;
    // It trusts our authority, but its own certificate is from another one, of the same name.
    let foreign = other.folder("client", LONG);
    std::fs::copy(stage.dir.path().join("ca/ca.pem"), foreign.join(CA_FILE)).unwrap();
    refused(Some(&Tls::open(&foreign).unwrap()), "BadSignature").await;
    let expired = stage.folder("operator", Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    refused(Some(&Tls::open(&expired).unwrap()), "expired").await;
}

#[tokio::test]
async fn servers_of_another_authority_or_cluster_are_refused() {
    let (stage, other) = (Stage::new(CLUSTER), Stage::new(CLUSTER));
    let client = stage.tls("client");
    let (addr, _results) = server(other.tls("coordinator")).await;
    let error = hear(addr, Some(&client), Wanted::Coordinator).await.unwrap_err();
    assert!(error.contains("BadSignature"), "{error}");
    // The same authority, but for another cluster.
    let authority = Authority::open(&stage.dir.path().join("ca")).unwrap();
    let out = stage.dir.path().join("elsewhere");
    let issue = Issue {
        roles: vec![Role::Coordinator],
        hosts: Vec::new(),
        valid: LONG,
        out: out.clone(),
        replace: false,
    };
    authority.issue_in(ClusterId([0xbb; 16]), &issue).unwrap();
    let (addr, _results) = server(Tls::open(&out).unwrap()).await;
    let error = hear(addr, Some(&client), Wanted::Coordinator).await.unwrap_err();
    assert!(error.contains(&"aa".repeat(16)) && error.contains(&"bb".repeat(16)), "{error}");
}

#[tokio::test]
async fn new_files_are_taken_over_and_bad_ones_are_not() {
    let stage = Stage::new(CLUSTER);
    let folder = stage.folder("client/old", LONG);
    let tls = Tls::open_looking(&folder, Duration::ZERO).unwrap();
    let (addr, mut results) = server(stage.tls("coordinator")).await;
    let mut shown = async || {
        hear(addr, Some(&tls), Wanted::Coordinator).await.unwrap();
        results.recv().await.unwrap().unwrap()
    };
    assert!(shown().await.starts_with("client/old "));
    let issue = |role: &str| {
        let roles = vec![role.parse().unwrap()];
        stage
            .authority
            .issue(&Issue { roles, hosts: Vec::new(), valid: LONG, out: folder.clone(), replace: true })
            .unwrap();
    };
    issue("client/new");
    assert!(shown().await.starts_with("client/new "));
    // A key that does not fit, and no key at all: the former files stay in force.
    let key = std::fs::read(folder.join(KEY_FILE)).unwrap();
    issue("client/newer");
    let newer = std::fs::read(folder.join(KEY_FILE)).unwrap();
    std::fs::write(folder.join(KEY_FILE), key).unwrap();
    assert!(shown().await.starts_with("client/new "));
    std::fs::remove_file(folder.join(KEY_FILE)).unwrap();
    assert!(shown().await.starts_with("client/new "));
    std::fs::write(folder.join(KEY_FILE), newer).unwrap();
    assert!(shown().await.starts_with("client/newer "));
}

#[test]
fn folders_that_do_not_fit_are_refused_with_words() {
    let stage = Stage::new(CLUSTER);
    let folder = stage.folder("client", LONG);
    let error = |name: &str, bytes: &[u8]| {
        let before = std::fs::read(folder.join(name)).unwrap();
        std::fs::write(folder.join(name), bytes).unwrap();
        let error = Tls::open(&folder).unwrap_err().to_string();
        std::fs::write(folder.join(name), before).unwrap();
        assert!(error.contains("expected"), "{error}");
    };
    for name in [CA_FILE, CERT_FILE, KEY_FILE] {
        error(name, b"");
        error(name, b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    }
    let other = std::fs::read(stage.folder("operator", LONG).join(KEY_FILE)).unwrap();
    error(KEY_FILE, &other);
    assert!(Tls::open(&folder.join("nowhere")).unwrap_err().to_string().contains(CA_FILE));
    // Files are not overwritten by mistake.
    let again = Issue {
        roles: vec![Role::Coordinator],
        hosts: Vec::new(),
        valid: LONG,
        out: folder.clone(),
        replace: false,
    };
    assert!(stage.authority.issue(&again).unwrap_err().to_string().contains("--replace"));
    assert!(Authority::init(&stage.dir.path().join("ca"), CLUSTER).is_err());
    let key = std::fs::metadata(folder.join(KEY_FILE)).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&key.permissions()) & 0o777, 0o600);
}

#[test]
fn an_authority_whose_key_is_elsewhere_gets_no_other_one_and_signs_with_none() {
    let (stage, other) = (Stage::new(CLUSTER), Stage::new(CLUSTER));
    let key = |stage: &Stage| stage.dir.path().join("ca/ca-key.pem");
    let (ours, folder) = (std::fs::read(key(&stage)).unwrap(), stage.dir.path().join("ca"));
    std::fs::remove_file(key(&stage)).unwrap();
    for there in [CA_FILE, "cluster"] {
        assert!(Authority::init(&folder, CLUSTER).is_err() && !key(&stage).exists());
        assert!(Authority::open(&folder).is_err());
        std::fs::rename(folder.join(there), folder.join("aside")).unwrap();
        assert!(Authority::init(&folder, CLUSTER).is_err() && !key(&stage).exists());
        std::fs::rename(folder.join("aside"), folder.join(there)).unwrap();
    }
    std::fs::copy(key(&other), key(&stage)).unwrap();
    let error = Authority::open(&folder).unwrap_err().to_string();
    assert!(error.contains("expected the key of ca.pem"), "{error}");
    std::fs::write(key(&stage), ours).unwrap();
    Authority::open(&folder).unwrap();
}

#[tokio::test]
async fn a_client_from_outside_needs_no_certificate_and_compares_the_host() {
    let stage = Stage::new(CLUSTER);
    let out = stage.dir.path().join("door");
    let issue = Issue {
        roles: vec!["client/s3".parse().unwrap()],
        hosts: vec!["s3.example.com".into(), "127.0.0.1".into()],
        valid: LONG,
        out: out.clone(),
        replace: false,
    };
    stage.authority.issue(&issue).unwrap();
    let tls = Tls::open(&out).unwrap();
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            if let Ok(mut stream) = tls.accept_anybody(tcp).await {
                stream.write_all(b"!").await.unwrap();
                stream.flush().await.unwrap();
            }
        }
    });
    let mut roots = rustls::RootCertStore::empty();
    let authority = rustls::pki_types::CertificateDer::pem_file_iter(out.join(CA_FILE)).unwrap();
    roots.add(authority.into_iter().next().unwrap().unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let client = Arc::new(client.unwrap().with_root_certificates(roots).with_no_client_auth());
    let hear = async |name: &'static str| -> io::Result<u8> {
        let tcp = tokio::net::TcpStream::connect(addr).await?;
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        TlsConnector::from(client.clone()).connect(name, tcp).await?.read_u8().await
    };
    assert_eq!(hear("s3.example.com").await.unwrap(), b'!');
    assert_eq!(hear("127.0.0.1").await.unwrap(), b'!');
    assert!(hear("other.example.com").await.unwrap_err().to_string().contains("not valid for name"));
}
