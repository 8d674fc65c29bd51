//! Decides when a coordinator may delete and repair automatically: a pure state machine.
//!
//! After a start, a coordinator knows where blocks should be, but not yet where they are. It waits until the
//! nodes have reported nearly all placed blocks, or until the nodes have had enough time to come back. While
//! its metadata are older than what agents remember, or are being rebuilt from blocks, it deletes nothing at
//! all. Reads, and repairs that somebody asks for, are never held back.

use std::collections::BTreeMap;

use kintsu_dag::NodeId;

use super::health::GateFacts;

/// How many of a thousand placed blocks must be reported.
const REPORTED_PER_MILLE: u64 = 999;
/// How long the coordinator waits for nodes after a start, in addition to the grace time.
const WAIT_MS: u64 = 30_000;

/// The gate, open or closed.
#[derive(Debug, Clone)]
pub struct Gate {
    /// Blocks placed on the nodes that have not reported since the start.
    awaited: BTreeMap<NodeId, u64>,
    placed: u64,
    wait_ms: u64,
    /// Enough was reported, or enough time has passed.
    open: bool,
    behind: Option<String>,
    rebuilding: bool,
}

/// Something needs metadata that know all that is stored, and these do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untrusted {
    /// What needs them.
    pub what: String,
    /// What they lack, and what operators can do about it.
    pub reasons: Vec<String>,
}

impl Gate {
    /// A gate that is closed until the nodes with these placed blocks have reported. `behind` says why the
    /// metadata count as older than what agents hold, if they do.
    pub fn new(placed: BTreeMap<NodeId, u64>, grace_ms: u64, behind: Option<String>) -> Self {
        let total = placed.values().sum();
        let wait_ms = WAIT_MS.saturating_add(grace_ms);
        let open = placed.is_empty();
        Self { awaited: placed, placed: total, wait_ms, open, behind, rebuilding: false }
    }

    /// A node has reported all its blocks. Returns whether that opened the gate.
    pub fn reported(&mut self, node: NodeId) -> bool {
        self.awaited.remove(&node);
        let missing: u64 = self.awaited.values().sum();
        let most = self.placed.saturating_mul(1000 - REPORTED_PER_MILLE);
        let enough = missing.saturating_mul(1000) <= most && (self.placed > 0 || self.awaited.is_empty());
        enough && !std::mem::replace(&mut self.open, true)
    }

    /// This much time has passed since the start. Returns whether that opened the gate.
    pub fn tick(&mut self, since_start_ms: u64) -> bool {
        self.has_waited(since_start_ms) && !std::mem::replace(&mut self.open, true)
    }

    /// Whether the nodes have had enough time to come back since the start.
    pub fn has_waited(&self, since_start_ms: u64) -> bool {
        since_start_ms >= self.wait_ms
    }

    /// The metadata are older than what an agent remembers.
    pub fn fall_behind(&mut self, why: String) {
        self.behind.get_or_insert(why);
    }

    /// A rebuild of the metadata from blocks has begun or ended.
    pub fn set_rebuilding(&mut self, rebuilding: bool) {
        self.rebuilding = rebuilding;
    }

    /// The metadata were completed from blocks: they do not count as older any more.
    pub fn catch_up(&mut self) {
        (self.behind, self.rebuilding) = (None, false);
    }

    /// Whether metadata are being rebuilt from blocks.
    pub fn is_rebuilding(&self) -> bool {
        self.rebuilding
    }

    /// Whether the metadata count as older than what agents hold.
    #[cfg(test)]
    pub fn is_behind(&self) -> bool {
        self.behind.is_some()
    }

    /// Whether these metadata are neither older than what agents hold nor being rebuilt.
    pub fn is_trusted(&self) -> bool {
        self.behind.is_none() && !self.rebuilding
    }

    /// Refuses `what`, which needs metadata that know all that is stored.
    ///
    /// # Errors
    /// They are older than what agents hold, or are being rebuilt.
    pub fn check_trusted(&self, what: &str) -> Result<(), Untrusted> {
        match self.is_trusted() {
            true => Ok(()),
            false => Err(Untrusted { what: what.to_owned(), reasons: self.reasons() }),
        }
    }

    /// The nodes that hold blocks and have not reported them since the start.
    pub fn unreported(&self) -> impl Iterator<Item = NodeId> {
        self.awaited.keys().copied()
    }

    /// Whether blocks may be deleted, set aside or purged, and whether repairs may start automatically.
    pub fn is_open(&self) -> bool {
        self.open && self.is_trusted()
    }

