//! The links of a lab, by name.

use std::fmt;
use std::str::FromStr;

use kintsu_dag::{NodeId, RackId};

use crate::error::{LabError, Result};
use crate::quantity::quoted;

/// A link in one direction. Written `node 3 up`, `node 3 down`, `rack 1 up`, `rack 1 down`, `node 3 to 5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// From a node to its rack.
    NodeUp(NodeId),
    /// From its rack to a node.
    NodeDown(NodeId),
    /// From a rack to all others.
    RackUp(RackId),
    /// From all others to a rack.
    RackDown(RackId),
    /// From the first node to the second, as a limit of its own within the first one's uplink.
    Pair(NodeId, NodeId),
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeUp(node) => write!(f, "node {} up", node.0),
            Self::NodeDown(node) => write!(f, "node {} down", node.0),
            Self::RackUp(rack) => write!(f, "rack {} up", rack.0),
            Self::RackDown(rack) => write!(f, "rack {} down", rack.0),
            Self::Pair(from, to) => write!(f, "node {} to {}", from.0, to.0),
        }
    }
}

impl FromStr for Link {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| word.parse::<u32>().ok();
        let link = match words[..] {
            ["node", node, "up"] => number(node).map(|node| Self::NodeUp(NodeId(node))),
            ["node", node, "down"] => number(node).map(|node| Self::NodeDown(NodeId(node))),
            ["rack", rack, "up"] => number(rack).map(|rack| Self::RackUp(RackId(rack))),
            ["rack", rack, "down"] => number(rack).map(|rack| Self::RackDown(RackId(rack))),
            ["node", from, "to", to] => {
                number(from).zip(number(to)).map(|(from, to)| Self::Pair(NodeId(from), NodeId(to)))
            }
            _ => None,
        };
        let expected = "\"node N up\", \"node N down\", \"rack R up\", \"rack R down\" or \"node N to M\"";
        link.ok_or_else(|| LabError::invalid("link", expected, quoted(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_as_they_are_written() {
        for text in ["node 3 up", "node 0 down", "rack 1 up", "rack 12 down", "node 3 to 5"] {
            assert_eq!(text.parse::<Link>().unwrap().to_string(), text);
        }
        for bad in ["", "node", "node x up", "rack 1 to 2", "node 1 left", "node -1 up", "node 3 to"] {
            assert!(bad.parse::<Link>().unwrap_err().to_string().contains("expected"), "{bad}");
        }
    }
}
