//! Updates of blocks on agents: logged first, brought into blocks later.

use std::net::SocketAddr;

use bytes::Bytes;
use kintsu_dag::{BlockId, StripeId};
use serde::{Deserialize, Serialize};

use super::{BlockRef, DigestBytes, HeldBlock};
use crate::FolderId;
use crate::ticket::Ticket;

/// One write to one block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedUpdate {
    /// The volume.
    pub volume: u64,
    /// The epoch of its writer.
    pub epoch: u64,
    /// The block.
    pub block: BlockId,
    /// Where in the block.
    pub offset: u64,
    /// What is written; empty if it is zeros.
    #[serde(default, skip_serializing_if = "Bytes::is_empty")]
    pub data: Bytes,
    /// How many zeros are written, if there are no `data`.
    #[serde(default)]
    pub zeros: u32,
    /// `data` are what is written XOR the block of this generation. Only in calls of version
    /// [`DELTAS`](crate::version::DELTAS) or later: older agents would take them for what is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_of: Option<u32>,
    /// CRC32C of all of this ([`LoggedUpdate::summed`]), by whoever made it; releases before it was known give none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<u32>,
}

impl LoggedUpdate {
    /// With its checksum.
    pub fn summed(self) -> Self {
        Self { sum: Some(self.checksum()), ..self }
    }

    /// Whether it is as it was made, if it has a checksum.
    pub fn is_sound(&self) -> bool {
        self.sum.is_none_or(|sum| sum == self.checksum())
    }

    fn checksum(&self) -> u32 {
        let Self { volume, epoch, block, offset, data, zeros, delta_of, sum: _ } = self;
        let mut sum = Sum::of(*block);
        [*volume, *epoch, *offset, (*zeros).into(), delta_of.map_or(0, |of| u64::from(of) + 1)]
            .into_iter()
            .for_each(|number| sum.number(number));
        sum.bytes(data);
        sum.end()
    }
}

/// The checksum of what is said of a block.
struct Sum(crc_fast::Digest);

impl Sum {
    fn of(block: BlockId) -> Self {
        let mut sum = Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi));
        sum.number(block.stripe.0);
        sum.number(block.index.0.into());
        sum
    }

    fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn end(self) -> u32 {
        self.0.finalize() as u32
    }
}

/// Log these updates, all or none; the reply comes when they are durable here, and on the node they are forwarded to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AppendUpdates {
    /// The updates.
    pub updates: Vec<LoggedUpdate>,
    /// They are replicas for blocks of another node.
    #[serde(default)]
    pub replica: bool,
    /// The control addresses of the nodes that keep replicas, to which this node forwards the updates.
    #[serde(default)]
    pub forward: Vec<SocketAddr>,
    /// Refuse them on a node where their epoch was never fenced: its log is not the one that was there then. Only the coordinator
    /// may do without that.
    #[serde(default)]
    pub fenced: bool,
    /// Send the nodes that keep replicas also the bytes of the blocks that these updates are the first to replace since a
    /// commit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub send_old: bool,
    /// Send the nodes that keep replicas deltas to the blocks here, where these have this generation or a later one and no
    /// commit of them is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deltas_from: Option<u32>,
    /// To a node that keeps replicas: bytes of the blocks that these updates replace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub old: Vec<LoggedUpdate>,
    /// Whoever is not the coordinator needs one for each block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tickets: Vec<Ticket>,
    /// For each of `forward`, in order, the tickets to hand on to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forward_tickets: Vec<Vec<Ticket>>,
}

/// The reply to [`AppendUpdates`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Appended {
    /// The number of the last record in this node's log.
    pub newest: u64,
    /// Bytes of this node's log now.
    #[serde(default)]
    pub log_bytes: u64,
}

/// Refuse appends to a volume of any older epoch from now on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FenceVolume {
    /// The volume.
    pub volume: u64,
    /// One of its stripes; `None`: all.
    pub stripe: Option<StripeId>,
    /// The oldest epoch that is accepted.
    pub epoch: u64,
    /// The log that the node had, as far as the caller knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<FolderId>,
}