    /// Whether repairs may start now: those that somebody waits for always may.
    pub fn may_repair(&self, asked: bool) -> bool {
        asked || self.is_open()
    }

    /// The same for the verdict about the cluster.
    pub fn facts(&self) -> GateFacts {
        let missing = || self.awaited.values().sum();
        GateFacts {
            behind: self.behind.clone(),
            rebuilding: self.rebuilding,
            unreported: (!self.open)
                .then(|| (missing(), self.placed, self.awaited.keys().copied().collect())),
        }
    }

    /// What holds the coordinator back, and what operators can do about it.
    pub fn reasons(&self) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(why) = self.behind.as_ref().filter(|_| !self.rebuilding) {
            out.push(format!(
                "{why}. Reads go on, nothing is deleted. Put the newer metadata back; or start the coordinator with \
                 --rebuild, which adds what the blocks describe; or with --accept-older to go on without what is missing"
            ));
        }
        if self.rebuilding {
            out.push("the metadata are being rebuilt from blocks: nothing is deleted until `kintsu rebuild finish` (`kintsu rebuild` shows the progress)".into());
        }
        if !self.open {
            let missing: u64 = self.awaited.values().sum();
            let nodes: Vec<_> = self.awaited.keys().take(8).map(NodeId::to_string).collect();
            let more = if self.awaited.len() > nodes.len() { ", ..." } else { "" };
            out.push(format!(
                "waiting after the start: {missing} of {} placed blocks are not reported yet ({}{more}); until then nothing \
                 is deleted, and blocks are repaired only on request",
                self.placed,
                nodes.join(", ")
            ));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(counts: &[u64], behind: Option<&str>) -> Gate {
        let placed = counts.iter().enumerate().map(|(i, count)| (NodeId(i as u32), *count)).collect();
        Gate::new(placed, 1000, behind.map(str::to_owned))
    }

    #[test]
    fn it_opens_when_nearly_all_blocks_are_reported_and_not_before() {
        let mut gate = gate(&[5000, 5000, 10], None);
        assert!(!gate.is_open() && !gate.may_repair(false) && gate.may_repair(true));
        assert!(!gate.reported(NodeId(0)) && !gate.reported(NodeId(0)));
        assert!(gate.reasons()[0].contains("5010 of 10010"), "{:?}", gate.reasons());
        assert!(gate.reported(NodeId(1)) && gate.is_open());
        assert!(!gate.reported(NodeId(2)) && gate.reasons().is_empty());
    }

    #[test]
    fn nodes_without_blocks_are_waited_for_where_no_block_is_placed() {
        let mut empty = gate(&[0, 0], None);
        assert!(!empty.is_open() && !empty.reported(NodeId(1)));
        assert!(empty.reported(NodeId(0)) && empty.is_open());
        assert!(gate(&[0, 5], None).reported(NodeId(1)), "elsewhere they are not");
    }

    #[test]
    fn it_opens_after_the_wait_and_the_grace() {
        let mut gate = gate(&[10, 10], None);
        assert!(!gate.tick(30_999) && !gate.is_open());
        assert!(gate.tick(31_000) && gate.is_open() && !gate.tick(32_000));
        assert!(super::tests::gate(&[], None).is_open(), "a new cluster waits for nobody");
    }

    #[test]
    fn older_metadata_and_a_rebuild_keep_it_closed() {
        let mut behind = gate(&[1], Some("older"));
        assert!(behind.reported(NodeId(0)) && !behind.is_open() && behind.is_behind());
        assert!(behind.reasons()[0].contains("--accept-older"));
        let (what, reasons) = ("a copy".to_owned(), behind.reasons());
        assert_eq!(behind.check_trusted("a copy"), Err(Untrusted { what, reasons }));
        let mut fresh = gate(&[], None);
        fresh.fall_behind("ahead".into());
        assert!(!fresh.is_open());
        let mut rebuilding = gate(&[], None);
        rebuilding.set_rebuilding(true);
        assert!(!rebuilding.is_open());
        rebuilding.fall_behind("a copy".into());
        assert!(rebuilding.reasons().len() == 1 && rebuilding.reasons()[0].contains("rebuild finish"));
        rebuilding.catch_up();
        assert!(rebuilding.is_open() && !rebuilding.is_rebuilding());
        assert_eq!(rebuilding.check_trusted("a copy"), Ok(()));
    }
}
