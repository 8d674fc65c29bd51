//! `kintsu demo`: a real file on a real cluster of separate processes, nodes killed, the file read
//! back degraded, the nodes recovered by all three methods, and one table that compares them.

mod processes;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, ensure};
use kintsu_client::{Client, FileSource, Options, PutOptions};
use kintsu_dag::NodeId;
use kintsu_plan::Method;
use kintsu_wire::message::{Encoding, JobEvent, JobReport, RepairTarget};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::cli::Demo;
use crate::units::human;
use crate::{output, progress};
use processes::Processes;

const CODES: [(&str, &str); 2] = [("demo-rs", "rs:n=14,k=10"), ("demo-lrc", "azure-lrc:n=16,k=12,r=6")];
const METHODS: [Method; 3] = [Method::Conventional, Method::Ppr, Method::Pipeline];
/// Small enough that a file of 100 MB has several stripes, whose repairs run in parallel.
const BLOCK_BYTES: u64 = 4 << 20;
const MARKER: &str = ".kintsu-demo";

/// Runs the demonstration; Ctrl-C ends every process it started.
pub async fn run(args: Demo, json: bool) -> anyhow::Result<ExitCode> {
    let mut processes = Processes::default();
    let result = tokio::select! {
        done = story(&args, json, &mut processes) => done.map(|()| ExitCode::SUCCESS),
        code = crate::command::interrupted() => code,
    };
    progress::clear();
    processes.end().await;
    if let (Ok(code), false) = (&result, json) {
        if *code == ExitCode::SUCCESS {
            how_to_go_on(&args);
        }
        eprintln!("all processes ended; the data is in {}", args.dir.display());
    }
    result
}

async fn story(args: &Demo, json: bool, processes: &mut Processes) -> anyhow::Result<()> {
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
    processes.wait_dead(&client, &victims).await?;

    let mut rows = Vec::new();
    for (&victim, method) in victims.iter().zip(METHODS) {
        let report = recover(&client, victim, method).await?;
        ensure!(report.failed.is_empty(), "recovery of node {victim}: {}", report.failed.join("; "));
        rows.push((victim, report));
    }
    read_back(&client, &args.dir, &expected, json).await?;
    print(&rows, json)
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
    let options = PutOptions {
        code: code.into(),
        encoding: Encoding::Online,
        block_bytes: Some(BLOCK_BYTES),
        cell_bytes: None,
        replace: false,
    };
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
    let mut events = client.repair(RepairTarget::Node(NodeId(node)), method, 32 << 10).await?;
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

fn print(rows: &[(u32, JobReport)], json: bool) -> anyhow::Result<()> {
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(node, report)| json!({"node": node, "report": crate::command::job_json(report)}))
            .collect();
        return output::json(&rows);
    }
    let mut table = output::table([
        "method",
        "node",
        "blocks repaired",
        "blocks read",
        "bytes moved",
        "across racks",
        "largest link load",
        "time",
    ]);
    for (node, report) in rows {
        table.add_row([
            report.method.map(|m| m.to_string()).unwrap_or_default(),
            node.to_string(),
            report.blocks.to_string(),
            report.blocks_read.to_string(),
            human(report.bytes_moved),
            human(report.bytes_across_racks),
            human(report.max_link_bytes),
            format!("{:.2} s", report.seconds),
        ]);
    }
    output::line("")?;
    output::line(&table.to_string())?;
    output::line(
        "(Each method recovers another node. Loopback has no slow link, so the times here depend on the\n processor and the disk; on a network the link load decides.)",
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
