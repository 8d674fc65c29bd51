//! An imaginary cluster: nodes spread evenly over racks, with stripes placed as on a real one.

use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};

use crate::{Layout, LayoutKind, Node, PlanError, StripeView, Topology, place};

/// Empty nodes, spread evenly over racks.
pub fn even_cluster(nodes: usize, racks: usize) -> Topology {
    let node = |i: usize| {
        let rack = RackId((i % racks.max(1)) as u32);
        (NodeId(i as u32), Node { rack, usable: true, used_bytes: 0, room_bytes: None })
    };
    Topology { nodes: (0..nodes).map(node).collect(), ..Topology::default() }
}

/// A full stripe of blocks of `block_bytes` (rounded up to pages of its sub-blocks), where [`place`] would put it.
///
/// # Errors
/// As [`place`].
pub fn stripe_on_paper(
    code: &Arc<dyn Code>,
    topology: &Topology,
    block_bytes: u64,
) -> Result<StripeView, PlanError> {
    let layout = full_layout(&**code, block_bytes);
    let homes = place(&**code, &layout, topology, 0)?.homes;
    Ok(StripeView { id: StripeId(0), code: code.clone(), layout, homes })
}

/// The blocks of a full stripe by rack, where [`place`] would put them; none when there are too few nodes.
pub fn blocks_by_rack(code: &dyn Code, topology: &Topology) -> Option<Vec<Vec<BlockIndex>>> {
    // Any size will do.
    let placement = place(code, &full_layout(code, 1), topology, 0).ok()?;
    let racks = topology.nodes.values().map(|node| node.rack.0 as usize + 1).max()?;
    let mut by_rack = vec![Vec::new(); racks];
    for (block, home) in placement.homes.iter().enumerate() {
        by_rack[topology.rack((*home)?)?.0 as usize].push(BlockIndex(block as u8));
    }
    Some(by_rack)
}

/// The layout of a full stripe: blocks of at least `block_bytes`, each one cell of a page or more for each sub-block.
fn full_layout(code: &dyn Code, block_bytes: u64) -> Layout {
    let cell = 4096 * code.w() as u64;
    let block_bytes = block_bytes.max(1).next_multiple_of(cell);
    Layout {
        kind: LayoutKind::Contiguous,
        block_bytes,
        cell_bytes: cell as u32,
        w: code.w() as u16,
        data_bytes: code.k() as u64 * block_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_is_dealt_as_it_is_placed() {
        let code = kintsu_code::parse("rs:n=9,k=6").unwrap();
        let by_rack = blocks_by_rack(&*code, &even_cluster(20, 4)).unwrap();
        let mut all = by_rack.concat();
        all.sort_unstable();
        assert!(all.iter().map(|b| b.0).eq(0..9));
        assert!(by_rack.len() == 4 && by_rack.iter().all(|blocks| blocks.len() <= 3));
        assert!(blocks_by_rack(&*code, &even_cluster(8, 4)).is_none());
    }
}
