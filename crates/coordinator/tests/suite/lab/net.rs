//! A network between real agents, in one process. All traffic to a node passes through a relay, so that the node's
//! link can be slow, or be cut without any connection ending.
//!
//! Agents do not know about the relays: they register with a front desk that tells the coordinator the addresses
//! of the relays.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::Stream;
use kintsu_dag::NodeId;
use kintsu_wire::frame::{self, HEADER_BYTES, Header, Hello};
use kintsu_wire::membership::membership_server::Membership;
use kintsu_wire::message::*;
use kintsu_wire::{Credentials, MembershipChannel, channel, connect_coordinator};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep_until};
use tonic::{Request, Response, Status};

/// Bytes that a relay passes on at once, and the size of its socket buffers.
const CHUNK: usize = 8 << 10;
const SOCKET_BYTES: u32 = 64 << 10;

/// One direction of a link.
#[derive(Default)]
struct Way {
    free_at: Mutex<Option<Instant>>,
    bytes: AtomicU64,
}

/// How a transfer uses a link: it takes bandwidth upwards or downwards, or only needs the link not to be cut.
enum Lane {
    Up,
    Down,
    Free,
}

/// The link of one node.
#[derive(Default)]
struct NodeLink {
    /// Bytes per second in each direction; 0 for no limit.
    rate: AtomicU64,
    cut: AtomicBool,
    up: Way,
    down: Way,
}

