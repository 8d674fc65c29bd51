//! The connection to a coordinator, and the calls that need no data.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_runtime::{Conductor, DataPlane};
use kintsu_wire::message::{
    AskHealth, AskRepairs, AskSpace, Change, Changed, ClusterStatus, Counts, Health, HeldBlock, JobId,
    JobInfo, JobList, List, ListPage, Lookup, NodeList, NodeRef, Nothing, ObjectInfo, ObjectView, Quarantine,
    QuarantineList, RebuildStatus, Remove, RestoreBlock, RunningRepairs, Space,
};
use kintsu_wire::tls::Wanted;
use kintsu_wire::{ClusterId, CoordinatorChannel, Credentials, Tls, connect_coordinator};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::{Response, Status};

use crate::ClientError;
use crate::error::is_unsent;
use crate::feed::Spares;
use crate::felt::Untold;
use crate::pack::Packs;

/// How a client behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cluster's token, if it demands one.
    pub token: Option<String>,
    /// TLS for all connections, if the cluster speaks it.
    pub tls: Option<Tls>,
    /// Timeout of one call, after which the coordinator counts as unreachable.
    pub call_timeout: Duration,
    /// How long a running operation waits for a coordinator that went away. An operation that has not begun fails
    /// at once.
    pub patience: Duration,
    /// Where a volume's log has this many bytes, a write waits until its stripe is committed.
    pub large_log_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            token: None,
            tls: None,
            call_timeout: Duration::from_secs(30),
            patience: Duration::from_secs(60),
            large_log_bytes: 1 << 30,
        }
    }
}

/// A client of a cluster; cheap to clone, all clones share one connection.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    /// Slice size of reads, if the caller demands one.
    pub(crate) slice_bytes: Option<u32>,
}

