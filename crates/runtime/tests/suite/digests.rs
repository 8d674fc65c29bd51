//! Wrong bytes with correct checksums: only a comparison of digests finds them.
#![allow(clippy::unwrap_used)]

use crate::support;

use std::sync::Arc;

use kintsu_dag::{BlockIndex, NodeId, Sink};
use kintsu_plan::{
    BlockBinding, DIGEST_UNKNOWN, LayoutKind, Method, Program, Repair, encode_online, read, repair,
};
use kintsu_runtime::{BlockSink, BlockSource, Context, DataPlane, Local, Output, SentBlocks};
use kintsu_store::{BlockStore, Digest, Generation, UNIT_BYTES};
use kintsu_wire::Credentials;
use kintsu_wire::message::{Fault, FaultKind, HeldBlock};
use support::{GENERATION, Site, getting, noise, run_all, within};

const ALL: (u64, u64) = (0, u64::MAX);

/// A node that changes a byte of each block after its frame was checked, and before its store sees it.
struct Spoiling(Arc<dyn Local>);

struct SpoilingSink(Box<dyn BlockSink>);

impl Local for Spoiling {
    fn open(&self, binding: &BlockBinding) -> Result<Box<dyn BlockSource>, Fault> {
        self.0.open(binding)
    }

    fn create(&self, binding: &BlockBinding, sink: Sink, key: u64, start: u64) -> Result<Output, Fault> {
        Ok(match self.0.create(binding, sink, key, start)? {
            Output::Block(sink) => Output::Block(Box::new(SpoilingSink(sink))),
            channel => channel,
        })
    }
}

impl BlockSink for SpoilingSink {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let mut data = data.to_vec();
        if offset == 0 {
            data[7] ^= 32;
        }
        self.0.write_at(offset, &data)
    }

    fn finish(self: Box<Self>) -> Result<Option<HeldBlock>, Fault> {
        self.0.finish()
    }
}

