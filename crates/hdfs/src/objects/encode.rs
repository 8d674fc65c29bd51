//! Encoding a replicated file where it is, as HDFS-RAID did: the parity of its blocks goes to DataNodes without a copy of them, and then
//! the further replicas are given up.
//!
//! The order is what keeps every byte: parity is written and finished; all of it and the data are read back from DataNodes and compared;
//! the record is published; the file is looked at once more; only then its replication is lowered, in one call. What was
//! killed before leaves a file that is replicated as it was. Called again, it goes on where that was.

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::{Binding, BlockBinding, Layout, LayoutKind, Topology, encode_offline};
use kintsu_runtime::BlockSource;
use tokio::time::{Instant, sleep};

use super::columns::{Columns, Opens};
use super::object::{ENCODED, Found, Object, by_inode, checked, columns, find, stamp};
use super::place::Datanodes;
use super::put::{listed, publish, remove_all, whole};
use super::record::{Known, Record, Source, stripes};
use super::spread::{Moved, spread};
use crate::blocks::GroupBlocks;
use crate::handover::{COUNTED_WITHIN, POLL};
use crate::proto::changes::Mode;
use crate::proto::names::{FileStatus, LocatedBlocks};
use crate::verify::{Verified, scrub_group};
use crate::{Group, HdfsError, NameNode, notes};

/// What an encoding did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Encoded {
    /// The file.
    pub path: String,
    /// Its code.
    pub code: String,
    /// Its length.
    pub bytes: u64,
    /// Its stripes.
    pub stripes: usize,
    /// Bytes of parity.
    pub parity_bytes: u64,
    /// Replicas that its blocks had.
    pub replicas: u32,
    /// Whether it was encoded before, and only proved again and lowered now.
    pub resumed: bool,
    /// Blocks that were moved because HDFS had kept two of a stripe on one DataNode, or too many in one rack.
    pub moved: Vec<Moved>,
    /// What could not be moved or removed, with the reason.
    pub left: Vec<String>,
    /// What an operator should know of this HDFS, with which everything works.
    pub notes: Vec<String>,
}

/// Encodes the file `path` under `code`, and lowers its replication to 1. `progress` is told the bytes that were encoded, and then those
/// that were compared.
///
/// # Errors
/// `Unsupported` for what is no closed, replicated file that the code fits; `Parity` if blocks cannot be read or the parity does not
/// hold when it is read back; `Plan` for too few DataNodes; `Denied`; those of calls. The file is replicated as before then.
pub async fn encode(
    namenode: &Arc<NameNode>,
    path: &str,
    code: &Arc<dyn Code>,
    cell_bytes: Option<u32>,
    progress: &mut (dyn FnMut(&str, u64) + Send),
) -> Result<Encoded, HdfsError> {
    let path = checked(path)?;
    namenode.check_transfer().await?;
    let Found::File(status, old) = find(namenode, &path).await? else {
        return Err(unfit(&path, "a file", "a folder"));
    };
    let located = namenode.locations(&path).await?;
    let source = fit(&path, &status, &located)?;
    let live = namenode.live_datanodes().await?;
    let notes = notes::racks(&live).into_iter().collect();
    let sizes = Layout::sizes(code.w(), Some(status.block_bytes.unwrap_or(0)), cell_bytes);
    let all = stripes(&**code, LayoutKind::Contiguous, status.bytes, sizes.0, sizes.1)?;
    let folder = format!("{ENCODED}/{}", source.file_id);
    let resumed = match &old {
        Some((_, old)) if old.record.source.as_ref().is_some_and(|was| was.blocks == source.blocks) => {
            if old.code.name() != code.name() {
                return Err(unfit(&path, &format!("a file under {}", code.name()), old.code.name()));
            }
            true
        }
        _ => {
            if let Some((_, layout)) = all.first() {
                Datanodes::of(live, &BTreeSet::new()).place(&**code, layout, 0)?;
            }
            namenode.make_folder(&folder).await?;
            let job = Job { namenode, folder: &folder, path: &path, status: &status, source, code, sizes };
            let done = job.run(progress).await;
            if done.is_err() {
                // If there is nothing else in it.
                let _ = namenode.delete(&folder).await;
            }
            done?;
            false
        }
    };
    let object = whole(namenode, &folder).await?;
    if resumed {
        prove(&object, progress).await?;
    }
    let mut left = Vec::new();
    if let Some((_, old)) = old.filter(|_| !resumed) {
        left = remove_all(namenode, &columns(&folder, &old)).await;
    }
    lower(namenode, &path, &object.known).await?;
    let object = settled(namenode, &folder).await?;
    let mut moved = Vec::new();
    for group in &object.groups {
        match spread(namenode, group).await {
            Ok(more) => moved.extend(more),
            Err(error) => left.push(error.to_string()),
        }
    }
    let parity =
        |group: &Group| (code.k()..code.n()).map(|i| group.block_bytes(BlockIndex(i as u8))).sum::<u64>();
    Ok(Encoded {
        path,
        code: code.name().to_owned(),
        bytes: status.bytes,
        stripes: all.len(),
        parity_bytes: object.groups.iter().map(parity).sum(),
        replicas: status.replication.unwrap_or(0),
        resumed,
        moved,
        left,
        notes,
    })
}

