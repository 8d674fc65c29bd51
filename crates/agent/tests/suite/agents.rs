//! Real agents over real sockets: they join, run programs, find rot, follow commands, and end.
#![allow(clippy::unwrap_used)]

use crate::support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kintsu_agent::{Agent, AgentConfig, AgentError, AgentHandle};
use kintsu_dag::{BlockId, BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::{
    BlockBinding, Layout, LayoutKind, Method, Node, Plan, Program, ProgramContext, Repair, RunId, StripeView,
    Topology, encode_online, repair,
};
use kintsu_runtime::{BlockSource, ClientLocal, Conducted, Conductor, Context, DataPlane, Observed};
use kintsu_store::{BlockStore, FileStore, Generation, block_path};
use kintsu_wire::Credentials;
use kintsu_wire::message::{
    BlockRef, DeleteBlocks, Fault, FaultKind, Nothing, Purge, RunEvent, RunPrograms, ScrubBlocks, SetAside,
    TakeBack,
};
use support::{CLUSTER, Registry, SEEN, agents, config, member, until, within};
use tokio_util::sync::CancellationToken;

pub const BLOCK: usize = 1_500_000;
pub const GENERATION: u32 = 1;
/// The label in the headers of the blocks.
pub const LABEL: &[u8] = b"what the block is part of";

/// Seven agents, and a stripe of six blocks written to the first six through the streams.
pub struct Stage {
    pub dir: tempfile::TempDir,
    pub registry: Arc<Registry>,
    pub agents: Vec<AgentHandle>,
    pub view: StripeView,
    pub conductor: Conductor,
    pub digests: Vec<Option<[u8; 16]>>,
}

pub struct Bytes(pub Vec<u8>);

impl BlockSource for Bytes {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        buf.copy_from_slice(&self.0[offset as usize..offset as usize + buf.len()]);
        Ok(())
    }
}

pub fn data_block(index: u8) -> Vec<u8> {
    (0..BLOCK).map(|at| ((at as u64 * 2654435761) >> 13) as u8 ^ index.wrapping_mul(37)).collect()
}

