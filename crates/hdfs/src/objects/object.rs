//! An object as the NameNode shows it: its record, and its stripes with the DataNodes that have their blocks.
//!
//! A folder with a record is an object. The blocks with index i of all its stripes are one file after the other in
//! `.kintsu-VERSION-i`. Of a file that was encoded where it is, the folder is `/.kintsu/INODE`, and the data blocks are the file's own.

use std::ops::Range;
use std::sync::Arc;

use kintsu_dag::BlockIndex;
use kintsu_plan::LayoutKind;

use super::record::{Known, MOST_BYTES, Record};
use crate::handover::Now;
use crate::proto::names::{FileStatus, LocatedBlock, LocatedBlocks};
use crate::transfer::BlockReader;
use crate::{EcPolicy, Group, HdfsError, Holder, NameNode, Stored, transfer_address};

/// The name of a record in its folder.
pub(crate) const RECORD: &str = ".kintsu";

/// Where the records of files are that were encoded where they are.
pub(crate) const ENCODED: &str = "/.kintsu";

/// An object, and its stripes as they are now.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    /// What it is called: its folder, or its file.
    pub path: String,
    pub known: Arc<Known>,
    pub groups: Vec<Group>,
}

/// What a path leads to.
pub(crate) enum Found {
    /// A folder, with or without a record.
    Folder(Option<Known>),
    /// A file, and the record of its parity if it has some, with the folder of that.
    File(Box<FileStatus>, Option<(String, Known)>),
}

/// The file with the blocks of one index.
pub(crate) fn column(folder: &str, version: &str, index: usize) -> String {
    format!("{folder}/{RECORD}-{version}-{index}")
}

/// The file with the record.
pub(crate) fn record_of(folder: &str) -> String {
    format!("{}/{RECORD}", folder.trim_end_matches('/'))
}

/// Whether this is the path of a file that a write of an object makes: of [`column`], or of a record that has not got its name. Others may
/// have files of similar names.
pub(super) fn is_written(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let rest = name.strip_prefix(RECORD).and_then(|rest| rest.strip_prefix('-'));
    let Some((version, what)) = rest.and_then(|rest| rest.split_once('-')) else { return false };
    let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let number = what.parse::<u8>().is_ok_and(|index| index.to_string() == what);
    version.len() == 16 && version.bytes().all(hex) && (number || what == "record")
}

/// The folder of a record, if this is the path of one.
pub(crate) fn record_folder(path: &str) -> Option<&str> {
    path.strip_suffix(RECORD)?.strip_suffix('/')
}

/// The file whose inode this is.
pub(crate) fn by_inode(file_id: u64) -> String {
    format!("/.reserved/.inodes/{file_id}")
}

