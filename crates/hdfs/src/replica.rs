//! Internal blocks in a DataNode's own directories: a file with the bytes, and beside it a `.meta` file with their checksums.
//!
//! `<directory>/current/<pool>/current/finalized/subdirA/subdirB/blk_<id>` with A and B from bits 16 to 20 and 8 to 12 of the id;
//! `blk_<id>_<generation stamp>.meta`: version 1 (2 bytes), kind of checksum (1), bytes under one checksum (4), then the
//! checksums, all big-endian. Directories are only read. Of several pools, as the DataNodes of several NameNodes have them, only the one of
//! the agent's cluster is read: ids of blocks are the same in all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use kintsu_dag::{BlockId, BlockIndex};
use kintsu_store::{BlockMeta, BlockRead, Digest, Generation, StoreError};

use crate::group::{INDEX_BITS, MAX_BLOCKS};
use crate::proto::transfer::Checksum;
use crate::transfer::{check, supported};
use crate::{HdfsError, block_id};

/// Bytes before the checksums of a `.meta` file.
const META_HEAD: u64 = 7;

/// The version of `.meta` files.
const META_VERSION: u16 = 1;

/// Whether the pool of this name is that of the agent's cluster.
type IsMine = dyn Fn(&str) -> bool + Send + Sync;

/// The directories of a DataNode.
pub struct Directories {
    paths: Vec<PathBuf>,
    mine: Box<IsMine>,
    /// Those, and folders in them, that could not be read at the last look.
    failing: Mutex<BTreeSet<PathBuf>>,
}

impl Directories {
    /// These (`dfs.datanode.data.dir`), of which the pools are read whose names are `mine`.
    pub fn of(paths: Vec<PathBuf>, mine: impl Fn(&str) -> bool + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { paths, mine: Box::new(mine), failing: Mutex::default() })
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The folder of the pool in one of them, if it is there. Beside pools there is a file VERSION.
    fn pools_in(&self, directory: &Path) -> Result<Vec<PathBuf>, StoreError> {
        let mut all = listed(&directory.join("current"))?;
        all.retain(|path| path.is_dir() && (self.mine)(&name_of(path)));
        Ok(all)
    }

    /// The folders of the pool.
    ///
    /// # Errors
    /// `Invalid` if one of the directories cannot be read.
    fn pools(&self) -> Result<Vec<PathBuf>, StoreError> {
        let all: Result<Vec<_>, _> = self.paths.iter().map(|directory| self.pools_in(directory)).collect();
        Ok(all?.concat())
    }

    /// The folders of the pool in the directories that can be read: one disk that fails does not make the others useless.
    fn readable(&self) -> Vec<PathBuf> {
        let pools = self.paths.iter().map(|directory| self.tell(directory, self.pools_in(directory)));
        pools.flatten().flatten().collect()
    }

    /// What was read of a folder. That it cannot be read is logged, once until it can be again.
    fn tell<T>(&self, folder: &Path, read: Result<T, StoreError>) -> Option<T> {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(read) => {
                failing.remove(folder);
                Some(read)
            }
            Err(error) => {
                if failing.insert(folder.to_owned()) {
                    tracing::warn!("blocks are looked for in the other directories: {error}");
                }
                None
            }
        }
    }
}

/// An internal block open for reading. Every unit is compared with its checksum. Memory: the units of one call.
pub struct Replica {
    meta: BlockMeta,
    data: File,
    sums: File,
    read: u64,
}

