//! Which nodes are not there, full, on their way out, or in doubt.

use kintsu_dag::NodeId;
use kintsu_wire::message::{Cause, CauseKind, Fullness, Level, NodeState};

use super::{CodeFacts, Facts, NodeFacts, about, cause, named, several};

pub(super) fn judge(facts: &Facts, causes: &mut Vec<Cause>) {
    absent(facts, causes);
    full(facts, causes);
    leaving(facts, causes);
    doubtful(facts, causes);
    places(facts, causes);
    unverified(facts, causes);
    paused(facts, causes);
}

/// Nodes whose blocks are not repaired for a while, because an operator said so.
fn paused(facts: &Facts, causes: &mut Vec<Cause>) {
    let paused = ids(facts, |node| node.paused_s.is_some());
    if paused.is_empty() {
        return;
    }
    let what =
        ["is paused: no repair of it begins by itself", "are paused: no repair of them begins by itself"];
    let advice = "this ends in time; `kintsu node resume ID` ends it now";
    let left = |node: &NodeFacts| {
        let minutes = node.paused_s?.div_ceil(60);
        Some(format!("node {}: for {minutes} more minutes", node.id.0))
    };
    let cause = about(Level::Healthy, CauseKind::PausedNodes, &paused, what, advice);
    causes.push(Cause { details: facts.nodes.iter().filter_map(left).take(super::NAMED).collect(), ..cause });
}

/// Nodes whose blocks are verified much later than they should be.
fn unverified(facts: &Facts, causes: &mut Vec<Cause>) {
    let every = facts.scrub_every_s;
    let late = |node: &NodeFacts| node.state == NodeState::Alive && node.placed > 0;
    let late = ids(facts, |node| late(node) && every > 0 && node.unverified_s > every.saturating_mul(2));
    let what = ["has blocks that were not verified in time", "have blocks that were not verified in time"];
    let advice = "`kintsu nodes` shows when they last were; `kintsu scrub --node ID` verifies them now; if this comes again, the \
                  disk or the limit of background work (`kintsu config show`) is too slow";
    add(causes, Level::Warning, CauseKind::UnverifiedNodes, &late, what, advice);
}

fn ids(facts: &Facts, which: impl Fn(&NodeFacts) -> bool) -> Vec<NodeId> {
    facts.nodes.iter().filter(|node| which(node)).map(|node| node.id).collect()
}

/// Adds a cause about nodes, if there are such.
fn add(
    causes: &mut Vec<Cause>,
    level: Level,
    kind: CauseKind,
    nodes: &[NodeId],
    what: [&str; 2],
    advice: impl Into<String>,
) {
    if !nodes.is_empty() {
        causes.push(about(level, kind, nodes, what, advice));
    }
}

/// Whether nothing is lost with a node that is gone: no block is placed on it, and no log of a volume names it.
fn is_empty(facts: &Facts, node: &NodeFacts) -> bool {
    node.placed == 0 && facts.logs.volumes_of(node.id).is_empty()
}

/// Nodes in a state on which no block is placed, but which should have logs of volumes.
fn logging(facts: &Facts, which: impl Fn(&NodeFacts) -> bool) -> Vec<NodeId> {
    ids(facts, |node| which(node) && node.placed == 0 && !is_empty(facts, node))
}

/// What to do about a node that is gone with logs of volumes.
const LOGS: &str = "start its agent again; a log that another node has too is copied elsewhere within seconds, one that no \
                    other node has is a cause of its own here";

