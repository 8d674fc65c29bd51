//! Beside another store: what those ask the coordinator there who read or watch, and what agents tell it.

use serde::{Deserialize, Serialize};

use super::NodeAddress;
use crate::ClusterId;

/// The agents that can read blocks now, and what agents did lately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentsBeside {
    /// Their cluster, which callers of agents show.
    pub cluster: ClusterId,
    /// One for each node of the other store that is there and has an agent.
    pub agents: Vec<AgentBeside>,
    /// The last blocks that agents brought into the other store since the coordinator's start; `None` from one that does not
    /// tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Vec<CountedBeside>>,
}

/// Several blocks of a group on one node, of which that store should have one there, as the agent finds them on its disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrowdsBeside {
    /// The node, as that store names it.
    pub beside: String,
    /// The pool that the blocks belong to.
    pub pool: String,
    /// The ids of the blocks, of all groups.
    pub blocks: Vec<u64>,
}

/// A block that an agent brought into the other store, which counts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedBeside {
    /// Its id in the other store.
    pub block: u64,
    /// The node that has it, as that store names it.
    pub beside: String,
    /// Milliseconds since then.
    pub age_ms: u64,
}

/// An agent beside a node of another store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentBeside {
    /// The node's address, as that store names it.
    pub beside: String,
    /// Where the agent listens.
    pub address: NodeAddress,
}
