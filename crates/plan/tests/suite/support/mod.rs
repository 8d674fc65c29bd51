//! A stripe on nodes in memory, and a machine that runs programs on it, step by step, as agents do.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use kintsu_algebra::mul;
use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, RackId, Sink, StripeId, Task, Vertex};
use kintsu_plan::{
    DamagedStripe, Layout, LayoutKind, Node, Plan, Program, ProgramContext, RunId, StripeView, Topology,
    place,
};

/// Small codes without sub-blocks, of several families and matrices.
pub const CODES: [&str; 9] = [
    "rs:n=5,k=3",
    "rs:n=2,k=1",
    "rs:n=9,k=6",
    "rs:n=6,k=4,matrix=vandermonde",
    "rs:n=7,k=4,matrix=isal",
    "azure-lrc:n=8,k=4,r=2",
    "azure-lrc:n=10,k=6,r=3",
    "azure-lrc:n=9,k=5,r=3",
    "azure-lrc:n=16,k=12,r=6",
];

/// [`CODES`], and codes with sub-blocks.
pub fn codes() -> &'static [Arc<dyn Code>] {
    static CODES_BY_NUMBER: OnceLock<Vec<Arc<dyn Code>>> = OnceLock::new();
    CODES_BY_NUMBER.get_or_init(|| {
        let plain = CODES.iter().map(|name| kintsu_code::parse(name).unwrap());
        let divided = [(5, 3, 2), (4, 2, 3), (6, 4, 4), (3, 1, 8), (9, 6, 2)];
        let own = [
            "miser:n=4,k=2",
            "hitchhiker-xor:n=5,k=3",
            "less:n=6,k=3,alpha=3",
            "clay:n=6,k=4,d=5",
            "butterfly:n=5,k=3",
            "drc:n=9,k=6",
        ];
        let own = own.map(|name| kintsu_code::parse(name).unwrap());
        plain.chain(divided.map(|(n, k, w)| sub_packetised(n, k, w))).chain(own).collect()
    })
}

/// An MDS code of n blocks of w sub-blocks: any k*w of the n*w symbols determine the rest.
pub fn sub_packetised(n: usize, k: usize, w: usize) -> Arc<dyn Code> {
    let flat = kintsu_code::parse(&format!("rs:n={},k={}", n * w, k * w)).unwrap();
    kintsu_code::from_generator("test", n, k, w, flat.generator().clone(), Vec::new(), n - k + 1).unwrap()
}

/// Every rack with this many nodes, all usable and empty, numbered through.
pub fn topology(racks: usize, nodes_per_rack: usize) -> Topology {
    let node = |i: usize| Node {
        rack: RackId((i / nodes_per_rack) as u32),
        usable: true,
        used_bytes: 0,
        room_bytes: None,
    };
    Topology {
        nodes: (0..racks * nodes_per_rack).map(|i| (NodeId(i as u32), node(i))).collect(),
        ..Topology::default()
    }
}

/// The stripes of a code that lose blocks when these nodes die.
pub fn waiting(name: &str, topology: &Topology, stripes: u64, dead: &[NodeId]) -> Vec<DamagedStripe> {
    let code = kintsu_code::parse(name).unwrap();
    let layout = layout(LayoutKind::Striped, 64, code.w(), 16, 1024 * code.k() as u64);
    let lost_of = |id| {
        let mut view = stripe(&code, layout, topology, id);
        let gone = |home: &Option<NodeId>| home.is_some_and(|node| dead.contains(&node));
        let lost: Vec<_> =
            (0..code.n()).filter(|&i| gone(&view.homes[i])).map(|i| BlockIndex(i as u8)).collect();
        lost.iter().for_each(|b| view.homes[usize::from(b.0)] = None);
        DamagedStripe { view, lost, barred: BTreeSet::new() }
    };
    (0..stripes).map(lost_of).filter(|w| !w.lost.is_empty()).collect()
}

/// The topology when these nodes are dead.
pub fn without(mut topology: Topology, dead: &[NodeId]) -> Topology {
    for node in dead {
        topology.nodes.get_mut(node).unwrap().usable = false;
    }
    topology
}

/// The first stripe of an object of `size` bytes, placed.
pub fn stripe(code: &Arc<dyn Code>, layout: Layout, topology: &Topology, id: u64) -> StripeView {
    let homes = place(code.as_ref(), &layout, topology, id).unwrap().homes;
    StripeView { id: StripeId(id), code: code.clone(), layout, homes }
}

