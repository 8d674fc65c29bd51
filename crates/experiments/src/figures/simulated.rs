//! Plays the plans of measured repairs, copies and recoveries of nodes in the simulator, on the links of the lab.
//!
//! A [`Trial`] keeps the inputs of a repetition's plan. So the repetition can be planned and played again without
//! a lab, long after it was measured: recorded results check the simulator and the planners against old
//! measurements. The repairs of a node's blocks are assigned, ordered and planned as the coordinator does it, and played
//! as flows ([`recovered`]).
//!
//! What links carry follows from the protocols and from the lab's token buckets. What the machine needs besides is three
//! constants, the same for every method, network and block size; `docs/simulator.md` says what they were measured by.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use kintsu_coordinator::Config;
use kintsu_coordinator::engine::repair::{fit_together, loads};
use kintsu_dag::{BlockIndex, NodeId, StripeId};
use kintsu_lab::{Shape, Spec, WIRE};
use kintsu_plan::{
    Account, DamagedStripe, Layout, Method, Plan, Recovery, Repair, RunMode, Shares, StripeView, Topology,
    copy, repair,
};
use kintsu_sim::fluid::{Limits, play};
use kintsu_sim::{Grain, Network, Overheads, RepairModel, simulate_on};
use kintsu_wire::frame::HEADER_BYTES;
use serde::{Deserialize, Serialize};

use super::declare::{Case, Recover, Work};
use super::single::slice_bytes;
use super::site::parse;
use crate::error::Result;

/// Seconds that every repair and copy takes besides its bytes: it is planned, and its block is digested, made durable and
/// reported.
const START_SECONDS: f64 = 0.001;

/// Seconds for each node that takes part: its program is sent, started and answered, a block opened, a connection made.
/// The hosts share the processors of one machine, so these add up.
const NODE_SECONDS: f64 = 0.000_65;

/// What nodes handle of blocks that are sent on whole, in bytes a second: each is read, checked, combined and copied while
/// no link of its path moves anything. These add up too.
const WHOLE_BYTES_A_SECOND: f64 = 2e9;

/// The overheads of slices in a lab.
pub fn overheads() -> Overheads {
    Overheads {
        wire: WIRE,
        frame_bytes: HEADER_BYTES as f64,
        start_seconds: START_SECONDS,
        ..Overheads::default()
    }
}

/// The inputs of a repetition's plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The stripe.
    pub stripe: StripeId,
    /// The layout of its blocks.
    pub layout: Layout,
    /// The homes of its blocks, including those that counted as lost.
    pub homes: Vec<Option<NodeId>>,
    /// The blocks that were repaired or copied, and where to.
    pub goals: Vec<(BlockIndex, NodeId)>,
    /// Bytes in a step of the programs.
    pub step_bytes: u32,
}

impl Trial {
    /// Plans the case again for this stripe and plays it on the links of `spec`, the (scaled) links of the lab.
    /// Returns seconds; `None` where the simulator does not play such work.
    ///
    /// # Errors
    /// When it cannot be planned or played.
    pub fn simulate(&self, spec: &Spec, case: &Case) -> Result<Option<f64>> {
        let (method, run_mode) = match case.work {
            Work::Direct => (None, RunMode::Streamed),
            Work::Repair { method, run_mode, .. } => (Some(method), run_mode),
            _ => return Ok(None),
        };
        let view = StripeView {
            id: self.stripe,
            code: parse(&case.code)?,
            layout: self.layout,
            homes: self.homes.clone(),
        };
        let topology = links(spec);
        let plan = Plan { run_mode, ..planned(&view, &topology, &self.goals, method)? };
        Ok(Some(played(&plan, &topology, &view, self.step_bytes)?))
    }
}

/// The nodes of a lab and the rates of their links, headers included, as experiments plan with them.
fn links(spec: &Spec) -> Topology {
    Topology { rates: spec.rates(), ..spec.topology() }
}

/// The plan that repairs these blocks by a method or, if no method is given, copies the first of them.
///
/// # Errors
/// When there is none.
pub fn planned(
    view: &StripeView,
    topology: &Topology,
    goals: &[(BlockIndex, NodeId)],
    method: Option<Method>,
) -> Result<Plan> {
    match (method, goals) {
        (None, [(block, to)]) => Ok(copy(view, *block, *to)?),
        _ => {
            let (lost, requestors): (Vec<_>, Vec<_>) = goals.iter().copied().unzip();
            let mut view = view.clone();
            lost.iter().for_each(|block| view.homes[usize::from(block.0)] = None);
            let wanted = Repair { lost, requestors, method: method.unwrap_or_default() };
            Ok(repair(&view, topology, &wanted, &|_| 0, &[])?.plan)
        }
    }
}

