//! Repairs whose helpers are killed, cut off or slowed down when about half of the work is done: the repairs
//! finish without these helpers and continue where they were, instead of moving everything again.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

#[allow(dead_code)] // other suites use the rest of it
use crate::lab;

use std::num::NonZeroU64;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_plan::Method;
use kintsu_wire::message::{Encoding, JobEvent, JobReport, Rates, RepairTarget};
use lab::Lab;

const BLOCK: u64 = 8 << 20;
/// Bytes per second of every link: a block takes more than a second.
const RATE: u64 = 6 << 20;
const K: u64 = 4;

/// Bytes that a link's sockets may have accepted without delivering them; they count as moved.
const ON_ITS_WAY: u64 = 6 << 20;

/// One stripe, one of its blocks lost, and the repair of that block about half done.
struct Half {
    lab: Lab,
    requestor: NodeId,
    /// The nodes that have sent data, in no particular order.
    helpers: Vec<NodeId>,
    repair: tokio::task::JoinHandle<JobReport>,
}

async fn half(method: Method) -> Half {
    let mut lab = Lab::with_links(8, 8).await;
    lab.put_in_blocks("a", (K * BLOCK) as usize, "rs:n=7,k=4", Encoding::Online, BLOCK).await;
    let stripe = lab.client.stripes("a", 0, 1).await.unwrap().stripes.remove(0);
    let homes: Vec<NodeId> = stripe.blocks.iter().flatten().map(|b| b.node).collect();
    lab.kill(homes[1].0).await;
    let requestor = (0..8).map(NodeId).find(|node| !homes.contains(node)).unwrap();
    let before: Vec<_> = homes.iter().map(|node| (*node, lab.net.bytes(*node).0)).collect();
    (0..8).for_each(|node| lab.net.set_rate(NodeId(node), RATE));
    let repair = lab.begin_repair(RepairTarget::Node(homes[1]), method).await;
    let got = lab.net.bytes(requestor).1;
    let want = match method {
        Method::Conventional => K * BLOCK / 2,
        _ => BLOCK / 2,
    };
    lab.until("half is done", async |lab| lab.net.bytes(requestor).1 - got >= want).await;
    let sent = |(node, before): &(NodeId, u64)| lab.net.bytes(*node).0 - before > BLOCK / 4;
    let helpers = before.iter().filter(|b| sent(b)).map(|(node, _)| *node).collect();
    Half { lab, requestor, helpers, repair }
}

impl Half {
    /// Checks that the repair finishes with the right bytes. Says if it did not avoid one of `culprits` first, or moved
    /// much twice.
    async fn finishes_around(self, culprits: &[NodeId]) -> Result<(), String> {
        let report = self.repair.await.unwrap();
        (0..8).for_each(|node| self.lab.net.set_rate(NodeId(node), 0));
        let judged = judge(&report, culprits);
        if judged.is_ok() {
            let view = self.lab.client.stripes("a", 0, 1).await.unwrap();
            let lost = view.stripes[0].blocks[1].as_ref().unwrap();
            assert_eq!(lost.node, self.requestor, "the requestor kept what it had");
        }
        self.lab.check_all().await;
        self.lab.stop().await;
        judged
    }
}

fn judge(report: &JobReport, culprits: &[NodeId]) -> Result<(), String> {
    let (first, once) = (report.around.first(), K * BLOCK);
    // In a chain, only the first nodes can be far ahead of the requestor.
    let edges = if report.method == Some(Method::Pipeline) { 2 } else { K };
    let most = once + edges * ON_ITS_WAY;
    let all = [
        (report.failed.is_empty() && report.blocks == 1, "it fails"),
        (first.is_some_and(|first| culprits.contains(&first.node)), "it avoids no node or another one first"),
        (first.is_some_and(|first| (BLOCK / 4 + 1..BLOCK).contains(&first.upto)), "it begins anew"),
        (report.bytes_moved >= once * 9 / 10, "bytes moved before the fault do not count"),
        (report.bytes_moved <= most, "too much is moved twice"),
        (report.bytes_read <= most, "too much is read twice"),
    ];
    match all.into_iter().find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, wrong)) => Err(format!("{wrong}: {report:?}")),
    }
}

