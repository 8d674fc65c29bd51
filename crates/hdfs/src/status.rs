//! What is at risk: groups with missing internal blocks, and groups with blocks on DataNodes that have gone silent.
//!
//! Everything comes from listings, so whoever may read the files may ask. Silence is measured on the NameNode's own
//! clock ([`Heard`]): how much older the last heartbeat of a DataNode is than the newest one that was seen.

use std::collections::{BTreeMap, BTreeSet};

use crate::proto::names::DatanodeInfo;
use crate::walk::Walk;
use crate::{Group, HdfsError, NameNode, notes};

/// A DataNode that was not heard for this long, while others were, is silent. Heartbeats come every 3 s by default.
pub const SILENT_MS: u64 = 10_000;

/// The state of the groups below a path.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Status {
    /// Files of erasure-coding policies.
    pub files: u64,
    /// Their complete block groups.
    pub groups: u64,
    /// Bytes of data in them.
    pub bytes: u64,
    /// Replicated files, which Kintsu leaves alone.
    pub replicated: u64,
    /// Groups that have lost internal blocks or may soon, those that bear the fewest further losses first.
    pub at_risk: Vec<AtRisk>,
    /// DataNodes that are silent: `host:port`, and for how many milliseconds.
    pub silent: BTreeMap<String, u64>,
    /// What could not be judged, and why.
    pub skipped: Vec<String>,
    /// What an operator should know of this HDFS, with which everything works.
    pub notes: Vec<String>,
}

/// A group that is not whole.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AtRisk {
    /// Its file.
    pub path: String,
    /// Its id in HDFS.
    pub group: i64,
    /// Its policy.
    pub policy: String,
    /// Indices that the NameNode reports missing, also those on DataNodes in maintenance.
    pub missing: Vec<u8>,
    /// Indices that only silent DataNodes have.
    pub silent: Vec<u8>,
    /// Whether the NameNode calls it corrupt: then it lists bad copies too, which are in neither of these.
    pub corrupt: bool,
    /// How many more losses it bears, without the blocks on silent DataNodes; `None`: bytes are lost.
    pub spare: Option<usize>,
}

impl Status {
    /// Whether a group cannot be read any more.
    pub fn lost(&self) -> usize {
        self.at_risk.iter().filter(|group| group.spare.is_none()).count()
    }
}

/// Lists the groups below `root` and judges them.
///
/// # Errors
/// `NotFound`, `Denied` for the root; those of calls.
pub async fn status(namenode: &NameNode, root: &str) -> Result<Status, HdfsError> {
    let (mut status, mut groups) = (Status::default(), Vec::new());
    let mut walk = Walk::from(namenode, root);
    while let Some(files) = walk.next().await? {
        for (path, file) in files {
            let Some(blocks) = &file.blocks else { continue };
            if file.policy.is_none() && blocks.policy.is_none() {
                status.replicated += 1;
                continue;
            }
            status.files += 1;
            match Group::of(&path, &file, blocks) {
                Ok(found) => groups.extend(found),
                Err(error) => status.skipped.push(error.to_string()),
            }
        }
    }
    let holders = groups.iter().flat_map(|group| group.holders.values().flatten());
    status.notes.extend(notes::racks(holders.map(|holder| &*holder.datanode)));
    status.skipped.append(&mut walk.skipped);
    status.silent = silent(&groups);
    for group in &groups {
        status.groups += 1;
        status.bytes += group.layout.data_bytes;
        status.at_risk.extend(at_risk(group, &status.silent));
    }
    if status.at_risk.iter().any(|group| !group.missing.is_empty()) {
        status.notes.extend(maintenance(namenode).await?);
    }
    status.at_risk.sort_by(|a, b| (a.spare, &a.path, a.group).cmp(&(b.spare, &b.path, b.group)));
    Ok(status)
}

/// What is to be said of DataNodes in maintenance where blocks are missing.
///
/// # Errors
/// Those of calls.
async fn maintenance(namenode: &NameNode) -> Result<Option<String>, HdfsError> {
    match namenode.in_maintenance().await {
        Ok(nodes) => Ok(notes::maintenance(&nodes)),
        Err(HdfsError::Denied { .. }) => {
            let unknown = "missing blocks may be on DataNodes in maintenance; only superusers of HDFS may ask which ones are";
            Ok(Some(unknown.into()))
        }
        Err(error) => Err(error),
    }
}