/// The simulator's time of a plan in a lab whose links are shaped as usual, in seconds.
///
/// # Errors
/// When it cannot be played.
pub fn played(plan: &Plan, topology: &Topology, view: &StripeView, step_bytes: u32) -> Result<f64> {
    let block_bytes = view.layout.longest(view.code.k());
    let account = Account::of(plan, topology, block_bytes)?;
    let nodes: BTreeSet<&NodeId> = account.sent.keys().chain(account.received.keys()).collect();
    let whole = match plan.run_mode {
        RunMode::WholeBlocks => account.bytes_moved as f64 / WHOLE_BYTES_A_SECOND,
        RunMode::Streamed | RunMode::Serial => 0.0,
    };
    let start_seconds = START_SECONDS + NODE_SECONDS * nodes.len() as f64 + whole;
    let overheads = Overheads { start_seconds, ..overheads() };
    let burst = |rate: f64| Shape::default().burst_bytes((8.0 * rate) as u64) as f64;
    let network = Network::new(topology, &overheads).with_bursts(burst);
    Ok(simulate_on(&network, plan, topology, block_bytes, step_bytes.into(), &overheads)?.seconds)
}

/// The simulator's time in which the blocks of a node are repaired, in seconds. `damaged` has the stripes that lost one;
/// in `topology` only requestors are usable. `None` where the simulator does not play such work: nodes that do one task
/// after the other, and repairs that wait for room on links.
///
/// # Errors
/// When a stripe cannot be planned or played.
pub fn recovered(
    case: &Case,
    recover: &Recover,
    damaged: &[DamagedStripe],
    topology: &Topology,
) -> Result<Option<f64>> {
    let method = recover.method.given(&topology.rates);
    let Some((mut recovery, order)) = assigned(recover, method, damaged, topology) else { return Ok(None) };
    let overheads = overheads();
    let network = Network::new(topology, &overheads);
    let (mut jobs, mut begun) = (Vec::with_capacity(damaged.len()), 0.0);
    for DamagedStripe { view, lost, .. } in order {
        let requestors = recovery.requestors(view, topology, lost)?;
        let wanted = Repair { lost: lost.clone(), requestors, method };
        let plan = recovery.assign(view, topology, &wanted, &[])?.plan;
        recovery.release(view.id);
        let Some(grain) = grain(&plan, view, slice_bytes(case.slice))? else { return Ok(None) };
        let block_bytes = view.layout.longest(view.code.k());
        let mut job = RepairModel::of(&plan, &network, topology, block_bytes, grain, &overheads)?;
        // Those that begin at the same time are started one after the other.
        let before = if recover.per_node == 0 { begun } else { 0.0 };
        begun = before + NODE_SECONDS * job.nodes.len() as f64;
        for step in &mut job.steps {
            if step.waits.is_empty() {
                step.delay += begun;
            }
            if grain == Grain::Blocks {
                step.delay += block_bytes as f64 / WHOLE_BYTES_A_SECOND;
            }
        }
        jobs.push(job);
    }
    let per_node = Some(recover.per_node as usize).filter(|most| *most > 0);
    let limits = Limits { at_once: usize::MAX, per_node, tolerance: 0.0 };
    Ok(Some(play(&network, jobs.into_iter().map(Ok), &limits, &mut |_| {})?.seconds))
}

/// The stripes in the order in which the coordinator's queue starts them, and what it assigned to them. `None` if some
/// of them wait because links have enough to carry.
fn assigned<'a>(
    recover: &Recover,
    method: Method,
    damaged: &'a [DamagedStripe],
    topology: &Topology,
) -> Option<(Recovery, Vec<&'a DamagedStripe>)> {
    let mut recovery = Recovery::new();
    let scene = kintsu_plan::many::Scene::of(topology);
    let mut assigned = recovery.window(recover.schedule, method, &mut Shares::default(), &scene, damaged);
    let on_links = damaged.iter().zip(&assigned).filter_map(|(stripe, assigned)| {
        let relayed = method.row().helpers_receive && stripe.view.code.w() == 1;
        let bytes = |block| stripe.view.block_len(block);
        Some(loads(topology, relayed, assigned.as_ref().ok()?, &bytes))
    });
    let on_links: Vec<_> = on_links.collect();
    let usual = Config::new("", (Ipv4Addr::LOCALHOST, 0).into());
    let together =
        on_links.len() <= usual.repairs && fit_together(&topology.rates, usual.repairs_per_link, &on_links);
    if !together {
        if recover.per_node == 0 {
            return None;
        }
        // Those that wait for others cannot end with them.
        assigned.iter_mut().flatten().for_each(|assignment| assignment.rate = None);
        recovery.keep(assigned.iter().flatten());
    }
    let turn = |at: usize| assigned[at].as_ref().ok().map(|assignment| assignment.turn);
    let mut order: Vec<usize> = (0..damaged.len()).collect();
    order.sort_by_key(|at| turn(*at));
    Some((recovery, order.into_iter().map(|at| &damaged[at]).collect()))
}

