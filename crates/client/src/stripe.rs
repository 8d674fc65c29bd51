//! A stripe as the coordinator describes it, converted to the planner's types.

use std::collections::BTreeMap;
use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::{Node, StripeView, Topology};
use kintsu_wire::message::{NodeAddress, StripeGrant, StripeInfo};

use crate::codes::received_code;
use crate::{Client, ClientError};

/// Where nodes listen, by id.
pub(crate) type Nodes = BTreeMap<NodeId, NodeAddress>;

pub(crate) fn by_id(nodes: Vec<NodeAddress>) -> Nodes {
    nodes.into_iter().map(|node| (node.id, node)).collect()
}

impl Client {
    /// Where nodes listen, as the coordinator has just said; from now on agents are called in the version of the oldest one.
    pub(crate) fn told(&self, nodes: Vec<NodeAddress>) -> Nodes {
        self.credentials().speaks().follow(&nodes);
        by_id(nodes)
    }

    /// A stripe of an object (by position), the present nodes as planners see them, and the rates of links that
    /// the cluster was told. Blocks that cannot be read have no home.
    ///
    /// # Errors
    /// `NotFound` for the object, `Invalid` for a position that it does not have.
    pub async fn stripe_view(
        &self,
        name: &str,
        position: u64,
    ) -> Result<(StripeView, Topology), ClientError> {
        let (found, rates) = tokio::try_join!(self.stripes(name, position, 1), self.rates())?;
        let Some(info) = found.stripes.first() else {
            let stripes = found.object.stripes;
            return Err(ClientError::Invalid(format!(
                "stripe of {name}: expected one of its {stripes}, counted from 0, got {position}"
            )));
        };
        let node = |a: &NodeAddress| Node { rack: a.rack, usable: a.alive, used_bytes: 0, room_bytes: None };
        let topology = Topology { nodes: found.nodes.iter().map(|a| (a.id, node(a))).collect(), rates };
        let alive = |node| topology.nodes.get(&node).is_some_and(|n| n.usable);
        let code = received_code(&info.code, found.definition).await?;
        let view = readable(info, &code, |_, node| alive(node))?;
        Ok((view, topology))
    }
}

/// The stripe that a put may write.
pub(crate) fn granted(grant: &StripeGrant, code: &Arc<dyn Code>) -> Result<StripeView, ClientError> {
    let view =
        StripeView { id: grant.id, code: code.clone(), layout: grant.layout, homes: grant.homes.clone() };
    checked(view)
}

/// A stripe to be read: with the blocks that exist, are not known to be lost, and are `usable`.
pub(crate) fn readable(
    info: &StripeInfo,
    code: &Arc<dyn Code>,
    usable: impl Fn(BlockIndex, NodeId) -> bool,
) -> Result<StripeView, ClientError> {
    let homes = info.blocks.iter().map(|place| {
        let place = place.as_ref()?;
        let parity = usize::from(place.id.index.0) >= code.k();
        let made = !parity || (info.encoded && place.digest.is_some());
        (made && !place.lost && usable(place.id.index, place.node)).then_some(place.node)
    });
    checked(StripeView { id: info.id, code: code.clone(), layout: info.layout, homes: homes.collect() })
}

fn checked(view: StripeView) -> Result<StripeView, ClientError> {
    let (n, k, layout) = (view.code.n(), view.code.k() as u64, &view.layout);
    let sane = view.homes.len() == n
        && layout.cell_bytes > 0
        && layout.block_bytes > 0
        && usize::from(layout.w) == view.code.w()
        && layout.block_bytes.checked_mul(k).is_some_and(|most| layout.data_bytes <= most);
    if sane {
        return Ok(view);
    }
    Err(ClientError::Corrupt(format!(
        "{}: expected {n} blocks of {}, got {} in a layout of {layout:?}",
        view.id,
        view.code.name(),
        view.homes.len()
    )))
}
