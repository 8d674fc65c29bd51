//! `kintsu sim codes`: what one repair reads and sends with each family of codes and each method.

use kintsu_dag::BlockIndex;
use kintsu_plan::many::place_alone;
use kintsu_plan::{Account, Method, Repair, repair};
use kintsu_sim::{Cluster, LostStripe, Overheads, simulate};
use serde::Serialize;
use serde_json::json;

use super::{Form, overheads, print, seconds, topology};
use crate::cli::SimCodes;
use crate::output;

/// The mean over the repairs of all data blocks, one by one, in blocks.
#[derive(Debug, Clone, Serialize)]
struct Row {
    code: String,
    method: Method,
    read: f64,
    sent: f64,
    busiest_link: f64,
    seconds: f64,
}

/// The quantities of a row, of which the least are marked.
const MEASURES: [fn(&Row) -> f64; 4] =
    [|row| row.read, |row| row.sent, |row| row.busiest_link, |row| row.seconds];

/// Runs `kintsu sim codes`.
pub fn run(args: &SimCodes, json: bool) -> anyhow::Result<()> {
    let codes: Vec<String> = match args.codes.is_empty() {
        true => kintsu_code::families().iter().map(|family| family.example.to_owned()).collect(),
        false => args.codes.clone(),
    };
    let mut rows = Vec::new();
    let mut skipped = Vec::new();
    for name in codes {
        let code = kintsu_code::parse(&name)?;
        if code.w() > args.most_sub_blocks {
            skipped.push(format!("{name} ({} sub-blocks)", code.w()));
            continue;
        }
        let nodes = args.cluster.nodes as usize;
        anyhow::ensure!(nodes > code.n(), "--nodes: expected more than {} for {name}, got {nodes}", code.n());
        let cluster = super::cluster_of(&args.cluster, code, topology(&args.cluster)?)?;
        for &method in &args.method {
            rows.push(row(&cluster, method, args.cluster.slice.0, &overheads(&args.cluster))?);
        }
    }
    match Form::of(json, args.csv) {
        Form::Json => output::json(&json!({ "repairs": rows, "skipped": skipped })),
        form => table(&rows, &skipped, form),
    }
}

fn row(cluster: &Cluster, method: Method, slice: u64, overheads: &Overheads) -> anyhow::Result<Row> {
    let (code, topology, block) = (&cluster.code, &cluster.topology, cluster.block_bytes);
    let homes = cluster.homes(0)?;
    let mut row =
        Row { code: code.name().to_owned(), method, read: 0.0, sent: 0.0, busiest_link: 0.0, seconds: 0.0 };
    for lost in 0..code.k() {
        let mut left = homes.clone();
        left[lost] = None;
        let view = cluster.view(&LostStripe { id: 0, homes: left });
        let lost = vec![BlockIndex(lost as u8)];
        let requestors = place_alone(&view, topology, &lost)?;
        let plan = repair(&view, topology, &Repair { lost, requestors, method }, &|_| 0, &[])?.plan;
        let account = Account::of(&plan, topology, block)?;
        row.read += account.bytes_read as f64;
        row.sent += account.bytes_moved as f64;
        row.busiest_link += account.max_link_bytes as f64;
        row.seconds += simulate(&plan, topology, block, slice, overheads)?.seconds;
    }
    let data = code.k() as f64;
    row.seconds /= data;
    for bytes in [&mut row.read, &mut row.sent, &mut row.busiest_link] {
        *bytes /= data * block as f64;
    }
    Ok(row)
}

fn table(rows: &[Row], skipped: &[String], form: Form) -> anyhow::Result<()> {
    let plain = form == Form::Csv;
    let cells = rows.iter().map(|row| {
        let same = || rows.iter().filter(|other| other.code == row.code);
        let [read, sent, busiest, time] = MEASURES.map(|of| {
            // Two that differ by rounding alone are both least.
            let least = same().map(of).fold(f64::INFINITY, f64::min);
            let star = if !plain && of(row) <= least * 1.000_001 { "*" } else { "" };
            (of(row), star)
        });
        let blocks = |(value, star): (f64, &str)| format!("{value:.3}{star}");
        let shown = if plain { time.0.to_string() } else { format!("{}{}", seconds(time.0), time.1) };
        [row.code.clone(), row.method.to_string(), blocks(read), blocks(sent), blocks(busiest), shown]
    });
    print(["CODE", "METHOD", "READ", "SENT", "BUSIEST LINK", "TIME"], cells.collect(), form)?;
    if plain {
        return Ok(());
    }
    if !skipped.is_empty() {
        output::line(&format!("\nLeft out, because --most-sub-blocks is less: {}", skipped.join(", ")))?;
    }
    output::line(
        "\nRepair of one data block, the mean over all of them; READ, SENT and BUSIEST LINK in blocks. *: the least of the code.\n\
         A path or tree carries on each link only as many sub-blocks as what lies behind it can tell apart.",
    )
}
