//! What the queue decides and why, for those who look.

use kintsu_plan::traffic::Link;
use kintsu_wire::message::{LinkEnd, LinkInFlight, WaitingRepair, Way, WhyWaits};

use super::{Entry, Queue};

impl Queue {
    /// How many stripes run and how many wait, and the first `most` of those that wait.
    pub fn shown(&self, most: usize) -> (u64, u64, Vec<WaitingRepair>) {
        let shown = |(rank, stripe): (&super::Rank, &kintsu_dag::StripeId)| {
            let entry = self.entries.get(stripe)?;
            let (bears, patient, _) = *rank;
            Some(WaitingRepair { stripe: *stripe, bears, urgent: !patient, why: self.why(entry) })
        };
        let waiting = self.waiting.iter().filter_map(shown).take(most).collect();
        let held = self.entries.values().filter(|entry| entry.held).count();
        (self.running as u64, (self.waiting.len() + held) as u64, waiting)
    }

    /// The links that have something to carry, the busiest first: by what they carry of what is enough.
    pub fn links(&self, most: usize) -> Vec<LinkInFlight> {
        let shown = |(link, bytes, enough)| {
            let (end, way) = named(link);
            LinkInFlight { end, way, bytes, enough, rate: self.flight.rate(link) }
        };
        let mut links: Vec<LinkInFlight> = self.flight.loads().map(shown).collect();
        let share = |link: &LinkInFlight| link.bytes as f64 / link.enough.max(1) as f64;
        links.sort_by(|a, b| share(b).total_cmp(&share(a)).then((a.end, a.way).cmp(&(b.end, b.way))));
        links.truncate(most);
        links
    }

    /// Why a stripe that waits does not begin.
    fn why(&self, entry: &Entry) -> WhyWaits {
        if self.running >= self.limit {
            return WhyWaits::Limit;
        }
        if entry.order.per_node > 0 {
            let most = entry.order.per_node;
            let busy =
                entry.nodes.iter().find(|node| self.parts.get(node).is_some_and(|parts| *parts >= most));
            if let Some(node) = busy {
                return WhyWaits::Busy(*node);
            }
        } else if let Some(link) = self.flight.full(&entry.loads) {
            let (end, way) = named(link);
            return WhyWaits::Full(end, way);
        }
        match self.due.first_key_value() {
            Some(((due, arrival), _)) if *due <= self.started && *arrival != entry.rank.2 => WhyWaits::Passed,
            _ => WhyWaits::Nothing,
        }
    }
}

/// A link as operators know it.
fn named(link: Link) -> (LinkEnd, Way) {
    match link {
        Link::NodeUp(node) => (LinkEnd::Node(node), Way::Up),
        Link::NodeDown(node) => (LinkEnd::Node(node), Way::Down),
        Link::RackUp(rack) => (LinkEnd::Rack(rack), Way::Up),
        Link::RackDown(rack) => (LinkEnd::Rack(rack), Way::Down),
        Link::Pair(from, to) => (LinkEnd::Pair(from, to), Way::Up),
        Link::DiskRead(node) => (LinkEnd::Node(node), Way::Read),
        Link::DiskWrite(node) => (LinkEnd::Node(node), Way::Write),
    }
}
