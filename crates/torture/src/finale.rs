//! What must hold when all faults have ended: the nodes come back, repairs succeed, every object has its
//! bytes, and everything can be deleted.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kintsu_client::{Client, ClientError};
use kintsu_wire::message::{JobReport, NodeState, Repair, RepairTarget};
use tokio::time::{Instant, sleep};

use crate::census;
use crate::history::History;
use crate::stage::Stage;
use crate::volumes;
use crate::writer::{check_read, finish};

/// How long each of these may take.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);

/// Checks that the cluster keeps its promises; the first broken one is recorded.
pub async fn hold(stage: &Stage, history: &History) {
    stage.done.store(true, Ordering::Relaxed);
    while !stage.healed.load(Ordering::Relaxed) {
        sleep(PAUSE).await;
    }
    let outcome = async {
        let client = stage.client().await.map_err(|e| e.to_string())?;
        let client = &client;
        until("all nodes are there", || alive(client, history.nodes)).await?;
        if stage.model().is_older() {
            until("the metadata are complete", || complete(client, history.nodes)).await?;
            stage.model().muddle(false);
        }
        until("all blocks are reported", || reported(client)).await?;
        if !history.rots() {
            until("no block has vanished", || vanished(stage, client)).await?;
        }
        until("all is repaired", || repaired(stage, client)).await?;
        if let Some(shape) = history.shape {
            volumes::hold(stage, client, shape, history.seed).await?;
            until("all is repaired again", || repaired(stage, client)).await?;
        }
        let names = stage.model().names();
        for name in &names {
            if !check_read(stage, client, name, None).await {
                return Err(format!("{name} cannot be read although all is repaired"));
            }
        }
        for name in &names {
            until("all is removed", || removed(client, name)).await?;
        }
        for number in stage.volumes.numbers() {
            until("all volumes are removed", || volumes::removed(stage, client, history, number)).await?;
        }
        until("all snapshots are removed", || volumes::without_snapshots(stage, client)).await?;
        until("all blocks are deleted", || deleted(stage, client, history)).await
    };
    if let Err(why) = outcome.await {
        stage.fail(why);
    }
}

/// Waits until `look` finds nothing wrong; otherwise returns what it found last.
pub async fn until<F: Future<Output = Result<(), String>>>(
    what: &str,
    look: impl Fn() -> F,
) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let Err(why) = look().await else { return Ok(()) };
        if Instant::now() > end {
            return Err(format!("waited {PATIENCE:?} until {what}: {why}"));
        }
        sleep(PAUSE).await;
    }
}

/// Checks that all nodes are alive.
pub async fn alive(client: &Client, nodes: u32) -> Result<(), String> {
    let list = client.nodes().await.map_err(|e| e.to_string())?.nodes;
    let alive = list.iter().filter(|n| matches!(n.state, NodeState::Alive | NodeState::Draining)).count();
    if alive == nodes as usize { Ok(()) } else { Err(format!("{alive} of {nodes}")) }
}

/// Metadata that were older contain again what the blocks tell, and an operator has ended the rebuild.
async fn complete(client: &Client, nodes: u32) -> Result<(), String> {
    let status = client.rebuild().await.map_err(|e| e.to_string())?;
    if status.agents < u64::from(nodes) || status.waiting.is_some() {
        return Err(format!("{status:?}"));
    }
    client.finish_rebuild().await.map(drop).map_err(|e| e.to_string())
}

/// Checks that the coordinator waits for nothing. A node counts as alive for a while after a restart of the
/// coordinator, also if it has not registered yet.
async fn reported(client: &Client) -> Result<(), String> {
    let waits = client.status().await.map_err(|e| e.to_string())?.held_back;
    if waits.is_empty() { Ok(()) } else { Err(format!("{waits:?}")) }
}

/// Checks that no block has vanished, before anything reads the blocks.
async fn vanished(stage: &Stage, client: &Client) -> Result<(), String> {
    let wrong = census::vanished(stage, client).await.map_err(|e| e.to_string())?;
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// A scrub finds rotten blocks, and a repair of everything repairs the rest. Then all blocks must be there.
pub async fn repaired(stage: &Stage, client: &Client) -> Result<(), String> {
    clean("scrub", finish(client.scrub(None).await).await)?;
    clean("repair", finish(client.repair_by(Repair::new(RepairTarget::All)).await).await)?;
    let wrong = census::missing(stage, client).await.map_err(|e| e.to_string())?;
    stage.trace.say(format!("census: {wrong:?}"));
    if wrong.is_empty() { Ok(()) } else { Err(format!("a repair says done, but {}", wrong.join("; "))) }
}

fn clean(what: &str, report: Result<Option<JobReport>, ClientError>) -> Result<(), String> {
    match report {
        Ok(Some(report)) if report.failed.is_empty() => Ok(()),
        other => Err(format!("{what}: {other:?}")),
    }
}

async fn removed(client: &Client, name: &str) -> Result<(), String> {
    match client.remove(name).await {
        Ok(_) | Err(ClientError::NotFound(_)) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

async fn deleted(stage: &Stage, client: &Client, history: &History) -> Result<(), String> {
    let status = client.status().await.map_err(|e| e.to_string())?;
    let mut left = census::left_over(stage);
    if history.fails_disks() {
        // An unfinished file goes at the next start.
        left.retain(|path| !path.ends_with(".tmp"));
    }
    if (status.objects, status.stripes, status.puts_pending, status.garbage) == (0, 0, 0, 0)
        && left.is_empty()
    {
        return Ok(());
    }
    if stage.model().is_older() {
        // What is of no version any more is set aside.
        clean("scrub", finish(client.scrub(None).await).await)?;
    }
    // A put whose outcome the client did not learn may have become visible only now.
    for object in client.list("", None, 1000).await.map_err(|e| e.to_string())?.objects {
        removed(client, &object.name).await?;
    }
    Err(format!("{status:?}, files {left:?}"))
}
