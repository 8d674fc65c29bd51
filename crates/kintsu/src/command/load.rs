//! `kintsu bench load`: users' operations on a cluster.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use kintsu_experiments::workload::{
    Arrivals, Latency, Leg, Played, Player, Scale, Score, Work, from_csv, workload,
};
use tokio_util::sync::CancellationToken;

use super::Context;
use crate::cli::Load;
use crate::units::human;
use crate::{output, progress};

/// Where the values are stored: nobody's objects but those of this command have such names, so all of them may be removed.
const PLACE: &str = ".kintsu-bench/";

/// How often progress is shown.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// `kintsu bench load`. Ctrl-C ends the run early; what was measured is printed.
pub async fn run(args: Load, context: &Context) -> anyhow::Result<ExitCode> {
    let factor = |factor: f64| factor.is_finite() && factor > 0.0;
    ensure!(
        factor(args.sizes) && factor(args.count) && args.open.is_none_or(factor),
        "expected factors above 0, got --sizes {}, --count {}, --open {:?}",
        args.sizes,
        args.count,
        args.open
    );
    let works = args.workloads.iter().map(|name| work(name, &args)).collect::<anyhow::Result<Vec<_>>>()?;
    let names: Vec<String> = works.iter().map(|work| work.name.clone()).collect();
    let player = Player {
        arrivals: args.open.map_or(Arrivals::Closed, Arrivals::Open),
        ..Player::new(vec![context.client.clone()], &args.code, args.tasks as usize)
    };
    let (score, stop) = (Arc::new(Score::default()), CancellationToken::new());
    // After an interrupt, operations that have begun still end.
    let interrupt = tokio::spawn({
        let stop = stop.clone();
        async move {
            let _ = super::interrupted().await;
            stop.cancel();
        }
    });
    let done = play(works, args.span, &player, &score, &stop).await;
    interrupt.abort();
    let played = score.read();
    progress::clear();
    if !args.keep {
        for name in &names {
            player.clear(name).await?;
        }
    }
    done?;
    if context.json {
        output::json(&played)?;
    } else {
        print(&played)?;
    }
    Ok(match stop.is_cancelled() {
        true => ExitCode::from(130),
        false if played.failed == 0 => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

async fn play(
    works: Vec<Work>,
    span: Option<Duration>,
    player: &Player,
    score: &Arc<Score>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut legs = Vec::new();
    for work in works {
        let bar = progress::count(&format!("writing the values of {}", work.name.trim_start_matches(PLACE)));
        bar.set_length(work.records.len() as u64);
        tokio::select! {
            done = player.fill(&work, |done| bar.set_position(done as u64)) => done?,
            () = stop.cancelled() => return Ok(()),
        }
        progress::clear();
        legs.push(Leg { work, span });
    }
    score.restart();
    let bar = progress::steps("running");
    let tell = async {
        loop {
            tokio::time::sleep(TELL_EVERY).await;
            let now = score.read();
            bar.set_message(format!(
                "{} operations, {:.0}/s, P99 {:.1} ms",
                now.all.operations,
                now.rate(),
                now.all.p99_ms
            ));
        }
    };
    tokio::select! {
        done = player.run(legs, score, stop) => done?,
        () = tell => {}
    }
    Ok(())
}

/// The name of a file without its folder and ending.
fn name(work: &str) -> String {
    let path = std::path::Path::new(work);
    path.file_stem().map_or_else(|| work.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

fn work(given: &str, args: &Load) -> anyhow::Result<Work> {
    let scale = Scale { sizes: args.sizes, count: args.count };
    let work = if given.contains(['.', '/']) {
        let text = std::fs::read_to_string(given).with_context(|| format!("cannot read {given}"))?;
        from_csv(&name(given), &text, scale).with_context(|| given.to_owned())?
    } else {
        workload(given)?.start(scale, args.seed)
    };
    Ok(Work { name: format!("{PLACE}{}", work.name), ..work })
}

fn print(played: &Played) -> anyhow::Result<()> {
    let Played { seconds, bytes, failed, first_failure, all, verbs, .. } = played;
    output::line(&format!(
        "{} operations in {seconds:.1} s: {:.1} a second, {} a second",
        all.operations,
        played.rate(),
        human((*bytes as f64 / seconds.max(1e-9)) as u64)
    ))?;
    let mut table = output::table(["", "operations", "mean, ms", "P50", "P99", "P99.9", "most"]);
    let mut row = |what: String, l: &Latency| {
        let times = [l.mean_ms, l.p50_ms, l.p99_ms, l.p999_ms, l.most_ms].map(|ms| format!("{ms:.2}"));
        table.add_row([what, l.operations.to_string()].into_iter().chain(times));
    };
    for (verb, latency) in verbs {
        row(format!("{verb:?}"), latency);
    }
    row("all".into(), all);
    output::line(&table.to_string())?;
    if let Some(why) = first_failure {
        eprintln!("kintsu: {failed} operations failed, the first because: {why}");
    }
    Ok(())
}
