//! Short slice streams, which calls and their answers enclose.
#![allow(clippy::unwrap_used)]

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId, Vertex};
use kintsu_plan::{
    BlockBinding, Layout, Plan, Program, ProgramContext, RunId, StripeView, encode_online, read,
};
use kintsu_runtime::{ClientLocal, Context, DataPlane};
use kintsu_store::block_path;
use kintsu_wire::frame::{FrameVersion, Header, Kind, bare};
use kintsu_wire::message::{EnclosedStream, Fault, FaultKind, RunEvent, RunPrograms};
use std::sync::Arc;
use tokio::sync::mpsc;

use crate::agents::{Bytes, GENERATION, LABEL, Stage, data_block};
use crate::support::{member, within};

/// A short stripe.
fn short_stripe(stage: &Stage) -> StripeView {
    let layout = Layout { block_bytes: 10_000, data_bytes: 35_000, ..stage.view.layout };
    StripeView { id: StripeId(10), layout, ..stage.view.clone() }
}

/// The programs of a plan for it; nobody listens where the nodes' slices would go or come from.
fn programs(view: &StripeView, plan: &Plan, job: u64) -> Vec<Program> {
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).unwrap();
    let context = ProgramContext {
        generations: &[],
        job: RunId(job),
        view,
        generation: GENERATION,
        window: (0, u64::MAX),
        slice_bytes: 4096,
        expect: &[],
        label: LABEL,
        peers: &|_| Some(nowhere),
        resume_key: 0,
    };
    plan.programs(&context).unwrap()
}

/// The programs that write it.
fn writing(stage: &Stage, job: u64) -> (StripeView, Vec<Program>) {
    let view = short_stripe(stage);
    let programs = programs(&view, &encode_online(&view).unwrap(), job);
    (view, programs)
}

