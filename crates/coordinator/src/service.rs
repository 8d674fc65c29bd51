//! The gRPC service: one line a method, to its handler.

use std::pin::Pin;
use std::sync::Arc;

use kintsu_wire::coordinator::coordinator_server::Coordinator;
use kintsu_wire::message::*;
use tokio::sync::mpsc;
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

use crate::cluster::Cluster;
use crate::handlers;

/// Progress that a slow listener may lag behind; more is dropped.
const EVENTS: usize = 64;

/// The service of one coordinator.
pub struct Service {
    cluster: Arc<Cluster>,
}

impl Service {
    /// A service over this state.
    pub fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }
}

type Events = Pin<Box<dyn Stream<Item = Result<JobEvent, Status>> + Send>>;

macro_rules! unary {
    ($method:ident, $request:ty, $reply:ty) => {
        fn $method<'a: 'b, 'b>(
            &'a self,
            request: Request<$request>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<$reply>, Status>> + Send + 'b>> {
            Box::pin(async move {
                Ok(Response::new(handlers::$method::handle(&self.cluster, request.into_inner()).await?))
            })
        }
    };
}

macro_rules! inquiry {
    ($method:ident, $reply:ty) => {
        fn $method<'a: 'b, 'b>(
            &'a self,
            _: Request<Nothing>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<$reply>, Status>> + Send + 'b>> {
            Box::pin(async move { Ok(Response::new(handlers::$method::handle(&self.cluster).await?)) })
        }
    };
}

macro_rules! job {
    ($method:ident, $request:ty) => {
        fn $method<'a: 'b, 'b>(
            &'a self,
            request: Request<$request>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<Events>, Status>> + Send + 'b>> {
            Box::pin(async move {
                let (listener, events) = mpsc::channel(EVENTS);
                handlers::$method::handle(&self.cluster, request.into_inner(), listener).await?;
                Ok(Response::new(Box::pin(ReceiverStream::new(events)) as Events))
            })
        }
    };
}

impl Coordinator for Service {
    type CommandNodeStream = Events;
    type EncodeStream = Events;
    type RepairStream = Events;
    type ScrubStream = Events;

    unary!(register, Register, Registered);
    unary!(report_blocks, BlockPage, Done);
    unary!(heartbeat, Heartbeat, HeartbeatReply);
    unary!(quarantine, Quarantine, QuarantineList);
    unary!(restore_block, RestoreBlock, HeldBlock);
    unary!(confirm_quarantine, NodeRef, Done);
    unary!(forget_node, NodeRef, Done);
    unary!(begin_put, BeginPut, PutTicket);
    unary!(more_stripes, MoreStripes, StripeGrants);
    unary!(renew_put, PutRef, Done);
    unary!(move_stripe, MoveStripe, StripeGrant);
    unary!(commit_put, CommitPut, CommitReply);
    unary!(abort_put, PutRef, Done);
    unary!(lookup, Lookup, ObjectView);
    unary!(list, List, ListPage);
    unary!(remove, Remove, ObjectInfo);
    unary!(report_bad, BadBlock, Done);
    unary!(register_code, RegisterCode, RegisteredCode);
    unary!(find_code, CodeName, Definition);
    unary!(remove_code, CodeName, Done);
    unary!(set_rates, Rates, Done);
    inquiry!(cluster, ClusterInfo);
    inquiry!(rates, Rates);
    inquiry!(codes, CodeList);
    inquiry!(nodes, NodeList);
    inquiry!(status, ClusterStatus);
    job!(command_node, NodeCommand);
    job!(encode, Encode);
    job!(repair, Repair);
    job!(scrub, Scrub);
}
