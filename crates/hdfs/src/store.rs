//! The blocks of an agent beside a DataNode: it reads the DataNode's internal blocks, and keeps rebuilt ones aside until
//! they are handed over.
//!
//! A block of stripe g and index i is the internal block g + i of HDFS, and its generation is the generation stamp. What is
//! written without a label is *staged*: kept in a store of Kintsu's own. What is written with a hand-over order as label
//! goes to the DataNode. What is written with the order to compare is compared with the DataNode's block, and kept nowhere.
//! What is read is the staged block if there is one, else the DataNode's. Nothing else touches the DataNode's directories.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use kintsu_dag::BlockId;
use kintsu_store::{
    AppendLog, Bad, BlockHead, BlockMeta, BlockRead, BlockStore, BlockWrite, Break, Digest, FileStore,
    Generation, Listing, QuarantinedFile, Reason, StoreError, Usage,
};
use prost::Message as _;

use crate::block_id;
use crate::proto::names::{ExtendedBlock, Token};
use crate::replica::{Directories, Replica, mate, unreadable};
use crate::transfer::{BlockWriter, UNIT_BYTES};

/// What a label begins with that is an order.
const ORDER: &[u8] = b"hdfs hand-over\n";

/// The label of what is not to be kept, but compared with the block that the DataNode has.
pub(crate) const COMPARE: &[u8] = b"hdfs compare\n";

/// The order to write a block to the DataNode beside this agent: what the block is called in HDFS.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HandOver {
    /// The block pool.
    #[prost(string, required, tag = "1")]
    pub pool: String,
    /// The DataNode's address for transfers, `ip:port`.
    #[prost(string, required, tag = "2")]
    pub datanode: String,
    /// What permits the write, where block tokens are on.
    #[prost(message, optional, tag = "3")]
    pub token: Option<Token>,
    /// Bytes under one checksum, as in the other blocks of the group; 512 without.
    #[prost(uint32, optional, tag = "4")]
    pub unit_bytes: Option<u32>,
}

impl HandOver {
    /// The order as a block's label.
    pub fn label(&self) -> Vec<u8> {
        [ORDER, &self.encode_to_vec()].concat()
    }

    /// The order in a label; `None` for another label.
    fn in_label(label: &[u8]) -> Option<(Self, SocketAddr)> {
        let order = Self::decode(label.strip_prefix(ORDER)?).ok()?;
        let address = order.datanode.parse().ok()?;
        Some((order, address))
    }
}

/// The blocks of one DataNode, and the blocks staged beside it.
pub struct DatanodeStore {
    staged: FileStore,
    directories: Arc<Directories>,
}

impl DatanodeStore {
    /// Beside a DataNode with these directories; blocks are staged in `staged`.
    ///
    /// # Errors
    /// `Invalid` for directories that this user may not read.
    pub fn new(staged: FileStore, directories: Arc<Directories>) -> Result<Arc<Self>, StoreError> {
        for directory in directories.paths() {
            let current = directory.join("current");
            std::fs::read_dir(&current).map_err(|error| unreadable(&current, &error))?;
        }
        Ok(Arc::new(Self { staged, directories }))
    }
}

/// A block on its way to the DataNode. Its bytes come from a staged block, which was verified when it was read.
struct Handing {
    id: BlockId,
    generation: Generation,
    unit_bytes: u32,
    len: u64,
    written: u64,
    writer: BlockWriter,
}

impl BlockWrite for Handing {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        if offset != self.written {
            let (expected, got) = (self.written.to_string(), offset.to_string());
            return Err(StoreError::Invalid { what: "offset in a block that is handed over", expected, got });
        }
        self.writer.write(data).map_err(|error| refused(&error))?;
        self.written += data.len() as u64;
        Ok(())
    }

    fn written(&self) -> u64 {
        self.written
    }

    fn finish(self: Box<Self>, expect: Option<Digest>) -> Result<BlockMeta, StoreError> {
        let Self { id, generation, unit_bytes, len, writer, .. } = *self;
        writer.finish().map_err(|error| refused(&error))?;
        let digest = expect.unwrap_or(Digest([0; 16]));
        Ok(BlockMeta { id, generation, len, unit_bytes, digest })
    }
}

/// What a block should be by the other blocks of its group, on its way to the one that is stored. Slices may come in any
/// order. Memory: one slice.
struct Comparing {
    replica: Replica,
    stored: Vec<u8>,
    written: u64,
}

