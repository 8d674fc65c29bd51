//! Some bytes of the blocks of a group: read where they are, or decoded. This process decodes what it reads from DataNodes; or
//! agents decode on the way here, if that brings fewer blocks over the reader's link.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_runtime::Delivery;
use tokio::sync::mpsc;

use crate::blocks::{GroupBlocks, run};
use crate::digest::Running;
use crate::{Agents, Group, HdfsError};

/// What is said when a block turns out to be wrong at its end.
const DELIVERED: &str =
    "; what was delivered of it before is wrong too: kintsu hdfs store repair --deep repairs it";

/// Bytes of blocks, each from the start of the window.
pub(crate) type Parts = BTreeMap<BlockIndex, Vec<u8>>;

/// Reads a group, window by window. What turns out to be unreadable is remembered.
pub(crate) struct GroupReader<'a> {
    blocks: Arc<GroupBlocks>,
    /// Until they fail.
    agents: Option<&'a Agents>,
    /// Blocks that cannot be read, with the reason.
    bad: BTreeMap<BlockIndex, String>,
    /// Why the agents were given up.
    given_up: Option<String>,
    /// Digests of what agents sent of each block, while it comes in order from the first byte.
    sent: BTreeMap<BlockIndex, Option<Running>>,
    /// Whether some bytes were decoded.
    pub degraded: bool,
    /// Whether agents decoded some of them.
    pub by_agents: bool,
}

impl<'a> GroupReader<'a> {
    pub(crate) fn of(group: Group, agents: Option<&'a Agents>) -> Self {
        let (blocks, bad, sent) = (GroupBlocks::of(group), BTreeMap::new(), BTreeMap::new());
        Self { blocks, agents, bad, given_up: None, sent, degraded: false, by_agents: false }
    }

    pub(crate) fn group(&self) -> &Group {
        self.blocks.group()
    }

    /// What went wrong, one line for each block, and one for agents.
    pub(crate) fn causes(self) -> impl Iterator<Item = String> {
        self.bad.into_values().chain(self.given_up)
    }

    /// The bytes `window` of these blocks. Without the blocks that turn out to be unreadable it begins again.
    ///
    /// # Errors
    /// `Parity` when too few blocks are left; `Run` for what is no block's fault; `Plan`.
    pub(crate) async fn read(
        &mut self,
        wanted: &[BlockIndex],
        window: &Range<u64>,
    ) -> Result<Parts, HdfsError> {
        let Group { policy, layout, .. } = self.group();
        if policy.code.w() == 1 {
            return self.read_whole(wanted, window).await;
        }
        // Blocks of sub-blocks are decoded cell by cell.
        let cell = u64::from(layout.cell_bytes);
        let end = window.end.next_multiple_of(cell).min(layout.longest(policy.code.k()));
        let cells = window.start / cell * cell..end;
        let mut parts = self.read_whole(wanted, &cells).await?;
        for part in parts.values_mut() {
            part.drain(..(window.start - cells.start) as usize);
            part.truncate((window.end - window.start) as usize);
        }
        Ok(parts)
    }

    /// The same of a window that can be decoded.
    async fn read_whole(&mut self, wanted: &[BlockIndex], window: &Range<u64>) -> Result<Parts, HdfsError> {
        loop {
            let group = self.blocks.group();
            let view = group.view(NodeId::CLIENT, |index| !self.bad.contains_key(&index));
            let decoded = wanted.iter().any(|index| view.homes[usize::from(index.0)].is_none());
            // A star brings the reader as many blocks as there are data blocks; a chain only those that it wants.
            let k = group.policy.code.k();
            let star = group.expected().filter(|index| usize::from(index.0) < k).count();
            let chain = decoded && wanted.len() < star;
            if let Some(agents) = self.agents.filter(|_| chain) {
                let usable = |index: BlockIndex| !self.bad.contains_key(&index);
                let read = agents.read(group, usable, wanted, window).await;
                match read.and_then(|parts| self.as_recorded(parts, window.start)) {
                    Ok(parts) => {
                        (self.degraded, self.by_agents) = (true, true);
                        return Ok(parts);
                    }
                    Err(HdfsError::Parity(why)) if window.start > 0 => {
                        return Err(HdfsError::Parity(format!("{why}{DELIVERED}")));
                    }
                    Err(error) => {
                        let group = self.blocks.group();
                        tracing::info!("{group}: without agents: {error}");
                        self.given_up = Some(format!("{group}: agents: {error}; read from DataNodes"));
                        self.agents = None;
                        continue;
                    }
                }
            }
            let plan = kintsu_plan::read(&view, wanted, &[]);
            let plan = plan.map_err(|error| unreadable(group, error, &self.bad))?;
            let (places, range) = (wanted.to_vec(), window.clone());
            let take = move |deliveries| Ok(gather(deliveries, &places, range));
            match run(&plan, &view, &self.blocks, (window.start, window.end), take).await {
                Ok(parts) => {
                    self.degraded |= decoded;
                    return Ok(parts);
                }
                Err(HdfsError::Run(fault)) => {
                    let block = fault.block.filter(|block| !self.bad.contains_key(&block.index));
                    let Some(block) = block else { return Err(HdfsError::Run(fault)) };
                    if window.start > 0 && self.blocks.rotten(block.index) {
                        return Err(HdfsError::Parity(format!("{}{DELIVERED}", fault.detail)));
                    }
                    tracing::info!("{group}: without internal block {}: {}", block.index.0, fault.detail);
                    self.bad.insert(block.index, fault.detail.clone());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// What agents sent, if the blocks that end with it are those that were recorded.
    ///
    /// # Errors
    /// `Parity`.
    fn as_recorded(&mut self, parts: Parts, start: u64) -> Result<Parts, HdfsError> {
        let group = self.blocks.group();
        for (index, part) in &parts {
            let Some(recorded) = group.digest(*index) else { continue };
            let (len, kept) = (group.block_bytes(*index), self.sent.entry(*index).or_default());
            let bytes = &part[..part.len().min(len.saturating_sub(start) as usize)];
            let whole = Running::follow(kept, start, bytes, len);
            if let Some(got) = whole.filter(|got| *got != recorded) {
                return Err(HdfsError::Parity(format!(
                    "{group}, block {}: expected the recorded digest {recorded} of what was decoded, got {got}",
                    index.0
                )));
            }
        }
        Ok(parts)
    }
}

/// The delivered bytes of each block from `window.start`.
pub(crate) fn gather(
    mut deliveries: mpsc::Receiver<Delivery>,
    wanted: &[BlockIndex],
    window: Range<u64>,
) -> Parts {
    let len = (window.end - window.start) as usize;
    let mut parts: Parts = wanted.iter().map(|index| (*index, vec![0; len])).collect();
    while let Some(piece) = deliveries.blocking_recv() {
        let at = piece.offset.saturating_sub(window.start) as usize;
        let place = parts.get_mut(&piece.index).and_then(|part| part.get_mut(at..at + piece.bytes.len()));
        if let Some(place) = place {
            place.copy_from_slice(&piece.bytes);
        }
    }
    parts
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
