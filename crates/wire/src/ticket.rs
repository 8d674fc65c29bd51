//! Tickets: what a client may do with one block, said by the coordinator in a form that only the block's node can check.
//!
//! The coordinator has a secret; each node has a key that was derived of it for this node alone. A ticket carries a MAC
//! (HMAC-SHA256, the first 16 bytes) under the key of the node, over everything that it says. What this is not: it does not say who
//! may hold it. It travels in TLS only.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use kintsu_dag::{BlockId, NodeId};
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::{ClusterId, WireError};

/// Bytes of a secret or key.
pub const KEY_BYTES: usize = 32;

/// Bytes of a MAC.
const MAC_BYTES: usize = 16;

/// What may be done with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Access {
    /// It is read.
    Read,
    /// It is written as a whole, in a generation that nobody has read yet.
    Write,
    /// What is logged for it is read. The generation does not matter.
    ReadLog,
    /// Updates of it are logged, and read, under one epoch of one volume ([`LogEpoch`]). The generation does not matter.
    Log,
    /// What the next commit takes of its log is fixed. The generation does not matter.
    Freeze,
}

/// Under what a ticket to log is good. The ticket does not say it, its MAC covers it: whoever shows the ticket names it with each update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEpoch {
    /// The volume.
    pub volume: u64,
    /// The epoch of the logs of the block's stripe.
    pub epoch: u64,
}

/// Permission for one block on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Which block.
    pub block: BlockId,
    /// Its generation.
    pub generation: u32,
    /// What may be done.
    pub access: Access,
    /// Until when, in seconds since 1970 by the coordinator's clock.
    pub until: u64,
    /// Under the key of the node.
    mac: [u8; MAC_BYTES],
}

/// The coordinator's secret, from which the keys of all nodes come.
pub struct TicketSecret {
    cluster: ClusterId,
    secret: hmac::Key,
    nodes: Mutex<HashMap<NodeId, NodeKey>>,
}

/// The key of one node.
#[derive(Clone)]
pub struct NodeKey {
    cluster: ClusterId,
    key: hmac::Key,
}

impl TicketSecret {
    /// The secret of a cluster.
    pub fn new(cluster: ClusterId, secret: &[u8; KEY_BYTES]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        Self { cluster, secret, nodes: Mutex::default() }
    }

    /// What the agent of a node gets; nobody else may see it.
    pub fn key_of(&self, node: NodeId) -> [u8; KEY_BYTES] {
        let mut context = hmac::Context::with_key(&self.secret);
        context.update(b"kintsu: the key of a node");
        context.update(&self.cluster.0);
        context.update(&node.0.to_le_bytes());
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(context.sign().as_ref());
        key
    }

    /// A ticket for a block on `node`.
    pub fn issue(&self, node: NodeId, block: BlockId, generation: u32, access: Access, until: u64) -> Ticket {
        self.signed(node, Ticket { block, generation, access, until, mac: [0; MAC_BYTES] }, None)
    }

    /// A ticket to log updates of a block on `node`, under one epoch.
    pub fn issue_to_log(&self, node: NodeId, block: BlockId, under: LogEpoch, until: u64) -> Ticket {
        let ticket = Ticket { block, generation: 0, access: Access::Log, until, mac: [0; MAC_BYTES] };
        self.signed(node, ticket, Some(under))
    }

    fn signed(&self, node: NodeId, ticket: Ticket, under: Option<LogEpoch>) -> Ticket {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let key = nodes.entry(node).or_insert_with(|| NodeKey::new(self.cluster, &self.key_of(node)));
        Ticket { mac: key.mac(&ticket, under), ..ticket }
    }
}

impl NodeKey {
    /// The key of a node of `cluster`.
    pub fn new(cluster: ClusterId, key: &[u8; KEY_BYTES]) -> Self {
        Self { cluster, key: hmac::Key::new(hmac::HMAC_SHA256, key) }
    }

    /// Whether the coordinator has issued this ticket for our node, and for this epoch if there is one.
    pub fn has_issued(&self, ticket: &Ticket, under: Option<LogEpoch>) -> bool {
        let expected = self.mac(ticket, under);
        // Takes the same time wherever the first difference is.
        expected.iter().zip(ticket.mac).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
    }

    fn mac(&self, ticket: &Ticket, under: Option<LogEpoch>) -> [u8; MAC_BYTES] {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(if under.is_some() { b"kintsu: ticket 2" } else { b"kintsu: ticket 1" });
        context.update(&self.cluster.0);
        context.update(&ticket.block.stripe.0.to_le_bytes());
        context.update(&[ticket.block.index.0, ticket.access as u8]);
        context.update(&ticket.generation.to_le_bytes());
        context.update(&ticket.until.to_le_bytes());
        if let Some(LogEpoch { volume, epoch }) = under {
            context.update(&volume.to_le_bytes());
            context.update(&epoch.to_le_bytes());
        }
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&context.sign().as_ref()[..MAC_BYTES]);
        mac
    }
}

