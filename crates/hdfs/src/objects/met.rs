//! Objects as listings show them. A walk meets their records, the files with their blocks, and the files that were encoded; their
//! stripes are made from that. Only a record that is new is read, so a scan of what is unchanged asks for listings alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::object::{ENCODED, Located, RECORD, column, record_at, record_folder, stripes_of};
use super::record::Known;
use crate::proto::names::{FileStatus, LocatedBlocks};
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

    /// The stripes of the objects. What cannot be read is logged, and is read again later.
    ///
    /// # Errors
    /// Those of calls.
    pub(crate) async fn stripes(
        mut self,
        namenode: &NameNode,
        records: &mut Records,
    ) -> Result<Vec<Group>, HdfsError> {
        let mut stripes = Vec::new();
        let found = std::mem::take(&mut self.records);
        let versions: BTreeSet<Version> = found.iter().map(|(_, version)| *version).collect();
        records.0.retain(|version, _| versions.contains(version));
        for (folder, version) in found {
            match self.object(namenode, &folder, version, records).await {
                Ok(groups) => stripes.extend(groups),
                Err(error) if error.no_namenode() => return Err(error),
                Err(error) => tracing::info!("{error}"),
            }
        }
        Ok(stripes)
    }

    /// The stripes of one object; none of an encoded file that was not met.
    async fn object(
        &mut self,
        namenode: &NameNode,
        folder: &str,
        version: Version,
        records: &mut Records,
    ) -> Result<Vec<Group>, HdfsError> {
        let encoded = source_of(folder);
        let source = encoded.and_then(|id| self.sources.remove(&id).flatten());
        if encoded.is_some() && source.is_none() {
            return Ok(Vec::new());
        }
        let Some(known) = records.known(namenode, folder, version).await? else { return Ok(Vec::new()) };
        // A copy of a record is none.
        if known.record.source.as_ref().map(|source| source.file_id) != encoded {
            return Ok(Vec::new());
        }
        let of = |index| column(folder, &known.record.version, index);
        let columns = (0..known.code.n()).map(|index| self.columns.remove(&of(index))).collect();
        let (path, source) = source.map_or((folder.to_owned(), None), |(path, blocks)| (path, Some(blocks)));
        let all = 0..known.record.digests.len();
        stripes_of(folder, &path, &known, all, &Located { source, columns })
    }
}

/// The inode of the file of which this folder has the parity.
pub(super) fn source_of(folder: &str) -> Option<u64> {
    folder.strip_prefix(ENCODED)?.strip_prefix('/')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
