//! A block group of HDFS as a stripe: code, layout, and which DataNode has which internal block.
//!
//! The layout is that of Kintsu's striped objects: cell c of a group goes to data block c mod k; the last cells are cut,
//! blocks without a byte do not exist, a parity block is as long as block 0. The internal block with index i has the
//! id of its group plus i.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use kintsu_plan::{Layout, LayoutKind, Plan, Program, ProgramContext, RunId, StripeView};
use kintsu_store::{Digest, UNIT_BYTES};

use crate::objects::{Known, drawn};
use crate::proto::names::{DatanodeInfo, ExtendedBlock, FileStatus, LocatedBlock, LocatedBlocks, Token};
use crate::{EcPolicy, HdfsError};

/// Where one internal block is.
#[derive(Debug, Clone)]
pub struct Holder {
    /// The DataNode; blocks that were listed together share it.
    pub datanode: Arc<DatanodeInfo>,
    /// What permits reading it there; `None` where tokens are off.
    pub token: Option<Token>,
}

/// What is known besides of a stripe of an object that Kintsu keeps in files of HDFS.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The folder with the object's record.
    pub folder: String,
    /// Its number in the object.
    pub stripe: u64,
    /// Its blocks in HDFS, by index; `None` where the file is gone that had the block.
    pub blocks: Vec<Option<ExtendedBlock>>,
    pub(crate) known: Arc<Known>,
}

/// One block group, or a stripe of an object.
#[derive(Debug, Clone)]
pub struct Group {
    /// The path of its file.
    pub path: String,
    /// The inode of its file, which stays the same when the file is renamed; 0 if not known.
    pub file_id: u64,
    /// Its code.
    pub policy: EcPolicy,
    /// The block pool.
    pub pool: String,
    /// Its id: that of the internal block with index 0. Of a stripe of an object: that of its first block which is there.
    pub id: u64,
    /// The generation stamp of its internal blocks; those of a stripe of an object have their own.
    pub generation: u64,
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// How its bytes lie in its internal blocks.
    pub layout: Layout,
    /// Who has each internal block; an index without an entry is missing, or has no bytes.
    pub holders: BTreeMap<BlockIndex, Vec<Holder>>,
    /// Whether the NameNode knows of a bad copy, and of fewer good blocks in service than are needed. Then it lists bad copies too.
    pub corrupt: bool,
    /// A stripe of an object.
    pub stored: Option<Arc<Stored>>,
}

impl Group {
    /// The complete groups of a file, of those in `blocks`. Of an encrypted file they are what is stored: ciphertext. The file's last group, if it is still being written, is left out.
    ///
    /// # Errors
    /// `Unsupported` for replicated files and unknown policies, `Protocol` for groups that cannot be.
    pub fn of(path: &str, status: &FileStatus, blocks: &LocatedBlocks) -> Result<Vec<Self>, HdfsError> {
        let policy = blocks.policy.as_ref().or(status.policy.as_ref());
        let policy = policy.ok_or_else(|| HdfsError::Unsupported {
            what: path.to_owned(),
            expected: "an erasure-coded file".into(),
            got: "a replicated one".into(),
        })?;
        let policy = EcPolicy::of(policy)?;
        let last = blocks.last.as_ref().or(blocks.blocks.last()).map(|last| last.block.id);
        let written = last.filter(|_| blocks.under_construction && !blocks.last_complete);
        let whole = blocks.blocks.iter().filter(|located| Some(located.block.id) != written);
        let file_id = status.file_id.unwrap_or(0);
        let block_bytes = status.block_bytes.unwrap_or(0);
        whole.map(|block| Self::one(path, file_id, block_bytes, &policy, block)).collect()
    }