struct Shared {
    endpoint: String,
    options: Options,
    coordinator: CoordinatorChannel,
    credentials: Credentials,
    plane: Arc<DataPlane>,
    conductor: Conductor,
    farewells: Mutex<JoinSet<()>>,
    untold: Untold,
    packs: Packs,
    spares: Arc<Spares>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.shared.endpoint).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the coordinator at `endpoint` (`host:port`). The connection is made by the
    /// first call.
    ///
    /// # Errors
    /// `Invalid` for a bad address or token.
    pub async fn connect(endpoint: &str, options: Options) -> Result<Self, ClientError> {
        let invalid = |e: kintsu_wire::WireError| ClientError::Invalid(e.to_string());
        let credentials = Credentials::of(options.token.as_deref(), options.tls.as_ref()).map_err(invalid)?;
        let coordinator = connect_coordinator(endpoint, &credentials).map_err(invalid)?;
        let shared = Shared {
            endpoint: endpoint.to_owned(),
            options,
            coordinator,
            plane: DataPlane::client(credentials.clone()),
            conductor: Conductor::new(credentials.clone()),
            credentials,
            farewells: Mutex::default(),
            untold: Untold::default(),
            packs: Packs::default(),
            spares: Arc::default(),
        };
        Ok(Self { shared: Arc::new(shared), slice_bytes: None })
    }

    /// The same client, with reads in slices of this many bytes. By default the slices fit the plan, and are cells
    /// if nothing is lost.
    pub fn in_slices(&self, slice_bytes: Option<u32>) -> Self {
        Self { slice_bytes: slice_bytes.filter(|bytes| *bytes > 0), ..self.clone() }
    }

    /// The coordinator has said which cluster this is: agents refuse callers that do not show it.
    pub(crate) fn join(&self, cluster: ClusterId) -> Result<(), ClientError> {
        self.shared.credentials.join(cluster).map_err(|e| ClientError::Invalid(e.to_string()))
    }

    /// A summary of an object.
    ///
    /// # Errors
    /// `NotFound`, or whatever keeps the coordinator from answering.
    pub async fn info(&self, name: &str) -> Result<ObjectInfo, ClientError> {
        Ok(self.stripes(name, 0, 0).await?.object)
    }

    /// A summary of the object with this id, if its name begins like this.
    ///
    /// # Errors
    /// `NotFound`, or whatever keeps the coordinator from answering.
    pub async fn info_of(&self, begins: &str, id: u64) -> Result<ObjectInfo, ClientError> {
        let lookup = Lookup { name: begins.to_owned(), first: 0, limit: 0, at: None, id: Some(id) };
        Ok(self.look(lookup).await?.object)
    }

    /// Stripes `first..first + limit` of an object (fewer at its end), and where nodes listen.
    ///
    /// # Errors
    /// `NotFound`, or whatever keeps the coordinator from answering.
    pub async fn stripes(&self, name: &str, first: u64, limit: u64) -> Result<ObjectView, ClientError> {
        self.look(Lookup { name: name.to_owned(), first, limit, at: None, id: None }).await
    }

    pub(crate) async fn look(&self, lookup: Lookup) -> Result<ObjectView, ClientError> {
        let view = self.call(|mut c| {
            let lookup = lookup.clone();
            async move { c.objects.lookup(lookup).await }
        });
        let view: ObjectView = view.await?;
        self.join(view.cluster)?;
        Ok(view)
    }

    /// As [`Client::stripes`], but waits for a coordinator that is away for a while.
    pub(crate) async fn stripes_patiently(
        &self,
        name: &str,
        first: u64,
        limit: u64,
    ) -> Result<ObjectView, ClientError> {
        let lookup = Lookup { name: name.to_owned(), first, limit, at: None, id: None };
        let view = self.call_patiently(|mut c| {
            let lookup = lookup.clone();
            async move { c.objects.lookup(lookup).await }
        });
        let view: ObjectView = view.await?;
        self.join(view.cluster)?;
        Ok(view)
    }

    /// A page of the objects whose names begin with `prefix`, in order, after the name `after`.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn list(&self, prefix: &str, after: Option<&str>, limit: u32) -> Result<ListPage, ClientError> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.list_page(List { prefix, after, limit, delimiter: String::new() }).await
    }

    /// A page of objects and, with a delimiter, of what their names have in common.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn list_page(&self, list: List) -> Result<ListPage, ClientError> {
        self.call(|mut c| {
            let list = list.clone();
            async move { c.objects.list(list).await }
        })
        .await
    }

    /// Removes an object; its blocks are deleted in time.
    ///
    /// # Errors
    /// `NotFound`, or whatever keeps the coordinator from answering.
    pub async fn remove(&self, name: &str) -> Result<ObjectInfo, ClientError> {
        let remove = Remove { name: name.to_owned() };
        self.call(|mut c| {
            let remove = remove.clone();
            async move { c.objects.remove(remove).await }
        })
        .await
    }

    /// Changes names and attributes of objects, all or nothing, if the checks hold. No byte moves. If the answer is lost,
    /// nobody knows whether it was done: it is not repeated.
    ///
    /// # Errors
    /// `NotFound`, `Exists` or `Invalid` for a step that cannot be taken, or whatever keeps the coordinator from answering.
    pub async fn change(&self, change: &Change) -> Result<Changed, ClientError> {
        self.call(|mut c| {
            let change = change.clone();
            async move { c.objects.change(change).await }
        })
        .await
    }

    /// Whether its certificate lets it look after the cluster, and not only read and write. Without TLS everybody may.
    pub fn is_operator(&self) -> bool {
        self.shared.options.tls.as_ref().is_none_or(|tls| tls.badge().is(Wanted::Operator))
    }

    /// All nodes. For operators.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn nodes(&self) -> Result<NodeList, ClientError> {
        self.call(|mut c| async move { c.operation.nodes(Nothing {}).await }).await
    }

    /// How well the cluster is, and why; names at most `stripes` stripes for each cause.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn health(&self, stripes: u32) -> Result<Health, ClientError> {
        self.call(|mut c| async move { c.operation.health(AskHealth { stripes }).await }).await
    }

    /// How much is stored, and how much data of these codes still fits; without codes, of all that the cluster has used.
    ///
    /// # Errors
    /// `Invalid` for a code that does not exist, or whatever keeps the coordinator from answering.
    pub async fn space(&self, codes: &[String]) -> Result<Space, ClientError> {
        let ask = AskSpace { codes: codes.to_vec() };
        self.call(|mut c| {
            let ask = ask.clone();
            async move { c.operation.space(ask).await }
        })
        .await
    }

    /// The jobs that run, and the last ones that have ended.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn jobs(&self) -> Result<Vec<JobInfo>, ClientError> {
        Ok(self.job_list().await?.jobs)
    }

    /// The same, with how fast repairs may be.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn job_list(&self) -> Result<JobList, ClientError> {
        self.call(|mut c| async move { c.operation.jobs(Nothing {}).await }).await
    }

    /// What the coordinator has counted since its start.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn counts(&self) -> Result<Counts, ClientError> {
        self.call(|mut c| async move { c.operation.counts(Nothing {}).await }).await
    }

    /// The repairs that run, at most `running` of them, and at most `waiting` of those that wait.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn running_repairs(&self, running: u32, waiting: u32) -> Result<RunningRepairs, ClientError> {
        let ask = AskRepairs { running, waiting };
        self.call(|mut c| async move { c.operation.running_repairs(ask).await }).await
    }

    /// Has a job end early. What it cannot leave half done is finished first.
    ///
    /// # Errors
    /// `NotFound`; a job that has ended or cannot be cancelled; or whatever keeps the coordinator from answering.
    pub async fn cancel_job(&self, id: u64) -> Result<JobInfo, ClientError> {
        self.call(|mut c| async move { c.operation.cancel_job(JobId { id }).await }).await
    }

    /// Has a job begin nothing more until it is resumed; what it has begun is finished.
    ///
    /// # Errors
    /// As [`Client::cancel_job`].
    pub async fn pause_job(&self, id: u64) -> Result<JobInfo, ClientError> {
        self.call(|mut c| async move { c.operation.pause_job(JobId { id }).await }).await
    }

    /// Has a paused job go on.
    ///
    /// # Errors
    /// As [`Client::cancel_job`].
    pub async fn resume_job(&self, id: u64) -> Result<JobInfo, ClientError> {
        self.call(|mut c| async move { c.operation.resume_job(JobId { id }).await }).await
    }

    /// What is set aside on the nodes, or on one: blocks that the metadata do not know, and damaged ones.
    ///
    /// # Errors
    /// `NotFound` for an unknown node, or whatever keeps the coordinator from answering.
    pub async fn quarantine(&self, node: Option<NodeId>) -> Result<QuarantineList, ClientError> {
        self.call(|mut c| async move { c.operation.quarantine(Quarantine { node }).await }).await
    }

    /// Makes a node move a block from its quarantine back to its place.
    ///
    /// # Errors
    /// No such block; a sound block at its place; damage; or whatever keeps the coordinator from answering.
    pub async fn restore_block(&self, node: NodeId, name: &str) -> Result<HeldBlock, ClientError> {
        let name = name.to_owned();
        self.call(|mut c| {
            let name = name.clone();
            async move { c.operation.restore_block(RestoreBlock { node, name }).await }
        })
        .await
    }

    /// Confirms that a node's quarantine may be purged in time, although many of its blocks looked unknown at
    /// once.
    ///
    /// # Errors
    /// `NotFound`, or whatever keeps the coordinator from answering.
    pub async fn confirm_quarantine(&self, node: NodeId) -> Result<(), ClientError> {
        self.call(|mut c| async move { c.operation.confirm_quarantine(NodeRef { node }).await })
            .await
            .map(drop)
    }

    /// Forgets a node that is gone for good.
    ///
    /// # Errors
    /// `NotFound`; a node that lives or on which blocks are placed; or whatever keeps the coordinator from answering.
    pub async fn forget_node(&self, node: NodeId) -> Result<(), ClientError> {
        self.call(|mut c| async move { c.operation.forget_node(NodeRef { node }).await }).await.map(drop)
    }

    /// Progress of a rebuild of the metadata from blocks.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn rebuild(&self) -> Result<RebuildStatus, ClientError> {
        self.call(|mut c| async move { c.operation.rebuild(Nothing {}).await }).await
    }

    /// Ends the rebuild of the metadata from blocks: blocks that were not found until now count as unknown.
    ///
    /// # Errors
    /// No rebuild is active; nodes are still reporting their blocks; or whatever keeps the coordinator from
    /// answering.
    pub async fn finish_rebuild(&self) -> Result<RebuildStatus, ClientError> {
        self.call(|mut c| async move { c.operation.finish_rebuild(Nothing {}).await }).await
    }

    pub(crate) fn packs(&self) -> &Packs {
        &self.shared.packs
    }

    /// Buffers for the next stream.
    pub(crate) fn spares(&self) -> &Arc<Spares> {
        &self.shared.spares
    }

    pub(crate) fn untold(&self) -> &Untold {
        &self.shared.untold
    }

    /// The cluster in numbers.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn status(&self) -> Result<ClusterStatus, ClientError> {
        self.call(|mut c| async move { c.operation.status(Nothing {}).await }).await
    }

    /// Waits until the coordinator has been told of abandoned puts and of how long operations took, for a few seconds at
    /// most. Call it before the process ends; without it these puts are undone when their leases expire.
    pub async fn close(&self) {
        self.tell_rest();
        let mut farewells = std::mem::take(&mut *self.farewells());
        let all = async { while farewells.join_next().await.is_some() {} };
        if tokio::time::timeout(Duration::from_secs(3), all).await.is_err() {
            tracing::warn!(
                "the coordinator did not take the last messages; the lease of an abandoned put will expire"
            );
        }
    }

    /// Sends a last message in the background; nobody waits for it.
    pub(crate) fn farewell(&self, message: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let mut farewells = self.farewells();
            while farewells.try_join_next().is_some() {}
            farewells.spawn_on(message, &runtime);
        }
    }

    fn farewells(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.shared.farewells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.shared.endpoint
    }

    pub(crate) fn patience(&self) -> Duration {
        self.shared.options.patience
    }

    pub(crate) fn large_log_bytes(&self) -> u64 {
        self.shared.options.large_log_bytes
    }

    pub(crate) fn conductor(&self) -> &Conductor {
        &self.shared.conductor
    }

    pub(crate) fn plane(&self) -> &Arc<DataPlane> {
        &self.shared.plane
    }

    pub(crate) fn credentials(&self) -> &Credentials {
        &self.shared.credentials
    }

    pub(crate) fn coordinator(&self) -> CoordinatorChannel {
        self.shared.coordinator.clone()
    }

    /// One call, in bounded time. Repeated on a new connection if the old one ended before the request was sent.
    pub(crate) async fn call<T, F, Fut>(&self, call: F) -> Result<T, ClientError>
    where
        F: Fn(CoordinatorChannel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        self.call_within(self.shared.options.call_timeout, call).await
    }

    /// As [`Self::call`], with a time limit of its own: for what takes the cluster long.
    pub(crate) async fn call_within<T, F, Fut>(&self, limit: Duration, call: F) -> Result<T, ClientError>
    where
        F: Fn(CoordinatorChannel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let sent = async {
            match call(self.coordinator()).await {
                Err(status) if is_unsent(&status) => call(self.coordinator()).await,
                other => other,
            }
        };
        match tokio::time::timeout(limit, sent).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(ClientError::from_status(self.endpoint(), &status)),
            Err(_) => Err(ClientError::unreachable(self.endpoint(), &format!("no answer within {limit:?}"))),
        }
    }

    /// An idempotent call, repeated while the coordinator is away.
    pub(crate) async fn call_patiently<T, F, Fut>(&self, call: F) -> Result<T, ClientError>
    where
        F: Fn(CoordinatorChannel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut backoff = Backoff::new(self.patience());
        loop {
            match self.call(&call).await {
                Err(error) if error.is_unreachable() && backoff.pause().await => {
                    tracing::debug!("{error}; trying again");
                }
                other => return other,
            }
        }
    }
}

