//! Updates through real agents: logged on two nodes, brought into blocks and parities by a commit, or refused.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use kintsu_agent::Agent;
use kintsu_dag::{BlockId, BlockIndex, NodeId, RackId};
use kintsu_plan::update::{Dirty, Scheme, UpdatePlan, update};
use kintsu_plan::{Node, ProgramContext, RunId, Topology};
use kintsu_store::Digest;
use kintsu_wire::AgentChannel;
use kintsu_wire::message::{
    AppendUpdates, BlockRef, FenceVolume, FreezeUpdates, LoggedUpdate, Nothing, PromoteBlocks, ReadUpdates,
    ReleaseUpdates, RunOutcome, UpdatesOf,
};
use tonic::Code;

use crate::agents::{BLOCK, GENERATION, Stage, data_block};
use crate::support::{config, within};

const NEXT: u32 = GENERATION + 1;

fn id(stage: &Stage, index: u8) -> BlockId {
    BlockId { stripe: stage.view.id, index: BlockIndex(index) }
}

fn agent(stage: &Stage, node: usize) -> AgentChannel {
    stage.conductor.agent(stage.agents[node].control()).unwrap()
}

fn logged(stage: &Stage, index: u8, offset: u64, data: &[u8]) -> LoggedUpdate {
    let data = Bytes::copy_from_slice(data);
    let block = id(stage, index);
    LoggedUpdate { volume: 7, epoch: 2, block, offset, data, zeros: 0, delta_of: None, sum: None }
}

/// Runs the programs of a commit, which must write next versions of `expected` blocks; returns what each node did.
async fn make_next(
    stage: &Stage,
    plan: &UpdatePlan,
    window: (u64, u64),
    expected: &[Vec<u8>],
) -> Vec<RunOutcome> {
    let peers = |node: NodeId| Some(stage.agents.get(node.0 as usize)?.data());
    let context = ProgramContext {
        generations: &[],
        job: RunId(0),
        view: &stage.view,
        generation: GENERATION,
        window,
        slice_bytes: 0,
        expect: &stage.digests,
        label: &[],
        peers: &peers,
        resume_key: 0,
    };
    let mut jobs = 50..;
    let mut job = || RunId(jobs.next().unwrap());
    let mut outcomes = Vec::new();
    for programs in plan.programs(&context, &[GENERATION; 6], NEXT, &mut job).unwrap() {
        let conducted = stage.conduct(programs, None).await;
        assert_eq!(conducted.fault, None);
        outcomes.extend(conducted.outcomes);
    }
    for held in outcomes.iter().flat_map(|outcome| &outcome.written) {
        let right = Digest::of_bytes(&expected[usize::from(held.id.index.0)]).0;
        assert_eq!((held.generation, held.digest), (NEXT, right), "{}", held.id);
    }
    outcomes
}

/// Product in GF(2^8) modulo 0x11D, bit by bit.
fn times(a: u8, b: u8) -> u8 {
    let (mut product, mut a) = (0, a);
    for bit in 0..8 {
        product ^= if b >> bit & 1 == 1 { a } else { 0 };
        a = a << 1 ^ if a & 0x80 != 0 { 0x1D } else { 0 };
    }
    product
}

