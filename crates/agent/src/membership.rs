//! Belonging to a cluster: registration and heartbeats.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use kintsu_dag::StripeId;
use kintsu_runtime::Carried;
use kintsu_store::{BlockMeta, BlockStore, Listing, StoreError};
use kintsu_wire::message::{
    BadBlock, BlockPage, Counters, DiskUsage, FaultKind, Heartbeat, Moved, Register, Registered,
};
use kintsu_wire::{MembershipChannel, PROTOCOL_VERSION, other_cluster, words};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::agent::Shared;
use crate::counters::Interface;
use crate::identity::{self, Identity};
use crate::service::held;
use crate::tickets::Inspector;
use crate::{AgentError, aside};

/// A former process of this node may still count as alive: retry this many times until it has ended.
const TRIES_WHILE_TAKEN: u32 = 40;
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Blocks in one page of a registration; a page also has the rest of its last stripe.
const PAGE: usize = 4096;

/// A page that has this many bytes of labels gets no further stripe.
const MOST_LABEL_BYTES: usize = 8 << 20;

/// Least time between two records of the metadata's history in the folder.
const REMEMBER_EVERY: Duration = Duration::from_secs(5);

/// How long an agent waits for its coordinator before it says so, and then between two such lines.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// Least time between two log lines about a coordinator of another cluster.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// Registers and reports all blocks; retries while the coordinator cannot be reached.
///
/// # Errors
/// The coordinator's reason when it refuses for good.
pub async fn register(
    shared: &Arc<Shared>,
    coordinator: MembershipChannel,
) -> Result<Registered, AgentError> {
    let address = &shared.config.coordinator;
    let refused = |detail| AgentError::Refused { coordinator: address.clone(), detail };
    let mut pause = FIRST_PAUSE;
    let mut taken = 0;
    // Whatever the coordinator spoke before: it may be of a later release now.
    shared.credentials.speaks().set(PROTOCOL_VERSION);
    let begun = Instant::now();
    let mut said = begun;
    loop {
        // Until the coordinator has compared the list, no block in it is deleted.
        let deletes = shared.deletes.clone();
        let held = kintsu_wire::ambient::blocking(move || deletes.hold()).await;
        let _held = held.map_err(|e| refused(e.to_string()))?;
        let listing = list(shared.store.clone()).await;
        let listing = listing.map_err(|e| refused(format!("its own blocks cannot be listed: {e}")))?;
        match try_register(shared, coordinator.clone(), &listing).await {
            Ok(registered) => return Ok(registered),
            Err(Failure::Own(error)) => return Err(error),
            Err(Failure::Said(status)) => match status.code() {
                Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled => {
                    if said.elapsed() >= SAY_EVERY {
                        said = Instant::now();
                        let (dir, waited) = (shared.config.dir.display(), begun.elapsed().as_secs());
                        let why = words(&status);
                        tracing::warn!(
                            "the agent of {dir} waits for the coordinator at {address} ({waited} s so far): {why}"
                        );
                    }
                }
                Code::AlreadyExists if taken < TRIES_WHILE_TAKEN => taken += 1,
                // The coordinator is of an earlier release that we understand.
                _ if shared.credentials.speaks().adopt(&status) => {}
                _ => {
                    return Err(foreign(shared, &status).unwrap_or_else(|| refused(words(&status))));
                }
            },
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        if taken > 0 {
            pause = pause.min(Duration::from_millis(500));
        }
    }
}

/// Why a registration did not succeed.
enum Failure {
    /// An error of this agent.
    Own(AgentError),
    /// A refusal by the coordinator, or a failed call.
    Said(Status),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Said(status)
    }
}

