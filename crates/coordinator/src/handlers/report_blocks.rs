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
    use super::*;
    use crate::handlers::register;
    use crate::handlers::tests::page;
    use crate::live::Live;
    use kintsu_wire::message::Register;

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
            seen: None,
            blocks: 0,
            next_stripe: 0,
            replace: false,
            moved: false,
        };
        // The agent made its list before the put, and sends it after the commit.
        register::handle(&live.cluster, again).await.unwrap();
        handle(&live.cluster, page(node, known.incarnation, Vec::new())).await.unwrap();
        assert_eq!(live.cluster.meta.snapshot().unwrap().totals().unwrap().lost, 0);
        live.check("a").await;
    }
}
