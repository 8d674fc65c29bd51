//! `kintsu explain`: the graph that a repair would run, and what it would cost.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Context as _;
use kintsu_dag::BlockIndex;
use kintsu_plan::{Comparison, Explanation, RunMode};

use super::Context;
use crate::{cli, output, units::human};

/// Without `--verbose` this many links are listed.
const LINKS_SHOWN: usize = 16;

/// Runs `kintsu explain`.
pub async fn run(args: cli::Explain, context: &Context) -> anyhow::Result<ExitCode> {
    let lost: Vec<BlockIndex> = args.lost.iter().map(|&i| BlockIndex(i)).collect();
    let slice_bytes = args.slice.0.unwrap_or(0);
    let (view, mut topology) = context.client.stripe_view(&args.name, args.stripe).await?;
    if let Some(path) = &args.rates {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let rates = super::rates::parse(&text, topology.nodes.keys().copied());
        topology.rates = rates.with_context(|| path.display().to_string())?;
    }
    let explanation = kintsu_plan::explain(&view, &topology, &lost, args.method, slice_bytes)?;
    if let Some(path) = &args.svg {
        std::fs::write(path, explanation.svg()?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if context.json {
        output::json(&explanation)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&for_people(&explanation, args.verbose)?)?;
    if let Some(path) = &args.svg {
        output::line(&format!("drawn into {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A page for people; `verbose`: with the graph and the tasks of every node.
fn for_people(e: &Explanation, verbose: bool) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let list = |blocks: &[BlockIndex]| blocks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    writeln!(text, "{}: {} lost, repaired by {}", e.code, list(&e.lost), e.method)?;
    for (block, node) in e.lost.iter().zip(&e.requestors) {
        writeln!(text, "  {block} goes to {node}")?;
    }
    writeln!(text, "  helpers, in the order of the path: {}", list(&e.helpers))?;
    match e.path_is_best {
        Some(true) => writeln!(text, "  proved: no searched path has a faster bottleneck")?,
        Some(false) => {
            writeln!(text, "  the search was cut short: another path may have a faster bottleneck")?
        }
        None => {}
    }
    writeln!(text, "  {} slice(s) of {}", e.slices, human(e.slice_bytes.into()))?;
    if let Some(rate) = e.rate {
        let rate = human(rate.get());
        writeln!(
            text,
            "  nodes that fetch nothing send each block at {rate}/s at most: the rate that links can carry"
        )?;
    }
    if verbose {
        graph_and_tasks(&mut text, e)?;
    }
    traffic(&mut text, e, verbose)?;
    write!(
        text,
        "\npredicted time: {:.3} timeslots (one block over one link); {:.0} if only whole blocks were sent on",
        e.timeslots, e.timeslots_whole_blocks
    )?;
    if e.method.run_mode() == RunMode::Serial {
        write!(
            text,
            "\n  not counted: reading, computing and acknowledging each slice, which {} does one after the other",
            e.method
        )?;
    }
    if let Some(compared) = &e.compared {
        comparison(&mut text, compared)?;
    }
    if !verbose {
        write!(text, "\n\n--verbose also shows the graph and the tasks of every node")?;
    }
    Ok(text)
}

fn graph_and_tasks(text: &mut String, e: &Explanation) -> std::fmt::Result {
    writeln!(text, "\ngraph\n{}", e.graph.trim_end())?;
    writeln!(text, "\ntasks, for each slice")?;
    for node in &e.nodes {
        let rack = node.rack.map(|r| format!(" in {r}")).unwrap_or_default();
        writeln!(text, "  {}{rack}", node.node)?;
        for task in &node.tasks {
            writeln!(text, "    {task}")?;
        }
    }
    Ok(())
}

fn traffic(text: &mut String, e: &Explanation, verbose: bool) -> std::fmt::Result {
    let account = &e.account;
    writeln!(text, "\ntraffic")?;
    let shown = if verbose { account.links.len() } else { LINKS_SHOWN };
    for link in account.links.iter().take(shown) {
        let across = if link.across_racks { "  across racks" } else { "" };
        let (from, to) = (link.from.to_string(), link.to.to_string());
        writeln!(text, "  {from:>5} -> {to:<5} {:>10}{across}", human(link.bytes))?;
    }
    if let Some(more) = account.links.len().checked_sub(shown).filter(|more| *more > 0) {
        writeln!(text, "  and {more} more")?;
    }
    writeln!(
        text,
        "  {} read, {} moved, {} across racks; busiest link {}",
        human(account.bytes_read),
        human(account.bytes_moved),
        human(account.bytes_across_racks),
        human(account.max_link_bytes)
    )
}

fn comparison(text: &mut String, compared: &Comparison) -> std::fmt::Result {
    writeln!(text, "\n\npredicted by the rates of the links, without the filling of the pipeline")?;
    for time in &compared.methods {
        let over = compared.bound_seconds.map(|bound| format!("{:>8.2} x the bound", time.seconds / bound));
        writeln!(
            text,
            "  {:<14} {:>10.3} s{}",
            time.method.to_string(),
            time.seconds,
            over.unwrap_or_default()
        )?;
    }
    match compared.bound_seconds {
        Some(bound) => write!(text, "  {:<14} {bound:>10.3} s", "no repair below"),
        None => write!(text, "  no bound is known"),
    }
}