/// When nodes send on what they receive; `None` for those that do one task after the other.
fn grain(plan: &Plan, view: &StripeView, slice_bytes: u32) -> Result<Option<Grain>> {
    let block_bytes = view.layout.longest(view.code.k());
    let slice = match (plan.run_mode, view.code.w(), slice_bytes) {
        (RunMode::Serial, ..) => return Ok(None),
        (RunMode::WholeBlocks, ..) => block_bytes,
        (RunMode::Streamed, 1, 0) => plan.slice_bytes(block_bytes)?.into(),
        (RunMode::Streamed, 1, bytes) => bytes.into(),
        (RunMode::Streamed, ..) => view.layout.cell_bytes.into(),
    };
    Ok(Some(if slice < block_bytes { Grain::Slices(slice) } else { Grain::Blocks }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::catalog::build::{case, in_mode, one};
    use crate::figures::declare::Slice;
    use kintsu_lab::Rate;
    use kintsu_plan::{LayoutKind, Schedule};
    use kintsu_wire::message::Requestors;

    const BLOCK: u64 = 4 << 20;
    /// 80 Mb/s.
    const RATE: f64 = 1e7;
    /// A block in slices of 32 KiB with a head each, in Ethernet frames.
    const FRAMES: f64 = (BLOCK as f64 + 128.0 * 36.0) * 9014.0 / 8948.0;
    /// What such a link passes at once.
    const BURST: f64 = 65536.0;

    fn spec(nodes: u32) -> Spec {
        Spec::even(nodes, 1, Some(Rate::mbps(80.0).unwrap()))
    }

    fn trial() -> Trial {
        Trial {
            stripe: StripeId(1),
            layout: Layout {
                kind: LayoutKind::Striped,
                block_bytes: BLOCK,
                cell_bytes: 64 << 10,
                w: 1,
                data_bytes: 10 * BLOCK,
            },
            homes: (0..14).map(|node| Some(NodeId(node))).collect(),
            goals: vec![(BlockIndex(3), NodeId(16))],
            step_bytes: 32 << 10,
        }
    }

    fn seconds(work: Work) -> Option<f64> {
        trial().simulate(&spec(17), &case("", "", BLOCK, work).slice(Slice::Auto)).unwrap()
    }

    fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-6, "expected {expected}, got {got}");
    }

    #[test]
    fn what_is_played_takes_its_frames_by_the_rate_of_the_busiest_link_and_its_start() {
        let start = |nodes: f64| START_SECONDS + nodes * NODE_SECONDS;
        close(seconds(Work::Direct).unwrap(), start(2.0) + (FRAMES - BURST) / RATE);
        let star = seconds(one(Method::Conventional)).unwrap();
        close(star, start(11.0) + (10.0 * FRAMES - BURST) / RATE);
        // The first slices pass all hops at once.
        close(seconds(one(Method::Pipeline)).unwrap(), start(11.0) + (FRAMES - BURST) / RATE);
        // Ten hops, one block in one frame each, which ten nodes handle.
        let frame = (BLOCK as f64 + 36.0) * 9014.0 / 8948.0;
        let handled = 10.0 * BLOCK as f64 / WHOLE_BYTES_A_SECOND;
        let whole = seconds(in_mode(Method::Flat, RunMode::WholeBlocks)).unwrap();
        close(whole, start(11.0) + handled + 10.0 * (frame - BURST) / RATE);
    }

    #[test]
    fn what_the_simulator_does_not_play_has_no_time() {
        assert_eq!(seconds(Work::Write), None);
    }

    /// The stripes of 16 nodes that lost a block with the first node.
    fn damaged() -> Vec<DamagedStripe> {
        let code = parse("rs:n=14,k=10").unwrap();
        let on = |id: u32| {
            let mut homes: Vec<_> = (0..14).map(|block| Some(NodeId((id + block) % 16))).collect();
            let lost = homes.iter().position(|home| *home == Some(NodeId(0)))?;
            homes[lost] = None;
            let view =
                StripeView { id: StripeId(id.into()), code: code.clone(), layout: trial().layout, homes };
            Some(DamagedStripe { view, lost: vec![BlockIndex(lost as u8)], barred: BTreeSet::new() })
        };
        (0..16).filter_map(on).collect()
    }

    fn node(method: Method, per_node: u32) -> Option<f64> {
        let recover = Recover {
            method,
            schedule: Schedule::Balanced,
            per_node,
            stripes: 16,
            requestors: Requestors::Any,
            told: true,
        };
        let case = case("", "", BLOCK, Work::Recover(recover.clone())).slice(Slice::Auto);
        recovered(&case, &recover, &damaged(), &links(&spec(16))).unwrap()
    }

    #[test]
    fn a_node_is_recovered_no_faster_than_links_allow_and_slower_where_few_repairs_run_at_once() {
        // Fourteen stripes, ten helpers each, of the fifteen nodes that still have blocks.
        let least = 14.0 * 10.0 * FRAMES / 15.0 / RATE;
        let auto = node(Method::Auto, 0).unwrap();
        assert!(auto > least && auto < 1.5 * least, "{auto} {least}");
        let alone = node(Method::Pipeline, 1).unwrap();
        // Two repairs of eleven nodes each have nodes in common, so one runs at a time.
        assert!(alone > 14.0 * FRAMES / RATE && alone > auto, "{alone} {auto}");
        assert_eq!(node(Method::PipeS, 0), None);
    }
}
