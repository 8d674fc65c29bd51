//! Results that are computed from codes and plans alone: OpenEC's Table 2, and what its placements of section 4.4 send
//! across racks beside ours.
//!
//! The gain of a column is the cost of conventional repair of RS divided by the cost of the column's repair, in
//! the mean over data blocks. The cost is what the table's authors regard as the bottleneck: the bytes of the
//! busiest link where all links are equal, timeslots where blocks go from node to node in rounds (PPR), and bytes
//! across racks where the links between racks are slow (DRC).
//!
//! OpenEC places a graph by automatic binds (`bind_x` of parents with the same children, `bind_y` to the first child) or
//! transforms it into a path that leaves each rack once (Fig. 5). The planner chooses helpers and encoders by racks instead.

use std::collections::BTreeMap;

use kintsu_dag::{BlockIndex, Ecdag, NodeId, Placed, RackId, Sink, StripeId, Vertex, pipelined};
use kintsu_plan::{
    Account, Binding, Division, Layout, LayoutKind, Method, Node, Plan, Repair, StripeView, Topology,
    encode_offline, repair,
};

use super::super::declare::Aim;
use super::super::report::Judged;
use super::super::site::parse;
use super::super::spread::Spread;
use super::build::rs;
use super::{Entry, Kind};
use crate::error::Result;

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "openec-table2",
        groups: &["openec", "page"],
        about: "theoretical gains of codes and repair methods over conventional repair of RS",
        kind: Kind::Computed(COSTS, gains),
    },
    Entry {
        name: "openec-binds",
        groups: &["openec", "page"],
        about: "blocks across racks by OpenEC's automatic binds and pipelined form, and by the planner",
        kind: Kind::Computed(PLACEMENTS, placements),
    },
];

const COSTS: &str = "the cost of a repair is what the busiest link carries, for PPR the number of its rounds, for DRC what crosses racks; the mean \
    over all data blocks";
const PLACEMENTS: &str = "blocks across racks are counted and no time is measured; RS in the shapes of Fig. 11, in three racks; the mean over \
    data blocks and over the places of the first block in its rack";

/// How the cost of a repair is counted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cost {
    /// Bytes over the busiest link.
    BusiestLink,
    /// Timeslots when whole blocks go from node to node.
    Timeslots,
    /// Bytes between racks.
    AcrossRacks,
}

