//! Codes with sub-blocks: objects of any length are read back, every block is repaired by every method, and a
//! conventional repair reads and moves exactly the bytes that its graph says.

use std::collections::BTreeSet;

use kintsu_client::{ClientError, PutOptions};
use kintsu_dag::{BlockIndex, Ecdag, Vertex};
use kintsu_plan::Method;
use kintsu_wire::message::{Encoding, NodeState, RepairTarget};

use crate::bytes::{assert_same, content};
use crate::cluster::{Cluster, options};

const METHODS: [Method; 3] = [Method::Conventional, Method::Ppr, Method::Pipeline];
const PAGE: usize = 4096;

/// Symbols that the graph reads, and vertices that leave a helper, counted once for each place that needs them.
fn theory(graph: &Ecdag) -> (u64, u64) {
    let home = |vertex: Vertex| {
        let mut at = vertex;
        while graph.joins().contains_key(&at) {
            match graph.binds_y().get(&at) {
                Some(child) => at = *child,
                None => return None,
            }
        }
        Some(at.0 / graph.w() as u32)
    };
    let mut moved = BTreeSet::new();
    for (parent, join) in graph.joins() {
        let to = home(*parent);
        moved.extend(join.children.iter().filter(|child| home(**child) != to).map(|child| (*child, to)));
    }
    (graph.leaves().len() as u64, moved.len() as u64)
}

/// An object of one stripe, and the index of its block on the node that will die.
struct Stored {
    name: String,
    data: Vec<u8>,
    lost: BlockIndex,
    method: Method,
    /// Whether its blocks are whole cells.
    whole: bool,
}

/// Stores objects, of whole cells and of odd lengths, online and offline, until there is one of either kind for
/// every block and method whose block is on `victim`.
async fn fill(cluster: &Cluster, code: &str, victim: u32) -> Vec<Stored> {
    let made = kintsu_code::parse(code).unwrap();
    let (n, k, cell) = (made.n(), made.k(), made.w() * PAGE);
    let client = cluster.client().await;
    let kinds =
        |b: u8| METHODS.into_iter().flat_map(move |m| [true, false].map(|whole| (b, m as usize, whole)));
    let mut missing: BTreeSet<_> = (0..n as u8).flat_map(kinds).collect();
    let mut stored = Vec::new();
    for i in 0.. {
        assert!(i < 1000, "{code}: no object for {missing:?}");
        if missing.is_empty() {
            break;
        }
        let whole = i % 2 == 0;
        let encoding = if i / 2 % 2 == 0 { Encoding::Online } else { Encoding::Offline };
        // Every data block has bytes, and the last cells are cut at odd places.
        let cut = if whole { 0 } else { 1 + i * 7919 % (cell - 1) };
        let data = content(i as u64, 2 * k * cell - cut);
        let name = format!("{code}-{i}");
        let sizes = (Some(2 * cell as u64), Some(cell as u32));
        let options = PutOptions { block_bytes: sizes.0, cell_bytes: sizes.1, ..options(code, encoding) };
        cluster.put(&name, &data, options).await.unwrap();
        let blocks = cluster.stripe(&name, 0).await.blocks;
        let lost = blocks.iter().position(|b| b.as_ref().is_some_and(|b| b.node.0 == victim));
        let lost = lost.map(|b| b as u8);
        let method =
            METHODS.into_iter().find(|m| lost.is_some_and(|b| missing.remove(&(b, *m as usize, whole))));
        let (Some(lost), Some(method)) = (lost, method) else {
            client.remove(&name).await.unwrap();
            continue;
        };
        if encoding == Encoding::Offline {
            let report = cluster.finish(client.encode(&name).await.unwrap()).await;
            assert_eq!(report.failed, Vec::<String>::new());
        }
        assert_same(&cluster.get(&name).await.unwrap(), &data);
        stored.push(Stored { name, data, lost: BlockIndex(lost), method, whole });
    }
    stored
}

