//! What can be read, what is at risk, and whether repairs go on.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{NodeId, StripeId};
use kintsu_wire::message::{Cause, CauseKind, DamagedStripe, Level, NodeState};

use super::{Facts, NAMED, NodeFacts, ShortLogs, cause, named, several, span};
use crate::engine::damage::Owners;
use crate::engine::repair::Held;

pub(super) fn judge(facts: &Facts, causes: &mut Vec<Cause>) {
    causes.extend(unreadable(facts));
    causes.extend(lost_logs(facts));
    causes.extend(contradicting(facts));
    causes.extend(uncompared(facts));
    causes.extend(reduced(facts));
    causes.extend(few_logs(facts));
    causes.extend(plain(facts));
    causes.extend(failed(facts));
    causes.extend(cancelled(facts));
    causes.extend(held(facts));
    causes.extend(puts(facts));
}

/// The nodes that are not there and on which blocks are placed.
fn missing(facts: &Facts) -> impl Iterator<Item = &NodeFacts> {
    let gone = |node: &&NodeFacts| !matches!(node.state, NodeState::Alive | NodeState::Draining);
    facts.nodes.iter().filter(gone).filter(|node| node.placed > 0)
}

fn unreadable(facts: &Facts) -> Option<Cause> {
    let damage = &facts.damage;
    if damage.unreadable == 0 {
        return None;
    }
    let away: Vec<_> = missing(facts).map(|node| node.id).collect();
    let advice = match away.as_slice() {
        [] => format!(
            "their blocks are lost on living nodes: bring the blocks back (a disk that was taken out; `kintsu quarantine ls`), \
             or {}",
            again(&damage.owners)
        ),
        away => format!(
            "bring {} back with the same folders (`kintsu nodes` lists states and folders): then the blocks there \
             count again; if something stays unreadable, {}",
            named(away),
            again(&damage.owners)
        ),
    };
    let title = format!("{} of {} cannot be read", several(damage.unreadable, "stripe"), damage.owners);
    let kind = CauseKind::UnreadableStripes;
    Some(Cause {
        stripes: worst(facts, |stripe| !stripe.readable),
        ..cause(Level::Error, kind, damage.unreadable, title, advice)
    })
}

/// What can be done about bytes that are lost.
fn again(owners: &Owners) -> &'static str {
    match (owners.objects, owners.volumes.is_empty()) {
        (_, true) => "put the objects again",
        (0, false) => "restore the volumes from a copy of what was in them",
        (_, false) => "put the objects again, and restore the volumes from a copy of what was in them",
    }
}

fn reduced(facts: &Facts) -> Option<Cause> {
    let reduced = &facts.damage.reduced;
    let count: u64 = reduced.values().sum();
    if count == 0 {
        return None;
    }
    let bears = |(bears, count): (&u64, &u64)| match bears {
        0 => several(*count, "stripe") + " may not survive another loss",
        more => {
            let survive = if *count == 1 { "survives" } else { "survive" };
            format!("{} {survive} {more} more", several(*count, "stripe"))
        }
    };
    let (state, advice) = outlook(facts);
    let title = format!("{} at reduced redundancy ({state})", several(count, "stripe"));
    let kind = CauseKind::ReducedRedundancy;
    Some(Cause {
        stripes: worst(facts, |stripe| stripe.readable),
        details: reduced.iter().map(bears).collect(),
        ..cause(Level::Warning, kind, count, title, advice)
    })
}

/// Logs of volumes that no living node has: their blocks cannot be read, whatever their stripes bear.
fn lost_logs(facts: &Facts) -> Option<Cause> {
    let lost = &facts.logs.lost;
    let (count, nodes) = sum(lost)?;
    let volumes = match lost.keys().next() {
        Some(name) if lost.len() == 1 => format!("volume {name:?}"),
        _ => several(lost.len() as u64, "volume"),
    };
    let what = if count == 1 { "its log" } else { "their logs" };
    let title = format!("{} of {volumes} cannot be read: no living node has {what}", several(count, "block"));
    let advice = format!(
        "bring {} back with the same folders (`kintsu nodes` lists states and folders): each log needs one of its nodes; \
         `kintsu volume abandon-logs NAME` gives up what only nodes logged that are gone for good, and leaves these blocks \
         as the last commit left them",
        named(&nodes)
    );
    Some(about_logs(Level::Error, CauseKind::LostLogs, lost, title, advice))
}