/// A column: its heading, the code and method, the RS code that it is compared with, the racks, the cost, the
/// published gain.
type Column = (&'static str, &'static str, Method, &'static str, u32, Cost, f64);

const COLUMNS: [Column; 7] = [
    (
        "LRC(10,6) vs. RS(9,6)",
        "azure-lrc:n=10,k=6,r=3",
        Method::Conventional,
        "rs:n=9,k=6",
        1,
        Cost::BusiestLink,
        2.0,
    ),
    (
        "Butterfly(6,4) vs. RS(6,4)",
        "butterfly:n=6,k=4",
        Method::Conventional,
        "rs:n=6,k=4",
        1,
        Cost::BusiestLink,
        1.6,
    ),
    (
        "MISER(8,4) vs. RS(6,4)",
        "miser:n=8,k=4",
        Method::Conventional,
        "rs:n=6,k=4",
        1,
        Cost::BusiestLink,
        2.28,
    ),
    ("PPR(9,6) vs. RS(9,6)", "rs:n=9,k=6", Method::Ppr, "rs:n=9,k=6", 1, Cost::Timeslots, 2.0),
    ("Pipeline(9,6) vs. RS(9,6)", "rs:n=9,k=6", Method::Pipeline, "rs:n=9,k=6", 1, Cost::BusiestLink, 6.0),
    ("DRC(6,4) vs. RS(6,4)", "drc:n=6,k=4", Method::Conventional, "rs:n=6,k=4", 3, Cost::AcrossRacks, 1.5),
    ("DRC(9,6) vs. RS(9,6)", "drc:n=9,k=6", Method::Conventional, "rs:n=9,k=6", 3, Cost::AcrossRacks, 2.0),
];

fn gains() -> Result<Vec<Judged>> {
    COLUMNS.iter().map(gain).collect()
}

fn gain(column: &Column) -> Result<Judged> {
    let &(text, code, method, base, racks, cost, published) = column;
    let own = mean_cost(code, method, racks, cost)?;
    let conventional = mean_cost(base, Method::Conventional, racks, cost)?;
    Ok(Judged {
        text: text.into(),
        unit: "x".into(),
        published: Some(published),
        aim: None,
        ours: Spread::of([conventional / own]),
        because: String::new(),
    })
}

/// The cost of repairing a data block, in the mean.
fn mean_cost(name: &str, method: Method, racks: u32, cost: Cost) -> Result<f64> {
    mean(&losses(name, racks, 0)?, |loss| loss.cost(&loss.planned(method)?, cost))
}

fn mean(losses: &[Loss], of: impl Fn(&Loss) -> Result<f64>) -> Result<f64> {
    let all: Vec<f64> = losses.iter().map(of).collect::<Result<_>>()?;
    Ok(all.iter().sum::<f64>() / all.len() as f64)
}

/// A stripe in racks that lost a data block.
struct Loss {
    view: StripeView,
    topology: Topology,
    lost: BlockIndex,
    /// In the rack of the lost block.
    requestor: NodeId,
}

/// Each data block lost once. Every rack has the same number of consecutive blocks, the last one the rest; the first `shift`
/// places of the first rack are left out.
fn losses(name: &str, racks: u32, shift: usize) -> Result<Vec<Loss>> {
    let code = parse(name)?;
    let (_, cell) = Layout::sizes(code.w(), None, None);
    let block = u64::from(cell);
    let kind = LayoutKind::Striped;
    let (_, layout) =
        Division::new(code.k() as u64 * block, code.k(), code.w(), kind, block, cell)?.stripe(0);
    let in_rack = code.n().div_ceil(racks as usize);
    let node = |i: usize| {
        let rack = RackId(((i + shift) / in_rack) as u32 % racks);
        Node { rack, usable: true, used_bytes: 0, room_bytes: None }
    };
    let requestor = NodeId(code.n() as u32);
    let loss = |lost: usize| {
        let nodes = (0..code.n()).map(|i| (NodeId(i as u32), node(i))).chain([(requestor, node(lost))]);
        let homes = (0..code.n()).map(|i| (i != lost).then_some(NodeId(i as u32))).collect();
        Loss {
            view: StripeView { id: StripeId(1), code: code.clone(), layout, homes },
            topology: Topology { nodes: nodes.collect(), ..Topology::default() },
            lost: BlockIndex(lost as u8),
            requestor,
        }
    };
    Ok((0..code.k()).map(loss).collect())
}

impl Loss {
    fn planned(&self, method: Method) -> Result<Plan> {
        let wanted = Repair { lost: vec![self.lost], requestors: vec![self.requestor], method };
        Ok(repair(&self.view, &self.topology, &wanted, &|_| 0, &[])?.plan)
    }

    fn cost(&self, plan: &Plan, cost: Cost) -> Result<f64> {
        let account = Account::of(plan, &self.topology, self.view.layout.block_bytes)?;
        Ok(match cost {
            Cost::BusiestLink => account.max_link_bytes as f64,
            Cost::AcrossRacks => account.bytes_across_racks as f64,
            Cost::Timeslots => plan.timeslots(1)?,
        })
    }

    /// Blocks that a plan sends across racks.
    fn across(&self, plan: &Plan) -> Result<f64> {
        Ok(self.cost(plan, Cost::AcrossRacks)? / self.view.layout.block_bytes as f64)
    }

    /// Blocks that a graph over blocks without sub-blocks sends across racks, where it says itself where it computes, and these
    /// blocks are stored at these nodes.
    fn across_by(&self, graph: Ecdag, stored: &[(BlockIndex, NodeId)]) -> Result<f64> {
        let kept = stored.iter().map(|(block, node)| (Vertex(block.0.into()), (*node, Sink::Block)));
        let placed = Placed {
            load_at: graph.leaves().into_iter().map(|leaf| (leaf, home(leaf))).collect(),
            compute_at: BTreeMap::new(),
            persist_at: kept.collect(),
            graph,
        };
        let lowered = placed.lower()?;
        let sends = lowered.iter().flat_map(|tasks| tasks.sends.iter().map(move |(_, to)| (tasks.node, *to)));
        Ok(sends.filter(|(from, to)| self.topology.across_racks(*from, *to)).count() as f64)
    }

    /// The repair in OpenEC's two ways, as blocks across racks: the pipelined form, and automatic binds.
    fn repaired(&self) -> Result<[f64; 2]> {
        let mut graph = self.view.code.decode(&self.view.available(), &[self.lost])?;
        let goal = [(self.lost, self.requestor)];
        let last = self.topology.rack(self.requestor).unwrap_or(RackId(0));
        let rack = |leaf: Vertex| self.topology.rack(home(leaf)).unwrap_or(last);
        let racked = self.across_by(pipelined(&graph, &rack, last)?, &goal)?;
        graph.auto_bind()?;
        Ok([racked, self.across_by(graph, &goal)?])
    }

    /// The stripe before the loss.
    fn whole(&self) -> StripeView {
        let mut view = self.view.clone();
        view.homes[usize::from(self.lost.0)] = Some(NodeId(self.lost.0.into()));
        view
    }

    /// The encoding by OpenEC's automatic binds, as blocks across racks.
    fn encoded(&self) -> Result<f64> {
        let code = &self.view.code;
        let mut graph = code.encode();
        graph.auto_bind()?;
        let parities = code.k()..code.n();
        let stored: Vec<_> = parities.map(|i| (BlockIndex(i as u8), NodeId(i as u32))).collect();
        self.across_by(graph, &stored)
    }
}

/// Block i is at node i, and vertex i is its only symbol.
fn home(symbol: Vertex) -> NodeId {
    NodeId(symbol.0)
}

/// The shapes of OpenEC's Fig. 11, in three racks.
const SHAPES: [(usize, usize); 3] = [(8, 6), (10, 8), (12, 10)];
const RACKS: u32 = 3;

/// What repairs and encodings send across racks, in the mean over data blocks and over the places of the first block in its
/// rack.
fn placements() -> Result<Vec<Judged>> {
    let mut all = Vec::new();
    for (n, k) in SHAPES {
        let mut cases = Vec::new();
        for shift in 0..n.div_ceil(RACKS as usize) {
            cases.extend(losses(&rs(n, k), RACKS, shift)?);
        }
        let ours = mean(&cases, |loss| loss.across(&loss.planned(Method::Pipeline)?))?;
        let theirs = [
            ("OpenEC's pipelined form (Fig. 5)", mean(&cases, |loss| Ok(loss.repaired()?[0]))?),
            ("automatic binds", mean(&cases, |loss| Ok(loss.repaired()?[1]))?),
        ];
        all.extend(beside(&format!("repair, ({n},{k})"), &theirs, ours));
        let ours = mean(&cases, |loss| {
            loss.across(&encode_offline(&loss.whole(), &loss.topology, Binding::Bound)?)
        })?;
        let theirs = [("automatic binds", mean(&cases, Loss::encoded)?)];
        all.extend(beside(&format!("offline encoding, ({n},{k})"), &theirs, ours));
    }
    Ok(all)
}

/// Blocks across racks by other placements and by the planner, for which they are the limit.
fn beside(what: &str, theirs: &[(&str, f64)], ours: f64) -> Vec<Judged> {
    let judged = |how: &str, blocks: f64, aim: Option<Aim>| Judged {
        text: format!("{what}, across three racks: {how}"),
        unit: "blocks".into(),
        published: None,
        aim,
        ours: Spread::of([blocks]),
        because: String::new(),
    };
    let least = theirs.iter().map(|(_, blocks)| *blocks).fold(f64::INFINITY, f64::min);
    let others = theirs.iter().map(|(how, blocks)| judged(how, *blocks, None));
    others.chain([judged("the planner", ours, Some(Aim::AtMost(least)))]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_seven_gains_of_table_2_come_out_of_the_codes() {
        for (judged, column) in gains().unwrap().iter().zip(COLUMNS) {
            let (ours, published) = (judged.ours.unwrap().median, column.6);
            // The paper cuts 16/7 to two decimals.
            assert!((ours - published).abs() < 0.01, "{}: {ours}, published {published}", judged.text);
        }
    }

    #[test]
    fn the_planner_crosses_racks_no_more_often_than_openecs_placements() {
        let all = placements().unwrap();
        assert_eq!(all.len(), 15);
        let blocks: Vec<f64> = all.iter().map(|judged| judged.ours.unwrap().median).collect();
        assert!(all.iter().all(|judged| judged.holds() != Some(false)), "{all:?}");
        for (shape, of_shape) in SHAPES.iter().zip(blocks.chunks(5)) {
            let [racked, bound, path, encoded, planned] = of_shape else { panic!("{of_shape:?}") };
            // Helpers are in all racks: two of them are left, each once. A star at a helper gets whole blocks from two racks.
            assert_eq!((*racked, *path), (2.0, 2.0), "{shape:?}");
            assert!(*bound > 2.0 && *planned <= *encoded, "{shape:?}: {of_shape:?}");
        }
    }
}
