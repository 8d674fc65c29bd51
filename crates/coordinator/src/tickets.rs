//! Issues tickets: what a client may do with the blocks that it asked for.
//!
//! Only with TLS: without it nobody knows who calls an agent. The secret is a file beside the metadata, and not in them, because
//! copies of the metadata are on the agents.

use std::io::{Read as _, Write as _};
use std::path::Path;

use bytes::Bytes;
use kintsu_dag::{BlockId, BlockIndex, NodeId};
use kintsu_wire::ClusterId;
use kintsu_wire::message::{StripeGrant, StripeInfo, VolumeStripe};
use kintsu_wire::ticket::{Access, KEY_BYTES, LogEpoch, Ticket, TicketSecret};
use tokio::time::Instant;

use crate::error::{CoordinatorError, Result};

const FILE: &str = "tickets.key";

/// How long a ticket is valid. Long enough for what a client does with one answer.
const VALID_S: u64 = 24 * 3600;

/// Issues the tickets of a cluster.
pub struct Tickets {
    secret: TicketSecret,
    started: Instant,
    /// The time of day then, in seconds since 1970.
    started_s: u64,
}

impl Tickets {
    /// Reads the secret in the coordinator's folder; makes one if there is none. Blocking.
    ///
    /// # Errors
    /// The file cannot be read or written, or has another length.
    pub fn open(dir: &Path, cluster: ClusterId) -> Result<Self> {
        let secret = TicketSecret::new(cluster, &secret(dir)?);
        let started_s = kintsu_wire::ambient::since_epoch().as_secs();
        Ok(Self { secret, started: Instant::now(), started_s })
    }

    /// The time by which tickets are judged, in seconds since 1970. Setting the clock does not change it.
    pub fn now(&self) -> u64 {
        self.started_s + self.started.elapsed().as_secs()
    }

    /// What a node's agent needs to check tickets, with the time now.
    pub fn for_agent(&self, node: NodeId) -> (Bytes, u64) {
        (Bytes::copy_from_slice(&self.secret.key_of(node)), self.now())
    }

    /// Lets a client read the blocks of a stripe where they are.
    pub fn read(&self, stripe: &mut StripeInfo) {
        let tickets = stripe.blocks.iter().flatten().map(|place| {
            let generation = place.generation.unwrap_or(stripe.generation);
            self.issue(place.node, place.id, generation, Access::Read)
        });
        stripe.tickets = tickets.collect();
    }

    /// Lets a client write the blocks of a stripe where they are to be.
    pub fn write(&self, grant: &mut StripeGrant) {
        let homes = grant.homes.iter().enumerate();
        let homes = homes.filter_map(|(index, home)| Some((BlockIndex(index as u8), (*home)?)));
        let tickets = homes.map(|(index, node)| {
            let block = BlockId { stripe: grant.id, index };
            self.issue(node, block, grant.generation, Access::Write)
        });
        grant.tickets = tickets.collect();
    }

    /// Lets a client read a stripe of a volume with what is logged for it.
    pub fn read_log(&self, mapped: &mut VolumeStripe) {
        self.at_logs(mapped, |node, block, _| self.issue(node, block, 0, Access::ReadLog));
    }

    /// Lets the writer of a volume also log more, under the epoch of the stripe's logs. A node that is not `bound` has an older agent,
    /// which does not know of tickets for an epoch.
    pub fn log(&self, mapped: &mut VolumeStripe, volume: u64, bound: impl Fn(NodeId) -> bool) {
        let (under, until) = (LogEpoch { volume, epoch: mapped.epoch }, self.now() + VALID_S);
        self.at_logs(mapped, |node, block, logs| match logs {
            true if bound(node) => self.secret.issue_to_log(node, block, under, until),
            true => self.issue(node, block, 0, Access::Log),
            false => self.issue(node, block, 0, Access::ReadLog),
        });
    }

    /// Gives tickets for each block at the nodes that log for it, and at its home.
    fn at_logs(&self, mapped: &mut VolumeStripe, issue: impl Fn(NodeId, BlockId, bool) -> Ticket) {
        self.read(&mut mapped.stripe);
        let tickets = mapped.stripe.blocks.iter().enumerate().map(|(index, place)| {
            let block = BlockId { stripe: mapped.stripe.id, index: BlockIndex(index as u8) };
            let logs = mapped.logs.get(index).into_iter().flatten().map(|node| (*node, true));
            let home = place.as_ref().map(|place| (place.node, false));
            logs.chain(home).map(|(node, logs)| issue(node, block, logs)).collect()
        });
        mapped.log_tickets = tickets.collect();
    }

