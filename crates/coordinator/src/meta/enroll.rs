//! Nodes that are enrolled, as [`crate::engine::identity`] decides, and nodes that are forgotten.

use kintsu_dag::NodeId;
use redb::ReadableTable;

use super::nodes::all;
use super::{Meta, tables};
use crate::engine::identity::{self, Applicant, Enrolled};
use crate::error::{CoordinatorError, Result};

impl Meta {
    /// Records a node, and gives it an id if it has none. A recorded drain stays in force after restarts.
    ///
    /// # Errors
    /// `Conflict` if the node has another folder, the folder belongs to another node, the name is taken, or a node
    /// with blocks appears in another rack; each says what to do. `Invalid` for the client's id.
    pub fn enroll(&self, applicant: Applicant) -> Result<Enrolled> {
        self.write(|t| {
            let (nodes, next) = (all(&t.nodes)?, t.counter(tables::COUNT_NODE)?);
            let node = identity::node_of(&nodes, next, &applicant)?;
            let placed = t.tally.get(node.0)?.map_or(0, |row| row.value().0);
            let enrolled = identity::enroll(&nodes, node, placed, applicant)?;
            t.set_counter(tables::COUNT_NODE, next.max(u64::from(enrolled.node.0) + 1))?;
            t.set_node(enrolled.node, &enrolled.record)?;
            Ok(enrolled)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::identity::tests::applicant;
    use crate::meta::tests::{open, store};
    use kintsu_dag::RackId;

    fn refused(meta: &Meta, applicant: Applicant, words: &str) {
        let error = meta.enroll(applicant).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
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
