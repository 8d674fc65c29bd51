//! Every operation on real stores and sockets: the bytes are those of a direct computation.
#![allow(clippy::unwrap_used)]

use crate::support;

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use kintsu_dag::{BlockIndex, NodeId, Sink};
use kintsu_plan::{
    Binding, BlockBinding, LayoutKind, Method, Plan, Repair, compare, encode_offline, encode_online, read,
    read_by, repair, write_plain,
};
use kintsu_wire::message::FaultKind;
use support::{Site, getting};

const METHODS: [Method; 3] = [Method::Conventional, Method::Ppr, Method::Pipeline];
const ALL: (u64, u64) = (0, u64::MAX);

fn plan_repair(
    site: &mut Site,
    lost: &[u8],
    method: Method,
    rank: &dyn Fn(NodeId) -> u64,
) -> (Plan, Vec<NodeId>) {
    let requestors: Vec<_> = (0..lost.len()).map(|i| site.spare(i)).collect();
    for block in lost {
        site.view.homes[*block as usize] = None;
    }
    let lost = lost.iter().map(|block| BlockIndex(*block)).collect();
    let wanted = Repair { lost, requestors: requestors.clone(), method };
    (repair(&site.view, &site.topology, &wanted, rank, &[]).unwrap().plan, requestors)
}

