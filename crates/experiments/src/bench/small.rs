//! Small objects through a whole cluster in this process: puts and gets a second, by one client and by many at once,
//! compared with the rate at which this disk makes small files durable.
//!
//! A put is complete when every block and the object's metadata are durable. The disk's rate is that of new files of
//! the object's size, each synced, written by as many threads as there are clients, in the same run. One put of a
//! small object makes several such files (one for each block that is not empty) and two transactions. Those that many callers
//! put through one client, as a gateway does, share stripes.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use kintsu_client::{Client, PutOptions};
use kintsu_cluster::Cluster;
use serde::Serialize;

use super::io::cpu_seconds;
use super::verdict;
use crate::error::Result;
use crate::plain;

/// Puts of this many bytes a second by this many clients should be at least so many.
pub(super) const AIM: (u64, u32, f64) = (4 << 10, 16, 1000.0);

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Size of each object in bytes.
    pub size: u64,
    /// The code.
    pub code: String,
    /// Clients at once.
    pub clients: u32,
    /// Objects of each client.
    pub objects: u32,
    /// An empty folder on the disk to be measured.
    pub dir: PathBuf,
}

/// One measured activity.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What was done.
    pub what: &'static str,
    /// By how many clients or threads at once.
    pub at_once: u32,
    /// How many a second.
    pub per_second: f64,
    /// Median time of one, in milliseconds.
    pub median_ms: f64,
    /// 99th percentile of the time of one, in milliseconds.
    pub p99_ms: f64,
    /// Processor seconds (user and system, this process) per second.
    pub cores_busy: f64,
}

/// The measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The code.
    pub code: String,
    /// Object size in bytes.
    pub size: u64,
    /// Nodes of the cluster.
    pub nodes: u32,
    /// Processors of the machine.
    pub processors: usize,
    /// All activities.
    pub rows: Vec<Row>,
    /// The least rate of puts by all clients; `None`: for these objects and clients there is no aim.
    pub aim: Option<f64>,
    /// Puts a second by all clients over synced files a second by as many threads.
    pub puts_over_synced_files: f64,
}

/// Runs the measurement.
///
/// # Errors
/// Errors of the disk, the cluster or the code.
pub async fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let code = kintsu_code::parse(&options.code)?;
    let dir = options.dir.as_path();
    let nodes = code.n() as u32;
    let cluster = Cluster::start(kintsu_cluster::Options::new(dir, nodes, 3.min(nodes))).await?;
    let mut clients = Vec::new();
    for _ in 0..options.clients {
        clients.push(Client::connect(&cluster.endpoint(), kintsu_client::Options::default()).await?);
    }
    let mut rows = Vec::new();
    for at_once in [1, options.clients] {
        progress(&format!("{at_once} at once"));
        let files = dir.join(format!("files-{at_once}"));
        std::fs::create_dir_all(&files)?;
        let (size, count) = (options.size as usize, options.objects);
        let synced = move |thread, i| synced_file(&files.join(format!("{thread}-{i}")), size);
        rows.push(threads("synced files", at_once, count, synced).await?);
        let set = &clients[..at_once as usize];
        let put = |client: Client, name: String| {
            let (options, bytes) = (PutOptions::new(options.code.clone()), bytes(&name, options.size));
            async move { client.put(Arc::new(bytes), &name, options, |_, _| {}).await.map(drop) }
        };
        rows.push(tasks(PUTS, set, count, put).await?);
        let get = |client: Client, name: String| async move {
            let mut nowhere = tokio::io::sink();
            client.get(&name, None, &mut nowhere, |_, _| {}).await.map(drop)
        };
        rows.push(tasks("gets", set, count, get).await?);
        if at_once > 1 {
            let one: Vec<_> = set.iter().map(|_| clients[0].clone()).collect();
            let shared = |name: &str| format!("shared/{name}");
            let (put, get) =
                (|c, name: String| put(c, shared(&name)), |c, name: String| get(c, shared(&name)));
            rows.push(tasks(SHARED, &one, count, put).await?);
            rows.push(tasks("gets of these", &one, count, get).await?);
        }
    }
    cluster.shutdown().await?;
    let rate = |what| rows.iter().rev().find(|row| row.what == what).map_or(f64::NAN, |row| row.per_second);
    Ok(Report {
        code: options.code.clone(),
        size: options.size,
        nodes,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        aim: Some(AIM.2).filter(|_| (options.size, options.clients) == (AIM.0, AIM.1)),
        puts_over_synced_files: rate(PUTS) / rate("synced files"),
        rows,
    })
}