impl BlockWrite for Comparing {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.stored.resize(data.len(), 0);
        self.replica.read_at(offset, &mut self.stored)?;
        if let Some(at) = self.stored.iter().zip(data).position(|(stored, computed)| stored != computed) {
            let BlockMeta { id, unit_bytes, .. } = *self.replica.meta();
            return Err(StoreError::Corrupt {
                id,
                what: "what the other blocks of its group say",
                unit: Some((offset + at as u64) / u64::from(unit_bytes.max(1))),
                expected: format!("{:02x} at byte {}", data[at], offset + at as u64),
                got: format!("{:02x}", self.stored[at]),
            });
        }
        self.written += data.len() as u64;
        Ok(())
    }

    fn written(&self) -> u64 {
        self.written
    }

    fn finish(self: Box<Self>, _: Option<Digest>) -> Result<BlockMeta, StoreError> {
        let meta = *self.replica.meta();
        match self.written {
            all if all == meta.len => Ok(meta),
            got => Err(StoreError::WrongLength { id: meta.id, expected: meta.len, got }),
        }
    }
}

/// The DataNode did not take the block.
fn refused(error: &crate::HdfsError) -> StoreError {
    let expected = "the DataNode to take the block".to_owned();
    StoreError::Invalid { what: "hand-over", expected, got: error.to_string() }
}

impl BlockStore for DatanodeStore {
    fn open(&self, id: BlockId, generation: Generation) -> Result<Box<dyn BlockRead>, StoreError> {
        match self.staged.open(id, generation) {
            Err(StoreError::NotFound { .. } | StoreError::Stale { .. }) => {
                Ok(Box::new(Replica::open(&self.directories, id, generation)?))
            }
            staged => staged,
        }
    }

    fn create(
        &self,
        id: BlockId,
        generation: Generation,
        len: u64,
        unit_bytes: u32,
        label: &[u8],
    ) -> Result<Box<dyn BlockWrite>, StoreError> {
        if label == COMPARE {
            let replica = Replica::open(&self.directories, id, generation)?;
            return Ok(Box::new(Comparing { replica, stored: Vec::new(), written: 0 }));
        }
        let Some((order, address)) = HandOver::in_label(label) else {
            return self.staged.create(id, generation, len, unit_bytes, label);
        };
        if let Some(other) = mate(&self.directories, id)? {
            return Err(StoreError::Invalid {
                what: "hand-over",
                expected: "a DataNode without another block of the group".to_owned(),
                got: format!(
                    "one that has internal block {}, of which the NameNode may not know yet",
                    other.0
                ),
            });
        }
        let block = ExtendedBlock {
            pool: order.pool,
            id: block_id(id) as u64,
            generation: generation.0.into(),
            bytes: Some(len),
        };
        let unit = order.unit_bytes.map_or(UNIT_BYTES, |unit| unit as usize);
        let begun = BlockWriter::begin(address, &[], &block, unit, order.token.as_ref(), false);
        let writer = begun.map_err(|error| refused(&error))?;
        Ok(Box::new(Handing { id, generation, unit_bytes, len, written: 0, writer }))
    }

    fn create_next(
        &self,
        id: BlockId,
        _: Generation,
        _: u64,
        _: u32,
        _: &[u8],
    ) -> Result<Box<dyn BlockWrite>, StoreError> {
        let expected = "a block of Kintsu's own, because HDFS updates none in place".to_owned();
        Err(StoreError::Invalid { what: "update", expected, got: id.to_string() })
    }

    fn promote(&self, id: BlockId, generation: Generation) -> Result<BlockMeta, StoreError> {
        self.staged.promote(id, generation)
    }

    fn next_versions(&self) -> Result<Vec<BlockMeta>, StoreError> {
        self.staged.next_versions()
    }

    fn discard_next(&self, id: BlockId, generation: Generation) -> Result<bool, StoreError> {
        self.staged.discard_next(id, generation)
    }

    fn log(&self) -> Result<Arc<AppendLog>, StoreError> {
        self.staged.log()
    }

    fn breaks(&self) -> Result<Break, StoreError> {
        self.staged.breaks()
    }

    fn delete(&self, id: BlockId, generation: Option<Generation>) -> Result<bool, StoreError> {
        self.staged.delete(id, generation)
    }

