//! Checks that clients and operators touch only blocks for which the coordinator gave them tickets.
//!
//! Others need none: a coordinator decides itself, an agent passes on what it was told, and without TLS nobody knows who
//! calls.

use std::collections::BTreeSet;

use kintsu_dag::{BlockId, BlockIndex, Sink, Task};
use kintsu_plan::Program;
use kintsu_wire::ticket::{Access, NodeKey, Ticket};
use kintsu_wire::tls::Wanted;
use kintsu_wire::{ClusterId, Peer, WireError, ticket};
use tokio::time::Instant;
use tonic::Status;

/// What this node checks tickets with.
#[derive(Debug, Clone)]
pub struct Inspector {
    key: NodeKey,
    /// The previous key, if the coordinator's secret has changed since: tickets under it may be on their way.
    former: Option<NodeKey>,
    /// The coordinator's time, and when it came.
    told: (u64, Instant),
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
        Ok(Self { key, former, told: (now, Instant::now()) })
    }

    fn now(&self) -> u64 {
        self.told.0 + self.told.1.elapsed().as_secs()
    }

    fn has_issued(&self, ticket: &Ticket) -> bool {
        self.key.has_issued(ticket) || self.former.as_ref().is_some_and(|key| key.has_issued(ticket))
    }

    /// Looks for a ticket for `block` among those that were shown.
    fn inspect(
        &self,
        block: BlockId,
        generation: Option<u32>,
        wanted: &[Access],
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
        if !self.has_issued(ticket) {
            return refused("one that the coordinator did not issue for this node");
        }
        let now = self.now();
        if ticket.until < now {
            return refused(&format!("one that expired {} s ago", now - ticket.until));
        }
        Ok(())
    }
}

/// Who inspects the tickets of `peer`; nobody if it is one of those who need none. An agent that has no key refuses.
///
/// # Errors
/// `PermissionDenied` if the coordinator issues no tickets.
fn inspector<'a>(
    peer: &Peer,
    excused: &[Wanted],
    inspector: Option<&'a Inspector>,
) -> Result<Option<&'a Inspector>, Status> {
    let Some(badge) = &peer.badge else { return Ok(None) };
    if excused.iter().any(|excused| badge.is(*excused)) {
        return Ok(None);
    }
    inspector.map(Some).ok_or_else(|| {
        Status::permission_denied(format!(
            "expected a coordinator that issues tickets (it needs --tls too), got none; refused {badge}"
        ))
    })
}

/// Most bytes that the programs of a user's run may hold at once: their slices, if none is given back before the step's end.
const MOST_BYTES: u64 = 1 << 30;

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

/// Checks the tickets for the blocks that programs read or write, and what the programs of a user ask for.
///
/// # Errors
/// `PermissionDenied`: a ticket is missing, forged, for something else or too old; an update in place. `ResourceExhausted`: more
/// memory than a user's run may have.
pub fn check_programs(
    peer: &Peer,
    by: Option<&Inspector>,
    programs: &[Program],
    shown: &[Ticket],
) -> Result<(), Status> {
    let Some(by) = inspector(peer, &[Wanted::Coordinator], by)? else { return Ok(()) };
    let bytes = programs.iter().map(step_bytes).fold(0, u64::saturating_add);
    if bytes > MOST_BYTES {
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
            by.inspect(block.id, Some(block.generation), &[wanted], shown)?;
        }
    }
    Ok(())
}

/// Checks the tickets for blocks whose updates are logged, or read if not `writes`.
///
/// # Errors
/// As [`check_programs`].
pub fn check_logs(
    peer: &Peer,
    by: Option<&Inspector>,
    blocks: impl Iterator<Item = BlockId>,
    writes: bool,
    shown: &[Ticket],
) -> Result<(), Status> {
    let Some(by) = inspector(peer, &[Wanted::Coordinator, Wanted::AnyAgent], by)? else { return Ok(()) };
    let wanted: &[Access] = if writes { &[Access::Log] } else { &[Access::ReadLog, Access::Log] };
    for block in blocks {
        by.inspect(block, None, wanted, shown)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kintsu_dag::{NodeId, StripeId};
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

    #[tokio::test]
    async fn logs_are_for_those_with_tickets_in_time() {
        let secret = TicketSecret::new(CLUSTER, &[7; 32]);
        let inspector = Inspector::told(CLUSTER, (&secret.key_of(NODE), NOW), None).unwrap();
        let issue = |access, until| secret.issue(NODE, block(1), 0, access, until);
        let check = |role: &str, writes, shown: &[Ticket]| {
            let blocks = std::iter::once(block(1));
            check_logs(&peer(role), Some(&inspector), blocks, writes, shown)
                .map_err(|e| e.message().to_owned())
        };
        check("client", true, &[issue(Access::Log, NOW + 9)]).unwrap();
        check("operator", false, &[issue(Access::Log, NOW + 9)]).unwrap();
        check("client", false, &[issue(Access::ReadLog, NOW + 9)]).unwrap();
        check("coordinator", true, &[]).unwrap();
        check("agent/9", true, &[]).unwrap();
        let late = check("client", true, &[issue(Access::Log, NOW - 5)]).unwrap_err();
        assert!(late.contains("expired 5 s ago"), "{late}");
        assert!(
            check("client", true, &[issue(Access::ReadLog, NOW + 9)]).unwrap_err().contains("others only")
        );
        assert!(check("client", true, &[issue(Access::Write, NOW + 9)]).unwrap_err().contains("others only"));
        assert!(check("client", true, &[]).unwrap_err().contains("got none"));
        let blocks = std::iter::once(block(1));
        let refused = check_logs(&peer("client"), None, blocks, true, &[]).unwrap_err();
        assert!(refused.message().contains("that issues tickets"), "{refused:?}");
        check_logs(&Peer::default(), None, std::iter::once(block(1)), true, &[]).unwrap();
    }

    #[tokio::test]
    async fn the_steps_of_a_user_have_a_bounded_size() {
        let inspector =
            Inspector::told(CLUSTER, (&TicketSecret::new(CLUSTER, &[7; 32]).key_of(NODE), NOW), None)
                .unwrap();
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
            check_programs(&peer(role), Some(&inspector), programs, &[]).map_err(|e| e.code())
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
        let good =
            keys.map(|secret| inspector.has_issued(&secret.issue(NODE, block(1), 1, Access::Read, NOW)));
        assert_eq!(good, [false, true, true]);
    }
}
