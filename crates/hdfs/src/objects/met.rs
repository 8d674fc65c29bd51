//! Objects as listings show them. A walk meets their records, the files with their blocks, and the files that were encoded; their
//! stripes are made from that. Only a record that is new is read, so a scan of what is unchanged asks for listings alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::object::{ENCODED, Located, RECORD, Stripes, column, record_at, record_folder, stripes_of};
use super::record::Known;
use crate::proto::names::{FileStatus, LocatedBlocks};
use crate::walk::LeftAlone;
use crate::{Group, HdfsError, NameNode};

/// A version of a record: its inode, when it was written, and its length. Records are written under another name and renamed,
/// so that each has an inode of its own; others may have changed the file nevertheless.
type Version = (u64, u64, u64);

/// A record that could not be read is left alone for this long; then for twice as long each time.
const REST: Duration = Duration::from_secs(10);

/// The longest of these times.
const LONGEST_REST: Duration = Duration::from_secs(600);

/// The records that were read, and those that could not be.
#[derive(Default)]
pub(crate) struct Records(BTreeMap<Version, Reading>);

/// What came of reading a record.
enum Reading {
    Known(Arc<Known>),
    /// Nothing; it rests for so long.
    Failed {
        until: Instant,
        rest: Duration,
    },
}

impl Reading {
    /// It could not be read once more.
    fn failed(before: Option<&Self>) -> Self {
        let rest = match before {
            Some(Self::Failed { rest, .. }) => (*rest * 2).min(LONGEST_REST),
            _ => REST,
        };
        Self::Failed { until: Instant::now() + rest, rest }
    }
}

impl Records {
    /// The record in a folder; `None` if it is there no longer, or rests. It is read if it is of another version than before.
    async fn known(
        &mut self,
        namenode: &NameNode,
        folder: &str,
        version: Version,
    ) -> Result<Option<Arc<Known>>, HdfsError> {
        match self.0.get(&version) {
            Some(Reading::Known(known)) => return Ok(Some(known.clone())),
            Some(Reading::Failed { until, .. }) if *until > Instant::now() => return Ok(None),
            _ => {}
        }
        match record_at(namenode, folder, version.0).await {
            Ok(known) => {
                let known = known.map(Arc::new);
                self.0.extend(known.clone().map(|known| (version, Reading::Known(known))));
                Ok(known)
            }
            Err(error) => {
                // Without a NameNode nothing is known of the record.
                if !error.no_namenode() {
                    self.0.insert(version, Reading::failed(self.0.get(&version)));
                }
                Err(error)
            }
        }
    }
}

/// What a walk met of objects. It goes over the records of encoded files first, so that it knows these files when it meets them.
#[derive(Default)]
pub(crate) struct Met {
    /// The folders with records, and which.
    records: Vec<(String, Version)>,
    /// Where the blocks are that are in files of Kintsu's own, by the paths of these.
    columns: BTreeMap<String, LocatedBlocks>,
    /// The encoded files by their inodes: path, and where the blocks are; `None` before they were met.
    sources: BTreeMap<u64, Option<(String, LocatedBlocks)>>,
}

impl Met {
    /// Keeps what a file tells of an object.
    pub(crate) fn file(&mut self, path: &str, file: &mut FileStatus) {
        let id = file.file_id.unwrap_or(0);
        if let Some(folder) = record_folder(path) {
            self.sources.extend(source_of(folder).map(|source| (source, None)));
            self.records.push((folder.to_owned(), (id, file.modified_ms, file.bytes)));
        } else if let Some(source) = self.sources.get_mut(&id) {
            *source = file.blocks.take().map(|blocks| (path.to_owned(), blocks));
        } else if path.rsplit('/').next().is_some_and(|name| name.starts_with(RECORD)) {
            self.columns.extend(file.blocks.take().map(|blocks| (path.to_owned(), blocks)));
        }
    }

    /// The stripes of the objects. What cannot be read goes to `left_alone`, and is read again later; so do files that were changed since they were
    /// encoded, of which only those stripes come that were not.
    ///
    /// # Errors
    /// Those of calls.
    pub(crate) async fn stripes(
        mut self,
        namenode: &NameNode,
        records: &mut Records,
        left_alone: &mut LeftAlone,
    ) -> Result<Vec<Group>, HdfsError> {
        let mut stripes = Vec::new();
        let found = std::mem::take(&mut self.records);
        left_alone.only_objects(&found.iter().map(|(folder, _)| folder.as_str()).collect());
        let versions: BTreeSet<Version> = found.iter().map(|(_, version)| *version).collect();
        records.0.retain(|version, _| versions.contains(version));
        for (folder, version) in found {
            match self.object(namenode, &folder, version, records).await {
                // It rests, or it is gone.
                Ok(None) => {}
                Ok(Some(found)) => {
                    left_alone.object(&folder, found.changed.as_ref());
                    stripes.extend(found.groups);
                }
                Err(error) if error.no_namenode() => return Err(error),
                Err(error) => left_alone.object(&folder, Some(&error)),
            }
        }
        Ok(stripes)
    }

