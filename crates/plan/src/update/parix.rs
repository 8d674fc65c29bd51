//! Parity nodes that log new data, and old data once, have the deltas already (PARIX, as CAU describes it in section 2.3):
//! each computes what its parity needs from them. A delta that it lacks comes from home.

use kintsu_dag::{NodeId, Placed};

use super::message::Build;
use super::scene::Scene;
use crate::PlanError;

/// A graph for each parity node that reads deltas of its own, one for all others together, and one for the data blocks: one
/// graph must write all of a block.
pub(super) fn graphs(scene: &Scene<'_>) -> Result<Vec<Placed>, PlanError> {
    let mut nodes: Vec<NodeId> =
        scene.racks.iter().flat_map(|rack| &rack.targets).map(|(_, node)| *node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let replicas: Vec<NodeId> =
        scene.racks.iter().flat_map(|rack| &rack.replicas).map(|(_, node)| *node).collect();
    let (with, without): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| replicas.contains(node));
    if with.is_empty() {
        return Ok(scene.data_too(vec![Build::each_to_each(scene)?]));
    }
    let mut graphs = scene.data_too(Vec::new());
    for node in with {
        graphs.push(Build::each_to(scene, &[node])?);
    }
    if !without.is_empty() {
        graphs.push(Build::each_to(scene, &without)?);
    }
    Ok(graphs)
}