/// Reads a key as messages and metadata carry it.
///
/// # Errors
/// `Invalid` for another length.
pub fn key_from(bytes: &[u8]) -> Result<[u8; KEY_BYTES], WireError> {
    bytes.try_into().map_err(|_| WireError::Invalid {
        what: "key of tickets",
        expected: format!("{KEY_BYTES} bytes"),
        got: format!("{} bytes", bytes.len()),
    })
}

impl PartialEq for NodeKey {
    /// Keys that sign alike are the same.
    fn eq(&self, other: &Self) -> bool {
        let signed = |key: &Self| hmac::sign(&key.key, &key.cluster.0);
        self.cluster == other.cluster && signed(self).as_ref() == signed(other).as_ref()
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadLog => "read the log of",
            Self::Log => "log updates of",
            Self::Freeze => "fix the log of",
        })
    }
}

impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketSecret")
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey")
    }
}

#[cfg(test)]
mod tests {
    use kintsu_dag::{BlockIndex, StripeId};

    use super::*;

    #[test]
    fn a_ticket_is_good_for_what_it_says_and_nothing_else() {
        let (cluster, other) = (ClusterId([1; 16]), ClusterId([2; 16]));
        let secret = TicketSecret::new(cluster, &[7; KEY_BYTES]);
        let (node, block) = (NodeId(3), BlockId { stripe: StripeId(9), index: BlockIndex(2) });
        let key = NodeKey::new(cluster, &secret.key_of(node));
        let ticket = secret.issue(node, block, 4, Access::Read, 1000);
        assert!(key.has_issued(&ticket, None));
        let changed = [
            Ticket { block: BlockId { stripe: StripeId(8), ..block }, ..ticket },
            Ticket { block: BlockId { index: BlockIndex(3), ..block }, ..ticket },
            Ticket { generation: 5, ..ticket },
            Ticket { access: Access::Write, ..ticket },
            Ticket { access: Access::Freeze, ..ticket },
            Ticket { until: 1001, ..ticket },
            Ticket { mac: [0; MAC_BYTES], ..ticket },
            secret.issue(NodeId(4), block, 4, Access::Read, 1000),
            TicketSecret::new(cluster, &[8; KEY_BYTES]).issue(node, block, 4, Access::Read, 1000),
            TicketSecret::new(other, &[7; KEY_BYTES]).issue(node, block, 4, Access::Read, 1000),
        ];
        for forged in changed {
            assert!(!key.has_issued(&forged, None), "{forged:?}");
        }
    }

    #[test]
    fn a_ticket_to_log_is_good_under_its_epoch_alone() {
        let secret = TicketSecret::new(ClusterId([1; 16]), &[7; KEY_BYTES]);
        let (node, block) = (NodeId(3), BlockId { stripe: StripeId(9), index: BlockIndex(2) });
        let key = NodeKey::new(ClusterId([1; 16]), &secret.key_of(node));
        let under = |volume, epoch| Some(LogEpoch { volume, epoch });
        let ticket = secret.issue_to_log(node, block, LogEpoch { volume: 5, epoch: 6 }, 1000);
        assert!(key.has_issued(&ticket, under(5, 6)));
        let plain = secret.issue(node, block, 0, Access::Log, 1000);
        for other in [under(5, 7), under(4, 6), under(6, 5), None] {
            assert!(!key.has_issued(&ticket, other), "{other:?}");
        }
        assert!(!key.has_issued(&plain, under(5, 6)) && !key.has_issued(&plain, under(0, 0)));
    }

    #[test]
    fn tickets_and_keys_survive_the_wire() {
        let secret = TicketSecret::new(ClusterId([1; 16]), &[7; KEY_BYTES]);
        let block = BlockId { stripe: StripeId(9), index: BlockIndex(2) };
        let ticket = secret.issue(NodeId(3), block, 4, Access::Log, 1000);
        let packed = rmp_serde::to_vec_named(&ticket).unwrap();
        assert_eq!(rmp_serde::from_slice::<Ticket>(&packed).unwrap(), ticket);
        assert_eq!(key_from(&secret.key_of(NodeId(3))).unwrap(), secret.key_of(NodeId(3)));
        assert!(key_from(&[0; 31]).unwrap_err().to_string().contains("got 31 bytes"));
    }
}
