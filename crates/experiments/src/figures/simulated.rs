//! Plays the plan of a measured repair or copy in the simulator, on the links of the lab.
//!
//! A [`Trial`] keeps the inputs of a repetition's plan. So the repetition can be planned and played again without
//! a lab, long after it was measured: recorded results check the simulator and the planners against old
//! measurements.
//!
//! The overheads below are not fitted to the results. They come from the protocols and from one small repair, and
//! are the same for every method, topology and block size.

use kintsu_dag::{BlockIndex, NodeId, StripeId};
use kintsu_lab::{Spec, WIRE};
use kintsu_plan::{Layout, Method, Plan, Repair, RunMode, StripeView, Topology, copy, repair};
use kintsu_sim::{Overheads, simulate};
use kintsu_wire::frame::HEADER_BYTES;
use serde::{Deserialize, Serialize};

use super::declare::{Case, Work};
use super::site::parse;
use crate::error::Result;

/// The time from the conductor's start to the first slice, plus the time from the last slice to the end: programs
/// go to the agents, connections are made, the block is made durable, agents report.
const START_SECONDS: f64 = 0.010;

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

/// The simulator's time of a plan in a lab, in seconds.
///
/// # Errors
/// When it cannot be played.
pub fn played(plan: &Plan, topology: &Topology, view: &StripeView, step_bytes: u32) -> Result<f64> {
    let block_bytes = view.layout.longest(view.code.k());
    Ok(simulate(plan, topology, block_bytes, step_bytes.into(), &overheads())?.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::catalog::build::{case, one};
    use crate::figures::declare::Slice;
    use kintsu_plan::LayoutKind;

    const BLOCK: u64 = 4 << 20;

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
        let spec = Spec::even(17, 1, Some(kintsu_lab::Rate::mbps(80.0).unwrap()));
        trial().simulate(&spec, &case("", "", BLOCK, work).slice(Slice::Auto)).unwrap()
    }

    #[test]
    fn a_copy_takes_its_frames_by_the_rate_of_its_link() {
        // 128 slices with a head each, in Ethernet frames, at 10^7 bytes a second.
        let frames = (BLOCK as f64 + 128.0 * 36.0) * 9014.0 / 8948.0 / 1e7;
        let direct = seconds(Work::Direct).unwrap();
        assert!((direct - START_SECONDS - frames).abs() < 1e-9, "{direct} {frames}");
        let star = seconds(one(Method::Conventional)).unwrap();
        assert!((star - START_SECONDS - 10.0 * frames).abs() < 1e-6, "{star}");
    }

    #[test]
    fn what_the_simulator_does_not_play_has_no_time() {
        assert_eq!(seconds(Work::Write), None);
        assert!(seconds(one(Method::Pipeline)).unwrap() > seconds(Work::Direct).unwrap());
    }
}
