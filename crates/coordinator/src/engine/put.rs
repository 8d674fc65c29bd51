//! Decides which names objects may have, and which nodes get the stripes of a put.

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, StripeId};
use kintsu_plan::{Layout, PlanError, Topology, place};

/// Longest name in bytes.
const NAME_BYTES: usize = 1024;

/// Objects that the S3 gateway serves have names that begin like this,
pub const S3: &str = "s3/";
/// and what it keeps beside them has names that begin like this.
pub const OF_S3: &str = ".s3/";
/// Parts of uploads, which are to be joined, have names that begin like this.
pub const PARTS: &str = ".s3/part/";
/// Longest name of these in bytes: a key of S3 has 1024, and is part of the name.
const S3_NAME_BYTES: usize = 1280;

/// Why an object cannot have a name: what was expected, and what came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadName {
    pub expected: String,
    pub got: String,
}

/// Checks a name: 1 to `NAME_BYTES` bytes of text without control characters. Names for S3 may be longer and may have
/// control characters, because keys of S3 may.
///
/// # Errors
/// It is something else.
pub fn check_name(name: &str) -> Result<(), BadName> {
    if name.starts_with(S3) || name.starts_with(OF_S3) {
        let expected = || format!("at most {S3_NAME_BYTES} bytes");
        let got = || format!("{} bytes", name.len());
        let long = name.len() > S3_NAME_BYTES;
        return if long { Err(BadName { expected: expected(), got: got() }) } else { Ok(()) };
    }
    let got = if name.is_empty() {
        "an empty one".to_owned()
    } else if name.len() > NAME_BYTES {
        format!("{} bytes", name.len())
    } else if let Some(c) = name.chars().find(|c| c.is_control()) {
        format!("one with {c:?}")
    } else {
        return Ok(());
    };
    Err(BadName { expected: format!("1 to {NAME_BYTES} bytes without control characters"), got })
}

/// The nodes as they are when stripes are granted, and what these stripes take of their space.
#[derive(Debug, Clone)]
pub struct Homes(Topology);

impl Homes {
    /// With these nodes, of which those in `avoid` get nothing.
    pub fn new(mut topology: Topology, avoid: &[NodeId]) -> Self {
        for (node, known) in &mut topology.nodes {
            known.usable &= !avoid.contains(node);
        }
        Self(topology)
    }

    /// The homes of a stripe's blocks.
    ///
    /// # Errors
    /// Too few usable nodes or racks.
    pub fn of(
        &mut self,
        code: &dyn Code,
        id: StripeId,
        layout: &Layout,
    ) -> Result<Vec<Option<NodeId>>, PlanError> {
        let homes = place(code, layout, &self.0, id.0)?.homes;
        // What is granted now is not in the nodes' next heartbeats yet.
        for (index, home) in homes.iter().enumerate() {
            if let Some(node) = home.and_then(|home| self.0.nodes.get_mut(&home)) {
                node.take(layout.block_len(code.k(), BlockIndex(index as u8)));
            }
        }
        Ok(homes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::RackId;
    use kintsu_plan::{LayoutKind, Node};

    #[test]
    fn names_are_text() {
        let key = format!("s3/bucket/{}", "k".repeat(1024));
        for good in ["a", "a/b c", "日本", &"x".repeat(NAME_BYTES), "s3/b/a\u{1}", &key] {
            check_name(good).unwrap();
        }
        let long = format!("s3/{}", "k".repeat(S3_NAME_BYTES));
        for bad in ["", "a\n", "\u{7f}", &"x".repeat(NAME_BYTES + 1), &long] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn stripes_avoid_nodes_and_share_the_room_that_is_left() {
        let node = |i: u32| {
            let room_bytes = Some(16);
            (NodeId(i), Node { rack: RackId(i), usable: true, used_bytes: 0, room_bytes })
        };
        let topology = Topology { nodes: (0..5).map(node).collect(), ..Topology::default() };
        let code = kintsu_code::parse("rs:n=2,k=1").unwrap();
        let layout =
            Layout { kind: LayoutKind::Contiguous, block_bytes: 16, cell_bytes: 16, w: 1, data_bytes: 16 };
        let mut homes = Homes::new(topology, &[NodeId(2)]);
        let mut used = Vec::new();
        for id in 1..=2 {
            used.extend(homes.of(code.as_ref(), StripeId(id), &layout).unwrap().into_iter().flatten());
        }
        used.sort();
        assert_eq!(used, [0, 1, 3, 4].map(NodeId), "each node has room for one block");
        assert!(homes.of(code.as_ref(), StripeId(3), &layout).is_err());
    }
}
