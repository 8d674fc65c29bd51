//! Which DataNodes are gone, long before HDFS says so: not heard by the NameNode for ten seconds while others were, or refusing
//! connections twice, a second apart; and those that it calls dead, if nobody looked before. And which internal blocks are lost with them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kintsu_dag::BlockIndex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::maintenance::Resting;
use crate::proto::names::DatanodeInfo;
use crate::status::{Heard, SILENT_MS};
use crate::{Group, HdfsError, NameNode};

/// Pause between two looks.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// A DataNode that was not heard for this long while others were is gone.
const SILENT: Duration = Duration::from_millis(SILENT_MS);

/// Connections that a DataNode refused one after the other before it counts as gone.
const REFUSALS: u32 = 2;

/// How long a DataNode may take to accept a connection that only tests it.
const PROBE: Duration = Duration::from_millis(500);

/// DataNodes by address that are gone, with the reason.
pub(crate) type Gone = BTreeMap<String, String>;

/// What is remembered between looks.
#[derive(Default)]
pub(crate) struct Vigil {
    /// Connections that each DataNode refused in a row.
    refused: BTreeMap<String, u32>,
    /// The ids of those that the NameNode counted as live at the last look.
    live: BTreeSet<String>,
    gone: Gone,
    /// The addresses of those that were in maintenance.
    resting: BTreeSet<String>,
}

/// What a look saw.
#[derive(Default)]
pub(crate) struct Sight {
    /// The DataNodes that the NameNode counts as live.
    pub live: Vec<DatanodeInfo>,
    /// Those in maintenance, or on their way there, alive or not.
    pub maintenance: Vec<DatanodeInfo>,
    /// All that are gone.
    pub gone: Gone,
    /// Those of them that were there at the last look.
    pub left: Gone,
    /// Those that were gone at the last look, and are not now.
    pub back: Vec<String>,
    /// What an operator should know of maintenance that began or ended.
    pub notes: Vec<String>,
}

impl Vigil {
    /// Asks the NameNode, and tries a connection to each DataNode.
    ///
    /// # Errors
    /// Those of calls.
    pub(crate) async fn look(&mut self, namenode: &NameNode) -> Result<Sight, HdfsError> {
        let (live, maintenance) = (namenode.live_datanodes().await?, namenode.in_maintenance().await?);
        let mut probes = JoinSet::new();
        for address in live.iter().map(address) {
            probes.spawn(async move {
                let connected = timeout(PROBE, tokio::net::TcpStream::connect(&address)).await;
                let refused =
                    matches!(connected, Ok(Err(e)) if e.kind() == std::io::ErrorKind::ConnectionRefused);
                (address, refused)
            });
        }
        for (address, no) in probes.join_all().await {
            match no {
                true => *self.refused.entry(address).or_default() += 1,
                false => _ = self.refused.remove(&address),
            }
        }
        // After a restart the NameNode lists DataNodes one by one as they come; such are neither live nor dead meanwhile.
        let dead = match self.live.is_subset(&ids(&live)) {
            true => Vec::new(),
            false => namenode.dead_datanodes().await?,
        };
        let notes = self.rest(&maintenance);
        Ok(Sight { maintenance, notes, ..self.compare(live, &dead) })
    }

    /// What is different now, when the NameNode counts these as live and dead.
    fn compare(&mut self, live: Vec<DatanodeInfo>, dead: &[DatanodeInfo]) -> Sight {
        let mut gone = gone(&live, &self.refused);
        // Nobody may have looked between the last heartbeat of a DataNode and its death.
        let died = dead.iter().filter(|node| self.live.contains(&node.id.uuid));
        let died = died.map(|node| (address(node), "HDFS calls it dead".to_owned()));
        // Dead for the NameNode: its blocks may be listed for some seconds more.
        let known = died.chain(self.gone.clone());
        gone.extend(known.filter(|(datanode, _)| !live.iter().any(|node| address(node) == *datanode)));
        self.live = ids(&live);
        let before = std::mem::replace(&mut self.gone, gone.clone());
        let new = gone.iter().filter(|(datanode, _)| !before.contains_key(*datanode));
        let left = new.map(|(datanode, why)| (datanode.clone(), why.clone())).collect();
        let back = before.into_keys().filter(|datanode| !gone.contains_key(datanode)).collect();
        Sight { live, gone, left, back, ..Sight::default() }
    }

    /// What there is to say when these are in maintenance.
    fn rest(&mut self, maintenance: &[DatanodeInfo]) -> Vec<String> {
        let now: BTreeSet<String> = maintenance.iter().map(address).collect();
        let before = std::mem::replace(&mut self.resting, now.clone());
        let began = now.difference(&before).map(|node| {
            format!("DataNode {node} is in maintenance, or goes into it: HDFS does not list its blocks then, and they are not rebuilt")
        });
        let ended =
            before.difference(&now).map(|node| format!("DataNode {node} is no longer in maintenance"));
        began.chain(ended).collect()
    }
}

fn ids(datanodes: &[DatanodeInfo]) -> BTreeSet<String> {
    datanodes.iter().map(|node| node.id.uuid.clone()).collect()
}

