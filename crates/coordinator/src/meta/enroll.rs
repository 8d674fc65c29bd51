//! Decides which node a folder is: a node id belongs to one folder, and a folder to one node.

use std::collections::BTreeMap;

use kintsu_dag::{NodeId, RackId};
use kintsu_wire::FolderId;
use redb::ReadableTable;

use super::nodes::all;
use super::record::NodeRecord;
use super::write::Tables;
use super::{Meta, tables};
use crate::error::{CoordinatorError, Result};

/// First id for racks with names; rack numbers that users give are normally smaller.
const NAMED_RACKS: u32 = 1 << 16;

/// A folder whose agent wants to be a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applicant {
    /// The id of the node that it was, or wants to be.
    pub node: Option<NodeId>,
    /// The id of the folder.
    pub folder: FolderId,
    /// This folder replaces the node's former folder, which is gone.
    pub replace: bool,
    /// The node was moved to another rack together with its blocks.
    pub moved: bool,
    /// What is to be recorded. If the node's name is `None`, the recorded name is kept.
    pub record: NodeRecord,
}

/// A node that was enrolled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolled {
    /// Its id from now on.
    pub node: NodeId,
    /// It was not known before.
    pub new: bool,
    /// Another folder replaced the one that it had.
    pub replaced: bool,
    /// The same start of its agent has registered before.
    pub ran: bool,
    /// What is recorded of it now.
    pub record: NodeRecord,
}

impl Meta {
    /// Records a node, and gives it an id if it has none. A recorded drain stays in force after restarts.
    ///
    /// # Errors
    /// `Conflict` if the node has another folder, the folder belongs to another node, the name is taken, or a node
    /// with blocks appears in another rack; each says what to do. `Invalid` for the client's id.
    pub fn enroll(&self, applicant: Applicant) -> Result<Enrolled> {
        self.write(|t| {
            let nodes = all(&t.nodes)?;
            let node = identify(&nodes, &applicant)?;
            let (node, old) = match node {
                Some(node) => (node, nodes.get(&node)),
                None => (free_id(t, &nodes)?, None),
            };
            let next = t.counter(tables::COUNT_NODE)?;
            t.set_counter(tables::COUNT_NODE, next.max(u64::from(node.0) + 1))?;
            let replaced = old.is_some_and(|old| old.folder.is_some_and(|folder| folder != applicant.folder));
            let ran = old.is_some_and(|old| old.incarnation == applicant.record.incarnation) && !replaced;
            let record = merged(t, node, old, &nodes, applicant)?;
            t.set_node(node, &record)?;
            Ok(Enrolled { node, new: old.is_none(), replaced, ran, record })
        })
    }

    /// Forgets a node, with all that was still to be done there, if `may` allows that for the number of blocks that are
    /// placed on it. `may` is called within the transaction.
    ///
    /// # Errors
    /// `NotFound`; that of `may`.
    pub fn forget_node(&self, node: NodeId, may: impl FnOnce(u64) -> Result<()>) -> Result<()> {
        self.write(|t| {
            if t.node(node)?.is_none() {
                return Err(CoordinatorError::NotFound { what: "node", name: node.0.to_string() });
            }
            may(t.tally.get(node.0)?.map_or(0, |row| row.value().0))?;
            let (from, to) = ((node.0, 0, 0, 0), (node.0, u64::MAX, u8::MAX, u32::MAX));
            t.garbage.retain_in(from..=to, |_, ()| false)?;
            t.tally.remove(node.0)?;
            t.nodes.remove(node.0)?;
            Ok(())
        })
    }
}

