//! What those ask who read files or watch: the agents beside DataNodes that are there, and what was brought into HDFS lately. An
//! agent whose DataNode is gone is left out, although it may still be able to read the disk. And what agents find on their disks.

use std::sync::Arc;

use kintsu_wire::beside::beside_server::Beside;
use kintsu_wire::message::{AgentBeside, AgentsBeside, CrowdsBeside, Done, NodeAddress, Nothing};
use kintsu_wire::version::older;
use tonic::{Request, Response, Status};

use super::{Shared, scene};

/// Answers readers and watchers, and hears agents.
pub(super) struct Readers(pub Arc<Shared>);

#[tonic::async_trait]
impl Beside for Readers {
    async fn agents(&self, _: Request<Nothing>) -> Result<Response<AgentsBeside>, Status> {
        let shared = &self.0;
        let members = shared.members.alive();
        let topology = {
            let memory = shared.memory();
            scene::topology(&members, &memory.live, &memory.gone)
        };
        let agents = topology.nodes.iter().filter_map(|(&id, node)| {
            let member = members.get(&id)?;
            let (control, data) = (member.control, member.data);
            let older = older(member.protocol);
            let address = NodeAddress { id, rack: node.rack, control, data, alive: true, older };
            Some(AgentBeside { beside: member.datanode.clone(), address })
        });
        Ok(Response::new(AgentsBeside {
            cluster: shared.members.cluster(),
            agents: agents.collect(),
            counted: Some(shared.members.counted()),
        }))
    }

    async fn crowds(&self, request: Request<CrowdsBeside>) -> Result<Response<Done>, Status> {
        let CrowdsBeside { beside, pool, blocks } = request.into_inner();
        if !self.0.members.alive().values().any(|member| member.datanode == beside) {
            return Err(Status::failed_precondition(format!("no agent is beside DataNode {beside}")));
        }
        self.0.memory().crowded(&pool, &beside, &blocks);
        Ok(Response::new(Done {}))
    }
}
