//! `kintsu explain`: the graph that a repair would run, and what it would cost.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Context as _;
use kintsu_dag::BlockIndex;
use kintsu_plan::Explanation;

use super::Context;
use crate::{cli, output, units::human};

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
    let explanation = kintsu_plan::explain(&view, &topology, &lost, args.method.into(), slice_bytes)?;
    if let Some(path) = &args.svg {
        std::fs::write(path, explanation.svg()?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if context.json {
        output::json(&explanation)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&for_people(&explanation)?)?;
    if let Some(path) = &args.svg {
        output::line(&format!("drawn into {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn for_people(e: &Explanation) -> Result<String, std::fmt::Error> {
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
    writeln!(text, "\ngraph\n{}", e.graph.trim_end())?;
    writeln!(text, "\ntasks, for each of {} slice(s) of {}", e.slices, human(e.slice_bytes.into()))?;
    if let Some(rate) = e.rate {
        let rate = human(rate.get());
        writeln!(
            text,
            "  nodes that fetch nothing send each block at {rate}/s at most: the rate that links can carry"
        )?;
    }
    for node in &e.nodes {
        let rack = node.rack.map(|r| format!(" in {r}")).unwrap_or_default();
        writeln!(text, "  {}{rack}", node.node)?;
        for task in &node.tasks {
            writeln!(text, "    {task}")?;
        }
    }
    writeln!(text, "\ntraffic")?;
    for link in &e.account.links {
        let across = if link.across_racks { "  across racks" } else { "" };
        writeln!(
            text,
            "  {:>5} -> {:<5} {:>10}{across}",
            link.from.to_string(),
            link.to.to_string(),
            human(link.bytes)
        )?;
    }
    writeln!(
        text,
        "  {} read, {} moved, {} across racks; busiest link {}",
        human(e.account.bytes_read),
        human(e.account.bytes_moved),
        human(e.account.bytes_across_racks),
        human(e.account.max_link_bytes)
    )?;
    write!(
        text,
        "\npredicted time: {:.3} timeslots (one block over one link); {:.0} if only whole blocks were sent on",
        e.timeslots, e.timeslots_whole_blocks
    )?;
    if let Some(compared) = &e.compared {
        writeln!(text, "\n\npredicted by the rates of the links, without the filling of the pipeline")?;
        for time in &compared.methods {
            let over =
                compared.bound_seconds.map(|bound| format!("{:>8.2} x the bound", time.seconds / bound));
            writeln!(
                text,
                "  {:<14} {:>10.3} s{}",
                time.method.to_string(),
                time.seconds,
                over.unwrap_or_default()
            )?;
        }
        match compared.bound_seconds {
            Some(bound) => write!(text, "  {:<14} {bound:>10.3} s", "no repair below")?,
            None => write!(text, "  no bound is known")?,
        }
    }
    Ok(text)
}