/// The node that an applicant is, if its folder is known or if it names a node.
fn identify(nodes: &BTreeMap<NodeId, NodeRecord>, applicant: &Applicant) -> Result<Option<NodeId>> {
    let Applicant { node: asked, folder, .. } = applicant;
    if asked.is_some_and(NodeId::is_client) {
        return Err(CoordinatorError::Invalid {
            what: "node id",
            expected: format!("at most {}", u32::MAX - 1),
            got: NodeId::CLIENT.0.to_string(),
        });
    }
    if let Some((&known, _)) = nodes.iter().find(|(_, record)| record.folder == Some(*folder)) {
        return match asked {
            Some(asked) if *asked != known => Err(CoordinatorError::Conflict {
                what: format!("registration of {}", applicant.record.dir),
                expected: format!("{known}, whose folder it is"),
                got: asked.to_string(),
            }),
            _ => Ok(Some(known)),
        };
    }
    let named = applicant.record.name.as_ref();
    let named = named.and_then(|name| nodes.iter().find(|(_, record)| record.name.as_ref() == Some(name)));
    let claimed = match (asked, named) {
        (Some(asked), Some((named, record))) if asked != named => {
            return Err(CoordinatorError::Conflict {
                what: format!("registration of {asked} as {:?}", record.name.clone().unwrap_or_default()),
                expected: "a name that no other node has".into(),
                got: format!("that of {named}"),
            });
        }
        (Some(asked), _) => Some(*asked),
        (None, Some((named, _))) => Some(*named),
        (None, None) => None,
    };
    let Some((claimed, record)) = claimed.and_then(|node| Some((node, nodes.get(&node)?))) else {
        return Ok(claimed);
    };
    match record.folder {
        Some(own) if !applicant.replace => Err(CoordinatorError::Conflict {
            what: format!("registration of {claimed}"),
            expected: format!("its folder {own}, last in {}", record.dir),
            got: format!(
                "folder {folder} in {}: is the disk of {claimed} mounted? If its folder is gone for good and this one takes \
                 its place, start the agent with --replace",
                applicant.record.dir
            ),
        }),
        _ => Ok(Some(claimed)),
    }
}

/// An id that no node has: the next one, or, if ids have run up to the client's, the lowest free id.
fn free_id(t: &Tables<'_>, nodes: &BTreeMap<NodeId, NodeRecord>) -> Result<NodeId> {
    let next = t.counter(tables::COUNT_NODE)?;
    let next =
        u32::try_from(next).ok().map(NodeId).filter(|node| !node.is_client() && !nodes.contains_key(node));
    let free = next.or_else(|| (0..u32::MAX).map(NodeId).find(|node| !nodes.contains_key(node)));
    free.ok_or_else(|| CoordinatorError::Conflict {
        what: "registration of a new node".into(),
        expected: format!("fewer than {} nodes", u32::MAX),
        got: nodes.len().to_string(),
    })
}

/// The record of a node from now on.
fn merged(
    t: &Tables<'_>,
    node: NodeId,
    old: Option<&NodeRecord>,
    nodes: &BTreeMap<NodeId, NodeRecord>,
    applicant: Applicant,
) -> Result<NodeRecord> {
    let Applicant { folder, moved, record, .. } = applicant;
    let rack = match &record.rack_name {
        None => record.rack,
        Some(name) => named_rack(nodes, name),
    };
    let placed = t.tally.get(node.0)?.map_or(0, |row| row.value().0);
    if let Some(old) = old.filter(|old| old.rack != rack && placed > 0 && !moved && !old.is_unheard()) {
        let shown = |rack: RackId, name: &Option<String>| name.clone().unwrap_or_else(|| rack.0.to_string());
        return Err(CoordinatorError::Conflict {
            what: format!("registration of {node}"),
            expected: format!(
                "rack {}, where its {placed} blocks were placed",
                shown(old.rack, &old.rack_name)
            ),
            got: format!(
                "rack {}: start it with its old rack; or drain it first; or, if it was moved with its disk, with --moved",
                shown(rack, &record.rack_name)
            ),
        });
    }
    let other_folder = old.is_some_and(|old| old.folder.is_some_and(|own| own != folder));
    let before = old.cloned().unwrap_or_else(|| record.clone());
    Ok(NodeRecord {
        rack,
        folder: Some(folder),
        name: record.name.or(before.name.clone()),
        rack_name: record.rack_name,
        control: record.control,
        data: record.data,
        dir: record.dir,
        incarnation: record.incarnation,
        stopped: record.stopped,
        epoch: before.epoch + u64::from(other_folder),
        ..before
    })
}

