//! What follows from an operator's command to a node: what the driver is to do, or why it is refused.

use kintsu_dag::NodeId;
use kintsu_wire::message::{NodeAction, NodeState};

use super::{Member, Members};

/// What the driver is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Tell its agent to end, then record the node as stopped.
    EndAgent,
    /// Record the node as stopped: its agent does not run.
    RecordStopped,
    /// Start its agent, and wait until it has registered.
    Launch,
    /// Record that it gets no new blocks, then move its blocks elsewhere.
    Drain,
    /// Record that it gets new blocks again, and end its drain.
    Undrain,
    /// Record that it is paused.
    Pause,
    /// Record that its pause has ended.
    Resume,
    /// Delete its blocks, if the rest of the cluster can do without them.
    Wipe,
    /// Nothing: it is so already.
    Nothing,
}

/// Why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such node.
    Unknown,
    /// Its state does not allow it.
    State {
        /// What was tried.
        what: String,
        /// The state that is needed.
        expected: String,
        /// The state, and what to do.
        got: String,
    },
}

impl Members {
    /// What follows from a command. `launches`: this process can start agents.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn command(&self, node: NodeId, action: NodeAction, launches: bool) -> Result<Step, Refusal> {
        let member = self.node(node).ok_or(Refusal::Unknown)?;
        match action {
            NodeAction::Stop if member.up => Ok(Step::EndAgent),
            NodeAction::Stop => Ok(Step::RecordStopped),
            NodeAction::Start if member.up => Ok(Step::Nothing),
            NodeAction::Start if launches => Ok(Step::Launch),
            NodeAction::Start => Err(elsewhere(node, member)),
            NodeAction::Drain if member.up => Ok(Step::Drain),
            NodeAction::Drain => Err(cannot_drain(node, member)),
            NodeAction::Undrain if member.record.draining => Ok(Step::Undrain),
            NodeAction::Undrain => Ok(Step::Nothing),
            NodeAction::Pause => Ok(Step::Pause),
            NodeAction::Resume if member.is_paused() => Ok(Step::Resume),
            NodeAction::Resume => Ok(Step::Nothing),
            NodeAction::Wipe => Ok(Step::Wipe),
        }
    }

    /// Whether a node can be forgotten on which the metadata place `placed` blocks, and which should have logs of these volumes.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn may_forget(&self, node: NodeId, placed: u64, logged: &[String]) -> Result<(), Refusal> {
        let id = node.0;
        let up = self.node(node).ok_or(Refusal::Unknown)?.up;
        let refuse = |expected: &str, got: String| {
            let (what, expected) = (format!("forgetting node {id}"), expected.to_owned());
            Err(Refusal::State { what, expected, got })
        };
        match (up, placed) {
            (true, 0) => refuse(
                "a node whose agent has ended",
                format!("one that lives: `kintsu node stop {id}` ends it"),
            ),
            (true, _) => refuse(
                "a node whose agent has ended",
                format!(
                    "one that lives: `kintsu node drain {id}` moves its blocks, then `kintsu node stop {id}`"
                ),
            ),
            (false, 0) => match logged {
                [] => Ok(()),
                [volume, ..] => refuse(
                    "a node that no log of a volume needs",
                    format!(
                        "one that has logs of volume {volume:?}: start its agent again, or wait some seconds if other nodes have \
                         them too; `kintsu health` says which logs no living node has"
                    ),
                ),
            },
            (false, _) => refuse(
                "a node whose blocks nobody needs",
                format!(
                    "one on which {placed} are placed: `kintsu repair --node {id}` rebuilds them on other nodes"
                ),
            ),
        }
    }
}

/// The refusal to start an agent of another process, with what to run where.
fn elsewhere(node: NodeId, member: &Member) -> Refusal {
    let record = &member.record;
    if record.is_unheard() {
        return Refusal::State {
            what: format!("starting node {}", node.0),
            expected: "a node that was heard of before".into(),
            got:
                "one whose folder and host are not known: start its agent there (`kintsu agent --dir FOLDER`)"
                    .into(),
        };
    }
    let rack = record.rack_name.clone().unwrap_or_else(|| record.rack.0.to_string());
    Refusal::State {
        what: format!("starting node {}", node.0),
        expected: "an agent of the coordinator's own process (`kintsu up`)".into(),
        got: format!(
            "one that runs apart: on its host ({}), run `kintsu agent --dir {} --rack {rack} --coordinator HOST:PORT`, \
             with the other options that it had",
            record.control.ip(),
            quoted(&record.dir)
        ),
    }
}

/// A folder as a shell takes it.
fn quoted(dir: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c);
    if dir.chars().all(plain) { dir.to_owned() } else { format!("'{}'", dir.replace('\'', "'\\''")) }
}

