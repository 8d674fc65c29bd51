//! Names and addresses inside a lab. Every lab uses the same ones, because each has a network of its own.

use std::net::{Ipv4Addr, SocketAddr};

use kintsu_dag::{NodeId, RackId};

/// The network of a lab, which its processes trust.
pub const NETWORK: &str = "10.77.0.0/16";
/// The lab's own process, on the management switch.
pub const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The coordinator's host, on the management switch.
pub const COORDINATOR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// Where the coordinator listens.
pub const COORDINATOR_PORT: u16 = 7400;
/// Where agents listen for commands.
pub const CONTROL_PORT: u16 = 7401;
/// Where agents listen for slices.
pub const DATA_PORT: u16 = 7402;
/// The core switch.
pub const CORE: &str = "core";
/// The management switch, with the coordinator's host and the lab's own process.
pub const MANAGEMENT: &str = "mgmt";
/// The management switch's end of its link to the core.
pub const MANAGEMENT_END: &str = "mgmtup";
/// The core's end of that link.
pub const MANAGEMENT_CORE_END: &str = "mgmtdown";
/// The namespace of the coordinator's host, and its end of the link on the switch.
pub const COORDINATOR_HOST: &str = "coord";
/// The network interface of a host, as the host sees it.
pub const HOST_END: &str = "eth0";

/// The address of a node's host; there are 250 in each /24.
pub fn of_node(node: NodeId) -> Ipv4Addr {
    let (high, low) = (node.0 / 250 + 1, node.0 % 250 + 1);
    Ipv4Addr::new(10, 77, high as u8, low as u8)
}

/// A listener of a node.
pub fn listener(node: NodeId, port: u16) -> SocketAddr {
    SocketAddr::from((of_node(node), port))
}

/// The namespace of a node's host, and its end of the link on the rack's switch.
pub fn host(node: NodeId) -> String {
    format!("h{}", node.0)
}

/// The switch of a rack.
pub fn switch(rack: RackId) -> String {
    format!("rack{}", rack.0)
}

/// The rack's end of its link to the core: what is sent here is the rack's uplink.
pub fn rack_end(rack: RackId) -> String {
    format!("r{}up", rack.0)
}

/// The core's end of a rack's link: what is sent here is the rack's downlink.
pub fn core_end(rack: RackId) -> String {
    format!("r{}down", rack.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::MOST_NODES;

    #[test]
    fn addresses_differ_and_are_on_the_network() {
        let network: kintsu_wire::TrustedNetwork = NETWORK.parse().unwrap();
        let nodes = (0..MOST_NODES as u32).map(|node| of_node(NodeId(node)));
        let all: std::collections::BTreeSet<_> = nodes.chain([OWN, COORDINATOR]).collect();
        assert_eq!(all.len(), MOST_NODES + 2);
        assert!(all.into_iter().all(|addr| network.contains(addr.into())));
    }
}
