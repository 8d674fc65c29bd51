//! Reading a file of an erasure-coding policy, also where internal blocks are missing, rotten or on dead DataNodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_runtime::Delivery;
use tokio::sync::mpsc;

use crate::blocks::{GroupBlocks, run};
use crate::{Group, HdfsError, NameNode};

/// About as many bytes of each block are read at a time; whole cells.
const WINDOW_BYTES: u64 = 4 << 20;

/// What a read did.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Got {
    /// Bytes of the file that were delivered.
    pub bytes: u64,
    /// Block groups that were touched.
    pub groups: u64,
    /// Block groups some bytes of which were decoded.
    pub degraded: u64,
    /// Why, one line for each internal block that could not be read.
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

/// Sends the bytes `range` of a file to `out`, in order. Memory: a few MiB for each data block of a group. If the
/// receiver goes, this ends early without an error.
///
/// # Errors
/// `Plan` when too many internal blocks of a group cannot be read (with the reasons); those of calls; `Unsupported`
/// for files that are not erasure-coded, encrypted files, and policies that Kintsu does not know.
pub async fn get(
    namenode: &NameNode,
    path: &str,
    range: Range<u64>,
    out: &mpsc::Sender<Vec<u8>>,
) -> Result<Got, HdfsError> {
    namenode.check_transfer().await?;
    let status = namenode.file(path).await?.ok_or_else(|| HdfsError::NotFound(path.to_owned()))?;
    let located = namenode.locations(path).await?;
    let mut got = Got::default();
    if located.file_bytes == 0 {
        return Ok(got);
    }
    for group in Group::of(path, &status, &located)? {
        let end = group.offset + group.layout.data_bytes;
        let part = range.start.max(group.offset)..range.end.min(end);
        if part.start < part.end {
            let part = part.start - group.offset..part.end - group.offset;
            if !read_group(group, part, out, &mut got).await? {
                break;
            }
        }
    }
    Ok(got)
}

/// Reads a range of a group; false if nobody wants it any more.
async fn read_group(
    group: Group,
    range: Range<u64>,
    out: &mpsc::Sender<Vec<u8>>,
    got: &mut Got,
) -> Result<bool, HdfsError> {
    let (k, cell) = (group.policy.code.k(), u64::from(group.layout.cell_bytes));
    let row = cell * k as u64;
    let rows = (WINDOW_BYTES / cell).max(1);
    let blocks = GroupBlocks::of(group);
    let (mut bad, mut degraded, mut at) = (BTreeMap::new(), false, range.start);
    got.groups += 1;
    while at < range.end {
        let end = ((at / row + rows) * row).min(range.end);
        let (bytes, decoded) = read_window(&blocks, at..end, &mut bad).await?;
        degraded |= decoded;
        got.bytes += bytes.len() as u64;
        at = end;
        if out.send(bytes).await.is_err() {
            return Ok(false);
        }
    }
    got.degraded += u64::from(degraded);
    got.causes.extend(bad.into_values());
    Ok(true)
}

/// Reads a range of a group that lies in a few rows of cells. Blocks that turn out to be unreadable are added to `bad`
/// with the reason, and the range is read again without them.
async fn read_window(
    blocks: &Arc<GroupBlocks>,
    range: Range<u64>,
    bad: &mut BTreeMap<BlockIndex, String>,
) -> Result<(Vec<u8>, bool), HdfsError> {
    let group = blocks.group();
    let (k, layout) = (group.policy.code.k(), group.layout);
    let windows = layout.block_windows(k, range.clone());
    let wanted: Vec<BlockIndex> = windows.iter().map(|(index, _)| *index).collect();
    let start = windows.iter().map(|(_, part)| part.start).min().unwrap_or(0);
    let end = windows.iter().map(|(_, part)| part.end).max().unwrap_or(0);
    loop {
        let view = group.view(NodeId::CLIENT, |index| !bad.contains_key(&index));
        let decoded = wanted.iter().any(|index| view.homes[usize::from(index.0)].is_none());
        let plan = kintsu_plan::read(&view, &wanted, &[]).map_err(|error| unreadable(group, error, bad))?;
        let places = wanted.clone();
        let gather = move |deliveries| gather(deliveries, &places, start..end);
        match run(&plan, &view, blocks, (start, end), gather).await {
            Ok(parts) => {
                let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
                for extent in layout.locate(k, range) {
                    let part = parts.get(&extent.block).map(Vec::as_slice).unwrap_or_default();
                    let inside = (extent.block_range.start - start) as usize
                        ..(extent.block_range.end - start) as usize;
                    bytes.extend_from_slice(part.get(inside).unwrap_or_default());
                }
                return Ok((bytes, decoded));
            }
            Err(HdfsError::Run(fault)) => {
                let block = fault.block.filter(|block| !bad.contains_key(&block.index));
                let Some(block) = block else { return Err(HdfsError::Run(fault)) };
                tracing::info!("{group}: without internal block {}: {}", block.index.0, fault.detail);
                bad.insert(block.index, fault.detail.clone());
            }
            Err(error) => return Err(error),
        }
    }
}

/// The delivered bytes of each block from `window.start`.
fn gather(
    mut deliveries: mpsc::Receiver<Delivery>,
    wanted: &[BlockIndex],
    window: Range<u64>,
) -> Result<BTreeMap<BlockIndex, Vec<u8>>, HdfsError> {
    let len = (window.end - window.start) as usize;
    let mut parts: BTreeMap<BlockIndex, Vec<u8>> =
        wanted.iter().map(|index| (*index, vec![0; len])).collect();
    while let Some(piece) = deliveries.blocking_recv() {
        let at = piece.offset.saturating_sub(window.start) as usize;
        let place = parts.get_mut(&piece.index).and_then(|part| part.get_mut(at..at + piece.bytes.len()));
        if let Some(place) = place {
            place.copy_from_slice(&piece.bytes);
        }
    }
    Ok(parts)
}

/// Too few internal blocks: the plan's error, with the reasons.
fn unreadable(group: &Group, error: kintsu_plan::PlanError, bad: &BTreeMap<BlockIndex, String>) -> HdfsError {
    let missing: BTreeSet<u8> = group.missing().into_iter().map(|index| index.0).collect();
    let causes: Vec<&str> = bad.values().map(String::as_str).collect();
    HdfsError::Parity(format!(
        "{group} cannot be read: {error}; missing for the NameNode: {missing:?}; unreadable: [{}]",
        causes.join("; ")
    ))
}
