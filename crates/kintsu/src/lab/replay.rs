//! `kintsu lab replay`: traces replayed against update schemes.

use std::process::ExitCode;

use kintsu_experiments::replay::{Options, averages, markdown, replay, table};
use kintsu_experiments::trace::Trace;

use crate::cli::LabReplay;
use crate::output;

/// `kintsu lab replay`.
pub fn run(args: &LabReplay, json: bool) -> anyhow::Result<ExitCode> {
    let options = Options {
        code: kintsu_code::parse(&args.code)?,
        racks: args.racks,
        block_bytes: args.block.0,
        dirty_stripes: args.us,
        schemes: args.scheme.0.clone(),
    };
    let mut reports = Vec::new();
    for path in &args.traces {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        reports.push(replay(&name, Trace::open(path, args.format)?, &options)?);
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