/// The name of a DataNode in reports.
pub(crate) fn name(datanode: &DatanodeInfo) -> String {
    format!("{}:{}", datanode.id.host, datanode.id.transfer_port)
}

/// When the NameNode last heard of any DataNode: by its clock that is never set, if it tells that, else by the time of day.
pub(crate) struct Heard {
    monotonic: bool,
    newest: u64,
}

impl Heard {
    /// By what it says of these DataNodes.
    pub(crate) fn of<'a>(datanodes: impl Iterator<Item = &'a DatanodeInfo> + Clone) -> Self {
        let monotonic = datanodes.clone().any(|node| node.last_update_monotonic.is_some_and(|at| at > 0));
        let of_any = Self { monotonic, newest: 0 };
        let newest = datanodes.map(|node| of_any.at(node)).max().unwrap_or(0);
        Self { newest, ..of_any }
    }

    fn at(&self, datanode: &DatanodeInfo) -> u64 {
        let at = if self.monotonic { datanode.last_update_monotonic } else { datanode.last_update };
        at.unwrap_or(0)
    }

    /// For how many milliseconds it has not heard this one then.
    pub(crate) fn silence_ms(&self, datanode: &DatanodeInfo) -> u64 {
        self.newest.saturating_sub(self.at(datanode))
    }
}

/// The silent DataNodes among the holders of these groups.
pub(crate) fn silent(groups: &[Group]) -> BTreeMap<String, u64> {
    let holders = groups.iter().flat_map(|group| group.holders.values().flatten());
    let datanodes = holders.map(|holder| &*holder.datanode);
    let heard = Heard::of(datanodes.clone());
    // Of several listings the newest counts.
    let mut silences: BTreeMap<String, u64> = BTreeMap::new();
    for datanode in datanodes {
        let silence = silences.entry(name(datanode)).or_insert(u64::MAX);
        *silence = heard.silence_ms(datanode).min(*silence);
    }
    silences.retain(|_, silence| *silence >= SILENT_MS);
    silences
}

