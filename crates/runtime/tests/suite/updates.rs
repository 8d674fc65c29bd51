//! Updates on real stores, logs and sockets: what was logged comes into blocks and parities, all of them or none.

#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use crate::support;

use kintsu_dag::{BlockIndex, Sink, Task};
use kintsu_plan::update::{Dirty, Scheme, UpdatePlan, update};
use kintsu_plan::{BlockBinding, LayoutKind};
use kintsu_runtime::Limits;
use kintsu_store::{BlockStore, Data, Digest, Generation, Role, UNIT_BYTES, Update};
use kintsu_wire::message::{Fault, FaultKind};
use support::{GENERATION, Site, blocks, noise};

const BLOCK: usize = 150_000;
const NEXT: u32 = GENERATION + 4;
const WHOLE: (u64, u64) = (0, u64::MAX);

/// Data block, offset, length.
type Write = (u8, usize, usize);
const WRITES: [Write; 4] = [(0, 70_000, 9000), (2, 0, 1), (2, 100_000, 50_000), (3, 65_536, 65_536)];

/// A full stripe, stored, with writes in the logs of the blocks' homes.
async fn site(code: &str) -> Site {
    let site = Site::new(code, LayoutKind::Contiguous, BLOCK, 0).await;
    site.store(0..site.view.code.n() as u8);
    site
}

/// Logs a write at home and brings it into `object`.
fn log(site: &Site, object: &mut [u8], (block, offset, len): Write, seed: u64) {
    let bytes = noise(len, seed);
    object[usize::from(block) * BLOCK + offset..][..len].copy_from_slice(&bytes);
    let update = Update {
        volume: 1,
        epoch: 1,
        block: site.id(block),
        role: Role::Home,
        offset: offset as u64,
        data: Data::Bytes(&bytes),
    };
    home(site, block).log.append(&[update]).unwrap();
}

fn home(site: &Site, block: u8) -> &support::Node {
    &site.nodes[&site.view.homes[usize::from(block)].unwrap()]
}

/// A plan for what is in the logs now.
fn plan(site: &Site, scheme: Scheme, blocks: &[u8]) -> UpdatePlan {
    for &block in blocks {
        home(site, block).log.freeze(site.id(block), Role::Home).unwrap();
    }
    let dirty = Dirty::at_home(blocks.iter().copied().map(BlockIndex));
    update(&site.view, &site.topology, &dirty, scheme).unwrap()
}

