//! Jobs: long work that the coordinator conducts, and that a client follows.
//!
//! Every job is idempotent: work that is done already is not repeated. So if the stream of reports breaks because
//! the coordinator went away, the client requests the job again when it is back.

use futures::StreamExt;
use futures::future::BoxFuture;
use kintsu_dag::NodeId;
use kintsu_plan::Method;
use kintsu_wire::CoordinatorChannel;
use kintsu_wire::message::{
    Encode, JobEvent, JobId, NodeAction, NodeCommand, Nothing, Repair, RepairTarget, Scrub,
};
use tonic::{Response, Status, Streaming};

use crate::client::Backoff;
use crate::error::is_transport;
use crate::{Client, ClientError};

type Answer = Result<Response<Streaming<JobEvent>>, Status>;
type JobRequest = Box<dyn Fn(CoordinatorChannel) -> BoxFuture<'static, Answer> + Send + Sync>;

/// The reports of a running job. Dropping it stops listening; the job continues.
pub struct Jobs {
    client: Client,
    request: JobRequest,
    events: Streaming<JobEvent>,
    ended: bool,
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Jobs {
    /// The next event; `None` after [`JobEvent::Ended`].
    ///
    /// # Errors
    /// A refusal of the coordinator, or its absence for longer than the client's patience.
    pub async fn next(&mut self) -> Result<Option<JobEvent>, ClientError> {
        if self.ended {
            return Ok(None);
        }
        loop {
            match self.events.next().await {
                Some(Ok(event)) => {
                    self.ended = matches!(event, JobEvent::Ended(_));
                    return Ok(Some(event));
                }
                Some(Err(status)) if !is_transport(&status) => {
                    self.ended = true;
                    return Err(ClientError::from_status(self.client.endpoint(), &status));
                }
                broken => {
                    let reason = broken.and_then(Result::err).map(|status| status.message().to_owned());
                    tracing::info!("the job's reports stopped ({reason:?}); requesting the job again");
                    self.request_again().await?;
                }
            }
        }
    }

    async fn request_again(&mut self) -> Result<(), ClientError> {
        let mut backoff = Backoff::new(self.client.patience());
        while backoff.pause().await {
            match (self.request)(self.client.coordinator()).await {
                Ok(response) => {
                    self.events = response.into_inner();
                    return Ok(());
                }
                Err(status) if is_transport(&status) => {}
                Err(status) => return Err(ClientError::from_status(self.client.endpoint(), &status)),
            }
        }
        self.ended = true;
        Err(ClientError::unreachable(self.client.endpoint(), "it went away while it conducted a job"))
    }
}

impl Client {
    /// Encodes an object that was written with offline encoding.
    ///
    /// # Errors
    /// `NotFound`, or whatever keeps the coordinator from answering.
    pub async fn encode(&self, name: &str) -> Result<Jobs, ClientError> {
        self.encode_by(Encode { name: name.to_owned(), binding: Default::default() }).await
    }

    /// The same with the parities computed where the request says.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub async fn encode_by(&self, encode: Encode) -> Result<Jobs, ClientError> {
        self.job(move |mut c| {
            let encode = encode.clone();
            Box::pin(async move { c.operation.encode(encode).await })
        })
        .await
    }

    /// Repairs blocks that are unavailable, in slices of `slice_bytes`, or by default of a size that fits the
    /// plan.
    ///
    /// # Errors
    /// `NotFound`, or whatever keeps the coordinator from answering.
    pub async fn repair(
        &self,
        target: RepairTarget,
        method: Method,
        slice_bytes: impl Into<Option<u32>>,
    ) -> Result<Jobs, ClientError> {
        let slice_bytes = slice_bytes.into().unwrap_or(0);
        self.repair_by(Repair { method, slice_bytes, ..Repair::new(target) }).await
    }

    /// Repairs blocks that are unavailable; `repair` names method, schedule and requestors.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for impossible requestors; or whatever keeps the coordinator from answering.
    pub async fn repair_by(&self, repair: Repair) -> Result<Jobs, ClientError> {
        self.job(move |mut c| {
            let repair = repair.clone();
            Box::pin(async move { c.operation.repair(repair).await })
        })
        .await
    }

    /// Verifies all blocks of one node or of all nodes, and repairs bad ones.
    ///
    /// # Errors
    /// `NotFound`, or whatever keeps the coordinator from answering.
    pub async fn scrub(&self, node: Option<NodeId>) -> Result<Jobs, ClientError> {
        self.job(move |mut c| Box::pin(async move { c.operation.scrub(Scrub { node }).await })).await
    }

    /// Moves blocks from fuller to emptier nodes.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn rebalance(&self) -> Result<Jobs, ClientError> {
        self.job(move |mut c| Box::pin(async move { c.operation.rebalance(Nothing {}).await })).await
    }

    /// Follows a job that somebody began before; of a job that has ended it gives the end.
    ///
    /// # Errors
    /// `NotFound`, or whatever keeps the coordinator from answering.
    pub async fn follow_job(&self, id: u64) -> Result<Jobs, ClientError> {
        self.job(move |mut c| Box::pin(async move { c.operation.follow_job(JobId { id }).await })).await
    }

    /// Stops, starts, wipes or drains a node, or ends its drain. A wipe that would make objects unreadable is refused.
    ///
    /// # Errors
    /// `NotFound`, `Placement` for a wipe that is refused, or whatever keeps the coordinator from answering.
    pub async fn command_node(&self, node: NodeId, action: NodeAction) -> Result<Jobs, ClientError> {
        self.command(NodeCommand { node, action, force: false, seconds: 0 }).await
    }

    /// Deletes all blocks of a node, even if that makes objects unreadable.
    ///
    /// # Errors
    /// `NotFound`, or whatever keeps the coordinator from answering.
    pub async fn wipe_by_force(&self, node: NodeId) -> Result<Jobs, ClientError> {
        self.command(NodeCommand { node, action: NodeAction::Wipe, force: true, seconds: 0 }).await
    }

    /// Has no repair of a node's blocks begin by itself for this many seconds.
    ///
    /// # Errors
    /// `NotFound`, or whatever keeps the coordinator from answering.
    pub async fn pause_node(&self, node: NodeId, seconds: u64) -> Result<Jobs, ClientError> {
        self.command(NodeCommand { node, action: NodeAction::Pause, force: false, seconds }).await
    }

    async fn command(&self, command: NodeCommand) -> Result<Jobs, ClientError> {
        self.job(move |mut c| {
            let command = command.clone();
            Box::pin(async move { c.operation.command_node(command).await })
        })
        .await
    }

    async fn job(
        &self,
        request: impl Fn(CoordinatorChannel) -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Result<Jobs, ClientError> {
        let events = self.call(&request).await?;
        Ok(Jobs { client: self.clone(), request: Box::new(request), events, ended: false })
    }
}