fn cannot_drain(node: NodeId, member: &Member) -> Refusal {
    let id = node.0;
    let state = match member.state() {
        NodeState::Failed => "one whose disk failed",
        NodeState::Stopped => "one that is stopped",
        _ => "one that is dead",
    };
    Refusal::State {
        what: format!("draining node {id}"),
        expected: "a living node, from which blocks can be copied".into(),
        got: format!(
            "{state}: start it; or have its blocks rebuilt elsewhere (`kintsu repair --node {id}`), then forget it \
             (`kintsu node forget {id}`)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::engine::members::Patience;
    use crate::engine::members::tests::record;
    use kintsu_wire::message::DiskUsage;

    const NODE: NodeId = NodeId(3);

    fn members() -> Members {
        let patience = Patience { dead_after_ms: 50, grace_ms: 600 };
        let mut members = Members::new(patience, BTreeMap::new(), 0);
        members.enrolled(NODE, record(7), 0);
        members
    }

    fn words(refused: Result<impl std::fmt::Debug, Refusal>) -> String {
        match refused.unwrap_err() {
            Refusal::Unknown => "unknown".into(),
            Refusal::State { what, expected, got } => format!("{what}: expected {expected}, got {got}"),
        }
    }

    #[test]
    fn a_living_node_is_stopped_drained_or_wiped_and_needs_no_start() {
        let mut m = members();
        let step = |m: &Members, action| m.command(NODE, action, true).unwrap();
        assert_eq!(step(&m, NodeAction::Stop), Step::EndAgent);
        assert_eq!(step(&m, NodeAction::Drain), Step::Drain);
        assert_eq!(step(&m, NodeAction::Wipe), Step::Wipe);
        assert_eq!(step(&m, NodeAction::Undrain), Step::Nothing);
        m.set_draining(NODE, true);
        assert_eq!(step(&m, NodeAction::Start), Step::Nothing, "the drain goes on");
        assert_eq!(step(&m, NodeAction::Undrain), Step::Undrain);
        assert_eq!(step(&m, NodeAction::Resume), Step::Nothing);
        assert_eq!(step(&m, NodeAction::Pause), Step::Pause);
        m.set_paused(NODE, Some(9));
        assert_eq!(step(&m, NodeAction::Resume), Step::Resume);
        assert_eq!(m.command(NodeId(9), NodeAction::Stop, true), Err(Refusal::Unknown));
    }

    #[test]
    fn an_agent_that_runs_apart_is_started_where_it_was() {
        let mut m = members();
        m.tick(50);
        assert_eq!(m.command(NODE, NodeAction::Start, true), Ok(Step::Launch));
        assert_eq!(m.command(NODE, NodeAction::Stop, true), Ok(Step::RecordStopped));
        m.recorded(NODE, |record| (record.dir, record.rack_name) = ("/it's/d".into(), Some("dc1/r7".into())));
        let said = words(m.command(NODE, NodeAction::Start, false));
        assert!(said.contains("on its host (127.0.0.1)"), "{said}");
        assert!(said.contains("`kintsu agent --dir '/it'\\''s/d' --rack dc1/r7 "), "{said}");
    }

    #[test]
    fn a_node_that_is_not_there_cannot_be_drained() {
        let mut m = members();
        m.seen(NODE, 7, DiskUsage::default(), Some("unmounted".into()), 10).unwrap();
        assert!(words(m.command(NODE, NodeAction::Drain, true)).contains("one whose disk failed: "));
        let mut m = members();
        m.stopped(NODE, 10);
        let said = words(m.command(NODE, NodeAction::Drain, true));
        assert!(said.contains("one that is stopped: ") && said.contains("kintsu repair --node 3"), "{said}");
    }

    #[test]
    fn only_a_node_that_is_gone_and_empty_is_forgotten() {
        let mut m = members();
        assert!(words(m.may_forget(NODE, 0, &[])).ends_with("`kintsu node stop 3` ends it"));
        assert!(words(m.may_forget(NODE, 2, &[])).contains("`kintsu node drain 3`"));
        m.tick(50);
        let said = words(m.may_forget(NODE, 2, &[]));
        assert!(said.contains("2 are placed: `kintsu repair --node 3`"), "{said}");
        let said = words(m.may_forget(NODE, 0, &["disk".into()]));
        assert!(
            said.contains("no log of a volume needs, got one that has logs of volume \"disk\""),
            "{said}"
        );
        assert_eq!(m.may_forget(NODE, 0, &[]), Ok(()));
        assert_eq!(m.may_forget(NodeId(9), 0, &[]), Err(Refusal::Unknown));
    }
}
