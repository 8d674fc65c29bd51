//! Checks that nobody touches blocks for which the coordinator gave no tickets.
//!
//! The coordinator needs none: it decides itself. An agent shows those that it was given to hand on, as soon as the coordinator says
//! that everybody gives some; until then it passes on replicas without. Without TLS nobody knows who calls.

use std::collections::BTreeSet;

use kintsu_dag::{BlockId, BlockIndex, Sink, Task};
use kintsu_plan::Program;
use kintsu_wire::message::{AppendUpdates, FreezeUpdates, ReadUpdates, RunPrograms};
use kintsu_wire::ticket::{Access, LogEpoch, NodeKey, Ticket};
use kintsu_wire::tls::Wanted;
use kintsu_wire::{ClusterId, Peer, WireError, ticket};
use tokio::time::Instant;
use tonic::Status;

use crate::room::MOST_BYTES;

/// What this node checks tickets with.
#[derive(Debug, Clone)]
pub struct Inspector {
    key: NodeKey,
    /// The previous key, if the coordinator's secret has changed since: tickets under it may be on their way.
    former: Option<NodeKey>,
    /// The coordinator's time, and when it came.
    told: (u64, Instant),
    /// Whether agents need tickets too.
    agents_too: bool,
}

impl Inspector {
    /// With the coordinator's key and time. It replaces `before`, if there is one.
    ///
    /// # Errors
    /// `Invalid` for a key of another length.
    pub fn told(
        cluster: ClusterId,
        (key, now): (&[u8], u64),
        before: Option<&Self>,
    ) -> Result<Self, WireError> {
        let key = NodeKey::new(cluster, &ticket::key_from(key)?);
        let former = match before {
            Some(before) if before.key == key => before.former.clone(),
            other => other.map(|before| before.key.clone()),
        };
        let agents_too = before.is_some_and(|before| before.agents_too);
        Ok(Self { key, former, told: (now, Instant::now()), agents_too })
    }

    /// From now on agents need tickets too. It stays so: whoever says otherwise later wants to do without.
    pub fn demand_of_agents(&mut self) {
        self.agents_too = true;
    }

    /// Whether this caller may pass on replicas without tickets.
    fn excuses(&self, peer: &Peer) -> bool {
        !self.agents_too && is(peer, Wanted::AnyAgent)
    }

    fn now(&self) -> u64 {
        self.told.0 + self.told.1.elapsed().as_secs()
    }

    /// A ticket to log is for an epoch. Those of older coordinators are for all of them: they count until agents need tickets too.
    fn has_issued(&self, ticket: &Ticket, under: Option<LogEpoch>) -> bool {
        let has = |under| {
            [Some(&self.key), self.former.as_ref()]
                .into_iter()
                .flatten()
                .any(|key| key.has_issued(ticket, under))
        };
        let logs = ticket.access == Access::Log;
        (logs && under.is_some() && has(under)) || (!(logs && self.agents_too) && has(None))
    }

    /// Looks for a ticket for `block` among those that were shown, to log under an epoch if that is wanted.
    fn inspect(
        &self,
        block: BlockId,
        generation: Option<u32>,
        (wanted, under): (&[Access], Option<LogEpoch>),
        shown: &[Ticket],
    ) -> Result<(), Status> {
        let fits = |ticket: &&Ticket| {
            ticket.block == block
                && wanted.contains(&ticket.access)
                && generation.is_none_or(|generation| ticket.generation == generation)
        };
        let expected = format!("a ticket to {} {block}", wanted[0]);
        let refused = |got: &str| {
            Err(Status::permission_denied(format!(
                "expected {expected}, got {got}; tickets come with the coordinator's answers (lookup, begin_put)"
            )))
        };
        let Some(ticket) = shown.iter().find(fits) else {
            return refused(if shown.is_empty() { "none" } else { "others only" });
        };
        if !self.has_issued(ticket, under) {
            let got = "one that the coordinator did not issue for this node";
            return refused(&match under {
                Some(LogEpoch { volume, epoch }) => {
                    format!("{got}, or not for epoch {epoch} of volume {volume}")
                }
                None => got.to_owned(),
            });
        }
        let now = self.now();
        if ticket.until < now {
            return refused(&format!("one that expired {} s ago", now - ticket.until));
        }
        Ok(())
    }
}

