//! Which stripes can be read while nodes are gone.

use std::collections::BTreeSet;
use std::fmt;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId};

use super::health::several;
use crate::meta::record::StripeRecord;

/// Most objects and volumes that are named.
const NAMED: usize = 3;

/// Whose bytes a stripe has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// Those of objects that share it: the name of one, and how many they are.
    Objects(String, u64),
    /// Those of the volume, or snapshot, of this name.
    Volume(String),
}

impl Whose {
    /// The name of the volume, or of one of the objects.
    fn name(&self) -> String {
        match self {
            Self::Objects(name, _) => format!("{name:?}"),
            Self::Volume(name) => format!("volume {name:?}"),
        }
    }
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        match self {
            Self::Objects(_, count) if *count > 1 => write!(f, " and {} more", count - 1),
            _ => Ok(()),
        }
    }
}

/// Whose bytes some stripes have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    /// How many objects.
    pub objects: u64,
    /// The names of the volumes and snapshots.
    pub volumes: BTreeSet<String>,
}

impl Owners {
    /// Adds those of further stripes; false if they were added before: other stripes of a volume.
    pub fn add(&mut self, whose: &Whose) -> bool {
        match whose {
            Whose::Objects(_, count) => self.objects += count,
            Whose::Volume(name) => return self.volumes.insert(name.clone()),
        }
        true
    }

    fn count(&self) -> u64 {
        self.objects + self.volumes.len() as u64
    }
}

impl fmt::Display for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let volumes = self.volumes.len() as u64;
        let parts = [(self.objects, "object"), (volumes, "volume")];
        let named =
            parts.into_iter().filter(|(count, what)| *count > 0 || (volumes == 0 && *what == "object"));
        f.write_str(&named.map(|(count, what)| several(count, what)).collect::<Vec<_>>().join(" and "))
    }
}

/// The stripes, objects and volumes that could not be read any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Harm {
    /// Number of stripes.
    pub stripes: u64,
    /// Whose bytes these stripes have.
    pub owners: Owners,
    /// The names of the first few.
    pub names: Vec<String>,
}

/// Counts the stripes that could not be read any more.
#[derive(Debug, Clone, Default)]
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

    /// The sum. `whose` says whose bytes the stripes of an owner have.
    ///
    /// # Errors
    /// Those of `whose`.
    pub fn end<E>(self, mut whose: impl FnMut(u64) -> Result<Option<Whose>, E>) -> Result<Harm, E> {
        let mut harm = Harm { stripes: self.stripes, ..Harm::default() };
        for owner in self.owners {
            let Some(whose) = whose(owner)? else { continue };
            if harm.owners.add(&whose) && harm.names.len() < NAMED {
                harm.names.push(whose.name());
            }
        }
        Ok(harm)
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.owners.count() > self.names.len() as u64 { ", ..." } else { "" };
        let (stripes, owners, names) = (several(self.stripes, "stripe"), &self.owners, self.names.join(", "));
        write!(f, "{stripes} of {owners} that could not be read afterwards: {names}{more}")
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
    fn a_volume_counts_once_and_the_first_few_are_named() {
        let mut harmed = Harmed { stripes: 7, owners: (1..=6).collect() };
        let whose = |owner: u64| {
            Ok::<_, ()>(match owner {
                1..=3 => Some(Whose::Volume("disk".into())),
                4 => Some(Whose::Objects("a".into(), 3)),
                _ => None,
            })
        };
        let text = harmed.clone().end(whose).unwrap().to_string();
        let expected = "7 stripes of 3 objects and 1 volume that could not be read afterwards: volume \"disk\", \"a\", ...";
        assert_eq!(text, expected);
        harmed.owners = BTreeSet::from([1, 2]);
        let text = harmed.end(whose).unwrap().to_string();
        assert_eq!(text, "7 stripes of 1 volume that could not be read afterwards: volume \"disk\"");
        assert_eq!(Owners::default().to_string(), "0 objects");
        assert_eq!(Whose::Objects("a".into(), 3).to_string(), "\"a\" and 2 more");
    }

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
