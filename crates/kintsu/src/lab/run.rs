//! `kintsu lab run`, `kintsu lab page`: declared experiments on emulated hosts, and their results in the
//! documentation.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use kintsu_experiments::figures::{
    Experiment, Found, Kind, Listed, Report, Settings, Size, Table, catalog, chart, check_places, claims,
    differences, find, measured_by, points, reasons, splice, summary, sweeps,
};
use kintsu_experiments::{Machine, Step};
use kintsu_lab::{Entry, Place, enter};
use tokio_util::sync::CancellationToken;

use crate::cli::{LabPage, LabRun};
use crate::{output, progress};

/// Default number of repetitions.
const RUNS: usize = 5;
const QUICK_RUNS: usize = 2;

/// `kintsu lab run`.
pub async fn run(args: LabRun, json: bool) -> anyhow::Result<ExitCode> {
    if args.list || args.experiments.is_empty() {
        return list(json);
    }
    let chosen = find(&args.experiments)?;
    if let Some(page) = &args.page {
        // Now, and not when all has been measured.
        check_places(&read(page)?, chosen.iter().map(|entry| entry.name))?;
    }
    if chosen.iter().any(|entry| matches!(entry.kind, Kind::Measured(_))) {
        let wanted = Entry { name: None, dir: args.dir.clone() };
        if let Place::Left(code) = enter(&wanted).await? {
            return Ok(code);
        }
    }
    let stop = CancellationToken::new();
    let measuring = measure_all(&chosen, &args, &stop, json);
    tokio::pin!(measuring);
    let interrupted = tokio::select! {
        done = &mut measuring => return done,
        code = crate::command::interrupted() => Some(code?),
        () = out_of_time(args.minutes) => None,
    };
    // What was measured until now is shown and written.
    stop.cancel();
    let done = measuring.await;
    crate::progress::clear();
    done?;
    Ok(interrupted.unwrap_or(ExitCode::FAILURE))
}

async fn out_of_time(minutes: Option<f64>) {
    match minutes {
        Some(minutes) => {
            tokio::time::sleep(Duration::from_secs_f64(60.0 * minutes)).await;
            crate::progress::clear();
            eprintln!("kintsu: out of time after {minutes} minutes");
        }
        None => std::future::pending().await,
    }
}