/// A client with the data blocks.
fn writer() -> Context {
    let local =
        ClientLocal::reading(|binding: &BlockBinding| Ok(Box::new(Bytes(data_block(binding.index.0)))));
    Context::new(DataPlane::client(member()), Arc::new(local))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_stripe_needs_no_connections_for_its_slices() {
    let stage = Stage::new().await;
    let (view, programs) = writing(&stage, 3);
    let here = writer();
    let conducted = stage.conduct(programs.clone(), Some(here.clone())).await;
    assert_eq!(conducted.fault, None);
    assert_eq!(conducted.outcomes.iter().map(|outcome| outcome.written.len()).sum::<usize>(), 6);
    let path = |index: u8| {
        let id = BlockId { stripe: view.id, index: BlockIndex(index) };
        block_path(stage.agents[usize::from(index)].dir(), id)
    };
    for index in 0..4 {
        let file = std::fs::read(path(index)).unwrap();
        let len = view.block_len(BlockIndex(index)) as usize;
        assert_eq!(file[4096..4096 + len], data_block(index)[..len], "block {index}");
    }

    // A client that cannot read its object starts no program.
    let failing = ClientLocal::reading(|binding: &BlockBinding| {
        Err(Fault {
            kind: FaultKind::Io,
            node: NodeId::CLIENT,
            block: Some(binding.id),
            detail: "gone".into(),
        })
    });
    let (_, programs) = writing(&stage, 4);
    let conducted = stage.conduct(programs, Some(Context { local: Arc::new(failing), ..here })).await;
    let fault = conducted.fault.unwrap();
    assert_eq!((fault.kind, fault.node, conducted.outcomes.len()), (FaultKind::Io, NodeId::CLIENT, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enclosed_slices_that_are_cut_changed_or_unexpected_are_refused() {
    let stage = Stage::new().await;
    let data = data_block(0)[..10_000].to_vec();
    let slices = data.chunks(4096).zip([0u64, 4096, 8192]).flat_map(|(slice, offset)| {
        let kind = Kind::Slice { vertex: Vertex(0), offset, zero: false };
        [&Header::new(kind, 0, slice).encode(FrameVersion::NEWEST)[..], slice].concat()
    });
    let whole: Vec<u8> = slices.chain(bare(FrameVersion::NEWEST, Kind::End, 0)).collect();
    let enclosed =
        |frames: &[u8]| EnclosedStream { lane: 0, from: NodeId::CLIENT, frames: frames.to_vec().into() };
    let mut changed = whole.clone();
    changed[5000] ^= 1;
    let stray = EnclosedStream { from: NodeId(3), ..enclosed(&whole) };
    let cases = [
        vec![enclosed(&whole[..9000])],
        vec![enclosed(&changed)],
        vec![enclosed(&whole), stray],
        vec![enclosed(&whole), enclosed(&whole)],
        vec![enclosed(&whole)],
    ];
    let block = BlockId { stripe: StripeId(10), index: BlockIndex(0) };
    let path = block_path(stage.agents[0].dir(), block);
    let last = cases.len() - 1;
    for (case, enclosed) in cases.into_iter().enumerate() {
        let (_, programs) = writing(&stage, 5 + case as u64);
        let programs = programs.into_iter().filter(|program| program.node == NodeId(0)).collect();
        let mut agent = stage.conductor.agent(stage.agents[0].control()).unwrap();
        let mut events = agent
            .run(RunPrograms { programs, enclosed, ..RunPrograms::default() })
            .await
            .unwrap()
            .into_inner();
        let outcome = loop {
            if let RunEvent::Ended(outcome) = within(events.message()).await.unwrap().unwrap() {
                break outcome;
            }
        };
        assert_eq!(outcome.fault.is_none(), case == last, "case {case}: {outcome:?}");
        assert_eq!(path.exists(), case == last, "case {case}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_read_needs_no_connections_and_blames_the_node_that_cannot_answer() {
    let stage = Stage::new().await;
    let (view, written) = writing(&stage, 3);
    assert_eq!(stage.conduct(written, Some(writer())).await.fault, None);
    // Block 1 is decoded from the others.
    let wanted: Vec<_> = (0..4).map(BlockIndex).collect();
    let mut lost = view.clone();
    lost.homes[1] = None;
    let plan = read(&lost, &wanted, &[]).unwrap();
    let reading = async |job: u64| {
        let (deliver, mut deliveries) = mpsc::channel(64);
        let here = Context::new(DataPlane::client(member()), Arc::new(ClientLocal::delivering(deliver)));
        let received = here.received.clone();
        let conducted = stage.conduct(programs(&lost, &plan, job), Some(here)).await;
        let mut blocks = vec![Vec::new(); 4];
        while let Ok(delivery) = deliveries.try_recv() {
            blocks[usize::from(delivery.index.0)].push((delivery.offset, delivery.bytes.to_vec()));
        }
        (conducted, received.heard(), blocks)
    };
    let (conducted, heard, blocks) = reading(4).await;
    assert_eq!(conducted.fault, None);
    for (index, mut parts) in blocks.into_iter().enumerate() {
        parts.sort();
        let len = view.block_len(BlockIndex(index as u8)) as usize;
        assert_eq!(
            parts.into_iter().flat_map(|part| part.1).collect::<Vec<_>>(),
            data_block(index as u8)[..len]
        );
    }
    let nodes: Vec<_> = heard.keys().copied().collect();
    assert_eq!(nodes, [0, 2, 3, 4].map(NodeId));
    assert!(heard.values().all(|heard| heard.done && !heard.waits && heard.bytes > 5000), "{heard:?}");

    let id = BlockId { stripe: view.id, index: BlockIndex(2) };
    std::fs::remove_file(block_path(stage.agents[2].dir(), id)).unwrap();
    let (conducted, _, blocks) = reading(5).await;
    let fault = conducted.fault.unwrap();
    assert_eq!((fault.kind, fault.node, fault.block), (FaultKind::Missing, NodeId(2), Some(id)));
    assert!(blocks.iter().all(Vec::is_empty), "the client began in vain");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_encloses_only_what_is_little_and_for_its_caller() {
    let stage = Stage::new().await;
    let (view, written) = writing(&stage, 3);
    assert_eq!(stage.conduct(written, Some(writer())).await.fault, None);
    let mut agent = stage.conductor.agent(stage.agents[0].control()).unwrap();
    let there = |programs: Vec<Program>| -> Vec<Program> {
        programs.into_iter().filter(|program| program.node == NodeId(0)).collect()
    };
    let plan = read(&view, &[BlockIndex(0)], &[]).unwrap();
    let short = there(programs(&view, &plan, 4));
    let other = short.iter().cloned().map(|mut program| {
        program.sends.iter_mut().for_each(|(_, to)| *to = NodeId(3));
        program
    });
    let long = there(stage.programs(&read(&stage.view, &[BlockIndex(0)], &[]).unwrap(), 5));
    let waiting = there(writing(&stage, 6).1);
    let stream = EnclosedStream { lane: 0, from: NodeId::CLIENT, frames: Vec::new().into() };
    let refused = [(other.collect(), vec![]), (long, vec![]), (waiting, vec![]), (short, vec![stream])];
    for (programs, enclosed) in refused {
        let run = RunPrograms { programs, enclosed, encloses: true, ..RunPrograms::default() };
        let refused = agent.run(run).await.err().unwrap();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains("enclosed answer: expected"), "{refused}");
    }
}