/// Writes the stripe with digests of what is sent. Returns what each node holds, with the client's objection to
/// it.
async fn put(
    site: &Site,
    programs: &[Program],
    spoiling: Option<NodeId>,
) -> (Arc<SentBlocks>, Vec<(NodeId, HeldBlock, Option<Fault>)>) {
    let sent = Arc::new(SentBlocks::of(programs, NodeId::CLIENT));
    let context = |node: NodeId| {
        if node.is_client() {
            let plane = DataPlane::client(Credentials::none());
            return Context { sent: Some(sent.clone()), ..site.context_with(plane, Arc::new(site.client())) };
        }
        let right = site.context(node);
        match spoiling == Some(node) {
            true => Context { local: Arc::new(Spoiling(right.local.clone())), ..right },
            false => right,
        }
    };
    let outcomes = within(run_all(programs, context, &[])).await;
    let mut held = Vec::new();
    for (node, outcome) in outcomes {
        assert_eq!(outcome.fault, None, "nothing else notices");
        for block in outcome.written {
            let objection = sent.objection(node, &block);
            held.push((node, block, objection));
        }
    }
    (sent, held)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_knows_the_digest_of_each_block_that_it_sends() {
    for (block_bytes, missing, slice) in
        [(300_001, 7, 4096), (1 << 20, 0, 1 << 20), (200_000, 150_000, 70_000), (5, 0, 4096), (65_536, 1, 3)]
    {
        for kind in [LayoutKind::Contiguous, LayoutKind::Striped] {
            let block_bytes =
                if kind == LayoutKind::Striped { (block_bytes + 4095) & !4095 } else { block_bytes };
            let mut site = Site::new("rs:n=6,k=4", kind, block_bytes, missing).await;
            // A slice of zeros goes over the wire without its bytes.
            site.blocks[0].iter_mut().skip(4096).take(100_000).for_each(|byte| *byte = 0);
            let programs = site.programs(&encode_online(&site.view).unwrap(), ALL, slice);
            let programs: Vec<_> = programs.into_iter().map(without_expect).collect();
            let (sent, held) = put(&site, &programs, None).await;
            assert_eq!(held.len(), 6);
            for (node, held, objection) in held {
                assert_eq!(objection, None, "{held:?} in slices of {slice}");
                assert_eq!(sent.digest(held.id, node), Some(Digest(held.digest)));
                assert_eq!(sent.digest(held.id, NodeId(999)), None);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_stores_other_bytes_than_it_got_is_found_by_its_sender() {
    let site = Site::new("rs:n=6,k=4", LayoutKind::Contiguous, 300_000, 11).await;
    let programs = site.programs(&encode_online(&site.view).unwrap(), ALL, 32 << 10);
    let programs: Vec<_> = programs.into_iter().map(without_expect).collect();
    for index in [1, 4] {
        let liar = site.view.homes[index].unwrap();
        let programs: Vec<_> = programs
            .iter()
            .cloned()
            .map(|program| Program { job: kintsu_plan::RunId(100 + index as u64), ..program })
            .collect();
        let (_, held) = put(&site, &programs, Some(liar)).await;
        for (node, held, objection) in held {
            match objection {
                None => assert_ne!(node, liar, "its block is wrong"),
                Some(fault) => {
                    assert_eq!((fault.kind, fault.node), (FaultKind::Mismatch, liar), "{fault}");
                    assert_eq!(fault.block, Some(held.id));
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sound_block_that_is_not_the_one_recorded_is_not_loaded() {
    for method in [Method::Conventional, Method::Pipeline] {
        let mut site = Site::new("rs:n=6,k=4", LayoutKind::Contiguous, 200_000, 0).await;
        site.store([0, 2, 3, 4, 5]);
        let home = site.view.homes[2].unwrap();
        let swapped = noise(site.blocks[2].len(), 77);
        let store = &site.nodes[&home].store;
        let unit = UNIT_BYTES as u32;
        let mut write =
            store.create(site.id(2), Generation(GENERATION), swapped.len() as u64, unit, &[]).unwrap();
        write.write_at(0, &swapped).unwrap();
        write.finish(None).unwrap();

        let (client, got) = getting(&site.view);
        let read = read(&site.view, &[BlockIndex(2)], &[]).unwrap();
        let outcomes = site.run(&site.programs(&read, ALL, 4096), Some(client), &[]).await;
        let fault = outcomes[&home].fault.clone().unwrap();
        assert_eq!((fault.kind, fault.node, fault.block), (FaultKind::Corrupt, home, Some(site.id(2))));
        assert!(fault.detail.contains("expected digest"), "{fault}");
        assert_eq!(got.await.unwrap().get(&2), None, "not a byte of it");

        // No other blocks are left from which block 1 could be decoded.
        site.view.homes[1] = None;
        site.view.homes[5] = None;
        let requestor = site.spare(0);
        let wanted = Repair { lost: vec![BlockIndex(1)], requestors: vec![requestor], method };
        let plan = repair(&site.view, &site.topology, &wanted, &|_| 0, &[]).unwrap();
        assert!(plan.helpers.contains(&BlockIndex(2)));
        let mut programs = site.programs(&plan.plan, ALL, 32 << 10);
        let outcomes = site.run(&programs, None, &[]).await;
        let fault = outcomes[&requestor].fault.clone().unwrap();
        assert_eq!((fault.kind, fault.node, fault.block), (FaultKind::Corrupt, home, Some(site.id(2))));
        assert!(!site.has(requestor, 1));

        // A digest that is not known is not compared.
        for program in &mut programs {
            program.job.0 += 1000;
            program.blocks.iter_mut().for_each(|binding| binding.expect = Some(DIGEST_UNKNOWN));
        }
        let outcomes = site.run(&programs, None, &[]).await;
        assert_eq!(outcomes[&requestor].fault, None);
        assert_ne!(site.read(requestor, 1), site.blocks[1], "which shows what is at stake");
    }
}

/// As for a first write: no digest is recorded yet.
fn without_expect(mut program: Program) -> Program {
    program.blocks.iter_mut().for_each(|binding| binding.expect = None);
    program
}