/// Plays a scene until it goes as it should, three times at most. While the machine has no time for a node, a repair avoids
/// that one too.
async fn goes(scene: impl AsyncFn() -> Result<(), String>) {
    let mut told = Vec::new();
    for _ in 0..3 {
        match scene().await {
            Ok(()) => return,
            Err(why) => told.push(why),
        }
    }
    panic!("{told:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_helper_that_is_killed() {
    goes(async || {
        let mut half = half(Method::Pipeline).await;
        let victim = half.helpers[1];
        half.lab.strike(victim.0).await;
        half.finishes_around(&[victim]).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_helper_that_is_cut_off() {
    goes(async || {
        let half = half(Method::Pipeline).await;
        let victim = half.helpers[2];
        half.lab.net.cut(victim);
        half.finishes_around(&[victim]).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_helper_that_becomes_slow() {
    for method in [Method::Pipeline, Method::Conventional] {
        goes(async || {
            let half = half(method).await;
            let victim = half.helpers[1];
            half.lab.net.set_rate(victim, RATE / 20);
            // In a chain, a neighbour of the slow helper may be suspected first.
            let culprits = half.helpers.clone();
            half.finishes_around(&culprits).await
        })
        .await;
    }
}

/// ChameleonEC sends what is late along other trees, or postpones the repair.
#[tokio::test(flavor = "multi_thread")]
async fn a_helper_that_becomes_slow_while_many_stripes_are_planned_together() {
    goes(async || {
        let phase = Duration::from_secs(2);
        let mut lab = Lab::with_links_and(9, 9, |config| config.phase = phase).await;
        lab.put_in_blocks("a", 16 * (K * BLOCK / 4) as usize, "rs:n=7,k=4", Encoding::Online, BLOCK / 4)
            .await;
        let rate = NonZeroU64::new(RATE).unwrap();
        lab.client.set_rates(&Rates::even((0..9).map(NodeId), rate)).await.unwrap();
        lab.kill(0).await;
        (0..9).for_each(|node| lab.net.set_rate(NodeId(node), RATE));
        let target = RepairTarget::Node(NodeId(0));
        let mut job = lab.client.repair(target, Method::Chameleon, 16 << 10).await.unwrap();
        let (mut steps, mut moved) = (0, false);
        let report = loop {
            match job.next().await.unwrap() {
                Some(JobEvent::Progress { note, .. }) if steps == 0 => {
                    steps += u32::from(note.contains("late transmissions") || note.contains("postponed"));
                    if !std::mem::replace(&mut moved, true) {
                        [3, 6].iter().for_each(|node| lab.net.set_rate(NodeId(*node), RATE / 20));
                    }
                    if steps > 0 {
                        (0..9).for_each(|node| lab.net.set_rate(NodeId(node), 0));
                    }
                }
                Some(JobEvent::Ended(report)) => break report,
                Some(_) => {}
                None => panic!("the job ended without a report"),
            }
        };
        (0..9).for_each(|node| lab.net.set_rate(NodeId(node), 0));
        lab.check_all().await;
        lab.check_places().await;
        lab.stop().await;
        assert!(report.failed.is_empty() && report.blocks > 0, "{report:?}");
        if steps > 0 { Ok(()) } else { Err(format!("nothing was re-scheduled: {report:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requestor_that_is_cut_off_is_found_too() {
    goes(async || {
        let half = half(Method::Pipeline).await;
        half.lab.net.cut(half.requestor);
        // There is no other requestor: every other node has a block of the stripe.
        let report = half.repair.await.unwrap();
        let lab = half.lab;
        (0..8).for_each(|node| lab.net.set_rate(NodeId(node), 0));
        lab.check_all().await;
        lab.stop().await;
        let first = report.around.first().map(|around| around.node);
        let found = (report.blocks, report.failed.len(), first) == (0, 1, Some(half.requestor));
        if found { Ok(()) } else { Err(format!("{report:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_requestor_and_a_job_that_is_slow_as_a_whole_go_on() {
    let half = half(Method::Pipeline).await;
    (0..8).for_each(|node| half.lab.net.set_rate(NodeId(node), RATE / 5));
    let report = half.repair.await.unwrap();
    assert_eq!((report.blocks, report.failed.len()), (1, 0), "{report:?}");
    // The repair may replace a node that it suspects, but not often.
    assert!(report.around.len() <= 4, "{:?}", report.around);
    let lab = half.lab;
    (0..8).for_each(|node| lab.net.set_rate(NodeId(node), 0));
    lab.check_all().await;
    lab.stop().await;
}
