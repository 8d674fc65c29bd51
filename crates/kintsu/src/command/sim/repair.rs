//! `kintsu sim repair`: one repair, slice by slice.

mod drawing;

use anyhow::Context as _;
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::many::place_alone;
use kintsu_plan::optimal::bound::{Ends, one_block};
use kintsu_plan::{Account, Method, Plan, Repair, StripeView, Topology, repair};
use kintsu_sim::{Cluster, LostStripe, Overheads, simulate};
use serde::Serialize;
use serde_json::json;

use super::{Form, cluster, overheads, print, seconds};
use crate::cli::SimRepair;
use crate::output;

#[derive(Serialize)]
struct Row {
    method: Method,
    seconds: f64,
    /// Time if only whole blocks are sent on.
    whole_blocks_seconds: f64,
    /// Lower bound on the repair of one block, from the links of nodes.
    bound_seconds: Option<f64>,
    moved_blocks: f64,
    across_racks_blocks: f64,
}

/// Runs `kintsu sim repair`.
pub fn run(args: &SimRepair, json: bool) -> anyhow::Result<()> {
    let cluster = cluster(&args.cluster)?;
    let overheads = overheads(&args.cluster);
    let view = stripe(&cluster, &args.lost)?;
    let lost: Vec<BlockIndex> = args.lost.iter().copied().map(BlockIndex).collect();
    let requestors = place_alone(&view, &cluster.topology, &lost)?;
    let bound = bound(&view, &cluster.topology, &requestors, cluster.block_bytes);
    let slice = args.cluster.slice.0;
    let mut rows = Vec::with_capacity(args.method.len());
    let mut plans = Vec::with_capacity(args.method.len());
    for &method in &args.method {
        let wanted = Repair { lost: lost.clone(), requestors: requestors.clone(), method };
        let plan = repair(&view, &cluster.topology, &wanted, &|_| 0, &[])?.plan;
        rows.push(row(&cluster, &plan, method, slice, &overheads, bound)?);
        plans.push((method, plan));
    }
    if let Some(path) = &args.svg {
        let svg = drawing::svg(&cluster, &plans, args, &overheads)?;
        std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let form = Form::of(json, args.csv);
    if form == Form::Json {
        return output::json(&json!({
            "nodes": cluster.topology.nodes.len(),
            "code": cluster.code.name(),
            "block_bytes": cluster.block_bytes,
            "slice_bytes": args.cluster.slice.0,
            "seed": cluster.seed,
            "homes": view.homes,
            "requestors": requestors,
            "repairs": rows,
        }));
    }
    table(&rows, form)?;
    if form == Form::Csv {
        return Ok(());
    }
    output::line(&format!(
        "\nBlocks {} of a stripe of {} are repaired on nodes {}: blocks of {}, slices of {}.",
        listed(args.lost.iter()),
        cluster.code.name(),
        listed(requestors.iter().map(|node| &node.0)),
        crate::units::human(cluster.block_bytes),
        crate::units::human(args.cluster.slice.0)
    ))?;
    if let Some(path) = &args.svg {
        output::line(&format!("drawn into {}", path.display()))?;
    }
    output::line(
        "WHOLE BLOCKS: time if nodes sent on only whole blocks. BOUND: lower bound by the links of nodes, for one lost block.\n\
         MOVED and ACROSS RACKS: in blocks. The model and what it leaves out: docs/simulator.md.",
    )
}

fn listed<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// The stripe with the seed's homes, without the lost blocks.
fn stripe(cluster: &Cluster, lost: &[u8]) -> anyhow::Result<StripeView> {
    let mut homes = cluster.homes(0)?;
    for &block in lost {
        let n = homes.len();
        let home = homes.get_mut(usize::from(block));
        *home.ok_or_else(|| anyhow::anyhow!("--lost: expected blocks below {n}, got {block}"))? = None;
    }
    Ok(cluster.view(&LostStripe { id: 0, homes }))
}

fn row(
    cluster: &Cluster,
    plan: &Plan,
    method: Method,
    slice: u64,
    overheads: &Overheads,
    bound: Option<f64>,
) -> anyhow::Result<Row> {
    let (topology, block) = (&cluster.topology, cluster.block_bytes);
    let account = Account::of(plan, topology, block)?;
    // In a plan of several lanes whole blocks go to the lanes in turn: one slice for each.
    let lanes: u64 = plan.lanes.iter().map(|lane| u64::from(lane.share)).sum();
    Ok(Row {
        method,
        seconds: simulate(plan, topology, block, slice, overheads)?.seconds,
        whole_blocks_seconds: simulate(plan, topology, block, block.div_ceil(lanes.max(1)), overheads)?
            .seconds,
        bound_seconds: bound,
        moved_blocks: account.bytes_moved as f64 / block as f64,
        across_racks_blocks: account.bytes_across_racks as f64 / block as f64,
    })
}

/// Only where the theory holds: one lost block, any k helpers suffice, and only links of nodes have rates.
fn bound(view: &StripeView, topology: &Topology, requestors: &[NodeId], block: u64) -> Option<f64> {
    let (code, rates) = (&view.code, &topology.rates);
    let any_k = code.w() == 1 && code.distance() == code.n() - code.k() + 1;
    let ([requestor], true) = (requestors, any_k) else { return None };
    let of = |rates: &std::collections::BTreeMap<NodeId, std::num::NonZeroU64>, node: &NodeId| {
        rates.get(node).map_or(f64::INFINITY, |rate| rate.get() as f64)
    };
    let helpers = view.homes.iter().flatten();
    let ends: Vec<Ends> =
        helpers.map(|node| Ends { up: of(&rates.up, node), down: of(&rates.down, node) }).collect();
    Some(block as f64 / one_block(&ends, of(&rates.down, requestor), code.k()))
}

fn table(rows: &[Row], form: Form) -> anyhow::Result<()> {
    let plain = form == Form::Csv;
    let time = |value: f64| if plain { value.to_string() } else { seconds(value) };
    let rows = rows.iter().map(|row| {
        [
            row.method.to_string(),
            time(row.seconds),
            time(row.whole_blocks_seconds),
            row.bound_seconds.map_or_else(|| "-".into(), time),
            row.bound_seconds.map_or_else(|| "-".into(), |bound| format!("{:.3}", bound / row.seconds)),
            format!("{:.2}", row.moved_blocks),
            format!("{:.2}", row.across_racks_blocks),
        ]
    });
    let headings = ["METHOD", "TIME", "WHOLE BLOCKS", "BOUND", "BOUND / TIME", "MOVED", "ACROSS RACKS"];
    print(headings, rows.collect(), form)
}