    /// Lets a block's home fix, for a commit, what these nodes have logged for it.
    pub fn freeze<'a>(&self, block: BlockId, nodes: impl Iterator<Item = &'a NodeId>) -> Vec<Ticket> {
        nodes.map(|node| self.issue(*node, block, 0, Access::Freeze)).collect()
    }

    fn issue(&self, node: NodeId, block: BlockId, generation: u32, access: Access) -> Ticket {
        self.secret.issue(node, block, generation, access, self.now() + VALID_S)
    }
}

fn secret(dir: &Path) -> Result<[u8; KEY_BYTES]> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let path = dir.join(FILE);
    let io =
        |source| CoordinatorError::Io { what: format!("the key of tickets, {}", path.display()), source };
    let mut key = Vec::new();
    match std::fs::File::open(&path) {
        Ok(mut file) => {
            file.read_to_end(&mut key).map_err(io)?;
            return Ok(kintsu_wire::ticket::key_from(&key)?);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(io(error)),
    }
    let mut fresh = [0; KEY_BYTES];
    getrandom::fill(&mut fresh).map_err(|error| io(std::io::Error::other(error.to_string())))?;
    // Under its name only when it is whole.
    let aside = dir.join("tickets.key.new");
    let mut file = std::fs::OpenOptions::new();
    let mut file = file.write(true).create(true).truncate(true).mode(0o600).open(&aside).map_err(io)?;
    file.write_all(&fresh).and_then(|()| file.sync_all()).map_err(io)?;
    std::fs::rename(&aside, &path).map_err(io)?;
    std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(io)?;
    Ok(fresh)
}

#[cfg(test)]
mod tests {
    use kintsu_dag::StripeId;
    use kintsu_plan::{Layout, LayoutKind};
    use kintsu_wire::message::BlockPlace;
    use kintsu_wire::ticket::NodeKey;

    use super::*;

    #[test]
    fn the_secret_stays_the_same_and_a_cut_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let first = secret(dir.path()).unwrap();
        assert_eq!(secret(dir.path()).unwrap(), first);
        std::fs::write(dir.path().join(FILE), [1, 2, 3]).unwrap();
        assert!(secret(dir.path()).unwrap_err().to_string().contains("expected 32 bytes, got 3"));
    }
    #[test]
    fn a_writers_tickets_are_for_its_epoch_where_agents_know_of_that() {
        let (dir, cluster) = (tempfile::tempdir().unwrap(), ClusterId([1; 16]));
        let tickets = Tickets::open(dir.path(), cluster).unwrap();
        let place = |node, index| BlockPlace {
            id: BlockId { stripe: StripeId(7), index: BlockIndex(index) },
            node: NodeId(node),
            len: 4096,
            digest: None,
            lost: false,
            generation: None,
        };
        let stripe = StripeInfo {
            id: StripeId(7),
            generation: 1,
            code: "rs:n=3,k=2".into(),
            layout: Layout {
                kind: LayoutKind::Striped,
                block_bytes: 4096,
                cell_bytes: 4096,
                w: 1,
                data_bytes: 8192,
            },
            offset: 0,
            before: 0,
            encoded: true,
            blocks: vec![Some(place(0, 0)), Some(place(3, 1))],
            tickets: Vec::new(),
        };
        let mut mapped = VolumeStripe {
            index: 0,
            stripe,
            owner: None,
            shared: false,
            frozen: false,
            epoch: 5,
            // The home of the second block is gone from its log.
            logs: vec![vec![NodeId(0), NodeId(1)], vec![NodeId(1), NodeId(2)]],
            folders: Default::default(),
            log_tickets: Vec::new(),
        };
        tickets.log(&mut mapped, 9, |node| node != NodeId(2));
        let good = |ticket: &Ticket, node, under| {
            let key = NodeKey::new(cluster, &tickets.secret.key_of(NodeId(node)));
            key.has_issued(ticket, under)
        };
        let under = |volume, epoch| Some(LogEpoch { volume, epoch });
        let [first, second] = [&mapped.log_tickets[0], &mapped.log_tickets[1]];
        for (ticket, node) in [(&first[0], 0), (&first[1], 1), (&second[0], 1)] {
            assert_eq!(ticket.access, Access::Log);
            let told = [under(9, 5), under(9, 6), under(8, 5), None].map(|under| good(ticket, node, under));
            assert_eq!(told, [true, false, false, false], "{node}");
        }
        // An older agent, and a node that is only read.
        assert!(second[1].access == Access::Log && good(&second[1], 2, None));
        assert!(second[2].access == Access::ReadLog && good(&second[2], 3, None));
        tickets.read_log(&mut mapped);
        assert!(mapped.log_tickets.iter().flatten().all(|ticket| ticket.access == Access::ReadLog));
    }
}
