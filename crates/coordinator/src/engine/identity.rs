//! Decides which node a folder is, and what is recorded of it.
//!
//! Invariants: a node id belongs to one folder, and a folder to one node; no node has the client's id; a node with
//! blocks stays in its rack, unless it was moved together with them.

use std::collections::BTreeMap;

use kintsu_dag::{NodeId, RackId};
use kintsu_wire::ClusterId;
use kintsu_wire::FolderId;

use crate::meta::record::NodeRecord;

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

/// Why an applicant is not enrolled; the texts say what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// It wants to have the client's id.
    Client,
    /// What is recorded does not allow it.
    Conflict {
        /// What was tried.
        what: String,
        /// What it needs.
        expected: String,
        /// What is the case.
        got: String,
    },
}

/// Whether a folder may belong to this cluster.
///
/// # Errors
/// It belongs to another one.
pub fn belongs(own: ClusterId, told: Option<ClusterId>, dir: &str) -> Result<(), Refused> {
    match told {
        Some(other) if other != own => Err(Refused::Conflict {
            what: format!("registration of {dir}"),
            expected: format!("a folder of cluster {own}"),
            got: format!("one of cluster {other}; nothing was changed"),
        }),
        _ => Ok(()),
    }
}

/// The node that an applicant becomes: the one that its folder is, or the one that it names, or a new one, whose id
/// is `next` if that is free.
///
/// # Errors
/// The node has another folder, the folder belongs to another node, or the name is taken; the client's id.
pub fn node_of(
    nodes: &BTreeMap<NodeId, NodeRecord>,
    next: u64,
    applicant: &Applicant,
) -> Result<NodeId, Refused> {
    identify(nodes, applicant)?.map_or_else(|| free_id(next, nodes), Ok)
}

/// Enrolls an applicant as this node, on which `placed` blocks are placed. A recorded drain stays in force.
///
/// # Errors
/// A node with blocks appears in another rack.
pub fn enroll(
    nodes: &BTreeMap<NodeId, NodeRecord>,
    node: NodeId,
    placed: u64,
    applicant: Applicant,
) -> Result<Enrolled, Refused> {
    let old = nodes.get(&node);
    let replaced = old.is_some_and(|old| old.folder.is_some_and(|folder| folder != applicant.folder));
    let ran = old.is_some_and(|old| old.incarnation == applicant.record.incarnation) && !replaced;
    let record = merged(placed, node, nodes, applicant)?;
    Ok(Enrolled { node, new: old.is_none(), replaced, ran, record })
}