/// What has this inode. One that was deleted, and that a snapshot has, leads to what has its old name by now, or to nothing.
///
/// # Errors
/// Those of calls.
pub(super) async fn with_inode(namenode: &NameNode, file_id: u64) -> Result<Option<FileStatus>, HdfsError> {
    match namenode.file(&by_inode(file_id)).await {
        Ok(status) => Ok(status.filter(|status| status.file_id == Some(file_id))),
        Err(HdfsError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A path as it is meant: absolute, without a slash at the end.
///
/// # Errors
/// `Unsupported` for a path that is none, or names files of Kintsu's own.
pub(crate) fn checked(path: &str) -> Result<String, HdfsError> {
    let short = path.trim_end_matches('/');
    let own = |part: &str| part == RECORD || part.starts_with(".kintsu-") || part == ".reserved";
    let fits = short.starts_with('/') && !short.contains("//");
    if !fits || short.split('/').any(|part| own(part) || matches!(part, "." | "..")) {
        return Err(HdfsError::Unsupported {
            what: "path of an object".into(),
            expected: "an absolute one without . and .., and without names of Kintsu's own (.kintsu)".into(),
            got: format!("{path:?}"),
        });
    }
    Ok(short.to_owned())
}

/// What is at a path.
///
/// # Errors
/// `NotFound`; those of calls and of records.
pub(crate) async fn find(namenode: &NameNode, path: &str) -> Result<Found, HdfsError> {
    let status = namenode.file(path).await?.ok_or_else(|| HdfsError::NotFound(path.to_owned()))?;
    if status.kind == 1 {
        return Ok(Found::Folder(record_in(namenode, path).await?));
    }
    let folder = format!("{ENCODED}/{}", status.file_id.unwrap_or(0));
    let known = record_in(namenode, &folder).await?;
    Ok(Found::File(Box::new(status), known.map(|known| (folder, known))))
}

/// The record in a folder, if it has one.
///
/// # Errors
/// Those of calls and of records.
pub(crate) async fn record_in(namenode: &NameNode, folder: &str) -> Result<Option<Known>, HdfsError> {
    match record_id(namenode, folder).await? {
        Some(file_id) => record_at(namenode, folder, file_id).await,
        None => Ok(None),
    }
}

/// The record of a folder, which has this inode; `None` if there is none any more.
///
/// # Errors
/// As [`record_in`].
pub(super) async fn record_at(
    namenode: &NameNode,
    folder: &str,
    file_id: u64,
) -> Result<Option<Known>, HdfsError> {
    // Whatever is renamed meanwhile, it is this file that is read.
    let (path, inode) = (record_of(folder), by_inode(file_id));
    let located = match namenode.locations(&inode).await {
        Ok(located) => located,
        Err(HdfsError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let known = Known::in_file(&path, &small_file(&path, located).await?)?;
    Ok(Some(Known { file_id, ..known }))
}

/// The inode of the record in a folder: another one each time that the object is written.
async fn record_id(namenode: &NameNode, folder: &str) -> Result<Option<u64>, HdfsError> {
    match namenode.file(&record_of(folder)).await {
        Ok(status) => Ok(status.filter(|status| status.kind == 2).and_then(|status| status.file_id)),
        Err(HdfsError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The bytes of a replicated file.
async fn small_file(path: &str, located: LocatedBlocks) -> Result<Vec<u8>, HdfsError> {
    if located.file_bytes > MOST_BYTES {
        return Err(HdfsError::Unsupported {
            what: path.to_owned(),
            expected: format!("a record of at most {MOST_BYTES} bytes"),
            got: format!("a file of {}", located.file_bytes),
        });
    }
    let name = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        for block in located.blocks {
            bytes.extend(any_replica(&name, &block)?);
        }
        Ok(bytes)
    });
    reading.await.map_err(|e| HdfsError::io(format!("reading {path}"), e.into()))?
}

/// A whole block from the first DataNode that has it right.
fn any_replica(path: &str, block: &LocatedBlock) -> Result<Vec<u8>, HdfsError> {
    let mut last = HdfsError::Parity(format!("{path}: no DataNode has it"));
    for holder in holders(block) {
        let mut bytes = vec![0; block.block.bytes.unwrap_or(0) as usize];
        let address = transfer_address(&holder.datanode)?;
        match BlockReader::new(address, block.block.clone(), holder.token).read_at(0, &mut bytes) {
            Ok(()) => return Ok(bytes),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Who has a block. Nobody, if all copies are known to be bad.
fn holders(block: &LocatedBlock) -> Vec<Holder> {
    let token = block.token.given().cloned();
    let holder = |node: &_| Holder { datanode: Arc::new(Clone::clone(node)), token: token.clone() };
    if block.corrupt { Vec::new() } else { block.locations.iter().map(holder).collect() }
}

impl Object {
    /// The object at a path.
    ///
    /// # Errors
    /// `NotFound`, `Unsupported` for what is no object; `Parity` for a file that was changed since it was encoded; those of calls.
    pub(crate) async fn at(namenode: &NameNode, path: &str) -> Result<Self, HdfsError> {
        let got = match find(namenode, path).await? {
            Found::Folder(Some(known)) => return Self::of(namenode, path.into(), path.into(), known).await,
            Found::File(_, Some((folder, known))) => {
                return Self::of(namenode, folder, path.into(), known).await;
            }
            Found::Folder(None) => "a folder without a record",
            Found::File(_, None) => "a file that was not encoded",
        };
        Err(HdfsError::Unsupported {
            what: path.to_owned(),
            expected: "an object of kintsu hdfs store put, or a file of kintsu hdfs store encode".into(),
            got: got.into(),
        })
    }

    /// The object whose record is in a folder.
    ///
    /// # Errors
    /// As [`Object::at`].
    pub(crate) async fn in_folder(namenode: &NameNode, folder: &str) -> Result<Self, HdfsError> {
        let known = record_in(namenode, folder).await?;
        let known = known.ok_or_else(|| HdfsError::NotFound(record_of(folder)))?;
        let path = match &known.record.source {
            Some(source) => name_of(namenode, source).await?,
            None => folder.to_owned(),
        };
        Self::of(namenode, folder.into(), path, known).await
    }

    /// The object of a record.
    ///
    /// # Errors
    /// As [`Object::at`].
    pub(crate) async fn of(
        namenode: &NameNode,
        folder: String,
        path: String,
        known: Known,
    ) -> Result<Self, HdfsError> {
        let known = Arc::new(known);
        let stripes = stripes(namenode, &folder, &path, &known, 0..known.record.digests.len()).await?;
        match stripes.changed {
            None => Ok(Self { path, known, groups: stripes.groups }),
            Some(changed) => Err(changed),
        }
    }
}

/// The files of Kintsu's own that a record names.
pub(crate) fn columns(folder: &str, known: &Known) -> Vec<String> {
    let Record { version, source, .. } = &known.record;
    let from = if source.is_some() { known.code.k() } else { 0 };
    (from..known.code.n()).map(|index| column(folder, version, index)).collect()
}

/// The path of an encoded file; if it has another one by now, the one by its inode.
pub(crate) async fn name_of(
    namenode: &NameNode,
    source: &super::record::Source,
) -> Result<String, HdfsError> {
    let there = match namenode.file(&source.path).await {
        Ok(status) => status.and_then(|status| status.file_id),
        Err(HdfsError::NotFound(_) | HdfsError::Denied { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(if there == Some(source.file_id) { source.path.clone() } else { by_inode(source.file_id) })
}

/// Id and generation stamp.
pub(crate) fn stamp(block: &crate::proto::names::ExtendedBlock) -> (u64, u64) {
    (block.id, block.generation)
}

/// Some stripes of an object. All their blocks but those of the last stripe are of full size, so that the NameNode is asked for
/// these alone.
async fn stripes(
    namenode: &NameNode,
    folder: &str,
    path: &str,
    known: &Arc<Known>,
    stripes: Range<usize>,
) -> Result<Stripes, HdfsError> {
    let (n, k, full) = (known.code.n(), known.code.k(), known.record.block_bytes);
    let bytes = |blocks: &Range<usize>| {
        (blocks.start as u64).saturating_mul(full)..(blocks.end as u64).saturating_mul(full)
    };
    let source = match &known.record.source {
        Some(source) => {
            let blocks = stripes.start * k..stripes.end * k;
            // To the end, so that what was appended shows.
            let open =
                if stripes.end == known.record.digests.len() { i64::MAX as u64 } else { bytes(&blocks).end };
            let located = namenode.locations_of(&by_inode(source.file_id), bytes(&blocks).start..open).await;
            Some(located.map_err(|error| match error {
                HdfsError::NotFound(_) => HdfsError::NotFound(path.to_owned()),
                error => error,
            })?)
        }
        None => None,
    };
    let mut columns = vec![None; n];
    for index in if source.is_some() { k..n } else { 0..n } {
        let file = column(folder, &known.record.version, index);
        match namenode.locations_of(&file, bytes(&stripes)).await {
            Ok(located) => columns[index] = Some(located),
            Err(HdfsError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    stripes_of(folder, path, known, stripes, &Located { source, columns })
}

/// Where the blocks of some stripes of an object are: those of the encoded file, and by index those of Kintsu's own files that are there.
pub(super) struct Located {
    pub source: Option<LocatedBlocks>,
    pub columns: Vec<Option<LocatedBlocks>>,
}

/// Some stripes of an object as groups.
pub(super) struct Stripes {
    /// Of an encoded file only those whose blocks are as they were then: their parity holds, whatever was appended to the file.
    pub groups: Vec<Group>,
    /// `Parity` for a file that was changed since it was encoded.
    pub changed: Option<HdfsError>,
}

/// Some stripes of an object, by where their blocks are.
///
/// # Errors
/// `Plan` for sizes that do not fit the code.
pub(super) fn stripes_of(
    folder: &str,
    path: &str,
    known: &Arc<Known>,
    stripes: Range<usize>,
    Located { source, columns }: &Located,
) -> Result<Stripes, HdfsError> {
    let (n, k) = (known.code.n(), known.code.k());
    let then = known.record.source.as_ref().map(|source| &source.blocks[..]).unwrap_or_default();
    let between = |stripes: Range<usize>| stripes.start * k..then.len().min(stripes.end * k);
    let same = |stripes: Range<usize>, blocks: &[LocatedBlock]| {
        let now = blocks.iter().map(|located| stamp(&located.block));
        then.get(between(stripes)).unwrap_or_default().iter().copied().eq(now)
    };
    // The last block of a file that is open may change before it says so.
    let as_then = |stripe: usize| {
        let Some(located) = source else { return true };
        let blocks = between(stripe..stripe + 1);
        let open = located.under_construction && blocks.end == then.len();
        let first = stripes.start * k;
        let now = located.blocks.get(blocks.start - first..blocks.end - first);
        !open && now.is_some_and(|now| same(stripe..stripe + 1, now))
    };
    let changed = source
        .as_ref()
        .filter(|located| located.under_construction || !same(stripes.clone(), &located.blocks));
    let changed = changed.map(|_| {
        HdfsError::Parity(format!(
            "{path}: it was changed since it was encoded, so its parity does not fit: encode it again"
        ))
    });
    let located = |stripe: usize, index: usize| match source {
        Some(source) if index < k => source.blocks.get((stripe - stripes.start) * k + index),
        _ => columns.get(index)?.as_ref()?.blocks.get(stripe - stripes.start),
    };
    let policy = EcPolicy {
        name: known.code.name().to_owned(),
        code: known.code.clone(),
        cell_bytes: known.record.cell_bytes,
    };
    let one = |(stripe, (offset, layout)): (usize, (u64, kintsu_plan::Layout))| {
        let found: Vec<Option<&LocatedBlock>> = (0..n)
            .map(|i| {
                let len = layout.block_len(k, BlockIndex(i as u8));
                located(stripe, i).filter(|block| len > 0 && block.block.bytes == Some(len))
            })
            .collect();
        let holders = found.iter().enumerate().filter_map(|(i, block)| {
            let holders = holders((*block)?);
            (!holders.is_empty()).then_some((BlockIndex(i as u8), holders))
        });
        let stored = Stored {
            folder: folder.to_owned(),
            stripe: stripe as u64,
            blocks: found.iter().map(|block| block.map(|block| block.block.clone())).collect(),
            known: known.clone(),
        };
        let first = found.iter().flatten().next().map(|block| block.block.clone()).unwrap_or_default();
        Group {
            path: path.to_owned(),
            file_id: 0,
            policy: policy.clone(),
            pool: first.pool,
            id: first.id,
            generation: 0,
            offset,
            layout,
            holders: holders.collect(),
            // Of a block whose copies are all bad nobody is a holder.
            corrupt: false,
            stored: Some(Arc::new(stored)),
        }
    };
    let layouts = known.stripes()?.into_iter().enumerate();
    let asked = layouts.skip(stripes.start).take(stripes.len());
    let groups = asked.filter(|(stripe, _)| as_then(*stripe)).map(one).collect();
    Ok(Stripes { groups, changed })
}

/// Asks for the present state of a stripe.
///
/// # Errors
/// Those of calls.
pub(crate) async fn refresh(namenode: &NameNode, path: &str, stored: &Stored) -> Result<Now, HdfsError> {
    let changed = |why: &str| Ok(Now::Changed(why.to_owned()));
    match record_id(namenode, &stored.folder).await? {
        None => return changed("it was removed"),
        Some(id) if id != stored.known.file_id => return changed("it was written anew"),
        Some(_) => {}
    }
    let stripe = stored.stripe as usize;
    let now = match stripes(namenode, &stored.folder, path, &stored.known, stripe..stripe + 1).await {
        Ok(Stripes { groups, changed: why }) => match (groups.into_iter().next(), why) {
            (None, Some(HdfsError::Parity(why))) => return changed(&why),
            (now, _) => now,
        },
        Err(HdfsError::NotFound(_)) => return changed("its file was removed"),
        Err(error) => return Err(error),
    };
    let same = |now: &Group| now.stored.as_ref().is_some_and(|other| other.blocks == stored.blocks);
    match now.filter(same) {
        Some(now) => Ok(Now::Same(Box::new(now))),
        None => changed("it has other blocks"),
    }
}

/// Whether an object is gone for good, whatever the name of its folder is now: its record, or the file that was encoded.
///
/// # Errors
/// Those of calls.
pub(crate) async fn is_gone(namenode: &NameNode, stored: &Stored) -> Result<bool, HdfsError> {
    let source = stored.known.record.source.as_ref().map(|source| source.file_id);
    match namenode.file(&by_inode(source.unwrap_or(stored.known.file_id))).await {
        Ok(found) => Ok(found.is_none()),
        Err(HdfsError::NotFound(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether the data blocks are those of a file of HDFS.
pub(crate) fn is_encoded(known: &Known) -> bool {
    known.record.kind == LayoutKind::Contiguous
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use kintsu_dag::NodeId;

    use super::*;
    use crate::block_id;
    use crate::proto::names::ExtendedBlock;

    /// A stripe of rs:n=5,k=3 whose blocks have these ids in HDFS; the generation stamp of each is 1000 more than its index.
    pub(crate) fn stripe(ids: [Option<u64>; 5]) -> Group {
        let (block_bytes, cell_bytes) = (1 << 20, 128 << 10);
        let digests = vec![(0..5u128).map(|i| format!("{i:032x}")).collect()];
        let record = Record {
            version: "v".into(),
            code: "rs:n=5,k=3".into(),
            definition: None,
            kind: LayoutKind::Striped,
            bytes: 3 << 20,
            block_bytes,
            cell_bytes,
            source: None,
            digests,
        };
        let known = Arc::new(Known::of("/x", record).unwrap());
        let block = |(i, id): (usize, Option<u64>)| {
            let generation = 1000 + i as u64;
            Some(ExtendedBlock { pool: "BP".into(), id: id?, generation, bytes: Some(block_bytes) })
        };
        let blocks: Vec<_> = ids.into_iter().enumerate().map(block).collect();
        let there = blocks.iter().enumerate().filter(|(_, block)| block.is_some());
        let holder = Holder { datanode: Arc::default(), token: None };
        let holders: BTreeMap<_, _> =
            there.map(|(i, _)| (BlockIndex(i as u8), vec![holder.clone()])).collect();
        Group {
            path: "/x".into(),
            file_id: 0,
            policy: EcPolicy { name: "rs".into(), code: known.code.clone(), cell_bytes },
            pool: "BP".into(),
            id: ids.into_iter().flatten().next().unwrap(),
            generation: 0,
            offset: 0,
            layout: known.stripes().unwrap()[0].1,
            holders,
            corrupt: false,
            stored: Some(Arc::new(Stored { folder: "/x".into(), stripe: 7, blocks, known })),
        }
    }

    #[test]
    fn programs_name_each_block_by_its_own_id_and_generation_in_hdfs() {
        let group = stripe([None, Some(1_073_741_900), Some(5), Some(1_073_741_825), Some(3)]);
        assert_eq!(
            (group.number(), group.named(BlockIndex(0)), group.named(BlockIndex(4))),
            (7, false, true)
        );
        let view = group.view(NodeId::CLIENT, |_| true);
        let plan = kintsu_plan::read(&view, &[BlockIndex(0)], &[]).unwrap();
        let programs = group.programs((&plan, &view), (0, u64::MAX), (&[], &[]), &|_| None).unwrap();
        let loaded = programs.iter().flat_map(|program| &program.blocks).filter(|block| block.index.0 > 0);
        let named: Vec<_> =
            loaded.map(|block| (block.index.0, block_id(block.id), block.generation)).collect();
        assert_eq!(named.len(), 3, "{named:?}");
        for (index, id, generation) in named {
            let block = group.block(BlockIndex(index));
            assert_eq!((id as u64, u64::from(generation)), (block.id, block.generation));
        }
    }
}
