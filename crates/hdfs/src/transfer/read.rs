//! Reading a block from a DataNode.

use std::net::SocketAddr;

use prost::Message;

use super::{Link, READ, header, packet};
use crate::HdfsError;
use crate::proto::names::{ExtendedBlock, Token};
use crate::proto::transfer::{ReadBlock, ReadStatus};

/// An internal block on a DataNode, read from wherever is asked; reads that follow each other share a connection.
pub struct BlockReader {
    datanode: SocketAddr,
    block: ExtendedBlock,
    token: Option<Token>,
    len: u64,
    open: Option<Stream>,
    received: u64,
    unit_bytes: Option<usize>,
}

/// An operation under way.
struct Stream {
    link: Link,
    unit_bytes: usize,
    /// Verified bytes that were not asked for yet, and the offset of the first.
    bytes: Vec<u8>,
    used: usize,
    at: u64,
}

impl BlockReader {
    /// The block on this DataNode. `block` tells its length. Nothing is sent yet.
    pub fn new(datanode: SocketAddr, block: ExtendedBlock, token: Option<Token>) -> Self {
        let len = block.bytes.unwrap_or(0);
        Self { datanode, block, token, len, open: None, received: 0, unit_bytes: None }
    }

    /// Bytes that came over the wire so far, with those that were not asked for but share a unit.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes under one checksum, when something was read.
    pub(crate) fn unit_bytes(&self) -> Option<usize> {
        self.unit_bytes
    }

    /// Fills `buf` with the bytes from `offset`, each compared with its checksum.
    ///
    /// # Errors
    /// `Unreachable`, `Datanode`, `Corrupt`; `Unsupported` for other checksums than CRC32C.
    pub fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), HdfsError> {
        let mut stream = match self.open.take().filter(|stream| stream.at == offset) {
            Some(stream) => stream,
            None => self.begin(offset)?,
        };
        let mut filled = 0;
        while filled < buf.len() {
            if stream.used == stream.bytes.len() {
                self.received += stream.next()?;
                continue;
            }
            let some = (buf.len() - filled).min(stream.bytes.len() - stream.used);
            buf[filled..filled + some].copy_from_slice(&stream.bytes[stream.used..stream.used + some]);
            (filled, stream.used, stream.at) = (filled + some, stream.used + some, stream.at + some as u64);
        }
        match stream.at == self.len {
            true => stream.finish(),
            false => self.open = Some(stream),
        }
        Ok(())
    }

    /// Asks for everything from `offset`.
    fn begin(&mut self, offset: u64) -> Result<Stream, HdfsError> {
        let ask = ReadBlock {
            header: header(&self.block, self.token.as_ref()),
            offset,
            len: self.len.saturating_sub(offset),
            with_checksums: Some(true),
        };
        let (link, answer) = Link::open(self.datanode, &self.block, READ, &ask)?;
        let Some(info) = answer.read else {
            return Err(link.error("expected the kind of its checksums, got an answer without".into()));
        };
        let what = || format!("{} on DataNode {}", link.name(), link.datanode);
        let unit_bytes = packet::supported(&what, &info.checksum)?;
        self.unit_bytes = Some(unit_bytes);
        // The first packet begins with a whole unit.
        let mut stream = Stream { link, unit_bytes, bytes: Vec::new(), used: 0, at: info.first_byte };
        while stream.at < offset {
            if stream.used == stream.bytes.len() {
                self.received += stream.next()?;
                continue;
            }
            let skip = ((offset - stream.at) as usize).min(stream.bytes.len() - stream.used);
            (stream.used, stream.at) = (stream.used + skip, stream.at + skip as u64);
        }
        if stream.at != offset {
            let message =
                format!("expected a packet that begins at or before byte {offset}, got {}", stream.at);
            return Err(stream.link.error(message));
        }
        Ok(stream)
    }
}

/// What a DataNode has of a block, by its own word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looked {
    /// The block, be its bytes right or wrong.
    There,
    /// It should have it, and finds no file.
    FileGone,
    /// Nothing: no copy of any generation, nor one that is coming.
    Absent,
}

/// The exception that a DataNode names when it has nothing of a block. For a copy of an older generation, and for one that is
/// coming, it names others.
const ABSENT: &str = "ReplicaNotFoundException";

/// The exception for a file that is gone; it is the same when no more files can be opened.
const FILE_GONE: &str = "FileNotFoundException";
const TOO_MANY_OPEN: &str = "Too many open files";

