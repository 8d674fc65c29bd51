//! Writing a whole internal block to a DataNode, as a client that writes a new block with no further replica does.

use std::net::SocketAddr;

use super::packet::{CRC32C, UNIT_BYTES};
use super::{Link, WRITE, header, status_name};
use crate::HdfsError;
use crate::proto::names::{ExtendedBlock, Token};
use crate::proto::transfer::{Ack, Checksum, PacketHeader, WriteBlock};

/// Data bytes of a packet: with 126 checksums the packet is just below 64 KiB.
const PACKET_BYTES: usize = 126 * UNIT_BYTES;

/// Packets that may be on their way without an acknowledgement.
const UNACKNOWLEDGED: usize = 32;

/// A new block: the stage of the operation that begins a pipeline.
const NEW_BLOCK: i32 = 6;

/// A disk: the kind of storage.
const DISK: i32 = 1;

/// Writes the block; its bytes come from `read`, which fills a buffer from an offset. When this returns the DataNode has
/// acknowledged every packet and the end of the block. Memory: one packet.
///
/// # Errors
/// `Unreachable`, `Datanode`, and what `read` returns.
pub fn write_block(
    datanode: SocketAddr,
    block: &ExtendedBlock,
    token: Option<&Token>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), HdfsError>,
) -> Result<(), HdfsError> {
    let len = block.bytes.unwrap_or(0);
    let ask = WriteBlock {
        header: header(block, token),
        targets: Vec::new(),
        stage: NEW_BLOCK,
        pipeline: 1,
        least_received: 0,
        most_received: len,
        latest_generation: block.generation,
        checksum: Checksum { kind: CRC32C, unit_bytes: UNIT_BYTES as u32 },
        storage: Some(DISK),
    };
    let (mut link, _) = Link::open(datanode, block, WRITE, &ask)?;
    let (mut number, mut acknowledged, mut offset) = (0i64, 0i64, 0u64);
    let mut data = vec![0; PACKET_BYTES];
    loop {
        let some = (len - offset).min(PACKET_BYTES as u64) as usize;
        read(offset, &mut data[..some])?;
        let last = some == 0;
        let head = PacketHeader { offset: offset as i64, number, last, data_bytes: some as i32 };
        link.send_packet(&head, &data[..some])?;
        (number, offset) = (number + 1, offset + some as u64);
        let may_wait = if last { 0 } else { UNACKNOWLEDGED as i64 };
        while number - acknowledged > may_wait {
            acknowledged += link.acknowledgement(acknowledged)?;
        }
        if last {
            return Ok(());
        }
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
