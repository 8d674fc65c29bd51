//! Beside another store: what a reader asks the coordinator there.

use serde::{Deserialize, Serialize};

use super::NodeAddress;
use crate::ClusterId;

/// The agents that can read blocks now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentsBeside {
    /// Their cluster, which callers of agents show.
    pub cluster: ClusterId,
    /// One for each node of the other store that is there and has an agent.
    pub agents: Vec<AgentBeside>,
}

/// An agent beside a node of another store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentBeside {
    /// The node's address, as that store names it.
    pub beside: String,
    /// Where the agent listens.
    pub address: NodeAddress,
}