/// Stripes of which a block was recorded wrong.
fn contradicting(facts: &Facts) -> Option<Cause> {
    let count = facts.contradicting.len() as u64;
    let title = format!("the blocks of {} contradict each other", several(count, "stripe"));
    let advice = "a block was recorded wrong, nobody knows which, and nothing is repaired by itself. While no data block is lost, \
                  all is read as it was recorded: `kintsu get` compares an object with its checksum, so put it again from what \
                  comes; copy a volume to a new one, and check what is in it";
    let detail = |(stripe, whose): &(StripeId, String)| format!("stripe {stripe} of {whose}");
    let details = facts.contradicting.iter().take(NAMED).map(detail).collect();
    let kind = CauseKind::ContradictingStripes;
    (count > 0).then(|| Cause { details, ..cause(Level::Error, kind, count, title, advice) })
}

/// A pass over all stripes takes much longer than it should.
fn uncompared(facts: &Facts) -> Option<Cause> {
    let left = facts.late_stripes?;
    let title = format!("stripes were not compared with their codes in time: {left} to go");
    let advice = "`kintsu status` shows how far that is; stripes are compared one after the other, at most 64 every 10 s, and none \
                  while blocks are repaired or an agent of an older release is there; if it is late again and again, there are too \
                  many stripes for the period (`--scrub-every` of the coordinator)";
    Some(cause(Level::Warning, CauseKind::UncomparedStripes, left, title, advice))
}

/// Logs of volumes that another loss may take.
fn few_logs(facts: &Facts) -> Option<Cause> {
    let few = &facts.logs.few;
    let (count, nodes) = sum(few)?;
    let verb = if count == 1 { "is" } else { "are" };
    let title = format!("{} of volumes {verb} on fewer nodes than needed", several(count, "log"));
    let advice = format!(
        "within seconds they are copied to other nodes that live; if this stays, there are too few: bring {} back, or add \
         nodes",
        named(&nodes)
    );
    Some(about_logs(Level::Warning, CauseKind::FewLogs, few, title, advice))
}

/// How many logs, and the nodes that should have them; `None` if there are none.
fn sum(short: &BTreeMap<String, ShortLogs>) -> Option<(u64, Vec<NodeId>)> {
    let nodes: BTreeSet<NodeId> = short.values().flat_map(|short| short.nodes.iter().copied()).collect();
    let count: u64 = short.values().map(|short| short.logs).sum();
    (count > 0).then(|| (count, nodes.into_iter().collect()))
}

/// A cause about logs, with the volumes and the nodes that should have them.
fn about_logs(
    level: Level,
    kind: CauseKind,
    short: &BTreeMap<String, ShortLogs>,
    title: String,
    advice: String,
) -> Cause {
    let (count, nodes) = sum(short).unwrap_or_default();
    let detail = |(volume, short): (&String, &ShortLogs)| {
        let nodes: Vec<NodeId> = short.nodes.iter().copied().collect();
        format!("volume {volume:?}: {} of {}", several(short.logs, "log"), named(&nodes))
    };
    Cause {
        nodes: nodes.into_iter().take(NAMED).collect(),
        details: short.iter().take(NAMED).map(detail).collect(),
        ..cause(level, kind, count, title, advice)
    }
}

/// Stripes of objects that were put with offline encoding: they are not encoded by themselves.
fn plain(facts: &Facts) -> Option<Cause> {
    let title = match facts.plain {
        0 => return None,
        1 => "1 stripe has no parity yet: the loss of one node can lose data".into(),
        more => format!("{more} stripes have no parity yet: the loss of one node can lose data"),
    };
    let advice = "`kintsu encode NAME` encodes an object (`kintsu stat NAME` tells whether it is encoded)";
    Some(cause(Level::Warning, CauseKind::NotEncoded, facts.plain, title, advice))
}

