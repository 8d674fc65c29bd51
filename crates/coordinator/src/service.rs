//! The gRPC services for agents, clients and operators: each method is passed to its handler.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use kintsu_wire::Peer;
use kintsu_wire::audit::noted;
use kintsu_wire::membership::membership_server::Membership;
use kintsu_wire::message::*;
use kintsu_wire::objects::objects_server::Objects;
use kintsu_wire::operation::operation_server::Operation;
use kintsu_wire::tls::Wanted;
use kintsu_wire::version::{LOG_CAUSES, PACKS, Spoken};
use kintsu_wire::volumes::volumes_server::Volumes;
use tokio::sync::mpsc;
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

use crate::audit;
use crate::cluster::Cluster;
use crate::driver;
use crate::handlers;
use crate::restore::Callers;

/// Progress events that wait for a slow listener; when there are more, they are dropped.
const EVENTS: usize = 64;

/// The cluster whose calls are answered. There is none while the metadata are being restored.
#[derive(Default)]
pub struct ServedCluster {
    cluster: OnceLock<Arc<Cluster>>,
    /// The agents that called while there was no cluster.
    pub callers: Callers,
}

impl ServedCluster {
    /// From now on the calls are answered by this cluster.
    pub fn open(&self, cluster: Arc<Cluster>) {
        self.cluster.get_or_init(|| cluster);
    }
}

/// The services of one coordinator.
pub struct Service {
    served: Arc<ServedCluster>,
}

impl Service {
    /// The services that answer its calls.
    pub fn new(served: Arc<ServedCluster>) -> Self {
        Self { served }
    }

    /// The cluster that the handlers work on.
    ///
    /// # Errors
    /// `Unavailable` while there are no metadata, and when their disk has failed.
    fn cluster(&self) -> Result<&Arc<Cluster>, Status> {
        let cluster = self.served.cluster.get().ok_or_else(|| Status::unavailable(WAITING))?;
        cluster.meta.failure().check()?;
        Ok(cluster)
    }

    /// Notes an agent that registers before there are metadata.
    fn note(&self, request: &Request<Register>) {
        if self.served.cluster.get().is_none() {
            let Register { control, cluster, .. } = request.get_ref();
            self.served.callers.note(*control, *cluster);
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

/// Long work, with a line in the audit log when it begins.
macro_rules! job {
    ($method:ident, $request:ty) => {
        fn $method<'a: 'b, 'b>(&'a self, request: Request<$request>) -> Answer<'b, Events> {
            Box::pin(async move {
                let peer = Peer::of(request.extensions());
                let request = request.into_inner();
                let about = audit::about(&request);
                let (listener, events) = mpsc::channel(EVENTS);
                let begun =
                    async { Ok(handlers::$method::handle(self.cluster()?, request, listener).await?) };
                noted(&peer, stringify!($method), about, begun.await)?;
                Ok(Response::new(Box::pin(ReceiverStream::new(events)) as Events))
            })
        }
    };
}

/// As `unary`, with a line in the audit log.
macro_rules! change {
    ($method:ident, $request:ty, $reply:ty) => {
        fn $method<'a: 'b, 'b>(&'a self, request: Request<$request>) -> Answer<'b, $reply> {
            Box::pin(async move {
                let peer = Peer::of(request.extensions());
                let request = request.into_inner();
                let about = audit::about(&request);
                let done = async { Ok(handlers::$method::handle(self.cluster()?, request).await?) };
                noted(&peer, stringify!($method), about, done.await).map(Response::new)
            })
        }
    };
    // Without arguments.
    ($method:ident, $reply:ty) => {
        fn $method<'a: 'b, 'b>(&'a self, request: Request<Nothing>) -> Answer<'b, $reply> {
            Box::pin(async move {
                let done = async { Ok(handlers::$method::handle(self.cluster()?).await?) };
                let peer = Peer::of(request.extensions());
                noted(&peer, stringify!($method), None, done.await).map(Response::new)
            })
        }
    };
}

macro_rules! copy {
    () => {
        type BackupStream = Pieces;

        fn backup<'a: 'b, 'b>(&'a self, request: Request<Backup>) -> Answer<'b, Pieces> {
            Box::pin(async move {
                let peer = Peer::of(request.extensions());
                let (reader, pieces) = mpsc::channel(handlers::backup::PIECES);
                let request = request.into_inner();
                let about = audit::about(&request);
                let begun = async { Ok(handlers::backup::handle(self.cluster()?, request, reader).await?) };
                noted(&peer, "backup", about, begun.await)?;
                Ok(Response::new(Box::pin(ReceiverStream::new(pieces)) as Pieces))
            })
        }
    };
}

/// A certificate names the nodes whose agent its owner is, so the agent must say which of them it is.
fn may_register(peer: &Peer, request: &Register) -> Result<(), Status> {
    match (request.node, &peer.badge) {
        (Some(node), _) => peer.demand(&[Wanted::Agent(node)]),
        (None, None) => Ok(()),
        (None, Some(badge)) => Err(Status::permission_denied(format!(
            "expected an agent that says which node of its certificate it is (--id), got none from {badge}"
        ))),
    }
}