fn unfit(path: &str, expected: &str, got: &str) -> HdfsError {
    HdfsError::Unsupported { what: path.to_owned(), expected: expected.into(), got: got.into() }
}

/// Whether a file can be encoded: what is recorded of its blocks.
fn fit(path: &str, status: &FileStatus, located: &LocatedBlocks) -> Result<Source, HdfsError> {
    let wanted = "a closed, replicated file outside encryption zones, with bytes, in blocks of one size";
    let unfit = |got: &str| Err(unfit(path, wanted, got));
    if status.policy.is_some() || located.policy.is_some() {
        return unfit("one of an erasure-coding policy");
    }
    if located.encryption.is_some() {
        return unfit("an encrypted one");
    }
    if located.under_construction {
        return unfit("one that is being written");
    }
    let (Some(file_id), Some((last, full))) = (status.file_id, located.blocks.split_last()) else {
        return unfit("an empty one");
    };
    let block_bytes = status.block_bytes.unwrap_or(0);
    let whole = full.iter().all(|block| block.block.bytes == Some(block_bytes));
    if !whole || last.block.bytes.is_none_or(|len| len > block_bytes) {
        return unfit("one with shorter blocks within");
    }
    if let Some(gone) = located.blocks.iter().find(|block| block.corrupt || block.locations.is_empty()) {
        return unfit(&format!("one whose block blk_{} no DataNode has", gone.block.id));
    }
    let blocks = located.blocks.iter().map(|located| stamp(&located.block)).collect();
    Ok(Source { path: path.to_owned(), file_id, blocks })
}

/// One encoding.
struct Job<'a> {
    namenode: &'a Arc<NameNode>,
    folder: &'a str,
    path: &'a str,
    status: &'a FileStatus,
    source: Source,
    code: &'a Arc<dyn Code>,
    sizes: (u64, u32),
}

