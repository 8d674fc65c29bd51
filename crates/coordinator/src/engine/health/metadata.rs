//! Whether the metadata can be trusted, and whether there are copies of them.

use kintsu_wire::message::{Cause, CauseKind, Level, NodeState};

use super::{Facts, NodeFacts, about, cause, several, span};

/// A new cluster has its first copy within this time; a copy may be late by as much.
const PATIENCE_S: u64 = 120;
/// A copy is old if it is older than this many periods.
const PERIODS: u64 = 3;

pub(super) fn judge(facts: &Facts, causes: &mut Vec<Cause>) {
    gate(facts, causes);
    causes.extend(copies(facts));
    let back = facts.clock_back_s;
    if back > 0 {
        let title = format!("the clock is {} behind the last copy of the metadata", span(back));
        let advice = "set the clock of the coordinator's host: ages and dates are wrong until then";
        causes.push(cause(Level::Warning, CauseKind::Clock, 1, title, advice));
    }
}

fn gate(facts: &Facts, causes: &mut Vec<Cause>) {
    let gate = &facts.gate;
    if let Some(why) = gate.behind.as_ref().filter(|_| !gate.rebuilding) {
        let title = "the metadata are older than what agents hold: objects may be missing".to_owned();
        let advice = "put the newer metadata back; or start the coordinator with --rebuild, which adds what the blocks \
                      describe; or with --accept-older to go on without what is missing. Until then nothing is deleted";
        let cause = cause(Level::Error, CauseKind::OlderMetadata, 1, title, advice);
        causes.push(Cause { details: vec![why.clone()], ..cause });
    }
    if gate.rebuilding {
        let title = "not known yet: the metadata are being rebuilt from blocks".to_owned();
        let advice = "`kintsu rebuild` shows the progress; `kintsu rebuild finish` ends it; until then nothing is deleted";
        causes.push(cause(Level::Warning, CauseKind::Rebuild, 1, title, advice));
    }
    if let Some((blocks, of, nodes)) = &gate.unreported {
        let what =
            ["has not reported its blocks since the start", "have not reported their blocks since the start"];
        let advice = "wait for the agents, or start those that do not run; until then nothing is deleted, and blocks are \
                      repaired only on request";
        let cause = about(Level::Warning, CauseKind::Unreported, nodes, what, advice);
        let title = format!("not known yet: {} ({blocks} of {of} blocks)", cause.title);
        causes.push(Cause { title, count: *blocks, ..cause });
    }
}

fn copies(facts: &Facts) -> Option<Cause> {
    let (copies, kind) = (&facts.copies, CauseKind::MetadataCopies);
    if facts.stored == 0 {
        return None;
    }
    if copies.wanted == 0 {
        let title = "no copies of the metadata are made (--metadata-copies 0)".to_owned();
        return Some(cause(Level::Healthy, kind, 0, title, "`kintsu backup FILE` writes one"));
    }
    let advice = "`kintsu backup FILE` writes a copy now; the coordinator's log says why agents take none";
    let Some(age) = copies.age_s else {
        let title = "there is no copy of the metadata yet".to_owned();
        let late = copies.uptime_s > PATIENCE_S;
        let (level, advice) = match late {
            true => (Level::Warning, advice),
            false => (Level::Healthy, "the first copy is made within a minute"),
        };
        return Some(cause(level, kind, 0, title, advice));
    };
    let old = PERIODS * copies.every_s + PATIENCE_S;
    if age > old && copies.uptime_s > old && !copies.unchanged {
        let title = format!("the newest copy of the metadata is {} old", span(age));
        return Some(cause(Level::Warning, kind, 0, title, advice));
    }
    let lives = |node: &NodeFacts| matches!(node.state, NodeState::Alive | NodeState::Draining);
    let alive = |id| facts.nodes.iter().any(|node| node.id == id && lives(node));
    let left = copies.holders.iter().filter(|id| alive(**id)).count();
    if copies.holders.is_empty() || left > 0 {
        return None;
    }
    let holders = several(copies.holders.len() as u64, "node");
    let title = format!("no living node keeps the newest copy of the metadata ({holders} took it)");
    Some(cause(Level::Warning, kind, 0, title, advice))
}
