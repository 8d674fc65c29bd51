//! Decides whether a put can be committed: which blocks must be checked first, what the answers of the nodes
//! show, and which stripes must be written again. The driver does the work.
//!
//! A put remembers for each of its homes the [`Fence`] that the node had when the put got the home. If the
//! fence has changed, the node was restarted or wiped and may have lost what the put wrote there. So it is
//! asked. A dead node cannot be asked: its blocks count as lost, if their stripes can be read without them.
//! All other blocks are there, because a node acknowledges a block only when it is durable.
//!
//! Invariants: an answer counts only as long as the fence of its node stays the same; a put is committed only
//! if every block of it is known to be there, or may be lost without making its stripe unreadable; the tries
//! end after [`ROUNDS`].

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockId, BlockIndex, NodeId};
use kintsu_wire::message::{DigestBytes, HeldBlock};

use crate::meta::record::{Fence, PendingStripe};

/// How many times the commit is tried. After each failed try, the doubtful nodes are asked.
const ROUNDS: usize = 5;

/// Blocks that a node may have lost after they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// The node.
    pub node: NodeId,
    /// Its fence now: its answer is valid as long as the fence does not change.
    pub fence: Option<Fence>,
    /// The blocks as they were written.
    pub blocks: Vec<HeldBlock>,
}

/// The answer of a node that was asked about its [`Doubt`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The node.
    pub node: NodeId,
    /// [`Doubt::fence`].
    pub fence: Option<Fence>,
    /// The blocks that are there as they were written.
    pub there: BTreeSet<BlockId>,
    /// The blocks that are not there, or about which the node could not be asked, with the reason.
    pub missing: BTreeMap<BlockId, String>,
}

impl Told {
    /// An answer without any block: the node has not answered yet.
    pub fn nothing(doubt: &Doubt) -> Self {
        let (there, missing) = Default::default();
        Self { node: doubt.node, fence: doubt.fence, there, missing }
    }

    /// Notes the answer about these blocks: what the node has in the place of each, or why it could not be
    /// asked.
    pub fn heard(&mut self, asked: &[HeldBlock], found: Result<&[Option<HeldBlock>], &str>) {
        let node = self.node;
        let gone =
            |what: &str| format!("{node} was started again or wiped after it was written to, and {what}");
        match found {
            Err(reason) => self.missing.extend(asked.iter().map(|want| (want.id, gone(reason)))),
            Ok(found) => {
                for (want, got) in asked.iter().zip(found) {
                    let what = match got {
                        Some(got) if got == want => {
                            self.there.insert(want.id);
                            continue;
                        }
                        Some(_) => "it has another block in its place",
                        None => "it does not have the block any more",
                    };
                    self.missing.insert(want.id, format!("{} on {node}: {}", want.id, gone(what)));
                }
            }
        }
    }
}

/// The progress of the commit of one put.
#[derive(Debug, Clone, Default)]
pub struct Committing {
    rounds: usize,
    told: BTreeMap<NodeId, Told>,
    restless: Option<NodeId>,
}

impl Committing {
    /// Whether there is another try.
    pub fn begins(&mut self) -> bool {
        self.rounds += 1;
        self.rounds <= ROUNDS
    }

    /// The answers for this try.
    pub fn told(&self) -> &BTreeMap<NodeId, Told> {
        &self.told
    }

    /// A try has shown doubts, and the nodes have answered.
    pub fn heard(&mut self, answers: Vec<Told>) {
        self.restless = answers.first().map(|told| told.node);
        self.told = answers.into_iter().map(|told| (told.node, told)).collect();
    }

    /// Why there is no further try.
    pub fn gave_up(&self) -> String {
        let who = self.restless.map_or("one".into(), |node| node.to_string());
        format!("{who} restarted again and again")
    }
}

/// What is known about the nodes when a put is committed.
pub struct Evidence<'a> {
    /// The nodes that are dead or stopped.
    pub down: &'a BTreeSet<NodeId>,
    /// The answers of the other nodes.
    pub told: &'a BTreeMap<NodeId, Told>,
    /// Whether a stripe can be read without these blocks.
    pub bearable: &'a dyn Fn(&[BlockIndex]) -> bool,
}

/// A stripe of a put that cannot be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The stripe as it was granted.
    pub stripe: PendingStripe,
    /// The node that does not have its block.
    pub node: NodeId,
    /// What happened, as text for people.
    pub detail: String,
}

