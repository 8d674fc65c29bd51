//! Groups that agents cannot rebuild, because too few DataNodes have one beside them, or because of a generation stamp that agents cannot
//! say: the coordinator does it, as `kintsu hdfs repair` does it, from what DataNodes send by data transfer. There is nowhere to stage a
//! block then, so it begins only when the NameNode reports an index missing, and takes one group after the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::BlockIndex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::memory::Work;
use super::{Event, Shared};
use crate::handover::{HandedOver, hand_over, target};
use crate::repair::rebuild;
use crate::{Group, HdfsError};

/// Groups that this process rebuilds at once.
const AT_ONCE: usize = 1;

/// Starts on a group that agents cannot rebuild, if the NameNode reports some of what it `lost` missing, some DataNode could take it, and this
/// process is free. Whether it did.
pub(super) fn begin(
    shared: &Arc<Shared>,
    group: &Group,
    lost: &[BlockIndex],
    work: &mut JoinSet<()>,
) -> bool {
    let missing = group.missing();
    let missing: Vec<BlockIndex> = lost.iter().copied().filter(|index| missing.contains(index)).collect();
    {
        let mut memory = shared.memory();
        let could = !missing.is_empty() && target(group, &memory.live, &BTreeSet::new()).is_some();
        if !could || memory.room(Work::Alone, AT_ONCE) == 0 || !memory.take(group.id, Work::Alone) {
            return false;
        }
    }
    let (shared, group) = (shared.clone(), group.clone());
    work.spawn(async move {
        let doing = async {
            let done = alone(&shared, &group, &missing).await;
            match &done {
                Ok(()) => shared.memory().rebuilt(group.id),
                Err(_) => shared.memory().not_rebuilt(group.id),
            }
            done
        };
        shared.work_on(group.id, &group, doing).await;
    });
    true
}

/// Rebuilds these blocks, and brings them into HDFS.
async fn alone(shared: &Shared, group: &Group, missing: &[BlockIndex]) -> Result<(), HdfsError> {
    let began = Instant::now();
    let mut readable = group.clone();
    let bad = shared.memory().bad(group.id);
    readable.holders.retain(|index, _| !bad.contains(index));
    let (examined, _) = rebuild(readable, missing).await?;
    let mut failed = None;
    for (index, file) in &examined.rebuilt {
        match hand_over(&shared.namenode, group, *index, file, examined.unit_bytes).await {
            Ok(HandedOver::To(datanode)) => {
                shared.members.keep_counted(group.block(*index).id, &datanode);
                let proved = examined.proves(group, *index);
                shared.tell(Event::Counted { block: group.name(*index), datanode, proved });
            }
            Ok(HandedOver::NotNeeded(_)) => {}
            // The others have their turn.
            Err(error @ HdfsError::NotHandedOver { .. }) => failed = Some(error),
            Err(error) => return Err(error),
        }
    }
    if let Some(rate) = shared.config.repair_rate {
        let bytes: u64 = examined.read.iter().map(|index| group.block_bytes(*index)).sum();
        sleep_until(began + Duration::from_secs_f64(bytes as f64 / rate.get() as f64)).await;
    }
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beside::tests::shared;
    use crate::group::tests::{datanode, held};

    #[tokio::test]
    async fn it_begins_when_hdfs_knows_of_the_loss_a_datanode_could_take_the_block_and_it_has_no_other_work()
    {
        let (shared, _happens) = shared(crate::fake::namenode(&[]));
        let at = |port: u16| {
            let mut node = datanode(([10, 0, 0, 1], port).into());
            (node.id.uuid, node.remaining) = (port.to_string(), Some(u64::MAX));
            node
        };
        let whole = held((0..5).map(|index| (index, at(index.into()))));
        let lacks = |id, index| {
            let others = (0..5).filter(|other| *other != index);
            Group { id, ..held(others.map(|index| (index, at(index.into())))) }
        };
        let mut work = JoinSet::new();
        let mut begins = |group: &Group, index| begin(&shared, group, &[BlockIndex(index)], &mut work);
        shared.memory().live = [0, 2, 3, 4].map(at).into();
        assert!(!begins(&lacks(16, 1), 1), "each DataNode has another index");
        shared.memory().live.push(at(9));
        assert!(!begins(&whole, 1), "HDFS still lists it");
        assert!(!begins(&lacks(16, 1), 2), "of what is missing nothing is lost: it rests somewhere");
        assert!(begins(&lacks(16, 1), 1));
        assert!(!begins(&lacks(32, 1), 1), "it has work");
        shared.memory().free(16);
        assert!(begins(&lacks(32, 1), 1));
    }
}