fn absent(facts: &Facts, causes: &mut Vec<Cause>) {
    let failed = ids(facts, |node| node.state == NodeState::Failed);
    if !failed.is_empty() {
        let advice = "mount the disk again; or start its agent on a new disk (`kintsu agent --dir ... --id ID --replace`)";
        let told = facts
            .nodes
            .iter()
            .filter_map(|node| Some(format!("node {}: {}", node.id.0, node.failed.as_ref()?)));
        let what = ["has a failed disk", "have failed disks"];
        let cause = about(Level::Warning, CauseKind::FailedDisks, &failed, what, advice);
        causes.push(Cause { details: told.take(super::NAMED).collect(), ..cause });
    }
    let dead = |node: &NodeFacts| node.state == NodeState::Dead && !node.unheard;
    let needed = ids(facts, |node| dead(node) && node.placed > 0);
    let advice = "start its agent again; if it is gone for good, `kintsu repair --node ID` rebuilds its blocks elsewhere, \
                  then `kintsu node forget ID`";
    add(causes, Level::Warning, CauseKind::DeadNodes, &needed, ["is dead", "are dead"], advice);
    let what = ["is dead and has logs of volumes", "are dead and have logs of volumes"];
    add(causes, Level::Warning, CauseKind::DeadNodes, &logging(facts, dead), what, LOGS);
    let empty = ids(facts, |node| dead(node) && is_empty(facts, node));
    let what = ["is dead and holds no block that is needed", "are dead and hold no block that is needed"];
    let advice = "start its agent again, or forget it: `kintsu node forget ID`";
    add(causes, Level::Warning, CauseKind::DeadNodes, &empty, what, advice);
    let stopped = |node: &NodeFacts| node.state == NodeState::Stopped;
    let needed = ids(facts, |node| stopped(node) && node.placed > 0);
    let advice = "start it again (`kintsu node start ID`); or have its blocks rebuilt elsewhere (`kintsu repair --node ID`)";
    let what = ["is stopped and holds blocks", "are stopped and hold blocks"];
    add(causes, Level::Warning, CauseKind::StoppedNodes, &needed, what, advice);
    let what = ["is stopped and has logs of volumes", "are stopped and have logs of volumes"];
    add(causes, Level::Warning, CauseKind::StoppedNodes, &logging(facts, stopped), what, LOGS);
    let empty = ids(facts, |node| stopped(node) && is_empty(facts, node));
    let what = ["is stopped and empty", "are stopped and empty"];
    add(
        causes,
        Level::Healthy,
        CauseKind::StoppedNodes,
        &empty,
        what,
        "`kintsu node forget ID` removes it from the list",
    );
    let unheard = ids(facts, |node| node.unheard && node.state != NodeState::Alive);
    let what = ["is named by blocks and was never heard of", "are named by blocks and were never heard of"];
    let advice = "start its agent on its folder; if it is gone for good, `kintsu repair --node ID`, then `kintsu node forget ID`";
    add(causes, Level::Warning, CauseKind::UnheardNodes, &unheard, what, advice);
}

fn full(facts: &Facts, causes: &mut Vec<Cause>) {
    let living = |node: &NodeFacts| matches!(node.state, NodeState::Alive | NodeState::Draining);
    let full = ids(facts, |node| living(node) && node.fullness == Fullness::Full);
    let advice = "it gets no new blocks: free space on its file system, add nodes, or `kintsu node drain ID` moves its \
                  blocks; `kintsu df` shows the space (`--reserve` of the coordinator is kept free)";
    add(causes, Level::Warning, CauseKind::FullNodes, &full, ["is full", "are full"], advice);
    let nearly = ids(facts, |node| living(node) && node.fullness == Fullness::NearlyFull);
    let advice = "it soon gets no new blocks: add nodes, or free space; `kintsu df` shows the space";
    let what = ["is nearly full", "are nearly full"];
    add(causes, Level::Warning, CauseKind::NearlyFullNodes, &nearly, what, advice);
    let unknown = ids(facts, |node| living(node) && node.fullness == Fullness::Unknown);
    let what = ["has not told its free space yet", "have not told their free space yet"];
    let advice = "wait for its next heartbeat; until then it counts as a node with room";
    add(causes, Level::Healthy, CauseKind::UnknownSpace, &unknown, what, advice);
}