/// What the stripe's blocks should be with this data.
fn encoded(stage: &Stage, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let generator = stage.view.code.generator();
    let row = |row: usize| -> Vec<u8> {
        let byte = |at: usize| (0..4).fold(0, |sum, i| sum ^ times(generator.row(row)[i], data[i][at]));
        (0..BLOCK).map(byte).collect()
    };
    (0..6).map(|block| if block < 4 { data[block].clone() } else { row(block) }).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_kept_on_two_nodes_until_its_commit_is_decided() {
    let mut stage = Stage::new().await;
    let bytes: Vec<u8> = (0..100_000u32).map(|at| (at * 7 % 251) as u8).collect();
    let forward = vec![stage.agents[4].control()];
    let updates =
        vec![logged(&stage, 1, 70_000, &bytes), LoggedUpdate { zeros: 9, ..logged(&stage, 1, 70_100, &[]) }];
    let request = AppendUpdates { updates, forward, ..AppendUpdates::default() };
    within(agent(&stage, 1).append_updates(request)).await.unwrap();
    let mut data: Vec<Vec<u8>> = (0..4).map(data_block).collect();
    data[1][70_000..170_000].copy_from_slice(&bytes);
    data[1][70_100..70_109].fill(0);

    // The home dies and comes back.
    let dir = stage.agents[1].dir().to_owned();
    stage.agents[1].shutdown().await;
    let coordinator = stage.registry.serve(&kintsu_wire::Credentials::none()).await;
    let again = kintsu_agent::AgentConfig { node: Some(NodeId(1)), ..config(&dir, coordinator) };
    stage.agents[1] = within(Agent::start(again)).await.unwrap();
    for (node, replica) in [(1, false), (4, true)] {
        let pending = agent(&stage, node).pending_updates(Nothing {}).await.unwrap().into_inner().pending;
        let [found] = &pending[..] else { panic!("{pending:?}") };
        assert_eq!((found.volume, found.block, found.replica), (7, id(&stage, 1), replica));
        assert_eq!(found.ranges, [(70_000, 170_000)]);
        let of = UpdatesOf { block: id(&stage, 1), replica, upto: 0 };
        let read = ReadUpdates {
            of,
            offset: 70_050,
            len: 1000,
            epochs: None,
            folder: None,
            over: None,
            plain: false,
            ticket: None,
        };
        let pieces = agent(&stage, node).read_updates(read).await.unwrap().into_inner().pieces;
        assert!(pieces == [(70_050, Bytes::copy_from_slice(&data[1][70_050..71_050]))]);
    }

    // The commit: freeze, run, decide (here by nobody), promote, release.
    let mut home = agent(&stage, 1);
    let freeze = FreezeUpdates {
        blocks: vec![id(&stage, 1), id(&stage, 2)],
        replicas: vec![vec![stage.agents[4].control()]],
        ..FreezeUpdates::default()
    };
    let frozen = home.freeze_updates(freeze).await.unwrap().into_inner().blocks;
    assert_eq!(frozen[1], None);
    let upto = frozen[0].as_ref().unwrap().upto;
    assert_eq!(frozen[0].as_ref().unwrap().replicas, [Some(2)], "the replica has as many records");
    let node = |i: u32| (NodeId(i), Node { rack: RackId(i), usable: true, used_bytes: 0, room_bytes: None });
    let topology = Topology { nodes: (0..7).map(node).collect(), ..Topology::default() };
    let plan = update(&stage.view, &topology, &Dirty::at_home([BlockIndex(1)]), Scheme::Optimal).unwrap();
    let expected = encoded(&stage, &data);
    make_next(&stage, &plan, (70_000, 170_000), &expected).await;
    for (node, index) in [(1, 1), (4, 4), (5, 5)] {
        let block = BlockRef { id: id(&stage, index), generation: NEXT };
        let promoted = agent(&stage, node).promote_blocks(PromoteBlocks { blocks: vec![block] }).await;
        let held = promoted.unwrap().into_inner().blocks.remove(0);
        assert_eq!((held.generation, held.digest), (NEXT, Digest::of_bytes(&expected[usize::from(index)]).0));
        let verified = agent(&stage, node).verify(block).await.unwrap().into_inner().result.unwrap();
        assert_eq!(verified, held, "as it is on disk");
    }
    for (node, replica) in [(1, false), (4, true)] {
        let upto = if replica { u64::MAX } else { upto };
        let updates = vec![UpdatesOf { block: id(&stage, 1), replica, upto }];
        agent(&stage, node).release_updates(ReleaseUpdates { updates }).await.unwrap();
        assert!(
            agent(&stage, node).pending_updates(Nothing {}).await.unwrap().into_inner().pending.is_empty()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_knows_the_delta_if_it_has_what_was_replaced() {
    let stage = Stage::new().await;
    let (first, second) = (vec![stage.agents[4].control()], vec![stage.agents[5].control()]);
    let append = async |node: usize, offset: u64, data: &[u8], forward: &[std::net::SocketAddr], send_old| {
        let request = AppendUpdates {
            updates: vec![logged(&stage, 1, offset, data)],
            replica: node != 1,
            forward: forward.to_vec(),
            send_old,
            ..AppendUpdates::default()
        };
        within(agent(&stage, node).append_updates(request)).await.unwrap();
    };
    let same = async || {
        let freeze = FreezeUpdates {
            blocks: vec![id(&stage, 1)],
            replicas: vec![[first.clone(), second.clone()].concat()],
            deltas: vec![GENERATION],
            ..FreezeUpdates::default()
        };
        let frozen = agent(&stage, 1).freeze_updates(freeze).await.unwrap().into_inner().blocks;
        let frozen = frozen[0].clone().unwrap();
        let upto = [Some(frozen.upto), frozen.replicas[0], frozen.replicas[1]];
        (frozen.same, upto)
    };
    let both = [first.clone(), second.clone()].concat();
    append(1, 1000, &[1; 500], &both, true).await;
    // A part of this is in the log already.
    append(1, 1200, &[2; 70_000], &both, true).await;
    append(1, 100_000, &[3; 10], &both, true).await;
    assert_eq!(same().await.0, [true, true]);
    // What was never acknowledged is on one of them alone: the same range, with other bytes.
    append(5, 1100, &[4; 50], &[], false).await;
    let (found, upto) = same().await;
    assert_eq!(found, [true, false]);
    for ((node, replica), upto) in [(1, false), (4, true), (5, true)].into_iter().zip(upto) {
        let of = UpdatesOf { block: id(&stage, 1), replica, upto: upto.unwrap() };
        let mut agent = agent(&stage, node);
        agent.release_updates(ReleaseUpdates { updates: vec![of] }).await.unwrap();
        assert_eq!(agent.pending_updates(Nothing {}).await.unwrap().into_inner().pending, []);
    }
    // A replica without what it replaces.
    append(1, 1000, &[5; 500], &first, true).await;
    append(1, 1000, &[5; 500], &second, true).await;
    assert_eq!(same().await.0, [true, false]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_is_over_on_all_nodes_when_it_fails_on_one() {
    let stage = Stage::new().await;
    let nobody = stage.agents[5].control();
    stage.agents[5].shutdown().await;
    let forward = vec![nobody, stage.agents[4].control()];
    let updates = vec![logged(&stage, 1, 0, &[1, 2, 3])];
    let request = AppendUpdates { updates, forward, ..AppendUpdates::default() };
    let refused = within(agent(&stage, 1).append_updates(request)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    // Nothing is under way to the other one, where it could come behind a later append.
    let pending = agent(&stage, 4).pending_updates(Nothing {}).await.unwrap().into_inner().pending;
    assert_eq!(pending.len(), 1, "{pending:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_damaged_on_its_way_is_not_logged() {
    let stage = Stage::new().await;
    let append = async |update: LoggedUpdate| {
        let forward = vec![stage.agents[4].control()];
        let request = AppendUpdates { updates: vec![update], forward, ..AppendUpdates::default() };
        within(agent(&stage, 1).append_updates(request)).await
    };
    let pending = async |node| {
        agent(&stage, node).pending_updates(Nothing {}).await.unwrap().into_inner().pending.len()
    };
    let sound = logged(&stage, 1, 70, &[1, 2, 3]).summed();
    let damaged = [
        LoggedUpdate { data: Bytes::from_static(&[1, 6, 3]), ..sound.clone() },
        LoggedUpdate { offset: 71, ..sound.clone() },
        LoggedUpdate { block: id(&stage, 3), ..sound.clone() },
    ];
    for damaged in damaged {
        let refused = append(damaged).await.unwrap_err();
        assert_eq!(refused.code(), Code::DataLoss, "{refused}");
    }
    assert_eq!((pending(1).await, pending(4).await), (0, 0));
    append(sound).await.unwrap();
    assert_eq!((pending(1).await, pending(4).await), (1, 1));
    let of = UpdatesOf { block: id(&stage, 1), replica: false, upto: 0 };
    let (epochs, folder, over, plain, ticket) = (None, None, None, false, None);
    let read = ReadUpdates { of, offset: 0, len: 1000, epochs, folder, over, plain, ticket };
    for over in [None, Some(GENERATION)] {
        let read = ReadUpdates { over, ..read };
        let answer = agent(&stage, 1).read_updates(read).await.unwrap().into_inner();
        assert!(answer.sum.is_some() && answer.is_sound(of.block));
        assert!(!answer.is_sound(id(&stage, 3)), "it is about another block");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_kept_twice_is_not_acknowledged() {
    let stage = Stage::new().await;
    let nobody = stage.agents[5].control();
    stage.agents[5].shutdown().await;
    let append = async |node: usize, update: LoggedUpdate, forward| {
        let request = AppendUpdates { updates: vec![update], forward, ..AppendUpdates::default() };
        within(agent(&stage, node).append_updates(request))
            .await
            .map_err(|status| (status.code(), status.message().to_owned()))
    };
    let one = || logged(&stage, 1, 0, &[1, 2, 3]);
    let (code, said) = append(1, one(), vec![nobody]).await.unwrap_err();
    assert!(code == Code::Unavailable && said.contains("no replica at"), "{said}");
    let empty = LoggedUpdate { data: Bytes::new(), ..one() };
    let (code, said) = append(1, empty, Vec::new()).await.unwrap_err();
    assert!(code == Code::InvalidArgument && said.contains("expected 1 to"), "{said}");
    // The replica's node knows a newer writer.
    agent(&stage, 4)
        .fence_volume(FenceVolume { volume: 7, stripe: None, epoch: 3, known: None })
        .await
        .unwrap();
    let forward = vec![stage.agents[4].control()];
    let (code, said) = append(1, one(), forward.clone()).await.unwrap_err();
    assert!(code == Code::FailedPrecondition && said.contains("expected 3 or later"), "{said}");
    append(1, LoggedUpdate { epoch: 3, ..one() }, forward).await.unwrap();
    let older = agent(&stage, 4)
        .fence_volume(FenceVolume { volume: 7, stripe: None, epoch: 2, known: None })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(older.before, 3, "it stays");
    // Versions that are not there.
    let promote = async |generation, index| {
        let blocks = vec![BlockRef { id: id(&stage, index), generation }];
        agent(&stage, 1).promote_blocks(PromoteBlocks { blocks }).await.unwrap_err().code()
    };
    assert_eq!([promote(NEXT, 1).await, promote(NEXT, 2).await], [Code::FailedPrecondition, Code::NotFound]);
    let of = UpdatesOf { block: id(&stage, 1), replica: false, upto: 0 };
    let long = agent(&stage, 1)
        .read_updates(ReadUpdates {
            of,
            offset: 0,
            len: u32::MAX,
            epochs: None,
            folder: None,
            over: None,
            plain: false,
            ticket: None,
        })
        .await
        .unwrap_err();
    assert_eq!(long.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_deltas_as_long_as_no_commit_is_under_way() {
    let stage = Stage::new().await;
    let replica = vec![stage.agents[4].control()];
    let append = async |offset: u64, data: &[u8], from| {
        let request = AppendUpdates {
            updates: vec![logged(&stage, 1, offset, data)],
            forward: replica.clone(),
            deltas_from: Some(from),
            ..AppendUpdates::default()
        };
        within(agent(&stage, 1).append_updates(request)).await.unwrap();
    };
    let read = |replica, over| ReadUpdates {
        of: UpdatesOf { block: id(&stage, 1), replica, upto: 0 },
        offset: 0,
        len: BLOCK as u32,
        epochs: None,
        folder: None,
        over,
        plain: false,
        ticket: None,
    };
    let seen = async |node: usize, replica| {
        let found = agent(&stage, node).read_updates(read(replica, None)).await.unwrap().into_inner();
        let forms = found.deltas.iter().map(|(offset, bytes, of)| (*offset, bytes.len(), *of));
        let plain = found.pieces.iter().map(|(offset, bytes)| (*offset, bytes.len(), 0));
        (found.deltas.clone(), forms.chain(plain).collect::<Vec<_>>())
    };
    append(1000, &[1; 500], GENERATION).await;
    append(1200, &[2; 500], GENERATION).await;
    let (deltas, forms) = seen(4, true).await;
    assert_eq!(forms, [(1000, 700, GENERATION)]);
    let old = data_block(1);
    let new = |at: usize| if at < 1200 { 1 } else { 2 };
    assert!((1000..1700).all(|at| deltas[0].1[at - 1000] == old[at] ^ new(at)));
    assert_eq!(seen(1, false).await.1, [(1000, 700, 0)], "at home they are new bytes");
    // Who does not know of deltas gets none, and no new bytes without them.
    let mut older = tonic::Request::new(read(true, None));
    let now = kintsu_wire::version::DELTAS - 1;
    older.extensions_mut().insert(kintsu_wire::version::Spoken { now, newest: now });
    let refused = agent(&stage, 4).read_updates(older).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    // The caller knows of a later version than the home has.
    append(3000, &[3; 10], GENERATION + 1).await;
    assert_eq!(seen(4, true).await.1, [(1000, 700, GENERATION), (3000, 10, 0)]);
    append(3000, &[3; 10], 0).await;
    assert_eq!(seen(4, true).await.1, [(1000, 700, GENERATION), (3000, 10, GENERATION)]);

    // A commit from the replica.
    let freeze = FreezeUpdates {
        blocks: vec![id(&stage, 1)],
        replicas: vec![replica.clone()],
        deltas: vec![GENERATION],
        ..FreezeUpdates::default()
    };
    let frozen =
        agent(&stage, 1).freeze_updates(freeze).await.unwrap().into_inner().blocks.remove(0).unwrap();
    assert_eq!(frozen.same, [true]);
    append(5000, &[4; 10], GENERATION).await;
    assert_eq!(
        seen(4, true).await.1[2..],
        [(5000, 10, 0)],
        "what comes now may be on top of another version"
    );
    let node =
        |i: u32| (NodeId(i), Node { rack: RackId(i / 4), usable: true, used_bytes: 0, room_bytes: None });
    let topology = Topology { nodes: (0..7).map(node).collect(), ..Topology::default() };
    let dirty =
        Dirty { replicas: [(BlockIndex(1), vec![NodeId(4)])].into(), ..Dirty::at_home([BlockIndex(1)]) };
    let plan = update(&stage.view, &topology, &dirty, Scheme::Optimal).unwrap();
    assert_eq!(plan.crossings, 0, "both parities are in the rack of the replica");
    let mut data: Vec<Vec<u8>> = (0..4).map(data_block).collect();
    data[1][1000..1200].fill(1);
    data[1][1200..1700].fill(2);
    data[1][3000..3010].fill(3);
    let outcomes = make_next(&stage, &plan, (1000, 3010), &encoded(&stage, &data)).await;
    let across = outcomes
        .iter()
        .flat_map(|outcome| outcome.sent.iter().filter(|(to, _)| topology.across_racks(outcome.node, *to)));
    assert_eq!(across.map(|(_, bytes)| bytes).sum::<u64>(), 0);
    append(6000, &[5; 10], GENERATION).await;
    let blocks = vec![BlockRef { id: id(&stage, 1), generation: NEXT }];
    agent(&stage, 1).promote_blocks(PromoteBlocks { blocks }).await.unwrap();
    append(7000, &[6; 10], GENERATION).await;
    assert_eq!(
        seen(4, true).await.1[2..],
        [(5000, 10, 0), (6000, 10, 0), (7000, 10, 0)],
        "it is not released"
    );
    // The home knows its own block, and a reader the decoded one.
    data[1][5000..5010].fill(4);
    data[1][6000..6010].fill(5);
    data[1][7000..7010].fill(6);
    let whole = agent(&stage, 1).read_updates(read(false, Some(NEXT))).await.unwrap().into_inner();
    assert!(whole.pieces[0].1 == data[1] && whole.deltas.is_empty());
    for (node, replica, upto) in [(1, false, frozen.upto), (4, true, frozen.replicas[0].unwrap())] {
        let updates = vec![UpdatesOf { block: id(&stage, 1), replica, upto }];
        agent(&stage, node).release_updates(ReleaseUpdates { updates }).await.unwrap();
    }
    append(8000, &[7; 10], GENERATION).await;
    let forms = [(8000, 10, NEXT), (5000, 10, 0), (6000, 10, 0), (7000, 10, 0)];
    assert_eq!(seen(4, true).await.1, forms);
}
