//! Writing a whole block to a DataNode as a client does that writes a new block, with further replicas or without.

use std::net::SocketAddr;

use super::packet::{CRC32C, supported};
use super::{Link, WRITE, header, status_name};
use crate::HdfsError;
use crate::proto::names::{DatanodeInfo, ExtendedBlock, Token};
use crate::proto::transfer::{Ack, Checksum, PacketHeader, WriteBlock};

/// Data bytes of a packet, or the largest number of whole units below: with 126 checksums the packet is just below 64 KiB.
const PACKET_BYTES: usize = 126 * 512;

/// Packets that may be on their way without an acknowledgement.
const UNACKNOWLEDGED: i64 = 32;

/// A new block: the stage of the operation that begins a pipeline.
const NEW_BLOCK: i32 = 6;

/// A disk: the kind of storage.
const DISK: i32 = 1;

/// A new block on its way to a DataNode. Dropped before [`finish`](Self::finish), it leaves there at most a part
/// that does not count. Memory: one packet.
pub struct BlockWriter {
    link: Link,
    /// Bytes of the next packet.
    data: Vec<u8>,
    /// Bytes under one checksum, and data bytes of a full packet.
    unit_bytes: usize,
    packet_bytes: usize,
    /// Offset of the next packet, and the length of the block.
    offset: u64,
    len: u64,
    /// Packets sent, and packets acknowledged.
    number: i64,
    acknowledged: i64,
}

impl BlockWriter {
    /// Begins the block on this DataNode, which hands it on to those `behind` it. `block` tells its length and its generation stamp.
    /// `unit_bytes`: under one checksum. HDFS's balancer leaves a `pinned` block where it is, if DataNodes are set to heed that.
    ///
    /// # Errors
    /// `Unreachable`; `Datanode` if it refuses; `Unsupported` for units of no sensible size.
    pub fn begin(
        datanode: SocketAddr,
        behind: &[DatanodeInfo],
        block: &ExtendedBlock,
        unit_bytes: usize,
        token: Option<&Token>,
        pinned: bool,
    ) -> Result<Self, HdfsError> {
        let len = block.bytes.unwrap_or(0);
        let checksum = Checksum { kind: CRC32C, unit_bytes: u32::try_from(unit_bytes).unwrap_or(0) };
        supported(&|| format!("block {}", block.id as i64), &checksum)?;
        let ask = WriteBlock {
            header: header(block, token),
            targets: behind.to_vec(),
            stage: NEW_BLOCK,
            pipeline: 1 + behind.len() as u32,
            least_received: 0,
            most_received: len,
            latest_generation: block.generation,
            checksum,
            storage: Some(DISK),
            pinned: pinned.then_some(true),
        };
        let (link, _) = Link::open(datanode, block, WRITE, &ask)?;
        let packet_bytes = (PACKET_BYTES / unit_bytes).max(1) * unit_bytes;
        let data = Vec::with_capacity(packet_bytes);
        Ok(Self { link, data, unit_bytes, packet_bytes, offset: 0, len, number: 0, acknowledged: 0 })
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// `Datanode`, also for more bytes than the block has.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), HdfsError> {
        let room = self.len - self.offset - self.data.len() as u64;
        if bytes.len() as u64 > room {
            return Err(self
                .link
                .error(format!("expected at most {room} further bytes, got {}", bytes.len())));
        }
        while !bytes.is_empty() {
            let some = bytes.len().min(self.packet_bytes - self.data.len());
            self.data.extend_from_slice(&bytes[..some]);
            bytes = &bytes[some..];
            if self.data.len() == self.packet_bytes {
                self.packet(false)?;
            }
        }
        Ok(())
    }

    /// Everything was written. When this returns the DataNode has acknowledged every packet, and the block is on its disk.
    ///
    /// # Errors
    /// `Datanode`, also if bytes are missing.
    pub fn finish(mut self) -> Result<(), HdfsError> {
        if !self.data.is_empty() {
            self.packet(false)?;
        }
        if self.offset != self.len {
            return Err(self.link.error(format!("expected {} bytes, got {}", self.len, self.offset)));
        }
        self.packet(true)
    }

    /// Sends what was gathered, or the end, and takes acknowledgements.
    fn packet(&mut self, last: bool) -> Result<(), HdfsError> {
        let (offset, data_bytes) = (self.offset as i64, self.data.len() as i32);
        let head =
            PacketHeader { offset, number: self.number, last, data_bytes, durable: last.then_some(true) };
        self.link.send_packet(&head, &self.data, self.unit_bytes)?;
        (self.number, self.offset) = (self.number + 1, self.offset + self.data.len() as u64);
        self.data.clear();
        let may_wait = if last { 0 } else { UNACKNOWLEDGED };
        while self.number - self.acknowledged > may_wait {
            self.acknowledged += self.link.acknowledgement(self.acknowledged)?;
        }
        Ok(())
    }
}

impl Link {
    /// Takes the acknowledgement of packet `number`; 0 for a sign of life, 1 otherwise.
    fn acknowledgement(&mut self, number: i64) -> Result<i64, HdfsError> {
        let ack: Ack = self.message()?;
        if let Some(&status) = ack.replies.iter().find(|status| **status != 0) {
            return Err(self.error(format!("packet {number} was refused: {}", status_name(status))));
        }
        match ack.number {
            -1 => Ok(0),
            got if got == number => Ok(1),
            got => Err(self.error(format!("expected packet {number} to be acknowledged, got {got}"))),
        }
    }
}