impl Membership for Service {
    fn register<'a: 'b, 'b>(&'a self, request: Request<Register>) -> Answer<'b, Registered> {
        Box::pin(async move {
            let peer = Peer::of(request.extensions());
            let about = audit::about(request.get_ref());
            let done = async {
                may_register(&peer, request.get_ref())?;
                self.note(&request);
                let protocol = Spoken::of(request.extensions()).newest;
                let request = Register { protocol, ..request.into_inner() };
                Ok(handlers::register::handle(self.cluster()?, request).await?)
            };
            noted(&peer, "register", about, done.await).map(Response::new)
        })
    }

    fn heartbeat<'a: 'b, 'b>(&'a self, request: Request<Heartbeat>) -> Answer<'b, HeartbeatReply> {
        Box::pin(async move {
            Peer::of(request.extensions()).admit(&[Wanted::Agent(request.get_ref().node)], "heartbeat")?;
            if self.served.cluster.get().is_none() {
                // The agent then registers and thereby tells its address.
                return Ok(Response::new(HeartbeatReply {
                    register_again: true,
                    seen: None,
                    repair_rate: None,
                    agents_too: false,
                }));
            }
            Ok(Response::new(handlers::heartbeat::handle(self.cluster()?, request.into_inner()).await?))
        })
    }

    fn report_blocks<'a: 'b, 'b>(&'a self, request: Request<BlockPage>) -> Answer<'b, Done> {
        Box::pin(async move {
            Peer::of(request.extensions())
                .admit(&[Wanted::Agent(request.get_ref().node)], "report_blocks")?;
            let request = request.into_inner();
            Ok(Response::new(handlers::report_blocks::handle(self.cluster()?, request).await?))
        })
    }

    fn report_bad<'a: 'b, 'b>(&'a self, request: Request<BadBlock>) -> Answer<'b, Done> {
        Box::pin(async move {
            let peer = Peer::of(request.extensions());
            let request = request.into_inner();
            let about = audit::about(&request);
            let done = async {
                peer.demand(&[Wanted::Agent(request.node)])?;
                Ok(handlers::report_bad::handle(self.cluster()?, request).await?)
            };
            noted(&peer, "report_bad", about, done.await).map(Response::new)
        })
    }

    copy!();
}

impl Objects for Service {
    unary!(begin_put, BeginPut, PutTicket);
    unary!(more_stripes, MoreStripes, StripeGrants);
    unary!(renew_put, PutRef, Done);
    unary!(move_stripe, MoveStripe, StripeGrants);

    fn commit_put<'a: 'b, 'b>(&'a self, request: Request<CommitPut>) -> Answer<'b, CommitReply> {
        Box::pin(async move {
            let peer = Peer::of(request.extensions());
            let request = request.into_inner();
            let put = audit::about(&request);
            let done = async { Ok(handlers::commit_put::handle(self.cluster()?, request).await?) };
            let done: Result<CommitReply, Status> = done.await;
            // What was put has a name only now.
            let named = |put: String| match &done {
                Ok(CommitReply::Visible(object)) => format!("{put}: object {:?}", object.name),
                Ok(CommitReply::Refused(stripes)) => {
                    format!("{put}: {} stripes to be written again", stripes.len())
                }
                Ok(CommitReply::Unmet(_)) => format!("{put}: others have changed what it rests on"),
                Err(_) => put,
            };
            let about = put.map(named);
            noted(&peer, "commit_put", about, done).map(Response::new)
        })
    }

    unary!(begin_pack, BeginPack, PutTicket);

    fn commit_pack<'a: 'b, 'b>(&'a self, request: Request<CommitPack>) -> Answer<'b, PackReply> {
        Box::pin(async move {
            let peer = Peer::of(request.extensions());
            let request = request.into_inner();
            let put = audit::about(&request);
            let done = async { Ok(handlers::commit_pack::handle(self.cluster()?, request).await?) };
            let done: Result<PackReply, Status> = done.await;
            let named = |put: String| match &done {
                Ok(PackReply::Done(members)) => format!("{put}: {}", audit::members(members)),
                Ok(PackReply::Refused(_)) => format!("{put}: to be written again"),
                Err(_) => put,
            };
            let about = put.map(named);
            noted(&peer, "commit_pack", about, done).map(Response::new)
        })
    }

    unary!(find_loose, FindLoose, LooseStripes);
    change!(abort_put, PutRef, Done);

    fn lookup<'a: 'b, 'b>(&'a self, request: Request<Lookup>) -> Answer<'b, ObjectView> {
        Box::pin(async move {
            let Spoken { now, .. } = Spoken::of(request.extensions());
            let view = handlers::lookup::handle(self.cluster()?, request.into_inner()).await?;
            if now < PACKS && view.stripes.iter().any(|stripe| stripe.before > 0) {
                return Err(Status::failed_precondition(format!(
                    "{:?} shares its stripe with others: expected a client of version {PACKS} of the protocol or later, got \
                     {now}: replace this program by one of the coordinator's release",
                    view.object.name
                )));
            }
            Ok(Response::new(view))
        })
    }

    unary!(list, List, ListPage);
    change!(remove, Remove, ObjectInfo);
    change!(change, Change, Changed);
    change!(report_bad, BadBlock, Done);
    unary!(find_code, CodeName, Definition);
    inquiry!(rates, Rates);
    unary!(felt, Felt, Done);
}

