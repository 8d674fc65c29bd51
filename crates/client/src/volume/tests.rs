//! An open volume whose coordinator and nodes are doubles: what is told to them when calls fail.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll};

use kintsu_dag::{BlockId, BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::{Layout, LayoutKind};
use kintsu_wire::message::*;
use kintsu_wire::volumes::volumes_server::{Volumes, VolumesServer};
use kintsu_wire::{ClusterId, Credentials};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::map::Map;
use super::*;
use crate::Options;

const CLUSTER: ClusterId = ClusterId([0xc1; 16]);
const NODE: NodeId = NodeId(3);
const BLOCK: u64 = 4096;
const PATIENT_ENOUGH: Duration = Duration::from_secs(60);

/// A coordinator with a volume of one stripe of one data block. Its calls of `map_volume` say under which epoch a write failed.
struct Desk {
    addr: SocketAddr,
    epoch: AtomicU64,
    asked: mpsc::UnboundedSender<Option<u64>>,
    /// How many calls of `map_volume` are answered.
    answers: Semaphore,
}

impl Desk {
    /// On the same listener, a node that refuses every call as invalid.
    async fn serve(epoch: u64, answers: usize) -> (Arc<Self>, mpsc::UnboundedReceiver<Option<u64>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (asked, heard) = mpsc::unbounded_channel();
        let (addr, epoch) = (listener.local_addr().unwrap(), AtomicU64::new(epoch));
        let desk = Arc::new(Self { addr, epoch, asked, answers: Semaphore::new(answers) });
        let routes = Routes::new(VolumesServer::from_arc(desk.clone())).add_service(Refusing);
        let credentials = Credentials::none();
        credentials.join(CLUSTER).unwrap();
        tokio::spawn(kintsu_wire::channel::serve(routes, credentials, listener, std::future::pending()));
        (desk, heard)
    }

    async fn client(&self) -> Client {
        let options = Options { patience: Duration::ZERO, ..Options::default() };
        Client::connect(&self.addr.to_string(), options).await.unwrap()
    }

    fn info(&self) -> VolumeInfo {
        VolumeInfo {
            id: 7,
            name: "disk".into(),
            size: BLOCK,
            code: "rs:n=2,k=1".into(),
            k: 1,
            block_bytes: BLOCK,
            durability: Durability::Node,
            scheme: String::new(),
            created: 0,
            epoch: 0,
            stripes: 1,
            writer: true,
            snapshot_of: None,
            snapshots: Vec::new(),
        }
    }

    fn stripe(&self, epoch: u64) -> VolumeStripe {
        let id = StripeId(20);
        let place = BlockPlace {
            id: BlockId { stripe: id, index: BlockIndex(0) },
            node: NODE,
            len: BLOCK,
            digest: None,
            lost: false,
            generation: None,
        };
        let (block_bytes, cell_bytes) = (BLOCK, BLOCK as u32);
        let layout = Layout { kind: LayoutKind::Striped, block_bytes, cell_bytes, w: 1, data_bytes: BLOCK };
        let stripe = StripeInfo {
            id,
            generation: 1,
            code: self.info().code,
            layout,
            offset: 0,
            before: 0,
            encoded: true,
            blocks: vec![Some(place), None],
            tickets: Vec::new(),
        };
        VolumeStripe {
            index: 0,
            stripe,
            owner: None,
            shared: false,
            frozen: false,
            epoch,
            logs: vec![vec![NODE]],
            folders: Default::default(),
            log_tickets: Vec::new(),
        }
    }
}

/// Calls that nothing here makes.
macro_rules! unused {
    ($($method:ident($request:ty) -> $reply:ty;)*) => {$(
        fn $method<'a, 'b>(&'a self, _: Request<$request>) -> BoxFuture<Response<$reply>, Status>
        where
            'a: 'b,
            Self: 'b,
        {
            Box::pin(std::future::ready(Err(Status::unimplemented("a double"))))
        }
    )*};
}

#[tonic::async_trait]
impl Volumes for Desk {
    async fn open_volume(&self, _: Request<OpenVolume>) -> Result<Response<OpenedVolume>, Status> {
        let (volume, taken) = (self.info(), self.epoch.load(SeqCst));
        Ok(Response::new(OpenedVolume {
            volume,
            taken,
            lease_ms: 30_000,
            definition: None,
            cluster: CLUSTER,
        }))
    }

    async fn map_volume(&self, request: Request<MapVolume>) -> Result<Response<VolumeMap>, Status> {
        let failed = request.into_inner().failed;
        let newest = self.epoch.load(SeqCst).max(failed.map_or(0, |failed| failed + 1));
        self.epoch.store(newest, SeqCst);
        let _ = self.asked.send(failed);
        self.answers.acquire().await.unwrap().forget();
        let (id, rack, control, data) = (NODE, RackId(0), self.addr, self.addr);
        let nodes = vec![NodeAddress { id, rack, control, data, alive: true, older: None }];
        Ok(Response::new(VolumeMap { taken: 1, size: BLOCK, stripes: vec![self.stripe(newest)], nodes }))
    }

    async fn close_volume(&self, _: Request<VolumeWriter>) -> Result<Response<Done>, Status> {
        Ok(Response::new(Done {}))
    }

    unused! {
        create_volume(CreateVolume) -> VolumeInfo;
        list_volumes(Nothing) -> VolumeList;
        volume_info(VolumeName) -> VolumeInfo;
        resize_volume(ResizeVolume) -> VolumeInfo;
        remove_volume(VolumeName) -> VolumeInfo;
        renew_volume(VolumeWriter) -> VolumeLease;
        commit_volume(CommitVolume) -> CommittedVolume;
        abandon_logs(AbandonLogs) -> AbandonedLogs;
        snapshot_volume(SnapshotVolume) -> TakenSnapshot;
    }
}

/// An agent that refuses every call.
#[derive(Clone)]
struct Refusing;

impl NamedService for Refusing {
    const NAME: &'static str = "kintsu.Agent";
}

impl Service<http::Request<Body>> for Refusing {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        std::future::ready(Ok(Status::invalid_argument("a double").into_http()))
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENT_ENOUGH, work).await.expect("it hangs")
}

#[tokio::test]
async fn a_write_that_failed_is_not_tried_again_under_its_epoch() {
    let (desk, mut asked) = Desk::serve(5, 100).await;
    let map = Map::new(desk.client().await, &desk.info(), Some(1));
    let first = map.stripe(0).await.unwrap().unwrap();
    // A reader of the same handle was refused: the map is another one, of the same epoch.
    let same = map.renew(0, &first, None).await.unwrap().unwrap();
    assert_eq!((first.stripe.epoch, same.stripe.epoch), (5, 5));
    let next = map.renew(0, &first, Some(5)).await.unwrap().unwrap();
    assert_eq!(next.stripe.epoch, 6);
    // Another write that failed under the same epoch need not ask.
    assert_eq!(map.renew(0, &first, Some(5)).await.unwrap().unwrap().stripe.epoch, 6);
    let all: Vec<_> = std::iter::from_fn(|| asked.try_recv().ok()).collect();
    assert_eq!(all, [None, None, Some(5)]);
}

#[tokio::test]
async fn a_write_that_fails_while_the_map_is_asked_for_is_not_forgotten() {
    let (desk, mut asked) = Desk::serve(5, 0).await;
    let map = Map::new(desk.client().await, &desk.info(), Some(1));
    let meanwhile = async {
        assert_eq!(asked.recv().await.unwrap(), None);
        map.fail(0, 5);
        // One of an older epoch says nothing new.
        map.fail(0, 4);
        desk.answers.add_permits(100);
    };
    let (answer, ()) = in_time(async { tokio::join!(map.stripe(0), meanwhile) }).await;
    assert_eq!(answer.unwrap().unwrap().stripe.epoch, 5);
    assert_eq!(map.stripe(0).await.unwrap().unwrap().stripe.epoch, 6);
    assert_eq!(asked.recv().await.unwrap(), Some(5));
    // That is told once.
    map.forget(0);
    assert_eq!(map.stripe(0).await.unwrap().unwrap().stripe.epoch, 6);
    assert_eq!(asked.recv().await.unwrap(), None);
}

#[tokio::test]
async fn the_epoch_of_a_write_that_a_node_refused_for_good_is_over() {
    let (desk, mut asked) = Desk::serve(5, 100).await;
    let volume = desk.client().await.open_volume("disk", VolumeAccess::Write).await.unwrap();
    for failed in [None, Some(5), Some(6)] {
        let error = in_time(volume.write(0, Bytes::from_static(b"x"))).await.unwrap_err();
        assert!(matches!(error, crate::ClientError::Invalid(_)), "{error}");
        assert_eq!(asked.try_recv(), Ok(failed));
    }
}