async fn try_register(
    shared: &Arc<Shared>,
    mut coordinator: MembershipChannel,
    listing: &Listing,
) -> Result<Registered, Failure> {
    let Identity { folder, node, cluster, seen } = shared.identity();
    let config = &shared.config;
    let store = shared.store.clone();
    // Calls that need a log which cannot be opened say why.
    let breaks = crate::aside::off(move || store.breaks()).await.unwrap_or_default();
    let message = Register {
        node,
        name: config.name.clone(),
        rack: config.rack,
        rack_name: config.rack_name.clone(),
        control: shared.control,
        data: shared.data,
        dir: config.dir.display().to_string(),
        incarnation: shared.incarnation,
        cluster,
        folder,
        log: (breaks.at > 0).then(|| folder.log(breaks.at)),
        seen,
        blocks: (listing.blocks.len() + listing.damaged.len()) as u64,
        next_stripe: listing.blocks.last().map_or(0, |last| last.id.stripe.0.saturating_add(1)),
        replace: config.replace,
        moved: config.moved,
        protocol: 0,
    };
    let registered = coordinator.register(message).await?.into_inner();
    shared.credentials.join(registered.cluster).map_err(|error| Failure::Own(error.into()))?;
    {
        let mut inspector = shared.inspector.lock().unwrap_or_else(PoisonError::into_inner);
        let told = registered.tickets.as_ref().map(|(key, now)| (&key[..], *now));
        let told = told.map(|told| Inspector::told(registered.cluster, told, inspector.as_ref()));
        *inspector = told.transpose().map_err(|error| Failure::Own(error.into()))?;
        demand_of_agents(inspector.as_mut(), registered.agents_too);
    }
    let (node, cluster) = (Some(registered.node), Some(registered.cluster));
    record(shared, move |own| Identity { node, cluster, ..own }).await.map_err(Failure::Own)?;
    report(shared, &mut coordinator, &registered, listing).await?;
    if registered.seen.is_some() {
        let seen = registered.seen;
        record(shared, move |own| Identity { seen, ..own }).await.map_err(Failure::Own)?;
    }
    Ok(registered)
}

/// If the coordinator says so, agents need tickets too from now on.
fn demand_of_agents(inspector: Option<&mut Inspector>, agents_too: bool) {
    if let Some(inspector) = inspector.filter(|_| agents_too) {
        inspector.demand_of_agents();
    }
}

/// Reports all blocks to the coordinator, page by page.
async fn report(
    shared: &Shared,
    coordinator: &mut MembershipChannel,
    registered: &Registered,
    listing: &Listing,
) -> Result<(), Status> {
    let (mut rest, mut damaged) = (&listing.blocks[..], &listing.damaged[..]);
    for number in 0.. {
        let (mut page, mut upto) = cut(rest);
        let mut labels = Vec::new();
        if registered.labels {
            let (store, blocks) = (shared.store.clone(), page.to_vec());
            let told = kintsu_wire::ambient::blocking(move || labels_of(&*store, &blocks)).await;
            let (told, last) = told.map_err(|e| Status::internal(e.to_string()))?;
            labels = told;
            if let Some(last) = last {
                (page, upto) = (&page[..page.partition_point(|meta| meta.id.stripe <= last)], Some(last));
            }
        }
        rest = &rest[page.len()..];
        let last = upto.is_none();
        let within = upto.map_or(damaged.len(), |upto| damaged.partition_point(|(id, _)| id.stripe <= upto));
        let (bad, later) = damaged.split_at(within);
        damaged = later;
        let message = BlockPage {
            node: registered.node,
            incarnation: shared.incarnation,
            number,
            upto,
            blocks: page.iter().map(held).collect(),
            damaged: bad.iter().map(|(id, error)| unreadable(registered, *id, error)).collect(),
            aside: if last { aside::list(shared).await? } else { Vec::new() },
            labels,
        };
        coordinator.report_blocks(message).await?;
        if last {
            break;
        }
    }
    Ok(())
}

/// The report of a block whose header cannot be read.
fn unreadable(registered: &Registered, id: kintsu_dag::BlockId, error: &StoreError) -> BadBlock {
    let kind = if error.is_rot() { FaultKind::Corrupt } else { FaultKind::Io };
    BadBlock { id, node: registered.node, kind, detail: error.to_string() }
}

