//! The links of a cluster, by name.

use std::fmt;
use std::str::FromStr;

use kintsu_dag::{NodeId, RackId};
use serde::{Serialize, Serializer};

use crate::PlanError;

/// Something with a rate that transfers share, in one direction. Written `node 3 up`, `node 3 down`, `rack 1 up`,
/// `rack 1 down`, `node 3 to 5`, `disk 3 read`, `disk 3 write`.
///
/// `N` names nodes and `R` racks: their ids, or the numbers that a planner gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Link<N = NodeId, R = RackId> {
    /// From a node to its rack: what the node sends.
    NodeUp(N),
    /// From its rack to a node: what the node receives.
    NodeDown(N),
    /// From a rack to the core: what its nodes send to all others.
    RackUp(R),
    /// From the core to a rack: what its nodes receive from all others.
    RackDown(R),
    /// From the first node to the second, as a limit of its own within the links of nodes and racks.
    Pair(N, N),
    /// What a node reads from its disk.
    DiskRead(N),
    /// What a node writes to its disk.
    DiskWrite(N),
}

impl<N, R> Link<N, R> {
    /// The same link with other names for nodes and racks; `None` for one without.
    pub fn named<M, S>(
        self,
        node: impl Fn(N) -> Option<M>,
        rack: impl Fn(R) -> Option<S>,
    ) -> Option<Link<M, S>> {
        Some(match self {
            Self::NodeUp(id) => Link::NodeUp(node(id)?),
            Self::NodeDown(id) => Link::NodeDown(node(id)?),
            Self::RackUp(id) => Link::RackUp(rack(id)?),
            Self::RackDown(id) => Link::RackDown(rack(id)?),
            Self::Pair(from, to) => Link::Pair(node(from)?, node(to)?),
            Self::DiskRead(id) => Link::DiskRead(node(id)?),
            Self::DiskWrite(id) => Link::DiskWrite(node(id)?),
        })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeUp(node) => write!(f, "node {} up", node.0),
            Self::NodeDown(node) => write!(f, "node {} down", node.0),
            Self::RackUp(rack) => write!(f, "rack {} up", rack.0),
            Self::RackDown(rack) => write!(f, "rack {} down", rack.0),
            Self::Pair(from, to) => write!(f, "node {} to {}", from.0, to.0),
            Self::DiskRead(node) => write!(f, "disk {} read", node.0),
            Self::DiskWrite(node) => write!(f, "disk {} write", node.0),
        }
    }
}

impl FromStr for Link {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| word.parse::<u32>().ok();
        let node = |word: &str| number(word).map(NodeId);
        let rack = |word: &str| number(word).map(RackId);
        let link = match words[..] {
            ["node", id, "up"] => node(id).map(Self::NodeUp),
            ["node", id, "down"] => node(id).map(Self::NodeDown),
            ["rack", id, "up"] => rack(id).map(Self::RackUp),
            ["rack", id, "down"] => rack(id).map(Self::RackDown),
            ["node", from, "to", to] => node(from).zip(node(to)).map(|(from, to)| Self::Pair(from, to)),
            ["disk", id, "read"] => node(id).map(Self::DiskRead),
            ["disk", id, "write"] => node(id).map(Self::DiskWrite),
            _ => None,
        };
        link.ok_or_else(|| PlanError::Invalid {
            what: "link".into(),
            expected: "\"node N up\", \"node N down\", \"rack R up\", \"rack R down\", \"node N to M\", \
                       \"disk N read\" or \"disk N write\""
                .into(),
            got: format!("{text:?}"),
        })
    }
}

impl Serialize for Link {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_as_they_are_written() {
        for text in [
            "node 3 up",
            "node 0 down",
            "rack 1 up",
            "rack 12 down",
            "node 3 to 5",
            "disk 7 read",
            "disk 0 write",
        ] {
            assert_eq!(text.parse::<Link>().unwrap().to_string(), text);
        }
        for bad in
            ["", "node", "node x up", "rack 1 to 2", "node 1 left", "node -1 up", "node 3 to", "disk 1"]
        {
            assert!(bad.parse::<Link>().unwrap_err().to_string().contains("expected"), "{bad}");
        }
    }
}