/// The address of a DataNode's transfers as agents and reports name it.
pub(crate) fn address(datanode: &DatanodeInfo) -> String {
    format!("{}:{}", datanode.id.ip, datanode.id.transfer_port)
}

/// For how long the NameNode has not heard each DataNode, when it last heard one.
fn silences(live: &[DatanodeInfo]) -> impl Iterator<Item = (&DatanodeInfo, Duration)> {
    let heard = Heard::of(live.iter());
    live.iter().map(move |node| (node, Duration::from_millis(heard.silence_ms(node))))
}

/// Whether the NameNode still counts this DataNode as live, but has not heard it for so long.
pub(crate) fn unheard(live: &[DatanodeInfo], datanode: &DatanodeInfo, long: Duration) -> bool {
    silences(live).any(|(node, silence)| node.id.uuid == datanode.id.uuid && silence >= long)
}

fn gone(live: &[DatanodeInfo], refused: &BTreeMap<String, u32>) -> Gone {
    let why = |node: &DatanodeInfo, silence: Duration| match silence {
        long if long >= SILENT => Some(format!("no heartbeat for {} s", long.as_secs())),
        _ if refused.get(&address(node)).is_some_and(|times| *times >= REFUSALS) => {
            Some("it refuses connections".to_owned())
        }
        _ => None,
    };
    silences(live).filter_map(|(node, silence)| Some((address(node), why(node, silence)?))).collect()
}

/// The indices of a group that no DataNode has which is not gone, and that do not rest.
pub(crate) fn lost(group: &Group, gone: &Gone, resting: &Resting) -> Vec<BlockIndex> {
    let absent = group.expected().filter(|index| there(group, *index, gone).next().is_none());
    resting.lost(group, absent.collect(), |_, _| false)
}

/// The DataNodes that have the index and are not gone.
pub(crate) fn there(group: &Group, index: BlockIndex, gone: &Gone) -> impl Iterator<Item = String> {
    let holders = group.holders.get(&index).map(Vec::as_slice).unwrap_or_default();
    let addresses = holders.iter().map(|holder| address(&holder.datanode));
    addresses.filter(move |datanode| !gone.contains_key(datanode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::names::DatanodeId;

    fn datanode(port: u32, age_ms: u64) -> DatanodeInfo {
        let (ip, uuid) = ("10.0.0.1".into(), port.to_string());
        let id = DatanodeId { ip, uuid, transfer_port: port, ..DatanodeId::default() };
        DatanodeInfo { id, last_update: Some(1_000_000 - age_ms), ..DatanodeInfo::default() }
    }

    #[test]
    fn silence_and_refusals_make_a_datanode_gone() {
        let live = [datanode(1, 0), datanode(2, 9_999), datanode(3, 10_000), datanode(4, 0), datanode(5, 0)];
        let refused = [("10.0.0.1:4".to_owned(), 2), ("10.0.0.1:5".to_owned(), 1)].into();
        let gone: Vec<String> = gone(&live, &refused).into_keys().collect();
        assert_eq!(gone, ["10.0.0.1:3", "10.0.0.1:4"]);
        let told = |node: &DatanodeInfo| unheard(&live, node, Duration::from_secs(10));
        assert!(told(&live[2]) && !told(&live[1]) && !told(&live[3]), "refusals are not silence");
        assert!(!told(&datanode(6, 60_000)), "it is not live any more");
    }

    #[test]
    fn it_is_told_once_that_maintenance_begins_and_ends() {
        let mut vigil = Vigil::default();
        let told: Vec<Vec<String>> =
            [vec![datanode(1, 0)], vec![datanode(1, 0)], vec![]].iter().map(|now| vigil.rest(now)).collect();
        assert!(told[0][0].contains("10.0.0.1:1 is in maintenance") && told[1].is_empty(), "{told:?}");
        assert_eq!(told[2], ["DataNode 10.0.0.1:1 is no longer in maintenance"]);
    }

    #[test]
    fn a_datanode_that_died_between_two_looks_is_gone_and_one_that_is_not_listed_yet_is_not() {
        let mut vigil = Vigil::default();
        let seen = vigil.compare(vec![datanode(1, 0), datanode(2, 0), datanode(3, 0)], &[]);
        assert!(seen.left.is_empty());
        // Of 4 nobody knew; 3 is not listed: the NameNode was started again.
        let dead = [datanode(2, 60_000), datanode(4, 60_000)];
        let seen = vigil.compare(vec![datanode(1, 0)], &dead);
        assert_eq!(seen.left.into_keys().collect::<Vec<_>>(), ["10.0.0.1:2"]);
        let seen = vigil.compare(vec![datanode(1, 0), datanode(3, 0)], &dead);
        assert_eq!((seen.left.len(), seen.gone.len()), (0, 1), "it stays gone");
        let seen = vigil.compare(vec![datanode(1, 0), datanode(2, 0)], &[]);
        assert_eq!(seen.back, ["10.0.0.1:2"]);
    }
}
