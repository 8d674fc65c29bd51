//! What is recorded of an object: one small file in its folder, from which all else follows. It says which code, how the bytes lie,
//! and the digest of each block; not where blocks are, because the NameNode knows that.
//!
//! The file is a line that names the format and the digest of the rest, and the rest is JSON. A record whose digest is
//! another one, or that contradicts itself, is refused.

use std::sync::Arc;

use kintsu_code::{Code, Definition, USER};
use kintsu_dag::BlockIndex;
use kintsu_plan::{Division, Layout, LayoutKind};
use kintsu_store::Digest;
use serde::{Deserialize, Serialize};

use crate::HdfsError;

/// What the file begins with, before the digest of the rest.
const HEAD: &str = "kintsu-hdfs-object 1 ";

/// The longest record that is read.
pub(crate) const MOST_BYTES: u64 = 256 << 20;

/// The record of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What the names of its blocks' files have in common: another one each time that the object is written.
    pub version: String,
    /// The name of its code.
    pub code: String,
    /// The code as data, if it is not built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Box<Definition>>,
    /// Striped: all blocks are in files of Kintsu's own. Contiguous: the data blocks are those of a file of HDFS.
    pub kind: LayoutKind,
    /// Length of the object.
    pub bytes: u64,
    /// The largest block.
    pub block_bytes: u64,
    /// The unit of striping, and of coding with sub-blocks.
    pub cell_bytes: u32,
    /// The file with the data blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The digests of the blocks of each stripe in hex; empty for a block without bytes.
    pub digests: Vec<Vec<String>>,
}

/// A file of HDFS that was encoded where it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// Its path when it was encoded.
    pub path: String,
    /// Its inode, which stays the same under other names.
    pub file_id: u64,
    /// Id and generation stamp of each block. When they are others, the file was changed.
    pub blocks: Vec<(u64, u64)>,
}

/// A record that was checked, and what follows from it.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub record: Record,
    pub code: Arc<dyn Code>,
    /// The inode of the file that it was read from; 0 if it was not.
    pub file_id: u64,
}

impl Record {
    /// Its code as it is recorded: by name, or as data.
    ///
    /// # Errors
    /// `Code` for a code that cannot be described.
    pub(crate) fn code_of(code: &dyn Code) -> Result<(String, Option<Box<Definition>>), HdfsError> {
        let name = code.name().to_owned();
        let own = name.starts_with(USER).then(|| Definition::of(code, name.clone()).map(Box::new));
        Ok((name, own.transpose()?))
    }

    /// The record as a file.
    ///
    /// # Errors
    /// `Io` for what JSON cannot say.
    pub(crate) fn to_file(&self) -> Result<Vec<u8>, HdfsError> {
        let json = serde_json::to_vec(self).map_err(|e| HdfsError::io("a record", e.into()))?;
        Ok([format!("{HEAD}{}\n", Digest::of_bytes(&json)).as_bytes(), &json].concat())
    }
}

/// The file of a record of which this is the JSON.
#[cfg(fuzzing)]
pub(crate) fn record_of_json(json: &[u8]) -> Vec<u8> {
    [format!("{HEAD}{}\n", Digest::of_bytes(json)).as_bytes(), json].concat()
}

impl Known {
    /// Reads a file that [`Record::to_file`] made. `path` is for errors.
    ///
    /// # Errors
    /// `Unsupported` for what is no record, or contradicts itself; `Code` for a code that does not hold.
    pub(crate) fn in_file(path: &str, file: &[u8]) -> Result<Self, HdfsError> {
        let strange = |expected: &str, got: String| HdfsError::Unsupported {
            what: path.to_owned(),
            expected: expected.to_owned(),
            got,
        };
        let end = file.iter().position(|byte| *byte == b'\n').unwrap_or(file.len());
        let (head, rest) = file.split_at(end);
        let head = String::from_utf8_lossy(head);
        let Some(digest) = head.strip_prefix(HEAD) else {
            let start: String = head.chars().take(40).collect();
            return Err(strange(
                "the record of an object of Kintsu",
                format!("a file that begins with {start:?}"),
            ));
        };
        let json = rest.strip_prefix(b"\n").unwrap_or_default();
        let got = Digest::of_bytes(json).to_string();
        if got != digest {
            return Err(strange(&format!("a record with digest {digest}"), format!("one with {got}")));
        }
        let record: Record = serde_json::from_slice(json)
            .map_err(|e| strange("a record of this version of Kintsu", format!("{e}")))?;
        let known = Self::of(path, record)?;
        for (stripe, (_, layout)) in known.stripes()?.into_iter().enumerate() {
            for index in (0..known.code.n()).map(|i| BlockIndex(i as u8)) {
                let stored = layout.block_len(known.code.k(), index) > 0;
                if stored && known.digest(stripe, index).is_none() {
                    let got = format!("none of stripe {stripe}, block {}", index.0);
                    return Err(strange("a record with the digest of each block", got));
                }
            }
        }
        Ok(known)
    }