/// Whether a put can be committed.
#[derive(Debug, Default)]
pub struct Judgement {
    /// What must be checked first.
    pub doubts: BTreeMap<NodeId, Doubt>,
    /// The stripes that must be written again.
    pub refusals: Vec<Refusal>,
    /// Blocks on dead nodes, without which their stripes can be read.
    pub lost: BTreeSet<BlockId>,
}

impl Judgement {
    /// Judges one more stripe; `digests` come from its client, `doubtful` are the nodes that may have lost blocks. If
    /// its client cannot write it again, blocks that living nodes have lost are borne like those of dead nodes.
    pub fn add(
        &mut self,
        stripe: &PendingStripe,
        digests: &[Option<DigestBytes>],
        k: usize,
        can_rewrite: bool,
        doubtful: &BTreeMap<NodeId, Option<Fence>>,
        evidence: &Evidence<'_>,
    ) {
        let (mut gone, mut refusal) = (Vec::new(), None);
        for (i, (home, digest)) in stripe.homes.iter().zip(digests).enumerate() {
            let (Some(node), Some(digest)) = (*home, *digest) else { continue };
            let Some(&fence) = doubtful.get(&node) else { continue };
            let index = BlockIndex(i as u8);
            let id = BlockId { stripe: stripe.id, index };
            if evidence.down.contains(&node) {
                gone.push((index, node));
                continue;
            }
            let told = evidence.told.get(&node).filter(|told| told.fence == fence);
            if told.is_some_and(|told| told.there.contains(&id)) {
                continue;
            }
            match told.and_then(|told| told.missing.get(&id)) {
                Some(_) if !can_rewrite => gone.push((index, node)),
                Some(detail) => {
                    refusal.get_or_insert((node, detail.clone()));
                }
                None => {
                    let doubt = || Doubt { node, fence, blocks: Vec::new() };
                    let len = stripe.layout.block_len(k, index);
                    let block = HeldBlock { id, generation: stripe.generation, len, digest };
                    self.doubts.entry(node).or_insert_with(doubt).blocks.push(block);
                }
            }
        }
        if let (None, Some(&(index, node))) = (&refusal, gone.first())
            && !(evidence.bearable)(&absent(stripe, digests, &gone))
        {
            let blocks = gone.len();
            let what = match can_rewrite {
                true => format!("{blocks} of its nodes are dead, and it cannot be read without their blocks"),
                false => format!("{blocks} of its blocks are gone, and it cannot be read without them"),
            };
            refusal = Some((node, format!("{}.{index} is lost: {what}", stripe.id)));
        }
        match refusal {
            Some((node, detail)) => self.refusals.push(Refusal { stripe: stripe.clone(), node, detail }),
            None => self.lost.extend(gone.iter().map(|&(index, _)| BlockId { stripe: stripe.id, index })),
        }
    }
}

