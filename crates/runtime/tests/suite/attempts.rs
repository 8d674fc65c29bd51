//! Attempts that end early: what they leave behind, and how the next one goes on.
#![allow(clippy::unwrap_used)]

use crate::support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockIndex, NodeId, Sink};
use kintsu_plan::{BlockBinding, LayoutKind, Method, Plan, Program, Repair, repair};
use kintsu_runtime::{BlockSource, Local, Output, run};
use kintsu_store::UNIT_BYTES;
use kintsu_wire::message::{Fault, FaultKind, RunOutcome, Standing};
use support::{Site, run_all, within};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const SLICE: u32 = 8192;
const BLOCK: usize = 4_000_000;

async fn site() -> (Site, Plan, NodeId) {
    let mut site = Site::new("rs:n=6,k=4", LayoutKind::Contiguous, BLOCK, 0).await;
    site.store([0, 2, 3, 4, 5]);
    let requestor = site.spare(0);
    site.view.homes[1] = None;
    let wanted = Repair { lost: vec![BlockIndex(1)], requestors: vec![requestor], method: Method::Pipeline };
    let plan = repair(&site.view, &site.topology, &wanted, &|_| 0, &[]).unwrap().plan;
    (site, plan, requestor)
}

/// A disk that reads beyond `gate` only after `open`.
struct Gated {
    local: Arc<dyn Local>,
    gate: u64,
    open: CancellationToken,
}

struct GatedSource(Box<dyn BlockSource>, u64, CancellationToken);

impl Local for Gated {
    fn open(&self, binding: &BlockBinding) -> Result<Box<dyn BlockSource>, Fault> {
        Ok(Box::new(GatedSource(self.local.open(binding)?, self.gate, self.open.clone())))
    }

    fn create(&self, binding: &BlockBinding, sink: Sink, key: u64, start: u64) -> Result<Output, Fault> {
        self.local.create(binding, sink, key, start)
    }
}

impl BlockSource for GatedSource {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        while offset >= self.1 && !self.2.is_cancelled() {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.0.read_at(offset, buf)
    }
}

/// A helper reads nothing from here on before it may: what it has read at a time then does not reach the end of the block.
const LAST_GATE: u64 = BLOCK as u64 - 600_000;

