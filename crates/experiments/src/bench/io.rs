//! Put and get through a whole cluster in this process, compared with the machine's limits for the same bytes in
//! the same run.
//!
//! All figures are bytes of the object a second, so that all lines can be compared. The limits: writing the stored
//! bytes (n/k of the object) to files and syncing them, copying the object's file and syncing it, the coding
//! kernel alone, reading a file. Reads are from a warm page cache on both sides.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use kintsu_client::{Client, FileSource, PutOptions};
use kintsu_cluster::Cluster;
use kintsu_kernel::{Kernel, Mode};
use serde::Serialize;
use tokio::io::AsyncWrite;

use crate::error::Result;
use crate::plain;

/// Bytes that are written to an open file.
pub type Sink = Box<dyn AsyncWrite + Send + Unpin>;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Size of the object in bytes.
    pub size: u64,
    /// Its code.
    pub code: String,
    /// An empty folder on the disk to be measured.
    pub dir: PathBuf,
    /// Repetitions; best and median are reported.
    pub runs: u32,
    /// How the command line reads a pipe.
    pub stream: fn(File) -> File,
    /// How the command line writes to a pipe.
    pub sink: fn(File) -> Sink,
}

/// One measured activity.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What was done.
    pub what: String,
    /// Object megabytes (10^6) a second, best run.
    pub best_mb_s: f64,
    /// The same, median run.
    pub median_mb_s: f64,
    /// Processor seconds (user and system, this process) per second of the median run.
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
    /// Put over "write the stored bytes with sync", from best runs.
    pub put_over_write_sync: f64,
    /// Get over "read the file", from best runs.
    pub get_over_read: f64,
    /// Where the time goes, as sentences computed from the figures.
    pub findings: Vec<String>,
}

struct Sample {
    seconds: f64,
    cpu: f64,
}

/// Runs the measurement; `progress` is told which run it is.
///
/// # Errors
/// Errors of the disk, the cluster or the code.
pub async fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let code = kintsu_code::parse(&options.code)?;
    let dir = options.dir.as_path();
    let nodes = code.n() as u32;
    let cluster = Cluster::start(kintsu_cluster::Options::new(dir, nodes, 3.min(nodes))).await?;
    let client = Client::connect(&cluster.endpoint(), kintsu_client::Options::default()).await?;
    let file = dir.join("object");
    fill(&file, options.size)?;

    let stored = options.size * code.n() as u64 / code.k() as u64;
    let mut samples: Vec<(&str, Vec<Sample>)> = [
        "put",
        "write with sync",
        "copy with sync",
        "get",
        "read",
        "kernel",
        "put from a pipe",
        "get to a pipe",
    ]
    .map(|w| (w, Vec::new()))
    .into();
    for run in 0..options.runs.max(1) {
        progress(&format!("run {} of {}", run + 1, options.runs.max(1)));
        let name = format!("object-{run}");
        let put = PutOptions::new(&options.code);
        let source = Arc::new(FileSource::open(&file)?);
        let started = clock();
        client.put(source, &name, put, |_, _| {}).await?;
        samples[0].1.push(since(started));
        samples[1].1.push(timed(|| write_sync(&file, &dir.join("plain"), stored, code.n()))?);
        samples[2].1.push(timed(|| write_sync(&file, &dir.join("plain"), options.size, 1))?);
        let started = clock();
        let mut nowhere = tokio::io::sink();
        client.get(&name, None, &mut nowhere, |_, _| {}).await?;
        samples[3].1.push(since(started));
        samples[4].1.push(timed(|| read(&file))?);
        samples[5].1.push(timed(|| encode(&*code, options.size))?);
        client.remove(&name).await?;
        let started = clock();
        put_pipe(&client, &file, &name, options).await?;
        samples[6].1.push(since(started));
        let started = clock();
        get_pipe(&client, &name, options).await?;
        samples[7].1.push(since(started));
        client.remove(&name).await?;
    }
    cluster.shutdown().await?;
    Ok(report(options, &*code, nodes, &samples))
}

/// Stores the bytes of a file that come through a pipe.
async fn put_pipe(client: &Client, file: &Path, name: &str, options: &Options) -> Result<()> {
    let (reader, mut writer) = std::io::pipe()?;
    let mut file = File::open(file)?;
    let copying = tokio::task::spawn_blocking(move || std::io::copy(&mut file, &mut writer));
    let stream = (options.stream)(OwnedFd::from(reader).into());
    client.put_reader(stream, name, PutOptions::new(&options.code), |_| {}).await?;
    copying.await??;
    Ok(())
}

/// Reads an object into a pipe, from which another thread takes it.
async fn get_pipe(client: &Client, name: &str, options: &Options) -> Result<()> {
    let (mut reader, writer) = std::io::pipe()?;
    let taking = tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0; 1 << 20];
        while reader.read(&mut buffer)? > 0 {}
        std::io::Result::Ok(())
    });
    let mut out = (options.sink)(OwnedFd::from(writer).into());
    client.get(name, None, &mut *out, |_, _| {}).await?;
    drop(out);
    taking.await??;
    Ok(())
}

