//! Turns rates into lines for `tc`. Pure: a description in, lines out.
//!
//! A link without limits of pairs is a token bucket (`tbf`). A host with limits towards other hosts has a tree
//! (`htb`): the uplink at the root, a class for each limited peer, one class for all others, and a filter by
//! destination. The tree is built at the start wherever a limit is given or a later change gives one, so that a
//! change only changes classes.

use std::collections::BTreeSet;

use kintsu_dag::{NodeId, RackId};

use crate::address;
use crate::quantity::Rate;
use crate::spec::{Shape, Spec};

/// The rate that means "no limit" inside a tree: more than the kernel can move.
const UNLIMITED_BITS: u64 = 100_000_000_000;
/// The class of peers without a limit of their own; `htb` numbers are hexadecimal.
const OTHERS: &str = "1:fffe";
/// The guaranteed rate of a class. It borrows the rest from the uplink, up to its limit.
const LEAST_BITS: u64 = 8_000;

impl Shape {
    /// The burst of a link of this rate, in bytes: enough that timers of a few milliseconds fill the link, and a
    /// segment of 64 KiB passes whole.
    pub fn burst_bytes(self, bits: u64) -> u64 {
        self.burst.unwrap_or_else(|| (bits / 8 * 42 / 10_000).clamp(64 << 10, 256 << 10))
    }

    fn queue_bytes(self, bits: u64) -> u64 {
        (bits as f64 / 8.0 * self.latency.as_secs_f64()) as u64 + self.burst_bytes(bits)
    }

    /// The lines that make a device send at this rate, whatever its rate was before.
    pub(crate) fn bucket(self, device: &str, rate: Option<Rate>) -> String {
        match rate {
            Some(rate) => {
                let bits = rate.as_bits();
                let (burst, limit) = (self.burst_bytes(bits), self.queue_bytes(bits));
                format!("qdisc replace dev {device} root tbf rate {bits}bit burst {burst} limit {limit}")
            }
            // A queue long enough to hold all that socket buffers can hold without drops.
            None => format!("qdisc replace dev {device} root pfifo limit 100000"),
        }
    }
}

/// The lines for a node's end of its link, to be run in its namespace; `peers` have a class of their own. The
/// first call makes the tree, later calls change its classes.
pub(crate) fn uplink(spec: &Spec, node: NodeId, peers: &BTreeSet<NodeId>, first: bool) -> Vec<String> {
    let (up, device) = (spec.nodes[node.0 as usize].link.up, address::HOST_END);
    if peers.is_empty() {
        return vec![spec.shape.bucket(device, up)];
    }
    let up = up.map_or(UNLIMITED_BITS, Rate::as_bits);
    let share = (up / (peers.len() as u64 + 1)).max(LEAST_BITS);
    let limits: Vec<(NodeId, u64)> = peers
        .iter()
        .map(|&peer| (peer, spec.pairs.get(&(node, peer)).map_or(up, |rate| rate.as_bits().min(up))))
        .collect();
    let mut lines = Vec::new();
    if first {
        lines.push(format!("qdisc add dev {device} root handle 1: htb default fffe"));
    }
    lines.push(class(spec.shape, "1:", "1:1", up, up));
    lines.push(class(spec.shape, "1:1", OTHERS, share, up));
    for &(peer, limit) in &limits {
        lines.push(class(spec.shape, "1:1", &class_of(peer), share.min(limit), limit));
    }
    if first {
        lines.push(leaf(spec.shape, OTHERS, up));
        for &(peer, limit) in &limits {
            lines.push(leaf(spec.shape, &class_of(peer), limit));
            lines.push(format!(
                "filter add dev {device} parent 1: protocol ip prio 1 u32 match ip dst {}/32 flowid {}",
                address::of_node(peer),
                class_of(peer)
            ));
        }
    }
    lines
}

fn class_of(peer: NodeId) -> String {
    format!("1:{:x}", peer.0 + 0x10)
}

fn class(shape: Shape, parent: &str, id: &str, sure: u64, limit: u64) -> String {
    let burst = shape.burst_bytes(limit);
    format!(
        "class replace dev {} parent {parent} classid {id} htb rate {sure}bit ceil {limit}bit burst {burst} cburst {burst} quantum 65536",
        address::HOST_END
    )
}

