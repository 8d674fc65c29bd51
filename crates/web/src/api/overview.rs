//! The cluster at one moment: what `kintsu health`, `status`, `nodes`, `jobs` and `rates show` say.

use kintsu_client::Client;
use kintsu_wire::message::{ClusterStatus, Counts, Health, JobShown, KnownRates, NodeInfo, RepairLimit};
use serde::Serialize;

use crate::error::ApiError;

/// Damaged stripes that are named for each cause.
const STRIPES: u32 = 12;
/// Running repairs of which the graph is sent, and waiting ones that are named.
const REPAIRS: u32 = 6;
const WAITING: u32 = 12;

/// The cluster at one moment.
#[derive(Debug, Serialize)]
pub struct Overview {
    /// The verdict, its causes, and stripes at risk.
    pub health: Health,
    /// The cluster in numbers.
    pub status: ClusterStatus,
    /// By id.
    pub nodes: Vec<NodeInfo>,
    /// By id.
    pub jobs: Vec<JobShown>,
    /// How fast repairs may be, and why; users' latency.
    pub repair_limit: Option<RepairLimit>,
    /// The same in words.
    pub repair_limit_text: Option<String>,
    /// What is known of links and disks.
    pub rates: KnownRates,
    /// What was counted since the coordinator's start.
    pub counts: Counts,
    /// What is repaired now, what waits, and why.
    pub repairs: super::repairs::RepairsShown,
}

/// Asks for everything at once.
///
/// # Errors
/// Whatever keeps the coordinator from answering.
pub async fn overview(client: &Client) -> Result<Overview, ApiError> {
    let (health, status, nodes, jobs, rates, counts, repairs) = tokio::try_join!(
        client.health(STRIPES),
        client.status(),
        client.nodes(),
        client.job_list(),
        client.known_rates(),
        client.counts(),
        client.running_repairs(REPAIRS, WAITING),
    )?;
    let repairs = super::repairs::shown(repairs, &nodes.nodes);
    Ok(Overview {
        health,
        status,
        nodes: nodes.nodes,
        jobs: jobs.jobs.into_iter().map(JobShown::from).collect(),
        repair_limit_text: jobs.repair_limit.map(|limit| limit.to_string()),
        repair_limit: jobs.repair_limit,
        rates,
        counts,
        repairs,
    })
}
