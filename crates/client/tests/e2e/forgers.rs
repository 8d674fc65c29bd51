//! Nodes whose stores change the bytes that they were given, and compute matching checksums.

use std::path::PathBuf;
use std::sync::Arc;

use kintsu_client::ClientError;
use kintsu_dag::BlockId;
use kintsu_store::{
    Bad, BlockHead, BlockMeta, BlockRead, BlockStore, BlockWrite, Digest, FileStore, Generation, Listing,
    QuarantinedFile, Reason, StoreError, Usage,
};
use kintsu_wire::message::Encoding;

use crate::bytes::{assert_same, content};
use crate::cluster::{Cluster, RS, options};

/// Changes one bit of every block that is written.
struct Forger(FileStore);

struct ForgedBlock(Box<dyn BlockWrite>);

impl BlockWrite for ForgedBlock {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        let mut data = data.to_vec();
        if offset == 0 && !data.is_empty() {
            data[0] ^= 1;
        }
        self.0.write_at(offset, &data)
    }
    fn written(&self) -> u64 {
        self.0.written()
    }
    fn finish(self: Box<Self>, expect: Option<Digest>) -> Result<BlockMeta, StoreError> {
        self.0.finish(expect)
    }
}

impl BlockStore for Forger {
    fn create(
        &self,
        id: BlockId,
        generation: Generation,
        len: u64,
        unit_bytes: u32,
        label: &[u8],
    ) -> Result<Box<dyn BlockWrite>, StoreError> {
        Ok(Box::new(ForgedBlock(self.0.create(id, generation, len, unit_bytes, label)?)))
    }
    fn open(&self, id: BlockId, generation: Generation) -> Result<Box<dyn BlockRead>, StoreError> {
        self.0.open(id, generation)
    }
    fn create_next(
        &self,
        id: BlockId,
        generation: Generation,
        len: u64,
        unit_bytes: u32,
        label: &[u8],
    ) -> Result<Box<dyn BlockWrite>, StoreError> {
        self.0.create_next(id, generation, len, unit_bytes, label)
    }
    fn log(&self) -> Result<std::sync::Arc<kintsu_store::AppendLog>, StoreError> {
        self.0.log()
    }
    fn promote(&self, id: BlockId, generation: Generation) -> Result<BlockMeta, StoreError> {
        self.0.promote(id, generation)
    }
    fn next_versions(&self) -> Result<Vec<BlockMeta>, StoreError> {
        self.0.next_versions()
    }
    fn discard_next(&self, id: BlockId, generation: Generation) -> Result<bool, StoreError> {
        self.0.discard_next(id, generation)
    }
    fn delete(&self, id: BlockId, generation: Option<Generation>) -> Result<bool, StoreError> {
        self.0.delete(id, generation)
    }
    fn look(&self, id: BlockId) -> Result<BlockHead, StoreError> {
        self.0.look(id)
    }
    fn ids(&self) -> Result<Vec<BlockId>, StoreError> {
        self.0.ids()
    }
    fn list(&self) -> Result<Listing, StoreError> {
        self.0.list()
    }
    fn verify(&self, id: BlockId) -> Result<BlockMeta, StoreError> {
        self.0.verify(id)
    }
    fn check(&self, id: BlockId, at_unix: u64) -> Result<BlockMeta, Bad> {
        self.0.check(id, at_unix)
    }
    fn set_aside(&self, id: BlockId, reason: Reason, at_unix: u64) -> Result<String, StoreError> {
        self.0.set_aside(id, reason, at_unix)
    }
    fn aside(&self) -> Result<Vec<QuarantinedFile>, StoreError> {
        self.0.aside()
    }
    fn take_back(&self, name: &str) -> Result<BlockMeta, StoreError> {
        self.0.take_back(name)
    }
    fn purge(&self, before_unix: u64) -> Result<u64, StoreError> {
        self.0.purge(before_unix)
    }
    fn purge_one(&self, name: &str) -> Result<(), StoreError> {
        self.0.purge_one(name)
    }
    fn wipe(&self) -> Result<u64, StoreError> {
        self.0.wipe()
    }
    fn check_root(&self) -> Result<(), StoreError> {
        self.0.check_root()
    }
    fn path(&self, id: BlockId) -> PathBuf {
        self.0.path(id)
    }
    fn usage(&self) -> Result<Usage, StoreError> {
        self.0.usage()
    }
}

async fn forge(cluster: &mut Cluster, id: u32) {
    cluster.kill(id).await;
    cluster.start_node_on(id, |store| Arc::new(Forger(store))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_changes_bytes_gets_no_block() {
    let mut cluster = Cluster::start(6, 6).await;
    forge(&mut cluster, 2).await;
    let data = content(1, 900_000);
    cluster.put("o", &data, options(RS, Encoding::Online)).await.unwrap();
    for position in 0..5 {
        for index in 0..5 {
            assert_ne!(cluster.home("o", position, index).await, 2);
        }
    }
    assert_same(&cluster.get("o").await.unwrap(), &data);
    cluster.until("its blocks are gone", || cluster.block_files_of(2).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_other_node_is_left_the_put_fails() {
    for encoding in [Encoding::Online, Encoding::Offline] {
        let mut cluster = Cluster::start(5, 5).await;
        forge(&mut cluster, 0).await;
        let data = content(2, 900_000);
        let failed = cluster.put("o", &data, options(RS, encoding)).await.unwrap_err();
        assert!(failed.to_string().contains("Mismatch"), "{failed}");
        assert!(matches!(cluster.client().await.info("o").await, Err(ClientError::NotFound(_))));
        cluster.until("nothing is left of it", || cluster.block_files().is_empty()).await;
    }
}