/// Asks a DataNode for the first byte of a block, because what the NameNode lists may be old. The token must permit reading it.
/// This call blocks.
///
/// # Errors
/// `Unreachable`; `Datanode` for every other answer: it says neither that the block is there nor that it is not.
pub(crate) fn look_for(
    datanode: SocketAddr,
    block: &ExtendedBlock,
    token: Option<Token>,
) -> Result<Looked, HdfsError> {
    match first_byte(datanode, block, token) {
        Ok(_) | Err(HdfsError::Corrupt { .. } | HdfsError::Unsupported { .. }) => Ok(Looked::There),
        Err(HdfsError::Datanode { message, .. }) if message.contains(ABSENT) => Ok(Looked::Absent),
        Err(HdfsError::Datanode { message, .. })
            if message.contains(FILE_GONE) && !message.contains(TOO_MANY_OPEN) =>
        {
            Ok(Looked::FileGone)
        }
        Err(error) => Err(error),
    }
}

/// Bytes under one checksum of a block, as the DataNode says that has it. The token must permit reading it. This call blocks.
///
/// # Errors
/// As reading its first byte.
pub(crate) fn unit_of(
    datanode: SocketAddr,
    block: &ExtendedBlock,
    token: Option<Token>,
) -> Result<usize, HdfsError> {
    Ok(first_byte(datanode, block, token)?.unit_bytes.unwrap_or(packet::UNIT_BYTES))
}

/// Reads the first byte of a block; returns the reader, which knows then how the block is checked.
fn first_byte(
    datanode: SocketAddr,
    block: &ExtendedBlock,
    token: Option<Token>,
) -> Result<BlockReader, HdfsError> {
    let first = ExtendedBlock { bytes: Some(1), ..block.clone() };
    let mut reader = BlockReader::new(datanode, first, token);
    reader.read_at(0, &mut [0])?;
    Ok(reader)
}

impl Stream {
    /// Takes the next packet; returns its bytes.
    fn next(&mut self) -> Result<u64, HdfsError> {
        let (header, bytes) = self.link.packet(self.unit_bytes)?;
        if header.last || bytes.is_empty() {
            let message = format!("it ended at byte {}, before its recorded length", self.at);
            return Err(self.link.error(message));
        }
        if header.offset as u64 != self.at {
            let message = format!("expected a packet of byte {}, got one of byte {}", self.at, header.offset);
            return Err(self.link.error(message));
        }
        (self.bytes, self.used) = (bytes, 0);
        Ok(self.bytes.len() as u64)
    }

    /// Everything was read: takes the last packet and tells that the checksums were right. The DataNode does without.
    fn finish(mut self) {
        if self.link.packet(self.unit_bytes).is_ok_and(|(header, _)| header.last) {
            let status = ReadStatus { status: 6 };
            let _ = self.link.send(&status.encode_length_delimited_to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::tests::datanode;

    /// As Hadoop 3.4.3 answers.
    const ANSWERS: [&str; 4] = [
        "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException: Replica not found for BP-1:blk_-15_1001.",
        "java.io.FileNotFoundException: BlockId -14 is not valid.",
        "java.io.FileNotFoundException: /data/blk_-13 (Too many open files)",
        "java.io.IOException: Replica gen stamp < block genstamp, block=BP-1:blk_-12_1001, replica=FinalizedReplica",
    ];

    #[test]
    fn a_datanode_says_itself_what_it_has() {
        let asked = datanode(|block| match block.id as i64 {
            -16 => Ok(vec![7; 1300]),
            id => Err(ANSWERS[(id + 15) as usize].to_owned()),
        });
        let look = |id: i64| {
            let block = ExtendedBlock { id: id as u64, generation: 1001, ..ExtendedBlock::default() };
            look_for(asked, &block, None)
        };
        assert_eq!(look(-16).unwrap(), Looked::There);
        assert_eq!(look(-15).unwrap(), Looked::Absent);
        assert_eq!(look(-14).unwrap(), Looked::FileGone);
        for (id, why) in [(-13, "Too many open files"), (-12, "Replica gen stamp")] {
            let error = look(id).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = look_for(nobody, &ExtendedBlock::default(), None).unwrap_err();
        assert!(matches!(error, HdfsError::Unreachable { .. }), "{error}");
    }
}
