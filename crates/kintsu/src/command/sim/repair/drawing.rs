//! Repairs by several methods, drawn on one time axis.

use std::collections::BTreeMap;

use kintsu_analysis::{Timeline, TimelineGroup, TimelineRow};
use kintsu_dag::NodeId;
use kintsu_plan::{Account, Method, Plan};
use kintsu_sim::{Cluster, Overheads, passages};

use super::seconds;
use crate::cli::SimRepair;
use crate::units::human;

/// A row for each connection, a bar for each slice on it.
pub fn svg(
    cluster: &Cluster,
    plans: &[(Method, Plan)],
    args: &SimRepair,
    overheads: &Overheads,
) -> anyhow::Result<String> {
    let (block, slice) = (cluster.block_bytes, args.cluster.slice.0);
    let group = |(method, plan): &(Method, Plan)| {
        let passages = passages(plan, &cluster.topology, block, slice, overheads)?;
        let mut rows: BTreeMap<(NodeId, NodeId), Vec<(f64, f64)>> = BTreeMap::new();
        // In the order of the first slice, so that a path reads downwards.
        let mut order = Vec::new();
        for passage in &passages {
            let ends = (passage.from, passage.to);
            if !rows.contains_key(&ends) {
                order.push(ends);
            }
            rows.entry(ends).or_default().push((passage.starts, passage.ends));
        }
        let rows = order.into_iter().map(|(from, to)| TimelineRow {
            label: format!("{from} \u{2192} {to}"),
            bars: rows.remove(&(from, to)).unwrap_or_default(),
        });
        let account = Account::of(plan, &cluster.topology, block)?;
        let busiest = account.max_link_bytes as f64 / block as f64;
        let took = match passages.last().map_or(0.0, |last| last.ends) {
            short @ ..0.1 => seconds(short),
            long => format!("{long:.2} s"),
        };
        Ok(TimelineGroup {
            label: format!("{method}: {took}; the busiest link carries {busiest:.2} blocks"),
            rows: rows.collect(),
        })
    };
    let lost: Vec<_> = args.lost.iter().map(|block| format!("b{block}")).collect();
    let rate = args.cluster.rate.0.filter(|_| args.cluster.topology.is_none());
    let links = rate.map_or_else(String::new, |rate| format!(", links of {rate}"));
    let chart = Timeline {
        title: format!(
            "The same repair by different methods: {} of {}",
            lost.join(", "),
            cluster.code.name()
        ),
        subtitle: format!(
            "Blocks of {}{links}. A row is a connection between two nodes, a bar is a slice of {} on it.",
            human(block),
            human(slice)
        ),
        axis: "seconds".into(),
        groups: plans.iter().map(group).collect::<anyhow::Result<_>>()?,
    };
    Ok(chart.svg())
}
