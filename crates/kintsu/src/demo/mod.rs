//! `kintsu demo`: a real file on a real cluster of separate processes, nodes killed, the file read back degraded, and
//! a node recovered by three methods. Each method starts from the same copy of the whole cluster, so all recover the
//! same blocks from the same helpers' nodes, and one table compares them. Then a volume with a file system on it loses
//! a node (`volume`).

mod before;
mod processes;
mod volume;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, ensure};
use kintsu_client::{Client, FileSource, Options, PutOptions};
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::Method;
use kintsu_wire::message::{JobEvent, JobReport, RepairTarget};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::cli::Demo;
use crate::launcher::check_racks;
use crate::units::human;
use crate::{output, progress};
use processes::Processes;

const CODES: [(&str, &str); 2] = [("demo-rs", "rs:n=14,k=10"), ("demo-lrc", "azure-lrc:n=16,k=12,r=6")];
const METHODS: [Method; 3] = [Method::Conventional, Method::Ppr, Method::Pipeline];
/// Small enough that a file of 100 MB has several stripes, whose repairs run in parallel.
const BLOCK_BYTES: u64 = 4 << 20;
const SLICE_BYTES: u32 = 32 << 10;
const MARKER: &str = ".kintsu-demo";

/// Runs the demonstration; Ctrl-C ends every process it started.
pub async fn run(args: Demo, json: bool) -> anyhow::Result<ExitCode> {
    let mut processes = Processes::default();
    let result = tokio::select! {
        done = story(&args, json, &mut processes) => done.map(|not_shown| (ExitCode::SUCCESS, not_shown)),
        code = crate::command::interrupted() => code.map(|code| (code, None)),
    };
    progress::clear();
    processes.end().await;
    let (code, not_shown) = result?;
    if !json {
        if code == ExitCode::SUCCESS {
            how_to_go_on(&args);
        }
        eprintln!("all processes ended; the data is in {}", args.dir.display());
    }
    // Where nobody overlooks it, and not in the JSON.
    not_shown.into_iter().for_each(|not_shown| eprintln!("{not_shown}"));
    Ok(code)
}

/// Returns what to say of a scene that cannot be played here.
async fn story(args: &Demo, json: bool, processes: &mut Processes) -> anyhow::Result<Option<String>> {
    let size = std::fs::metadata(&args.file)
        .with_context(|| {
            format!("expected a file to store with --file, cannot read {}", args.file.display())
        })?
        .len();
    ensure!(
        args.nodes >= 19,
        "the demo kills 3 nodes and stores stripes of 16 blocks: expected 19 nodes or more, got {}",
        args.nodes
    );
    check_racks(args.nodes, args.racks)?;
    fresh(&args.dir)?;
    say(
        json,
        &format!(
            "starting a coordinator and {} agents in {} racks, each in its own process",
            args.nodes, args.racks
        ),
    );
    let endpoint = processes.start(&args.dir, args.nodes, args.racks).await?;
    let client = Client::connect(&endpoint, Options::default()).await?;
    processes.wait_alive(&client, args.nodes).await?;

    let expected = sha256(&args.file)?;
    say(json, &format!("{} ({}), SHA-256 {}", args.file.display(), human(size), expected));
    for (name, code) in CODES {
        put(&client, &args.file, name, code).await?;
        say(json, &format!("stored as {name} with {code}"));
    }

    let victims = victims(&client).await?;
    for &victim in &victims {
        processes.kill(victim).await?;
    }
    say(json, &format!("killed (SIGKILL) nodes {}", join(&victims)));
    read_back(&client, &args.dir, &expected, json).await?;
    client.close().await;
    processes.end().await;

    let victim = victims[0];
    say(
        json,
        &format!("now node {victim} alone is killed, and recovered by each method from the same state"),
    );
    let before = before::Copy::of(&args.dir)?;
    let mut rows = Vec::new();
    for (round, method) in METHODS.into_iter().enumerate() {
        if round > 0 {
            processes.end().await;
            before.restore()?;
        }
        let endpoint = processes.start(&args.dir, args.nodes, args.racks).await?;
        let client = Client::connect(&endpoint, Options::default()).await?;
        processes.wait_alive(&client, args.nodes).await?;
        let timeslots = timeslots(&client, victim, method).await?;
        processes.kill(victim).await?;
        processes.wait_dead(&client, &[victim]).await?;
        let report = recover(&client, victim, method).await?;
        ensure!(report.failed.is_empty(), "recovery of node {victim}: {}", report.failed.join("; "));
        rows.push(Row { method, timeslots, report });
        if round + 1 == METHODS.len() {
            read_back(&client, &args.dir, &expected, json).await?;
        }
        client.close().await;
    }
    print(victim, &rows, json)?;

    processes.end().await;
    drop(before);
    if let Some(not_shown) = volume::not_shown().await {
        return Ok(Some(not_shown));
    }
    let endpoint = processes.start(&args.dir, args.nodes, args.racks).await?;
    let client = Client::connect(&endpoint, Options::default()).await?;
    processes.wait_alive(&client, args.nodes).await?;
    let done = volume::scene(&args.dir, &endpoint, &client, processes, json).await;
    client.close().await;
    done.map(|()| None)
}

