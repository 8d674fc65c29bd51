//! The least time in which links carry a plan: the busiest link's bytes over its rate. What it leaves out: waiting of
//! one transfer for another, headers, processors, disks.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use kintsu_dag::RackId;
use kintsu_plan::{Account, Topology};

/// Seconds; 0 where no link has a limit.
pub fn seconds(account: &Account, topology: &Topology) -> f64 {
    let rates = &topology.rates;
    let (mut up, mut down): (BTreeMap<RackId, u64>, BTreeMap<RackId, u64>) = Default::default();
    for link in account.links.iter().filter(|link| link.across_racks) {
        if let (Some(from), Some(to)) = (topology.rack(link.from), topology.rack(link.to)) {
            *up.entry(from).or_default() += link.bytes;
            *down.entry(to).or_default() += link.bytes;
        }
    }
    let pairs: BTreeMap<_, _> = account.links.iter().map(|link| ((link.from, link.to), link.bytes)).collect();
    [
        longest(&account.sent, &rates.up),
        longest(&account.received, &rates.down),
        longest(&up, &rates.rack_up),
        longest(&down, &rates.rack_down),
        longest(&pairs, &rates.pairs),
    ]
    .into_iter()
    .fold(0.0, f64::max)
}

/// The longest time of any of these.
fn longest<K: Ord>(bytes: &BTreeMap<K, u64>, rates: &BTreeMap<K, NonZeroU64>) -> f64 {
    let times = bytes.iter().filter_map(|(key, bytes)| Some(*bytes as f64 / rates.get(key)?.get() as f64));
    times.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use kintsu_dag::NodeId;
    use kintsu_plan::{Link, Node, Rates};

    use super::*;

    #[test]
    fn the_busiest_link_holds_the_plan() {
        let node = |rack| Node { rack: RackId(rack), usable: true, used_bytes: 0 };
        let rate = |r| NonZeroU64::new(r).unwrap();
        let ids = [NodeId(0), NodeId(1), NodeId(2)];
        let nodes = [(ids[0], node(0)), (ids[1], node(1)), (ids[2], node(0))].into();
        let mut topology = Topology { nodes, rates: Rates::even(ids, rate(100)) };
        let link = |from: usize, to: usize, across_racks| Link {
            from: ids[from],
            to: ids[to],
            bytes: 500,
            across_racks,
        };
        let account = Account {
            links: vec![link(0, 1, true), link(2, 1, true)],
            sent: [(ids[0], 500), (ids[2], 500)].into(),
            received: [(ids[1], 1000)].into(),
            ..Account::default()
        };
        assert_eq!(seconds(&account, &topology), 10.0);
        topology.rates.rack_up.insert(RackId(0), rate(50));
        assert_eq!(seconds(&account, &topology), 20.0);
        topology.rates.pairs.insert((ids[2], ids[1]), rate(10));
        assert_eq!(seconds(&account, &topology), 50.0);
        assert_eq!(seconds(&account, &Topology::default()), 0.0);
    }
}