/// The blocks that cannot be read: those in `gone`, and parity that is not made yet.
fn absent(
    stripe: &PendingStripe,
    digests: &[Option<DigestBytes>],
    gone: &[(BlockIndex, NodeId)],
) -> Vec<BlockIndex> {
    let made = |i: usize| digests[i].is_some() || stripe.homes[i].is_none();
    let absent = |i: &usize| !made(*i) || gone.iter().any(|(index, _)| usize::from(index.0) == *i);
    (0..digests.len()).filter(absent).map(|i| BlockIndex(i as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::StripeId;
    use kintsu_plan::{Layout, LayoutKind};

    const FENCE: Option<Fence> = Some(Fence { incarnation: 2, epoch: 0 });

    /// Two data blocks and two parity blocks on nodes 0 to 3.
    fn granted() -> (PendingStripe, Vec<Option<DigestBytes>>) {
        let layout =
            Layout { kind: LayoutKind::Contiguous, block_bytes: 8, cell_bytes: 8, w: 1, data_bytes: 16 };
        let homes = (0..4).map(|i| Some(NodeId(i))).collect();
        let stripe =
            PendingStripe { id: StripeId(7), offset: 0, generation: 3, layout, homes, put: 1, digests: None };
        (stripe, (0..4).map(|i| Some([i; 16])).collect())
    }

    /// Judges the stripe with these nodes doubtful, and these of them down; any two blocks may be lost.
    fn judge(doubtful: &[u32], down: &[u32], told: &BTreeMap<NodeId, Told>) -> Judgement {
        let (stripe, digests) = granted();
        let doubtful = doubtful.iter().map(|n| (NodeId(*n), FENCE)).collect();
        let down = down.iter().map(|n| NodeId(*n)).collect();
        let evidence = Evidence { down: &down, told, bearable: &|lost| lost.len() <= 2 };
        let mut judgement = Judgement::default();
        judgement.add(&stripe, &digests, 2, true, &doubtful, &evidence);
        judgement
    }

    #[test]
    fn a_doubtful_node_is_asked_and_its_answer_decides_while_its_fence_stays() {
        let mut machine = Committing::default();
        assert!(machine.begins());
        let doubt = judge(&[1], &[], machine.told()).doubts.remove(&NodeId(1)).unwrap();
        let block = doubt.blocks[0].clone();
        assert_eq!((doubt.blocks.len(), block.generation, block.len, block.digest), (1, 3, 8, [1; 16]));
        let mut told = Told::nothing(&doubt);
        told.heard(&doubt.blocks, Ok(&[Some(block.clone())]));
        machine.heard(vec![told.clone()]);
        let fine = judge(&[1], &[], machine.told());
        assert!(fine.doubts.is_empty() && fine.refusals.is_empty() && fine.lost.is_empty());
        // It was started once more meanwhile: it is asked again.
        machine.heard(vec![Told { fence: None, ..told }]);
        assert_eq!(judge(&[1], &[], machine.told()).doubts.len(), 1);
        assert_eq!((0..9).filter(|_| machine.begins()).count(), ROUNDS - 1);
        assert_eq!(machine.gave_up(), "N1 restarted again and again");
    }

    #[test]
    fn what_a_node_has_no_more_is_written_again() {
        let doubt = judge(&[1], &[], &BTreeMap::new()).doubts.remove(&NodeId(1)).unwrap();
        let other = HeldBlock { digest: [9; 16], ..doubt.blocks[0].clone() };
        for (found, words) in [
            (Ok(&[None][..]), "does not have the block any more"),
            (Ok(&[Some(other)][..]), "another block in its place"),
            (Err("is silent"), "and is silent"),
        ] {
            let mut told = Told::nothing(&doubt);
            told.heard(&doubt.blocks, found);
            let judgement = judge(&[1], &[], &BTreeMap::from([(NodeId(1), told)]));
            assert!(judgement.doubts.is_empty());
            let [Refusal { node, detail, .. }] = &judgement.refusals[..] else { panic!("{judgement:?}") };
            assert!(*node == NodeId(1) && detail.contains(words), "{detail}");
        }
    }

    #[test]
    fn a_stream_bears_what_it_cannot_write_again() {
        let (stripe, digests) = granted();
        let judge = |missing: &[u32]| {
            let nodes: Vec<_> = missing.iter().map(|n| NodeId(*n)).collect();
            let doubtful = nodes.iter().map(|node| (*node, FENCE)).collect();
            let told = |&node: &NodeId| {
                let id = BlockId { stripe: stripe.id, index: BlockIndex(node.0 as u8) };
                let missing = BTreeMap::from([(id, "it is gone".to_owned())]);
                (node, Told { node, fence: FENCE, there: BTreeSet::new(), missing })
            };
            let (down, told) = (BTreeSet::new(), nodes.iter().map(told).collect());
            let evidence = Evidence { down: &down, told: &told, bearable: &|lost| lost.len() <= 2 };
            let mut judgement = Judgement::default();
            judgement.add(&stripe, &digests, 2, false, &doubtful, &evidence);
            judgement
        };
        let borne = judge(&[0, 2]);
        assert!(borne.refusals.is_empty() && borne.doubts.is_empty() && borne.lost.len() == 2, "{borne:?}");
        let refused = judge(&[0, 1, 2]);
        assert!(refused.lost.is_empty() && refused.refusals[0].detail.contains("3 of its blocks are gone"));
    }

    #[test]
    fn blocks_on_dead_nodes_are_lost_as_far_as_that_can_be_borne() {
        let judgement = judge(&[0, 1], &[0, 1], &BTreeMap::new());
        let lost: Vec<_> = judgement.lost.iter().map(|id| id.index.0).collect();
        assert!(lost == [0, 1] && judgement.refusals.is_empty() && judgement.doubts.is_empty());
        let judgement = judge(&[0, 1, 3], &[0, 1, 3], &BTreeMap::new());
        assert!(judgement.lost.is_empty());
        assert!(judgement.refusals[0].detail.contains("3 of its nodes are dead"), "{judgement:?}");
    }
}
