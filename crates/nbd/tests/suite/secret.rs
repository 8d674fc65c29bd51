//! The handshake in TLS: what is said before, who may go on, and real clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use kintsu_nbd::{Limits, Listen};
use kintsu_wire::net::{Stream, TcpStream};
use kintsu_wire::tls::{Authority, Issue, Wanted};
use kintsu_wire::{ClusterId, Tls};
use tempfile::TempDir;

use crate::raw::{Raw, SIZE, Served, in_tls, named, soon};
use crate::tools::{have, noise, output, run};

const ACK: u32 = 1;
const UNSUP: u32 = (1 << 31) + 1;
const INVALID: u32 = (1 << 31) + 3;
const TLS_REQD: u32 = (1 << 31) + 5;
const STARTTLS: u32 = 5;

/// An authority and the certificates that it issues.
struct Stage {
    dir: TempDir,
    authority: Authority,
}

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::init(&dir.path().join("ca"), ClusterId([7; 16])).unwrap();
        Self { dir, authority }
    }

    /// A folder with a certificate, under the names that clients of NBD look for too.
    fn folder(&self, role: &str) -> PathBuf {
        let out = self.dir.path().join(role.replace('/', "-"));
        let (roles, hosts) = (vec![role.parse().unwrap()], vec!["127.0.0.1".into()]);
        let valid = Duration::from_secs(3600);
        self.authority.issue(&Issue { roles, hosts, valid, out: out.clone(), replace: false }).unwrap();
        for (ours, theirs) in
            [("ca.pem", "ca-cert.pem"), ("cert.pem", "client-cert.pem"), ("key.pem", "client-key.pem")]
        {
            std::os::unix::fs::symlink(ours, out.join(theirs)).unwrap();
        }
        out
    }

    fn tls(&self, role: &str) -> Tls {
        Tls::open(&self.folder(role)).unwrap()
    }

    async fn served(&self) -> Served {
        let listen = in_tls(Some(self.tls("client/nbd")));
        Served::on(listen, Limits::default(), |_| {}).await
    }
}

async fn greet(addr: SocketAddr) -> Raw<TcpStream> {
    Raw::greeted(TcpStream::connect(addr).await.unwrap(), 3).await
}

/// Goes on in TLS.
async fn secure(addr: SocketAddr, tls: &Tls) -> std::io::Result<Raw<Stream>> {
    let mut raw = greet(addr).await;
    assert_eq!(raw.option(STARTTLS, b"").await[0].0, ACK);
    let stream = soon(tls.connect(raw.stream, Wanted::User)).await?;
    Ok(Raw { stream, structured: false })
}

#[tokio::test]
async fn before_tls_nothing_is_said_and_in_it_everything() {
    let stage = Stage::new();
    let served = stage.served().await;
    assert!(served.server.uri().starts_with("nbds://127.0.0.1:"), "{}", served.server.uri());
    let mut raw = greet(served.addr()).await;
    let go = [&named("disk")[..], &[0, 0]].concat();
    for (option, data) in [(3, &b""[..]), (6, &go[..]), (7, &go[..]), (8, &b""[..]), (1234, &b"?"[..])] {
        let answers = raw.option(option, data).await;
        assert!(matches!(&answers[..], [(TLS_REQD, why)] if why.starts_with(b"this server speaks TLS")));
    }
    assert_eq!(raw.option(STARTTLS, b"x").await[0].0, INVALID);
    assert_eq!(raw.option(2, b"").await[0].0, ACK);
    assert!(raw.closed().await);
    // The old option for a name has no answer that could say no.
    let mut raw = greet(served.addr()).await;
    raw.send_option(1, b"disk").await;
    assert!(raw.closed().await);

    let mut raw = secure(served.addr(), &stage.tls("operator/me")).await.unwrap();
    assert_eq!(raw.option(3, b"").await[0], (2, named("disk")));
    assert_eq!(raw.option(STARTTLS, b"").await[0].0, INVALID);
    raw.enter(true).await;
    let data = noise(3 << 20, 1);
    assert_eq!(raw.ask(1, 0, (12_345, data.len() as u32), &data).await.error, 0);
    assert_eq!(raw.ask(0, 0, (12_345, data.len() as u32), &[]).await.data[8..], data);
    // Nobody else asks for TLS where there is none.
    let open = Served::new().await;
    assert_eq!(greet(open.addr()).await.option(STARTTLS, b"").await[0].0, UNSUP);
}

