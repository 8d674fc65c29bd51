//! Jobs: long work that the coordinator conducts, and that a client follows.
//!
//! Every job but a wipe is idempotent: work that is done already is not repeated. So if the stream of reports breaks because
//! the coordinator went away, the client requests the job again when it is back. A wipe that has begun is followed instead: a second
//! one would delete what was written to the node since the first has ended.

use futures::StreamExt;
use futures::future::BoxFuture;
use kintsu_dag::NodeId;
use kintsu_plan::Method;
use kintsu_wire::CoordinatorChannel;
use kintsu_wire::message::{
    Encode, JobEvent, JobId, JobKind, NodeAction, NodeCommand, Nothing, Repair, RepairTarget, Scrub,
};
use tonic::{Code, Response, Status, Streaming};

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
    /// A wipe that has begun: it is followed, and never requested again.
    wipes: bool,
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
                    if let JobEvent::Began(job) = &event
                        && job.kind == JobKind::Wipe
                    {
                        (self.request, self.wipes) = (following(job.id), true);
                    }
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
                // The coordinator was started anew, and completes a wipe without being asked.
                Err(status) if self.wipes && status.code() == Code::NotFound => {
                    self.ended = true;
                    return Err(ClientError::Interrupted(
                        "the coordinator was started anew amid the wipe, and completes it by itself: `kintsu jobs` shows it".into(),
                    ));
                }
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
        self.job(following(id)).await
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
        Ok(Jobs { client: self.clone(), request: Box::new(request), events, wipes: false, ended: false })
    }
}

fn following(id: u64) -> JobRequest {
    Box::new(move |mut c| Box::pin(async move { c.operation.follow_job(JobId { id }).await }))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Poll};

    use kintsu_wire::codec::MessagePack;
    use kintsu_wire::message::{JobInfo, JobReport, JobState};
    use kintsu_wire::{ClusterId, Credentials};
    use tokio::net::TcpListener;
    use tonic::Request;
    use tonic::body::Body;
    use tonic::codegen::{Service, http};
    use tonic::server::{Grpc, NamedService, ServerStreamingService};
    use tonic::service::Routes;

    use super::*;

    /// A coordinator whose reports of a wipe break off when it has begun.
    #[derive(Clone)]
    struct Operator {
        asked: Arc<Mutex<Vec<String>>>,
        /// Whether it knows the job when it is asked for it again.
        knows: bool,
    }

    impl NamedService for Operator {
        const NAME: &'static str = "kintsu.Operation";
    }

    impl Service<http::Request<Body>> for Operator {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            let Self { asked, knows } = self.clone();
            Box::pin(async move {
                let call = request.uri().path().trim_start_matches("/kintsu.Operation/").to_owned();
                asked.lock().unwrap().push(call.clone());
                let began = JobInfo {
                    id: 9,
                    kind: JobKind::Wipe,
                    what: "node 3".into(),
                    automatic: false,
                    state: JobState::Running,
                    began: 0,
                    seconds: 0.0,
                    done: 0,
                    total: 0,
                    note: String::new(),
                };
                let mut told = vec![JobEvent::Began(began)];
                if call == "CommandNode" {
                    let codec = MessagePack::<JobEvent, NodeCommand>::default();
                    return Ok(Grpc::new(codec).server_streaming(Told(told), request).await);
                }
                if !knows {
                    return Ok(Status::not_found("no job 9").into_http());
                }
                told.push(JobEvent::Ended(JobReport::default()));
                let codec = MessagePack::<JobEvent, JobId>::default();
                Ok(Grpc::new(codec).server_streaming(Told(told), request).await)
            })
        }
    }

    struct Told(Vec<JobEvent>);

    impl<R> ServerStreamingService<R> for Told {
        type Response = JobEvent;
        type ResponseStream = futures::stream::Iter<std::vec::IntoIter<Result<JobEvent, Status>>>;
        type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

        fn call(&mut self, _: Request<R>) -> Self::Future {
            let told: Vec<_> = std::mem::take(&mut self.0).into_iter().map(Ok).collect();
            std::future::ready(Ok(Response::new(futures::stream::iter(told))))
        }
    }

    /// How a wipe ends whose reports break off, and what the coordinator was asked.
    async fn wiped(knows: bool) -> (Result<(), ClientError>, Vec<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let operator = Operator { asked: Arc::default(), knows };
        let asked = operator.asked.clone();
        let credentials = Credentials::none();
        credentials.join(ClusterId([0xc1; 16])).unwrap();
        let routes = Routes::new(operator);
        tokio::spawn(kintsu_wire::channel::serve(routes, credentials, listener, std::future::pending()));
        let client = Client::connect(&endpoint, Default::default()).await.unwrap();
        let mut events = client.command_node(NodeId(3), NodeAction::Wipe).await.unwrap();
        let end = loop {
            match events.next().await {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let asked = asked.lock().unwrap().clone();
        (end, asked)
    }

    #[tokio::test]
    async fn a_wipe_is_not_ordered_again_when_its_reports_break_off() {
        let (end, asked) = wiped(true).await;
        assert_eq!(end, Ok(()));
        assert_eq!(asked, ["CommandNode", "FollowJob"]);
        // The coordinator was started anew, and does not know the job any more.
        let (end, asked) = wiped(false).await;
        assert!(matches!(&end, Err(ClientError::Interrupted(why)) if why.contains("by itself")), "{end:?}");
        assert_eq!(asked, ["CommandNode", "FollowJob"]);
    }
}
