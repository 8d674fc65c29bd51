//! Compares a page of an agent's list of blocks with the blocks that it should hold. After the last page the node
//! is alive.
//!
//! A block that is missing or not as recorded is flagged lost. A block that is lost at its home but sound on this
//! node gets its home here. Unknown blocks are never deleted: they are set aside on the node, once the gate is
//! open.

use std::sync::Arc;

use kintsu_wire::message::{BlockPage, Done};

use crate::cluster::Cluster;
use crate::driver;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, page: BlockPage) -> Result<Done> {
    driver::report_blocks(cluster, page).await.map(|()| Done {})
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::handlers::register;
    use crate::handlers::tests::page;
    use crate::live::Live;
    use crate::meta::LostBlock;
    use kintsu_dag::BlockId;
    use kintsu_wire::message::{BlockRef, FaultKind, HeldBlock, Register};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_running_agent_wrote_after_it_made_its_list_is_not_lost() {
        let live = Live::start(5).await;
        let (_, record) = live.put("a").await;
        let node = record.blocks[0].unwrap().node;
        let known = live.cluster.members().node(node).unwrap().record.clone();
        let again = Register {
            node: Some(node),
            name: None,
            rack: known.rack,
            rack_name: None,
            control: known.control,
            data: known.data,
            dir: known.dir.clone(),
            incarnation: known.incarnation,
            cluster: Some(live.cluster.id),
            folder: known.folder.unwrap(),
            log: known.log,
            seen: None,
            blocks: 0,
            next_stripe: 0,
            replace: false,
            moved: false,
            protocol: kintsu_wire::PROTOCOL_VERSION,
        };
        // The agent made its list before the put, and sends it after the commit.
        register::handle(&live.cluster, again).await.unwrap();
        handle(&live.cluster, page(node, known.incarnation, Vec::new())).await.unwrap();
        assert_eq!(live.cluster.meta.snapshot().unwrap().totals().unwrap().lost, 0);
        live.check("a").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_block_that_is_being_deleted_does_not_get_its_home_there() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let block = record.blocks[0].unwrap();
        let (from, to) = (block.node, live.spare(&record));
        let id = BlockId { stripe, index: kintsu_dag::BlockIndex(0) };
        let file = BlockRef { id, generation: record.generation };
        live.copy(from, to, stripe, 0);
        live.cluster.meta.trash(&[(to, file)]).unwrap();
        let (_, sweeping) = live.cluster.claim_garbage(to, 10, HashSet::new()).await.unwrap();
        live.cluster.meta.mark_lost(&[LostBlock { id, node: from, why: FaultKind::Corrupt }]).unwrap();
        let known = live.cluster.members().node(to).unwrap().record.clone();
        let len = record.layout.block_len(2, id.index);
        let held = HeldBlock { id, generation: record.generation, len, digest: block.digest.unwrap() };
        let home = || live.cluster.meta.snapshot().unwrap().stripe(stripe).unwrap().unwrap().blocks[0];
        for (guard, expected) in [(Some(sweeping), from), (None, to)] {
            live.cluster.reports().begin(to, known.clone(), false, 1);
            handle(&live.cluster, page(to, known.incarnation, vec![held.clone()])).await.unwrap();
            assert_eq!(home().unwrap().node, expected);
            drop(guard);
        }
    }
}