fn is(peer: &Peer, wanted: Wanted) -> bool {
    peer.badge.as_ref().is_some_and(|badge| badge.is(wanted))
}

fn denied<T>(expected: &str, got: &str) -> Result<T, Status> {
    Err(Status::permission_denied(format!("expected {expected}, got {got}")))
}

/// Who inspects the tickets of `peer`; nobody if it is the coordinator, or if nobody knows who it is. An agent that has no key
/// refuses.
///
/// # Errors
/// `PermissionDenied` if the coordinator issues no tickets.
fn inspector<'a>(peer: &Peer, by: Option<&'a Inspector>) -> Result<Option<&'a Inspector>, Status> {
    let Some(badge) = &peer.badge else { return Ok(None) };
    if badge.is(Wanted::Coordinator) {
        return Ok(None);
    }
    by.map(Some).ok_or_else(|| {
        Status::permission_denied(format!(
            "expected a coordinator that issues tickets (it needs --tls too), got none; refused {badge}"
        ))
    })
}

/// The bytes of all slices of one step.
fn step_bytes(program: &Program) -> u64 {
    let made = |task: &Task| match task {
        Task::Load { .. } | Task::Fetch { .. } => 1,
        Task::Compute { outputs, .. } => outputs.len() as u64,
        Task::Persist { .. } => 0,
    };
    let slices: u64 = program.tasks.iter().map(made).sum();
    let slice = u64::from(program.window.step_bytes).div_ceil(u64::from(program.window.w.max(1)));
    slices.saturating_mul(slice)
}

/// The bytes for which a run of `peer` needs room: those of the slices of its steps, and of the streams that came with it. `None` for
/// the coordinator, and for what calls itself background work where nobody knows who calls.
pub fn room(peer: &Peer, run: &RunPrograms) -> Option<u64> {
    let needs = if peer.badge.is_some() { !is(peer, Wanted::Coordinator) } else { !run.background };
    let enclosed = run.enclosed.iter().map(|stream| stream.frames.len() as u64);
    needs.then(|| run.programs.iter().map(step_bytes).chain(enclosed).fold(0, u64::saturating_add))
}

/// Checks the tickets for the blocks that programs read or write, and what the programs of a user ask for.
///
/// # Errors
/// `PermissionDenied`: a ticket is missing, forged, for something else or too old; an update in place. `ResourceExhausted`: more
/// memory than users' runs may have.
pub fn check_programs(peer: &Peer, by: Option<&Inspector>, run: &RunPrograms) -> Result<(), Status> {
    let Some(by) = inspector(peer, by)? else { return Ok(()) };
    let RunPrograms { programs, tickets: shown, .. } = run;
    if let Some(bytes) = room(peer, run).filter(|bytes| *bytes > MOST_BYTES) {
        return Err(Status::resource_exhausted(format!(
            "expected a run whose steps have at most {MOST_BYTES} bytes, got {bytes}"
        )));
    }
    for program in programs {
        let written: BTreeSet<BlockIndex> = program
            .tasks
            .iter()
            .filter_map(|task| match task {
                Task::Persist { vertex, sink: Sink::Block | Sink::BlockXor } => {
                    Some(program.window.block_of(*vertex))
                }
                _ => None,
            })
            .collect();
        let added = |task: &Task| matches!(task, Task::Persist { sink: Sink::BlockXor, .. });
        if program.tasks.iter().any(added) || program.blocks.iter().any(|block| block.next.is_some()) {
            return Err(Status::permission_denied(
                "expected a program that reads or writes whole blocks, got an update in place: only the coordinator orders those",
            ));
        }
        for block in &program.blocks {
            let wanted = match written.contains(&block.index) {
                true => Access::Write,
                false => Access::Read,
            };
            by.inspect(block.id, Some(block.generation), (&[wanted], None), shown)?;
        }
    }
    Ok(())
}

