//! The data transfer protocol of DataNodes, version 28, over plain TCP with blocking calls.
//!
//! An operation is the version (2 bytes), a code (1 byte) and a message after its length as a varint; the answer is
//! such a message. Bytes travel in packets (`packet`). Every byte that is read is compared with its CRC32C before
//! anybody gets it.

mod fetch;
mod packet;
mod read;
mod write;

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use prost::Message;

use crate::HdfsError;
use crate::proto::names::{ExtendedBlock, Token};
use crate::proto::transfer::{Answer, BaseHeader, OperationHeader};

pub(crate) use fetch::fetch;
pub use packet::{CRC32C, UNIT_BYTES};
pub(crate) use packet::{check, supported};
pub use read::BlockReader;
pub(crate) use read::{Looked, look_for, unit_of};
pub use write::BlockWriter;

const VERSION: u16 = 28;
const READ: u8 = 81;
const WRITE: u8 = 80;
const REPLACE: u8 = 83;

/// How long a DataNode may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// How long a DataNode may be silent when bytes are due.
const SILENCE: Duration = Duration::from_secs(20);

/// The longest message between packets; those of DataNodes have some hundred bytes.
const MOST_MESSAGE_BYTES: usize = 1 << 20;

/// A connection to a DataNode for one operation on one block.
struct Link<I = BufReader<TcpStream>, O = TcpStream> {
    datanode: SocketAddr,
    block: ExtendedBlock,
    input: I,
    output: O,
}

impl Link {
    /// Connects, sends the operation and takes its answer.
    fn open(
        datanode: SocketAddr,
        block: &ExtendedBlock,
        operation: u8,
        arguments: &impl Message,
    ) -> Result<(Self, Answer), HdfsError> {
        let mut link = Self::connect(datanode, block, SILENCE)?;
        link.ask(operation, arguments)?;
        let answer: Answer = link.message()?;
        if answer.status != 0 {
            let said = answer.message.unwrap_or_default();
            let said = said.lines().next().unwrap_or_default();
            return Err(link.error(format!("{}: {said}", status_name(answer.status))));
        }
        Ok((link, answer))
    }

    /// Connects to a DataNode that may be silent for this long.
    fn connect(datanode: SocketAddr, block: &ExtendedBlock, silence: Duration) -> Result<Self, HdfsError> {
        let unreachable =
            |error| HdfsError::Unreachable { what: "DataNode", address: datanode.to_string(), error };
        let output = TcpStream::connect_timeout(&datanode, CONNECT).map_err(unreachable)?;
        let set = || {
            output.set_nodelay(true)?;
            output.set_read_timeout(Some(silence))?;
            output.set_write_timeout(Some(SILENCE))?;
            output.try_clone()
        };
        let input = BufReader::with_capacity(256 << 10, set().map_err(unreachable)?);
        Ok(Self { datanode, block: block.clone(), input, output })
    }

    /// Sends an operation.
    fn ask(&mut self, operation: u8, arguments: &impl Message) -> Result<(), HdfsError> {
        let mut bytes = VERSION.to_be_bytes().to_vec();
        bytes.push(operation);
        bytes.extend(arguments.encode_length_delimited_to_vec());
        self.send(&bytes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), HdfsError> {
        self.output.write_all(bytes).map_err(|e| self.error(format!("connection: {e}")))
    }
}

impl<I: Read, O> Link<I, O> {
    fn receive(&mut self, buf: &mut [u8]) -> Result<(), HdfsError> {
        self.input.read_exact(buf).map_err(|e| self.error(format!("connection: {e}")))
    }

    /// A message after its length.
    fn message<M: Message + Default>(&mut self) -> Result<M, HdfsError> {
        let (mut len, mut shift) = (0usize, 0);
        loop {
            let mut byte = [0];
            self.receive(&mut byte)?;
            len |= usize::from(byte[0] & 0x7f) << shift;
            shift += 7;
            if byte[0] < 0x80 {
                break;
            }
            if shift > 21 {
                return Err(
                    self.error("expected a message of data transfer version 28, got something else".into())
                );
            }
        }
        if len > MOST_MESSAGE_BYTES {
            return Err(self.error(format!("expected a message of at most 1 MiB, got one of {len} bytes")));
        }
        let mut bytes = vec![0; len];
        self.receive(&mut bytes)?;
        M::decode(&bytes[..]).map_err(|e| self.error(format!("a message that cannot be read: {e}")))
    }

