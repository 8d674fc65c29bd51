//! `kintsu lab replay`: traces replayed against update schemes.

use std::process::ExitCode;

use kintsu_experiments::Step;
use kintsu_experiments::replay::{
    Hosts, Options, averages, hosts_markdown, hosts_table, markdown, on_hosts, replay, table,
};
use kintsu_experiments::trace::Trace;
use kintsu_lab::{Entry, Place, enter};

use crate::cli::LabReplay;
use crate::{output, progress};

/// `kintsu lab replay`.
pub async fn run(args: LabReplay, json: bool) -> anyhow::Result<ExitCode> {
    let options = Options {
        code: kintsu_code::parse(&args.code)?,
        racks: args.racks,
        block_bytes: args.block.0,
        dirty_stripes: args.us,
        schemes: args.scheme.0.clone(),
    };
    match args.analyse {
        true => analyse(&args, &options, json),
        false => play(&args, &options, json).await,
    }
}

fn analyse(args: &LabReplay, options: &Options, json: bool) -> anyhow::Result<ExitCode> {
    let mut reports = Vec::new();
    for (name, trace) in traces(args)? {
        reports.push(replay(&name, trace, options)?);
    }
    if json {
        output::json(&serde_json::json!({ "traces": reports, "averages": averages(&reports) }))?;
    } else if args.markdown {
        output::line(markdown(&reports).trim_end())?;
    } else {
        output::line(&table(&reports))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn play(args: &LabReplay, options: &Options, json: bool) -> anyhow::Result<ExitCode> {
    let traces = traces(args)?;
    if let Place::Left(code) = enter(&Entry { name: None, dir: args.dir.clone() }).await? {
        return Ok(code);
    }
    let hosts = Hosts {
        writes: args.writes,
        whole_blocks: args.whole_blocks,
        at_once: args.at_once.clone(),
        rack_rate: args.rack_rate,
    };
    let mut played = Vec::new();
    for (name, trace) in traces {
        let bar = progress::count(&name);
        let tell = |step: Step| {
            bar.set_length(step.total);
            bar.set_position(step.done);
            bar.set_message(format!("{name}: {}", step.what));
        };
        played.push(on_hosts(&name, trace, options, &hosts, &tell).await?);
        progress::clear();
    }
    if json {
        output::json(&serde_json::json!({ "traces": played }))?;
    } else if args.markdown {
        output::line(hosts_markdown(&played).trim_end())?;
    } else {
        output::line(&hosts_table(&played))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn traces(args: &LabReplay) -> anyhow::Result<Vec<(String, Trace)>> {
    let open = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok((name, Trace::open(path, args.format)?))
    };
    args.traces.iter().map(open).collect()
}