async fn every_block_by_every_method(code: &str) {
    let made = kintsu_code::parse(code).unwrap();
    let nodes = made.n() as u32 + 1;
    let (mut cluster, victim) = (Cluster::start(nodes, nodes).await, 1);
    let stored = fill(&cluster, code, victim).await;
    let before = cluster.all_blocks().await;
    cluster.kill(victim).await;
    cluster.until_state(victim, NodeState::Dead).await;
    let client = cluster.client().await;
    for Stored { name, data, lost, method, whole } in &stored {
        assert_same(&cluster.get(name).await.unwrap(), data);
        let len = data.len() as u64;
        for range in [0..1, len / 3..len / 3 + 5000, len - 4097..len] {
            let expected = &data[range.start as usize..range.end as usize];
            assert_same(&cluster.get_range(name, range).await.unwrap(), expected);
        }
        let target = RepairTarget::Object(name.clone());
        let report = cluster.finish(client.repair(target, *method, 1 << 16).await.unwrap()).await;
        assert_eq!((report.blocks, report.failed.len()), (1, 0), "{name}: {report:?}");
        assert_same(&cluster.get(name).await.unwrap(), data);
        if *whole && *method == Method::Conventional {
            let others: Vec<_> = (0..made.n() as u8).map(BlockIndex).filter(|b| b != lost).collect();
            let (read, moved) = theory(&made.decode(&others, &[*lost]).unwrap());
            // A block is two cells, a cell is a page for each sub-block.
            let bytes = |symbols: u64| symbols * 2 * PAGE as u64;
            assert_eq!((report.bytes_read, report.bytes_moved), (bytes(read), bytes(moved)), "{name} {lost}");
            // Every node has a rack of its own.
            assert_eq!(report.bytes_across_racks, bytes(moved), "{name} {lost}");
        }
    }
    let now = cluster.all_blocks().await;
    assert!(before.iter().all(|(id, (_, bytes))| now[id].1 == *bytes), "the same files, elsewhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn miser() {
    every_block_by_every_method("miser:n=4,k=2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hitchhiker() {
    every_block_by_every_method("hitchhiker-xor:n=5,k=3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn butterfly() {
    every_block_by_every_method("butterfly:n=5,k=3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clay() {
    every_block_by_every_method("clay:n=6,k=4,d=5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_follow_the_code_and_those_that_do_not_fit_are_refused() {
    let cluster = Cluster::start(7, 7).await;
    let code = "miser:n=6,k=3";
    for (i, size) in [1, 2, 5, 12_287, 12_289, 400_001].into_iter().enumerate() {
        for encoding in [Encoding::Online, Encoding::Offline] {
            let (name, data) = (format!("{encoding:?}-{size}"), content(i as u64, size));
            let free = PutOptions { encoding, ..PutOptions::new(code) };
            cluster.put(&name, &data, free).await.unwrap();
            let layout = cluster.stripe(&name, 0).await.layout;
            assert_eq!((layout.w, layout.cell_bytes), (3, 11 * 3 * 4096));
            if encoding == Encoding::Offline {
                let client = cluster.client().await;
                let report = cluster.finish(client.encode(&name).await.unwrap()).await;
                assert_eq!(report.failed, Vec::<String>::new());
            }
            assert_same(&cluster.get(&name).await.unwrap(), &data);
        }
    }
    for (block, cell, fits) in [(None, Some(16 << 10), "24576"), (Some(100_000), Some(12_288), "110592")] {
        let bad = PutOptions { block_bytes: block, cell_bytes: cell, ..PutOptions::new(code) };
        match cluster.put("bad", b"abc", bad).await {
            Err(ClientError::Invalid(text)) => assert!(text.contains(fits), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}

/// Graphs of thousands of computations; a step is one MiB of each block, in pages.
#[tokio::test(flavor = "multi_thread")]
async fn clay_of_256_sub_blocks() {
    let code = "clay:n=14,k=10,d=13";
    let mut cluster = Cluster::start(15, 15).await;
    let client = cluster.client().await;
    let data = content(3, 20 << 20);
    cluster.put("o", &data, PutOptions::new(code)).await.unwrap();
    assert_same(&cluster.get("o").await.unwrap(), &data);
    let longest = (cluster.stripe("o", 0).await.layout).longest(10);
    for (index, method) in [(0, Method::Conventional), (9, Method::Pipeline), (12, Method::Ppr)] {
        let home = cluster.home("o", 0, index).await;
        cluster.kill(home).await;
        cluster.until_state(home, NodeState::Dead).await;
        assert_same(&cluster.get("o").await.unwrap(), &data);
        let jobs = client.repair(RepairTarget::Object("o".into()), method, 1 << 16).await.unwrap();
        let report = cluster.finish(jobs).await;
        assert_eq!((report.blocks, report.failed.len()), (1, 0), "{report:?}");
        assert_same(&cluster.get("o").await.unwrap(), &data);
        if method == Method::Conventional {
            let quarters = 13 * longest / 4;
            assert_eq!((report.bytes_read, report.bytes_moved), (quarters, quarters), "of each of 13 blocks");
        }
        cluster.start_node(home).await;
    }
}
