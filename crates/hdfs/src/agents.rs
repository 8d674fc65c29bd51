//! The agents beside DataNodes as readers use them: lost blocks are decoded along a chain of agents, so the reader's link carries
//! one block for each that it wants, not k.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::{Method, Node, StripeView, Topology, read_by};
use kintsu_runtime::{ClientLocal, Conductor, Context, DataPlane};
use kintsu_wire::message::{AgentsBeside, CrowdsBeside, NodeAddress, Nothing};
use kintsu_wire::{ClusterId, CoordinatorChannel, Credentials, WireError, connect_coordinator, words};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status};

use crate::beside::cluster_of;
use crate::vigil::address;
use crate::window::{Parts, gather};
use crate::{Group, HdfsError};

/// How long the coordinator may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Pieces of blocks that may wait to be taken.
const WAITING: usize = 16;

/// A coordinator beside an HDFS, as those ask it who read files or watch.
pub struct Coordinator {
    address: String,
    credentials: Credentials,
    channel: CoordinatorChannel,
}

impl Coordinator {
    /// The one at `address` (`host:port`), which wants this token if it has one. Nothing is sent yet.
    ///
    /// # Errors
    /// `Protocol` for an address or a token that is none.
    pub fn at(address: &str, token: Option<&str>) -> Result<Self, HdfsError> {
        let invalid = |error: WireError| failed(address, error.to_string());
        let credentials = Credentials::of(token, None).map_err(invalid)?;
        let channel = connect_coordinator(address, &credentials).map_err(invalid)?;
        Ok(Self { address: address.to_owned(), credentials, channel })
    }

    /// Asks for the agents, and what they did lately.
    ///
    /// # Errors
    /// `Protocol` with its answer, or why there is none.
    pub(crate) async fn ask(&self) -> Result<AgentsBeside, HdfsError> {
        self.answer(self.channel.beside.clone().agents(Nothing {})).await
    }

    /// Tells it which blocks share a DataNode with others of their groups.
    ///
    /// # Errors
    /// `Protocol` with its answer, or why there is none.
    pub(crate) async fn tell(&self, crowds: CrowdsBeside) -> Result<(), HdfsError> {
        self.answer(self.channel.beside.clone().crowds(crowds)).await.map(|_| ())
    }

    async fn answer<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, HdfsError> {
        let late = |_| failed(&self.address, format!("no answer within {} s", ANSWER.as_secs()));
        let answer = timeout(ANSWER, call).await.map_err(late)?;
        Ok(answer.map_err(|status| failed(&self.address, words(&status)))?.into_inner())
    }
}

fn failed(coordinator: &str, got: String) -> HdfsError {
    HdfsError::Protocol {
        address: coordinator.to_owned(),
        expected: "the agents, from a coordinator beside HDFS".into(),
        got,
        advice: "start kintsu hdfs coordinator, or do without --agents",
    }
}

/// The agents of one HDFS.
pub struct Agents {
    cluster: ClusterId,
    conductor: Conductor,
    plane: Arc<DataPlane>,
    /// By the addresses of their DataNodes.
    agents: BTreeMap<String, NodeAddress>,
    topology: Topology,
}

impl Agents {
    /// Asks a coordinator for them.
    ///
    /// # Errors
    /// `Protocol` with its answer, or why there is none.
    pub async fn of(coordinator: Coordinator) -> Result<Self, HdfsError> {
        let told = coordinator.ask().await?;
        let Coordinator { address, credentials, .. } = coordinator;
        // Agents take calls only from those that show their cluster.
        credentials.join(told.cluster).map_err(|error| failed(&address, error.to_string()))?;
        let node = |at: &NodeAddress| Node { rack: at.rack, usable: true, used_bytes: 0, room_bytes: None };
        let (beside, addresses): (Vec<String>, Vec<NodeAddress>) =
            told.agents.into_iter().map(|agent| (agent.beside, agent.address)).unzip();
        credentials.speaks().follow(&addresses);
        let nodes = addresses.iter().map(|agent| (agent.id, node(agent))).collect();
        Ok(Self {
            cluster: told.cluster,
            conductor: Conductor::new(credentials.clone()),
            plane: DataPlane::client(credentials),
            agents: beside.into_iter().zip(addresses).collect(),
            topology: Topology { nodes, ..Topology::default() },
        })
    }

    /// The bytes `window` of the blocks `wanted` of a group. Those without an agent, or not `usable`, are decoded along a chain.
    ///
    /// # Errors
    /// `Unsupported` for a group of another HDFS, or a generation stamp beyond 2^32; `Plan` when too few blocks have agents; `Run`
    /// for what failed.
    pub(crate) async fn read(
        &self,
        group: &Group,
        usable: impl Fn(BlockIndex) -> bool,
        wanted: &[BlockIndex],
        window: &Range<u64>,
    ) -> Result<Parts, HdfsError> {
        let cluster = cluster_of(&group.pool);
        if cluster != self.cluster {
            return Err(HdfsError::Unsupported {
                what: format!("agents of {group}"),
                expected: self.cluster.to_string(),
                got: cluster.to_string(),
            });
        }
        let view = self.view(group, usable);
        let plan = read_by(&view, &self.topology, wanted, &[], Method::Pipeline)?;
        let by_node: BTreeMap<NodeId, &NodeAddress> = self.agents.values().map(|at| (at.id, at)).collect();
        let peers = |node: NodeId| by_node.get(&node).map(|at| at.data);
        let programs = group.programs((&plan, &view), (window.start, window.end), (&[], &[]), &peers)?;
        let (deliver, deliveries) = mpsc::channel(WAITING);
        let (places, range) = (wanted.to_vec(), window.clone());
        let taking = tokio::task::spawn_blocking(move || gather(deliveries, &places, range));
        let here = Context::new(self.plane.clone(), Arc::new(ClientLocal::delivering(deliver)));
        let control = |node: NodeId| by_node.get(&node).map(|at| at.control);
        let end = CancellationToken::new();
        // The run owns the channel's sender, so the taker ends with the run.
        let ended = self.conductor.conduct(programs, &control, Some(here), None, &end).await;
        let parts = taking.await.map_err(|e| HdfsError::io("taking the bytes of a run", e.into()))?;
        match ended.fault {
            Some(fault) => Err(fault.into()),
            None => Ok(parts),
        }
    }

    /// The group with the agents as homes of its blocks.
    fn view(&self, group: &Group, usable: impl Fn(BlockIndex) -> bool) -> StripeView {
        let mut view = group.view(NodeId::CLIENT, |_| false);
        for (index, holders) in group.holders.iter().filter(|(index, _)| usable(**index)) {
            let mut agents = holders.iter().filter_map(|holder| self.agents.get(&address(&holder.datanode)));
            // Of two blocks on one DataNode planners take one.
            let agent = agents.next().filter(|agent| !view.homes.contains(&Some(agent.id)));
            if let (Some(place), Some(agent)) = (view.homes.get_mut(usize::from(index.0)), agent) {
                *place = Some(agent.id);
            }
        }
        view
    }
}