    fn look(&self, id: BlockId) -> Result<BlockHead, StoreError> {
        self.staged.look(id)
    }

    fn ids(&self) -> Result<Vec<BlockId>, StoreError> {
        self.staged.ids()
    }

    fn list(&self) -> Result<Listing, StoreError> {
        self.staged.list()
    }

    fn verify(&self, id: BlockId) -> Result<BlockMeta, StoreError> {
        self.staged.verify(id)
    }

    fn check(&self, id: BlockId, at_unix: u64) -> Result<BlockMeta, Bad> {
        self.staged.check(id, at_unix)
    }

    fn set_aside(&self, id: BlockId, reason: Reason, at_unix: u64) -> Result<String, StoreError> {
        self.staged.set_aside(id, reason, at_unix)
    }

    fn aside(&self) -> Result<Vec<QuarantinedFile>, StoreError> {
        self.staged.aside()
    }

    fn take_back(&self, name: &str) -> Result<BlockMeta, StoreError> {
        self.staged.take_back(name)
    }

    fn purge(&self, before_unix: u64) -> Result<u64, StoreError> {
        self.staged.purge(before_unix)
    }

    fn purge_one(&self, name: &str) -> Result<(), StoreError> {
        self.staged.purge_one(name)
    }

    fn wipe(&self) -> Result<u64, StoreError> {
        self.staged.wipe()
    }

    fn check_root(&self) -> Result<(), StoreError> {
        self.staged.check_root()
    }

    fn path(&self, id: BlockId) -> PathBuf {
        self.staged.path(id)
    }

    fn usage(&self) -> Result<Usage, StoreError> {
        self.staged.usage()
    }
}

#[cfg(test)]
mod tests {
    use kintsu_dag::{BlockIndex, StripeId};

    use super::*;

    #[test]
    fn nothing_is_handed_over_to_a_datanode_with_another_block_of_the_group() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data/current/BP-1/current/finalized/subdir0/subdir0");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("blk_-9223372036854775789"), [1; 10]).unwrap();
        let staged = FileStore::open(&dir.path().join("staged")).unwrap();
        let directories = Directories::of(vec![dir.path().join("data")], |_| true);
        let store = DatanodeStore::new(staged, directories).unwrap();
        // Nobody listens there, so that what is tried fails in another way.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let datanode = listener.local_addr().unwrap().to_string();
        drop(listener);
        let label = HandOver { pool: "BP-1".into(), datanode, token: None, unit_bytes: None }.label();
        let refused = |group: i64| {
            let id = BlockId { stripe: StripeId(group as u64), index: BlockIndex(0) };
            store.create(id, Generation(1001), 10, 512, &label).err().unwrap().to_string()
        };
        let why = refused(-9_223_372_036_854_775_792);
        assert!(why.contains("internal block 3"), "{why}");
        let other = refused(-9_223_372_036_854_775_776);
        assert!(!other.contains("internal block"), "{other}");
    }

    #[test]
    fn directories_that_cannot_be_read_are_named_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let (data, current) = (dir.path().join("data"), dir.path().join("data/current"));
        let open = || {
            let staged = FileStore::open(&dir.path().join("staged")).unwrap();
            DatanodeStore::new(staged, Directories::of(vec![data.clone()], |_| true))
        };
        let refused = |error: StoreError, parts: [&str; 2]| {
            let error = error.to_string();
            let path = current.display().to_string();
            assert!(parts.iter().chain([&path.as_str()]).all(|part| error.contains(part)), "{error}");
        };
        refused(open().err().unwrap(), ["dfs.datanode.data.dir", "No such file"]);
        std::fs::create_dir_all(&current).unwrap();
        let store = open().unwrap();
        // As for a user who may not read it; root may read everything.
        std::fs::remove_dir(&current).unwrap();
        std::fs::write(&current, []).unwrap();
        let user = ["run the agent as the DataNode's user", "Not a directory"];
        let id = BlockId { stripe: StripeId(-16i64 as u64), index: BlockIndex(0) };
        let (pool, datanode) = ("BP-1".into(), "127.0.0.1:1".into());
        let label = HandOver { pool, datanode, token: None, unit_bytes: None }.label();
        refused(store.create(id, Generation(1001), 10, 512, &label).err().unwrap(), user);
        drop(store);
        refused(open().err().unwrap(), user);
    }
}