/// The answer to [`FenceVolume`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FencedVolume {
    /// The newest epoch that was fenced here before; 0 if none was. If it is newer than what was asked for, it stays.
    pub before: u64,
    /// The log: the folder that it is in, or its id since it was damaged ([`FolderId::log`]).
    pub folder: FolderId,
    /// Whether it is the log that the caller knows, except that what came last may be missing in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
}

/// What a log holds of one block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingUpdate {
    /// The volume.
    pub volume: u64,
    /// The block.
    pub block: BlockId,
    /// Whether these are replicas for a block of another node.
    pub replica: bool,
    /// Ranges of the block (first byte, and one past the last), ascending, apart from each other.
    pub ranges: Vec<(u64, u64)>,
    /// The number of the newest record.
    pub newest: u64,
}

/// All that a log holds, by block.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PendingUpdates {
    /// The blocks.
    pub pending: Vec<PendingUpdate>,
    /// Bytes of the log's files.
    #[serde(default)]
    pub log_bytes: u64,
}

/// A block's updates in a log, up to a number where that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdatesOf {
    /// The block.
    pub block: BlockId,
    /// Whether the replicas are meant.
    #[serde(default)]
    pub replica: bool,
    /// The number of the last record.
    #[serde(default)]
    pub upto: u64,
}

/// Fix what the next commit takes of these blocks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct FreezeUpdates {
    /// Which blocks of this node.
    pub blocks: Vec<BlockId>,
    /// They are replicas for blocks of another node.
    #[serde(default)]
    pub replica: bool,
    /// For each block the control addresses of the nodes that keep its replicas: at the same moment the same is fixed
    /// there. May be shorter than `blocks`.
    #[serde(default)]
    pub replicas: Vec<Vec<SocketAddr>>,
    /// Refuse the call if the log is another one.
    #[serde(default)]
    pub folder: Option<FolderId>,
    /// For each block its generation, if the answer is to say where its delta is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deltas: Vec<u32>,
    /// An agent needs one for each block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tickets: Vec<Ticket>,
    /// For each block the tickets to hand on to the nodes in `replicas`, one for each of them in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replica_tickets: Vec<Vec<Ticket>>,
}

/// What was fixed of a block: up to which record, and which ranges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenUpdate {
    /// The number of the last record.
    pub upto: u64,
    /// As in [`PendingUpdate`].
    pub ranges: Vec<(u64, u64)>,
    /// The number of the last record at each node that keeps replicas; `None` if it could not be asked.
    #[serde(default)]
    pub replicas: Vec<Option<u64>>,
    /// Of the delta, if that was asked for and is known here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<DigestBytes>,
    /// For each of `replicas`, whether it has the same delta; empty if that was not asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub same: Vec<bool>,
}

/// The answer to [`FreezeUpdates`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FrozenUpdates {
    /// For each block in order; `None` if the log holds nothing of it.
    pub blocks: Vec<Option<FrozenUpdate>>,
}

/// Forget the updates of these blocks up to these numbers: their commits are decided.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReleaseUpdates {
    /// What to forget.
    pub updates: Vec<UpdatesOf>,
}

/// Read what a log holds of a part of a block.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ReadUpdates {
    /// Of which block; `upto` does not matter.
    pub of: UpdatesOf,
    /// First byte of the block.
    pub offset: u64,
    /// How many bytes of the block; at most 16 MiB.
    pub len: u32,
    /// Refuse the call unless the newest epoch of the volume that was fenced here is one of these.
    #[serde(default)]
    pub epochs: Option<VolumeEpochs>,
    /// Refuse the call if the log is another one.
    #[serde(default)]
    pub folder: Option<FolderId>,
    /// Lay the updates over the block of this generation, and answer with the whole part.
    #[serde(default)]
    pub over: Option<u32>,
    /// The block of that generation alone, whatever is logged: it belongs to a snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
    /// A client or operator needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Ticket>,
}

/// Epochs of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeEpochs {
    /// The volume.
    pub volume: u64,
    /// The one under which the block's updates are logged: a node that was not fenced at it lost its log.
    pub from: u64,
    /// The newest one that the caller knows.
    pub to: u64,
}

