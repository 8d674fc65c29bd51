//! `kintsu code reliability`: mean time to data loss of codes, and what two papers computed.

use std::sync::Arc;
use std::time::Duration;

use kintsu_analysis::{
    AppendPhase, Cau, Chameleon, Durability, Environment, HOURS_PER_YEAR, Lifetime, MAX_PATTERNS,
    Reliability, costs, failure_probability, reliability,
};
use kintsu_code::Code;
use kintsu_plan::{Topology, blocks_by_rack, even_cluster};
use serde::Serialize;

use crate::cli;
use crate::command::Context;
use crate::output;

/// A code with its reliability.
#[derive(Serialize)]
struct Row {
    code: String,
    overhead: f64,
    #[serde(flatten)]
    reliability: Reliability,
}

/// Runs `kintsu code reliability`.
pub async fn run(args: cli::Reliability, context: &Context) -> anyhow::Result<()> {
    if args.papers {
        return papers(context.json);
    }
    let mut codes = Vec::with_capacity(args.codes.len());
    for name in &args.codes {
        codes.push(super::resolve(name, context).await?);
    }
    let nodes = args.nodes.or(codes.iter().map(|code| code.n()).max()).unwrap_or_default();
    let racks = args.racks.unwrap_or(nodes);
    anyhow::ensure!(
        (1..=nodes).contains(&racks),
        "--racks: expected 1 to {nodes}, the number of nodes, got {racks}"
    );
    let environment = args.failures.environment(nodes)?;
    let topology = even_cluster(nodes, racks);
    if args.updates {
        return updates(&codes, &topology, &environment, racks, args.window, context.json);
    }
    let mut rows = Vec::with_capacity(codes.len());
    for code in codes {
        let (costs, racks) = (costs(&*code)?, blocks_by_rack(&*code, &topology));
        let reliability = reliability(&*code, &costs, &environment, racks.as_deref(), MAX_PATTERNS)?;
        rows.push(Row { code: code.name().to_owned(), overhead: costs.overhead.as_f64(), reliability });
    }
    if context.json {
        return output::json(
            &serde_json::json!({ "environment": environment, "racks": racks, "codes": rows }),
        );
    }
    print(&rows, &environment, racks)
}

/// A code, and the probabilities that data is lost within the time until parity has followed.
#[derive(Serialize)]
struct UpdateRow {
    code: String,
    /// Racks that hold blocks of a stripe.
    racks_used: usize,
    at_once: f64,
    no_copy: f64,
    node: f64,
    rack: f64,
    parity: f64,
}

fn updates(
    codes: &[Arc<dyn Code>],
    topology: &Topology,
    environment: &Environment,
    racks: usize,
    window: Duration,
    as_json: bool,
) -> anyhow::Result<()> {
    let hours = window.as_secs_f64() / 3600.0;
    let mut rows = Vec::new();
    for code in codes {
        let by_racks = blocks_by_rack(&**code, topology)
            .ok_or_else(|| anyhow::anyhow!("expected {} nodes for {}, got fewer", code.n(), code.name()))?;
        let Environment { node_mttf_h, rack_mttf_h, .. } = *environment;
        let phase = AppendPhase { code: &**code, racks: &by_racks, node_mttf_h, rack_mttf_h };
        let of = |durability| phase.loss_within(hours, durability);
        let [no_copy, node, rack, parity] = Durability::ALL.map(of);
        let parity = parity?;
        rows.push(UpdateRow {
            code: code.name().to_owned(),
            racks_used: by_racks.iter().filter(|blocks| !blocks.is_empty()).count(),
            at_once: parity.at_once,
            no_copy: no_copy?.later,
            node: node?.later,
            rack: rack?.later,
            parity: parity.later,
        });
    }
    if as_json {
        return output::json(
            &serde_json::json!({ "environment": environment, "racks": racks, "hours": hours, "codes": rows }),
        );
    }
    let mut table = output::table(["CODE", "RACKS", "AT ONCE", "NO COPY", "NODE", "RACK", "PARITY"]);
    for row in &rows {
        let values = [row.at_once, row.no_copy, row.node, row.rack, row.parity];
        let cells = [row.code.clone(), row.racks_used.to_string()].into_iter();
        table.add_row(cells.chain(values.map(|value| format!("{value:.2e}"))));
    }
    output::line(&table.to_string())?;
    output::line(&format!(
        "\nProbability of data loss within {hours} h, nothing repaired. AT ONCE: parity follows each write at once. The others:\n\
         parity follows later, and until then a write has no copy, a copy on another node (NODE), in another rack (RACK),\n\
         or on each parity node (PARITY). The model: docs/updates.md."
    ))
}