    fn one(
        path: &str,
        file_id: u64,
        block_bytes: u64,
        policy: &EcPolicy,
        located: &LocatedBlock,
    ) -> Result<Self, HdfsError> {
        let strange = |expected: &str, got: String| HdfsError::Protocol {
            address: format!("{path}, group {}", located.block.id as i64),
            expected: expected.to_owned(),
            got,
            advice: "is this NameNode of Hadoop 3?",
        };
        let indices = located.indices.as_deref().unwrap_or_default();
        if indices.len() != located.locations.len() {
            let got = format!("{} for {} locations", indices.len(), located.locations.len());
            return Err(strange("an index for each location", got));
        }
        let n = policy.code.n();
        let mut holders: BTreeMap<BlockIndex, Vec<Holder>> = BTreeMap::new();
        for (i, (&index, datanode)) in indices.iter().zip(&located.locations).enumerate() {
            if usize::from(index) >= n {
                return Err(strange(&format!("indices below {n}"), index.to_string()));
            }
            let token = located.tokens.get(i).and_then(Token::given).cloned();
            let datanode = Arc::new(datanode.clone());
            holders.entry(BlockIndex(index)).or_default().push(Holder { datanode, token });
        }
        let data_bytes = located.block.bytes.unwrap_or(0);
        if data_bytes > block_bytes.saturating_mul(policy.code.k() as u64) {
            let expected = format!("at most {} blocks of {block_bytes} bytes of data", policy.code.k());
            return Err(strange(&expected, data_bytes.to_string()));
        }
        Ok(Self {
            path: path.to_owned(),
            file_id,
            policy: policy.clone(),
            pool: located.block.pool.clone(),
            id: located.block.id,
            generation: located.block.generation,
            offset: located.offset,
            layout: Layout {
                kind: LayoutKind::Striped,
                block_bytes,
                cell_bytes: policy.cell_bytes,
                w: 1,
                data_bytes,
            },
            holders,
            corrupt: located.corrupt,
            stored: None,
        })
    }

    /// Length of an internal block in bytes; 0 for one that does not exist.
    pub fn block_bytes(&self, index: BlockIndex) -> u64 {
        self.layout.block_len(self.policy.code.k(), index)
    }

