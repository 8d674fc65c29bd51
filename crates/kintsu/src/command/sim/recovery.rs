//! `kintsu sim`: a node or rack is lost, and its blocks are repaired on other nodes.

use kintsu_dag::{NodeId, RackId};
use kintsu_plan::draw;
use kintsu_sim::{Cluster, Failure, Options, Outcome, Spread, recover};
use serde_json::json;

use super::{Form, cluster, overheads, print, seconds};
use crate::cli::{SimFail, SimPlacement, SimRecovery};
use crate::{output, progress};

/// Runs `kintsu sim` without a subcommand.
pub fn run(args: &SimRecovery, json: bool) -> anyhow::Result<()> {
    let mut cluster = cluster(&args.cluster)?;
    cluster.stripes = args.stripes;
    cluster.spread = match args.placement {
        SimPlacement::Random => Spread::Random,
        SimPlacement::Placed => Spread::Placed,
    };
    let failure = failure(args, &cluster);
    let failed = cluster.failed(failure)?;
    let lost = cluster.lost(&failed)?;
    let options = Options {
        requestors: args.requestors,
        slice_bytes: args.cluster.slice.0,
        at_once: args.parallel,
        per_node: args.per_node,
        overheads: overheads(&args.cluster),
    };
    let mut outcomes = Vec::with_capacity(args.method.len());
    for &scheme in &args.method {
        let bar = progress::count(&scheme.to_string());
        bar.set_length(lost.len() as u64);
        let outcome = recover(&cluster, &failed, &lost, scheme, &options, &mut |done| bar.set_position(done));
        progress::clear();
        outcomes.push(outcome?);
    }
    let form = Form::of(json, args.csv);
    if form == Form::Json {
        let what = json!({
            "nodes": cluster.topology.nodes.len(),
            "code": cluster.code.name(),
            "block_bytes": cluster.block_bytes,
            "slice_bytes": options.slice_bytes,
            "stripes": cluster.stripes,
            "seed": cluster.seed,
            "failed_nodes": failed,
            "recoveries": outcomes,
        });
        return output::json(&what);
    }
    table(&outcomes, form)?;
    match form {
        Form::Csv => Ok(()),
        _ => footing(&cluster, failure, &outcomes),
    }
}

fn failure(args: &SimRecovery, cluster: &Cluster) -> Failure {
    let nodes = &cluster.topology.nodes;
    let drawn = (draw(cluster.seed, u64::MAX, 0) % nodes.len() as u64) as usize;
    let drawn = nodes.iter().nth(drawn);
    let (node, rack) = drawn.map_or((NodeId(0), RackId(0)), |(id, node)| (*id, node.rack));
    match args.fail {
        SimFail::Node => Failure::Node(args.which.map_or(node, NodeId)),
        SimFail::Rack => Failure::Rack(args.which.map_or(rack, RackId)),
    }
}

fn table(outcomes: &[Outcome], form: Form) -> anyhow::Result<()> {
    let plain = form == Form::Csv;
    let time = |value: f64| if plain { value.to_string() } else { seconds(value) };
    let rows = outcomes.iter().map(|outcome| {
        let bound = outcome.bound_seconds;
        [
            outcome.scheme.to_string(),
            time(outcome.seconds),
            if plain { outcome.rate.to_string() } else { format!("{:.0} MB/s", outcome.rate / 1e6) },
            bound.map_or_else(|| "-".into(), time),
            bound.map_or_else(|| "-".into(), |bound| format!("{:.3}", bound / outcome.seconds)),
            format!("{:.2}", outcome.moved_per_block),
            format!("{:.2}", outcome.across_racks_per_block),
            match plain {
                true => outcome.across_racks_bytes.to_string(),
                false => crate::units::human(outcome.across_racks_bytes),
            },
            outcome.at_once.to_string(),
        ]
    });
    let headings = [
        "METHOD",
        "TIME",
        "RATE",
        "BOUND",
        "BOUND / TIME",
        "MOVED",
        "ACROSS RACKS",
        "ACROSS RACKS IN ALL",
        "AT ONCE",
    ];
    print(headings, rows.collect(), form)
}

fn footing(cluster: &Cluster, failure: Failure, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let lost = match failure {
        Failure::Node(node) => format!("node {}", node.0),
        Failure::Rack(rack) => format!("rack {}", rack.0),
    };
    let (blocks, stripes) = outcomes.first().map_or((0, 0), |outcome| (outcome.blocks, outcome.stripes));
    output::line(&format!(
        "\n{lost} of {} nodes is lost: {blocks} blocks of {} in {stripes} of {} stripes of {}; seed {}.",
        cluster.topology.nodes.len(),
        crate::units::human(cluster.block_bytes),
        cluster.stripes,
        cluster.code.name(),
        cluster.seed
    ))?;
    output::line(
        "BOUND: lower bound on any linear repair of these stripes. MOVED and ACROSS RACKS: in blocks, for each lost block.\n\
         PPR and PUSH send on only whole blocks. The model and what it leaves out: docs/simulator.md.",
    )
}