fn at_risk(group: &Group, silent: &BTreeMap<String, u64>) -> Option<AtRisk> {
    let gone = group.missing();
    let only_silent: Vec<_> = group
        .holders
        .iter()
        .filter(|(_, holders)| holders.iter().all(|holder| silent.contains_key(&name(&holder.datanode))))
        .map(|(index, _)| *index)
        .filter(|index| group.block_bytes(*index) > 0)
        .collect();
    if gone.is_empty() && only_silent.is_empty() && !group.corrupt {
        return None;
    }
    let mut without = group.clone();
    without.holders.retain(|index, _| !only_silent.contains(index));
    let numbers = |indices: &[kintsu_dag::BlockIndex]| -> Vec<u8> {
        indices.iter().map(|index| index.0).collect::<BTreeSet<u8>>().into_iter().collect()
    };
    Some(AtRisk {
        path: group.path.clone(),
        group: group.number(),
        policy: group.policy.name.clone(),
        missing: numbers(&gone),
        silent: numbers(&only_silent),
        corrupt: group.corrupt,
        spare: without.spare(),
    })
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::names::{
        DatanodeId, ExtendedBlock, FileStatus, Listing, ListingPage, LocatedBlock, LocatedBlocks, Policy,
    };

    #[test]
    fn silence_is_measured_by_the_clock_that_is_never_set() {
        let datanode = |day, monotonic| DatanodeInfo {
            last_update: day,
            last_update_monotonic: monotonic,
            ..DatanodeInfo::default()
        };
        let silences = |nodes: [DatanodeInfo; 2]| {
            let heard = Heard::of(nodes.iter());
            nodes.map(|node| heard.silence_ms(&node))
        };
        // The time of day was put back by an hour between the two heartbeats, and forward.
        for day in [1, 7_200_000] {
            let nodes = [datanode(Some(3_600_000), Some(5_000)), datanode(Some(day), Some(6_000))];
            assert_eq!(silences(nodes), [1_000, 0]);
        }
        // 0 is what a NameNode says that never heard it, and one that does not tell.
        assert_eq!(silences([datanode(Some(90), Some(0)), datanode(Some(50), None)]), [0, 40]);
        assert_eq!(silences([datanode(Some(90), Some(0)), datanode(Some(50), Some(20_000))]), [20_000, 0]);
    }

    #[test]
    fn a_group_that_hdfs_calls_corrupt_is_lost_whatever_is_listed() {
        use crate::group::tests::{datanode, held};

        let group = |indices: &[u8], state| {
            let at = |index: u8| datanode(([10, 0, 0, 1], u16::from(index) + 1).into());
            let leaves = |index: u8| DatanodeInfo { admin_state: Some(state), ..at(index) };
            let node = |index: &u8| (*index, if *index == 4 { leaves(*index) } else { at(*index) });
            Group { corrupt: true, ..held(indices.iter().map(node)) }
        };
        let spare = |indices: &[u8], state| at_risk(&group(indices, state), &BTreeMap::new()).unwrap().spare;
        assert_eq!(spare(&[0, 3, 4], 0), None, "one of the three that are listed is bad");
        assert_eq!(spare(&[0, 1, 2, 3, 4], 0), None);
        assert_eq!(
            spare(&[0, 1, 2, 3, 4], 1),
            Some(2),
            "HDFS does not count the one that is being decommissioned"
        );
    }

    #[tokio::test]
    async fn it_is_said_where_missing_blocks_may_be() {
        use crate::group::tests::{datanode, listed};
        use crate::proto::names::Datanodes;

        let mut away = datanode(([10, 0, 0, 1], 1).into());
        let (file, blocks) = listed((1..5).map(|index| (index, away.clone())));
        let file = FileStatus { kind: 2, policy: blocks.policy.clone(), blocks: Some(blocks), ..file };
        let page = Listing { page: Some(ListingPage { entries: vec![file], remaining: 0 }) };
        for (state, notes) in [(0, 0), (3, 1), (4, 1)] {
            away.admin_state = Some(state);
            let report = Datanodes { datanodes: vec![away.clone()] }.encode_to_vec();
            let namenode =
                crate::fake::namenode(&[("getListing", page.encode_to_vec()), ("getDatanodeReport", report)]);
            let found = status(&namenode, "/").await.unwrap();
            assert_eq!((found.at_risk[0].missing.len(), found.notes.len()), (1, notes), "{found:?}");
        }
    }

    #[tokio::test]
    async fn it_is_said_that_racks_do_not_count_where_hdfs_knows_none() {
        for (rack, notes) in [("/default-rack", 1), ("/rack1", 0)] {
            let datanode = |transfer_port| {
                let id = DatanodeId { ip: "10.0.0.1".into(), transfer_port, ..DatanodeId::default() };
                DatanodeInfo { id, location: Some(rack.into()), ..DatanodeInfo::default() }
            };
            // XOR-2-1-1024k.
            let policy = Some(Policy { id: 4, ..Policy::default() });
            let (pool, id) = ("BP".to_owned(), -16i64 as u64);
            let group = LocatedBlock {
                block: ExtendedBlock { pool, id, generation: 1, bytes: Some(2 << 20) },
                locations: [1, 2, 3].map(datanode).to_vec(),
                indices: Some(vec![0, 1, 2]),
                ..LocatedBlock::default()
            };
            let blocks = LocatedBlocks {
                blocks: vec![group],
                policy: policy.clone(),
                last_complete: true,
                ..LocatedBlocks::default()
            };
            let file = FileStatus {
                kind: 2,
                name: "f".into(),
                block_bytes: Some(1 << 20),
                blocks: Some(blocks),
                policy,
                ..FileStatus::default()
            };
            let page = Listing { page: Some(ListingPage { entries: vec![file], remaining: 0 }) };
            let namenode = crate::fake::namenode(&[("getListing", page.encode_to_vec())]);
            let found = status(&namenode, "/").await.unwrap();
            assert_eq!((found.groups, found.at_risk.len(), found.notes.len()), (1, 0, notes), "{found:?}");
        }
    }
}