impl Job<'_> {
    /// Writes the parity, proves it and publishes the record. Nothing of a failed one stays, if the NameNode answers.
    async fn run(self, progress: &mut (dyn FnMut(&str, u64) + Send)) -> Result<(), HdfsError> {
        let mode = Mode { bits: self.status.mode.bits & 0o777 };
        let mut new = Columns::new(self.namenode, self.folder, mode, self.sizes.0)?;
        let published = match self.write(&mut new, progress).await {
            Ok(record) => publish(self.namenode, &new, record, self.code, true).await?,
            Err(error) => Err(error),
        };
        if published.is_err() {
            new.remove(self.namenode).await;
        }
        published
    }

    async fn write(
        &self,
        new: &mut Columns,
        progress: &mut (dyn FnMut(&str, u64) + Send),
    ) -> Result<Record, HdfsError> {
        let (namenode, n, bytes) = (self.namenode, self.code.n(), self.status.bytes);
        let (block_bytes, cell_bytes) = self.sizes;
        let (code, definition) = Record::code_of(&**self.code)?;
        let stripes = stripes(&**self.code, LayoutKind::Contiguous, bytes, block_bytes, cell_bytes)?.len();
        let mut record = Record {
            version: new.version.clone(),
            code,
            definition,
            kind: LayoutKind::Contiguous,
            bytes,
            block_bytes,
            cell_bytes,
            source: Some(self.source.clone()),
            digests: vec![vec![String::new(); n]; stripes],
        };
        // Without parity yet.
        let plain = self.object(Known::of(self.path, record.clone())?).await?;
        for (digests, group) in record.digests.iter_mut().zip(plain.groups) {
            let end = group.offset + group.layout.data_bytes;
            *digests = self.stripe(new, group).await?;
            progress("encoded", end);
        }
        new.complete(namenode).await?;
        for column in new.paths() {
            namenode.set_owner(&column, &self.status.owner, &self.status.group).await?;
        }
        let known = Known::of(self.path, record.clone())?;
        prove(&self.object(known).await?, progress).await?;
        Ok(record)
    }

    async fn object(&self, known: Known) -> Result<Object, HdfsError> {
        Object::of(self.namenode, self.folder.to_owned(), self.path.to_owned(), known).await
    }

    /// Encodes one stripe; the digests of its blocks. The NameNode lists the nearest replica of each block first, and that is read.
    async fn stripe(&self, new: &mut Columns, group: Group) -> Result<Vec<String>, HdfsError> {
        let (n, k) = (self.code.n(), self.code.k());
        let mut view = group.view(NodeId::CLIENT, |_| true);
        let parity: Vec<_> = group.expected().filter(|index| usize::from(index.0) >= k).collect();
        for index in &parity {
            view.homes[usize::from(index.0)] = Some(NodeId::CLIENT);
        }
        let plan = encode_offline(&view, &Topology::default(), Binding::Bound)?;
        let blocks = GroupBlocks::of(group);
        let reading = blocks.clone();
        let open: Arc<Opens> = Arc::new(move |binding: &BlockBinding| {
            Ok(Box::new(reading.source(binding.index)?) as Box<dyn BlockSource>)
        });
        let choose =
            |live, bad: &BTreeSet<String>| Datanodes::of(live, bad).place_more(blocks.group(), &parity);
        let mut digests = new.write(self.namenode, (&plan, &view), &choose, &open).await?;
        let data: Vec<_> = blocks.group().expected().filter(|index| usize::from(index.0) < k).collect();
        for index in data {
            if blocks.digest(index).is_none() {
                let blocks = blocks.clone();
                let reading = tokio::task::spawn_blocking(move || blocks.read_through(index)).await;
                reading.map_err(|e| HdfsError::io("reading a block", e.into()))??;
            }
            digests.extend(blocks.digest(index).map(|digest| (index, digest)));
        }
        Ok(listed(n, &digests))
    }
}

/// Reads all blocks back from DataNodes, and compares them with their digests and with each other.
async fn prove(object: &Object, progress: &mut (dyn FnMut(&str, u64) + Send)) -> Result<(), HdfsError> {
    let mut verified = Verified::default();
    for group in &object.groups {
        let missing = group.missing();
        let mut doubts: Vec<String> = Vec::new();
        if missing.is_empty() {
            scrub_group(group.clone(), &mut verified).await?;
        } else {
            doubts.push(format!("blocks {missing:?} are missing"));
        }
        doubts.extend(verified.unproved.drain(..).map(|_| "nothing could be compared".to_owned()));
        doubts.append(&mut verified.skipped);
        for bad in verified.bad.drain(..) {
            doubts.extend(bad.unreadable.into_iter().map(|(_, why)| why));
            doubts.extend(
                bad.mismatches.first().map(|at| format!("its blocks contradict each other at byte {at}")),
            );
        }
        if let Some(doubt) = doubts.first() {
            return Err(HdfsError::Parity(format!(
                "{group}: the parity could not be proved, so the file stays replicated: {doubt}"
            )));
        }
        progress("proved", group.offset + group.layout.data_bytes);
    }
    Ok(())
}

/// Gives up the further replicas, if the file is still the one that was encoded.
async fn lower(namenode: &NameNode, path: &str, known: &Known) -> Result<(), HdfsError> {
    let Some(source) = &known.record.source else { return Ok(()) };
    let inode = by_inode(source.file_id);
    let located = namenode.locations(&inode).await?;
    let now: Vec<_> = located.blocks.iter().map(|located| stamp(&located.block)).collect();
    if now != source.blocks || located.under_construction {
        return Err(HdfsError::Parity(format!(
            "{path}: it was changed while it was encoded, so it stays replicated"
        )));
    }
    namenode.set_replication(&inode, 1).await
}

/// The object when HDFS has given up the further replicas, or takes long to.
async fn settled(namenode: &NameNode, folder: &str) -> Result<Object, HdfsError> {
    let deadline = Instant::now() + COUNTED_WITHIN;
    loop {
        let object = Object::in_folder(namenode, folder).await?;
        let single = |group: &Group| group.holders.values().all(|holders| holders.len() == 1);
        if object.groups.iter().all(single) || Instant::now() > deadline {
            return Ok(object);
        }
        sleep(POLL).await;
    }
}
