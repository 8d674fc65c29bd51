//! `kintsu hdfs watch`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use kintsu_hdfs::{By, Coordinator, NameNode, Seen, watch};
use tokio::sync::mpsc;

use crate::output;
use crate::units::human;

/// Events that may wait to be printed.
const WAITING: usize = 256;

/// A line of JSON.
#[derive(serde::Serialize)]
struct Line<'a> {
    /// Milliseconds since the watch began.
    at_ms: u64,
    #[serde(flatten)]
    seen: &'a Seen,
}

/// Prints what is seen until Ctrl-C, or until nobody reads it; with a coordinator also who brought blocks back.
pub async fn run(
    namenode: &NameNode,
    path: &str,
    scan: Duration,
    coordinator: Option<Coordinator>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let (events, mut happens) = mpsc::channel(WAITING);
    let began = Instant::now();
    let print = async {
        while let Some(seen) = happens.recv().await {
            let at = began.elapsed();
            match json {
                true => output::json(&Line { at_ms: at.as_millis() as u64, seen: &seen })?,
                false => output::line(&format!("{:8.1} s  {}", at.as_secs_f64(), told(&seen)))?,
            }
            if !output::is_read() {
                break;
            }
        }
        anyhow::Ok(())
    };
    // Whoever ends first ends the other.
    tokio::select! {
        watched = watch(namenode, path, scan, coordinator.as_ref(), &events) => watched?,
        printed = print => printed?,
    }
    Ok(ExitCode::SUCCESS)
}

fn told(seen: &Seen) -> String {
    match seen {
        Seen::Scanned { groups } => format!("watching {groups} block groups"),
        Seen::Gone { datanode, why } => format!("DataNode {datanode} is gone: {why}"),
        Seen::Back { datanode } => format!("DataNode {datanode} is back"),
        Seen::AtRisk { blocks: 0, .. } => "no block is lost".into(),
        Seen::AtRisk { groups, unreadable, blocks, bytes, missing } => format!(
            "{blocks} blocks ({}) of {groups} groups are lost, {missing} of them known to the NameNode; {unreadable} groups \
             cannot be read",
            human(*bytes)
        ),
        Seen::Repaired { path, group, index, bytes, datanode, lost_ms, by } => {
            let by = match by {
                Some(By::Agents) => ", rebuilt by Kintsu's agents",
                Some(By::Others) => ", by HDFS itself, a DataNode that came back or kintsu hdfs repair",
                None => "",
            };
            format!(
                "{path}, group {group}, block {index} ({}) is back on {datanode} after {:.1} s{by}",
                human(*bytes),
                *lost_ms as f64 / 1000.0
            )
        }
        Seen::Whole { blocks, bytes, lost_ms } => {
            let seconds = (*lost_ms as f64 / 1000.0).max(0.001);
            let rate = (*bytes as f64 / seconds) as u64;
            format!("{blocks} blocks ({}) are back after {seconds:.1} s: {}/s", human(*bytes), human(rate))
        }
        Seen::Failed { why } => format!("failed: {why}"),
        Seen::Note { text } => format!("note: {text}"),
        other => format!("{other:?}"),
    }
}
