//! The kernel's counters of bytes and packets on every link. They do not depend on any process of the lab.
//!
//! Bytes include the Ethernet, IP and TCP headers of packets. The kernel passes segments of up to 64 KiB whole
//! through the virtual cables, so there is one header of 66 bytes per segment, not per packet. The counters
//! are therefore a few thousandths above the payload.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::address::{self, COORDINATOR_HOST, MANAGEMENT_END};
use crate::command::run;
use crate::error::{LabError, Result};
use crate::spec::Spec;

/// The traffic on a link since it was made, or between two snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes sent towards the core.
    pub sent_bytes: u64,
    /// Segments sent towards the core.
    pub sent_packets: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Segments received.
    pub received_packets: u64,
}

/// A snapshot of all counters, or the difference of two.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// The link of each node, by `NodeId`.
    pub nodes: Vec<Traffic>,
    /// The link of each rack to the core, by `RackId`: what its nodes sent to and received from outside.
    pub racks: Vec<Traffic>,
    /// The link of the coordinator's host.
    pub coordinator: Traffic,
    /// What the coordinator and the lab's own process, with its clients, sent to nodes and received from them.
    #[serde(default)]
    pub management: Traffic,
}

impl Counters {
    /// The traffic since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let all = |now: &[Traffic], before: &[Traffic]| -> Vec<Traffic> {
            now.iter().zip(before).map(|(now, before)| now.since(*before)).collect()
        };
        Self {
            nodes: all(&self.nodes, &before.nodes),
            racks: all(&self.racks, &before.racks),
            coordinator: self.coordinator.since(before.coordinator),
            management: self.management.since(before.management),
        }
    }

    /// Bytes that all nodes sent.
    pub fn sent_bytes(&self) -> u64 {
        self.nodes.iter().map(|node| node.sent_bytes).sum()
    }

    /// Bytes that racks sent to other racks, the coordinator and the lab's own process.
    pub fn cross_rack_bytes(&self) -> u64 {
        self.racks.iter().map(|rack| rack.sent_bytes).sum()
    }

    /// Bytes that nodes sent to nodes of other racks.
    pub fn between_racks_bytes(&self) -> u64 {
        self.cross_rack_bytes().saturating_sub(self.management.received_bytes)
    }

    /// Segments that nodes sent to nodes of other racks.
    pub fn between_racks_packets(&self) -> u64 {
        let sent: u64 = self.racks.iter().map(|rack| rack.sent_packets).sum();
        sent.saturating_sub(self.management.received_packets)
    }
}

impl Traffic {
    fn since(self, before: Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            sent_packets: self.sent_packets.saturating_sub(before.sent_packets),
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
            received_packets: self.received_packets.saturating_sub(before.received_packets),
        }
    }

    /// The same traffic as seen from the other end of the link.
    fn turned(self) -> Self {
        Self {
            sent_bytes: self.received_bytes,
            sent_packets: self.received_packets,
            received_bytes: self.sent_bytes,
            received_packets: self.sent_packets,
        }
    }
}

/// Reads all counters at once.
pub async fn read(spec: &Spec) -> Result<Counters> {
    let listed = run("ip", &["-s", "-j", "link", "show"], "").await?;
    let devices = parse(&listed)?;
    let of = |name: String| {
        devices
            .get(&name)
            .copied()
            .ok_or_else(|| LabError::invalid("counters", format!("a device {name}"), "none"))
    };
    let racks = (0..spec.racks.len() as u32).map(kintsu_dag::RackId);
    Ok(Counters {
        // These are the switch's ends of the cables: the host sent what the switch receives there.
        nodes: spec.node_ids().map(|node| Ok(of(address::host(node))?.turned())).collect::<Result<_>>()?,
        racks: racks.map(|rack| of(address::rack_end(rack))).collect::<Result<_>>()?,
        coordinator: of(COORDINATOR_HOST.to_owned())?.turned(),
        management: of(MANAGEMENT_END.to_owned())?,
    })
}

#[derive(Deserialize)]
struct Device {
    ifname: String,
    stats64: Option<Statistics>,
}

#[derive(Deserialize)]
struct Statistics {
    rx: Direction,
    tx: Direction,
}

#[derive(Deserialize)]
struct Direction {
    bytes: u64,
    packets: u64,
}

fn parse(listed: &str) -> Result<BTreeMap<String, Traffic>> {
    let devices: Vec<Device> =
        serde_json::from_str(listed).map_err(|e| LabError::invalid("counters", "a list of devices", e))?;
    let traffic = |Statistics { rx, tx }| Traffic {
        sent_bytes: tx.bytes,
        sent_packets: tx.packets,
        received_bytes: rx.bytes,
        received_packets: rx.packets,
    };
    Ok(devices.into_iter().filter_map(|d| Some((d.ifname, traffic(d.stats64?)))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_and_snapshots_subtracted() {
        let listed = r#"[{"ifname":"lo","mtu":65536},{"ifname":"h0","stats64":{"rx":{"bytes":490,"packets":7,
            "errors":0},"tx":{"bytes":1007,"packets":13,"errors":0}}}]"#;
        let seen = parse(listed).unwrap();
        let traffic =
            Traffic { sent_bytes: 1007, sent_packets: 13, received_bytes: 490, received_packets: 7 };
        assert_eq!(seen, [("h0".to_owned(), traffic)].into());
        assert_eq!(traffic.turned().turned(), traffic);
        let management = Traffic { received_bytes: 7, received_packets: 2, ..Traffic::default() };
        let now = Counters { nodes: vec![traffic], racks: vec![traffic], coordinator: traffic, management };
        assert_eq!((now.between_racks_bytes(), now.between_racks_packets()), (1000, 11));
        assert_eq!(now.since(&now).sent_bytes(), 0);
        let before = Counters { nodes: vec![Traffic::default()], ..now.clone() };
        assert_eq!(now.since(&before).sent_bytes(), 1007);
        assert!(parse("nonsense").unwrap_err().to_string().contains("expected"));
    }
}
