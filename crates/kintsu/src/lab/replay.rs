//! `kintsu lab replay`: traces replayed against update schemes.

use std::process::ExitCode;

use kintsu_experiments::replay::{LIVE, Options, averages, markdown, measure, measured_table, replay, table};
use kintsu_experiments::trace::Trace;
use kintsu_lab::{Entry, Place, enter};

use crate::cli::LabReplay;
use crate::output;

/// `kintsu lab replay`.
pub async fn run(args: LabReplay, json: bool) -> anyhow::Result<ExitCode> {
    let options = Options {
        code: kintsu_code::parse(&args.code)?,
        racks: args.racks,
        block_bytes: args.block.0,
        dirty_stripes: args.us,
        schemes: args.scheme.0.clone(),
    };
    if args.analyse {
        return analyse(&args, &options, json);
    }
    let schemes: Vec<_> = LIVE.into_iter().filter(|scheme| options.schemes.contains(scheme)).collect();
    anyhow::ensure!(
        !schemes.is_empty() && args.updates > 0,
        "expected --updates above 0 and a --scheme that agents run ({}), or --analyse",
        LIVE.map(|scheme| scheme.to_string()).join(", ")
    );
    if let Place::Left(code) = enter(&Entry { name: None, dir: args.dir.clone() }).await? {
        return Ok(code);
    }
    super::experiment(async {
        let mut measured = Vec::new();
        for path in &args.traces {
            for &scheme in &schemes {
                let trace = Trace::open(path, args.format)?;
                measured.push(measure(&name(path), trace, &options, scheme, args.updates).await?);
            }
        }
        match json {
            true => output::json(&measured)?,
            false => output::line(&measured_table(&measured))?,
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

fn analyse(args: &LabReplay, options: &Options, json: bool) -> anyhow::Result<ExitCode> {
    let mut reports = Vec::new();
    for path in &args.traces {
        reports.push(replay(&name(path), Trace::open(path, args.format)?, options)?);
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

fn name(path: &std::path::Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