impl Replica {
    /// The block in one of these directories.
    ///
    /// # Errors
    /// `NotFound`, also if it is in a directory that cannot be read; `Stale` for another generation stamp; `Corrupt` for a file that was
    /// cut, by the number of its checksums and the last of them, and for a `.meta` file without a head; `Invalid` for files that cannot
    /// be read, and for `.meta` files or checksums of another kind: the block may be as its DataNode wrote it.
    pub fn open(directories: &Directories, id: BlockId, generation: Generation) -> Result<Self, StoreError> {
        let Some((data, sums, stamp)) = find(directories, id)? else {
            return Err(StoreError::NotFound { id });
        };
        if stamp != u64::from(generation.0) {
            let got = Generation(u32::try_from(stamp).unwrap_or(u32::MAX));
            return Err(StoreError::Stale { id, expected: generation, got });
        }
        let (data, sums) = (open(&data)?, open(&sums)?);
        let mut head = [0; META_HEAD as usize];
        sums.read_exact_at(&mut head, 0).map_err(|e| failed(id, None, &e))?;
        let version = u16::from_be_bytes([head[0], head[1]]);
        let sum = Checksum {
            kind: head[2].into(),
            unit_bytes: u32::from_be_bytes([head[3], head[4], head[5], head[6]]),
        };
        let what = || format!("block {}", block_id(id));
        let unknown =
            |what, expected: &str, got| StoreError::Invalid { what, expected: expected.into(), got };
        if version != META_VERSION {
            return Err(unknown("version of a .meta file", "1", version.to_string()));
        }
        let unit = supported(&what, &sum)
            .map_err(|e| unknown("checksums of a .meta file", "CRC32C", e.to_string()))?;
        let bytes_of = |file: &File| file.metadata().map_err(|e| failed(id, None, &e));
        let (len, sum_bytes) = (bytes_of(&data)?.len(), bytes_of(&sums)?.len().saturating_sub(META_HEAD));
        if len.div_ceil(unit as u64) != sum_bytes / 4 {
            let expected = format!("{} units of {unit} bytes, as it has checksums", sum_bytes / 4);
            let got = format!("{len} bytes");
            return Err(StoreError::Corrupt { id, what: "its length", unit: None, expected, got });
        }
        // The digest of Kintsu's own blocks is not known here: all zeros are compared with nothing.
        let meta = BlockMeta { id, generation, len, unit_bytes: unit as u32, digest: Digest([0; 16]) };
        let mut replica = Self { meta, data, sums, read: 0 };
        // A file that was cut within its last unit has as many units as before.
        if let Some(last) = len.checked_sub(1) {
            replica.read_at(last, &mut [0])?;
            replica.read = 0;
        }
        Ok(replica)
    }
}

impl BlockRead for Replica {
    fn meta(&self) -> &BlockMeta {
        &self.meta
    }

    fn label(&self) -> &[u8] {
        &[]
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let BlockMeta { id, len, unit_bytes, .. } = self.meta;
        let end = offset.saturating_add(buf.len() as u64);
        if end > len {
            let (expected, got) = (format!("at most {len}"), end.to_string());
            return Err(StoreError::Invalid { what: "end of a read", expected, got });
        }
        if buf.is_empty() {
            return Ok(());
        }
        let unit = u64::from(unit_bytes);
        let (from, to) = (offset / unit * unit, end.next_multiple_of(unit).min(len));
        let units = (to - from).div_ceil(unit);
        let (mut bytes, mut sums) = (vec![0; (to - from) as usize], vec![0; units as usize * 4]);
        let failed = |e: std::io::Error| failed(id, Some(from / unit), &e);
        self.data.read_exact_at(&mut bytes, from).map_err(failed)?;
        self.sums.read_exact_at(&mut sums, META_HEAD + from / unit * 4).map_err(failed)?;
        self.read += to - from;
        let what = || format!("block {}", block_id(id));
        match check(&what, from, &bytes, &sums, unit_bytes as usize) {
            Ok(()) => {}
            Err(HdfsError::Corrupt { at, expected, got, .. }) => {
                return Err(StoreError::Corrupt {
                    id,
                    what: "checksum",
                    unit: Some(at / unit),
                    expected: format!("{expected:08x}"),
                    got: format!("{got:08x}"),
                });
            }
            Err(other) => return Err(failed(std::io::Error::other(other.to_string()))),
        }
        let at = (offset - from) as usize;
        buf.copy_from_slice(&bytes[at..at + buf.len()]);
        Ok(())
    }

    fn bytes_read(&self) -> u64 {
        self.read
    }
}