/// By clients that share nothing, as processes do.
pub(super) const PUTS: &str = "puts";
/// By as many tasks of one client.
pub(super) const SHARED: &str = "puts through one client";

/// An object whose bytes depend on its name.
fn bytes(name: &str, size: u64) -> Bytes {
    let seed = name.bytes().fold(1_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    let byte = move |i| (seed.wrapping_add(i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..size).map(byte).collect()
}

/// A new file, durable.
fn synced_file(path: &Path, size: usize) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&vec![7; size])?;
    file.sync_all()
}

/// Runs `work(thread, i)` `count` times on each of `at_once` threads.
async fn threads(
    what: &'static str,
    at_once: u32,
    count: u32,
    work: impl Fn(u32, u32) -> std::io::Result<()> + Clone + Send + 'static,
) -> Result<Row> {
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let run = |thread| {
        let work = work.clone();
        tokio::task::spawn_blocking(move || {
            let timed = |i| {
                let started = Instant::now();
                work(thread, i).map(|()| started.elapsed().as_secs_f64())
            };
            (0..count).map(timed).collect::<Result<Vec<_>, _>>()
        })
    };
    let mut times = Vec::new();
    for thread in (0..at_once).map(run).collect::<Vec<_>>() {
        times.extend(thread.await??);
    }
    Ok(row(what, at_once, times, started, cpu))
}

/// Each client does `work` with `count` names of its own, one after the other; all clients at once.
async fn tasks<W>(
    what: &'static str,
    clients: &[Client],
    count: u32,
    work: impl Fn(Client, String) -> W + Clone,
) -> Result<Row>
where
    W: Future<Output = Result<(), kintsu_client::ClientError>>,
{
    let (started, cpu, at_once) = (Instant::now(), cpu_seconds(), clients.len() as u32);
    let each = clients.iter().enumerate().map(|(c, client)| {
        let work = work.clone();
        async move {
            let mut times = Vec::new();
            for i in 0..count {
                let started = Instant::now();
                work(client.clone(), format!("small-{at_once}/{c}/{i}")).await?;
                times.push(started.elapsed().as_secs_f64());
            }
            Ok::<_, kintsu_client::ClientError>(times)
        }
    });
    let times = futures::future::try_join_all(each).await?.concat();
    Ok(row(what, at_once, times, started, cpu))
}

fn row(what: &'static str, at_once: u32, mut times: Vec<f64>, started: Instant, cpu: f64) -> Row {
    let seconds = started.elapsed().as_secs_f64().max(1e-9);
    times.sort_by(f64::total_cmp);
    let at = |q: usize| times.get(times.len() * q / 100).map_or(f64::NAN, |s| s * 1e3);
    Row {
        what,
        at_once,
        per_second: times.len() as f64 / seconds,
        median_ms: at(50),
        p99_ms: at(99),
        cores_busy: (cpu_seconds() - cpu) / seconds,
    }
}

impl Report {
    /// How many a second of an activity, by as many at once as were tried.
    pub(super) fn rate(&self, what: &str) -> Option<f64> {
        self.rows.iter().rev().find(|row| row.what == what).map(|row| row.per_second)
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut table = plain::table(["", "at once", "a second", "median ms", "p99 ms", "cores busy"]);
        for row in &self.rows {
            table.add_row([
                row.what.to_owned(),
                row.at_once.to_string(),
                format!("{:.0}", row.per_second),
                format!("{:.2}", row.median_ms),
                format!("{:.2}", row.p99_ms),
                format!("{:.2}", row.cores_busy),
            ]);
        }
        let aims = [PUTS, SHARED].into_iter().filter_map(|what| {
            let (aim, rate) = (self.aim?, self.rate(what)?);
            Some(format!("\naim: at least {aim} {what} a second: {rate:.0}, {}", verdict(rate >= aim)))
        });
        let aims: String = aims.collect();
        format!(
            "objects of {} bytes, {}, {} nodes, coordinator and clients in one process on {} processors\n{table}\n\
             puts reach {:.2} of the rate of synced files of this size{aims}",
            self.size, self.code, self.nodes, self.processors, self.puts_over_synced_files
        )
    }
}
