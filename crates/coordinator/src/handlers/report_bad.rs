//! Somebody found a bad block, or got an error when reading a block. The block's node reads it once more. If it is
//! bad and the metadata place it there, it is flagged lost and repaired at once. A report alone flags nothing, and
//! a node that does not answer does not make its block bad: heartbeats decide about nodes.

use std::sync::Arc;

use kintsu_wire::message::{BadBlock, Done};

use crate::cluster::Cluster;
use crate::driver;
use crate::engine::doubt::is_reason;
use crate::error::Result;
use crate::meta::LostBlock;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: BadBlock) -> Result<Done> {
    if is_reason(request.kind) {
        tracing::info!("{} on {} is reported: {}", request.id, request.node, request.detail);
        let suspect = LostBlock { id: request.id, node: request.node, why: request.kind };
        driver::report(cluster, vec![suspect]);
    }
    Ok(Done {})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::doubts::{doubt, reverify_node};
    use crate::engine::jobs::Work;
    use crate::live::Live;
    use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
    use kintsu_wire::message::FaultKind;

    fn report(stripe: StripeId, index: u8, node: NodeId, kind: FaultKind) -> BadBlock {
        BadBlock {
            id: BlockId { stripe, index: BlockIndex(index) },
            node,
            kind,
            detail: "as somebody says".into(),
        }
    }

    async fn rests(live: &Live) {
        live.until("reports are checked", |cluster| cluster.verifying().is_empty()).await;
    }

    fn lost(live: &Live) -> u64 {
        live.cluster.meta.snapshot().unwrap().totals().unwrap().lost
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_report_alone_flags_nothing() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let (home, spare) = (record.blocks[0].unwrap().node, live.spare(&record));
        for (node, kind) in [
            (home, FaultKind::Lost),
            (spare, FaultKind::Corrupt),
            (home, FaultKind::Corrupt),
            (home, FaultKind::Missing),
            (home, FaultKind::Stale),
            (home, FaultKind::Io),
        ] {
            let suspect = report(stripe, 0, node, kind);
            handle(&live.cluster, suspect.clone()).await.unwrap();
            rests(&live).await;
            let suspect = LostBlock { id: suspect.id, node, why: kind };
            assert!(!doubt(&live.cluster, suspect).await.unwrap(), "{kind:?} on {node}");
            assert_eq!(lost(&live), 0, "{kind:?} on {node}");
        }
        assert!(live.file(home, stripe, 0).exists());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_bad_indeed_is_repaired_at_once() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let (flipped, gone) = (record.blocks[0].unwrap().node, record.blocks[3].unwrap().node);
        live.flip(flipped, stripe, 0);
        std::fs::remove_file(live.file(gone, stripe, 3)).unwrap();
        handle(&live.cluster, report(stripe, 0, flipped, FaultKind::Corrupt)).await.unwrap();
        handle(&live.cluster, report(stripe, 3, gone, FaultKind::Missing)).await.unwrap();
        live.until("both are repaired", |_| {
            let there = live.file(flipped, stripe, 0).exists() && live.file(gone, stripe, 3).exists();
            there && lost(&live) == 0 && live.cluster.queue().jobs() == 0
        })
        .await;
        live.check("a").await;
    }

    #[cfg(target_os = "linux")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_block_that_its_disk_cannot_read_is_repaired() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let home = record.blocks[1].unwrap().node;
        // No memory is mapped at address 0 of a process: the kernel answers every read there with EIO.
        let file = live.file(home, stripe, 1);
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/proc/self/mem", &file).unwrap();
        handle(&live.cluster, report(stripe, 1, home, FaultKind::Io)).await.unwrap();
        let whole = |file: &std::path::Path| file.symlink_metadata().is_ok_and(|meta| meta.is_file());
        live.until("repaired", |_| whole(&file) && lost(&live) == 0 && live.cluster.queue().jobs() == 0)
            .await;
        live.check("a").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_sound_block_loses_its_flag_when_it_is_read_again() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let home = record.blocks[2].unwrap().node;
        let flag = |why| {
            let id = BlockId { stripe, index: BlockIndex(2) };
            assert_eq!(live.cluster.meta.mark_lost(&[LostBlock { id, node: home, why }]).unwrap(), [id]);
        };
        for why in [FaultKind::Corrupt, FaultKind::Mismatch, FaultKind::Io] {
            flag(why);
            reverify_node(&live.cluster, live.spare(&record)).await.unwrap();
            assert_eq!(lost(&live), 1, "the block's home is another node");
            reverify_node(&live.cluster, home).await.unwrap();
            assert_eq!(lost(&live), 0, "{why:?}");
        }
        // A scrub reads everything, and repairs no sound block.
        for why in [FaultKind::Corrupt, FaultKind::Missing, FaultKind::Stale, FaultKind::Io] {
            flag(why);
            let (listener, mut events) = tokio::sync::mpsc::channel(64);
            let job = driver::Job::begin(&live.cluster, Work::Scrub, String::new(), Some(listener));
            driver::scrub(live.cluster.clone(), vec![home], job).await;
            let mut last = None;
            while let Some(event) = events.recv().await {
                last = Some(event.unwrap());
            }
            let Some(kintsu_wire::message::JobEvent::Ended(report)) = last else { panic!("no report") };
            assert_eq!((report.bad.len(), report.blocks, lost(&live)), (0, 0, 0), "{why:?}");
        }
    }
}
