//! A cluster, its gateway, and a client of S3 that can do no more than sign, send and receive.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hmac::{Hmac, Mac};
use kintsu_client::Client;
use kintsu_cluster::{Cluster, Options};
use kintsu_s3::{Config, Keys, Limits, Listen, Server};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The keys of two users who may make buckets, and of two who may not; and one with which the first user may only read some.
const KEYS: &str = r#"
    [[key]]
    access = "ALICE"
    secret = "alice-alice-alice"
    user = "alice"
    create = true
    [[key]]
    access = "BOB"
    secret = "bob-bob-bob-bob-bob"
    user = "bob"
    create = true
    [[key]]
    access = "READER"
    secret = "reader-reader-reader"
    [key.buckets]
    "shared-*" = ["read", "list"]
    [[key]]
    access = "WRITER"
    secret = "writer-writer-writer"
    [key.buckets]
    "shared-*" = ["write"]
    [[key]]
    access = "LOGS"
    secret = "logs-logs-logs-logs"
    user = "alice"
    [key.buckets]
    "logs-*" = ["read"]
"#;

/// A running cluster with a gateway.
pub struct Site {
    pub cluster: Cluster,
    pub client: Client,
    pub server: Server,
    pub addr: SocketAddr,
    pub keys: Arc<Keys>,
    _dir: tempfile::TempDir,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// The texts in all elements of this name.
    pub fn elements(&self, name: &str) -> Vec<String> {
        let (text, open, close) = (self.text(), format!("<{name}>"), format!("</{name}>"));
        let after = text.split(&open).skip(1);
        after.map(|rest| rest.split(&close).next().unwrap().to_owned()).collect()
    }

    pub fn ok(self) -> Self {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.text());
        self
    }

    /// Asserts that it is this error.
    pub fn is_error(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.elements("Code")), (status, vec![code.to_owned()]), "{}", self.text());
    }
}

/// Who calls.
#[derive(Clone, Copy)]
pub enum Who {
    Key(&'static str, &'static str),
    Nobody,
}

pub const ALICE: Who = Who::Key("ALICE", "alice-alice-alice");
pub const BOB: Who = Who::Key("BOB", "bob-bob-bob-bob-bob");
pub const READER: Who = Who::Key("READER", "reader-reader-reader");
pub const WRITER: Who = Who::Key("WRITER", "writer-writer-writer");
pub const LOGS: Who = Who::Key("LOGS", "logs-logs-logs-logs");

impl Site {
    pub async fn start() -> Self {
        Self::with(|config| config).await
    }

    /// Five nodes, and a gateway that `change` has configured.
    pub async fn with(change: impl FnOnce(Config) -> Config) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new(dir.path().join("cluster"), 5, 5);
        let coordinator = kintsu_coordinator::Config {
            heartbeat: Duration::from_millis(100),
            // On a loaded machine heartbeats are seconds late, and no test waits until a node counts as dead.
            dead_after: Duration::from_secs(60),
            grace: Duration::from_secs(3600),
            ..options.coordinator
        };
        let cluster = Cluster::start(Options { coordinator, ..options }).await.unwrap();
        let client = Client::connect(&cluster.endpoint(), Default::default()).await.unwrap();
        let keys = dir.path().join("keys");
        std::fs::write(&keys, KEYS).unwrap();
        let keys = Arc::new(Keys::read(&keys).unwrap());
        let limits = Limits { part_bytes: 1000, ..Limits::default() };
        let config = change(Config { limits, ..Config::new("rs:n=4,k=2") });
        let listen = Listen { addr: ([127, 0, 0, 1], 0).into(), trusted: None, tls: None };
        let server = Server::start(client.clone(), keys.clone(), config, listen).await.unwrap();
        Self { addr: server.addr(), cluster, client, server, keys, _dir: dir }
    }

    pub async fn call(&self, method: &str, target: &str, body: &[u8]) -> Answer {
        self.call_as(ALICE, method, target, &[], body).await
    }

    pub async fn get(&self, target: &str) -> Answer {
        self.call("GET", target, b"").await
    }

    pub async fn put(&self, target: &str, body: &[u8]) -> Answer {
        self.call("PUT", target, body).await
    }

    /// Sends a request and reads the answer to its end.
    pub async fn call_as(
        &self,
        who: Who,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        let mut head = request(who, self.addr, method, target, headers);
        let _ = write!(head, "content-length: {}\r\nconnection: close\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server that refuses a request does not read its body.
        let _ = stream.write_all(body).await;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        answer(&bytes)
    }
}