/// A layout of one stripe with blocks of at most `rows` cells.
pub fn layout(kind: LayoutKind, cell_bytes: u32, w: usize, rows: u64, data_bytes: u64) -> Layout {
    Layout { kind, block_bytes: u64::from(cell_bytes) * rows, cell_bytes, w: w as u16, data_bytes }
}

/// All n blocks at their true lengths, straight from the object and the generator matrix.
pub fn blocks(view: &StripeView, object: &[u8]) -> Vec<Vec<u8>> {
    let (k, n) = (view.code.k(), view.code.n());
    let mut blocks = vec![vec![0; view.layout.longest(k) as usize]; n];
    for extent in view.layout.locate(k, 0..object.len() as u64) {
        let (from, to) = (extent.object_range, extent.block_range);
        blocks[extent.block.0 as usize][to.start as usize..to.end as usize]
            .copy_from_slice(&object[from.start as usize..from.end as usize]);
    }
    let (w, longest) = (view.code.w(), view.layout.longest(k) as usize);
    let cell = if w == 1 { longest.max(1) } else { view.layout.cell_bytes as usize };
    for start in (0..longest).step_by(cell) {
        let part = cell.min(longest - start) / w;
        for (parity, data) in (k * w..n * w).flat_map(|parity| (0..k * w).map(move |data| (parity, data))) {
            let coef = view.code.generator().row(parity)[data];
            let (left, right) = blocks.split_at_mut(parity / w);
            let right = &mut right[0][start + parity % w * part..][..part];
            right
                .iter_mut()
                .zip(&left[data / w][start + data % w * part..])
                .for_each(|(p, d)| *p ^= mul(coef, *d));
        }
    }
    for (i, block) in blocks.iter_mut().enumerate() {
        block.truncate(view.block_len(BlockIndex(i as u8)) as usize);
    }
    blocks
}

/// Programs of a plan with this window and slice.
pub fn programs(plan: &Plan, view: &StripeView, window: (u64, u64), slice_bytes: u32) -> Vec<Program> {
    let address = |node: NodeId| Some(SocketAddr::from(([127, 0, 0, 1], 1000 + node.0 as u16)));
    let context = ProgramContext {
        generations: &[],
        job: RunId(7),
        view,
        generation: 3,
        window,
        slice_bytes,
        expect: &[],
        label: &[],
        peers: &address,
        resume_key: 0,
    };
    plan.programs(&context).unwrap()
}

/// The blocks on all nodes, what the client writes and what it gets.
#[derive(Debug, Default, Clone)]
pub struct Machine {
    pub disks: BTreeMap<(NodeId, BlockIndex), Vec<u8>>,
    /// What is loaded instead of blocks in an update.
    pub deltas: BTreeMap<(NodeId, BlockIndex), Vec<u8>>,
    pub object: Vec<Vec<u8>>,
    pub returned: BTreeMap<BlockIndex, Vec<u8>>,
    /// Bytes read from disks and bytes sent.
    pub read: u64,
    pub sent: u64,
}

/// What has been sent from one node to another and not fetched yet.
type Streams = BTreeMap<(NodeId, NodeId), VecDeque<(Vertex, Vec<u8>)>>;

struct Runner<'a> {
    program: &'a Program,
    next: usize,
    sent: usize,
    present: BTreeMap<Vertex, Vec<u8>>,
}

impl Machine {
    /// All blocks of the stripe at their homes.
    pub fn with(view: &StripeView, blocks: &[Vec<u8>]) -> Self {
        let homes = view.homes.iter().enumerate();
        let disks =
            homes.filter_map(|(i, home)| Some(((*home.as_ref()?, BlockIndex(i as u8)), blocks[i].clone())));
        Self { disks: disks.collect(), ..Self::default() }
    }

    /// Runs all programs; panics when one waits for ever or finds no input.
    pub fn run(&mut self, programs: &[Program]) {
        let lanes: std::collections::BTreeSet<u16> = programs.iter().map(|p| p.lane).collect();
        for lane in lanes {
            let lane: Vec<_> = programs.iter().filter(|p| p.lane == lane).collect();
            assert!(lane.iter().all(|p| p.window == lane[0].window));
            for step in lane[0].window.steps() {
                self.step(&lane, step);
            }
        }
    }

