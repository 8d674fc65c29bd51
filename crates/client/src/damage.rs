//! Where the blocks of an object are, which of them cannot be read, and what that means for its stripes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use kintsu_code::{Code, Definition};
use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};
use kintsu_wire::message::{BlockPlace, NodeAddress, NodeInfo, NodeState, StripeInfo};
use serde::Serialize;

/// Most damaged stripes that are described one by one.
const DESCRIBED: usize = 20;

/// What is known of a node that may have blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSeen {
    /// Its id.
    pub id: NodeId,
    /// Its rack.
    pub rack: RackId,
    /// Why it cannot be read; `None` if it can.
    pub down: Option<&'static str>,
    /// Its folder, as far as that is told: only operators are told.
    pub dir: Option<PathBuf>,
}

impl From<&NodeInfo> for NodeSeen {
    fn from(node: &NodeInfo) -> Self {
        let down = match node.state {
            NodeState::Alive | NodeState::Draining => None,
            down => Some(down.word()),
        };
        Self { id: node.id, rack: node.rack, down, dir: Some(PathBuf::from(&node.dir)) }
    }
}

impl From<&NodeAddress> for NodeSeen {
    fn from(node: &NodeAddress) -> Self {
        Self { id: node.id, rack: node.rack, down: (!node.alive).then_some("AWAY"), dir: None }
    }
}

/// A block of an object, as `kintsu stat` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LocatedBlock {
    /// Its stripe.
    pub stripe: StripeId,
    /// Its index in the stripe.
    pub index: BlockIndex,
    /// Where it is, or should be.
    pub node: NodeId,
    /// The rack of that node; `None` for an unknown node.
    pub rack: Option<RackId>,
    /// Its file on that node; `None` for an unknown node, or if its folder is not told.
    pub path: Option<PathBuf>,
    /// Its length in bytes.
    pub length: u64,
    /// The digest of its bytes; `None` if it does not exist yet.
    pub checksum: Option<String>,
    /// Whether it is known to be lost there.
    pub lost: bool,
    /// Why it cannot be read; `None` if it can, as far as is known.
    pub fault: Option<&'static str>,
}

impl LocatedBlock {
    /// The blocks of a stripe that are stored.
    pub fn all<'a>(stripe: &'a StripeInfo, nodes: &'a [NodeSeen]) -> impl Iterator<Item = Self> + 'a {
        stripe.blocks.iter().flatten().map(|block| {
            let node = nodes.iter().find(|node| node.id == block.node);
            Self {
                stripe: stripe.id,
                index: block.id.index,
                node: block.node,
                rack: node.map(|node| node.rack),
                path: node
                    .and_then(|node| node.dir.as_deref())
                    .map(|dir| kintsu_store::block_path(dir, block.id)),
                length: block.len,
                checksum: block.digest.map(|digest| kintsu_store::Digest(digest).to_string()),
                lost: block.lost,
                fault: fault(block, nodes),
            }
        })
    }
}

/// What is wrong with a block: `None` if it can be read as far as is known.
fn fault(block: &BlockPlace, nodes: &[NodeSeen]) -> Option<&'static str> {
    let node = nodes.iter().find(|node| node.id == block.node);
    match node {
        _ if block.digest.is_none() => None,
        _ if block.lost => Some("LOST"),
        Some(node) => node.down,
        None => Some("UNKNOWN NODE"),
    }
}

/// A block that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Its index in the stripe.
    pub index: BlockIndex,
    /// Where it should be.
    pub node: NodeId,
    /// Why it cannot be read; in lower case for programs.
    #[serde(serialize_with = "lower_case")]
    pub why: &'static str,
}

/// A stripe with blocks that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DamagedPart {
    /// Which stripe.
    pub stripe: StripeId,
    /// Whether it can be decoded all the same; `None` if its code is not known here.
    pub readable: Option<bool>,
    /// The blocks.
    pub blocks: Vec<Missing>,
}

fn lower_case<S: serde::Serializer>(word: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&word.to_lowercase())
}

/// The stripes of an object with blocks that cannot be read.
#[derive(Default, Serialize)]
pub struct Damage {
    /// The whole object in a word: `whole`, `degraded` or `unreadable`.
    pub health: Health,
    /// Stripes that cannot be read.
    pub unreadable_stripes: usize,
    /// All of them.
    pub damaged_stripes: Vec<DamagedPart>,
    #[serde(skip)]
    codes: BTreeMap<String, Option<Arc<dyn Code>>>,
}

impl std::fmt::Debug for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Damage").field("health", &self.health).finish_non_exhaustive()
    }
}

/// An object in a word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Every block can be read.
    #[default]
    Whole,
    /// Blocks are missing, and all bytes can be read.
    Degraded,
    /// Some bytes cannot be read.
    Unreadable,
}

impl Damage {
    /// Looks at a stripe.
    pub fn add(&mut self, stripe: &StripeInfo, definition: Option<&Definition>, nodes: &[NodeSeen]) {
        let absent = stripe.blocks.iter().flatten();
        let absent: Vec<_> = absent.filter_map(|block| Some((block, fault(block, nodes)?))).collect();
        if absent.is_empty() {
            return;
        }
        let code = self.codes.entry(stripe.code.clone()).or_insert_with(|| match definition {
            Some(definition) => definition.prove().ok(),
            None => kintsu_code::parse(&stripe.code).ok(),
        });
        let gone: Vec<BlockIndex> = absent.iter().map(|(block, _)| block.id.index).collect();
        let data = |block: &BlockIndex, code: &dyn Code| usize::from(block.0) < code.k();
        let readable = code.as_deref().map(|code| match stripe.encoded {
            true => code.recoverable(&gone),
            false => !gone.iter().any(|block| data(block, code)),
        });
        self.unreadable_stripes += usize::from(readable == Some(false));
        self.health = if self.unreadable_stripes > 0 { Health::Unreadable } else { Health::Degraded };
        let blocks =
            absent.iter().map(|(block, why)| Missing { index: block.id.index, node: block.node, why });
        self.damaged_stripes.push(DamagedPart { stripe: stripe.id, readable, blocks: blocks.collect() });
    }

    /// For people; nothing if all is well.
    pub fn lines(&self) -> Vec<String> {
        let damaged = &self.damaged_stripes;
        let mut lines: Vec<String> = damaged.iter().take(DESCRIBED).map(described).collect();
        if damaged.len() > DESCRIBED {
            lines.push(format!("and {} more damaged stripes (--json has all)", damaged.len() - DESCRIBED));
        }
        if !damaged.is_empty() {
            lines.push(format!(
                "{} stripe(s) damaged, {} of them CANNOT be read",
                damaged.len(),
                self.unreadable_stripes
            ));
        }
        lines
    }
}

fn described(part: &DamagedPart) -> String {
    let one = |block: &Missing| format!("{} on node {} ({})", block.index, block.node.0, block.why);
    let list = part.blocks.iter().map(one).collect::<Vec<_>>().join(", ");
    let verdict = match part.readable {
        Some(true) => "it can be read",
        Some(false) => "it CANNOT be read",
        None => "its code is not known here",
    };
    format!("stripe {}: {} blocks unavailable: {list}; {verdict}", part.stripe, part.blocks.len())
}