    /// Checks a record.
    ///
    /// # Errors
    /// As [`Known::in_file`].
    pub(crate) fn of(path: &str, record: Record) -> Result<Self, HdfsError> {
        let code = match &record.definition {
            Some(definition) => definition.prove()?,
            None => kintsu_code::parse(&record.code)?,
        };
        let known = Self { record, code, file_id: 0 };
        let Record { kind, bytes, block_bytes, cell_bytes, .. } = known.record;
        // Before anything is as large as a record says.
        let stripes = division(&*known.code, kind, bytes, block_bytes, cell_bytes)?.count();
        let (n, listed) = (known.code.n(), &known.record.digests);
        let whole = listed.len() as u64 == stripes && listed.iter().all(|digests| digests.len() == n);
        let blocks: u64 = known.record.bytes.div_ceil(known.record.block_bytes.max(1));
        let source = known.record.source.as_ref();
        let named = source.is_none_or(|source| source.blocks.len() as u64 == blocks);
        let kind = (known.record.kind == LayoutKind::Contiguous) == source.is_some();
        if !(whole && named && kind) {
            return Err(HdfsError::Unsupported {
                what: format!("record {path}"),
                expected: format!("{n} digests for each of {stripes} stripes, and their blocks"),
                got: "others".into(),
            });
        }
        Ok(known)
    }

    /// Offset and layout of each stripe.
    ///
    /// # Errors
    /// `Plan` for sizes that do not fit the code.
    pub(crate) fn stripes(&self) -> Result<Vec<(u64, Layout)>, HdfsError> {
        let Record { kind, bytes, block_bytes, cell_bytes, .. } = self.record;
        stripes(&*self.code, kind, bytes, block_bytes, cell_bytes)
    }

    /// The digest of a block; `None` for a block without bytes.
    pub(crate) fn digest(&self, stripe: usize, index: BlockIndex) -> Option<Digest> {
        let text = self.record.digests.get(stripe)?.get(usize::from(index.0))?;
        let value = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32)?;
        Some(Digest(value.to_be_bytes()))
    }
}

/// Offset and layout of each stripe of an object. Unlike Kintsu's own contiguous objects the last stripe of a file has blocks of the
/// file's full size, because they are there already.
///
/// # Errors
/// `Plan` for sizes that do not fit the code.
pub(crate) fn stripes(
    code: &dyn Code,
    kind: LayoutKind,
    bytes: u64,
    block_bytes: u64,
    cell_bytes: u32,
) -> Result<Vec<(u64, Layout)>, HdfsError> {
    let division = division(code, kind, bytes, block_bytes, cell_bytes)?;
    let whole = |(offset, layout): (u64, Layout)| (offset, Layout { block_bytes, ..layout });
    Ok((0..division.count()).map(|i| whole(division.stripe(i))).collect())
}

fn division(
    code: &dyn Code,
    kind: LayoutKind,
    bytes: u64,
    block_bytes: u64,
    cell_bytes: u32,
) -> Result<Division, HdfsError> {
    Ok(Division::new(bytes, code.k(), code.w(), kind, block_bytes, cell_bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(code: &str, bytes: u64) -> Record {
        let parsed = kintsu_code::parse(code).unwrap();
        let (block_bytes, cell_bytes) = (1 << 20, 128 << 10);
        let stripes = stripes(&*parsed, LayoutKind::Striped, bytes, block_bytes, cell_bytes).unwrap();
        let digest = |layout: &Layout, i: usize| match layout.block_len(parsed.k(), BlockIndex(i as u8)) {
            0 => String::new(),
            _ => Digest::of_bytes(&[i as u8]).to_string(),
        };
        let digests = stripes.iter().map(|(_, layout)| (0..parsed.n()).map(|i| digest(layout, i)).collect());
        Record {
            version: "v".into(),
            code: code.into(),
            definition: None,
            kind: LayoutKind::Striped,
            bytes,
            block_bytes,
            cell_bytes,
            source: None,
            digests: digests.collect(),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_a_changed_one_is_refused() {
        let record = record("rs:n=5,k=3", 4 << 20);
        let file = record.to_file().unwrap();
        let known = Known::in_file("/x", &file).unwrap();
        assert_eq!(known.record, record);
        assert_eq!(known.digest(0, BlockIndex(4)), Some(Digest::of_bytes(&[4])));
        assert_eq!(
            known.digest(1, BlockIndex(2)),
            Some(Digest::of_bytes(&[2])),
            "all k blocks share a short stripe"
        );
        assert_eq!(known.digest(2, BlockIndex(0)), None);
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert!(Known::in_file("/x", &changed).is_err(), "byte {at}");
        }
        for cut in [0, 1, HEAD.len(), file.len() - 1] {
            assert!(Known::in_file("/x", &file[..cut]).is_err(), "{cut} bytes");
        }
    }

    #[test]
    fn a_record_that_contradicts_itself_is_refused() {
        let sound = record("rs:n=5,k=3", 4 << 20);
        let changes: [fn(&mut Record); 7] = [
            |r| r.code = "rs:n=6,k=3".into(),
            |r| r.code = "nonsense".into(),
            |r| r.bytes <<= 3,
            |r| r.bytes = u64::MAX >> 2,
            |r| r.cell_bytes = 0,
            |r| r.kind = LayoutKind::Contiguous,
            |r| _ = r.digests.pop(),
        ];
        assert!(Known::of("/x", sound.clone()).is_ok());
        for change in changes {
            let mut record = sound.clone();
            change(&mut record);
            assert!(Known::of("/x", record.clone()).is_err(), "{record:?}");
        }
    }

    #[test]
    fn the_last_stripe_of_a_file_has_blocks_of_full_size() {
        let code = kintsu_code::parse("rs:n=5,k=3").unwrap();
        let all = stripes(&*code, LayoutKind::Contiguous, (4 << 20) + 5, 1 << 20, 1 << 20).unwrap();
        let lens = |i: usize| -> Vec<u64> { (0..5).map(|b| all[i].1.block_len(3, BlockIndex(b))).collect() };
        assert_eq!((all.len(), lens(0)), (2, vec![1 << 20; 5]));
        assert_eq!(lens(1), [1 << 20, 5, 0, 1 << 20, 1 << 20]);
    }
}