fn leaf(shape: Shape, class: &str, limit: u64) -> String {
    format!("qdisc add dev {} parent {class} bfifo limit {}", address::HOST_END, shape.queue_bytes(limit))
}

/// The line for a switch's end of a node's link.
pub(crate) fn downlink(spec: &Spec, node: NodeId) -> String {
    spec.shape.bucket(&address::host(node), spec.nodes[node.0 as usize].link.down)
}

/// The lines for both ends of a rack's link.
pub(crate) fn rack(spec: &Spec, rack: RackId) -> [String; 2] {
    let link = spec.racks[rack.0 as usize];
    [
        spec.shape.bucket(&address::rack_end(rack), link.up),
        spec.shape.bucket(&address::core_end(rack), link.down),
    ]
}

#[cfg(test)]
mod tests {
    use kintsu_plan::Link;

    use super::*;

    fn rate(text: &str) -> Option<Rate> {
        Some(text.parse().unwrap())
    }

    fn lines_of(spec: &Spec, node: NodeId, first: bool) -> Vec<String> {
        uplink(spec, node, &spec.limited_peers(node), first)
    }

    #[test]
    fn a_plain_link_is_a_bucket_with_the_measured_burst() {
        let spec = Spec::even(2, 1, rate("500Mb/s"));
        let line = "qdisc replace dev eth0 root tbf rate 500000000bit burst 262144 limit 6512144";
        assert_eq!(lines_of(&spec, NodeId(0), true), [line]);
        assert_eq!(lines_of(&spec, NodeId(0), false), [line]);
        assert!(downlink(&spec, NodeId(1)).starts_with("qdisc replace dev h1 root tbf rate 500000000bit"));
        assert!(rack(&spec, RackId(0))[0].starts_with("qdisc replace dev r0up root pfifo"));
        assert_eq!(spec.shape.burst_bytes(100_000_000), 64 << 10);
    }

    #[test]
    fn limits_of_pairs_stand_within_the_uplink() {
        let mut spec = Spec::even(3, 1, rate("90Mb/s"));
        spec.set_rate(Link::Pair(NodeId(0), NodeId(1)), rate("20Mb/s")).unwrap();
        spec.set_rate(Link::Pair(NodeId(0), NodeId(2)), rate("200Mb/s")).unwrap();
        let lines = lines_of(&spec, NodeId(0), true);
        let line = |part: &str| lines.iter().find(|line| line.contains(part)).unwrap().as_str();
        assert!(line("classid 1:1 ").contains("parent 1: classid 1:1 htb rate 90000000bit ceil 90000000bit"));
        assert!(line("classid 1:11 ").contains("rate 20000000bit ceil 20000000bit"));
        assert!(line("classid 1:12 ").contains("rate 30000000bit ceil 90000000bit"), "within the uplink");
        assert!(line("10.77.1.2/32").ends_with("flowid 1:11"));
        assert_eq!(lines_of(&spec, NodeId(1), true).len(), 1);
        let later = lines_of(&spec, NodeId(0), false);
        assert!(later.len() == 4 && later.iter().all(|line| line.starts_with("class replace")), "{later:?}");
        // A class whose limit is removed stays, with the rate of the uplink.
        let peers = spec.limited_peers(NodeId(0));
        spec.set_rate(Link::Pair(NodeId(0), NodeId(1)), None).unwrap();
        let lifted = uplink(&spec, NodeId(0), &peers, false);
        assert!(
            lifted.iter().any(|l| l.contains("classid 1:11 ") && l.contains("ceil 90000000bit")),
            "{lifted:?}"
        );
    }

    #[test]
    fn a_limit_that_a_change_will_bring_has_its_class_from_the_start() {
        let mut spec = Spec::even(3, 1, None);
        let link = Link::Pair(NodeId(2), NodeId(0));
        spec.changes.push(crate::Change { at: Default::default(), link, rate: rate("1Mb/s") });
        let lines = lines_of(&spec, NodeId(2), true);
        assert!(
            lines.iter().any(|line| line.contains("classid 1:10 ") && line.contains("ceil 100000000000bit"))
        );
    }
}
