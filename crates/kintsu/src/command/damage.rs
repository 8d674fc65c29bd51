//! Marks the blocks that cannot be read, for `kintsu stat`.

use std::collections::BTreeMap;
use std::sync::Arc;

use kintsu_code::{Code, Definition};
use kintsu_dag::BlockIndex;
use kintsu_wire::message::{BlockPlace, NodeInfo, NodeState, StripeInfo};
use serde_json::{Value, json};

use super::node::state;

/// Most damaged stripes that are described one by one.
const DESCRIBED: usize = 20;

/// What is wrong with a block: `None` if it can be read as far as is known.
pub fn fault(block: &BlockPlace, nodes: &[NodeInfo]) -> Option<&'static str> {
    let node = nodes.iter().find(|node| node.id == block.node);
    match node.map(|node| node.state) {
        _ if block.digest.is_none() => None,
        _ if block.lost => Some("LOST"),
        Some(NodeState::Alive | NodeState::Draining) => None,
        Some(down) => Some(state(down)),
        None => Some("UNKNOWN NODE"),
    }
}

/// The stripes of an object with blocks that cannot be read.
#[derive(Default)]
pub struct Damage {
    codes: BTreeMap<String, Option<Arc<dyn Code>>>,
    rows: Vec<Value>,
    lines: Vec<String>,
    unreadable: usize,
}

impl Damage {
    /// Looks at a stripe.
    pub fn add(&mut self, stripe: &StripeInfo, definition: Option<&Definition>, nodes: &[NodeInfo]) {
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
        self.unreadable += usize::from(readable == Some(false));
        let blocks: Vec<Value> = absent
            .iter()
            .map(|(block, why)| json!({"index": block.id.index.0, "node": block.node.0, "why": why.to_lowercase()}))
            .collect();
        self.rows.push(json!({"stripe": stripe.id.0, "readable": readable, "blocks": blocks}));
        let list =
            absent.iter().map(|(block, why)| format!("{} on node {} ({why})", block.id.index, block.node.0));
        let verdict = match readable {
            Some(true) => "it can be read",
            Some(false) => "it CANNOT be read",
            None => "its code is not known here",
        };
        let list = list.collect::<Vec<_>>().join(", ");
        self.lines.push(format!(
            "stripe {}: {} blocks unavailable: {list}; {verdict}",
            stripe.id,
            absent.len()
        ));
    }

    /// The whole object in a word.
    pub fn word(&self) -> &'static str {
        match (self.rows.len(), self.unreadable) {
            (0, _) => "whole",
            (_, 0) => "degraded",
            _ => "unreadable",
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({"health": self.word(), "unreadable_stripes": self.unreadable, "damaged_stripes": self.rows})
    }

    /// For people; nothing if all is well.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.lines.iter().take(DESCRIBED).cloned().collect();
        if self.lines.len() > DESCRIBED {
            lines.push(format!("and {} more damaged stripes (--json has all)", self.lines.len() - DESCRIBED));
        }
        if !self.rows.is_empty() {
            lines.push(format!(
                "{} stripe(s) damaged, {} of them CANNOT be read",
                self.rows.len(),
                self.unreadable
            ));
        }
        lines
    }
}
