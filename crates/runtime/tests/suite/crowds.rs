//! Peers that send or take nothing, or almost nothing, do not block others.
#![allow(clippy::unwrap_used)]

use crate::support;

use std::time::Duration;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::{LayoutKind, Method, Program, Repair, RunId, encode_online, repair};
use kintsu_wire::frame::{self, FrameVersion, Header, Hello, Kind};
use kintsu_wire::message::FaultKind;
use support::{SLICE, Site, quick, slices, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const ALL: (u64, u64) = (0, u64::MAX);

/// A repair of block 1 by a chain, with limits that detect a trickling peer within seconds.
async fn site() -> (Site, Vec<Program>, NodeId, Vec<NodeId>) {
    let mut site = Site::new("rs:n=6,k=4", LayoutKind::Contiguous, 400_000, 0).await;
    site.limits = quick();
    site.limits.trickle = Duration::from_millis(1500);
    site.limits.stall = Duration::from_millis(1500);
    site.store([0, 2, 3, 4, 5]);
    let requestor = site.spare(0);
    site.view.homes[1] = None;
    let wanted = Repair { lost: vec![BlockIndex(1)], requestors: vec![requestor], method: Method::Pipeline };
    let plan = repair(&site.view, &site.topology, &wanted, &|_| 0, &[]).unwrap();
    let helpers = plan.helpers.iter().map(|block| site.view.homes[block.0 as usize].unwrap()).collect();
    let programs = site.programs(&plan.plan, ALL, SLICE);
    (site, programs, requestor, helpers)
}

/// The stream of the first helper of the chain, to be played by the test.
async fn stream_of(site: &Site, program: &Program) -> TcpStream {
    let (_, to) = program.sends[0];
    let mut stream = TcpStream::connect(site.nodes[&to].plane.addr().unwrap()).await.unwrap();
    let hello =
        Hello { job: program.job, lane: program.lane, from: program.node, to, token: None, cluster: None };
    stream.write_all(&frame::hello(FrameVersion::NEWEST, &hello).unwrap()).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_sends_byte_by_byte_is_stalled_also_at_the_far_end_of_a_chain() {
    let (mut site, programs, requestor, helpers) = site().await;
    // The peer's neighbour gives up after three seconds. Those behind it look whether a slice came in time when a
    // keep-alive comes: a second before and a second after that.
    let seconds = Duration::from_secs;
    let limits = &mut site.limits;
    (limits.trickle, limits.stall) = (seconds(3), seconds(3));
    (limits.keep_alive, limits.peer_silence) = (seconds(2), seconds(12));
    let program = programs.iter().find(|p| p.node == helpers[0]).unwrap().clone();
    let mut stream = stream_of(&site, &program).await;
    let frames = slices(&program, 98);
    let role = tokio::spawn(async move {
        for byte in frames {
            if stream.write_all(&[byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let outcomes = site.run(&programs, None, &[helpers[0]]).await;
    role.abort();
    let fault = outcomes[&requestor].fault.clone().unwrap();
    assert_eq!((fault.kind, fault.node), (FaultKind::Stalled, helpers[0]), "{fault}");
    assert!(fault.detail.contains("bytes a second"), "{fault}");
    assert!(!site.has(requestor, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_sends_a_slice_now_and_then_is_stalled_whatever_it_says_between() {
    for excuse in [None, Some(NodeId(77))] {
        let (mut site, programs, requestor, helpers) = site().await;
        // Each slice comes in time; all of them together would take minutes.
        site.limits.least_rate = 64 << 10;
        let program = programs.iter().find(|p| p.node == helpers[0]).unwrap().clone();
        let mut stream = stream_of(&site, &program).await;
        let frames = slices(&program, 98);
        let waiting_on = excuse.unwrap_or(program.node);
        let role = tokio::spawn(async move {
            for slice in frames.chunks(frames.len() / 98) {
                let sign = frame::bare(FrameVersion::NEWEST, Kind::KeepAlive { waiting_on }, program.lane);
                if stream.write_all(&[&sign[..], slice].concat()).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
        });
        let outcomes = site.run(&programs, None, &[helpers[0]]).await;
        role.abort();
        let fault = outcomes[&requestor].fault.clone().unwrap();
        assert_eq!(fault.kind, FaultKind::Stalled, "{fault}");
        // With an excuse all nodes of the chain give up at about the same time, and blame the node that was named
        // last.
        assert!(excuse.is_some() || fault.node == helpers[0], "{fault}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_never_says_that_all_was_sent_does_not_hold_the_end_up() {
    let (site, programs, requestor, helpers) = site().await;
    let program = programs.iter().find(|p| p.node == helpers[0]).unwrap().clone();
    let mut stream = stream_of(&site, &program).await;
    let mut frames = slices(&program, 98);
    // The last step is shorter.
    let cut = 98 * SLICE as usize - 400_000;
    let rest = SLICE as usize - cut;
    frames.truncate(97 * (SLICE as usize + frame::HEADER_BYTES));
    let kind = Kind::Slice { vertex: program.sends[0].0, offset: 97 * u64::from(SLICE), zero: false };
    frames.extend(Header::new(kind, program.lane, &vec![9; rest]).encode(FrameVersion::NEWEST));
    frames.extend(vec![9; rest]);
    let role = tokio::spawn(async move {
        stream.write_all(&frames).await.unwrap();
        let sign =
            frame::bare(FrameVersion::NEWEST, Kind::KeepAlive { waiting_on: program.node }, program.lane);
        while stream.write_all(&sign).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let outcomes = site.run(&programs, None, &[helpers[0]]).await;
    role.abort();
    // All bytes came; their values are wrong, which the digest finds.
    assert_eq!(outcomes[&requestor].fault.as_ref().unwrap().kind, FaultKind::Mismatch);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_takes_byte_by_byte_does_not_hold_a_put_for_ever() {
    let mut site = Site::new("rs:n=6,k=4", LayoutKind::Contiguous, 8 << 20, 0).await;
    site.limits = quick();
    // The others may have to wait for a processor or a disk.
    site.limits.trickle = Duration::from_secs(3);
    let villain = site.view.homes[2].unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(8).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut programs = site.programs(&encode_online(&site.view).unwrap(), ALL, 64 << 10);
    for program in &mut programs {
        program.peers.iter_mut().filter(|peer| peer.node == villain).for_each(|peer| peer.data = addr);
    }
    let role = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        while stream.read_exact(&mut [0; 16]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let outcomes = site.run(&programs, Some(site.client()), &[villain]).await;
    role.abort();
    let fault = outcomes[&NodeId::CLIENT].fault.clone().unwrap();
    assert_eq!((fault.kind, fault.node), (FaultKind::Stalled, villain), "{fault}");
}

/// More idle connections than any limit, and as many that introduced themselves and that no program will ever
/// claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_do_not_keep_a_transfer_out() {
    let (site, programs, requestor, _) = site().await;
    let mut idle = Vec::new();
    for node in [requestor, programs[0].node, programs[1].node] {
        let addr = site.nodes[&node].plane.addr().unwrap();
        for i in 0..600 {
            idle.push(TcpStream::connect(addr).await.unwrap());
            let mut parked = TcpStream::connect(addr).await.unwrap();
            let job = RunId(1 << 40 | i);
            let hello = Hello { job, lane: 0, from: NodeId(1), to: node, token: None, cluster: None };
            parked.write_all(&frame::hello(FrameVersion::NEWEST, &hello).unwrap()).await.unwrap();
            idle.push(parked);
        }
    }
    let outcomes = site.run(&programs, None, &[]).await;
    assert_eq!(outcomes[&requestor].fault, None);
    assert_eq!(site.read(requestor, 1), site.blocks[1]);
    // The oldest were closed to make room.
    let closed = within(idle[0].read(&mut [0; 1])).await;
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cyclic_repair_reads_each_block_once_whatever_the_slices() {
    let block = 4 << 20;
    for slice in [8 << 10, 24 << 10, 64 << 10] {
        let mut site = Site::new("rs:n=9,k=6", LayoutKind::Contiguous, block, 0).await;
        site.store([0, 2, 3, 4, 5, 6, 7, 8]);
        let requestor = site.spare(0);
        site.view.homes[1] = None;
        let wanted =
            Repair { lost: vec![BlockIndex(1)], requestors: vec![requestor], method: Method::Cyclic };
        let plan = repair(&site.view, &site.topology, &wanted, &|_| 0, &[]).unwrap();
        assert_eq!((plan.plan.lanes.len(), plan.helpers.len()), (5, 6));
        let outcomes = site.succeed(&site.programs(&plan.plan, ALL, slice), None).await;
        assert_eq!(site.read(requestor, 1), site.blocks[1]);
        for helper in &plan.helpers {
            let read = outcomes[&site.view.homes[helper.0 as usize].unwrap()].bytes_read as f64;
            assert!(read >= block as f64 && read <= 1.1 * block as f64, "{read} of {block} in {slice}");
        }
    }
}