impl Volumes for Service {
    change!(create_volume, CreateVolume, VolumeInfo);
    inquiry!(list_volumes, VolumeList);
    unary!(volume_info, VolumeName, VolumeInfo);
    change!(resize_volume, ResizeVolume, VolumeInfo);
    change!(remove_volume, VolumeName, VolumeInfo);

    fn open_volume<'a: 'b, 'b>(&'a self, request: Request<OpenVolume>) -> Answer<'b, OpenedVolume> {
        Box::pin(async move {
            let peer = Peer::of(request.extensions());
            let Spoken { newest, .. } = Spoken::of(request.extensions());
            let request = request.into_inner();
            let about = audit::about(&request);
            let done = async {
                let (cluster, writer) = (self.cluster()?, request.writer);
                if writer.is_some() {
                    driver::check_writer_hands_on(cluster, newest)?;
                }
                let opened = handlers::open_volume::handle(cluster, request).await?;
                if let Some(writer) = writer {
                    cluster.volume_leases().speaks(opened.volume.id, writer, newest);
                }
                Ok(opened)
            };
            noted(&peer, "open_volume", about, done.await).map(Response::new)
        })
    }

    fn renew_volume<'a: 'b, 'b>(&'a self, request: Request<VolumeWriter>) -> Answer<'b, VolumeLease> {
        Box::pin(async move {
            let Spoken { newest, .. } = Spoken::of(request.extensions());
            let (cluster, VolumeWriter { volume, writer }) = (self.cluster()?, *request.get_ref());
            let renewed = handlers::renew_volume::handle(cluster, request.into_inner()).await?;
            cluster.volume_leases().speaks(volume, writer, newest);
            Ok(Response::new(renewed))
        })
    }

    change!(close_volume, VolumeWriter, Done);
    unary!(map_volume, MapVolume, VolumeMap);
    change!(commit_volume, CommitVolume, CommittedVolume);
    change!(abandon_logs, AbandonLogs, AbandonedLogs);
    change!(snapshot_volume, SnapshotVolume, TakenSnapshot);
}

impl Operation for Service {
    type FollowJobStream = Events;
    type CommandNodeStream = Events;
    type EncodeStream = Events;
    type RepairStream = Events;
    type ScrubStream = Events;
    type RebalanceStream = Events;

    inquiry!(status, ClusterStatus);

    fn health<'a: 'b, 'b>(&'a self, request: Request<AskHealth>) -> Answer<'b, Health> {
        Box::pin(async move {
            let Spoken { newest, .. } = Spoken::of(request.extensions());
            let mut health = handlers::health::handle(self.cluster()?, request.into_inner()).await?;
            if newest < LOG_CAUSES {
                health.causes.iter_mut().for_each(|cause| cause.kind = cause.kind.older());
            }
            Ok(Response::new(health))
        })
    }

    unary!(space, AskSpace, Space);
    inquiry!(nodes, NodeList);
    inquiry!(jobs, JobList);
    inquiry!(counts, Counts);
    unary!(running_repairs, AskRepairs, RunningRepairs);
    change!(cancel_job, JobId, JobInfo);
    change!(pause_job, JobId, JobInfo);
    change!(resume_job, JobId, JobInfo);

    fn follow_job<'a: 'b, 'b>(&'a self, request: Request<JobId>) -> Answer<'b, Events> {
        Box::pin(async move {
            let (listener, events) = mpsc::channel(EVENTS);
            handlers::follow_job::handle(self.cluster()?, request.into_inner(), listener).await?;
            Ok(Response::new(Box::pin(ReceiverStream::new(events)) as Events))
        })
    }

    job!(command_node, NodeCommand);
    change!(forget_node, NodeRef, Done);
    job!(encode, Encode);
    job!(repair, Repair);
    job!(scrub, Scrub);
    job!(rebalance, Nothing);
    unary!(quarantine, Quarantine, QuarantineList);
    change!(restore_block, RestoreBlock, HeldBlock);
    change!(confirm_quarantine, NodeRef, Done);
    change!(register_code, RegisterCode, RegisteredCode);
    change!(remove_code, CodeName, Done);
    inquiry!(codes, CodeList);
    change!(set_rates, Rates, Done);
    inquiry!(known_rates, KnownRates);
    change!(measure_rates, KnownRates);
    inquiry!(settings, Settings);
    change!(change_setting, ChangeSetting, Settings);
    copy!();
    inquiry!(rebuild, RebuildStatus);
    change!(finish_rebuild, RebuildStatus);
}
