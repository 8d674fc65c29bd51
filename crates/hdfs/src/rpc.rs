//! Calls to one NameNode over one connection, with SIMPLE authentication.
//!
//! A connection begins with `hrpc`, version 9, service class 0 and authentication 0 (none), then a frame that names
//! the user and the protocol. A call is a frame: a big-endian length, then three messages, each after its length as
//! a varint: header, method, arguments. Calls go one after the other; the protocol would allow several at once.

use std::time::Duration;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::HdfsError;
use crate::proto::rpc::{ConnectionContext, MethodHeader, RequestHeader, ResponseHeader, UserInformation};

/// Call id of the frame that names user and protocol.
const CONTEXT: i32 = -3;

/// An answer longer than this is not one of a NameNode: Hadoop's own limit (`ipc.maximum.response.length`).
const MOST_BYTES: u32 = 128 << 20;

/// How long a NameNode may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a call may take. A NameNode that starts or collects garbage may be silent for many seconds.
const ANSWER: Duration = Duration::from_secs(60);

/// What came back.
pub(crate) enum Reply {
    /// The answer's bytes.
    Answer(Vec<u8>),
    /// An exception: its class and the first line of its message.
    Exception(String, String),
}

/// A connection for one protocol.
pub(crate) struct Connection {
    stream: TcpStream,
    address: String,
    client_id: [u8; 16],
    next: i32,
}

impl Connection {
    /// Connects as `user` for `protocol` (a Java interface).
    ///
    /// # Errors
    /// `Unreachable`.
    pub(crate) async fn open(address: &str, user: &str, protocol: &str) -> Result<Self, HdfsError> {
        let unreachable =
            |error| HdfsError::Unreachable { what: "NameNode", address: address.to_owned(), error };
        let late = || unreachable(std::io::Error::from(std::io::ErrorKind::TimedOut));
        let stream = timeout(CONNECT, TcpStream::connect(address)).await.map_err(|_| late())?;
        let stream = stream.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let mut client_id = [0; 16];
        getrandom::fill(&mut client_id)
            .map_err(|e| HdfsError::io("random numbers", std::io::Error::other(e.to_string())))?;
        let mut connection = Self { stream, address: address.to_owned(), client_id, next: 0 };
        let context = ConnectionContext {
            user: Some(UserInformation { effective_user: Some(user.to_owned()) }),
            protocol: Some(protocol.to_owned()),
        };
        let mut frame = connection.header(CONTEXT).encode_length_delimited_to_vec();
        frame.extend(context.encode_length_delimited_to_vec());
        let mut bytes = b"hrpc\x09\x00\x00".to_vec();
        bytes.extend((frame.len() as u32).to_be_bytes());
        bytes.extend(frame);
        connection.stream.write_all(&bytes).await.map_err(|e| connection.cut(e))?;
        Ok(connection)
    }

    /// One call.
    ///
    /// # Errors
    /// `Unreachable` when the connection ends or nothing comes for a minute; `Protocol` for an answer that is none.
    pub(crate) async fn call(
        &mut self,
        protocol: &str,
        method: &str,
        arguments: &impl Message,
    ) -> Result<Reply, HdfsError> {
        self.next = self.next.wrapping_add(1) & i32::MAX;
        let method = MethodHeader { method: method.to_owned(), protocol: protocol.to_owned(), version: 1 };
        let mut frame = self.header(self.next).encode_length_delimited_to_vec();
        frame.extend(method.encode_length_delimited_to_vec());
        frame.extend(arguments.encode_length_delimited_to_vec());
        let mut bytes = (frame.len() as u32).to_be_bytes().to_vec();
        bytes.extend(frame);
        match timeout(ANSWER, self.exchange(&bytes)).await {
            Ok(done) => done,
            Err(_) => Err(self.cut(std::io::Error::from(std::io::ErrorKind::TimedOut))),
        }
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<Reply, HdfsError> {
        // Who refuses a connection (Kerberos) says why and closes it before a call can be written; the answer can still be read.
        let written = self.stream.write_all(request).await;
        match (self.answer().await, written) {
            (Err(HdfsError::Unreachable { .. }), Err(error)) => Err(self.cut(error)),
            (answer, _) => answer,
        }
    }

    async fn answer(&mut self) -> Result<Reply, HdfsError> {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len).await.map_err(|e| self.cut(e))?;
        if &len == b"HTTP" {
            return Err(self.strange("an answer in HTTP"));
        }
        let len = u32::from_be_bytes(len);
        if len == 0 || len > MOST_BYTES {
            return Err(self.strange(&format!("a frame of {len} bytes")));
        }
        let mut frame = vec![0; len as usize];
        self.stream.read_exact(&mut frame).await.map_err(|e| self.cut(e))?;
        reply(&frame, self.next as u32).map_err(|got| self.strange(&got))
    }

    fn header(&self, call_id: i32) -> RequestHeader {
        RequestHeader {
            rpc_kind: Some(2),
            rpc_op: Some(0),
            call_id,
            client_id: self.client_id.to_vec(),
            retry_count: Some(-1),
        }
    }

    fn cut(&self, error: std::io::Error) -> HdfsError {
        let error = match error.kind() {
            std::io::ErrorKind::UnexpectedEof => std::io::Error::new(
                error.kind(),
                "it closed the connection; is this the NameNode's RPC port?",
            ),
            _ => error,
        };
        HdfsError::Unreachable { what: "NameNode", address: self.address.clone(), error }
    }

    pub(crate) fn strange(&self, got: &str) -> HdfsError {
        HdfsError::Protocol {
            address: self.address.clone(),
            expected: "an answer of a Hadoop 3 NameNode".into(),
            got: got.to_owned(),
            advice: "give the RPC port of the NameNode (the port of fs.defaultFS, often 8020 or 9000)",
        }
    }
}

/// The reply to a call in the frame that came.
///
/// # Errors
/// What it is instead.
pub(crate) fn reply(frame: &[u8], call: u32) -> Result<Reply, String> {
    let mut rest = frame;
    let header = ResponseHeader::decode_length_delimited(&mut rest);
    let header = header.map_err(|e| format!("a frame without a header ({e})"))?;
    if header.status != 0 {
        let first = header.message.unwrap_or_default();
        let first = first.lines().next().unwrap_or_default().to_owned();
        return Ok(Reply::Exception(header.exception.unwrap_or_default(), first));
    }
    if header.call_id != call {
        return Err(format!("an answer to call {} in place of {call}", header.call_id));
    }
    let body = prost::decode_length_delimiter(&mut rest).ok().filter(|len| *len <= rest.len());
    let body = body.ok_or("an answer that is cut")?;
    Ok(Reply::Answer(rest[..body].to_vec()))
}
