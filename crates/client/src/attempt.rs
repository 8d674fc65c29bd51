//! One plan, run once.

use std::sync::Arc;

use kintsu_dag::NodeId;
use kintsu_plan::{Plan, ProgramContext, RunId, StripeView};
use kintsu_runtime::{ClientLocal, Context, Exchanged, Observed, SentBlocks};
use kintsu_wire::message::{DigestBytes, Fault, HeldBlock, NodeAddress};
use kintsu_wire::ticket::Ticket;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Client, ClientError};

/// What is needed to run a plan.
pub(crate) struct Attempt<'a> {
    pub client: &'a Client,
    pub view: &'a StripeView,
    /// Generation of the stripe's blocks.
    pub generation: u32,
    /// The generations of blocks that were updated, by index; may be empty.
    pub generations: &'a [u32],
    /// The range of bytes of every block to process.
    pub window: (u64, u64),
    pub slice_bytes: u32,
    /// Whether the digests of stored blocks are compared with those of what was sent.
    pub compared: bool,
    /// Recorded digests by block index; a block with another digest is not read.
    pub expect: &'a [Option<DigestBytes>],
    /// The label for the headers of persisted blocks; may be empty.
    pub label: &'a [u8],
    /// What we may do with the blocks.
    pub tickets: &'a [Ticket],
    /// Gets told how far the nodes are.
    pub watcher: Option<watch::Sender<Observed>>,
    /// Gets what has come from each node.
    pub received: &'a Arc<Exchanged>,
    /// Where a node listens.
    pub address: &'a (dyn Fn(NodeId) -> Option<NodeAddress> + Send + Sync),
}

/// What a run did, even if it failed.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// Bytes of blocks that nodes read.
    pub bytes_read: u64,
    /// The blocks that are durable now.
    pub written: Vec<HeldBlock>,
}

impl Attempt<'_> {
    /// Runs the plan on nodes and client until it ends or a fault occurs. Dropping the future ends the programs
    /// everywhere.
    pub(crate) async fn run(
        &self,
        plan: &Plan,
        local: ClientLocal,
    ) -> Result<(Ran, Option<Fault>), ClientError> {
        let programs = plan.programs(&ProgramContext {
            job: new_job()?,
            view: self.view,
            generation: self.generation,
            generations: self.generations,
            window: self.window,
            slice_bytes: self.slice_bytes,
            expect: self.expect,
            label: self.label,
            peers: &|node| (self.address)(node).map(|n| n.data),
            resume_key: 0,
        })?;
        let sent = self.compared.then(|| Arc::new(SentBlocks::of(&programs, NodeId::CLIENT)));
        let cancel = CancellationToken::new();
        let here = Context {
            cancel: cancel.clone(),
            sent: sent.clone(),
            received: self.received.clone(),
            tickets: self.tickets.into(),
            ..Context::new(self.client.plane().clone(), Arc::new(local))
        };
        let control = |node| (self.address)(node).map(|n| n.control);
        let watcher = self.watcher.clone();
        let ended = self.client.conductor().conduct(programs, &control, Some(here), watcher, &cancel).await;
        let mut ran = Ran::default();
        let mut fault = ended.fault;
        for outcome in ended.outcomes {
            let wrong = |sent: &Arc<SentBlocks>| {
                outcome.written.iter().find_map(|held| sent.objection(outcome.node, held))
            };
            fault = fault.or_else(|| sent.as_ref().and_then(wrong));
            ran.bytes_read += outcome.bytes_read;
            ran.written.extend(outcome.written);
        }
        Ok((ran, fault))
    }
}

fn new_job() -> Result<RunId, ClientError> {
    let id = getrandom::u64().map_err(|e| ClientError::Io(format!("no random numbers: {e}")))?;
    Ok(RunId(id))
}
