//! Tells what is repaired now, what waits and why, and what the links have to carry for it. Changes nothing.

use std::sync::Arc;

use kintsu_wire::message::{AskRepairs, RunningRepairs};

use crate::cluster::Cluster;
use crate::driver;
use crate::error::Result;

/// Most repairs of which the graphs are sent, most waiting ones, and most links.
const MOST_RUNNING: u32 = 64;
const MOST_WAITING: u32 = 1000;
const MOST_LINKS: usize = 256;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, ask: AskRepairs) -> Result<RunningRepairs> {
    let running = driver::running(cluster, ask.running.min(MOST_RUNNING) as usize);
    let queue = cluster.queue();
    let (count, waiting_count, waiting) = queue.shown(ask.waiting.min(MOST_WAITING) as usize);
    let links = queue.links(MOST_LINKS);
    Ok(RunningRepairs { count, running, waiting_count, waiting, links })
}