async fn check_repair(
    code: &str,
    block_bytes: usize,
    missing: usize,
    slice: u32,
    lost: &[u8],
    method: Method,
) {
    let mut site = Site::new(code, LayoutKind::Contiguous, block_bytes, missing).await;
    site.store((0..site.view.code.n() as u8).filter(|i| !lost.contains(i)));
    let (plan, requestors) = plan_repair(&mut site, lost, method, &|_| 0);
    let outcomes = site.succeed(&site.programs(&plan, ALL, slice), None).await;
    for (block, requestor) in lost.iter().zip(&requestors) {
        assert_eq!(site.read(*requestor, *block), site.blocks[*block as usize], "{method} block {block}");
        assert_eq!(site.label(*requestor, *block), support::LABEL);
        let outcome = &outcomes[requestor];
        assert_eq!(outcome.written.len(), 1);
        assert_eq!(outcome.upto, site.view.layout.longest(site.view.code.k()));
    }
    assert_eq!(site.left_over(), Vec::<std::path::PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stripe_is_compared_with_its_code_and_nothing_is_written() {
    for wrong in [None, Some(1), Some(4), Some(5)] {
        let mut site = Site::new("rs:n=6,k=4", LayoutKind::Contiguous, 300_001, 7).await;
        if let Some(wrong) = wrong {
            // Under valid checksums, and recorded like this.
            site.blocks[wrong][100_000] ^= 1;
        }
        site.store(0..6);
        let plan = compare(&site.view, &site.topology, BlockIndex(5), Sink::Compare).unwrap().unwrap();
        let outcomes = site.run(&site.programs(&plan, ALL, 8192), None, &[]).await;
        let faults: Vec<_> = outcomes.values().filter_map(|outcome| outcome.fault.clone()).collect();
        let faults: Vec<_> = faults.into_iter().map(|fault| (fault.kind, fault.block)).collect();
        let expected = wrong.map(|_| (FaultKind::Mismatch, Some(site.id(5))));
        assert_eq!(faults, expected.into_iter().collect::<Vec<_>>(), "{wrong:?}");
        assert!(outcomes.values().all(|outcome| outcome.written.is_empty()));
        assert_eq!(site.left_over(), Vec::<std::path::PathBuf>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repairs_of_one_block_by_all_methods_and_slices() {
    for method in METHODS {
        for (block_bytes, missing, slice) in [
            (300_001, 7, 4096),
            (1 << 20, 0, 32 << 10),
            (3_000_000, 123_457, 1 << 20),
            (5, 0, 4096),
            (70_000, 1, 70_000),
        ] {
            check_repair("rs:n=6,k=4", block_bytes, missing, slice, &[1], method).await;
            check_repair("rs:n=6,k=4", block_bytes, missing, slice, &[3], method).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repairs_of_several_blocks_and_of_local_groups() {
    for method in METHODS {
        check_repair("rs:n=9,k=6", 200_003, 1, 8192, &[0, 5, 7], method).await;
        check_repair("azure-lrc:n=10,k=6,r=3", 200_003, 1, 16384, &[2], method).await;
        check_repair("azure-lrc:n=10,k=6,r=3", 200_003, 1, 16384, &[2, 3], method).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_lanes_write_one_block_whether_they_overlap_or_not() {
    for serial in [false, true] {
        let mut site = Site::new("rs:n=6,k=4", LayoutKind::Contiguous, 500_000, 77).await;
        site.store([0, 1, 3, 4, 5]);
        let mut lanes = Vec::new();
        let mut requestors = Vec::new();
        for rotation in 0..3u32 {
            let rank = |node: NodeId| u64::from((node.0 + 5 * rotation) % 12);
            let (mut plan, to) = plan_repair(&mut site, &[2], Method::Pipeline, &rank);
            plan.lanes[0].share = rotation + 1;
            lanes.append(&mut plan.lanes);
            requestors = to;
        }
        let mut programs = site.programs(&Plan::new(lanes), ALL, 8192);
        assert!(programs.iter().filter(|p| p.node == requestors[0]).count() == 3);
        // Lanes of one program may differ, too: one serial, another not.
        programs.iter_mut().filter(|p| p.lane != 1).for_each(|program| program.serial = serial);
        let outcomes = site.succeed(&programs, None).await;
        assert_eq!(site.read(requestors[0], 2), site.blocks[2]);
        assert_eq!(outcomes[&requestors[0]].upto, 500_000);
    }
}

/// 25 steps, one every 5 ms: a limit that holds on any machine, however fast or slow it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_with_a_rate_begins_no_step_before_its_time() {
    let mut site = Site::new("rs:n=6,k=4", LayoutKind::Contiguous, 100_000, 5).await;
    site.store([0, 2, 3, 4, 5]);
    let (plan, requestors) = plan_repair(&mut site, &[1], Method::Cyclic, &|_| 0);
    let programs =
        site.programs(&Plan { rate: NonZeroU64::new(800_000), rate_limited: true, ..plan }, ALL, 4000);
    assert_eq!(programs.iter().filter(|program| program.rate.is_some()).count(), 3);
    let begun = Instant::now();
    site.succeed(&programs, None).await;
    assert!(begun.elapsed() >= Duration::from_millis(24 * 5));
    assert_eq!(site.read(requestors[0], 1), site.blocks[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serial_programs_repair_the_same_blocks() {
    for method in METHODS {
        let mut site = Site::new("rs:n=6,k=4", LayoutKind::Contiguous, 200_003, 5).await;
        site.store([0, 2, 3, 4]);
        let (plan, requestors) = plan_repair(&mut site, &[1, 5], method, &|_| 0);
        let mut programs = site.programs(&plan, ALL, 4096);
        programs.iter_mut().for_each(|program| program.serial = true);
        site.succeed(&programs, None).await;
        for (node, block) in requestors.iter().zip([1, 5]) {
            assert_eq!(site.read(*node, block), site.blocks[usize::from(block)], "{method}");
        }
    }
}

fn check_stored(site: &Site, blocks: std::ops::Range<u8>) {
    for block in blocks {
        if let Some(home) = site.view.homes[block as usize] {
            assert_eq!(site.read(home, block), site.blocks[block as usize], "block {block}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_encoded_by_the_client() {
    for (kind, block_bytes, missing) in [
        (LayoutKind::Striped, 12 * 4096, 5),
        (LayoutKind::Striped, 65536, 3 * 65536 + 1),
        (LayoutKind::Contiguous, 99_999, 3),
    ] {
        let site = Site::new("rs:n=6,k=4", kind, block_bytes, missing).await;
        let programs = site.programs(&encode_online(&site.view).unwrap(), ALL, 4096);
        let outcomes = site.succeed(&programs, Some(site.client())).await;
        check_stored(&site, 0..6);
        let written: usize = outcomes.values().map(|outcome| outcome.written.len()).sum();
        assert_eq!(written, site.view.homes.iter().flatten().count());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_encoded_later_and_reads_with_and_without_losses() {
    let site = Site::new("azure-lrc:n=8,k=4,r=2", LayoutKind::Contiguous, 150_000, 11).await;
    let programs = site.programs(&write_plain(&site.view).unwrap(), ALL, 32 << 10);
    site.succeed(&programs, Some(site.client())).await;
    check_stored(&site, 0..4);
    let programs =
        site.programs(&encode_offline(&site.view, &site.topology, Binding::Bound).unwrap(), ALL, 32 << 10);
    site.succeed(&programs, None).await;
    check_stored(&site, 0..8);

    let wanted: Vec<_> = (0..4).map(BlockIndex).collect();
    let normal = read(&site.view, &wanted, &[]).unwrap();
    let mut plans = vec![normal];
    for method in METHODS {
        let lost = [BlockIndex(0), BlockIndex(3)];
        plans.push(read_by(&site.view, &site.topology, &wanted, &lost, method).unwrap());
    }
    for (number, plan) in plans.iter().enumerate() {
        let (client, taking) = getting(&site.view);
        site.succeed(&site.programs(plan, ALL, 8192), Some(client)).await;
        let got = taking.await.unwrap();
        for block in 0..4 {
            assert_eq!(got[&block], site.blocks[block as usize], "plan {number} block {block}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_a_part_deliver_that_part_only() {
    let site = Site::new("rs:n=5,k=3", LayoutKind::Contiguous, 100_000, 0).await;
    site.store(0..5);
    let plan = read(&site.view, &[BlockIndex(1)], &[BlockIndex(1)]).unwrap();
    let (client, taking) = getting(&site.view);
    site.succeed(&site.programs(&plan, (40_000, 60_001), 4096), Some(client)).await;
    let got = taking.await.unwrap();
    assert_eq!(got.len(), 1);
    assert_eq!(got[&1][40_000..60_001], site.blocks[1][40_000..60_001]);
    assert!(got[&1][..40_000].iter().chain(&got[&1][60_001..]).all(|byte| *byte == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zeros_are_not_sent() {
    let mut site = Site::new("rs:n=6,k=4", LayoutKind::Contiguous, 1 << 20, 0).await;
    site.blocks.iter_mut().for_each(|block| block.fill(0));
    site.store([0, 1, 2, 4, 5]);
    let (plan, requestors) = plan_repair(&mut site, &[3], Method::Pipeline, &|_| 0);
    let outcomes = site.succeed(&site.programs(&plan, ALL, 4096), None).await;
    assert_eq!(site.read(requestors[0], 3), vec![0; 1 << 20]);
    let sent: u64 = outcomes.values().flat_map(|outcome| &outcome.sent).map(|(_, bytes)| bytes).sum();
    assert_eq!(sent, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_blocks_are_parts_of_every_step() {
    use kintsu_dag::{Sink, Task, Vertex};
    use kintsu_plan::{Peer, Program, RunId, Window};

    // w = 2: node A reads both halves of every cell of block 0, node B swaps them into block 1.
    let site = Site::new("rs:n=3,k=2", LayoutKind::Contiguous, 100_000, 0).await;
    site.store([0]);
    let (a, b) = (site.view.homes[0].unwrap(), site.spare(0));
    let binding = |index: u8| BlockBinding {
        index: BlockIndex(index),
        id: site.id(index),
        generation: support::GENERATION,
        len: 100_000,
        unit_bytes: 8192,
        expect: None,
        label: Vec::new(),
        next: None,
        replica: false,
    };
    let program = |node, tasks, sends, index| Program {
        job: RunId(77),
        lane: 0,
        node,
        window: Window::whole(0, 100_000, 16_384, 2),
        tasks,
        sends,
        blocks: vec![binding(index)],
        peers: [a, b].map(|node| Peer { node, data: site.nodes[&node].plane.addr().unwrap() }).to_vec(),
        resume_key: 0,
        serial: false,
        rate: None,
    };
    let v = Vertex;
    let reading = vec![Task::Load { vertex: v(0) }, Task::Load { vertex: v(1) }];
    let copy = |to, from| Task::Compute { outputs: vec![v(to)], inputs: vec![v(from)], coefs: vec![1] };
    let persist = |vertex| Task::Persist { vertex: v(vertex), sink: Sink::Block };
    let fetch = |vertex| Task::Fetch { vertex: v(vertex), from: a };
    let swapping = vec![fetch(0), copy(3, 0), fetch(1), copy(2, 1), persist(2), persist(3)];
    let programs = [program(a, reading, vec![(v(0), b), (v(1), b)], 0), program(b, swapping, Vec::new(), 1)];
    site.succeed(&programs, None).await;
    let cells = site.blocks[0].chunks(16_384);
    let swapped: Vec<u8> =
        cells.flat_map(|cell| [&cell[cell.len() / 2..], &cell[..cell.len() / 2]].concat()).collect();
    assert_eq!(site.read(b, 1), swapped);
}
