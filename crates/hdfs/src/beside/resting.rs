//! What rests on DataNodes in maintenance is not rebuilt, nor handed over. A coordinator that was started meanwhile asks those that
//! live what they have; what may be on those that do not answer waits until they answer, or their maintenance ends.

use kintsu_dag::BlockIndex;

use super::Shared;
use crate::maintenance::ask;
use crate::{Group, HdfsError};

/// The indices of a group that are lost for certain. DataNodes in maintenance are asked first where nobody knows where a block was, or
/// whether it was lost there before.
///
/// # Errors
/// Those of calls.
pub(super) async fn lost(shared: &Shared, group: &Group) -> Result<Vec<BlockIndex>, HdfsError> {
    let (lost, unknown, nodes) = {
        let memory = shared.memory();
        let lost = memory.lost(group);
        let unknown = memory.maintenance.unknown(group, &lost);
        let nodes = if unknown.is_empty() { Vec::new() } else { memory.maintenance.to_ask(group) };
        (lost, unknown, nodes)
    };
    if nodes.is_empty() {
        return Ok(lost);
    }
    for node in nodes {
        let said = ask(&shared.namenode, group, &node, &unknown).await?;
        let mut memory = shared.memory();
        match said {
            Some(found) => found.iter().for_each(|(index, _)| memory.maintenance.found(group, *index, &node)),
            None => memory.maintenance.says_nothing(&node),
        }
    }
    let lost = shared.memory().lost(group);
    Ok(lost)
}

/// Whether an index that the NameNode reports missing is lost.
///
/// # Errors
/// Those of calls.
pub(super) async fn is_lost(shared: &Shared, group: &Group, index: BlockIndex) -> Result<bool, HdfsError> {
    Ok(lost(shared, group).await?.contains(&index))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prost::Message as _;

    use super::*;
    use crate::beside::tests::shared;
    use crate::fake;
    use crate::group::tests::{datanode, held};
    use crate::proto::names::BlockKeys;
    use crate::transfer;
    use crate::vigil::Sight;

    /// Whether index 2 is lost when this DataNode is in maintenance and lives. It is not known where the block was; or it `was` there, and was listed no longer
    /// before that began.
    async fn lost_beside(at: std::net::SocketAddr, was: bool) -> bool {
        let namenode = fake::namenode(&[("getBlockKeys", BlockKeys { keys: None }.encode_to_vec())]);
        let (shared, _happens) = shared(namenode);
        let others = (0..5).filter(|index| *index != 2);
        let group = held(others.map(|index| (index, datanode(([10, 0, 0, 1], index.into()).into()))));
        let nodes = vec![datanode(at)];
        let sight = Sight { live: nodes.clone(), maintenance: nodes, ..Sight::default() };
        if was {
            let mut before = held([(2, datanode(at))]);
            before.holders.extend(group.holders.clone());
            shared.memory().renew(before);
        }
        shared.memory().renew(group.clone());
        shared.memory().maintenance.age(Duration::from_secs(60));
        shared.memory().maintenance.now(&sight);
        let lost = is_lost(&shared, &group, BlockIndex(2)).await.unwrap();
        let known = shared.memory().maintenance.at(&group, BlockIndex(2)).is_some();
        assert!(!known || !lost);
        lost
    }

    #[tokio::test]
    async fn a_datanode_in_maintenance_is_asked_and_what_it_does_not_say_waits() {
        let says = |answer: Result<Vec<u8>, &'static str>| {
            transfer::tests::datanode(move |_| answer.clone().map_err(str::to_owned))
        };
        let absent = "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException: Replica not found";
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for was in [false, true] {
            assert!(lost_beside(says(Err(absent)), was).await, "{was}");
            assert!(!lost_beside(says(Ok(vec![1; 99])), was).await, "{was}");
            assert!(!lost_beside(says(Err("java.io.IOException: busy")), was).await, "{was}");
            assert!(!lost_beside(nobody, was).await, "{was}");
        }
    }
}