    fn error(&self, message: String) -> HdfsError {
        HdfsError::Datanode { datanode: self.datanode, block: self.name(), message }
    }

    /// The block as log files of HDFS name it.
    fn name(&self) -> String {
        format!("blk_{}_{}", self.block.id as i64, self.block.generation)
    }
}

/// A message and packets from these bytes, as far as they are such.
#[cfg(fuzzing)]
pub(crate) fn packets<M: Message + Default>(bytes: &[u8]) {
    let (datanode, block) = (([127, 0, 0, 1], 1).into(), ExtendedBlock::default());
    let mut link = Link { datanode, block, input: bytes, output: () };
    if link.message::<M>().is_ok() {
        while link.packet(UNIT_BYTES).is_ok_and(|(header, _)| !header.last) {}
    }
}

/// The head of an operation.
fn header(block: &ExtendedBlock, token: Option<&Token>) -> OperationHeader {
    let base = BaseHeader { block: block.clone(), token: token.cloned() };
    // A DataNode answers only operations of a client with a name.
    OperationHeader { base, client: "kintsu".into() }
}

fn status_name(status: i32) -> &'static str {
    match status {
        0 => "success",
        2 => "wrong checksum",
        3 => "invalid",
        4 => "the block exists there already",
        5 => "the block token was refused",
        7 => "not supported",
        8 => "the DataNode restarts",
        _ => "error",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::proto::transfer::{Checksum, PacketHeader, ReadBlock, ReadInfo};

    /// The address of a DataNode of which blocks can be read from their first byte. `has` gives the bytes of one, or the exception
    /// that it answers with.
    pub(crate) fn datanode(
        has: impl Fn(&ExtendedBlock) -> Result<Vec<u8>, String> + Send + 'static,
    ) -> SocketAddr {
        datanode_with(UNIT_BYTES, has)
    }

    /// The same with so many bytes under one checksum.
    pub(crate) fn datanode_with(
        unit_bytes: usize,
        has: impl Fn(&ExtendedBlock) -> Result<Vec<u8>, String> + Send + 'static,
    ) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // Whoever asks may go at any time.
                let _ = answer(stream.unwrap(), address, unit_bytes, &has);
            }
        });
        address
    }

    fn answer(
        output: TcpStream,
        datanode: SocketAddr,
        unit_bytes: usize,
        has: &dyn Fn(&ExtendedBlock) -> Result<Vec<u8>, String>,
    ) -> Result<(), HdfsError> {
        let input = BufReader::new(output.try_clone().unwrap());
        let mut link = Link { datanode, block: ExtendedBlock::default(), input, output };
        // Version and operation.
        link.receive(&mut [0; 3])?;
        let ask: ReadBlock = link.message()?;
        let bytes = match has(&ask.header.base.block) {
            Ok(bytes) => bytes,
            Err(exception) => {
                let message = Some(format!("opReadBlock BP-1:blk_1 received exception {exception}"));
                let answer = Answer { status: 1, message, ..Answer::default() };
                return link.send(&answer.encode_length_delimited_to_vec());
            }
        };
        let checksum = Checksum { kind: CRC32C, unit_bytes: unit_bytes as u32 };
        let answer = Answer { read: Some(ReadInfo { checksum, first_byte: 0 }), ..Answer::default() };
        link.send(&answer.encode_length_delimited_to_vec())?;
        let all = PacketHeader { data_bytes: bytes.len() as i32, ..PacketHeader::default() };
        link.send_packet(&all, &bytes, unit_bytes)?;
        let end =
            PacketHeader { offset: bytes.len() as i64, number: 1, last: true, ..PacketHeader::default() };
        link.send_packet(&end, &[], unit_bytes)
    }
}
