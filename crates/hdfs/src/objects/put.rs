//! Writing an object: each stripe is encoded here, and its blocks go to DataNodes that are chosen by Kintsu's rules of placement.
//!
//! Everything is written under the names of a new version, which nobody knows yet. The record is written last, and renaming it
//! makes the object visible. A write that is killed before leaves files that no record names; one that is killed after leaves
//! only the old version's files to remove.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, StripeId};
use kintsu_plan::{BlockBinding, Layout, LayoutKind, StripeView, encode_online};
use kintsu_runtime::BlockSource;
use kintsu_store::Digest;
use kintsu_wire::message::{Fault, FaultKind};

use super::columns::{Columns, drawn};
use super::object::{
    Found, Object, RECORD, by_inode, checked, columns, find, record_in, record_of, with_inode,
};
use super::place::Datanodes;
use super::record::{Known, Record, stripes};
use crate::proto::changes::Mode;
use crate::proto::names::FileStatus;
use crate::transfer::UNIT_BYTES;
use crate::{HdfsError, NameNode, notes};

/// The smallest block that HDFS accepts by default (`dfs.namenode.fs-limits.min-block-size`).
const USUAL_LEAST: u64 = 1 << 20;

/// How an object is written.
pub struct PutOptions {
    /// Its code.
    pub code: Arc<dyn Code>,
    /// Its largest block; by default 64 MiB, or somewhat more if sub-blocks need it.
    pub block_bytes: Option<u64>,
    /// Its cell.
    pub cell_bytes: Option<u32>,
    /// Whether an object of this name is replaced.
    pub replace: bool,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Written {
    /// Its folder in HDFS.
    pub path: String,
    /// Its code.
    pub code: String,
    /// Its length.
    pub bytes: u64,
    /// Its stripes.
    pub stripes: usize,
    /// Whether an object of this name was replaced.
    pub replaced: bool,
    /// DataNodes by UUID that did not take a block.
    pub refused: Vec<String>,
    /// What is left of an older version because it could not be removed, with the reason.
    pub left: Vec<String>,
    /// What an operator should know of this HDFS, with which everything works.
    pub notes: Vec<String>,
}

/// Stores a local file as the object `path`. `progress` is told the bytes so far.
///
/// # Errors
/// `Unsupported` for sizes that HDFS does not accept, for a path that is something else, and for an existing object without
/// `replace`; `Plan` for too few DataNodes; `Denied`; `Io` for the local file, also if it changes; those of calls. Nothing of a
/// failed write stays, if the NameNode answers.
pub async fn put(
    namenode: &Arc<NameNode>,
    file: File,
    path: &str,
    options: &PutOptions,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<Written, HdfsError> {
    let path = checked(path)?;
    let code = &options.code;
    let local = |e| HdfsError::io("the file to store", e);
    let metadata = file.metadata().map_err(local)?;
    let (block_bytes, cell_bytes) = Layout::sizes(code.w(), options.block_bytes, options.cell_bytes);
    check_block(block_bytes)?;
    let all = stripes(&**code, LayoutKind::Striped, metadata.len(), block_bytes, cell_bytes)?;
    namenode.check_transfer().await?;
    let old = vacant(namenode, &path, options.replace).await?;
    // Checks that there are enough DataNodes before anything is written.
    let live = namenode.live_datanodes().await?;
    let notes = notes::racks(&live).into_iter().collect();
    let live = Datanodes::of(live, &BTreeSet::new());
    if let Some((_, layout)) = all.first() {
        live.place(&**code, layout, 0)?;
    }
    let made = namenode.file(&path).await?.is_none();
    namenode.make_folder(&path).await?;
    let folder = if made { namenode.file(&path).await?.and_then(|folder| folder.file_id) } else { None };
    let mut new = Columns::new(namenode, &path, Mode { bits: 0o644 }, block_bytes)?;
    let source = Arc::new(file);
    let job = Job { namenode, code, all: &all, source: &source };
    let recorded = async {
        let digests = job.stripes(&mut new, progress).await?;
        let now = source.metadata().map_err(local)?;
        if (now.len(), now.modified().ok()) != (metadata.len(), metadata.modified().ok()) {
            return Err(local(std::io::Error::other("it changed while it was read")));
        }
        new.complete(namenode).await?;
        let (name, definition) = Record::code_of(&**code)?;
        let record = Record {
            version: new.version.clone(),
            code: name,
            definition,
            kind: LayoutKind::Striped,
            bytes: metadata.len(),
            block_bytes,
            cell_bytes,
            source: None,
            digests,
        };
        Ok(record)
    };
    let published = match recorded.await {
        Ok(record) => publish(namenode, &new, record, code, options.replace).await?,
        Err(error) => Err(error),
    };
    if let Err(error) = published {
        new.remove(namenode).await;
        if let Some(folder) = folder {
            remove_folder(namenode, folder).await;
        }
        return Err(error);
    }
    whole(namenode, &path).await?;
    let left = match &old {
        Some(old) => remove_all(namenode, &columns(&path, old)).await,
        None => Vec::new(),
    };
    Ok(Written {
        path,
        code: code.name().to_owned(),
        bytes: metadata.len(),
        stripes: all.len(),
        replaced: old.is_some(),
        refused: new.bad.iter().cloned().collect(),
        left,
        notes,
    })
}

/// Removes the folder with this inode, if nothing is in it. By its path something else may be there meanwhile: a file of somebody's.
async fn remove_folder(namenode: &NameNode, file_id: u64) {
    if let Ok(Some(FileStatus { kind: 1, .. })) = with_inode(namenode, file_id).await {
        let _ = namenode.delete(&by_inode(file_id)).await;
    }
}

/// Refuses sizes that HDFS refuses, or that are not whole units of its checksums.
fn check_block(block_bytes: u64) -> Result<(), HdfsError> {
    if block_bytes >= USUAL_LEAST && block_bytes.is_multiple_of(UNIT_BYTES as u64) {
        return Ok(());
    }
    Err(HdfsError::Unsupported {
        what: "size of blocks in HDFS".into(),
        expected: format!("1 MiB or more, a multiple of {UNIT_BYTES} bytes"),
        got: format!("{block_bytes} bytes"),
    })
}

/// The record of the object that would be replaced, if there is one.
async fn vacant(namenode: &NameNode, path: &str, replace: bool) -> Result<Option<Known>, HdfsError> {
    let unsupported = |got: &str| HdfsError::Unsupported {
        what: path.to_owned(),
        expected: "a name that is free, or of an object to replace".into(),
        got: got.to_owned(),
    };
    match find(namenode, path).await {
        Ok(Found::Folder(Some(known))) if replace => Ok(Some(known)),
        Ok(Found::Folder(Some(_))) => Err(unsupported("an object; --replace replaces it")),
        Ok(Found::Folder(None)) => {
            let page = namenode.listing(path, Vec::new()).await?;
            // Files of a write that was killed do not count.
            let ours = |name: &[u8]| name.starts_with(RECORD.as_bytes());
            match page.entries.iter().all(|entry| ours(&entry.name)) && page.remaining == 0 {
                true => Ok(None),
                false => Err(unsupported("a folder with other files")),
            }
        }
        Ok(Found::File(..)) => Err(unsupported("a file")),
        Err(HdfsError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the record and gives it its name, which makes the object visible. After an inner error the object is certainly not
/// visible.
///
/// # Errors
/// The NameNode does not answer, so it is not known whether the object is visible. Then nothing may be removed.
pub(super) async fn publish(
    namenode: &NameNode,
    new: &Columns,
    record: Record,
    code: &Arc<dyn Code>,
    replace: bool,
) -> Result<Result<(), HdfsError>, HdfsError> {
    let aside = format!("{}/{RECORD}-{}-record", new.folder, new.version);
    let published = async {
        let bytes = record.to_file()?;
        let live = Datanodes::of(namenode.live_datanodes().await?, &new.bad);
        // The record survives as many losses as the blocks.
        let replicas = live.some(code.n() - code.k() + 1);
        new.write_small(namenode, &aside, bytes, replicas).await?;
        namenode.rename(&aside, &record_of(&new.folder), replace).await
    };
    let Err(error) = published.await else { return Ok(Ok(())) };
    // The answer may have been lost. Once the file is deleted, a late call cannot rename it any more.
    namenode.delete(&aside).await?;
    match record_in(namenode, &new.folder).await? {
        Some(known) if known.record.version == new.version => Ok(Ok(())),
        _ => Ok(Err(error)),
    }
}

/// Checks that all files of a new object are there: before it had a record, a removal of leftovers might have removed them.
pub(super) async fn whole(namenode: &NameNode, folder: &str) -> Result<Object, HdfsError> {
    let object = Object::in_folder(namenode, folder).await?;
    match object.groups.iter().find(|group| !group.missing().is_empty()) {
        Some(group) => Err(HdfsError::Parity(format!(
            "{group}: blocks {:?} are missing; nothing further was done",
            group.missing()
        ))),
        None => Ok(object),
    }
}

/// Removes files; returns those that stay, with the reason.
pub(super) async fn remove_all(namenode: &NameNode, files: &[String]) -> Vec<String> {
    let mut left = Vec::new();
    for file in files {
        match namenode.delete(file).await {
            Ok(_) => {}
            Err(error) => left.push(format!("{file}: {error}")),
        }
    }
    left
}

/// The stripes of one write.
struct Job<'a> {
    namenode: &'a Arc<NameNode>,
    code: &'a Arc<dyn Code>,
    all: &'a [(u64, Layout)],
    source: &'a Arc<File>,
}

impl Job<'_> {
    /// Writes all stripes; returns the digests of their blocks.
    async fn stripes(
        &self,
        new: &mut Columns,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Vec<Vec<String>>, HdfsError> {
        let mut all = Vec::new();
        for (number, &(offset, layout)) in self.all.iter().enumerate() {
            let n = self.code.n();
            let home =
                |i| (layout.block_len(self.code.k(), BlockIndex(i as u8)) > 0).then_some(NodeId::CLIENT);
            let homes = (0..n).map(home).collect();
            let view = StripeView { id: StripeId(number as u64), code: self.code.clone(), layout, homes };
            let plan = encode_online(&view)?;
            let (source, k, stripe) = (self.source.clone(), self.code.k(), view.id);
            let open: Arc<super::columns::Opens> = Arc::new(move |binding: &BlockBinding| {
                let (source, index) = (source.clone(), binding.index);
                Ok(Box::new(Part { source, offset, layout, k, index, stripe }) as Box<dyn BlockSource>)
            });
            let seed = drawn()?;
            let choose =
                |live, bad: &BTreeSet<String>| Datanodes::of(live, bad).place(&**self.code, &layout, seed);
            let digests = new.write(self.namenode, (&plan, &view), &choose, &open).await?;
            all.push(listed(n, &digests));
            progress(offset + layout.data_bytes);
        }
        Ok(all)
    }
}

/// Digests as a record lists them.
pub(super) fn listed(n: usize, digests: &BTreeMap<BlockIndex, Digest>) -> Vec<String> {
    let one = |i: usize| digests.get(&BlockIndex(i as u8)).map(ToString::to_string).unwrap_or_default();
    (0..n).map(one).collect()
}

/// A data block of a stripe in the file that is stored.
struct Part {
    source: Arc<File>,
    offset: u64,
    layout: Layout,
    k: usize,
    index: BlockIndex,
    stripe: StripeId,
}

impl BlockSource for Part {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (from, run) = self.layout.position(self.k, self.index, at);
            let (piece, more) = rest.split_at_mut((rest.len() as u64).min(run) as usize);
            self.source.read_exact_at(piece, self.offset + from).map_err(|error| {
                let detail = format!("reading the file to store, stripe {}: {error}", self.stripe.0);
                Fault { kind: FaultKind::Io, node: NodeId::CLIENT, block: None, detail }
            })?;
            (at, rest) = (at + piece.len() as u64, more);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use prost::Message as _;

    use super::*;
    use crate::fake;
    use crate::group::tests::datanode;
    use crate::proto::changes::{Delete, Done};
    use crate::proto::names::{DatanodeInfo, Datanodes, FileInfo, OfPath, ServerDefaults};

    /// The paths that a put to `/data/x` deletes which fails at its first block, if this has the inode of the folder by then that it
    /// made, which is 7.
    async fn deleted(now: Option<FileStatus>) -> Vec<String> {
        let deleted: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = deleted.clone();
        let live = (1..=3)
            .map(|port| DatanodeInfo { remaining: Some(1 << 40), ..datanode(([10, 0, 0, 1], port).into()) });
        let live = Datanodes { datanodes: live.collect() }.encode_to_vec();
        let namenode = fake::namenode_that_reads(move |method, arguments, before| match method {
            "getServerDefaults" => Some(ServerDefaults::default().encode_to_vec()),
            "getDatanodeReport" => Some(live.clone()),
            "mkdirs" => Some(Done { done: true }.encode_to_vec()),
            "getFileInfo" => {
                let folder = FileStatus { kind: 1, file_id: Some(7), ..FileStatus::default() };
                let status = match OfPath::decode(arguments).unwrap().path.as_str() {
                    // The path is free until the folder is made.
                    "/data/x" => Some(folder).filter(|_| before >= 2),
                    _ => now.clone(),
                };
                Some(FileInfo { status }.encode_to_vec())
            }
            "delete" => {
                seen.lock().unwrap().push(Delete::decode(arguments).unwrap().path);
                Some(Done { done: true }.encode_to_vec())
            }
            _ => None,
        });
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &[7; 100]).unwrap();
        let code = kintsu_code::parse("rs:n=3,k=2").unwrap();
        let options = PutOptions { code, block_bytes: None, cell_bytes: None, replace: false };
        let put = put(&Arc::new(namenode), file, "/data/x", &options, &mut |_| {}).await;
        assert!(matches!(put, Err(HdfsError::Refused { call: "create", .. })), "{put:?}");
        deleted.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn a_put_that_fails_removes_the_folder_that_it_made_and_nothing_that_took_its_place() {
        let status = |kind, id| Some(FileStatus { kind, file_id: Some(id), ..FileStatus::default() });
        assert_eq!(deleted(status(1, 7)).await, ["/.reserved/.inodes/7"]);
        // A job has replaced the folder by a file of its own.
        for now in [None, status(2, 9), status(1, 9), status(2, 7)] {
            assert!(deleted(now.clone()).await.is_empty(), "{now:?}");
        }
    }
}
