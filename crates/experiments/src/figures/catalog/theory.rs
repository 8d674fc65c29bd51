//! Results that are computed from codes and plans alone: OpenEC's Table 2.
//!
//! The gain of a column is the cost of conventional repair of RS divided by the cost of the column's repair, in
//! the mean over data blocks. The cost is what the table's authors regard as the bottleneck: the bytes of the
//! busiest link where all links are equal, timeslots where blocks go from node to node in rounds (PPR), and bytes
//! across racks where the links between racks are slow (DRC).

use std::collections::BTreeMap;

use kintsu_dag::{BlockIndex, NodeId, RackId};
use kintsu_plan::{
    Account, Division, Layout, LayoutKind, Method, Node, Plan, Repair, StripeView, Topology, repair,
};

use super::super::report::Judged;
use super::super::site::parse;
use super::super::spread::Spread;
use super::{Entry, Kind};
use crate::error::Result;

pub const ENTRIES: &[Entry] = &[Entry {
    name: "openec-table2",
    groups: &["openec", "page"],
    about: "theoretical gains of codes and repair methods over conventional repair of RS",
    kind: Kind::Computed(COSTS, gains),
}];

const COSTS: &str = "the cost of a repair is what the busiest link carries, for PPR the number of its rounds, for DRC what crosses racks; the mean \
    over all data blocks";

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
    let code = parse(name)?;
    let (_, cell) = Layout::sizes(code.w(), None, None);
    let block = u64::from(cell);
    let kind = LayoutKind::Striped;
    let (_, layout) =
        Division::new(code.k() as u64 * block, code.k(), code.w(), kind, block, cell)?.stripe(0);
    // The same number of consecutive blocks in each rack. The last node, in the first rack, is the requestor.
    let in_rack = code.n().div_ceil(racks as usize);
    let node =
        |i: usize| Node { rack: RackId((i / in_rack) as u32), usable: true, used_bytes: 0, room_bytes: None };
    let mut nodes: BTreeMap<_, _> = (0..code.n()).map(|i| (NodeId(i as u32), node(i))).collect();
    let requestor = NodeId(code.n() as u32);
    let mut sum = 0.0;
    for lost in 0..code.k() {
        nodes.insert(requestor, node(lost));
        let topology = Topology { nodes: nodes.clone(), ..Topology::default() };
        let homes = (0..code.n()).map(|i| (i != lost).then_some(NodeId(i as u32))).collect();
        let view = StripeView { id: kintsu_dag::StripeId(1), code: code.clone(), layout, homes };
        let wanted = Repair { lost: vec![BlockIndex(lost as u8)], requestors: vec![requestor], method };
        let plan = repair(&view, &topology, &wanted, &|_| 0, &[])?.plan;
        sum += of(&plan, &topology, block, cost)?;
    }
    Ok(sum / code.k() as f64)
}

fn of(plan: &Plan, topology: &Topology, block: u64, cost: Cost) -> Result<f64> {
    let account = Account::of(plan, topology, block)?;
    Ok(match cost {
        Cost::BusiestLink => account.max_link_bytes as f64,
        Cost::AcrossRacks => account.bytes_across_racks as f64,
        Cost::Timeslots => plan.timeslots(1)?,
    })
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
}