    fn step(&mut self, lane: &[&Program], step: std::ops::Range<u64>) {
        let mut streams = Streams::new();
        let mut runners: Vec<_> = lane
            .iter()
            .map(|&program| Runner { program, next: 0, sent: 0, present: BTreeMap::new() })
            .collect();
        loop {
            let mut moved = false;
            for runner in &mut runners {
                while runner.next < runner.program.tasks.len() && self.task(runner, &step, &mut streams) {
                    runner.next += 1;
                    moved = true;
                }
                while let Some((vertex, to)) = runner.program.sends.get(runner.sent) {
                    let Some(bytes) = runner.present.get(vertex) else { break };
                    self.sent += bytes.len() as u64;
                    streams
                        .entry((runner.program.node, *to))
                        .or_default()
                        .push_back((*vertex, bytes.clone()));
                    runner.sent += 1;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        for runner in &runners {
            let program = runner.program;
            assert_eq!(
                (runner.next, runner.sent),
                (program.tasks.len(), program.sends.len()),
                "stuck: {program:?}"
            );
        }
        assert!(streams.values().all(VecDeque::is_empty), "sent and never fetched");
    }

    /// Runs the next task if its input is there.
    fn task(&mut self, runner: &mut Runner<'_>, step: &std::ops::Range<u64>, streams: &mut Streams) -> bool {
        let program = runner.program;
        let w = u64::from(program.window.w);
        let size = (step.end - step.start) / w;
        let place = |vertex: Vertex| {
            let binding = program.blocks.iter().find(|b| u64::from(b.index.0) == u64::from(vertex.0) / w);
            let binding = binding.expect("every block touched is bound");
            let from = step.start + u64::from(vertex.0) % w * size;
            (binding.index, (from.min(binding.len) as usize, (from + size).min(binding.len) as usize))
        };
        match &program.tasks[runner.next] {
            Task::Load { vertex } => {
                let (index, (from, to)) = place(*vertex);
                let source = match program.node.is_client() {
                    true => &self.object[index.0 as usize],
                    false => {
                        let delta = self.deltas.get(&(program.node, index));
                        delta.unwrap_or_else(|| &self.disks[&(program.node, index)])
                    }
                };
                let mut bytes = source[from..to].to_vec();
                self.read += if program.node.is_client() { 0 } else { bytes.len() as u64 };
                bytes.resize(size as usize, 0);
                assert!(runner.present.insert(*vertex, bytes).is_none(), "loaded twice");
            }
            Task::Fetch { vertex, from } => {
                assert!(from.is_client() || program.peers.iter().any(|peer| peer.node == *from));
                let stream = streams.entry((*from, program.node)).or_default();
                let Some((sent, bytes)) = stream.pop_front() else { return false };
                assert_eq!(sent, *vertex, "streams are in order");
                assert!(runner.present.insert(*vertex, bytes).is_none(), "fetched twice");
            }
            Task::Compute { outputs, inputs, coefs } => {
                let rows = coefs.chunks(inputs.len());
                assert_eq!(rows.len(), outputs.len());
                let sums: Vec<Vec<u8>> = rows
                    .map(|row| {
                        let mut sum = vec![0; size as usize];
                        for (coef, input) in row.iter().zip(inputs) {
                            let input = &runner.present[input];
                            sum.iter_mut().zip(input).for_each(|(s, i)| *s ^= mul(*coef, *i));
                        }
                        sum
                    })
                    .collect();
                runner.present.extend(outputs.iter().copied().zip(sums));
            }
            Task::Persist { vertex, sink } => {
                let (index, (from, to)) = place(*vertex);
                let target = match sink {
                    Sink::Client => self.returned.entry(index).or_default(),
                    Sink::Block => self.disks.entry((program.node, index)).or_default(),
                    Sink::BlockXor => {
                        let stored =
                            self.disks.get_mut(&(program.node, index)).expect("there is a block to add to");
                        let added = stored[from..to].iter_mut().zip(&runner.present[vertex]);
                        added.for_each(|(byte, delta)| *byte ^= delta);
                        return true;
                    }
                    Sink::Nothing | Sink::Compare => panic!("no plan here measures or compares"),
                };
                assert_eq!(*sink == Sink::Client, program.node.is_client());
                if target.len() < to {
                    target.resize(to, 0xEE);
                }
                target[from..to].copy_from_slice(&runner.present[vertex][..to - from]);
            }
        }
        true
    }
}