/// What one method did.
struct Row {
    method: Method,
    /// The predicted time of one stripe alone.
    timeslots: f64,
    report: JobReport,
}

/// The predicted time of the repair of one block on this node, in the time of sending a block over one link.
async fn timeslots(client: &Client, victim: u32, method: Method) -> anyhow::Result<f64> {
    for (name, _) in CODES {
        let (view, topology) = client.stripe_view(name, 0).await?;
        let held = view.homes.iter().position(|home| *home == Some(NodeId(victim)));
        if let Some(block) = held {
            let lost = [BlockIndex(block as u8)];
            return Ok(kintsu_plan::explain(&view, &topology, &lost, method, SLICE_BYTES)?.timeslots);
        }
    }
    anyhow::bail!("expected a block of the first stripe of an object on node {victim}, found none")
}

/// An empty directory; what an earlier demo left there is removed, anything else is refused.
fn fresh(dir: &Path) -> anyhow::Result<()> {
    let used = std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
    if used {
        ensure!(
            dir.join(MARKER).exists(),
            "{} is not empty and was not made by `kintsu demo`; expected an empty folder: choose another --dir",
            dir.display()
        );
        std::fs::remove_dir_all(dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    std::fs::create_dir_all(dir)?;
    std::fs::write(dir.join(MARKER), "made by `kintsu demo`, which may remove this folder\n")?;
    Ok(())
}

fn say(json: bool, text: &str) {
    if !json {
        println!("{text}");
    }
}

fn join(nodes: &[u32]) -> String {
    nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn sha256(file: &Path) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    std::io::copy(&mut std::fs::File::open(file)?, &mut hash)?;
    Ok(hex(&hash.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

async fn put(client: &Client, file: &Path, name: &str, code: &str) -> anyhow::Result<()> {
    let bar = progress::bytes(&format!("put {name}"));
    let options = PutOptions { block_bytes: Some(BLOCK_BYTES), ..PutOptions::new(code) };
    let show = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    client.put(Arc::new(FileSource::open(file)?), name, options, show).await?;
    progress::clear();
    Ok(())
}

/// The three nodes that hold the most blocks: the worst case for three failures.
async fn victims(client: &Client) -> anyhow::Result<Vec<u32>> {
    let mut nodes = client.nodes().await?.nodes;
    nodes.sort_by_key(|n| std::cmp::Reverse(n.placed_blocks));
    Ok(nodes.iter().take(METHODS.len()).map(|n| n.id.0).collect())
}

async fn read_back(client: &Client, dir: &Path, expected: &str, json: bool) -> anyhow::Result<()> {
    for (name, _) in CODES {
        let path = dir.join(format!("{name}.out"));
        let mut out = tokio::io::BufWriter::with_capacity(1 << 20, tokio::fs::File::create(&path).await?);
        let bar = progress::bytes(&format!("get {name}"));
        let show = |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        };
        let report = client.get(name, None, &mut out, show).await?;
        tokio::io::AsyncWriteExt::flush(&mut out).await?;
        progress::clear();
        let got = sha256(&path)?;
        ensure!(got == expected, "{name}: expected SHA-256 {expected}, got {got}");
        say(
            json,
            &format!(
                "read {name} back, {} stripe(s) degraded: SHA-256 {got}, equal",
                report.degraded_stripes
            ),
        );
    }
    Ok(())
}

async fn recover(client: &Client, node: u32, method: Method) -> anyhow::Result<JobReport> {
    let bar = progress::bytes(&format!("recover node {node} by {method}"));
    let mut events = client.repair(RepairTarget::Node(NodeId(node)), method, SLICE_BYTES).await?;
    while let Some(event) = events.next().await? {
        match event {
            JobEvent::Began(_) => {}
            JobEvent::Progress { done, total, .. } => {
                bar.set_length(total);
                bar.set_position(done);
            }
            JobEvent::Ended(report) => {
                progress::clear();
                return Ok(report);
            }
        }
    }
    anyhow::bail!("the coordinator ended the repair of node {node} without a report")
}

fn print(victim: u32, rows: &[Row], json: bool) -> anyhow::Result<()> {
    if json {
        let row = |row: &Row| {
            json!({
                "method": row.method.to_string(),
                "node": victim,
                "timeslots": row.timeslots,
                "report": crate::command::job_json(&row.report),
            })
        };
        return output::json(&rows.iter().map(row).collect::<Vec<_>>());
    }
    let mut table = output::table([
        "method",
        "blocks repaired",
        "blocks read",
        "bytes moved",
        "across racks",
        "largest link load",
        "time",
        "one block alone",
    ]);
    for Row { method, timeslots, report } in rows {
        table.add_row([
            method.to_string(),
            report.blocks.to_string(),
            report.blocks_read.to_string(),
            human(report.bytes_moved),
            human(report.bytes_across_racks),
            human(report.max_link_bytes),
            format!("{:.2} s", report.seconds),
            format!("{timeslots:.2} timeslots"),
        ]);
    }
    output::line("")?;
    output::line(&table.to_string())?;
    output::line(&in_words(victim, rows))
}

/// What the table shows.
fn in_words(victim: u32, rows: &[Row]) -> String {
    let ([first, .., last], true) = (rows, rows.iter().all(|row| row.report.blocks > 0)) else {
        return format!("Node {victim} held no block.");
    };
    let (before, after) = (first.report.bytes_across_racks, last.report.bytes_across_racks);
    let across = match before {
        0 => "no more or fewer".into(),
        _ if after > before => format!("{:.0}% more", 100.0 * (after - before) as f64 / before as f64),
        _ => format!("{:.0}% fewer", 100.0 * (before - after) as f64 / before as f64),
    };
    let (slow, fast) = (first.method, last.method);
    format!(
        "All methods rebuilt the same {} blocks of node {victim} from the same state of the cluster.\n\
         Compared with {slow} repair, {fast} sent {across} bytes across racks, and its busiest link carried {} instead of {}.\n\
         On a network, that link decides: one repair alone takes {:.1} timeslots by {slow}, {:.2} by {fast}\n\
         (a timeslot is the time of one block over one link). Loopback has no slow link: the measured times depend on\n\
         processor and disk.",
        first.report.blocks,
        human(last.report.max_link_bytes),
        human(first.report.max_link_bytes),
        first.timeslots,
        last.timeslots,
    )
}

fn how_to_go_on(args: &Demo) {
    let program = std::env::current_exe().map_or_else(|_| "kintsu".into(), |path| path.display().to_string());
    println!("\nTo continue with this cluster:");
    println!("  {program} up --nodes {} --racks {} --dir {} &", args.nodes, args.racks, args.dir.display());
    for command in ["nodes", "stat demo-rs", "explain demo-lrc --lost 3 --svg plan.svg"] {
        println!("  {program} {command}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_words_compare_the_first_method_with_the_last() {
        let row = |method, timeslots, bytes_across_racks, max_link_bytes| {
            let report = JobReport { blocks: 4, bytes_across_racks, max_link_bytes, ..JobReport::default() };
            Row { method, timeslots, report }
        };
        let rows = [
            row(Method::Conventional, 10.0, 1000, 4096),
            row(Method::Ppr, 3.0, 700, 2048),
            row(Method::Pipeline, 1.07, 400, 1024),
        ];
        let said = in_words(7, &rows);
        for part in
            ["same 4 blocks of node 7", "60% fewer", "1.00 KiB instead of 4.00 KiB", "10.0 timeslots", "1.07"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(in_words(7, &rows[..1]).contains("no block"));
    }
}