/// The blocks of the next page, and its last stripe; `None` for the last page. All blocks of a stripe are in the
/// same page.
fn cut(rest: &[BlockMeta]) -> (&[BlockMeta], Option<StripeId>) {
    let Some(last) = rest.get(PAGE - 1).map(|meta| meta.id.stripe) else { return (rest, None) };
    let end = rest.partition_point(|meta| meta.id.stripe <= last);
    (&rest[..end], (end < rest.len()).then_some(last))
}

/// The labels of the stripes of these blocks, as many as fit into a page. If not all fit, also the last stripe
/// that does. A block that cannot be read gives no label.
fn labels_of(
    store: &dyn BlockStore,
    blocks: &[BlockMeta],
) -> (Vec<(StripeId, bytes::Bytes)>, Option<StripeId>) {
    let (mut labels, mut len) = (Vec::new(), 0);
    for of_stripe in blocks.chunk_by(|a, b| a.id.stripe == b.id.stripe) {
        let stripe = of_stripe[0].id.stripe;
        let mut found = of_stripe.iter().filter_map(|meta| Some(store.look(meta.id).ok()?.label));
        if let Some(label) = found.find(|label| !label.is_empty()) {
            len += label.len();
            labels.push((stripe, bytes::Bytes::from(label)));
        }
        if len >= MOST_LABEL_BYTES && blocks.last().is_some_and(|last| last.id.stripe != stripe) {
            return (labels, Some(stripe));
        }
    }
    (labels, None)
}

/// All blocks in order of their ids.
async fn list(store: Arc<dyn BlockStore>) -> Result<Listing, String> {
    let listed = kintsu_wire::ambient::blocking(move || store.list()).await.map_err(|e| e.to_string())?;
    let listed = listed.map_err(|e| e.to_string())?;
    for (_, error) in &listed.damaged {
        tracing::warn!("a block is damaged: {error}");
    }
    Ok(listed)
}

/// The error for a coordinator of another cluster than the folder's.
fn foreign(shared: &Shared, refusal: &Status) -> Option<AgentError> {
    Some(AgentError::Foreign {
        dir: shared.config.dir.clone(),
        own: shared.identity().cluster?,
        coordinator: shared.config.coordinator.clone(),
        other: other_cluster(refusal)?,
    })
}

/// Sends heartbeats until the agent ends; registers again when the coordinator demands it. The end does not interrupt work on the folder,
/// which would go on without anybody who waits for it, and hold the folder.
pub async fn keep_alive(shared: Arc<Shared>, coordinator: MembershipChannel, mut registered: Registered) {
    let mut remembered = Instant::now();
    let (mut heard, mut said) = (Instant::now(), Instant::now());
    let mut complained: Option<Instant> = None;
    let mut failed = None;
    loop {
        expire(shared.clone()).await;
        let pause = Duration::from_millis(registered.heartbeat_ms.clamp(10, 60_000));
        if shared.end.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
        failed = look_after_folder(&shared, failed).await;
        let (usage, counters) = standing(shared.clone()).await;
        let message = Heartbeat {
            node: registered.node,
            incarnation: shared.incarnation,
            usage,
            running: shared.running.load(Ordering::Relaxed),
            failed: failed.clone(),
            counters,
        };
        let mut caller = coordinator.clone();
        let Some(answer) = shared.end.run_until_cancelled(caller.heartbeat(message)).await else { return };
        match answer {
            Ok(reply) => {
                let reply = reply.into_inner();
                complained = None;
                heard = Instant::now();
                shared.give_way.limit(reply.repair_rate.map_or(0, NonZeroU64::get));
                demand_of_agents(
                    shared.inspector.lock().unwrap_or_else(PoisonError::into_inner).as_mut(),
                    reply.agents_too,
                );
                if reply.seen.is_some() && remembered.elapsed() >= REMEMBER_EVERY {
                    remembered = Instant::now();
                    // A failure is retried with a later heartbeat.
                    if let Err(error) = record(&shared, move |own| Identity { seen: reply.seen, ..own }).await
                    {
                        tracing::warn!("{error}");
                    }
                }
                if reply.register_again {
                    let again = register(&shared, coordinator.clone());
                    match shared.end.run_until_cancelled(again).await {
                        None => return,
                        Some(Ok(again)) => registered = again,
                        Some(Err(detail)) => {
                            tracing::error!("the coordinator does not take this agent back: {detail}")
                        }
                    }
                }
            }
            Err(status) if shared.credentials.speaks().adopt(&status) => {}
            Err(status) => match foreign(&shared, &status) {
                Some(error) if complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) => {
                    complained = Some(Instant::now());
                    tracing::error!("{error}");
                }
                Some(_) => {}
                None if heard.elapsed() >= SAY_EVERY
                    && said.elapsed() >= COMPLAIN_EVERY.min(heard.elapsed()) =>
                {
                    said = Instant::now();
                    let (node, coordinator) = (registered.node.0, &shared.config.coordinator);
                    let silent = heard.elapsed().as_secs();
                    tracing::warn!(
                        "node {node}: no answer from the coordinator at {coordinator} for {silent} s; still trying: {}",
                        words(&status)
                    );
                }
                None => {}
            },
        }
    }
}