    /// The stripes of one object; `None` if its record rests, and of an encoded file that was not met.
    async fn object(
        &mut self,
        namenode: &NameNode,
        folder: &str,
        version: Version,
        records: &mut Records,
    ) -> Result<Option<Stripes>, HdfsError> {
        let encoded = source_of(folder);
        let source = encoded.and_then(|id| self.sources.remove(&id).flatten());
        if encoded.is_some() && source.is_none() {
            return Ok(None);
        }
        let Some(known) = records.known(namenode, folder, version).await? else { return Ok(None) };
        // A copy of a record is none.
        if known.record.source.as_ref().map(|source| source.file_id) != encoded {
            return Ok(None);
        }
        let of = |index| column(folder, &known.record.version, index);
        let columns = (0..known.code.n()).map(|index| self.columns.remove(&of(index))).collect();
        let (path, source) = source.map_or((folder.to_owned(), None), |(path, blocks)| (path, Some(blocks)));
        let all = 0..known.record.digests.len();
        stripes_of(folder, &path, &known, all, &Located { source, columns }).map(Some)
    }
}

/// The inode of the file of which this folder has the parity.
pub(super) fn source_of(folder: &str) -> Option<u64> {
    folder.strip_prefix(ENCODED)?.strip_prefix('/')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use kintsu_plan::LayoutKind;

    use super::*;
    use crate::objects::record::{Record, Source};
    use crate::proto::names::{DatanodeInfo, ExtendedBlock, LocatedBlock};

    const MIB: u64 = 1 << 20;

    /// A file of four blocks and a half, encoded under rs:n=3,k=2, whose block i had id i + 1 and generation stamp 1001 then.
    fn encoded() -> Known {
        let blocks = (1..=5).map(|id| (id, 1001)).collect();
        let digests = vec![vec![format!("{:032x}", 7); 3]; 3];
        let record = Record {
            version: "v".into(),
            code: "rs:n=3,k=2".into(),
            definition: None,
            kind: LayoutKind::Contiguous,
            bytes: 4 * MIB + 5,
            block_bytes: MIB,
            cell_bytes: 1 << 20,
            source: Some(Source { path: "/logs/x".into(), file_id: 9, blocks }),
            digests,
        };
        Known::of("/x", record).unwrap()
    }

    /// Blocks with these generation stamps and sizes, the first of which has this id.
    fn blocks(first: u64, all: &[(u64, u64)]) -> LocatedBlocks {
        let one = |(i, (generation, bytes)): (usize, &(u64, u64))| LocatedBlock {
            block: ExtendedBlock {
                pool: "BP".into(),
                id: first + i as u64,
                generation: *generation,
                bytes: Some(*bytes),
            },
            locations: vec![DatanodeInfo::default()],
            ..LocatedBlock::default()
        };
        LocatedBlocks { blocks: all.iter().enumerate().map(one).collect(), ..LocatedBlocks::default() }
    }

    /// The stripes that are known of the encoded file when its blocks are so, and what is told.
    async fn met(source: LocatedBlocks, left_alone: &mut LeftAlone) -> (Vec<i64>, Vec<String>) {
        let folder = format!("{ENCODED}/9");
        let version = (10, 0, 0);
        let mut records = Records([(version, Reading::Known(Arc::new(encoded())))].into());
        let mut met = Met { records: vec![(folder.clone(), version)], ..Met::default() };
        met.sources.insert(9, Some(("/logs/x".into(), source)));
        met.columns.insert(column(&folder, "v", 2), blocks(100, &[(2000, MIB); 3]));
        let stripes = met.stripes(&crate::fake::namenode(&[]), &mut records, left_alone).await.unwrap();
        (stripes.iter().map(Group::number).collect(), left_alone.untold())
    }

    #[tokio::test]
    async fn of_an_encoded_file_that_was_appended_to_the_stripes_stay_whose_blocks_did_not_change() {
        let full = (1001, MIB);
        let (then, mut left_alone) = ([full, full, full, full, (1001, 5)], LeftAlone::default());
        assert_eq!(met(blocks(1, &then), &mut left_alone).await, (vec![0, 1, 2], vec![]));
        // Its last block has another stamp, and is followed by a new one; it is told once.
        let appended = || blocks(1, &[full, full, full, full, (1002, MIB), (1003, 7)]);
        let (stripes, told) = met(appended(), &mut left_alone).await;
        assert_eq!((stripes, told.len()), (vec![0, 1], 1));
        assert!(told[0].contains("/logs/x: it was changed since it was encoded"), "{told:?}");
        assert_eq!(met(appended(), &mut left_alone).await, (vec![0, 1], vec![]));
        // It was encoded again, and somebody appends once more: the last block has its stamp still.
        assert_eq!(met(blocks(1, &then), &mut left_alone).await, (vec![0, 1, 2], vec![]));
        let open = LocatedBlocks { under_construction: true, ..blocks(1, &then) };
        let (stripes, told) = met(open, &mut left_alone).await;
        assert_eq!((stripes, told.len()), (vec![0, 1], 1));
        // It was cut.
        let (stripes, _) = met(blocks(1, &[full, full, (1004, 9)]), &mut left_alone).await;
        assert_eq!(stripes, [0]);
    }

    #[test]
    fn a_record_that_cannot_be_read_rests_longer_each_time() {
        let mut reading = Reading::failed(None);
        let mut rests = Vec::new();
        for _ in 0..8 {
            let Reading::Failed { until, rest } = &reading else { panic!("it could not be read") };
            assert!(until.saturating_duration_since(Instant::now()) > *rest / 2);
            rests.push(rest.as_secs());
            reading = Reading::failed(Some(&reading));
        }
        assert_eq!(rests, [10, 20, 40, 80, 160, 320, 600, 600]);
    }
}
