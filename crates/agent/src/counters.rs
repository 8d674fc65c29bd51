//! What the network interface of this host has carried, from the kernel's counters.

use std::net::IpAddr;

use kintsu_wire::message::LinkCounters;

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    name: String,
    /// The speed that the hardware negotiated, in bytes a second.
    speed: Option<u64>,
}

impl Interface {
    /// The interface that has this address. `None` for loopback, which carries what all agents of the host
    /// exchange.
    pub fn of(address: IpAddr) -> Option<Self> {
        let all = if_addrs::get_if_addrs().ok()?;
        let own = all.into_iter().find(|interface| interface.ip() == address && !interface.is_loopback())?;
        let speed = speed(&own.name);
        Some(Self { name: own.name, speed })
    }

    /// What it has carried so far. Blocking.
    pub fn counters(&self) -> Option<LinkCounters> {
        let (received, sent) = parse(&std::fs::read_to_string("/proc/self/net/dev").ok()?, &self.name)?;
        Some(LinkCounters { sent, received, speed: self.speed })
    }
}

/// The speed of an interface, which the kernel gives in Mb/s. A virtual one has no hardware, and its number means nothing.
fn speed(name: &str) -> Option<u64> {
    let folder = std::path::Path::new("/sys/class/net").join(name);
    if !folder.join("device").exists() {
        return None;
    }
    let megabits: u64 = std::fs::read_to_string(folder.join("speed")).ok()?.trim().parse().ok()?;
    (megabits > 0).then(|| megabits.saturating_mul(1_000_000 / 8))
}

/// Bytes received and sent, from the kernel's table of interfaces.
fn parse(table: &str, name: &str) -> Option<(u64, u64)> {
    let row = table.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
    let mut numbers = row.split_whitespace().map(str::parse);
    let received = numbers.next()?.ok()?;
    let sent = numbers.nth(7)?.ok()?;
    Some((received, sent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_table_has_the_bytes_of_both_directions() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n    \
                     lo: 100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n  \
                     eth0:12345 7 0 0 0 0 0 0 678 9 0 0 0 0 0 0\n  eth01: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(parse(table, "eth0"), Some((12345, 678)));
        assert_eq!(parse(table, "eth"), None);
        assert_eq!(parse("eth0: 1 2 3", "eth0"), None);
    }

    #[test]
    fn loopback_is_no_interface_of_a_node() {
        assert_eq!(Interface::of(IpAddr::from([127, 0, 0, 1])), None);
    }
}