/// The node that an applicant is, if its folder is known or if it names a node.
fn identify(nodes: &BTreeMap<NodeId, NodeRecord>, applicant: &Applicant) -> Result<Option<NodeId>, Refused> {
    let Applicant { node: asked, folder, .. } = applicant;
    if asked.is_some_and(NodeId::is_client) {
        return Err(Refused::Client);
    }
    if let Some((&known, _)) = nodes.iter().find(|(_, record)| record.folder == Some(*folder)) {
        return match asked {
            Some(asked) if *asked != known => Err(Refused::Conflict {
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
            return Err(Refused::Conflict {
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
        Some(own) if !applicant.replace => Err(Refused::Conflict {
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
fn free_id(next: u64, nodes: &BTreeMap<NodeId, NodeRecord>) -> Result<NodeId, Refused> {
    let next =
        u32::try_from(next).ok().map(NodeId).filter(|node| !node.is_client() && !nodes.contains_key(node));
    let free = next.or_else(|| (0..u32::MAX).map(NodeId).find(|node| !nodes.contains_key(node)));
    free.ok_or_else(|| Refused::Conflict {
        what: "registration of a new node".into(),
        expected: format!("fewer than {} nodes", u32::MAX),
        got: nodes.len().to_string(),
    })
}

/// The record of a node from now on. `placed`: the blocks that are placed on it.
fn merged(
    placed: u64,
    node: NodeId,
    nodes: &BTreeMap<NodeId, NodeRecord>,
    applicant: Applicant,
) -> Result<NodeRecord, Refused> {
    let Applicant { folder, moved, record, .. } = applicant;
    let old = nodes.get(&node);
    let rack = match &record.rack_name {
        None => record.rack,
        Some(name) => named_rack(nodes, name),
    };
    if let Some(old) = old.filter(|old| old.rack != rack && placed > 0 && !moved && !old.is_unheard()) {
        let shown = |rack: RackId, name: &Option<String>| name.clone().unwrap_or_else(|| rack.0.to_string());
        return Err(Refused::Conflict {
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
        protocol: record.protocol,
        log: record.log,
        epoch: before.epoch + u64::from(other_folder),
        scrub: before.scrub.filter(|_| !other_folder),
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
pub(crate) mod tests {
    use super::*;

    /// The records, and the next id.
    #[derive(Default)]
    struct Nodes(BTreeMap<NodeId, NodeRecord>, u64);

    impl Nodes {
        fn enroll(&mut self, applicant: Applicant) -> Result<Enrolled, Refused> {
            let node = node_of(&self.0, self.1, &applicant)?;
            let enrolled = enroll(&self.0, node, 0, applicant)?;
            self.0.insert(enrolled.node, enrolled.record.clone());
            self.1 = self.1.max(u64::from(enrolled.node.0) + 1);
            Ok(enrolled)
        }
    }

    pub(crate) fn applicant(node: Option<u32>, folder: u8) -> Applicant {
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

    fn refused(nodes: &mut Nodes, applicant: Applicant, words: &str) {
        let error = format!("{:?}", nodes.enroll(applicant).unwrap_err());
        assert!(error.contains(words), "{error}");
    }

    #[test]
    fn a_node_id_belongs_to_one_folder_whatever_the_path() {
        let mut nodes = Nodes::default();
        let first = nodes.enroll(applicant(None, 1)).unwrap();
        assert!(first.new && nodes.enroll(applicant(None, 2)).unwrap().node != first.node);
        let again = nodes.enroll(applicant(Some(first.node.0), 1)).unwrap();
        assert_eq!((again.node, again.new, again.replaced), (first.node, false, false));
        // The same path on an unmounted disk: another folder.
        let mut empty = applicant(Some(first.node.0), 3);
        empty.record.dir = "/d1".into();
        refused(&mut nodes, empty.clone(), "is the disk of N0 mounted?");
        refused(&mut nodes, applicant(Some(7), 1), "N0, whose folder it is");
        let taken = nodes.enroll(Applicant { replace: true, ..empty }).unwrap();
        assert_eq!((taken.node, taken.replaced), (first.node, true));
    }

    #[test]
    fn ids_never_reach_the_clients() {
        let mut nodes = Nodes::default();
        assert_eq!(nodes.enroll(applicant(Some(u32::MAX - 1), 1)).unwrap().node, NodeId(u32::MAX - 1));
        let next = nodes.enroll(applicant(None, 2)).unwrap().node;
        assert_eq!(next, NodeId(0), "not {}", NodeId::CLIENT.0);
        assert_eq!(nodes.enroll(applicant(None, 3)).unwrap().node, NodeId(1));
        assert_eq!(nodes.enroll(applicant(Some(u32::MAX), 4)), Err(Refused::Client));
    }

    #[test]
    fn names_stand_for_nodes_and_racks() {
        let mut nodes = Nodes::default();
        let named = |node, folder, name: &str, rack: &str| {
            let mut new = applicant(node, folder);
            (new.record.name, new.record.rack_name) = (Some(name.into()), Some(rack.into()));
            new
        };
        let a = nodes.enroll(named(None, 1, "a", "dc1/r7")).unwrap();
        let b = nodes.enroll(named(None, 2, "b", "dc1/r7")).unwrap();
        let c = nodes.enroll(named(None, 3, "c", "dc2/r1")).unwrap();
        assert_eq!(a.record.rack, b.record.rack);
        assert_ne!(a.record.rack, c.record.rack);
        refused(&mut nodes, named(None, 4, "a", "dc1/r7"), "is the disk of N0 mounted?");
        refused(&mut nodes, named(Some(9), 4, "a", "dc1/r7"), "that of N0");
        let restarted = nodes.enroll(applicant(Some(0), 1)).unwrap();
        assert_eq!(restarted.record.name.as_deref(), Some("a"));
    }
}