/// The files of a block, and its generation stamp.
fn find(directories: &Directories, id: BlockId) -> Result<Option<(PathBuf, PathBuf, u64)>, StoreError> {
    let name = name(id);
    for pool in directories.readable() {
        let folder = finalized(&pool, id);
        let data = folder.join(&name);
        if !data.is_file() {
            continue;
        }
        let stamp = |path: &Path| -> Option<u64> {
            let rest = path.file_name()?.to_str()?.strip_prefix(&name)?.strip_prefix('_')?;
            rest.strip_suffix(".meta")?.parse().ok()
        };
        let found = listed(&folder)?.into_iter().find_map(|path| Some((stamp(&path)?, path)));
        if let Some((stamp, sums)) = found {
            return Ok(Some((data, sums, stamp)));
        }
    }
    Ok(None)
}

/// Another internal block of the same group that the DataNode has, or is receiving. The NameNode may not know of it: a DataNode that
/// comes back is live before it has reported its blocks. Of two of a group on one DataNode it would see only one. `None` for
/// blocks of objects, which have positive ids: each is a file of its own.
///
/// # Errors
/// `Invalid` for directories that cannot be read.
pub(crate) fn mate(directories: &Directories, id: BlockId) -> Result<Option<BlockIndex>, StoreError> {
    if id.stripe.0 as i64 >= 0 {
        return Ok(None);
    }
    let mates = (0..MAX_BLOCKS as u8).map(BlockIndex).filter(|index| *index != id.index);
    let names: Vec<(BlockIndex, String)> =
        mates.map(|index| (index, name(BlockId { index, ..id }))).collect();
    for pool in directories.pools()? {
        for folder in [finalized(&pool, id), pool.join("current/rbw"), pool.join("current/tmp")] {
            for (index, name) in &names {
                if is_there(&folder.join(name))? {
                    return Ok(Some(*index));
                }
            }
        }
    }
    Ok(None)
}

/// The internal blocks of groups of which the DataNode has others too, with their pools, in the directories that can be read. Memory: the
/// names in a few folders.
pub(crate) fn crowded(directories: &Directories) -> BTreeSet<(String, u64)> {
    let mut by_name: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for pool in directories.readable() {
        by_name.entry(name_of(&pool)).or_default().push(pool);
    }
    let mut all = BTreeSet::new();
    for (name, mut pools) in by_name {
        // The blocks of a group are in folders of the same names.
        for (a, b) in (0..32).flat_map(|a| (0..32).map(move |b| (a, b))) {
            let mut groups: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
            pools.retain(|pool| {
                let folder = subfolder(pool, a, b);
                let Some(paths) = directories.tell(&folder, listed(&folder)) else { return false };
                for path in paths {
                    let id = name_of(&path).strip_prefix("blk_").and_then(|id| id.parse::<i64>().ok());
                    if let Some(id) = id.filter(|id| *id < 0).map(|id| id as u64) {
                        groups.entry(id & !INDEX_BITS).or_default().insert(id);
                    }
                }
                true
            });
            let crowds = groups.into_values().filter(|blocks| blocks.len() > 1).flatten();
            all.extend(crowds.map(|id| (name.clone(), id)));
        }
    }
    all
}

fn name(id: BlockId) -> String {
    format!("blk_{}", block_id(id))
}

/// Whether there is a file. That a disk fails does not say that there is none.
fn is_there(file: &Path) -> Result<bool, StoreError> {
    match std::fs::metadata(file) {
        Ok(found) => Ok(found.is_file()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(unreadable(file, &error)),
    }
}

/// The last part of a path.
fn name_of(path: &Path) -> String {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned()
}

/// Where a pool has a block, if it has it. It is the same for all blocks of a group.
fn finalized(pool: &Path, id: BlockId) -> PathBuf {
    let id = block_id(id);
    subfolder(pool, (id >> 16) & 0x1f, (id >> 8) & 0x1f)
}

fn subfolder(pool: &Path, a: i64, b: i64) -> PathBuf {
    pool.join(format!("current/finalized/subdir{a}/subdir{b}"))
}

/// What is in a folder; nothing if there is none.
fn listed(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(folder, &error)),
    };
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

