//! A client that sends what a test tells it to, right or wrong, and a server for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kintsu_nbd::{Limits, Listen, Server};
use kintsu_wire::Tls;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::file::FileDevice;

pub const SIZE: u64 = 64 << 20;

/// A served file of [`SIZE`], which lives as long as this.
pub struct Served {
    pub server: Server,
    pub device: Arc<FileDevice>,
    pub dir: tempfile::TempDir,
}

impl Served {
    pub async fn new() -> Self {
        Self::with(Limits::default(), |_| {}).await
    }

    pub async fn with(limits: Limits, change: impl FnOnce(&mut FileDevice)) -> Self {
        Self::on(loopback(), limits, change).await
    }

    pub async fn on(listen: Listen, limits: Limits, change: impl FnOnce(&mut FileDevice)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut device = FileDevice::create(&dir.path().join("disk"), SIZE);
        change(&mut device);
        let device = Arc::new(device);
        let server = Server::start(device.clone(), "disk", listen, limits).await.unwrap();
        Self { server, device, dir }
    }

    pub fn addr(&self) -> SocketAddr {
        self.server.addr().unwrap()
    }
}

pub fn loopback() -> Listen {
    in_tls(None)
}

pub fn in_tls(tls: Option<Tls>) -> Listen {
    Listen::Tcp { addr: "127.0.0.1:0".parse().unwrap(), tls, token: None, trusted: None }
}

/// Fails a test that hangs. Tools that copy file systems take many seconds on a loaded machine.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(240), what).await.expect("it takes too long")
}

pub struct Raw<S = TcpStream> {
    pub stream: S,
    pub structured: bool,
}

/// One answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub cookie: u64,
    pub error: u32,
    /// The kind of a structured reply's chunk.
    pub kind: Option<u16>,
    /// What follows the header of a structured reply.
    pub data: Vec<u8>,
}

impl Raw {
    /// Connects and answers the greeting with these flags.
    pub async fn greet(addr: SocketAddr, flags: u32) -> Self {
        Self::greeted(TcpStream::connect(addr).await.unwrap(), flags).await
    }

    /// Enters transmission.
    pub async fn go(addr: SocketAddr, structured: bool) -> Self {
        let mut raw = Self::greet(addr, 3).await;
        raw.enter(structured).await;
        raw
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    /// Answers the greeting on a new connection with these flags.
    pub async fn greeted(mut stream: S, flags: u32) -> Self {
        let mut hello = [0; 18];
        soon(stream.read_exact(&mut hello)).await.unwrap();
        assert_eq!(&hello[..16], b"NBDMAGICIHAVEOPT");
        assert_eq!(hello[16..], [0, 3]);
        stream.write_all(&flags.to_be_bytes()).await.unwrap();
        Self { stream, structured: false }
    }

    /// Enters transmission.
    pub async fn enter(&mut self, structured: bool) {
        if structured {
            assert_eq!(self.option(8, b"").await.last().unwrap().0, 1);
            let query = [&named("disk")[..], &1u32.to_be_bytes(), &named("base:allocation")].concat();
            assert_eq!(self.option(10, &query).await.last().unwrap().0, 1);
        }
        let answers = self.option(7, &[&named("disk")[..], &[0, 0]].concat()).await;
        assert_eq!(answers.last().unwrap().0, 1);
        self.structured = structured;
    }

    /// Sends an option; all answers, up to the last one.
    pub async fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send_option(option, data).await;
        let mut answers = Vec::new();
        loop {
            assert_eq!(soon(self.stream.read_u64()).await.unwrap(), 0x0003_e889_0455_65a9);
            assert_eq!(self.stream.read_u32().await.unwrap(), option);
            let (kind, len) = (self.stream.read_u32().await.unwrap(), self.stream.read_u32().await.unwrap());
            let mut data = vec![0; len as usize];
            self.stream.read_exact(&mut data).await.unwrap();
            answers.push((kind, data));
            if kind == 1 || kind >> 31 == 1 {
                return answers;
            }
        }
    }

    pub async fn send_option(&mut self, option: u32, data: &[u8]) {
        let len = (data.len() as u32).to_be_bytes();
        let bytes = [b"IHAVEOPT", &option.to_be_bytes()[..], &len, data].concat();
        self.stream.write_all(&bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    pub async fn send(&mut self, kind: u16, flags: u16, cookie: u64, range: (u64, u32), data: &[u8]) {
        self.stream.write_all(&request(kind, flags, cookie, range, data)).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next answer. `len`: of the data of a simple reply.
    pub async fn reply(&mut self, len: usize) -> Reply {
        let magic = soon(self.stream.read_u32()).await.unwrap();
        if magic == 0x6744_6698 {
            let (error, cookie) =
                (self.stream.read_u32().await.unwrap(), self.stream.read_u64().await.unwrap());
            let mut data = vec![0; if error == 0 { len } else { 0 }];
            soon(self.stream.read_exact(&mut data)).await.unwrap();
            return Reply { cookie, error, kind: None, data };
        }
        assert_eq!(magic, 0x668e_33ef);
        assert_eq!(self.stream.read_u16().await.unwrap(), 1, "more than one chunk");
        let (kind, cookie) = (self.stream.read_u16().await.unwrap(), self.stream.read_u64().await.unwrap());
        let mut data = vec![0; self.stream.read_u32().await.unwrap() as usize];
        soon(self.stream.read_exact(&mut data)).await.unwrap();
        let error = if kind >> 15 == 1 { u32::from_be_bytes(data[..4].try_into().unwrap()) } else { 0 };
        Reply { cookie, error, kind: Some(kind), data }
    }

    /// Sends a request and waits for its answer.
    pub async fn ask(&mut self, kind: u16, flags: u16, range: (u64, u32), data: &[u8]) -> Reply {
        self.send(kind, flags, 99, range, data).await;
        let reply = self.reply(if kind == 0 { range.1 as usize } else { 0 }).await;
        assert_eq!(reply.cookie, 99);
        reply
    }

    /// Whether the server has closed the connection, without a further byte.
    pub async fn closed(&mut self) -> bool {
        matches!(soon(self.stream.read(&mut [0; 1])).await, Ok(0) | Err(_))
    }
}

/// A string after its length.
pub fn named(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// The bytes of a request.
pub fn request(kind: u16, flags: u16, cookie: u64, (offset, len): (u64, u32), data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend(data);
    bytes
}