/// Checks who logs updates: each block needs a ticket for the epoch that the update names. Only the coordinator logs under an epoch that
/// was not fenced here, and an agent only keeps replicas in step with another one.
///
/// # Errors
/// `PermissionDenied`.
pub fn check_append(peer: &Peer, by: Option<&Inspector>, append: &AppendUpdates) -> Result<(), Status> {
    let Some(by) = inspector(peer, by)? else { return Ok(()) };
    if !append.fenced {
        return denied(
            "updates under an epoch that was fenced here",
            "some that only the coordinator may log",
        );
    }
    if !is(peer, Wanted::User) && (!append.replica || !append.forward.is_empty()) {
        return denied("replicas from an agent, for this node alone", "others");
    }
    if by.excuses(peer) {
        return Ok(());
    }
    let mut last = None;
    for update in append.updates.iter().chain(&append.old) {
        let under = LogEpoch { volume: update.volume, epoch: update.epoch };
        // Mostly all are of one block.
        if last.replace((update.block, under)) != Some((update.block, under)) {
            by.inspect(update.block, None, (&[Access::Log], Some(under)), &append.tickets)?;
        }
    }
    Ok(())
}

/// Checks who fixes what a commit takes. An agent, whose home does so for the coordinator, may fix replicas alone.
///
/// # Errors
/// `PermissionDenied`.
pub fn check_freeze(peer: &Peer, by: Option<&Inspector>, freeze: &FreezeUpdates) -> Result<(), Status> {
    let Some(by) = inspector(peer, by)? else { return Ok(()) };
    if !freeze.replica || freeze.replicas.iter().any(|at| !at.is_empty()) {
        return denied("replicas from an agent, of this node alone", "others");
    }
    if by.excuses(peer) {
        return Ok(());
    }
    freeze
        .blocks
        .iter()
        .try_for_each(|block| by.inspect(*block, None, (&[Access::Freeze], None), &freeze.tickets))
}

