//! Reading a file of an erasure-coding policy, or one internal block, also where internal blocks are missing, rotten or on dead
//! DataNodes.

use std::ops::Range;

use kintsu_dag::BlockIndex;
use kintsu_plan::LayoutKind;
use tokio::sync::mpsc;

use crate::window::GroupReader;
use crate::{Agents, Group, HdfsError, NameNode};

/// About as many bytes of each block are read at a time; whole cells.
const WINDOW_BYTES: u64 = 4 << 20;

/// As many bytes of a single block are read at a time.
const BLOCK_WINDOW_BYTES: u64 = 32 << 20;

/// What a read did.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Got {
    /// Bytes of the file that were delivered.
    pub bytes: u64,
    /// Block groups that were touched.
    pub groups: u64,
    /// Block groups some bytes of which were decoded.
    pub degraded: u64,
    /// Those of them for which agents did so.
    pub by_agents: u64,
    /// Why, one line for each internal block that could not be read, and for agents that failed.
    pub causes: Vec<String>,
}

/// The length of a file.
///
/// # Errors
/// `NotFound`, those of calls.
pub async fn file_bytes(namenode: &NameNode, path: &str) -> Result<u64, HdfsError> {
    match namenode.file(path).await? {
        Some(status) if status.kind == 2 => Ok(status.bytes),
        Some(_) => Err(HdfsError::Unsupported {
            what: path.to_owned(),
            expected: "a file".into(),
            got: "a folder".into(),
        }),
        None => Err(HdfsError::NotFound(path.to_owned())),
    }
}

/// Sends the bytes `range` of a file to `out`, in order. Agents decode lost blocks where that brings less over the reader's link;
/// if they fail, DataNodes are read instead. Memory: a few MiB for each data block of a group. If the receiver goes, this ends
/// early without an error.
///
/// # Errors
/// `Plan` when too many internal blocks of a group cannot be read (with the reasons); those of calls; `Unsupported`
/// for files that are not erasure-coded, encrypted files, and policies that Kintsu does not know.
pub async fn get(
    namenode: &NameNode,
    path: &str,
    range: Range<u64>,
    agents: Option<&Agents>,
    out: &mpsc::Sender<Vec<u8>>,
) -> Result<Got, HdfsError> {
    get_of(groups(namenode, path).await?, range, agents, out).await
}

/// The same of groups that are known.
pub(crate) async fn get_of(
    groups: Vec<Group>,
    range: Range<u64>,
    agents: Option<&Agents>,
    out: &mpsc::Sender<Vec<u8>>,
) -> Result<Got, HdfsError> {
    let mut got = Got::default();
    for group in groups {
        let end = group.offset + group.layout.data_bytes;
        let part = range.start.max(group.offset)..range.end.min(end);
        if part.start < part.end {
            let part = part.start - group.offset..part.end - group.offset;
            if !read_group(GroupReader::of(group, agents), part, out, &mut got).await? {
                break;
            }
        }
    }
    Ok(got)
}

/// The groups of a file.
async fn groups(namenode: &NameNode, path: &str) -> Result<Vec<Group>, HdfsError> {
    namenode.check_transfer().await?;
    let status = namenode.file(path).await?.ok_or_else(|| HdfsError::NotFound(path.to_owned()))?;
    let located = namenode.locations(path).await?;
    if located.file_bytes == 0 {
        return Ok(Vec::new());
    }
    if located.encryption.is_some() {
        return Err(HdfsError::Unsupported {
            what: path.to_owned(),
            expected: "a file outside encryption zones, to read it".into(),
            got: "an encrypted one".into(),
        });
    }
    Group::of(path, &status, &located)
}

/// Sends an internal block of a file to `out`, in order; `block` is its id in HDFS. Agents, memory and receivers as for [`get()`].
///
/// # Errors
/// `Unsupported` if the file has no such block; else as [`get()`].
pub async fn get_block(
    namenode: &NameNode,
    path: &str,
    block: i64,
    agents: Option<&Agents>,
    out: &mpsc::Sender<Vec<u8>>,
) -> Result<Got, HdfsError> {
    let groups = groups(namenode, path).await?;
    let place = |group: &Group| group.expected().find(|index| group.block(*index).id as i64 == block);
    let found = groups.into_iter().find_map(|group| Some((place(&group)?, group)));
    let (index, group) = found.ok_or_else(|| HdfsError::Unsupported {
        what: path.to_owned(),
        expected: "the id of an internal block with bytes, as hdfs fsck -files -blocks -locations lists them"
            .into(),
        got: format!("blk_{block}"),
    })?;
    let (bytes, mut at) = (group.block_bytes(index), 0);
    let (mut reader, mut got) = (GroupReader::of(group, agents), Got::default());
    while at < bytes {
        let window = at..(at + BLOCK_WINDOW_BYTES).min(bytes);
        at = window.end;
        let mut parts = reader.read(&[index], &window).await?;
        let part = parts.remove(&index).unwrap_or_default();
        got.bytes += part.len() as u64;
        if out.send(part).await.is_err() {
            break;
        }
    }
    got.add(reader);
    Ok(got)
}

impl Got {
    /// A group was read.
    fn add(&mut self, reader: GroupReader<'_>) {
        self.groups += 1;
        self.degraded += u64::from(reader.degraded);
        self.by_agents += u64::from(reader.by_agents);
        self.causes.extend(reader.causes());
    }
}

/// Reads a range of a group; false if nobody wants it any more.
async fn read_group(
    mut reader: GroupReader<'_>,
    range: Range<u64>,
    out: &mpsc::Sender<Vec<u8>>,
    got: &mut Got,
) -> Result<bool, HdfsError> {
    let group = reader.group();
    let (k, layout) = (group.policy.code.k() as u64, group.layout);
    let cell = u64::from(layout.cell_bytes);
    // Whole rows of cells; or a piece of one block.
    let piece = match layout.kind {
        LayoutKind::Striped => (WINDOW_BYTES / cell).max(1) * cell * k,
        LayoutKind::Contiguous => WINDOW_BYTES,
    };
    let (mut at, mut wanted) = (range.start, true);
    while wanted && at < range.end {
        let end = match layout.kind {
            LayoutKind::Striped => (at / (cell * k)) * cell * k + piece,
            LayoutKind::Contiguous => (at + piece).min((at / layout.block_bytes + 1) * layout.block_bytes),
        };
        let end = end.min(range.end);
        let bytes = read_window(&mut reader, at..end).await?;
        got.bytes += bytes.len() as u64;
        at = end;
        wanted = out.send(bytes).await.is_ok();
    }
    got.add(reader);
    Ok(wanted)
}

/// Reads a range of a group that lies in a few rows of cells.
async fn read_window(reader: &mut GroupReader<'_>, range: Range<u64>) -> Result<Vec<u8>, HdfsError> {
    let (k, layout) = (reader.group().policy.code.k(), reader.group().layout);
    let windows = layout.block_windows(k, range.clone());
    let wanted: Vec<BlockIndex> = windows.iter().map(|(index, _)| *index).collect();
    let start = windows.iter().map(|(_, part)| part.start).min().unwrap_or(0);
    let end = windows.iter().map(|(_, part)| part.end).max().unwrap_or(0);
    let parts = reader.read(&wanted, &(start..end)).await?;
    let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
    for extent in layout.locate(k, range) {
        let part = parts.get(&extent.block).map(Vec::as_slice).unwrap_or_default();
        let inside = (extent.block_range.start - start) as usize..(extent.block_range.end - start) as usize;
        bytes.extend_from_slice(part.get(inside).unwrap_or_default());
    }
    Ok(bytes)
}
