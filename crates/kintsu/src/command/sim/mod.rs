//! `kintsu sim`: repairs on a modelled network.

mod codes;
mod recovery;
mod repair;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use kintsu_lab::Spec;
use kintsu_plan::{Node, Rates, Topology, even_cluster};
use kintsu_sim::Overheads;

use crate::cli::{Sim, SimCluster, SimCommand};
use crate::output;

/// Runs `kintsu sim`.
pub async fn run(args: Sim, json: bool) -> anyhow::Result<ExitCode> {
    // It computes for a long time without waiting, so it gets its own thread.
    let work = tokio::task::spawn_blocking(move || match args.command {
        None => recovery::run(&args.recovery, json),
        Some(SimCommand::Repair(args)) => repair::run(&args, json),
        Some(SimCommand::Codes(args)) => codes::run(&args, json),
    });
    tokio::select! {
        done = work => done?.map(|()| ExitCode::SUCCESS),
        code = super::interrupted() => code,
    }
}

/// How results are printed.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Table,
    Json,
    Csv,
}

impl Form {
    fn of(json: bool, csv: bool) -> Self {
        match (json, csv) {
            (true, _) => Self::Json,
            (_, true) => Self::Csv,
            _ => Self::Table,
        }
    }
}

/// The cluster that the options describe, without stripes.
fn cluster(args: &SimCluster) -> anyhow::Result<kintsu_sim::Cluster> {
    cluster_of(args, kintsu_code::parse(&args.code)?, topology(args)?)
}

/// The same with this code on these nodes.
fn cluster_of(
    args: &SimCluster,
    code: Arc<dyn kintsu_code::Code>,
    topology: Topology,
) -> anyhow::Result<kintsu_sim::Cluster> {
    anyhow::ensure!(args.block.0 > 0, "--block: expected 1 byte or more, got 0");
    anyhow::ensure!(args.slice.0 > 0, "--slice: expected 1 byte or more, got 0");
    // Sub-blocks divide a block into whole pages.
    let grain = if code.w() > 1 { 4096 * code.w() as u64 } else { 1 };
    Ok(kintsu_sim::Cluster {
        topology,
        code: Arc::clone(&code),
        block_bytes: args.block.0.next_multiple_of(grain),
        stripes: 1,
        spread: kintsu_sim::Spread::Random,
        seed: args.seed,
    })
}

fn topology(args: &SimCluster) -> anyhow::Result<Topology> {
    if let Some(path) = &args.topology {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let spec = Spec::from_toml(&text).with_context(|| path.display().to_string())?;
        spec.check()?;
        let node = |rack| Node { rack, usable: true, used_bytes: 0, room_bytes: None };
        let nodes = spec.node_ids().zip(spec.nodes.iter().map(|at| node(at.rack))).collect();
        return Ok(Topology { nodes, rates: spec.rates() });
    }
    anyhow::ensure!(
        args.racks <= args.nodes,
        "--racks: expected at most {}, the number of nodes, got {}",
        args.nodes,
        args.racks
    );
    let mut topology = even_cluster(args.nodes as usize, args.racks as usize);
    let mut rates = Rates::default();
    if let Some(rate) = args.rate.0 {
        rates = Rates::even(topology.nodes.keys().copied(), rate.bytes());
    }
    if let Some(rate) = args.rack_rate.0 {
        rates.rack_up = topology.nodes.values().map(|node| (node.rack, rate.bytes())).collect();
        rates.rack_down = rates.rack_up.clone();
    }
    topology.rates = rates;
    Ok(topology)
}

fn overheads(args: &SimCluster) -> Overheads {
    let given = &args.overheads;
    Overheads {
        wire: given.wire,
        slice_seconds: given.slice_us / 1e6,
        hop_seconds: given.hop_us / 1e6,
        disk_read: given.disk_read.map(|rate| rate.0 as f64),
        disk_write: given.disk_write.map(|rate| rate.0 as f64),
        ..Overheads::default()
    }
}

/// Cells as a table for people or as comma-separated values.
fn print<const N: usize>(headings: [&str; N], rows: Vec<[String; N]>, form: Form) -> anyhow::Result<()> {
    if form == Form::Csv {
        let name = |heading: &str| heading.to_lowercase().replace(" / ", "_over_").replace(' ', "_");
        output::line(&headings.map(name).join(","))?;
        return rows.iter().try_for_each(|row| output::line(&row.join(",")));
    }
    let mut table = output::table(headings);
    for row in rows {
        table.add_row(row);
    }
    output::line(&table.to_string())
}

/// Seconds with three significant digits.
fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 10.0 => format!("{s:.1} s"),
        s if s >= 1.0 => format!("{s:.3} s"),
        s => format!("{:.2} ms", s * 1e3),
    }
}
