//! `kintsu lab replay`: traces replayed against update schemes.

use std::path::Path;
use std::process::ExitCode;

use kintsu_experiments::Step;
use kintsu_experiments::replay::{
    Hosts, Links, Options, averages, grouping, hosts_markdown, hosts_table, markdown, on_hosts, rates,
    replay, table,
};
use kintsu_experiments::trace::{Request, Trace};
use kintsu_lab::{Entry, Place, enter};

use super::run::print;
use crate::cli::LabReplay;
use crate::{output, progress};

/// `kintsu lab replay`.
pub async fn run(args: LabReplay, json: bool) -> anyhow::Result<ExitCode> {
    let code = kintsu_code::parse(&args.code)?;
    let of = |us: &usize| Options {
        code: code.clone(),
        racks: args.racks,
        block_bytes: args.block.0,
        dirty_stripes: *us,
        by_turns: args.by_turns,
        schemes: args.scheme.0.clone(),
    };
    let options: Vec<Options> = args.us.iter().map(of).collect();
    match args.analyse {
        true => analyse(&args, &options, json),
        false => play(&args, &options, json).await,
    }
}

fn analyse(args: &LabReplay, options: &[Options], json: bool) -> anyhow::Result<ExitCode> {
    let mut all = Vec::new();
    for options in options {
        let mut reports = Vec::new();
        for path in &args.traces {
            let (name, trace) = open(args, path)?;
            reports.push(replay(&name, trace, options)?);
        }
        all.push(reports);
    }
    if json {
        let averages: Vec<_> = all.iter().map(|reports| averages(reports)).collect();
        output::json(&serde_json::json!({ "traces": all.concat(), "averages": averages }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = if args.markdown { markdown } else { table };
    for reports in &all {
        output::line(text(reports).trim_end())?;
    }
    if let Some(table) = grouping(&all.concat()) {
        match args.markdown {
            true => output::line(table.markdown().trim_end())?,
            false => print(&table)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn play(args: &LabReplay, options: &[Options], json: bool) -> anyhow::Result<ExitCode> {
    let mut traces = Vec::new();
    for path in &args.traces {
        let (name, trace) = open(args, path)?;
        let writes = trace.filter(|request| !matches!(request, Ok(request) if !request.write));
        traces.push((name, writes.take(args.writes).collect::<Result<Vec<Request>, _>>()?));
    }
    if let Place::Left(code) = enter(&Entry { name: None, dir: args.dir.clone() }).await? {
        return Ok(code);
    }
    let racks = match args.rack_rate.is_empty() {
        true => vec![None],
        false => args.rack_rate.iter().copied().map(Some).collect(),
    };
    let mut played = Vec::new();
    for (name, writes) in &traces {
        for (rack, options) in racks.iter().flat_map(|rack| options.iter().map(move |one| (*rack, one))) {
            let hosts = Hosts {
                whole_blocks: args.whole_blocks,
                at_once: args.at_once.clone(),
                links: Links { rack, node: args.node_rate, pair: args.pair_rate },
            };
            let bar = progress::count(name);
            let tell = |step: Step| {
                bar.set_length(step.total);
                bar.set_position(step.done);
                bar.set_message(format!("{name}: {}", step.what));
            };
            played.push(on_hosts(name, writes, options, &hosts, &tell).await?);
            progress::clear();
        }
    }
    if json {
        output::json(&serde_json::json!({ "traces": played }))?;
    } else if args.markdown {
        output::line(hosts_markdown(&played).trim_end())?;
    } else {
        output::line(&hosts_table(&played))?;
        if played.len() > 1 {
            print(&rates(&played))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn open(args: &LabReplay, path: &Path) -> anyhow::Result<(String, Trace)> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok((name, Trace::open(path, args.format)?))
}