/// Checks who reads what is logged for a block; a writer does so under the epoch of its ticket.
///
/// # Errors
/// `PermissionDenied`.
pub fn check_read(peer: &Peer, by: Option<&Inspector>, read: &ReadUpdates) -> Result<(), Status> {
    let Some(by) = inspector(peer, by)? else { return Ok(()) };
    let under = read.epochs.map(|epochs| LogEpoch { volume: epochs.volume, epoch: epochs.from });
    by.inspect(read.of.block, None, (&[Access::ReadLog, Access::Log], under), read.ticket.as_slice())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use bytes::Bytes;
    use kintsu_dag::{NodeId, StripeId};
    use kintsu_wire::message::{LoggedUpdate, UpdatesOf, VolumeEpochs};
    use kintsu_wire::ticket::TicketSecret;
    use kintsu_wire::tls::Badge;

    use super::*;

    const CLUSTER: ClusterId = ClusterId([1; 16]);
    const NODE: NodeId = NodeId(3);
    const NOW: u64 = 1000;

    fn peer(role: &str) -> Peer {
        let badge = Badge::new(CLUSTER, vec![role.parse().unwrap()]).unwrap();
        Peer { addr: None, badge: Some(Arc::new(badge)) }
    }

    fn block(stripe: u64) -> BlockId {
        BlockId { stripe: StripeId(stripe), index: BlockIndex(0) }
    }

    fn inspector() -> (TicketSecret, Inspector) {
        let secret = TicketSecret::new(CLUSTER, &[7; 32]);
        let inspector = Inspector::told(CLUSTER, (&secret.key_of(NODE), NOW), None).unwrap();
        (secret, inspector)
    }

    /// An append of an update of each of these blocks.
    fn append(blocks: impl IntoIterator<Item = BlockId>, tickets: &[Ticket]) -> AppendUpdates {
        let update = |block| LoggedUpdate {
            volume: 1,
            epoch: 1,
            block,
            offset: 0,
            data: Bytes::new(),
            zeros: 1,
            delta_of: None,
            sum: None,
        };
        let updates = blocks.into_iter().map(update).collect();
        AppendUpdates { updates, fenced: true, tickets: tickets.to_vec(), ..AppendUpdates::default() }
    }

    #[tokio::test]
    async fn logs_are_for_those_with_tickets_in_time() {
        let (secret, inspector) = inspector();
        let issue = |access, until| match access {
            Access::Log => secret.issue_to_log(NODE, block(1), LogEpoch { volume: 1, epoch: 1 }, until),
            _ => secret.issue(NODE, block(1), 0, access, until),
        };
        let check = |role: &str, writes, shown: &[Ticket]| {
            let of = UpdatesOf { block: block(1), replica: false, upto: 0 };
            let read = ReadUpdates {
                of,
                offset: 0,
                len: 1,
                epochs: Some(VolumeEpochs { volume: 1, from: 1, to: 2 }),
                folder: None,
                over: None,
                plain: false,
                ticket: shown.first().copied(),
            };
            let checked = match writes {
                true => check_append(&peer(role), Some(&inspector), &append([block(1)], shown)),
                false => check_read(&peer(role), Some(&inspector), &read),
            };
            checked.map_err(|e| e.message().to_owned())
        };
        check("client", true, &[issue(Access::Log, NOW + 9)]).unwrap();
        check("operator", false, &[issue(Access::Log, NOW + 9)]).unwrap();
        check("client", false, &[issue(Access::ReadLog, NOW + 9)]).unwrap();
        check("coordinator", true, &[]).unwrap();
        assert!(check("agent/9", false, &[]).unwrap_err().contains("got none"));
        let late = check("client", true, &[issue(Access::Log, NOW - 5)]).unwrap_err();
        assert!(late.contains("expired 5 s ago"), "{late}");
        for other in [Access::ReadLog, Access::Write, Access::Freeze] {
            let refused = check("client", true, &[issue(other, NOW + 9)]).unwrap_err();
            assert!(refused.contains("others only"), "{refused}");
        }
        assert!(check("client", true, &[]).unwrap_err().contains("got none"));
        let refused = check_append(&peer("client"), None, &append([block(1)], &[])).unwrap_err();
        assert!(refused.message().contains("that issues tickets"), "{refused:?}");
        check_append(&Peer::default(), None, &append([block(1)], &[])).unwrap();
        // Each block needs its own.
        let both = append([block(1), block(2), block(1)], &[issue(Access::Log, NOW + 9)]);
        let refused = check_append(&peer("client"), Some(&inspector), &both).unwrap_err();
        assert!(refused.message().contains("expected a ticket to log updates of s2.b0"), "{refused:?}");
    }

    #[tokio::test]
    async fn an_agent_keeps_replicas_in_step_under_tickets_and_does_nothing_else() {
        let (secret, mut inspector) = inspector();
        let issue = |access| secret.issue(NODE, block(1), 0, access, NOW + 9);
        let (unnamed, fix) = (issue(Access::Log), issue(Access::Freeze));
        let log = secret.issue_to_log(NODE, block(1), LogEpoch { volume: 1, epoch: 1 }, NOW + 9);
        let appends = |tickets: &[Ticket]| AppendUpdates { replica: true, ..append([block(1)], tickets) };
        let freezes = |tickets: &[Ticket]| FreezeUpdates {
            blocks: vec![block(1)],
            replica: true,
            tickets: tickets.to_vec(),
            ..FreezeUpdates::default()
        };
        let check = |by: &Inspector, append: &AppendUpdates, freeze: &FreezeUpdates| {
            let agent = peer("agent/9");
            let said = |checked: Result<(), Status>| checked.map_err(|e| e.message().to_owned());
            (said(check_append(&agent, Some(by), append)), said(check_freeze(&agent, Some(by), freeze)))
        };
        // While somebody is there who gives no tickets.
        assert_eq!(check(&inspector, &appends(&[]), &freezes(&[])), (Ok(()), Ok(())));
        // So do the tickets to log that name no epoch.
        assert_eq!(check(&inspector, &appends(&[unnamed]), &freezes(&[])), (Ok(()), Ok(())));
        inspector.demand_of_agents();
        // A coordinator that starts again does not change that.
        let again = Inspector::told(CLUSTER, (&secret.key_of(NODE), NOW), Some(&inspector)).unwrap();
        for by in [&inspector, &again] {
            assert_eq!(check(by, &appends(&[log]), &freezes(&[fix])), (Ok(()), Ok(())));
            for role in ["agent/9", "client"] {
                let refused = check_append(&peer(role), Some(by), &appends(&[unnamed])).unwrap_err();
                assert!(refused.message().contains("not for epoch 1 of volume 1"), "{role}: {refused:?}");
            }
            for (append, freeze) in [(appends(&[]), freezes(&[])), (appends(&[fix]), freezes(&[log]))] {
                let (append, freeze) = check(by, &append, &freeze);
                assert!(append.unwrap_err().contains("expected a ticket to log updates of s1.b0"));
                assert!(freeze.unwrap_err().contains("expected a ticket to fix the log of s1.b0"));
            }
            let elsewhere: SocketAddr = ([127, 0, 0, 1], 1).into();
            for append in [
                AppendUpdates { replica: false, ..appends(&[log]) },
                AppendUpdates { forward: vec![elsewhere], ..appends(&[log]) },
            ] {
                assert!(check(by, &append, &freezes(&[])).0.unwrap_err().contains("replicas from an agent"));
            }
            for freeze in [
                FreezeUpdates { replica: false, ..freezes(&[fix]) },
                FreezeUpdates { replicas: vec![vec![elsewhere]], ..freezes(&[fix]) },
            ] {
                assert!(check(by, &appends(&[]), &freeze).1.unwrap_err().contains("replicas from an agent"));
            }
        }
        for role in ["agent/9", "client"] {
            let unfenced = AppendUpdates { fenced: false, ..appends(&[log]) };
            let refused = check_append(&peer(role), Some(&inspector), &unfenced).unwrap_err();
            assert!(refused.message().contains("only the coordinator may log"), "{role}: {refused:?}");
        }
    }

    #[tokio::test]
    async fn the_steps_of_a_user_have_a_bounded_size() {
        let (_, inspector) = inspector();
        let program = |outputs: u32| Program {
            job: kintsu_plan::RunId(1),
            lane: 0,
            node: NODE,
            window: kintsu_plan::Window::whole(0, 1 << 26, 1 << 26, 1),
            tasks: vec![Task::Compute {
                outputs: (0..outputs).map(kintsu_dag::Vertex).collect(),
                inputs: Vec::new(),
                coefs: Vec::new(),
            }],
            sends: Vec::new(),
            blocks: Vec::new(),
            peers: Vec::new(),
            resume_key: 0,
            serial: false,
            rate: None,
        };
        let check = |role: &str, programs: &[Program]| {
            let run = RunPrograms { programs: programs.to_vec(), ..RunPrograms::default() };
            check_programs(&peer(role), Some(&inspector), &run).map_err(|e| e.code())
        };
        check("client", &[program(8), program(8)]).unwrap();
        for role in ["client", "operator"] {
            assert_eq!(check(role, &[program(16), program(1)]), Err(tonic::Code::ResourceExhausted));
        }
        check("coordinator", &[program(17)]).unwrap();
    }

    #[tokio::test]
    async fn the_key_before_the_last_is_still_good() {
        let keys = [[7; 32], [8; 32], [9; 32]].map(|secret| TicketSecret::new(CLUSTER, &secret));
        let mut inspector = None;
        for secret in [&keys[0], &keys[1], &keys[2], &keys[2]] {
            let told = Inspector::told(CLUSTER, (&secret.key_of(NODE), NOW), inspector.as_ref()).unwrap();
            inspector = Some(told);
        }
        let inspector = inspector.unwrap();
        let good = keys
            .map(|secret| inspector.has_issued(&secret.issue(NODE, block(1), 1, Access::Read, NOW), None));
        assert_eq!(good, [false, true, true]);
    }
}