fn clock() -> (Instant, f64) {
    (Instant::now(), cpu_seconds())
}

fn since((started, cpu): (Instant, f64)) -> Sample {
    Sample { seconds: started.elapsed().as_secs_f64().max(1e-9), cpu: cpu_seconds() - cpu }
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Sample> {
    let started = clock();
    work()?;
    Ok(since(started))
}

/// User and system time of this process, from `/proc/self/stat` (fields 14 and 15, in hundredths
/// of a second on every Linux that Rust supports).
pub(super) fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split(' ').skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

fn fill(path: &Path, size: u64) -> Result<()> {
    let mut file = std::io::BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut left = size;
    while left > 0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let take = left.min(8) as usize;
        file.write_all(&state.to_le_bytes()[..take])?;
        left -= take as u64;
    }
    file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
    Ok(())
}

/// Writes `bytes` bytes (read repeatedly from `from`) into `files` files and syncs each.
fn write_sync(from: &Path, to: &Path, bytes: u64, files: usize) -> Result<()> {
    let mut source = File::open(from)?;
    let mut buffer = vec![0; 1 << 20];
    let share = bytes / files as u64;
    for i in 0..files {
        let path = to.with_extension(i.to_string());
        let mut out = File::create(&path)?;
        let mut left = share;
        while left > 0 {
            let want = left.min(buffer.len() as u64) as usize;
            let got = source.read(&mut buffer[..want])?;
            if got == 0 {
                source = File::open(from)?;
            }
            out.write_all(&buffer[..got])?;
            left -= got as u64;
        }
        out.sync_all()?;
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut file = File::open(path)?;
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

/// The coding work of one put: every cell of the object through the kernel, once.
fn encode(code: &dyn kintsu_code::Code, size: u64) -> Result<()> {
    const CELL: usize = 128 << 10;
    let (n, k) = (code.n(), code.k());
    let parity = code.generator().select_rows(k..n);
    let kernel = Kernel::new(n - k, k, parity.as_slice())?;
    let data: Vec<Vec<u8>> = (0..k).map(|i| vec![i as u8 + 1; CELL + i * 64]).collect();
    let inputs: Vec<&[u8]> = data.iter().map(|d| &d[..CELL]).collect();
    let mut out = vec![vec![0u8; CELL]; n - k];
    let mut outputs: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
    for _ in 0..size.div_ceil((CELL * k) as u64) {
        kernel.apply(&inputs, &mut outputs, Mode::Overwrite)?;
    }
    std::hint::black_box(&out);
    Ok(())
}

fn report(
    options: &Options,
    code: &dyn kintsu_code::Code,
    nodes: u32,
    samples: &[(&str, Vec<Sample>)],
) -> Report {
    let rows: Vec<Row> = samples.iter().map(|(what, s)| row(what, s, options.size)).collect();
    let best = |i: usize| rows[i].best_mb_s;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let findings = vec![
        format!(
            "put reaches {:.2} of the rate of writing the same {:.2} x stored bytes with sync, and keeps {:.2} of {processors} processors busy",
            best(0) / best(1),
            code.n() as f64 / code.k() as f64,
            rows[0].cores_busy
        ),
        format!("coding takes {:.1}% of a put's time", 100.0 * best(0) / best(5)),
        format!(
            "get reaches {:.2} of the rate of reading the file from the page cache, and keeps {:.2} of {processors} processors busy",
            best(3) / best(4),
            rows[3].cores_busy
        ),
        format!("a put from a pipe reaches {:.2} of the rate of a put of a file", best(6) / best(0)),
        format!("a get to a pipe reaches {:.2} of the rate of a get to nowhere", best(7) / best(3)),
        "client, agents and coordinator share the processors here, and every byte crosses loopback with its checksums".into(),
    ];
    Report {
        code: options.code.clone(),
        size: options.size,
        nodes,
        processors,
        put_over_write_sync: best(0) / best(1),
        get_over_read: best(3) / best(4),
        rows,
        findings,
    }
}

fn row(what: &str, samples: &[Sample], size: u64) -> Row {
    let mut sorted: Vec<&Sample> = samples.iter().collect();
    sorted.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let rate = |s: &Sample| size as f64 / 1e6 / s.seconds;
    let median = sorted[sorted.len() / 2];
    Row {
        what: what.into(),
        best_mb_s: rate(sorted[0]),
        median_mb_s: rate(median),
        cores_busy: median.cpu / median.seconds,
    }
}

impl Report {
    /// For people.
    pub fn table(&self) -> String {
        let mut table = plain::table(["", "best MB/s", "median MB/s", "cores busy"]);
        for row in &self.rows {
            table.add_row([
                row.what.clone(),
                format!("{:.0}", row.best_mb_s),
                format!("{:.0}", row.median_mb_s),
                format!("{:.2}", row.cores_busy),
            ]);
        }
        format!(
            "{} bytes, {}, {} nodes in one process; MB of the object a second\n{table}\n{}",
            self.size,
            self.code,
            self.nodes,
            self.findings.join("\n")
        )
    }
}