#[tokio::test]
async fn what_comes_in_plain_text_after_the_request_for_tls_is_not_heard() {
    use tokio::io::AsyncWriteExt;
    let served = Stage::new().served().await;
    let mut raw = greet(served.addr()).await;
    let start = [b"IHAVEOPT", &STARTTLS.to_be_bytes()[..], &[0; 4]].concat();
    let list = [b"IHAVEOPT", &3u32.to_be_bytes()[..], &[0; 4]].concat();
    raw.stream.write_all(&[start, list].concat()).await.unwrap();
    // The request for TLS is answered, and then the connection ends.
    let mut answer = [0; 20];
    soon(tokio::io::AsyncReadExt::read_exact(&mut raw.stream, &mut answer)).await.unwrap();
    assert_eq!(answer[8..16], [0, 0, 0, 5, 0, 0, 0, 1]);
    assert!(raw.closed().await);
}

#[tokio::test]
async fn only_users_of_the_cluster_get_in() {
    let stage = Stage::new();
    let served = stage.served().await;
    // In TLS 1.3 a client learns with its first answer that it was refused.
    let said = async |tls: &Tls| match secure(served.addr(), tls).await {
        Ok(mut raw) => {
            raw.send_option(3, b"").await;
            !raw.closed().await
        }
        Err(_) => false,
    };
    assert!(said(&stage.tls("client/me")).await);
    assert!(!said(&stage.tls("agent/1")).await, "an agent uses no volumes");
    let other = Stage::new();
    assert!(!said(&other.tls("client/me")).await, "of another authority");
}

#[tokio::test]
async fn beyond_loopback_tls_is_enough() {
    let stage = Stage::new();
    let listen = Listen::Tcp {
        addr: "0.0.0.0:0".parse().unwrap(),
        tls: Some(stage.tls("client/nbd")),
        token: None,
        trusted: None,
    };
    Served::on(listen, Limits::default(), |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn libnbd_speaks_tls_with_it() {
    if !have(&["nbdinfo", "nbdcopy"]) {
        return;
    }
    let stage = Stage::new();
    let served = stage.served().await;
    let uri = |dir: PathBuf| format!("{}?tls-certificates={}", served.server.uri(), dir.display());
    let ours = uri(stage.folder("client/me"));
    let out = output("nbdinfo", ["--size", &ours]).await;
    let said = String::from_utf8_lossy(&out.stderr);
    if said.contains("compiled without TLS") {
        return crate::tools::skipped("libnbd has no TLS");
    }
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), SIZE.to_string(), "{said}");
    let (there, back) = (stage.dir.path().join("there"), stage.dir.path().join("back"));
    std::fs::write(&there, noise(SIZE as usize, 5)).unwrap();
    run("nbdcopy", ["--flush", there.to_str().unwrap(), &ours]).await;
    run("nbdcopy", [ours.as_str(), back.to_str().unwrap()]).await;
    assert!(std::fs::read(&there).unwrap() == std::fs::read(&back).unwrap());
    // Strangers: without TLS, and with a certificate of another authority.
    let plain = served.server.uri().replace("nbds:", "nbd:");
    let foreign = uri(Stage::new().folder("client/me"));
    for wrong in [plain, foreign] {
        assert!(!output("nbdinfo", ["--size", &wrong]).await.status.success(), "{wrong}");
    }
}
