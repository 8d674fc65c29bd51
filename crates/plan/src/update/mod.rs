//! Updates: the parity of a stripe follows data blocks that were overwritten.
//!
//! The deltas of a stripe (new XOR old) are a stripe of the same code, in which clean data blocks are zero. So an update
//! is an encoding of deltas: leaves are the deltas of dirty blocks, targets are the parities whose coefficients are not
//! all zero, and each target is added into the stored block ([`kintsu_dag::Sink::BlockXor`]). It is proved like any
//! graph, against the generator without the columns of clean blocks.
//!
//! - [`Scheme`]: the table of schemes; `scene`: what is dirty and where, by rack;
//! - `message`: what racks send to each other, and the graph that follows from it;
//! - `pairs`: each pair of racks on its own (CAU, section 3.2); `relay` and `direct`: the least traffic, without and
//!   with interim replicas; `bound`: a lower bound for every graph; `parix`: deltas that parity nodes have already;
//! - `interim`: where a replica waits for the commit (CAU, section 3.4); `grouping`: dirty blocks move together (3.3).
//!
//! Source: CAU (ICPP'18), section 3. The paper treats Reed-Solomon codes; here everything follows from the generator.

mod bound;
mod direct;
mod grouping;
mod interim;
mod message;
mod pairs;
mod parix;
mod programs;
mod relay;
mod scene;
mod scheme;

use std::collections::BTreeMap;

use kintsu_dag::{BlockIndex, NodeId};

use crate::program::proved_update;
use crate::{Plan, PlanError, StripeView, Topology};

pub use bound::least_crossings;
pub use grouping::{Grouping, group};
pub use interim::{Interim, interim_home, parity_homes};
pub use scheme::{InterimRule, Scheme, SchemeRow};

use message::Build;
use scene::Scene;

/// What was overwritten in one stripe.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dirty {
    /// The data blocks with deltas.
    pub blocks: Vec<BlockIndex>,
    /// Nodes besides the homes that have the delta of a block too. Only schemes of which [`SchemeRow::reads_replicas`] says so read
    /// deltas there, except for a block without a home.
    pub replicas: BTreeMap<BlockIndex, Vec<NodeId>>,
}

impl Dirty {
    /// Deltas at the homes of these blocks alone.
    pub fn at_home(blocks: impl IntoIterator<Item = BlockIndex>) -> Self {
        Self { blocks: blocks.into_iter().collect(), replicas: BTreeMap::new() }
    }
}

/// An update that has been planned.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdatePlan {
    /// The placed graphs. Together they add exactly once to each dirty block with a home and to each parity that changes;
    /// they do not wait for each other.
    pub plans: Vec<Plan>,
    /// The parity blocks that change.
    pub parities: Vec<BlockIndex>,
    /// Parity blocks that should change but have no home: they must be encoded again.
    pub left_out: Vec<BlockIndex>,
    /// Symbols that cross racks; a block is [`kintsu_code::Code::w`] symbols.
    pub crossings: u64,
}

/// Plans the update of one stripe: the deltas of dirty blocks are added to these blocks at their homes, and the deltas of
/// parities, made from them, to the parities.
///
/// # Errors
/// `Invalid` for dirty blocks that are not distinct data blocks with bytes; `Placement` for a dirty block that has
/// neither home nor replica; `Graph` when a graph fails its proof.
pub fn update(
    view: &StripeView,
    topology: &Topology,
    dirty: &Dirty,
    scheme: Scheme,
) -> Result<UpdatePlan, PlanError> {
    let scene = Scene::new(view, topology, dirty)?;
    let graphs = match scheme {
        Scheme::Parix => parix::graphs(&scene)?,
        Scheme::Baseline => scene.data_too(vec![Build::each_to_each(&scene)?]),
        Scheme::DataDelta => scene.data_too(vec![Build::graph(&scene, &pairs::data_delta(&scene))?]),
        Scheme::ParityDelta => scene.data_too(vec![Build::graph(&scene, &pairs::parity_delta(&scene))?]),
        Scheme::Cau | Scheme::CauNogroup => {
            scene.data_too(vec![Build::graph(&scene, &pairs::selective(&scene))?])
        }
        Scheme::Optimal => scene.data_too(least(&scene)?),
    };
    let plans = proved_update(view, graphs, &scene.symbols)?;
    let mut crossings = 0;
    for plan in &plans {
        crossings += plan.moved(view.code.w() as u64)?.across_racks(topology);
    }
    Ok(UpdatePlan { plans, parities: scene.parities(), left_out: scene.left_out.clone(), crossings })
}

/// The graphs with the fewest crossings: each rack served directly, with what replicas hold, or by relays.
fn least(scene: &Scene<'_>) -> Result<Vec<kintsu_dag::Placed>, PlanError> {
    let direct = direct::parts(scene);
    let crossings: usize = direct.iter().map(|part| part.messages.len()).sum();
    let bound = if direct.is_empty() { 0 } else { bound::of(scene, true) };
    if crossings > bound {
        let relayed = relay::messages(scene, bound);
        if relayed.len() < crossings {
            return Ok(vec![Build::graph(scene, &relayed)?]);
        }
    }
    direct.iter().map(|part| Build::part(scene, part)).collect()
}