/// Runs the programs, and cancels those of `victim` when the requestor is done up to `when`. A gated helper keeps
/// it from getting much further, however late the cancellation comes, until the requestor's run has ended.
async fn cancelled_at(
    site: &Site,
    programs: &[Program],
    requestor: NodeId,
    victim: NodeId,
    when: u64,
) -> BTreeMap<NodeId, RunOutcome> {
    let (progress, mut seen) = watch::channel(Standing::default());
    let (cancel, open) = (CancellationToken::new(), CancellationToken::new());
    // The gate opens at the latest when this ends, also by a timeout.
    let _open = open.clone().drop_guard();
    let helper = programs.iter().map(|p| p.node).find(|node| *node != requestor);
    let context = |node: NodeId| {
        let mut context = site.context(node);
        if node == requestor {
            context.progress = Some(progress.clone());
        }
        if node == victim {
            context.cancel = cancel.clone();
        }
        if Some(node) == helper {
            let (local, gate, open) = (context.local, LAST_GATE.min(when + 2_000_000), open.clone());
            context.local = Arc::new(Gated { local, gate, open });
        }
        context
    };
    let cancelling = async {
        let _ = seen.wait_for(|standing| standing.upto >= when).await;
        cancel.cancel();
    };
    let (own, others): (Vec<_>, Vec<_>) = programs.iter().cloned().partition(|p| p.node == requestor);
    let receiving = async {
        let outcomes = run_all(&own, context, &[]).await;
        open.cancel();
        outcomes
    };
    let all = async { tokio::join!(receiving, run_all(&others, context, &[]), cancelling) };
    let (mut outcomes, of_others, ()) = within(all).await;
    outcomes.extend(of_others);
    outcomes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_attempt_goes_on_where_an_earlier_one_ended() {
    let (mut site, plan, requestor) = site().await;
    site.resume_key = 99;
    let (mut start, mut read) = (0, 0);
    for attempt in 1..=3u64 {
        let programs = site.programs(&plan, (start, u64::MAX), SLICE);
        let victim = programs.iter().map(|p| p.node).find(|node| *node != requestor).unwrap();
        let outcomes = cancelled_at(&site, &programs, requestor, victim, attempt * 600_000).await;
        let outcome = &outcomes[&requestor];
        assert_eq!(outcome.fault.as_ref().unwrap().kind, FaultKind::Aborted, "{outcome:?}");
        assert!(outcome.upto >= attempt * 600_000 && outcome.upto < BLOCK as u64, "{outcome:?}");
        assert_eq!((outcome.upto - start) % u64::from(SLICE), 0);
        assert!(!site.has(requestor, 1));
        assert_eq!(site.left_over().len(), 1, "the unfinished block is kept");
        start = outcome.upto;
        read += outcomes.values().map(|outcome| outcome.bytes_read).sum::<u64>();
    }
    let last = site.succeed(&site.programs(&plan, (start, u64::MAX), SLICE), None).await;
    assert_eq!(site.read(requestor, 1), site.blocks[1]);
    let last: u64 = last.values().map(|outcome| outcome.bytes_read).sum();
    let unit = start / UNIT_BYTES as u64 * UNIT_BYTES as u64;
    assert_eq!(last, 4 * (BLOCK as u64 - unit), "only what was left is read, and the units that it is in");
    assert!(read > 0);
    assert!(site.left_over().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_that_were_ahead_do_not_write_twice() {
    let (mut site, plan, requestor) = site().await;
    site.resume_key = 5;
    let lanes = Plan::new(vec![plan.lanes[0].clone(), plan.lanes[0].clone(), plan.lanes[0].clone()]);
    // In whole units: else the lanes of a helper read one after the other, and all wait for the one that is at the gate.
    let programs = site.programs(&lanes, (0, u64::MAX), UNIT_BYTES as u32);
    let victim = programs.iter().map(|p| p.node).find(|node| *node != requestor).unwrap();
    let outcomes = cancelled_at(&site, &programs, requestor, victim, 1_000_000).await;
    let upto = outcomes[&requestor].upto;
    assert!((1_000_000..BLOCK as u64).contains(&upto));
    site.succeed(&site.programs(&lanes, (upto, u64::MAX), SLICE), None).await;
    assert_eq!(site.read(requestor, 1), site.blocks[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_attempt_under_the_same_key_begins_anew_and_a_stranger_cannot_go_on() {
    let (mut site, plan, requestor) = site().await;
    site.resume_key = 7;
    let programs = site.programs(&plan, (0, u64::MAX), SLICE);
    let outcomes = cancelled_at(&site, &programs, requestor, requestor, 500_000).await;
    let upto = outcomes[&requestor].upto;
    site.resume_key = 8;
    let stranger = site.run(&site.programs(&plan, (upto, u64::MAX), SLICE), None, &[]).await;
    let fault = stranger[&requestor].fault.clone().unwrap();
    assert_eq!((fault.kind, fault.node), (FaultKind::Invalid, requestor), "{fault}");
    assert!(fault.detail.contains("got none"), "{fault}");
    // Another key, from the start: what was kept is thrown away.
    site.succeed(&site.programs(&plan, (0, u64::MAX), SLICE), None).await;
    assert_eq!(site.read(requestor, 1), site.blocks[1]);
    assert!(site.left_over().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_run_leaves_nothing() {
    let (site, plan, requestor) = site().await;
    for when in [0, 1, 300_000, 2_000_000] {
        let programs = site.programs(&plan, (0, u64::MAX), SLICE);
        let outcomes = cancelled_at(&site, &programs, requestor, requestor, when).await;
        assert_eq!(outcomes[&requestor].fault.as_ref().unwrap().kind, FaultKind::Aborted);
        assert!(!site.has(requestor, 1));
        assert!(site.left_over().is_empty(), "{:?}", site.left_over());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_programs_are_no_work() {
    let (site, ..) = site().await;
    let outcome = within(run(&[], site.context(NodeId(0)))).await;
    assert_eq!((outcome.fault, outcome.written.len()), (None, 0));
}