async fn measure_all(
    chosen: &[Listed],
    args: &LabRun,
    stop: &CancellationToken,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let size = Size { quick: args.quick, scale: args.scale };
    let (mut reports, mut found) = (Vec::new(), Found::default());
    let out = args.out.as_deref();
    if let Some(out) = out {
        std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    }
    // One that fails does not take away what the others measure.
    let (mut done, mut failed) = (0, Vec::new());
    for entry in chosen.iter().take_while(|_| !stop.is_cancelled()) {
        done += 1;
        let report = match measure(entry, size, args, &mut found, stop).await {
            Ok(report) => Report { build: crate::cli::VERSION.into(), ..report },
            Err(error) => {
                eprintln!("kintsu: {}: {error:#}", entry.name);
                failed.push(entry.name);
                continue;
            }
        };
        if let Some(out) = out {
            keep(&report, out)?;
        }
        if !json {
            show(&report)?;
        }
        reports.push(report);
    }
    let left = chosen[done..].iter().map(|entry| entry.name);
    let missing: Vec<&str> = failed.iter().copied().chain(left).collect();
    if !missing.is_empty() {
        eprintln!("kintsu: not measured: {}", missing.join(", "));
    }
    if let Some(page) = &args.page {
        let charts = page.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        write_page(page, &charts, &reports)?;
    }
    if json {
        output::json(&reports)?;
    } else if reports.len() > 1 {
        output::line(&format!("\n{}", summary(&reports).trim_end()))?;
    }
    let broken = !failed.is_empty() || reports.iter().any(Report::failed);
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Puts the results into the page, and the drawings into this folder beside it.
fn write_page(page: &Path, folder: &str, reports: &[Report]) -> anyhow::Result<()> {
    let text = splice(&read(page)?, reports, folder)?;
    let charts = page.with_file_name(folder);
    std::fs::create_dir_all(&charts).with_context(|| format!("cannot make {}", charts.display()))?;
    for report in reports.iter().filter(|report| !report.rows.is_empty()) {
        let path = charts.join(format!("{}.svg", report.experiment));
        std::fs::write(&path, chart(report)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    std::fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

async fn measure(
    entry: &Listed,
    size: Size,
    args: &LabRun,
    found: &mut Found,
    stop: &CancellationToken,
) -> anyhow::Result<Report> {
    let runs = args.runs.unwrap_or(if args.quick { QUICK_RUNS } else { RUNS });
    let settings = Settings { runs, quick: size.quick };
    let experiment = match entry.kind {
        Kind::Measured(make) => make(size)?,
        Kind::Computed(differs, compute) => {
            let about = Experiment { differs, ..Experiment::computed(entry.name, entry.about) };
            return Ok(Report { claims: compute()?, ..Report::new(&about, Machine::this(), settings) });
        }
    };
    let resumed = args.out.as_deref().filter(|_| args.resume);
    if let Some(report) = resumed.and_then(|out| measured(&experiment, settings, out)) {
        return Ok(report);
    }
    let bar = progress::count(entry.name);
    let watch = |step: Step| {
        bar.set_length(step.total);
        bar.set_position(step.done);
        bar.set_message(format!("{}: {}", entry.name, step.what));
    };
    let report = kintsu_experiments::figures::run(&experiment, settings, found, stop, &watch).await;
    progress::clear();
    Ok(report?)
}

/// What an earlier run of this program left of an experiment, if that is all of it.
fn measured(experiment: &Experiment, settings: Settings, out: &Path) -> Option<Report> {
    let report = result(&out.join(format!("{}.json", experiment.name))).ok()?;
    let whole = report.stands_for(experiment, settings, &Machine::this(), crate::cli::VERSION);
    whole.then_some(report)
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let all = catalog();
    if json {
        let entry = |e: &Listed| serde_json::json!({"name": e.name, "groups": e.groups, "about": e.about});
        output::json(&all.iter().map(entry).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["experiment", "groups", "what it shows"]);
    for entry in all {
        table.add_row([entry.name.to_owned(), entry.groups.join(", "), entry.about.to_owned()]);
    }
    output::line(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn keep(report: &Report, out: &Path) -> anyhow::Result<()> {
    let write = |extension: &str, text: String| {
        let path = out.join(format!("{}.{extension}", report.experiment));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write("json", serde_json::to_string_pretty(report)? + "\n")?;
    if report.rows.is_empty() { Ok(()) } else { write("svg", chart(report)) }
}

fn show(report: &Report) -> anyhow::Result<()> {
    output::line(&format!("\n{}: {} ({})", report.experiment, report.title, report.source))?;
    output::line(&format!("{} {}.", differences(report), measured_by(report)))?;
    if !report.sweeps.is_empty() {
        print(&sweeps(report))?;
    }
    if !report.rows.is_empty() {
        print(&points(report))?;
    }
    if !report.claims.is_empty() {
        print(&claims(report))?;
    }
    for reason in reasons(report) {
        output::line(&reason)?;
    }
    Ok(())
}

/// Prints a table under an empty line.
pub(super) fn print(table: &Table) -> anyhow::Result<()> {
    let mut shown = output::table([""; 0]);
    shown.set_header(&table.headings);
    for row in &table.rows {
        shown.add_row(row);
    }
    output::line(&format!("\n{shown}"))
}

/// `kintsu lab page`.
pub fn page(args: &LabPage) -> anyhow::Result<ExitCode> {
    let reports = reports_in(&args.results)?;
    write_page(&args.page, &args.charts, &reports)?;
    output::line(summary(&reports).trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// The results in a folder, in the order of their names.
pub fn reports_in(folder: &Path) -> anyhow::Result<Vec<Report>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.iter().map(|path| result(path)).collect()
}

fn result(path: &Path) -> anyhow::Result<Report> {
    let report = serde_json::from_str(&read(path)?);
    report.with_context(|| format!("{} is not a result of `kintsu lab run`", path.display()))
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