    /// All indices of internal blocks that should exist.
    pub fn expected(&self) -> impl Iterator<Item = BlockIndex> + '_ {
        let all = (0..self.policy.code.n()).map(|i| BlockIndex(i as u8));
        all.filter(|index| self.block_bytes(*index) > 0)
    }

    /// The indices that should exist and that no DataNode has, as far as the NameNode knows.
    pub fn missing(&self) -> Vec<BlockIndex> {
        self.expected().filter(|index| !self.holders.contains_key(index)).collect()
    }

    /// How many more internal blocks may be lost before bytes are; `None` if they are already.
    pub fn spare(&self) -> Option<usize> {
        let missing = self.missing();
        if self.is_unreadable() || !self.policy.code.recoverable(&missing) {
            return None;
        }
        Some((self.policy.code.distance() - 1).saturating_sub(missing.len()))
    }

    /// Whether fewer of its blocks are good than are needed, by the word of the NameNode, whatever it lists. It does not count those on DataNodes that
    /// leave: where there are some, its word does not say that.
    pub fn is_unreadable(&self) -> bool {
        self.corrupt && self.holders.values().flatten().all(|holder| holder.datanode.in_service())
    }

    /// An internal block as messages name it.
    pub fn block(&self, index: BlockIndex) -> ExtendedBlock {
        if let Some(stored) = &self.stored {
            // One without a file has no holder, so nobody asks for it by this name.
            return stored.blocks.get(usize::from(index.0)).cloned().flatten().unwrap_or_default();
        }
        ExtendedBlock {
            pool: self.pool.clone(),
            id: self.id.wrapping_add(u64::from(index.0)),
            generation: self.generation,
            bytes: Some(self.block_bytes(index)),
        }
    }

    /// Its id as people read it; of a stripe of an object, its number there.
    pub fn number(&self) -> i64 {
        self.stored.as_ref().map_or(self.id, |stored| stored.stripe) as i64
    }

    /// An internal block as agents know it. The store beside a DataNode adds stripe and index ([`block_id`]), so the stripe is the
    /// group's id where the blocks' ids follow it, and else what makes the sum right.
    pub fn on_agents(&self, index: BlockIndex) -> BlockId {
        BlockId { stripe: StripeId(self.block(index).id.wrapping_sub(u64::from(index.0))), index }
    }

    /// Whether HDFS has a name for this block, so that it can be given to a DataNode. A stripe of an object has none for a block
    /// whose file is gone.
    pub fn named(&self, index: BlockIndex) -> bool {
        let blocks = self.stored.as_ref().map(|stored| &stored.blocks);
        blocks.is_none_or(|blocks| blocks.get(usize::from(index.0)).is_some_and(Option::is_some))
    }

    /// The generations of its internal blocks, by index, as agents say them.
    ///
    /// # Errors
    /// `Unsupported` for a generation stamp that does not fit.
    pub(crate) fn generations(&self) -> Result<Vec<u32>, HdfsError> {
        let one = |i: usize| {
            let generation = self.block(BlockIndex(i as u8)).generation;
            u32::try_from(generation).map_err(|_| HdfsError::Unsupported {
                what: format!("generation stamp of {self}"),
                expected: "below 2^32".into(),
                got: generation.to_string(),
            })
        };
        (0..self.policy.code.n()).map(one).collect()
    }

    /// The programs of a plan over bytes `window` of its blocks, as agents run them. `expect`: the digests by index of what is written or
    /// was staged; `label`: of what is written.
    ///
    /// # Errors
    /// `Plan`; `Unsupported` for a generation stamp that does not fit; `Io` without random numbers.
    pub(crate) fn programs(
        &self,
        (plan, view): (&Plan, &StripeView),
        window: (u64, u64),
        (expect, label): (&[Option<[u8; 16]>], &[u8]),
        peers: &dyn Fn(NodeId) -> Option<SocketAddr>,
    ) -> Result<Vec<Program>, HdfsError> {
        let generations = self.generations()?;
        let mut programs = plan.programs(&ProgramContext {
            generations: &generations,
            job: RunId(drawn()?),
            view,
            generation: 0,
            window,
            slice_bytes: 0,
            expect,
            label,
            peers,
            resume_key: 0,
        })?;
        for binding in programs.iter_mut().flat_map(|program| &mut program.blocks) {
            binding.id = self.on_agents(binding.index);
            // Digests are recorded over these units, whatever the code.
            binding.unit_bytes = UNIT_BYTES as u32;
        }
        Ok(programs)
    }

    /// The group as planners see it, with all blocks that `usable` admits within reach of `node`.
    pub fn view(&self, node: NodeId, usable: impl Fn(BlockIndex) -> bool) -> StripeView {
        let has = |index: BlockIndex| self.holders.contains_key(&index) && usable(index);
        let homes = (0..self.policy.code.n()).map(|i| has(BlockIndex(i as u8)).then_some(node)).collect();
        StripeView { id: StripeId(self.id), code: self.policy.code.clone(), layout: self.layout, homes }
    }

    /// The digest that a block must have, where one was recorded.
    pub fn digest(&self, index: BlockIndex) -> Option<Digest> {
        let stored = self.stored.as_ref()?;
        stored.known.digest(stored.stripe as usize, index)
    }

    /// Where its file can be found under any name.
    pub fn inode_path(&self) -> String {
        match self.file_id {
            0 => self.path.clone(),
            id => format!("/.reserved/.inodes/{id}"),
        }
    }
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.stored {
            Some(stored) => write!(f, "{}, stripe {}", self.path, stored.stripe),
            None => write!(f, "{}, group {}", self.path, self.number()),
        }
    }
}

/// Most blocks of a group: HDFS keeps the index in four bits of the block id.
pub(crate) const MAX_BLOCKS: usize = 16;

/// The bits of a block's id that are its index; the others are the id of its group.
pub(crate) const INDEX_BITS: u64 = MAX_BLOCKS as u64 - 1;

/// The id in HDFS of an internal block as agents know it: the stripe plus the index.
pub fn block_id(id: BlockId) -> i64 {
    id.stripe.0.wrapping_add(u64::from(id.index.0)) as i64
}