/// Changes the folder's identity file, durably.
///
/// # Errors
/// The folder cannot be written.
async fn record(
    shared: &Arc<Shared>,
    change: impl FnOnce(Identity) -> Identity + Send + 'static,
) -> Result<(), AgentError> {
    let worker = shared.clone();
    let recorded = kintsu_wire::ambient::blocking(move || worker.record(change)).await;
    recorded.unwrap_or_else(|e| {
        let path = shared.config.dir.join(identity::FILE);
        Err(AgentError::Identity { path, detail: format!("writing it ended early: {e}") })
    })
}

/// Checks that the folder is still the one that the agent was started on. Returns what is wrong with it, if
/// anything, and logs a change from `before`.
async fn look_after_folder(shared: &Arc<Shared>, before: Option<String>) -> Option<String> {
    let worker = shared.clone();
    let look = move || {
        let dir = worker.config.dir.display();
        if let Err(error) = worker.store.check_root() {
            return Some(error.to_string());
        }
        match identity::folder(&worker.config.dir) {
            Ok(Some(folder)) if folder == worker.identity().folder => None,
            Ok(Some(other)) => {
                Some(format!("{dir} is another folder now (id {other}): was a disk unmounted or swapped?"))
            }
            Ok(None) => Some(format!("{dir} is empty or gone: was its disk unmounted?")),
            Err(error) => Some(error.to_string()),
        }
    };
    let found = kintsu_wire::ambient::blocking(look).await.ok().flatten();
    match (&before, &found) {
        (None, Some(why)) => tracing::error!("the disk of this node failed: {why}"),
        (Some(_), None) => tracing::warn!("the folder of this node is back"),
        _ => {}
    }
    found
}

/// Throws away unfinished blocks that no attempt continues.
async fn expire(shared: Arc<Shared>) {
    let local = shared.local.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(local) = local
        && kintsu_wire::ambient::blocking(move || local.expire()).await.is_err()
    {
        tracing::error!("unfinished blocks could not be thrown away");
    }
}