fn worst(facts: &Facts, which: impl Fn(&DamagedStripe) -> bool) -> Vec<DamagedStripe> {
    facts.damage.worst.iter().filter(|stripe| which(stripe)).cloned().collect()
}

/// What becomes of the repairs, and what to do.
fn outlook(facts: &Facts) -> (String, String) {
    let repairs = &facts.repairs;
    if repairs.pending > 0 {
        let blocks = several(repairs.pending, "block");
        return (format!("being repaired, {blocks} to go"), "wait; `kintsu jobs` shows the progress".into());
    }
    let ask = "`kintsu repair` repairs them now".to_owned();
    if facts.gate.unreported.is_some() || facts.gate.behind.is_some() || facts.gate.rebuilding {
        return ("repairs are held back".into(), format!("see the other causes; {ask}"));
    }
    if repairs.held.is_some() {
        return ("repairs are held".into(), format!("bring the missing nodes back; {ask}"));
    }
    if repairs.cancelled {
        return ("repairs were cancelled".into(), ask);
    }
    if repairs.failed.is_some() {
        return ("the last repair failed".into(), "see the failed repairs".into());
    }
    let waits = missing(facts).map(|node| repairs.grace_ms.saturating_sub(node.down_ms) / 1000);
    match waits.min() {
        Some(0) | None => ("repairs begin soon".into(), ask),
        Some(wait) => (
            format!("repairs begin in {}", span(wait)),
            format!("bring the missing nodes back, or wait (`--grace` of the coordinator); {ask}"),
        ),
    }
}

fn failed(facts: &Facts) -> Option<Cause> {
    let (job, why) = facts.repairs.failed.as_ref()?;
    if facts.damage.degraded() == 0 || facts.repairs.pending > 0 {
        return None;
    }
    let advice = format!(
        "`kintsu jobs follow {job}` shows all failures; automatic repairs are tried again every 30 s"
    );
    let title = "the last repair did not repair everything".to_owned();
    let kind = CauseKind::FailedRepairs;
    Some(Cause { details: vec![why.clone()], ..cause(Level::Warning, kind, 1, title, advice) })
}

/// Automatic repair waits, because so much is gone at once.
fn held(facts: &Facts) -> Option<Cause> {
    let (count, title) = match facts.repairs.held? {
        Held::Rack(rack) => (1, format!("all nodes of rack {} are gone: automatic repair is held", rack.0)),
        Held::Nodes { gone, all, share } => {
            let title =
                format!("{gone} of {all} nodes are gone, more than {share}%: automatic repair is held");
            (gone, title)
        }
    };
    let advice = "look for a common cause (power, a switch) and bring the nodes back; `kintsu repair --node ID` rebuilds what \
                  is gone for good, `kintsu config set repair.hold none` lets repairs begin by themselves";
    Some(cause(Level::Warning, CauseKind::HeldRepairs, count.into(), title, advice))
}

fn cancelled(facts: &Facts) -> Option<Cause> {
    let waits = facts.repairs.cancelled && facts.damage.degraded() > 0 && facts.repairs.pending == 0;
    let advice = "`kintsu repair` repairs now and lets automatic repairs go on; they also go on when a node comes or goes";
    let title = "automatic repairs were cancelled by an operator".to_owned();
    waits.then(|| cause(Level::Warning, CauseKind::CancelledRepairs, 1, title, advice))
}

fn puts(facts: &Facts) -> Option<Cause> {
    let count = facts.hanging_puts;
    let title = format!("{} ended without a commit and cannot be undone", several(count, "put"));
    let advice = "the coordinator tries again and again: its log has the reason";
    (count > 0).then(|| cause(Level::Warning, CauseKind::HangingPuts, count, title, advice))
}