/// The address of a DataNode's transfers.
///
/// # Errors
/// `Unsupported` for an address that is not one.
pub fn transfer_address(datanode: &DatanodeInfo) -> Result<SocketAddr, HdfsError> {
    let id = &datanode.id;
    let parsed = id.ip.parse().ok().zip(u16::try_from(id.transfer_port).ok());
    parsed.map(|(ip, port)| SocketAddr::new(ip, port)).ok_or_else(|| HdfsError::Unsupported {
        what: format!("address of DataNode {}", id.host),
        expected: "an IP address and a port".into(),
        got: format!("{}:{}", id.ip, id.transfer_port),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::proto::names::{DatanodeId, Policy};

    fn located(bytes: u64, indices: &[u8]) -> LocatedBlock {
        let block =
            ExtendedBlock { pool: "BP".into(), id: -16i64 as u64, generation: 1001, bytes: Some(bytes) };
        LocatedBlock {
            block,
            locations: vec![DatanodeInfo::default(); indices.len()],
            indices: Some(indices.to_vec()),
            ..LocatedBlock::default()
        }
    }

    fn group(bytes: u64, indices: &[u8]) -> Result<Group, HdfsError> {
        parsed(located(bytes, indices))
    }

    fn parsed(located: LocatedBlock) -> Result<Group, HdfsError> {
        let (status, blocks) = file(located);
        Ok(Group::of("/f", &status, &blocks)?.remove(0))
    }

    /// A file with this group, as the NameNode tells it.
    fn file(located: LocatedBlock) -> (FileStatus, LocatedBlocks) {
        let policy = Some(Policy { id: 2, ..Policy::default() });
        let status = FileStatus { block_bytes: Some(4 << 20), ..FileStatus::default() };
        (status, LocatedBlocks { blocks: vec![located], policy, ..LocatedBlocks::default() })
    }

    /// A group of RS-3-2 and three cells that has these indices on these DataNodes.
    pub(crate) fn held(holders: impl IntoIterator<Item = (u8, DatanodeInfo)>) -> Group {
        let (status, blocks) = listed(holders);
        Group::of("/f", &status, &blocks).unwrap().remove(0)
    }

    /// Its file, as the NameNode tells it.
    pub(crate) fn listed(
        holders: impl IntoIterator<Item = (u8, DatanodeInfo)>,
    ) -> (FileStatus, LocatedBlocks) {
        let (indices, locations): (Vec<u8>, Vec<_>) = holders.into_iter().unzip();
        file(LocatedBlock { locations, ..located(3 << 20, &indices) })
    }

    /// The DataNode with this address, in service.
    pub(crate) fn datanode(address: SocketAddr) -> DatanodeInfo {
        let (ip, uuid, transfer_port) =
            (address.ip().to_string(), address.to_string(), address.port().into());
        let id = DatanodeId { ip, uuid, transfer_port, ..DatanodeId::default() };
        DatanodeInfo { id, ..DatanodeInfo::default() }
    }

    #[test]
    fn a_short_group_has_no_blocks_without_bytes_and_they_are_not_missing() {
        // One cell and a half of RS-3-2: blocks 0 and 1, parities 3 and 4.
        let group = group(3 << 19, &[0, 3]).unwrap();
        let lens: Vec<_> = (0..5).map(|i| group.block_bytes(BlockIndex(i))).collect();
        assert_eq!(lens, [1 << 20, 1 << 19, 0, 1 << 20, 1 << 20]);
        assert_eq!(group.missing(), [BlockIndex(1), BlockIndex(4)]);
        assert_eq!(group.spare(), Some(0));
        assert_eq!(group.block(BlockIndex(4)).id as i64, -12);
        assert_eq!(self::group(3 << 19, &[4]).unwrap().spare(), None);
    }

    #[test]
    fn of_an_open_file_only_the_group_that_is_being_written_is_left_out() {
        let (status, mut blocks) = listed([]);
        blocks.under_construction = true;
        let count = |blocks: &LocatedBlocks| Group::of("/f", &status, blocks).unwrap().len();
        assert_eq!(count(&blocks), 0, "it is the last one that was told");
        // Only this group was asked for, and the file has another one after it.
        let mut last = blocks.blocks[0].clone();
        blocks.last = Some(last.clone());
        assert_eq!(count(&blocks), 0);
        last.block.id = -32i64 as u64;
        blocks.last = Some(last);
        assert_eq!(count(&blocks), 1);
        (blocks.last, blocks.last_complete) = (None, true);
        assert_eq!(count(&blocks), 1);
    }

    #[test]
    fn groups_that_cannot_be_are_refused() {
        assert!(group(13 << 20, &[]).unwrap_err().to_string().contains("at most 3 blocks"));
        assert!(group(1, &[5]).unwrap_err().to_string().contains("indices below 5"));
        let mut odd = located(1, &[0]);
        odd.locations.clear();
        let policy = EcPolicy::of(&Policy { id: 2, ..Policy::default() }).unwrap();
        assert!(Group::one("/f", 0, 1 << 20, &policy, &odd).unwrap_err().to_string().contains("1 for 0"));
        let replicated = Group::of("/f", &FileStatus::default(), &LocatedBlocks::default());
        assert!(replicated.unwrap_err().to_string().contains("replicated"));
    }
}