/// A block in some version.
fn version(site: &Site, block: u8, generation: u32) -> Vec<u8> {
    let mut read = home(site, block).store.open(site.id(block), Generation(generation)).unwrap();
    let mut bytes = vec![0; read.meta().len as usize];
    read.read_at(0, &mut bytes).unwrap();
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scheme_brings_logged_writes_into_blocks_and_parities() {
    for code in ["rs:n=9,k=6", "azure-lrc:n=10,k=6,r=3"] {
        let site = site(code).await;
        let mut object = site.object.clone();
        WRITES.iter().zip(1..).for_each(|(write, seed)| log(&site, &mut object, *write, seed));
        let expected = blocks(&site.view, &object);
        let mut touched = Vec::new();
        // Nothing is decided in between: each scheme starts from the same blocks, and replaces what the one before made.
        for (row, next) in Scheme::all().zip(NEXT..) {
            let plan = plan(&site, row.scheme, &[0, 2, 3]);
            let mut written = Vec::new();
            for programs in site.update_programs(&plan, WHOLE, next) {
                let outcomes = site.succeed(&programs, None).await;
                written.extend(outcomes.into_values().flat_map(|outcome| outcome.written));
            }
            touched = [0, 2, 3].into_iter().chain(plan.parities.iter().map(|b| b.0)).collect();
            assert_eq!(written.len(), touched.len(), "{code} {}", row.name);
            for held in &written {
                let right = Digest::of_bytes(&expected[usize::from(held.id.index.0)]).0;
                assert_eq!((held.generation, held.digest), (next, right), "{code} {} {}", row.name, held.id);
            }
        }
        for block in 0..site.view.code.n() as u8 {
            assert!(version(&site, block, GENERATION) == site.blocks[usize::from(block)]);
        }
        let last = NEXT + Scheme::all().count() as u32 - 1;
        for &block in &touched {
            assert!(version(&site, block, last) == expected[usize::from(block)], "{code} {block}");
        }
        assert!(site.left_over().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_that_failed_changes_nothing_and_is_tried_again() {
    let mut site = site("rs:n=6,k=4").await;
    site.limits = support::quick();
    let mut object = site.object.clone();
    WRITES.iter().zip(1..).for_each(|(write, seed)| log(&site, &mut object, *write, seed));
    let plan = plan(&site, Scheme::Cau, &[0, 2, 3]);
    let dead = site.view.homes[5].unwrap();
    for programs in site.update_programs(&plan, WHOLE, NEXT) {
        // Whether the others notice depends on who waits for whom.
        site.run(&programs, None, &[dead]).await;
    }
    for block in 0..6u8 {
        assert!(version(&site, block, GENERATION) == site.blocks[usize::from(block)]);
    }
    assert_eq!(site.nodes[&dead].store.next_versions().unwrap(), [], "a parity node did nothing");
    site.limits = Limits::default();
    // A write that came meanwhile is not part of what was frozen.
    let mut later = object.clone();
    log(&site, &mut later, (0, 75_000, 20_000), 9);
    for programs in site.update_programs(&plan, WHOLE, NEXT + 1) {
        site.succeed(&programs, None).await;
    }
    let expected = blocks(&site.view, &object);
    for block in [0, 2, 3, 4, 5u8] {
        assert!(version(&site, block, NEXT + 1) == expected[usize::from(block)], "block {block}");
    }
    // Its turn comes when the log has forgotten what was committed.
    let node = home(&site, 0);
    node.log.release([(site.id(0), Role::Home, 1)]).unwrap();
    let mut seen = version(&site, 0, NEXT + 1);
    let logged = node.log.logged(site.id(0), Role::Home, 0..BLOCK as u64).unwrap();
    logged.iter().for_each(|part| part.lay_over(Generation(NEXT + 1), 0, &mut seen).unwrap());
    assert!(seen == blocks(&site.view, &later)[0]);
    assert_eq!(node.log.freeze(site.id(0), Role::Home).unwrap().1, [75_000..95_000]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_changed_range_moves() {
    let site = site("rs:n=6,k=4").await;
    let mut object = site.object.clone();
    log(&site, &mut object, (1, 70_000, 4096), 3);
    let plan = plan(&site, Scheme::Optimal, &[1]);
    let mut sent = 0;
    for programs in site.update_programs(&plan, (70_000, 74_096), NEXT) {
        let outcomes = site.succeed(&programs, None).await;
        sent += outcomes.values().flat_map(|outcome| &outcome.sent).map(|(_, bytes)| bytes).sum::<u64>();
    }
    assert!((2 * 4096..2 * 4096 + 4096).contains(&sent), "the delta once to each parity, and frames: {sent}");
    let expected = blocks(&site.view, &object);
    for block in [1, 4, 5u8] {
        assert!(version(&site, block, NEXT) == expected[usize::from(block)], "block {block}");
    }
}

/// What one commit of a range of these blocks reads and writes: blocks read, bytes of them, blocks written.
async fn cost(
    site: &Site,
    scheme: Scheme,
    blocks: &[u8],
    range: (u64, u64),
    next: u32,
) -> (usize, u64, usize) {
    let plan = plan(site, scheme, blocks);
    let (mut read, mut bytes, mut written) = (BTreeSet::new(), 0, 0);
    for programs in site.update_programs(&plan, range, next) {
        for (node, outcome) in site.succeed(&programs, None).await {
            // No node has two blocks of the stripe.
            read.extend((outcome.bytes_read > 0).then_some(node));
            bytes += outcome.bytes_read;
            written += outcome.written.len();
        }
    }
    (read.len(), bytes, written)
}

/// Of Ceph's FastEC: a small write reads and writes its own block and both parities.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_update_committed_alone_reads_three_blocks_and_writes_three() {
    let site = site("rs:n=6,k=4").await;
    log(&site, &mut site.object.clone(), (1, 70_000, 4096), 3);
    for (row, next) in Scheme::all().zip(NEXT..) {
        let (read, bytes, written) = cost(&site, row.scheme, &[1], (70_000, 74_096), next).await;
        assert_eq!((read, written), (3, 3), "{}: blocks read and written", row.name);
        // A unit that was needed twice counts twice.
        let once = 3 * BLOCK as u64;
        assert!((once..=once + 4 * UNIT_BYTES as u64).contains(&bytes), "{}: {bytes}", row.name);
    }
}

/// And fewer when merged: the parities are read and written once for all blocks of the stripe that are dirty. `baseline` does
/// not wait for others, but what is dirty at the same time it merges too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_small_updates_committed_together_read_four_blocks_and_write_four() {
    let site = site("rs:n=6,k=4").await;
    let mut object = site.object.clone();
    log(&site, &mut object, (1, 70_000, 4096), 3);
    log(&site, &mut object, (2, 70_000, 4096), 4);
    let mut next = NEXT;
    for row in Scheme::all() {
        let mut of = async |blocks: &[u8]| {
            next += 1;
            cost(&site, row.scheme, blocks, (70_000, 74_096), next).await
        };
        let (first, second, both) = (of(&[1]).await, of(&[2]).await, of(&[1, 2]).await);
        assert_eq!((both.0, both.2), (4, 4), "{}: blocks read and written", row.name);
        assert!(both.1 < first.1 + second.1, "{}: {both:?} for {first:?} and {second:?}", row.name);
    }
    let expected = blocks(&site.view, &object);
    for block in [1, 2, 4, 5u8] {
        assert!(version(&site, block, next) == expected[usize::from(block)], "block {block}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn senseless_updates_are_refused() {
    let site = site("rs:n=6,k=4").await;
    log(&site, &mut site.object.clone(), (1, 70_000, 4096), 3);
    let plan = plan(&site, Scheme::Cau, &[1]);
    let faults = async |change: &dyn Fn(&mut kintsu_plan::Program)| -> Vec<Fault> {
        let mut programs = site.update_programs(&plan, WHOLE, NEXT).remove(0);
        programs.iter_mut().for_each(change);
        let outcomes = site.run(&programs, None, &[]).await;
        outcomes.into_values().filter_map(|outcome| outcome.fault).collect()
    };
    let of_all = |program: &mut kintsu_plan::Program, change: &dyn Fn(&mut BlockBinding)| {
        program.blocks.iter_mut().for_each(change);
    };
    let none = faults(&|program| of_all(program, &|block| block.next = None)).await;
    assert!(none.iter().any(|fault| fault.detail.contains("generation of its next version")), "{none:?}");
    let stale = faults(&|program| of_all(program, &|block| block.generation = 1)).await;
    assert!(stale.iter().any(|fault| fault.kind == FaultKind::Stale), "{stale:?}");
    let elsewhere = faults(&|program| {
        let sinks = program.tasks.iter_mut().filter_map(|task| match task {
            Task::Persist { sink, .. } => Some(sink),
            _ => None,
        });
        sinks.for_each(|sink| *sink = Sink::Client);
    });
    let elsewhere = elsewhere.await;
    assert!(elsewhere.iter().any(|fault| fault.kind == FaultKind::Invalid), "{elsewhere:?}");
    // Nothing is fixed: the node may have been started again since.
    home(&site, 1).log.release([(site.id(1), Role::Home, u64::MAX)]).unwrap();
    log(&site, &mut site.object.clone(), (1, 70_000, 4096), 4);
    let unknown = faults(&|_| ()).await;
    assert!(unknown.iter().any(|fault| fault.detail.contains("fixed for a commit, got none")), "{unknown:?}");
    // Blocks whose recorded digests are others.
    let forged = faults(&|program| of_all(program, &|block| block.expect = Some([7; 16]))).await;
    assert!(forged.iter().any(|fault| fault.kind == FaultKind::Corrupt), "{forged:?}");
    assert!(site.nodes.values().all(|node| node.store.next_versions().unwrap().is_empty()));
}