/// The id of the rack of this name: taken from a node in this rack, or else an id that no rack has.
fn named_rack(nodes: &BTreeMap<NodeId, NodeRecord>, name: &str) -> RackId {
    let same = nodes.values().find(|record| record.rack_name.as_deref() == Some(name));
    let used = |rack: &u32| nodes.values().any(|record| record.rack.0 == *rack);
    same.map_or_else(
        || RackId((NAMED_RACKS..).find(|rack| !used(rack)).unwrap_or(u32::MAX)),
        |record| record.rack,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::tests::{open, store};

    fn applicant(node: Option<u32>, folder: u8) -> Applicant {
        let any = "127.0.0.1:1".parse().unwrap();
        let record = NodeRecord::new(RackId(0), any, any, format!("/d{folder}"), 1);
        Applicant {
            node: node.map(NodeId),
            folder: FolderId([folder; 16]),
            replace: false,
            moved: false,
            record,
        }
    }

    fn refused(meta: &Meta, applicant: Applicant, words: &str) {
        let error = meta.enroll(applicant).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }

    #[test]
    fn a_node_id_belongs_to_one_folder_whatever_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let meta = open(dir.path());
        let first = meta.enroll(applicant(None, 1)).unwrap();
        assert!(first.new && meta.enroll(applicant(None, 2)).unwrap().node != first.node);
        let again = meta.enroll(applicant(Some(first.node.0), 1)).unwrap();
        assert_eq!((again.node, again.new, again.replaced), (first.node, false, false));
        // The same path on an unmounted disk: another folder.
        let mut empty = applicant(Some(first.node.0), 3);
        empty.record.dir = "/d1".into();
        refused(&meta, empty.clone(), "is the disk of N0 mounted?");
        refused(&meta, applicant(Some(7), 1), "N0, whose folder it is");
        let taken = meta.enroll(Applicant { replace: true, ..empty }).unwrap();
        assert_eq!((taken.node, taken.replaced), (first.node, true));
    }

    #[test]
    fn ids_never_reach_the_clients() {
        let dir = tempfile::tempdir().unwrap();
        let meta = open(dir.path());
        assert_eq!(meta.enroll(applicant(Some(u32::MAX - 1), 1)).unwrap().node, NodeId(u32::MAX - 1));
        let next = meta.enroll(applicant(None, 2)).unwrap().node;
        assert_eq!(next, NodeId(0), "not {}", NodeId::CLIENT.0);
        assert_eq!(meta.enroll(applicant(None, 3)).unwrap().node, NodeId(1));
        assert!(matches!(meta.enroll(applicant(Some(u32::MAX), 4)), Err(CoordinatorError::Invalid { .. })));
    }

    #[test]
    fn names_stand_for_nodes_and_racks() {
        let dir = tempfile::tempdir().unwrap();
        let meta = open(dir.path());
        let named = |node, folder, name: &str, rack: &str| {
            let mut new = applicant(node, folder);
            (new.record.name, new.record.rack_name) = (Some(name.into()), Some(rack.into()));
            new
        };
        let a = meta.enroll(named(None, 1, "a", "dc1/r7")).unwrap();
        let b = meta.enroll(named(None, 2, "b", "dc1/r7")).unwrap();
        let c = meta.enroll(named(None, 3, "c", "dc2/r1")).unwrap();
        assert_eq!(a.record.rack, b.record.rack);
        assert_ne!(a.record.rack, c.record.rack);
        refused(&meta, named(None, 4, "a", "dc1/r7"), "is the disk of N0 mounted?");
        refused(&meta, named(Some(9), 4, "a", "dc1/r7"), "that of N0");
        let restarted = meta.enroll(applicant(Some(0), 1)).unwrap();
        assert_eq!(restarted.record.name.as_deref(), Some("a"));
    }

    #[test]
    fn a_node_with_blocks_changes_its_rack_only_when_it_was_moved() {
        let dir = tempfile::tempdir().unwrap();
        let meta = open(dir.path());
        let node = meta.enroll(applicant(None, 1)).unwrap().node;
        assert_eq!(node, NodeId(0));
        let mut elsewhere = applicant(Some(0), 1);
        elsewhere.record.rack = RackId(5);
        meta.enroll(elsewhere.clone()).unwrap();
        store(&meta, "a", 16, 0);
        let mut back = elsewhere.clone();
        back.record.rack = RackId(6);
        refused(&meta, back.clone(), "rack 5, where its 1 blocks were placed");
        assert_eq!(meta.enroll(Applicant { moved: true, ..back }).unwrap().record.rack, RackId(6));
        let may = |placed| match placed {
            0 => Ok(()),
            placed => Err(CoordinatorError::Storage(format!("{placed} are placed"))),
        };
        assert!(meta.forget_node(node, may).unwrap_err().to_string().contains("1 are placed"));
        meta.wipe(node).unwrap();
        meta.remove("a").unwrap();
        meta.forget_node(node, may).unwrap();
        assert!(!meta.snapshot().unwrap().nodes().unwrap().contains_key(&node));
    }
}