/// The head of a signed request (Signature Version 4), without its last lines.
pub fn request(who: Who, addr: SocketAddr, method: &str, target: &str, headers: &[(&str, &str)]) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let date = date(SystemTime::now());
    let mut all: Vec<(String, String)> =
        headers.iter().map(|(name, value)| (name.to_lowercase(), value.to_string())).collect();
    all.push(("host".into(), addr.to_string()));
    let kind = all.iter().find(|(name, _)| name == "x-amz-content-sha256").map(|(_, kind)| kind.clone());
    let payload = kind.clone().unwrap_or_else(|| "UNSIGNED-PAYLOAD".to_owned());
    if let Who::Key(..) = who {
        if kind.is_none() {
            all.push(("x-amz-content-sha256".into(), payload.clone()));
        }
        all.push(("x-amz-date".into(), date.clone()));
    }
    all.sort();
    let mut out = format!("{method} {target} HTTP/1.1\r\n");
    for (name, value) in &all {
        let _ = write!(out, "{name}: {value}\r\n");
    }
    let Who::Key(access, secret) = who else { return out };
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| if pair.contains('=') { pair.to_owned() } else { format!("{pair}=") })
        .collect();
    pairs.sort();
    let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(";");
    let lines: String = all.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = format!("{method}\n{path}\n{}\n{lines}\n{names}\n{payload}", pairs.join("&"));
    let (scope, signature) = (scope(&date), signature(secret, &date, &canonical));
    let _ = write!(
        out,
        "authorization: AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={names}, Signature={signature}\r\n"
    );
    out
}

/// A target with which somebody without a key may do what `method` does, from a moment on for so many seconds (a presigned
/// URL).
pub fn presigned(
    (access, secret): (&str, &str),
    addr: SocketAddr,
    method: &str,
    path: &str,
    (from, seconds): (SystemTime, u32),
) -> String {
    let date = date(from);
    let credential = format!("{access}/{}", scope(&date)).replace('/', "%2F");
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={date}&X-Amz-Expires={seconds}\
         &X-Amz-SignedHeaders=host"
    );
    let canonical = format!("{method}\n{path}\n{query}\nhost:{addr}\n\nhost\nUNSIGNED-PAYLOAD");
    format!("{path}?{query}&X-Amz-Signature={}", signature(secret, &date, &canonical))
}

/// The same by Signature Version 2, until a moment in seconds since 1970.
pub fn presigned_v2((access, secret): (&str, &str), method: &str, target: &str, until: u64) -> String {
    let mut mac = <Hmac<Sha1> as Mac>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{method}\n\n\n{until}\n{target}").as_bytes());
    let signature = base64(&mac.finalize().into_bytes());
    let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let and = if target.contains('?') { '&' } else { '?' };
    format!("{target}{and}AWSAccessKeyId={access}&Expires={until}&Signature={signature}")
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |group: &[u8]| {
        let bits = (0..3).fold(0, |bits, i| bits << 8 | u32::from(*group.get(i).unwrap_or(&0)));
        let digit = |i: usize| {
            if i > group.len() { '=' } else { DIGITS[(bits >> (18 - 6 * i)) as usize & 63].into() }
        };
        (0..4).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(digits).collect()
}

/// Where the key of a day is good.
fn scope(date: &str) -> String {
    format!("{}/us-east-1/s3/aws4_request", &date[..8])
}

/// The signature of a request.
fn signature(secret: &str, date: &str, canonical: &str) -> String {
    let scope = scope(date);
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical.as_bytes())));
    let key = format!("AWS4{secret}").into_bytes();
    let key = scope.split('/').fold(key, |key, part| sign(&key, part.as_bytes()));
    hex(&sign(&key, text.as_bytes()))
}

fn sign(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(key).unwrap();
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A moment, `YYYYMMDDTHHMMSSZ`.
fn date(at: SystemTime) -> String {
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Days since 0000-03-01, in eras of 400 years, each 146,097 days long.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Parses an answer; a body that the server cut short is as short as it came.
pub fn answer(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("the head of an answer");
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<_> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let mut body = bytes[end + 4..].to_vec();
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    if chunked {
        body = unchunked(&body);
    }
    Answer { status, headers, body }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if len == 0 {
            break;
        }
        out.extend_from_slice(&rest[end + 2..][..len]);
        rest = &rest[end + 4 + len..];
    }
    out
}

/// Bytes that differ from place to place.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ len as u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}