/// How full the disk is (without a size if that is not known), and what links and disk have carried.
async fn standing(shared: Arc<Shared>) -> (DiskUsage, Counters) {
    let look = move || {
        let usage = shared.store.usage().ok();
        let device = usage.as_ref().and_then(|usage| usage.device);
        let counters = Counters {
            at_ms: shared.started.elapsed().as_millis() as u64,
            link: shared.interface.as_ref().and_then(Interface::counters),
            disk: device.map(|device| (device.read, device.written)),
            disk_busy_ms: device.map(|device| device.busy_ms),
            background: moved(&shared.background),
        };
        let Some(usage) = usage else { return (DiskUsage::default(), counters) };
        let usage = DiskUsage {
            blocks: usage.blocks,
            bytes: usage.bytes,
            free_bytes: usage.free_bytes,
            capacity_bytes: usage.capacity_bytes,
            medium: medium(&shared.config.dir),
            aside_blocks: usage.aside_blocks,
            aside_bytes: usage.aside_bytes,
        };
        (usage, counters)
    };
    kintsu_wire::ambient::blocking(look).await.unwrap_or_default()
}

fn moved(carried: &Carried) -> Moved {
    let [sent, received, read, written] = [&carried.sent, &carried.received, &carried.read, &carried.written]
        .map(|n| n.load(Ordering::Relaxed));
    Moved { sent, received, read, written }
}

/// A number for the file system of a folder: the same for all folders on it, and most likely another one for every
/// other file system of any host.
fn medium(dir: &Path) -> Option<u64> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::os::unix::fs::MetadataExt;
    static HOST: OnceLock<Vec<u8>> = OnceLock::new();
    let device = std::fs::metadata(dir).ok()?.dev();
    let host = HOST.get_or_init(|| std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default());
    let mut hasher = DefaultHasher::new();
    (host, device).hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::{BlockId, BlockIndex};
    use kintsu_store::{Digest, Generation};

    #[test]
    fn pages_cover_every_block_once_and_never_cut_a_stripe() {
        let meta = |i: u64| BlockMeta {
            id: BlockId { stripe: StripeId(i / 3), index: BlockIndex((i % 3) as u8) },
            generation: Generation(1),
            len: 0,
            unit_bytes: 65536,
            digest: Digest([0; 16]),
        };
        for count in [0, 1, PAGE as u64 - 1, PAGE as u64, PAGE as u64 + 1, 3 * PAGE as u64 + 2] {
            let all: Vec<_> = (0..count).map(meta).collect();
            let (mut rest, mut seen) = (&all[..], 0);
            loop {
                let (page, upto) = cut(rest);
                rest = &rest[page.len()..];
                seen += page.len();
                let Some(upto) = upto else { break };
                assert!(!page.is_empty() && page.iter().all(|m| m.id.stripe <= upto));
                assert!(rest.iter().all(|m| m.id.stripe > upto) && !rest.is_empty());
            }
            assert_eq!((seen, rest.len()), (all.len(), 0));
        }
    }

    #[test]
    fn a_page_carries_no_more_labels_than_fit_and_never_cuts_a_stripe() {
        let dir = tempfile::tempdir().unwrap();
        let store = kintsu_store::FileStore::open(dir.path()).unwrap();
        for (stripe, index) in [(1, 0), (1, 1), (2, 0), (3, 0), (3, 1), (4, 0)] {
            let id = BlockId { stripe: StripeId(stripe), index: BlockIndex(index) };
            // Stripe 2 is of an old format: it has no label.
            let label = if stripe == 2 { Vec::new() } else { vec![stripe as u8; MOST_LABEL_BYTES / 2] };
            let write = store.create(id, Generation(1), 0, 65536, &label).unwrap();
            write.finish(None).unwrap();
        }
        let all = store.list().unwrap().blocks;
        let (labels, last) = labels_of(&store, &all);
        let told: Vec<(u64, u8)> = labels.iter().map(|(stripe, label)| (stripe.0, label[0])).collect();
        assert_eq!((told, last), (vec![(1, 1), (3, 3)], Some(StripeId(3))));
        let rest = &all[all.partition_point(|meta| meta.id.stripe <= StripeId(3))..];
        let (labels, last) = labels_of(&store, rest);
        assert_eq!((labels.len(), labels[0].0, last), (1, StripeId(4), None));
    }
}