impl Stage {
    pub async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let registry = Arc::new(Registry::default());
        let addr = registry.serve(&Credentials::none()).await;
        let agents = agents(dir.path(), addr, 7).await;
        let layout = Layout {
            kind: LayoutKind::Contiguous,
            block_bytes: BLOCK as u64,
            cell_bytes: 4096,
            w: 1,
            data_bytes: 4 * BLOCK as u64,
        };
        let code = kintsu_code::parse("rs:n=6,k=4").unwrap();
        let homes = (0..6).map(|node| Some(NodeId(node))).collect();
        let view = StripeView { id: StripeId(9), code, layout, homes };
        let conductor = Conductor::new(member());
        let mut stage = Self { dir, registry, agents, view, conductor, digests: Vec::new() };
        stage.put().await;
        stage
    }

    pub fn address(&self, node: NodeId) -> Option<SocketAddr> {
        Some(self.agents.get(node.0 as usize)?.control())
    }

    pub fn programs(&self, plan: &Plan, job: u64) -> Vec<Program> {
        let peers = |node: NodeId| Some(self.agents.get(node.0 as usize)?.data());
        let context = ProgramContext {
            generations: &[],
            job: RunId(job),
            view: &self.view,
            generation: GENERATION,
            window: (0, u64::MAX),
            slice_bytes: 16 << 10,
            expect: &self.digests,
            label: LABEL,
            peers: &peers,
            resume_key: 0,
        };
        plan.programs(&context).unwrap()
    }

    pub async fn conduct(&self, programs: Vec<Program>, here: Option<Context>) -> Conducted {
        let cancel = CancellationToken::new();
        within(self.conductor.conduct(programs, &|node| self.address(node), here, None, &cancel)).await
    }

    /// Writes the stripe as a client does.
    async fn put(&mut self) {
        let local =
            ClientLocal::reading(|binding: &BlockBinding| Ok(Box::new(Bytes(data_block(binding.index.0)))));
        let here = Context::new(DataPlane::client(member()), Arc::new(local));
        let programs = self.programs(&encode_online(&self.view).unwrap(), 1);
        let conducted = self.conduct(programs, Some(here)).await;
        assert_eq!(conducted.fault, None);
        assert_eq!(conducted.upto, BLOCK as u64);
        let written: BTreeMap<_, _> = conducted
            .outcomes
            .iter()
            .flat_map(|o| &o.written)
            .map(|held| (held.id.index, held.digest))
            .collect();
        self.digests = (0..6).map(|i| written.get(&BlockIndex(i)).copied()).collect();
        assert!(self.digests.iter().all(Option::is_some));
    }

    /// Programs that repair a block to agent 6.
    fn repair(&mut self, lost: u8, job: u64) -> Vec<Program> {
        let node =
            |i: u32| (NodeId(i), Node { rack: RackId(i), usable: true, used_bytes: 0, room_bytes: None });
        let topology = Topology { nodes: (0..7).map(node).collect(), ..Topology::default() };
        self.view.homes[lost as usize] = None;
        let wanted =
            Repair { lost: vec![BlockIndex(lost)], requestors: vec![NodeId(6)], method: Method::Pipeline };
        let plan = repair(&self.view, &topology, &wanted, &|_| 0, &[]).unwrap();
        self.programs(&plan.plan, job)
    }

    fn path(&self, node: u32, index: u8) -> std::path::PathBuf {
        let id = BlockId { stripe: self.view.id, index: BlockIndex(index) };
        block_path(self.agents[node as usize].dir(), id)
    }
}

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stripe_is_written_and_repaired_through_agents() {
    let mut stage = Stage::new().await;
    let programs = stage.repair(2, 2);
    let (progress, seen) = tokio::sync::watch::channel(Observed::default());
    let cancel = CancellationToken::new();
    let control = |node| stage.address(node);
    let conducted = within(stage.conductor.conduct(programs, &control, None, Some(progress), &cancel)).await;
    assert_eq!(conducted.fault, None);
    assert_eq!(seen.borrow().upto, BLOCK as u64);
    let repaired = std::fs::read(stage.path(6, 2)).unwrap();
    assert_eq!(repaired, std::fs::read(stage.path(2, 2)).unwrap());
    assert!(repaired[..4096].windows(LABEL.len()).any(|bytes| bytes == LABEL), "the header has the label");
    let read: u64 = conducted.outcomes.iter().map(|outcome| outcome.bytes_read).sum();
    assert_eq!(read, 4 * BLOCK as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_gone_is_the_culprit() {
    let mut stage = Stage::new().await;
    let programs = stage.repair(2, 2);
    stage.agents[3].shutdown().await;
    let conducted = stage.conduct(programs, None).await;
    let fault = conducted.fault.unwrap();
    assert_eq!((fault.kind, fault.node), (FaultKind::Lost, NodeId(3)), "{fault}");
    assert_eq!(conducted.upto, 0);
    assert!(!stage.path(6, 2).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rot_is_the_culprit_set_aside_and_reported() {
    let mut stage = Stage::new().await;
    let programs = stage.repair(2, 2);
    flip(&stage.path(1, 1));
    let conducted = stage.conduct(programs, None).await;
    let fault = conducted.fault.unwrap();
    let id = BlockId { stripe: stage.view.id, index: BlockIndex(1) };
    assert_eq!((fault.kind, fault.node, fault.block), (FaultKind::Corrupt, NodeId(1), Some(id)));
    until(|| !stage.registry.bad.lock().unwrap().is_empty()).await;
    let bad = stage.registry.bad.lock().unwrap().clone();
    assert_eq!((bad.len(), bad[0].id, bad[0].node, bad[0].kind), (1, id, NodeId(1), FaultKind::Corrupt));
    assert!(!stage.path(1, 1).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrub_checks_all_blocks_and_finds_rot() {
    let stage = Stage::new().await;
    flip(&stage.path(4, 4));
    for (node, sound) in [(0, true), (4, false)] {
        let mut agent = stage.conductor.agent(stage.agents[node].control()).unwrap();
        let mut events = agent.scrub(ScrubBlocks::default()).await.unwrap().into_inner();
        let event = within(events.message()).await.unwrap().unwrap();
        assert_eq!((event.total, event.checked, event.result.is_ok()), (1, 1, sound), "{event:?}");
        assert!(within(events.message()).await.unwrap().is_none());
    }
    assert!(!stage.path(4, 4).exists());
    assert!(stage.path(0, 0).exists());
    let mut agent = stage.conductor.agent(stage.agents[0].control()).unwrap();
    let stripe = stage.view.id;
    for (after, upto, blocks) in [(Some(stripe), None, 0), (None, Some(stripe), 1)] {
        let mut events = agent.scrub(ScrubBlocks { after, upto }).await.unwrap().into_inner();
        let mut count = 0;
        while within(events.message()).await.unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, blocks);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_are_deleted_on_request_of_the_right_generation_only() {
    let stage = Stage::new().await;
    let id = |index| BlockId { stripe: stage.view.id, index: BlockIndex(index) };
    for (node, index, generation) in [(0, 0, GENERATION), (1, 1, GENERATION + 1)] {
        let mut agent = stage.conductor.agent(stage.agents[node].control()).unwrap();
        let blocks = vec![BlockRef { id: id(index), generation }];
        agent.delete(DeleteBlocks { blocks, ..DeleteBlocks::default() }).await.unwrap();
    }
    assert!(!stage.path(0, 0).exists());
    let mut agent = stage.conductor.agent(stage.agents[2].control()).unwrap();
    let blocks = vec![BlockRef { id: id(2), generation: GENERATION }, BlockRef { id: id(5), generation: 1 }];
    let request = DeleteBlocks { blocks: blocks.clone(), removed: vec![4, 5], number: 9 };
    let deleted = agent.delete(request).await.unwrap().into_inner();
    assert_eq!((deleted.gone, deleted.failed.len()), (blocks, 0));
    assert_eq!(agent.removed(Nothing {}).await.unwrap().into_inner().ranges, [(4, 5)]);
    assert!(stage.path(1, 1).exists() && !stage.path(2, 2).exists());
    let mut agent = stage.conductor.agent(stage.agents[3].control()).unwrap();
    agent.wipe(Nothing {}).await.unwrap();
    assert!(!stage.path(3, 3).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_for_others_and_calls_without_the_token_are_refused() {
    let stage = Stage::new().await;
    let mut agent = stage.conductor.agent(stage.agents[0].control()).unwrap();
    let programs = stage.programs(&encode_online(&stage.view).unwrap(), 3);
    let other: Vec<_> = programs.into_iter().filter(|p| p.node == NodeId(1)).collect();
    let status = agent.run(RunPrograms { programs: other, ..RunPrograms::default() }).await.unwrap_err();
    assert!(status.message().contains("N0"), "{}", status.message());
    let status = agent.run(RunPrograms::default()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);

    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::default());
    let addr = registry.serve(&Credentials::token("secret").unwrap()).await;
    let refused = within(Agent::start(config(dir.path(), addr))).await;
    assert!(matches!(refused, Err(AgentError::Refused { .. })));
    let config = AgentConfig { token: Some("secret".into()), ..config(dir.path(), addr) };
    let handle = within(Agent::start(config)).await.unwrap();
    let mut stranger = stage.conductor.agent(handle.control()).unwrap();
    let status = stranger.wipe(Nothing {}).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_caller_is_gone_is_cancelled() {
    let mut stage = Stage::new().await;
    // Only the requestor's part: it waits for streams that never come.
    let programs: Vec<_> = stage.repair(2, 2).into_iter().filter(|p| p.node == NodeId(6)).collect();
    let mut agent = stage.conductor.agent(stage.agents[6].control()).unwrap();
    let unfinished = stage.path(6, 2).with_extension("tmp");
    let call = agent.run(RunPrograms { programs, background: true, ..RunPrograms::default() }).await.unwrap();
    let temp = || {
        let dir = unfinished.parent().unwrap();
        let entries = std::fs::read_dir(dir).map(|entries| entries.flatten().collect::<Vec<_>>());
        entries
            .unwrap_or_default()
            .iter()
            .filter(|e| e.path().extension().is_some_and(|e| e == "tmp"))
            .count()
    };
    until(|| temp() == 1).await;
    drop(call);
    until(|| temp() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_is_one_agents_and_keeps_its_id() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::default());
    let addr = registry.serve(&Credentials::none()).await;
    let handle = within(Agent::start(config(dir.path(), addr))).await.unwrap();
    let id = handle.id();
    let second = within(Agent::start(config(dir.path(), addr))).await;
    assert!(matches!(second, Err(AgentError::Store(_))));
    handle.shutdown().await;
    let handle = within(Agent::start(config(dir.path(), addr))).await.unwrap();
    assert_eq!(handle.id(), id);
    assert_eq!(registry.registrations(id), 2);
    handle.shutdown().await;
    let exposed = AgentConfig { listen_data: "0.0.0.0:0".parse().unwrap(), ..config(dir.path(), addr) };
    assert!(within(Agent::start(exposed)).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_cannot_be_read_does_not_keep_an_agent_from_starting() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::default());
    let addr = registry.serve(&Credentials::none()).await;
    let handle = within(Agent::start(config(dir.path(), addr))).await.unwrap();
    let (node, folder) = (handle.id(), handle.dir().to_owned());
    handle.shutdown().await;
    let ids = [0, 1].map(|index| BlockId { stripe: StripeId(9), index: BlockIndex(index) });
    let store = FileStore::open(&folder).unwrap();
    for id in ids {
        let mut writer = store.create(id, Generation(GENERATION), 100, 65536, &[]).unwrap();
        writer.write_at(0, &[7; 100]).unwrap();
        writer.finish(None).unwrap();
    }
    drop(store);
    // Every read of this file fails with EIO, as on a medium with bad sectors.
    let path = block_path(&folder, ids[0]);
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/proc/self/mem", &path).unwrap();

    let handle = within(Agent::start(config(dir.path(), addr))).await.unwrap();
    let (blocks, damaged) = {
        let pages = registry.pages.lock().unwrap();
        let last = pages.iter().rfind(|page| page.node == node).unwrap();
        let blocks: Vec<_> = last.blocks.iter().map(|held| held.id).collect();
        (blocks, last.damaged.iter().map(|bad| (bad.id, bad.kind)).collect::<Vec<_>>())
    };
    assert_eq!(damaged, [(ids[0], FaultKind::Io)]);
    assert_eq!(blocks, [ids[1]]);
    handle.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_registers_again_with_its_blocks_when_told() {
    let stage = Stage::new().await;
    let node = NodeId(5);
    assert_eq!(stage.registry.registrations(node), 1);
    stage.registry.registered.lock().unwrap().clear();
    stage.registry.register_again.store(true, Ordering::SeqCst);
    until(|| stage.registry.registrations(node) > 0).await;
    let told = || stage.registry.pages.lock().unwrap().iter().rfind(|page| page.node == node).cloned();
    until(|| told().is_some_and(|page| !page.blocks.is_empty())).await;
    let (again, registered) = (told().unwrap(), stage.registry.registered.lock().unwrap());
    assert_eq!(
        (again.number, again.upto, again.blocks.len(), again.blocks[0].len),
        (0, None, 1, BLOCK as u64)
    );
    assert_eq!(Some(again.blocks[0].digest), stage.digests[5]);
    let register = registered.iter().rfind(|r| r.node == Some(node)).unwrap();
    assert_eq!((register.blocks, register.next_stripe), (1, stage.view.id.0 + 1));
    assert_eq!((register.cluster, register.seen), (Some(CLUSTER), Some(SEEN)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_told_to_stop_lets_go_of_its_folder_also_in_the_middle_of_a_run() {
    let mut stage = Stage::new().await;
    let programs: Vec<_> = stage.repair(2, 2).into_iter().filter(|p| p.node == NodeId(6)).collect();
    let mut agent = stage.conductor.agent(stage.agents[6].control()).unwrap();
    let mut events = agent
        .run(RunPrograms { programs, background: true, ..RunPrograms::default() })
        .await
        .unwrap()
        .into_inner();
    agent.shutdown(Nothing {}).await.unwrap();
    within(stage.agents[6].wait()).await;
    while let Ok(Some(event)) = within(events.message()).await {
        if let RunEvent::Ended(outcome) = event {
            assert_eq!(outcome.fault.unwrap().kind, FaultKind::Aborted);
        }
    }
    let addr = stage.registry.serve(&Credentials::none()).await;
    let again = within(Agent::start(config(&stage.dir.path().join("6"), addr))).await.unwrap();
    assert_eq!(again.id(), NodeId(6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_and_a_coordinator_of_two_clusters_refuse_each_other() {
    let stage = Stage::new().await;
    let other = kintsu_wire::ClusterId([0xee; 16]);
    let stranger = Credentials::none();
    stranger.join(other).unwrap();
    let registry = Arc::new(Registry::default());
    let addr = registry.serve(&stranger).await;
    let dir = stage.dir.path().join("3");
    stage.agents[3].shutdown().await;
    let refused = within(Agent::start(config(&dir, addr))).await;
    let Err(error @ AgentError::Foreign { .. }) = refused else { panic!("taken") };
    let text = error.to_string();
    assert!(text.contains(&CLUSTER.to_string()) && text.contains(&other.to_string()), "{text}");
    assert!(stage.path(3, 3).exists() && registry.registered.lock().unwrap().is_empty());

    // And an agent takes no command from a coordinator of another cluster, nor from one that shows none.
    for credentials in [stranger, Credentials::none()] {
        let mut agent = Conductor::new(credentials).agent(stage.agents[0].control()).unwrap();
        let status = agent.wipe(Nothing {}).await.unwrap_err();
        assert!(status.message().contains(&CLUSTER.to_string()), "{}", status.message());
    }
    assert!(stage.path(0, 0).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_without_its_record_is_not_a_new_node() {
    let stage = Stage::new().await;
    let dir = stage.dir.path().join("3");
    stage.agents[3].shutdown().await;
    std::fs::remove_file(dir.join("node.json")).unwrap();
    let addr = stage.registry.serve(&member()).await;
    let refused = within(Agent::start(config(&dir, addr))).await;
    assert!(matches!(refused, Err(AgentError::Unnamed { blocks: 1, .. })));
    assert!(stage.path(3, 3).exists());
    let told = AgentConfig { node: Some(NodeId(3)), replace: true, ..config(&dir, addr) };
    assert_eq!(within(Agent::start(told)).await.unwrap().id(), NodeId(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_says_that_its_folder_is_gone_and_writes_nothing_where_it_was() {
    let stage = Stage::new().await;
    let (dir, away) = (stage.dir.path().join("3"), stage.dir.path().join("away"));
    let failed = || stage.registry.failed.lock().unwrap().get(&NodeId(3)).cloned().flatten();
    assert_eq!(failed(), None);
    std::fs::rename(&dir, &away).unwrap();
    std::fs::create_dir(&dir).unwrap();
    until(|| failed().is_some()).await;
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    std::fs::remove_dir(&dir).unwrap();
    std::fs::rename(&away, &dir).unwrap();
    until(|| failed().is_none()).await;
    assert!(stage.path(3, 3).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_blocks_are_set_aside_and_come_back_whole() {
    let stage = Stage::new().await;
    let id = BlockId { stripe: stage.view.id, index: BlockIndex(0) };
    let mut agent = stage.conductor.agent(stage.agents[0].control()).unwrap();
    let ask = |generation| SetAside { blocks: vec![BlockRef { id, generation }] };
    assert_eq!(agent.set_aside(ask(GENERATION + 1)).await.unwrap().into_inner().blocks, 0);
    assert!(stage.path(0, 0).exists());
    assert_eq!(agent.set_aside(ask(GENERATION)).await.unwrap().into_inner().blocks, 1);
    assert!(!stage.path(0, 0).exists());
    let aside = agent.aside(Nothing {}).await.unwrap().into_inner().aside;
    assert_eq!((aside.len(), aside[0].id, aside[0].reason.as_str()), (1, id, "unknown"));
    assert_eq!(aside[0].held.as_ref().map(|h| Some(h.digest)), Some(stage.digests[0]));
    let keep = agent.purge(Purge { older_than_s: 3600 }).await.unwrap().into_inner();
    assert_eq!(keep.blocks, 0);
    let name = aside[0].name.clone();
    let back = agent.take_back(TakeBack { name: name.clone() }).await.unwrap().into_inner();
    assert_eq!((back.id, Some(back.digest)), (id, stage.digests[0]));
    assert!(stage.path(0, 0).exists());
    let twice = agent.take_back(TakeBack { name }).await.unwrap_err();
    assert_eq!(twice.code(), tonic::Code::NotFound);
}