/// The answer to [`ReadUpdates`]: the newest bytes of each logged range within the part. No range is in both lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdatedBytes {
    /// Where in the block, and the bytes; ascending.
    pub pieces: Vec<(u64, Bytes)>,
    /// The same for what is known as new bytes XOR the block of a generation, which stands last. Only a caller that speaks
    /// version [`DELTAS`](crate::version::DELTAS) gets some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deltas: Vec<(u64, Bytes, u32)>,
    /// CRC32C of the block's name and of all of this ([`UpdatedBytes::summed`]); releases before it was known give none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<u32>,
}

impl UpdatedBytes {
    /// With its checksum, as an answer about this block.
    pub fn summed(self, block: BlockId) -> Self {
        Self { sum: Some(self.checksum(block)), ..self }
    }

    /// Whether it is as it was made, and about this block, if it has a checksum.
    pub fn is_sound(&self, block: BlockId) -> bool {
        self.sum.is_none_or(|sum| sum == self.checksum(block))
    }

    fn checksum(&self, block: BlockId) -> u32 {
        let mut sum = Sum::of(block);
        for (offset, bytes) in &self.pieces {
            sum.number(*offset);
            sum.bytes(bytes);
        }
        for (offset, bytes, of) in &self.deltas {
            sum.number(*offset);
            sum.number((*of).into());
            sum.bytes(bytes);
        }
        sum.end()
    }
}

/// Put the next versions of blocks in their places: it is decided that they count.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PromoteBlocks {
    /// The blocks, with the generations that were decided.
    pub blocks: Vec<BlockRef>,
}

/// The blocks as they are now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PromotedBlocks {
    /// In the order asked for.
    pub blocks: Vec<HeldBlock>,
}

#[cfg(test)]
mod tests {
    use kintsu_dag::BlockIndex;

    use super::*;

    const BLOCK: BlockId = BlockId { stripe: StripeId(5), index: BlockIndex(1) };

    fn update() -> LoggedUpdate {
        let data = Bytes::from_static(b"new bytes");
        LoggedUpdate {
            volume: 7,
            epoch: 2,
            block: BLOCK,
            offset: 70,
            data,
            zeros: 0,
            delta_of: None,
            sum: None,
        }
    }

    /// Every copy of a message in which one bit is another, as far as it is a message still.
    fn flipped<T: Serialize + serde::de::DeserializeOwned>(message: &T) -> Vec<T> {
        let right = rmp_serde::to_vec_named(message).unwrap();
        let flip = |bit: usize| {
            let mut bytes = right.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            rmp_serde::from_slice(&bytes).ok()
        };
        (0..right.len() * 8).filter_map(flip).collect()
    }

    #[test]
    fn an_update_of_which_a_bit_was_flipped_is_not_sound() {
        for delta_of in [None, Some(3)] {
            let right = LoggedUpdate { delta_of, ..update() }.summed();
            assert!(right.is_sound());
            let wrong = flipped(&right);
            assert!(wrong.len() > 100);
            // A flip in the name of the field takes the checksum away: then it is as from an older release.
            let passed = wrong.iter().filter(|got| got.sum.is_some() && got.is_sound() && **got != right);
            assert_eq!(passed.count(), 0);
        }
        // Older releases give no checksum.
        assert!(update().is_sound());
    }

    #[test]
    fn an_answer_of_which_a_bit_was_flipped_is_not_sound() {
        let pieces = vec![(3, Bytes::from_static(b"some")), (9, Bytes::from_static(b"more"))];
        let deltas = vec![(20, Bytes::from_static(b"delta"), 4)];
        let right = UpdatedBytes { pieces, deltas, sum: None }.summed(BLOCK);
        assert!(right.is_sound(BLOCK));
        assert!(!right.is_sound(BlockId { index: BlockIndex(2), ..BLOCK }));
        let wrong = flipped(&right);
        assert!(wrong.len() > 100);
        let passed = wrong.iter().filter(|got| got.sum.is_some() && got.is_sound(BLOCK) && **got != right);
        assert_eq!(passed.count(), 0);
        assert!(UpdatedBytes::default().is_sound(BLOCK));
    }
}