impl NodeLink {
    /// Waits until this many bytes have passed in one direction.
    async fn pass(&self, way: &Way, bytes: usize) {
        self.whole().await;
        let rate = self.rate.load(Relaxed);
        if rate > 0 {
            let at = {
                let mut free_at = way.free_at.lock().unwrap();
                let now = Instant::now();
                let from = free_at.unwrap_or(now).max(now);
                *free_at.insert(from + Duration::from_secs_f64(bytes as f64 / rate as f64))
            };
            sleep_until(at).await;
        }
        self.whole().await;
        way.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Waits while the link is cut.
    async fn whole(&self) {
        while self.cut.load(Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The links of all nodes.
#[derive(Default)]
pub struct Net {
    links: Mutex<BTreeMap<NodeId, Arc<NodeLink>>>,
}

impl Net {
    fn link(&self, node: NodeId) -> Arc<NodeLink> {
        self.links.lock().unwrap().entry(node).or_default().clone()
    }

    /// From now on a node sends and receives this many bytes per second.
    pub fn set_rate(&self, node: NodeId, bytes_per_second: u64) {
        self.link(node).rate.store(bytes_per_second, Relaxed);
    }

    /// From now on nothing leaves or reaches a node, but its connections stay open.
    pub fn cut(&self, node: NodeId) {
        self.link(node).cut.store(true, Relaxed);
    }

    /// Bytes of slice streams that a node has sent and received.
    pub fn bytes(&self, node: NodeId) -> (u64, u64) {
        let link = self.link(node);
        (link.up.bytes.load(Relaxed), link.down.bytes.load(Relaxed))
    }

    /// Starts a relay to the data listener of a node.
    async fn relay_data(self: &Arc<Self>, node: NodeId, to: SocketAddr) -> SocketAddr {
        let (listener, addr) = listen();
        let net = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let net = net.clone();
                tokio::spawn(async move { net.carry(stream, node, to).await });
            }
        });
        addr
    }

    async fn carry(&self, mut near: TcpStream, node: NodeId, to: SocketAddr) -> Option<()> {
        let mut first = vec![0; HEADER_BYTES];
        near.read_exact(&mut first).await.ok()?;
        let header = Header::decode(&first).ok()?;
        first.resize(HEADER_BYTES + header.payload_bytes(), 0);
        near.read_exact(&mut first[HEADER_BYTES..]).await.ok()?;
        let hello: Hello = frame::unpack(&first[HEADER_BYTES..]).ok()?;
        let (sender, receiver) = (self.link(hello.from), self.link(node));
        sender.whole().await;
        receiver.whole().await;
        let socket = TcpSocket::new_v4().ok()?;
        socket.set_send_buffer_size(SOCKET_BYTES).ok()?;
        let mut far = socket.connect(to).await.ok()?;
        far.write_all(&first).await.ok()?;
        let (near_read, near_write) = near.into_split();
        let (far_read, far_write) = far.into_split();
        let ways = vec![(sender.clone(), Lane::Up), (receiver.clone(), Lane::Down)];
        let there = pump(near_read, far_write, ways);
        let back = pump(far_read, near_write, vec![(receiver, Lane::Free), (sender, Lane::Free)]);
        tokio::join!(there, back);
        Some(())
    }

    /// Starts a relay to the control listener of a node.
    async fn relay_control(self: &Arc<Self>, node: NodeId, to: SocketAddr) -> SocketAddr {
        let (listener, addr) = listen();
        let link = self.link(node);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let link = link.clone();
                tokio::spawn(async move {
                    link.whole().await;
                    let Ok(far) = TcpStream::connect(to).await else { return };
                    let _ = (near.set_nodelay(true), far.set_nodelay(true));
                    let (near_read, near_write) = near.into_split();
                    let (far_read, far_write) = far.into_split();
                    let there = pump(near_read, far_write, vec![(link.clone(), Lane::Free)]);
                    let back = pump(far_read, near_write, vec![(link, Lane::Free)]);
                    tokio::join!(there, back);
                });
            }
        });
        addr
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(SOCKET_BYTES).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(128).unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    ways: Vec<(Arc<NodeLink>, Lane)>,
) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(read) = from.read(&mut chunk).await {
        for (link, lane) in &ways {
            match lane {
                Lane::Up => link.pass(&link.up, read).await,
                Lane::Down => link.pass(&link.down, read).await,
                Lane::Free => link.whole().await,
            }
        }
        if read == 0 || to.write_all(&chunk[..read]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

/// Takes the registrations of agents in place of the coordinator.
pub struct Front {
    net: Arc<Net>,
    behind: MembershipChannel,
}

impl Front {
    /// Listens in front of a coordinator.
    pub async fn serve(net: Arc<Net>, coordinator: SocketAddr) -> SocketAddr {
        let behind = connect_coordinator(coordinator, &Credentials::none()).unwrap().membership;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let routes = channel::membership_routes(Arc::new(Self { net, behind }));
        tokio::spawn(channel::serve(routes, Credentials::none(), listener, std::future::pending()));
        addr
    }
}

#[tonic::async_trait]
impl Membership for Front {
    async fn register(&self, request: Request<Register>) -> Result<Response<Registered>, Status> {
        let mut register = request.into_inner();
        let node = register.node.expect("agents of a test have ids");
        register.control = self.net.relay_control(node, register.control).await;
        register.data = self.net.relay_data(node, register.data).await;
        self.behind.clone().register(register).await
    }

    async fn heartbeat(&self, request: Request<Heartbeat>) -> Result<Response<HeartbeatReply>, Status> {
        let heartbeat = request.into_inner();
        self.net.link(heartbeat.node).whole().await;
        self.behind.clone().heartbeat(heartbeat).await
    }

    async fn report_blocks(&self, request: Request<BlockPage>) -> Result<Response<Done>, Status> {
        self.behind.clone().report_blocks(request.into_inner()).await
    }

    async fn report_bad(&self, request: Request<BadBlock>) -> Result<Response<Done>, Status> {
        self.behind.clone().report_bad(request.into_inner()).await
    }

    type BackupStream = Pin<Box<dyn Stream<Item = Result<CopyChunk, Status>> + Send>>;
    async fn backup(&self, _: Request<Backup>) -> Result<Response<Self::BackupStream>, Status> {
        Err(Status::unimplemented("no copies of the metadata here"))
    }
}