/// Pauses between attempts, longer each time, until a time limit.
#[derive(Debug)]
pub(crate) struct Backoff {
    until: Instant,
    pause: Duration,
}

impl Backoff {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { until: Instant::now() + patience, pause: Duration::from_millis(50) }
    }

    /// Waits; false when there is no time left.
    pub(crate) async fn pause(&mut self) -> bool {
        if Instant::now() + self.pause > self.until {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_secs(1));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// How many attempts a call takes whose first attempt ends with `first`.
    async fn attempts(first: Status) -> usize {
        let client = Client::connect("127.0.0.1:1", Options::default()).await.unwrap();
        let made = AtomicUsize::new(0);
        let call = client.call(|_| {
            let ended = if made.fetch_add(1, Ordering::Relaxed) == 0 {
                Err(first.clone())
            } else {
                Ok(Response::new(()))
            };
            std::future::ready(ended)
        });
        let _ = call.await;
        made.into_inner()
    }

    #[tokio::test]
    async fn only_a_call_that_never_went_out_is_made_again() {
        let broken = |mut status: Status| {
            status.set_source(Arc::new(std::io::Error::other("the connection ended")));
            status
        };
        assert_eq!(attempts(broken(Status::cancelled("operation was canceled"))).await, 2);
        assert_eq!(attempts(broken(Status::unavailable("broken pipe"))).await, 1);
        assert_eq!(attempts(Status::cancelled("an answer")).await, 1);
    }
}
