//! Which stripes can be read while nodes are gone.

use std::collections::BTreeSet;
use std::fmt;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId};

use crate::meta::record::StripeRecord;

/// Most objects that are named.
const NAMED: usize = 3;

/// The stripes and objects that could not be read any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Harm {
    /// Number of stripes.
    pub stripes: u64,
    /// Number of objects that these stripes belong to.
    pub objects: u64,
    /// The names of the first few objects.
    pub names: Vec<String>,
}

/// Counts the stripes that could not be read any more.
#[derive(Debug, Default)]
pub struct Harmed {
    stripes: u64,
    owners: BTreeSet<u64>,
}

impl Harmed {
    /// A stripe with the block of a node, of which `gone` would be gone: does it need the block?
    pub fn look(
        &mut self,
        stripe: &StripeRecord,
        index: BlockIndex,
        code: &dyn Code,
        gone: &BTreeSet<NodeId>,
    ) {
        let held = stripe.block(index).is_some_and(|block| !block.lost);
        if !held || readable(stripe, code, gone) {
            return;
        }
        self.stripes += 1;
        self.owners.insert(stripe.owner);
    }

    /// The sum. `objects` says whose bytes the stripes of an owner have: the name of one object, and how many there are.
    ///
    /// # Errors
    /// Those of `objects`.
    pub fn end<E>(self, mut objects: impl FnMut(u64) -> Result<(Option<String>, u64), E>) -> Result<Harm, E> {
        let mut harm = Harm { stripes: self.stripes, ..Harm::default() };
        for owner in self.owners {
            let (name, count) = objects(owner)?;
            harm.objects += count;
            harm.names.extend(name.filter(|_| harm.names.len() < NAMED));
        }
        Ok(harm)
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let several = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let names: Vec<String> = self.names.iter().map(|name| format!("{name:?}")).collect();
        let more = if self.objects > self.names.len() as u64 { ", ..." } else { "" };
        let (stripes, objects) = (several(self.stripes, "stripe"), several(self.objects, "object"));
        write!(f, "{stripes} of {objects} that could not be read afterwards: {}{more}", names.join(", "))
    }
}

/// The blocks that were made and cannot be read: flagged lost, or at home on a node that is gone.
pub fn unavailable(stripe: &StripeRecord, gone: &BTreeSet<NodeId>) -> Vec<BlockIndex> {
    stripe.made().filter(|(_, b)| b.lost || gone.contains(&b.node)).map(|(index, _)| index).collect()
}

/// Whether a stripe can be read while these nodes are gone.
pub fn readable(stripe: &StripeRecord, code: &dyn Code, gone: &BTreeSet<NodeId>) -> bool {
    let lost = unavailable(stripe, gone);
    if stripe.encoded {
        lost.len() < code.distance() || code.recoverable(&lost)
    } else {
        !lost.iter().any(|block| usize::from(block.0) < code.k())
    }
}

/// How many more blocks a stripe can lose for sure while these nodes are gone; `None` if it cannot be read.
pub fn bears(stripe: &StripeRecord, code: &dyn Code, gone: &BTreeSet<NodeId>) -> Option<u64> {
    let lost = unavailable(stripe, gone).len();
    let sure = if stripe.encoded { code.distance().checked_sub(1 + lost) } else { None };
    match sure {
        Some(sure) => Some(sure as u64),
        None => readable(stripe, code, gone).then_some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::record::BlockRecord;
    use kintsu_plan::{Layout, LayoutKind};

    #[test]
    fn a_stripe_can_be_read_as_long_as_its_code_can_decode_it_and_plain_only_with_all_data() {
        let code = kintsu_code::parse("rs:n=4,k=2").unwrap();
        let layout =
            Layout { kind: LayoutKind::Contiguous, block_bytes: 8, cell_bytes: 8, w: 1, data_bytes: 16 };
        let block = |i: u32| {
            Some(BlockRecord { node: NodeId(i), digest: Some([0; 16]), lost: i == 3, generation: 1 })
        };
        let blocks = (0..4).map(block).collect();
        let mut stripe =
            StripeRecord { owner: 1, offset: 0, code: 0, generation: 1, layout, encoded: true, blocks };
        let gone = |nodes: &[u32]| nodes.iter().map(|n| NodeId(*n)).collect::<BTreeSet<_>>();
        assert_eq!(unavailable(&stripe, &gone(&[0])), [0, 3].map(BlockIndex));
        assert!(readable(&stripe, code.as_ref(), &gone(&[0])));
        assert!(!readable(&stripe, code.as_ref(), &gone(&[0, 1])));
        let more = |nodes: &[u32]| bears(&stripe, code.as_ref(), &gone(nodes));
        assert_eq!([more(&[]), more(&[0]), more(&[0, 1])], [Some(1), Some(0), None]);
        stripe.encoded = false;
        assert!(readable(&stripe, code.as_ref(), &gone(&[2])));
        assert!(!readable(&stripe, code.as_ref(), &gone(&[0])));
    }
}
