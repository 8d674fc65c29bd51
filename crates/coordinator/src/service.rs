//! The gRPC services for agents, clients and operators: each method is passed to its handler.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use kintsu_wire::membership::membership_server::Membership;
use kintsu_wire::message::*;
use kintsu_wire::objects::objects_server::Objects;
use kintsu_wire::operation::operation_server::Operation;
use kintsu_wire::volumes::volumes_server::Volumes;
use tokio::sync::mpsc;
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

use crate::cluster::Cluster;
use crate::handlers;
use crate::restore::Callers;

/// Progress events that wait for a slow listener; when there are more, they are dropped.
const EVENTS: usize = 64;

/// Receives the calls. While the metadata are being restored it has no cluster yet.
#[derive(Default)]
pub struct Door {
    cluster: OnceLock<Arc<Cluster>>,
    /// The agents that called while there was no cluster.
    pub callers: Callers,
}

impl Door {
    /// From now on this cluster answers the calls.
    pub fn open(&self, cluster: Arc<Cluster>) {
        self.cluster.get_or_init(|| cluster);
    }
}

/// The services of one coordinator.
pub struct Service {
    door: Arc<Door>,
}

impl Service {
    /// The services that answer the calls of this door.
    pub fn new(door: Arc<Door>) -> Self {
        Self { door }
    }

    /// The cluster that the handlers work on.
    ///
    /// # Errors
    /// `Unavailable` while there are no metadata, and when their disk has failed.
    fn cluster(&self) -> Result<&Arc<Cluster>, Status> {
        let cluster = self.door.cluster.get().ok_or_else(|| Status::unavailable(WAITING))?;
        cluster.meta.failure().check()?;
        Ok(cluster)
    }

    /// Notes an agent that registers before there are metadata.
    fn note(&self, request: &Request<Register>) {
        if self.door.cluster.get().is_none() {
            let Register { control, cluster, .. } = request.get_ref();
            self.door.callers.note(*control, *cluster);
        }
    }
}

/// The answer to an agent that wants to register before there are metadata. The agent then tries again.
const WAITING: &str =
    "the coordinator has no metadata yet: it restores them or rebuilds them from blocks, try again";

type Answer<'b, T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send + 'b>>;
type Pieces = Pin<Box<dyn Stream<Item = Result<CopyChunk, Status>> + Send>>;
type Events = Pin<Box<dyn Stream<Item = Result<JobEvent, Status>> + Send>>;

macro_rules! unary {
    ($method:ident, $request:ty, $reply:ty) => {
        fn $method<'a: 'b, 'b>(
            &'a self,
            request: Request<$request>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<$reply>, Status>> + Send + 'b>> {
            Box::pin(async move {
                Ok(Response::new(handlers::$method::handle(self.cluster()?, request.into_inner()).await?))
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
            Box::pin(async move { Ok(Response::new(handlers::$method::handle(self.cluster()?).await?)) })
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
                handlers::$method::handle(self.cluster()?, request.into_inner(), listener).await?;
                Ok(Response::new(Box::pin(ReceiverStream::new(events)) as Events))
            })
        }
    };
}

macro_rules! copy {
    () => {
        type BackupStream = Pieces;

        fn backup<'a: 'b, 'b>(&'a self, request: Request<Backup>) -> Answer<'b, Pieces> {
            Box::pin(async move {
                let (reader, pieces) = mpsc::channel(handlers::backup::PIECES);
                handlers::backup::handle(self.cluster()?, request.into_inner(), reader).await?;
                Ok(Response::new(Box::pin(ReceiverStream::new(pieces)) as Pieces))
            })
        }
    };
}

impl Membership for Service {
    fn register<'a: 'b, 'b>(&'a self, request: Request<Register>) -> Answer<'b, Registered> {
        Box::pin(async move {
            self.note(&request);
            Ok(Response::new(handlers::register::handle(self.cluster()?, request.into_inner()).await?))
        })
    }

    fn heartbeat<'a: 'b, 'b>(&'a self, request: Request<Heartbeat>) -> Answer<'b, HeartbeatReply> {
        Box::pin(async move {
            if self.door.cluster.get().is_none() {
                // The agent then registers and thereby tells its address.
                return Ok(Response::new(HeartbeatReply {
                    register_again: true,
                    seen: None,
                    repair_rate: None,
                }));
            }
            Ok(Response::new(handlers::heartbeat::handle(self.cluster()?, request.into_inner()).await?))
        })
    }

    unary!(report_blocks, BlockPage, Done);
    unary!(report_bad, BadBlock, Done);
    copy!();
}

impl Objects for Service {
    unary!(begin_put, BeginPut, PutTicket);
    unary!(more_stripes, MoreStripes, StripeGrants);
    unary!(renew_put, PutRef, Done);
    unary!(move_stripe, MoveStripe, StripeGrants);
    unary!(commit_put, CommitPut, CommitReply);
    unary!(abort_put, PutRef, Done);
    unary!(lookup, Lookup, ObjectView);
    unary!(list, List, ListPage);
    unary!(remove, Remove, ObjectInfo);
    unary!(report_bad, BadBlock, Done);
    unary!(find_code, CodeName, Definition);
    inquiry!(rates, Rates);
    unary!(felt, Felt, Done);
}

impl Volumes for Service {
    unary!(create_volume, CreateVolume, VolumeInfo);
    inquiry!(list_volumes, VolumeList);
    unary!(volume_info, VolumeName, VolumeInfo);
    unary!(resize_volume, ResizeVolume, VolumeInfo);
    unary!(remove_volume, VolumeName, VolumeInfo);
    unary!(open_volume, OpenVolume, OpenedVolume);
    unary!(renew_volume, VolumeWriter, VolumeLease);
    unary!(close_volume, VolumeWriter, Done);
    unary!(map_volume, MapVolume, VolumeMap);
    unary!(commit_volume, CommitVolume, CommittedVolume);
}

impl Operation for Service {
    type FollowJobStream = Events;
    type CommandNodeStream = Events;
    type EncodeStream = Events;
    type RepairStream = Events;
    type ScrubStream = Events;

    inquiry!(status, ClusterStatus);
    unary!(health, AskHealth, Health);
    unary!(space, AskSpace, Space);
    inquiry!(nodes, NodeList);
    inquiry!(jobs, JobList);
    unary!(cancel_job, JobId, JobInfo);
    unary!(pause_job, JobId, JobInfo);
    unary!(resume_job, JobId, JobInfo);
    job!(follow_job, JobId);
    job!(command_node, NodeCommand);
    unary!(forget_node, NodeRef, Done);
    job!(encode, Encode);
    job!(repair, Repair);
    job!(scrub, Scrub);
    unary!(quarantine, Quarantine, QuarantineList);
    unary!(restore_block, RestoreBlock, HeldBlock);
    unary!(confirm_quarantine, NodeRef, Done);
    unary!(register_code, RegisterCode, RegisteredCode);
    unary!(remove_code, CodeName, Done);
    inquiry!(codes, CodeList);
    unary!(set_rates, Rates, Done);
    inquiry!(known_rates, KnownRates);
    inquiry!(measure_rates, KnownRates);
    inquiry!(settings, Settings);
    unary!(change_setting, ChangeSetting, Settings);
    copy!();
    inquiry!(rebuild, RebuildStatus);
    inquiry!(finish_rebuild, RebuildStatus);
}
