//! A stripe as the coordinator describes it, in the terms of the planner.

use std::collections::BTreeMap;
use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::StripeView;
use kintsu_wire::message::{NodeAddress, StripeGrant, StripeInfo};

use crate::ClientError;

/// Where nodes listen, by id.
pub(crate) type Nodes = BTreeMap<NodeId, NodeAddress>;

pub(crate) fn by_id(nodes: Vec<NodeAddress>) -> Nodes {
    nodes.into_iter().map(|node| (node.id, node)).collect()
}

/// The code of a name that came from the coordinator or the user.
pub(crate) fn parse_code(name: &str) -> Result<Arc<dyn Code>, ClientError> {
    kintsu_code::parse(name).map_err(|e| ClientError::Invalid(e.to_string()))
}

/// The stripe that a put may write.
pub(crate) fn granted(grant: &StripeGrant, code: &Arc<dyn Code>) -> Result<StripeView, ClientError> {
    let view =
        StripeView { id: grant.id, code: code.clone(), layout: grant.layout, homes: grant.homes.clone() };
    checked(view)
}

/// A stripe to be read: the blocks that exist, are not known to be lost, and are `usable`.
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