fn leaving(facts: &Facts, causes: &mut Vec<Cause>) {
    let kind = CauseKind::DrainingNodes;
    let running = ids(facts, |node| node.draining && node.drain_runs);
    let what = ["is being emptied", "are being emptied"];
    add(causes, Level::Healthy, kind, &running, what, "`kintsu jobs` shows the progress");
    let halted = ids(facts, |node| node.draining && !node.drain_runs && node.placed > 0);
    let what =
        ["is to be emptied, but no job moves its blocks", "are to be emptied, but no job moves their blocks"];
    let advice = "`kintsu node drain ID` goes on; `kintsu node undrain ID` gives it new blocks again";
    add(causes, Level::Warning, kind, &halted, what, advice);
    let empty = ids(facts, |node| node.draining && !node.drain_runs && is_empty(facts, node));
    let what = ["was emptied and gets no new blocks", "were emptied and get no new blocks"];
    let advice = "take it away (`kintsu node stop ID`, then `kintsu node forget ID`), or use it again (`kintsu node undrain ID`)";
    add(causes, Level::Healthy, kind, &empty, what, advice);
    let wiping = ids(facts, |node| node.wiping);
    let what = ["is to be wiped", "are to be wiped"];
    let advice = "a living node is wiped now (`kintsu jobs`), another one as soon as it is back";
    add(causes, Level::Healthy, CauseKind::WipingNodes, &wiping, what, advice);
}

fn doubtful(facts: &Facts, causes: &mut Vec<Cause>) {
    let suspected = ids(facts, |node| node.suspect && node.state == NodeState::Alive);
    let what =
        ["could not be reached since its last heartbeat", "could not be reached since their last heartbeats"];
    let advice = "wait for a heartbeat; if this stays, look at the network between the hosts";
    add(causes, Level::Healthy, CauseKind::SuspectedNodes, &suspected, what, advice);
    let held = ids(facts, |node| node.held > 0);
    let blocks: u64 = facts.nodes.iter().map(|node| node.held).sum();
    if !held.is_empty() {
        let title = format!("{} on {} looked unknown at once", several(blocks, "block"), named(&held));
        let advice = "they are set aside and kept: the metadata may be wrong instead; look at them with `kintsu quarantine ls \
                      --node ID`, then `kintsu quarantine confirm ID`";
        let cause = cause(Level::Warning, CauseKind::HeldBlocks, blocks, title, advice);
        causes.push(Cause { nodes: held.into_iter().take(super::NAMED).collect(), ..cause });
    }
    let aside = ids(facts, |node| node.aside > 0 && node.held == 0);
    let blocks: u64 = facts.nodes.iter().filter(|node| node.held == 0).map(|node| node.aside).sum();
    if !aside.is_empty() {
        let title = format!("{} in quarantine on {}", several(blocks, "block"), named(&aside));
        let advice = "`kintsu quarantine ls` lists them with the reasons; they are deleted in time (`--quarantine-keep`)";
        let cause = cause(Level::Healthy, CauseKind::Quarantine, blocks, title, advice);
        causes.push(Cause { nodes: aside.into_iter().take(super::NAMED).collect(), ..cause });
    }
}

/// Codes in use that need more nodes than can take blocks now. A small object has fewer blocks than a code.
fn places(facts: &Facts, causes: &mut Vec<Cause>) {
    let open = facts.nodes.iter().filter(|node| node.open).count();
    let mut refused: Vec<&CodeFacts> = facts.codes.iter().filter(|code| code.n > open).collect();
    let takes_none = |code: &CodeFacts| code.fewest() > open;
    refused.sort_by_key(|code| !takes_none(code));
    let Some(first) = refused.first() else { return };
    let level = if facts.codes.iter().all(takes_none) { Level::Error } else { Level::Warning };
    let what = if takes_none(first) { "puts" } else { "puts of all but small objects" };
    let others = match refused.len() {
        1 => String::new(),
        more => format!(" (and {})", several(more as u64 - 1, "other code")),
    };
    let CodeFacts { name, n, .. } = first;
    let title =
        format!("{what} with {name}{others} are refused: {open} of the {n} nodes that they need take blocks");
    let advice = "bring nodes back, add nodes, or free space; repairs may lack a place too";
    let detail = |code: &&CodeFacts| {
        format!("{} needs {} nodes, {} for a small object", code.name, code.n, code.fewest())
    };
    let list = refused.iter().map(detail).collect();
    let cause = cause(level, CauseKind::NoPlace, refused.len() as u64, title, advice);
    causes.push(Cause { details: list, ..cause });
}
