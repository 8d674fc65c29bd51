//! Commits a put or a pack, as [`crate::engine::commit`] decides: tries the transaction, and asks the nodes that may have lost blocks.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_wire::message::{
    BlockRef, Checksum, Ending, HeldBlock, LookBlocks, MemberEnd, MemberReply, ObjectInfo, WrittenStripe,
};

use crate::cluster::Cluster;
use crate::engine::commit::{Committing, Doubt, Evidence, Refusal, Told};
use crate::error::{CoordinatorError, Result};
use crate::meta::{CodeRecord, Commit, Fence, Making, Meta};

/// Most blocks that one call asks an agent about.
pub const LOOK_BATCH: usize = 1000;
/// How long an agent may take to check a batch.
const PATIENCE: Duration = Duration::from_secs(10);

/// What belongs to the commit besides the stripes.
#[derive(Debug, Clone)]
pub struct With {
    /// The checksum of all bytes.
    pub checksum: Option<Checksum>,
    /// What else happens in the same transaction.
    pub ending: Option<Ending>,
    /// If it is a pack, how its members end.
    pub members: Option<Vec<MemberEnd>>,
    /// The code of objects without bytes.
    pub code: CodeRecord,
}

/// What became of a put.
pub enum Committed {
    /// The object is visible.
    Visible(ObjectInfo),
    /// A pack: what became of its members.
    Pack(Vec<MemberReply>),
    /// These stripes must be written again.
    Refused(Vec<Refusal>),
    /// This check of the ending does not hold.
    Unmet(u32),
}

/// Makes a put visible, or says which stripes must be written again. A put that has ended has no lease.
///
/// # Errors
/// Those of [`Meta::try_commit`]; nodes are restarted again and again while they are asked.
pub async fn commit(
    cluster: Arc<Cluster>,
    put: u64,
    written: Arc<[WrittenStripe]>,
    with: With,
) -> Result<Committed> {
    let committed = tries(&cluster, put, written, Arc::new(with)).await;
    let ended = matches!(committed, Ok(Committed::Visible(_) | Committed::Pack(_)));
    if ended || matches!(committed, Err(CoordinatorError::Exists { .. })) {
        cluster.leases().end(put);
        // The blocks of a replaced object, or of this put, may have become garbage.
        cluster.sweep.notify_one();
    }
    committed
}

async fn tries(
    cluster: &Arc<Cluster>,
    put: u64,
    written: Arc<[WrittenStripe]>,
    with: Arc<With>,
) -> Result<Committed> {
    let mut committing = Committing::default();
    while committing.begins() {
        let down = cluster.members().down();
        let (now, worker, written, known) =
            (cluster.unix_seconds(), cluster.clone(), written.clone(), committing.told().clone());
        let with = with.clone();
        let tried = move |meta: &Meta| {
            // The code is needed only if nodes are dead.
            let code = OnceCell::new();
            let bearable = |lost: &[BlockIndex]| {
                let code = code.get_or_init(|| code_of(&worker, meta, put).ok().flatten());
                code.as_ref().is_some_and(|code| code.recoverable(lost))
            };
            let evidence = Evidence { down: &down, told: &known, bearable: &bearable };
            let making = Making { code: &with.code, now };
            if let Some(members) = &with.members {
                return meta.end_pack(put, &written, members, &evidence, making);
            }
            let ending = with.ending.as_ref().map(|ending| (ending, making));
            meta.end_put(put, &written, (now, with.checksum), &evidence, ending)
        };
        match cluster.meta.off(tried).await? {
            Commit::Visible(object) => return Ok(Committed::Visible(object)),
            Commit::Pack(members) => return Ok(Committed::Pack(members)),
            Commit::Unmet(check) => return Ok(Committed::Unmet(check)),
            Commit::Refused(refusals) => {
                tracing::info!("put {put}: {} stripes must be written again", refusals.len());
                return Ok(Committed::Refused(refusals));
            }
            Commit::Unsure(doubts) => {
                let answers = doubts.into_iter().map(|doubt| ask_node(cluster, doubt));
                committing.heard(futures::future::join_all(answers).await);
                if cluster.stop.is_cancelled() {
                    break;
                }
            }
        }
    }
    Err(CoordinatorError::Conflict {
        what: format!("commit of put {put}"),
        expected: "nodes that are not restarted while they are asked for its blocks".into(),
        got: committing.gave_up(),
    })
}

/// The code of a put under way.
fn code_of(cluster: &Arc<Cluster>, meta: &Meta, put: u64) -> Result<Option<Arc<dyn Code>>> {
    meta.snapshot()?.put(put)?.map(|put| cluster.code(put.code)).transpose()
}

/// Asks a node which of these blocks it still holds exactly as they were written.
async fn ask_node(cluster: &Arc<Cluster>, doubt: Doubt) -> Told {
    let mut told = Told::nothing(&doubt);
    let mut silent = registered(cluster, doubt.node, doubt.fence).await.err();
    for batch in doubt.blocks.chunks(LOOK_BATCH) {
        let found = match silent.take() {
            None => {
                let wanted = batch.iter().map(|b| BlockRef { id: b.id, generation: b.generation });
                look(cluster, doubt.node, wanted.collect()).await
            }
            Some(reason) => Err(reason),
        };
        told.heard(batch, found.as_deref().map_err(String::as_str));
        silent = found.err();
    }
    told
}

/// Waits until a restarted node can be asked: it must register and report its blocks first.
async fn registered(cluster: &Arc<Cluster>, node: NodeId, fence: Option<Fence>) -> Result<(), String> {
    let until = cluster.now_ms() + PATIENCE.as_millis() as u64;
    while !cluster.members().has_come(node, fence) {
        if cluster.now_ms() > until || cluster.stop.is_cancelled() {
            return Err("has not reported its blocks yet".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// What a node holds of these blocks, at most [`LOOK_BATCH`], in their order.
///
/// # Errors
/// Why the node cannot be asked.
pub async fn look(
    cluster: &Arc<Cluster>,
    node: NodeId,
    blocks: Vec<BlockRef>,
) -> Result<Vec<Option<HeldBlock>>, String> {
    let mut agent = cluster.agent(node).map_err(|e| e.to_string())?;
    let asked = blocks.len();
    let looking = tokio::time::timeout(PATIENCE, agent.look(LookBlocks { blocks }));
    let found = match cluster.stop.run_until_cancelled(looking).await {
        Some(Ok(Ok(found))) => found.into_inner().blocks,
        Some(Ok(Err(status))) => return Err(format!("cannot be asked for its blocks: {}", status.message())),
        Some(Err(_)) => return Err(format!("did not answer within {PATIENCE:?}")),
        None => return Err("cannot be asked: the coordinator ends".into()),
    };
    if found.len() == asked {
        return Ok(found);
    }
    Err(format!("answered for {} blocks, expected {asked}", found.len()))
}
