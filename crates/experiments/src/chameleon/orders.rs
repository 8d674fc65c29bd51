//! The order in which the blocks of several lost nodes are repaired (section III-D): all three that the paper names, computed
//! without a lab by [`super::fluid`].

use kintsu_dag::{NodeId, StripeId};
use kintsu_plan::DamagedStripe;
use kintsu_plan::many::{FailedNodes, LostBlock, PHASE_SECONDS, in_order};
use rand::SeedableRng;

use super::fluid::{Damage, lost, scene};
use super::planning::{DAMAGE, REPETITIONS, busy_links, in_phases, judged, place, users};
use super::*;
use crate::figures::Judged;
use crate::figures::catalog::Kind;
use crate::workload::Random;

pub const ORDERS: Entry = Entry {
    name: "chameleon-orders",
    groups: &[GROUP],
    about: "section III-D: three orders in which the blocks of several lost nodes are repaired, computed",
    kind: Kind::Computed(
        "the paper has no figure of it; computed as chameleon-3, in phases of 20 s; the nodes had about 200 blocks",
        orders,
    ),
};

/// How many nodes are lost.
const GONE: u32 = 3;
/// The nodes before that: the paper's, and so many that few stripes have lost several blocks.
const NODES: [u32; 2] = [20, 100];
/// The blocks of a stripe of RS(14,10).
const BLOCKS: usize = 14;
const NAMED: [(FailedNodes, &str); 3] = [
    (FailedNodes::NodeByNode, "node by node"),
    (FailedNodes::MostLost, "stripes that lost most first"),
    (FailedNodes::Shortest, "shortest repair first"),
];
/// What [`run`] tells.
const UNTIL: [&str; 3] =
    ["everything is repaired", "no stripe lacks two blocks", "a block is repaired, on average"];

fn orders() -> Result<Vec<Judged>> {
    let mut claims = Vec::new();
    for nodes in NODES {
        for (order, name) in NAMED {
            let runs = (0..REPETITIONS).map(|seed| run(nodes, order, seed)).collect::<Result<Vec<_>>>()?;
            for (number, until) in UNTIL.into_iter().enumerate() {
                let text = format!("{GONE} of {nodes} nodes lost, {name}: until {until}");
                let seconds = runs.iter().map(|run| run[number]).collect();
                claims.push(judged(text, "s", None, None, seconds));
            }
        }
    }
    Ok(claims)
}

/// Seconds until each of [`UNTIL`].
fn run(nodes: u32, order: FailedNodes, seed: u64) -> Result<[f64; 3]> {
    let blocks = DAMAGE.blocks * nodes as usize / (GONE as usize * BLOCKS);
    let damage = Damage { nodes: nodes - GONE, blocks, ..DAMAGE };
    let drawn = damage.without(GONE, &mut Random::seed_from_u64(seed))?;
    let (mut stripes, homes): (Vec<DamagedStripe>, Vec<Vec<NodeId>>) = drawn.into_iter().unzip();
    let idle = busy_links(&damage, &mut users(seed));
    let topology = damage.topology(idle.rates);
    let failed = |lost: LostBlock<'_>| homes[place(&lost).0][usize::from(lost.block.0)];
    let blocks: Vec<_> = lost(&stripes).into_iter().map(|lost| (failed(lost), lost)).collect();
    let sorted = in_order(&scene(&topology, &idle.disks, &[]), &blocks, order);
    let waiting = sorted.iter().map(place).collect();
    let repaired = in_phases(&damage, &mut stripes, waiting, PHASE_SECONDS, users(seed))?;
    let mut lacks: BTreeMap<StripeId, usize> =
        stripes.iter().map(|stripe| (stripe.view.id, stripe.lost.len())).collect();
    let [mut last, mut alone, mut sum] = [0.0; 3];
    for (stripe, second) in &repaired {
        let lacks = lacks.entry(*stripe).or_default();
        if *lacks == 2 {
            alone = *second;
        }
        *lacks = lacks.saturating_sub(1);
        last = *second;
        sum += second;
    }
    Ok([last, alone, sum / repaired.len().max(1) as f64])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_that_lost_most_lack_two_blocks_for_the_shortest_time_where_they_go_first() {
        let [by_node, most_lost] =
            [FailedNodes::NodeByNode, FailedNodes::MostLost].map(|order| run(100, order, 1).unwrap());
        assert!(most_lost[1] > 0.0 && most_lost[1] < by_node[1], "{most_lost:?} {by_node:?}");
        assert!(most_lost[1] < most_lost[0]);
    }
}
