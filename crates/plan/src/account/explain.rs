//! A repair plan for people: its graph, the tasks of every node, and its cost.

use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, Drawing, NodeId, RackId, Sink, Task};
use serde::Serialize;

use crate::many::place_alone;
use crate::{Account, Comparison, Method, Plan, PlanError, Repair, StripeView, Topology, repair};

/// The tasks of one node in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeLines {
    /// The node.
    pub node: NodeId,
    /// Its rack; the client has none.
    pub rack: Option<RackId>,
    /// What it does with every slice, a line a task, then what it sends.
    pub tasks: Vec<String>,
}

/// How a repair would go.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// Name of the code.
    pub code: String,
    /// The shape.
    pub method: Method,
    /// The lost blocks.
    pub lost: Vec<BlockIndex>,
    /// The node that would get each of them.
    pub requestors: Vec<NodeId>,
    /// The blocks that would be read, in the order of the path.
    pub helpers: Vec<BlockIndex>,
    /// Whether it is proved that no path has a faster slowest link ([`crate::RepairPlan::path_is_best`]).
    pub path_is_best: Option<bool>,
    /// The placed graph, a line for each vertex.
    pub graph: String,
    /// Every node's part.
    pub nodes: Vec<NodeLines>,
    /// The cost in bytes.
    pub account: Account,
    /// Bytes of a slice, or of a cell where blocks have sub-blocks.
    pub slice_bytes: u32,
    /// Slices in the longest block.
    pub slices: u64,
    /// See [`Plan::rate_limit`].
    pub rate: Option<NonZeroU64>,
    /// Predicted timeslots when streamed in these slices, as Kintsu does.
    pub timeslots: f64,
    /// Predicted timeslots when a node sends a block on only after it has the whole block, as the papers assume
    /// for conventional repair and PPR.
    pub timeslots_whole_blocks: f64,
    /// How long every method would take at the known rates of the links; `None` where no rates are known.
    pub compared: Option<Comparison>,
    #[serde(skip)]
    plan: Plan,
    #[serde(skip)]
    topology: Topology,
}

impl Explanation {
    /// The plan itself.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The placed graph as a standalone SVG document, a colour for each rack.
    ///
    /// # Errors
    /// `Graph` when it is too large to draw.
    pub fn svg(&self) -> Result<String, PlanError> {
        Ok(self.drawing()?.to_svg())
    }

    /// The same as data.
    ///
    /// # Errors
    /// `Graph` when it is too large to draw.
    pub fn drawing(&self) -> Result<Drawing, PlanError> {
        let rack = |node| self.topology.rack(node).unwrap_or(RackId(u32::MAX));
        let lane = self.plan.lanes.first().ok_or_else(|| PlanError::Invalid {
            what: "plan to draw".into(),
            expected: "at least one lane".into(),
            got: "none".into(),
        })?;
        Ok(lane.placed.drawing_by_rack(&rack)?)
    }
}

/// Plans the repair of `lost` blocks as it would be done now, and describes it. Blocks that still have a home may
/// be given as lost, to see what would happen. A slice of 0 bytes means the size that suits the plan.
///
/// # Errors
/// As [`place_alone`] and [`repair`].
pub fn explain(
    view: &StripeView,
    topology: &Topology,
    lost: &[BlockIndex],
    method: Method,
    slice_bytes: u32,
) -> Result<Explanation, PlanError> {
    let requestors = place_alone(view, topology, lost)?;
    let wanted = Repair { lost: lost.to_vec(), requestors, method };
    let planned = repair(view, topology, &wanted, &|_| 0, &[])?;
    let block_bytes = view.layout.longest(view.code.k());
    let step = planned.plan.step_bytes(&view.layout, block_bytes, slice_bytes)?;
    let slices = block_bytes.div_ceil(u64::from(step).max(1)).max(1);
    let played = usize::try_from(slices).unwrap_or(usize::MAX);
    let placed = &planned.plan.lanes[0].placed;
    let nodes = placed.lower()?.into_iter().map(|tasks| NodeLines {
        node: tasks.node,
        rack: topology.rack(tasks.node),
        tasks: tasks
            .tasks
            .iter()
            .map(|task| line(view, task))
            .chain(tasks.sends.iter().map(|(vertex, to)| format!("send {vertex} to {to}")))
            .collect(),
    });
    Ok(Explanation {
        code: view.code.name().to_owned(),
        method,
        lost: planned.lost.clone(),
        requestors: planned.requestors.clone(),
        helpers: planned.helpers.clone(),
        path_is_best: planned.path_is_best,
        graph: placed.to_text(),
        nodes: nodes.collect(),
        account: Account::of(&planned.plan, topology, block_bytes)?,
        slice_bytes: step,
        slices,
        rate: planned.plan.rate_limit(),
        timeslots: planned.plan.timeslots(played)?,
        timeslots_whole_blocks: planned.plan.timeslots(1)?,
        compared: Comparison::of(view, topology, lost, &planned.requestors)?,
        plan: planned.plan,
        topology: topology.clone(),
    })
}

fn line(view: &StripeView, task: &Task) -> String {
    match task {
        Task::Load { vertex } => format!("load {vertex} from block {}", view.block_of(*vertex)),
        Task::Fetch { vertex, from } => format!("fetch {vertex} from {from}"),
        Task::Compute { outputs, inputs, coefs } => {
            let sum = |row: &[u8]| -> String {
                let terms = row.iter().zip(inputs).filter(|(coef, _)| **coef != 0);
                let terms: Vec<_> = terms.map(|(coef, input)| format!("{coef:02x} {input}")).collect();
                if terms.is_empty() { "0".into() } else { terms.join(" + ") }
            };
            let rows = outputs.iter().zip(coefs.chunks(inputs.len().max(1)));
            let rows: Vec<_> = rows.map(|(output, row)| format!("{output} = {}", sum(row))).collect();
            format!("compute {}", rows.join(", "))
        }
        Task::Persist { vertex, sink } => match sink {
            Sink::Block => format!("persist {vertex} as block {}", view.block_of(*vertex)),
            Sink::BlockXor => format!("add {vertex} into block {}", view.block_of(*vertex)),
            Sink::Client => format!("return {vertex} of block {}", view.block_of(*vertex)),
            Sink::Nothing => format!("drop {vertex}"),
            Sink::Compare => format!("compare {vertex} with block {}", view.block_of(*vertex)),
        },
    }
}