fn print(rows: &[Row], environment: &Environment, racks: usize) -> anyhow::Result<()> {
    let mut table = output::table([
        "CODE",
        "OVERHEAD",
        "REPAIR",
        "MTTDL",
        "NINES",
        "FIRST LOSS",
        "IN A RACK",
        "ANY RACK",
        "MTTDL WITH RACKS",
        "NINES",
    ]);
    for Row { code, overhead, reliability } in rows {
        let Reliability { stripe, cluster, racks, .. } = reliability;
        let with_racks = racks.as_ref().map(|racks| {
            let any = if racks.survives_any_rack { "survived" } else { "LOST" };
            [racks.blocks_per_rack.to_string(), any.to_owned(), years(&racks.stripe), nines(&racks.stripe)]
        });
        let [in_a_rack, any_rack, life, of_racks] = with_racks.unwrap_or(["-"; 4].map(str::to_owned));
        table.add_row([
            code.clone(),
            format!("{overhead:.3}"),
            format!("{:.1} h", reliability.single_repair_h),
            years(stripe),
            nines(stripe),
            years(cluster),
            in_a_rack,
            any_rack,
            life,
            of_racks,
        ]);
    }
    output::line(&table.to_string())?;
    let Environment { nodes, node_mttf_h, rack_mttf_h, rack_outage_h, .. } = environment;
    output::line(&format!(
        "\n{nodes} nodes that live {:.1} years; {racks} racks that live {:.1} years and are then down for {rack_outage_h:.1} h.",
        node_mttf_h / HOURS_PER_YEAR,
        rack_mttf_h / HOURS_PER_YEAR
    ))?;
    output::line(
        "REPAIR: time to rebuild a lost node. MTTDL: mean time to data loss of a stripe, from node failures alone.\n\
         NINES: of the probability that a stripe survives a year. FIRST LOSS: lower bound on the mean time until the full\n\
         cluster loses its first stripe. WITH RACKS: mean time until a stripe cannot be read, because racks are down or\n\
         nodes are lost. The model: docs/reliability.md.",
    )
}

/// Years, with three digits.
pub fn years(life: &Lifetime) -> String {
    match life.mttdl_years {
        years if (0.01..1e4).contains(&years) => format!("{years:.2} y"),
        years => format!("{years:.2e} y"),
    }
}

fn nines(life: &Lifetime) -> String {
    format!("{:.1}", life.nines)
}

/// A probability from a paper, and ours.
#[derive(Serialize)]
struct Value {
    source: &'static str,
    what: String,
    /// As printed; `None` if the paper has only a curve.
    paper: Option<f64>,
    ours: f64,
}

fn papers(as_json: bool) -> anyhow::Result<()> {
    let values = values()?;
    if as_json {
        return output::json(&values);
    }
    let mut table = output::table(["SOURCE", "WHAT", "PAPER", "OURS"]);
    for value in &values {
        let paper = value.paper.map_or("curve only".to_owned(), |p| format!("{p:.2e}"));
        table.add_row([value.source.to_owned(), value.what.clone(), paper, format!("{:.2e}", value.ours)]);
    }
    output::line(&table.to_string())?;
    output::line("\nNotes: docs/reliability.md.")
}

fn values() -> anyhow::Result<Vec<Value>> {
    const CAU: &str = "CAU 3.5";
    let cau = Cau::paper();
    let loss = cau.loss_within(18.0)?;
    let rack = failure_probability(HOURS_PER_YEAR, cau.rack_mttf_h);
    let value = |source, what: &str, paper, ours| Value { source, what: what.to_owned(), paper, ours };
    let mut values = vec![
        value(CAU, "a rack's switch fails within a year", Some(0.0278), rack),
        value(CAU, "loss in 18 h, RS(9,6), baseline (Pr_ec)", Some(2.24e-7), loss.baseline),
        value(CAU, "the same, parity later, one replica (Pr_cau1)", Some(9.83e-7), loss.one_replica),
        value(CAU, "the same, parity later, no replica (Pr_cau0)", None, loss.no_replica),
    ];
    for mb in [50.0, 100.0, 200.0, 400.0, 800.0] {
        let ours = Chameleon::paper().loss_during_repair(mb * 1e6)?;
        let what = format!("loss while 96 TB are repaired at {mb} MB/s, RS(14,10)");
        values.push(value("ChameleonEC II-B", &what, None, ours));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_printed_value_is_met_to_its_last_digit() {
        let printed = values().unwrap().into_iter().filter_map(|v| Some((v.paper?, v.ours)));
        let agree = printed.filter(|(paper, ours)| format!("{paper:.2e}") == format!("{ours:.2e}"));
        assert_eq!(agree.count(), 3);
    }

    #[test]
    fn years_in_a_few_digits() {
        let of = |mttdl_years| years(&Lifetime { mttdl_h: 0.0, mttdl_years, annual_loss: 0.0, nines: 0.0 });
        assert_eq!([of(35.468), of(1.5e9), of(1e-3)], ["35.47 y", "1.50e9 y", "1.00e-3 y"]);
    }
}