fn open(path: &Path) -> Result<File, StoreError> {
    File::open(path).map_err(|error| unreadable(path, &error))
}

/// A block's files could not be read to where they should end: they were cut. Any other error says nothing of their bytes.
fn failed(id: BlockId, unit: Option<u64>, error: &std::io::Error) -> StoreError {
    let (expected, got) = ("bytes that can be read".to_owned(), error.to_string());
    match error.kind() {
        ErrorKind::UnexpectedEof => StoreError::Corrupt { id, what: "its files", unit, expected, got },
        _ => StoreError::Invalid { what: "read of a file of the DataNode", expected, got },
    }
}

/// The user may not read what the DataNode wrote, its disk fails, or it is not its directory.
pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> StoreError {
    let advice = match error.kind() {
        ErrorKind::NotFound => "give the agent the DataNode's own directories (dfs.datanode.data.dir)",
        _ => "run the agent as the DataNode's user",
    };
    StoreError::Invalid {
        what: "directory of the DataNode",
        expected: format!("{} to be readable; {advice}", path.display()),
        got: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::UNIT_BYTES;
    use kintsu_dag::StripeId;

    const ID: BlockId =
        BlockId { stripe: StripeId(-9_223_372_036_854_775_792i64 as u64), index: BlockIndex(3) };

    /// Writes the block as a DataNode does.
    fn written(bytes: &[u8], head: &[u8]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("current/BP-1/current/finalized/subdir0/subdir0");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("blk_-9223372036854775789"), bytes).unwrap();
        let sums = bytes.chunks(UNIT_BYTES).flat_map(|unit| crc_fast::crc32_iscsi(unit).to_be_bytes());
        let meta: Vec<u8> = head.iter().copied().chain(sums).collect();
        std::fs::write(folder.join("blk_-9223372036854775789_1001.meta"), meta).unwrap();
        dir
    }

    const CRC32C_OF_512: [u8; 7] = [0, 1, 2, 0, 0, 2, 0];

    /// These directories, whatever pools are in them.
    fn all(paths: &[PathBuf]) -> Arc<Directories> {
        Directories::of(paths.to_vec(), |_| true)
    }

    #[test]
    fn of_several_pools_only_the_own_one_is_read() {
        let dir = written(&[1; 10], &CRC32C_OF_512);
        // Another NameNode gave the same id, and one of the same group, to other blocks.
        let other = dir.path().join("current/BP-0/current/finalized/subdir0/subdir0");
        std::fs::create_dir_all(&other).unwrap();
        for (name, bytes) in [("blk_-9223372036854775789", 99), ("blk_-9223372036854775788", 1)] {
            std::fs::write(other.join(name), vec![7; bytes]).unwrap();
            std::fs::write(other.join(format!("{name}_1001.meta")), CRC32C_OF_512).unwrap();
        }
        let paths = vec![dir.path().to_owned()];
        let of = |pool: &'static str| Directories::of(paths.clone(), move |name| name == pool);
        let file =
            |pool| find(&of(pool), ID).unwrap().map(|(file, ..)| std::fs::metadata(file).unwrap().len());
        assert_eq!((file("BP-0"), file("BP-1"), file("BP-2")), (Some(99), Some(10), None));
        assert_eq!(mate(&of("BP-1"), ID).unwrap(), None);
        assert_eq!(mate(&of("BP-0"), ID).unwrap(), Some(BlockIndex(4)));
        assert_eq!((crowded(&of("BP-0")).len(), crowded(&of("BP-1")).len()), (2, 0));
    }

    #[test]
    fn a_disk_that_fails_hides_no_blocks_of_the_others_but_nothing_is_handed_over() {
        let dir = written(&[1; 10], &CRC32C_OF_512);
        // As a directory that gives errors: it cannot be listed.
        let failing = dir.path().join("failing");
        std::fs::create_dir(&failing).unwrap();
        std::fs::write(failing.join("current"), []).unwrap();
        let directories = all(&[failing.clone(), dir.path().to_owned()]);
        let told = || directories.failing.lock().unwrap().len();
        assert!(Replica::open(&directories, ID, Generation(1001)).is_ok());
        assert!(mate(&directories, ID).is_err(), "another block of the group may be there");
        let second =
            dir.path().join("current/BP-1/current/finalized/subdir0/subdir0/blk_-9223372036854775788");
        std::fs::write(&second, []).unwrap();
        assert_eq!((crowded(&directories).len(), told()), (2, 1));
        // A folder in it.
        std::fs::remove_file(failing.join("current")).unwrap();
        std::fs::create_dir_all(failing.join("current/BP-1/current/finalized/subdir0")).unwrap();
        std::fs::write(failing.join("current/BP-1/current/finalized/subdir0/subdir0"), []).unwrap();
        assert!(Replica::open(&directories, ID, Generation(1001)).is_ok());
        assert_eq!((crowded(&directories).len(), told()), (2, 1));
        assert!(mate(&directories, ID).is_err());
    }

    #[test]
    fn every_range_is_read_and_a_flipped_bit_is_found() {
        let bytes: Vec<u8> = (0..1300u32).map(|i| (i * 7) as u8).collect();
        let dir = written(&bytes, &CRC32C_OF_512);
        let directories = all(&[dir.path().to_owned()]);
        let mut replica = Replica::open(&directories, ID, Generation(1001)).unwrap();
        assert_eq!(replica.meta().len, 1300);
        for (from, to) in [(0, 1300), (511, 513), (1299, 1300), (600, 600), (512, 1024)] {
            let mut got = vec![0; to - from];
            replica.read_at(from as u64, &mut got).unwrap();
            assert_eq!(got, bytes[from..to]);
        }
        assert!(replica.read_at(1299, &mut [0; 2]).is_err());

        let mut rotten = bytes.clone();
        rotten[700] ^= 1;
        std::fs::write(find(&directories, ID).unwrap().unwrap().0, rotten).unwrap();
        let mut replica = Replica::open(&directories, ID, Generation(1001)).unwrap();
        replica.read_at(0, &mut [0; 512]).unwrap();
        assert!(replica.read_at(1000, &mut [0; 1]).unwrap_err().is_rot());
    }

    #[test]
    fn another_block_of_the_group_is_found_though_it_is_only_coming() {
        let dir = written(&[1; 10], &CRC32C_OF_512);
        let directories = all(&[dir.path().to_owned()]);
        let of = |group: u64, index| BlockId { stripe: StripeId(group), index: BlockIndex(index) };
        assert_eq!(mate(&directories, ID).unwrap(), None);
        for index in [0, 4, 15] {
            assert_eq!(mate(&directories, of(ID.stripe.0, index)).unwrap(), Some(ID.index));
        }
        for group in [ID.stripe.0 - 16, ID.stripe.0 + 16] {
            assert_eq!(mate(&directories, of(group, 3)).unwrap(), None);
        }
        let file = dir.path().join("current/BP-1/current/finalized/subdir0/subdir0/blk_1073741830");
        std::fs::write(&file, []).unwrap();
        assert_eq!(mate(&directories, of(1_073_741_825, 0)).unwrap(), None, "blocks of objects");
        for (folder, index) in [("rbw", 7u64), ("tmp", 8)] {
            let folder = dir.path().join("current/BP-1/current").join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(format!("blk_{}", (ID.stripe.0 + index) as i64)), []).unwrap();
            assert_eq!(mate(&directories, ID).unwrap(), Some(BlockIndex(index as u8)));
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }

    #[test]
    fn several_blocks_of_a_group_are_found_on_whichever_disks() {
        let dir = written(&[1; 10], &CRC32C_OF_512);
        let disks = [dir.path().join("a"), dir.path().join("b")];
        let put = |disk: &Path, pool: &str, id: u64| {
            let pool = disk.join("current").join(pool);
            let index = (id % 16) as u8;
            let folder = finalized(
                &pool,
                BlockId { stripe: StripeId(id - u64::from(index)), index: BlockIndex(index) },
            );
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(format!("blk_{}", id as i64)), []).unwrap();
            std::fs::write(folder.join(format!("blk_{}_1001.meta", id as i64)), []).unwrap();
        };
        let group = |number: u64| ID.stripe.0 + number * 16;
        put(&disks[0], "BP-1", group(0));
        std::fs::write(disks[0].join("current/VERSION"), []).unwrap();
        put(&disks[1], "BP-1", group(1) + 2);
        put(&disks[1], "BP-2", group(0) + 1);
        put(&disks[0], "BP-1", 1_073_741_824);
        put(&disks[0], "BP-1", 1_073_741_825);
        assert_eq!(
            crowded(&all(&disks)),
            BTreeSet::new(),
            "other groups, other pools, blocks that are no groups"
        );
        put(&disks[1], "BP-1", group(0) + 4);
        put(&disks[0], "BP-1", group(5000));
        put(&disks[0], "BP-1", group(5000) + 8);
        let ids = [group(0), group(0) + 4, group(5000), group(5000) + 8];
        assert_eq!(crowded(&all(&disks)), ids.map(|id| ("BP-1".to_owned(), id)).into());
    }

    #[test]
    fn a_file_that_was_cut_is_damaged_and_one_as_long_as_its_checksums_is_not() {
        let bytes: Vec<u8> = (0..1300u32).map(|i| (i * 7) as u8).collect();
        for len in [1299, 1025, 1024, 700, 0, 1301, 1537] {
            let dir = written(&bytes, &CRC32C_OF_512);
            let directories = all(&[dir.path().to_owned()]);
            let file = File::options().write(true).open(find(&directories, ID).unwrap().unwrap().0).unwrap();
            file.set_len(len).unwrap();
            let error = Replica::open(&directories, ID, Generation(1001)).err().unwrap();
            assert!(error.is_rot(), "{len}: {error}");
        }
        for len in [1300, 1024, 0] {
            let dir = written(&bytes[..len], &CRC32C_OF_512);
            let replica = Replica::open(&all(&[dir.path().to_owned()]), ID, Generation(1001)).unwrap();
            assert_eq!((replica.meta().len, replica.bytes_read()), (len as u64, 0));
        }
        let dir = written(&[], &CRC32C_OF_512[..3]);
        let error = Replica::open(&all(&[dir.path().to_owned()]), ID, Generation(1001)).err().unwrap();
        assert!(error.is_rot(), "the .meta file was cut: {error}");
        // An error of the disk, or a mount that is away, says nothing of the bytes.
        let dir = written(&bytes, &CRC32C_OF_512);
        let directories = all(&[dir.path().to_owned()]);
        let sums = find(&directories, ID).unwrap().unwrap().1;
        std::fs::remove_file(&sums).unwrap();
        std::fs::create_dir(&sums).unwrap();
        let error = Replica::open(&directories, ID, Generation(1001)).err().unwrap();
        assert!(!error.is_rot(), "it cannot be read: {error}");
    }

    #[test]
    fn what_is_not_the_block_is_refused() {
        let dir = written(&[1; 10], &CRC32C_OF_512);
        let directories = all(&[dir.path().to_owned()]);
        let stale = Replica::open(&directories, ID, Generation(1002)).err().unwrap();
        assert!(matches!(stale, StoreError::Stale { got: Generation(1001), .. }), "{stale}");
        let other = BlockId { index: BlockIndex(4), ..ID };
        assert!(matches!(
            Replica::open(&directories, other, Generation(1001)),
            Err(StoreError::NotFound { .. })
        ));
        for head in [[0, 2, 2, 0, 0, 2, 0], [0, 1, 1, 0, 0, 2, 0], [0, 1, 2, 0, 0, 0, 0]] {
            let dir = written(&[1; 10], &head);
            let error = Replica::open(&all(&[dir.path().to_owned()]), ID, Generation(1001)).err().unwrap();
            assert!(!error.is_rot(), "nothing is wrong with the block: {head:?}: {error}");
        }
        let none = Replica::open(&all(&[dir.path().join("none")]), ID, Generation(1001));
        assert!(matches!(none, Err(StoreError::NotFound { .. })));
    }
}
