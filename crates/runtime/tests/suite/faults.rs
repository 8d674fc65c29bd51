//! A fault ends every run in a bounded time, and the requestor learns which node caused it.
#![allow(clippy::unwrap_used)]

use crate::support;

use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::{LayoutKind, Method, Program, Repair, repair};
use kintsu_runtime::{Carried, GiveWay};
use kintsu_store::block_path;
use kintsu_wire::frame::{self, FrameVersion, Header, Hello, Kind, MAX_PAYLOAD_BYTES};
use kintsu_wire::message::{Fault, FaultKind, RunOutcome};
use support::{SLICE, Site, quick, slices, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// A repair of block 1 of a stripe of six, its programs, and the nodes in the order of the path.
struct Broken {
    site: Site,
    programs: Vec<Program>,
    requestor: NodeId,
    /// Who sends to whom: helpers in the order of the chain, for the other methods in any order.
    helpers: Vec<NodeId>,
}

async fn broken(method: Method, block_bytes: usize) -> Broken {
    let mut site = Site::new("rs:n=6,k=4", LayoutKind::Contiguous, block_bytes, 0).await;
    site.limits = quick();
    site.store([0, 2, 3, 4, 5]);
    let requestor = site.spare(0);
    site.view.homes[1] = None;
    let wanted = Repair { lost: vec![BlockIndex(1)], requestors: vec![requestor], method };
    let plan = repair(&site.view, &site.topology, &wanted, &|_| 0, &[]).unwrap();
    let helpers = plan.helpers.iter().map(|block| site.view.homes[block.0 as usize].unwrap()).collect();
    let programs = site.programs(&plan.plan, (0, u64::MAX), SLICE);
    Broken { site, programs, requestor, helpers }
}

impl Broken {
    fn program(&self, node: NodeId) -> &Program {
        self.programs.iter().find(|p| p.node == node).unwrap()
    }

    /// Runs all but `villain`, whose stream to its first receiver is played by `role`.
    async fn run_with<F: Future<Output = ()> + Send + 'static>(
        &self,
        villain: NodeId,
        role: impl FnOnce(TcpStream, Program) -> F,
    ) -> RunOutcome {
        let program = self.program(villain).clone();
        let (_, to) = program.sends[0];
        let mut stream = TcpStream::connect(self.site.nodes[&to].plane.addr().unwrap()).await.unwrap();
        let hello =
            Hello { job: program.job, lane: program.lane, from: villain, to, token: None, cluster: None };
        stream.write_all(&frame::hello(FrameVersion::NEWEST, &hello).unwrap()).await.unwrap();
        let role = tokio::spawn(role(stream, program));
        let mut outcomes = self.site.run(&self.programs, None, &[villain]).await;
        role.abort();
        assert!(!self.site.has(self.requestor, 1), "nothing may be visible");
        assert!(self.site.left_over().is_empty());
        outcomes.remove(&self.requestor).unwrap()
    }
}

fn culprit(outcome: &RunOutcome) -> (FaultKind, NodeId) {
    let fault = outcome.fault.as_ref().unwrap();
    (fault.kind, fault.node)
}

const METHODS: [Method; 3] = [Method::Conventional, Method::Ppr, Method::Pipeline];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_keeps_the_limit_of_repairs_is_not_stalled_however_long_its_steps_wait() {
    for method in METHODS {
        // Where a thread waits for a processor for as long as a stall is, all is tried again with more time.
        let mut faults = Vec::new();
        for stall_ms in [250, 800, 2500] {
            let mut broken = broken(method, 2 * SLICE as usize).await;
            let limits = &mut broken.site.limits;
            (limits.stall, limits.keep_alive) = (Duration::from_millis(stall_ms), Duration::from_millis(50));
            let way = Arc::new(GiveWay::default());
            // All nodes together send a slice in 1.2 times as long.
            way.limit(u64::from(SLICE) * 1000 / (stall_ms * 6 / 5));
            broken.site.carried = Arc::new(Carried::in_background(way));
            let outcomes = broken.site.run(&broken.programs, None, &[]).await;
            faults = outcomes.into_values().filter_map(|outcome| outcome.fault).collect();
            assert_eq!(broken.site.has(broken.requestor, 1), faults.is_empty());
            if faults.is_empty() {
                break;
            }
        }
        assert_eq!(faults, [], "{method}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_killed_in_the_middle_is_lost() {
    for method in METHODS {
        let broken = broken(method, 400_000).await;
        let villain = broken.helpers[0];
        let outcome = broken
            .run_with(villain, async |mut stream, program| {
                let frames = slices(&program, 5);
                stream.write_all(&frames[..frames.len() - 100]).await.unwrap();
            })
            .await;
        assert_eq!(culprit(&outcome), (FaultKind::Lost, villain), "{method}: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_peer_is_lost_also_at_the_far_end_of_a_chain() {
    let case = async |method: Method| {
        let broken = broken(method, 400_000).await;
        let villain = broken.helpers[0];
        let outcome = broken
            .run_with(villain, async |mut stream, program| {
                stream.write_all(&slices(&program, 3)).await.unwrap();
                std::future::pending::<()>().await;
            })
            .await;
        assert_eq!(culprit(&outcome), (FaultKind::Lost, villain), "{method}: {outcome:?}");
        assert!(outcome.fault.unwrap().detail.contains("silent"));
    };
    futures::future::join_all(METHODS.map(case)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_only_says_that_it_lives_is_stalled_or_whoever_it_waits_for() {
    let case = async |(method, other): (Method, Option<NodeId>)| {
        let broken = broken(method, 400_000).await;
        let villain = broken.helpers[0];
        let waiting_on = other.unwrap_or(villain);
        let outcome = broken
            .run_with(villain, async move |mut stream, program| {
                stream.write_all(&slices(&program, 3)).await.unwrap();
                loop {
                    let sign =
                        frame::bare(FrameVersion::NEWEST, Kind::KeepAlive { waiting_on }, program.lane);
                    if stream.write_all(&sign).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            })
            .await;
        assert_eq!(culprit(&outcome), (FaultKind::Stalled, waiting_on), "{method}: {outcome:?}");
    };
    let cases = METHODS.into_iter().flat_map(|method| [(method, None), (method, Some(NodeId(77)))]);
    futures::future::join_all(cases.map(case)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_never_comes_is_lost() {
    for method in METHODS {
        let broken = broken(method, 50_000).await;
        let villain = broken.helpers[0];
        let outcomes = broken.site.run(&broken.programs, None, &[villain]).await;
        assert_eq!(culprit(&outcomes[&broken.requestor]), (FaultKind::Lost, villain), "{method}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_make_no_sense_are_refused_with_the_reason() {
    type Spoil = fn(&Program) -> Vec<u8>;
    let forged = |at: usize, value: &[u8]| {
        let mut bytes = frame::bare(FrameVersion::NEWEST, Kind::End, 0).to_vec();
        bytes[at..at + value.len()].copy_from_slice(value);
        let crc = crc_fast::crc32_iscsi(&bytes[..32]);
        bytes[32..].copy_from_slice(&crc.to_le_bytes());
        bytes
    };
    let other = FrameVersion::NEWEST.number() + 1;
    let version = forged(4, &other.to_le_bytes());
    let oversized = forged(24, &(MAX_PAYLOAD_BYTES as u32 + 1).to_le_bytes());
    let flip: Spoil = |program| {
        let mut frames = slices(program, 2);
        *frames.last_mut().unwrap() ^= 4;
        frames
    };
    let other_vertex: Spoil = |program| {
        let mut other = program.clone();
        other.sends[0].0.0 += 1000;
        slices(&other, 1)
    };
    let short: Spoil = |program| {
        let (vertex, _) = program.sends[0];
        let kind = Kind::Slice { vertex, offset: 0, zero: false };
        [&Header::new(kind, 0, &[1; 100]).encode(FrameVersion::NEWEST)[..], &[1; 100]].concat()
    };
    let end: Spoil =
        |program| [slices(program, 1), frame::bare(FrameVersion::NEWEST, Kind::End, 0).to_vec()].concat();
    let made = |spoil: Spoil| move |program: &Program| spoil(program);
    type Case = (Box<dyn Fn(&Program) -> Vec<u8> + Send>, &'static str);
    let cases: Vec<Case> = vec![
        (Box::new(move |_| version.clone()), "another version of the protocol"),
        (Box::new(move |_| oversized.clone()), "oversized frame"),
        (Box::new(|_| b"GET / HTTP/1.1\r\nHost: kintsu.invalid\r\n\r\n".to_vec()), "magic"),
        (Box::new(made(flip)), "checksum of the payload"),
        (Box::new(made(other_vertex)), "expected slice of"),
        (Box::new(made(short)), "got 100 bytes"),
        (Box::new(made(end)), "got End"),
    ];
    for (spoiled, reason) in cases {
        let broken = broken(Method::Pipeline, 100_000).await;
        let villain = broken.helpers[0];
        let outcome = broken
            .run_with(villain, async move |mut stream, program| {
                let frames = spoiled(&program);
                stream.write_all(&frames).await.unwrap();
                // Stays connected until it is told to end.
                let _ = stream.read_to_end(&mut Vec::new()).await;
            })
            .await;
        assert_eq!(culprit(&outcome), (FaultKind::Invalid, villain), "{reason}: {outcome:?}");
        let detail = outcome.fault.unwrap().detail;
        assert!(detail.contains(reason), "{detail}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_of_another_travels_to_the_requestor_as_it_is() {
    let broken = broken(Method::Pipeline, 100_000).await;
    let villain = broken.helpers[0];
    let told = Fault { kind: FaultKind::Io, node: NodeId(123), block: None, detail: "sparks".into() };
    let sent = told.clone();
    let outcome = broken
        .run_with(villain, async move |mut stream, program| {
            let frames =
                [slices(&program, 2), frame::abort(FrameVersion::NEWEST, 0, &sent).unwrap()].concat();
            stream.write_all(&frames).await.unwrap();
        })
        .await;
    assert_eq!(outcome.fault, Some(told));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rot_is_found_and_named_at_the_requestor() {
    for method in METHODS {
        let broken = broken(method, 400_000).await;
        let helper = broken.helpers[1];
        let index = (0..6).find(|i| broken.site.view.homes[*i as usize] == Some(helper)).unwrap();
        let path = block_path(&broken.site.nodes[&helper].dir, broken.site.id(index));
        let mut file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let at = file.metadata().unwrap().len() / 2;
        let mut byte = [0];
        file.seek(SeekFrom::Start(at)).unwrap();
        file.read_exact(&mut byte).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&[byte[0] ^ 16]).unwrap();
        let outcomes = broken.site.run(&broken.programs, None, &[]).await;
        let outcome = &outcomes[&broken.requestor];
        assert_eq!(culprit(outcome), (FaultKind::Corrupt, helper), "{method}: {outcome:?}");
        assert_eq!(outcome.fault.as_ref().unwrap().block, Some(broken.site.id(index)));
        assert!(!broken.site.has(broken.requestor, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_block_and_one_of_another_generation_are_named() {
    for (change, kind) in [(0, FaultKind::Missing), (1, FaultKind::Stale), (2, FaultKind::Stale)] {
        let mut broken = broken(Method::Pipeline, 100_000).await;
        let helper = broken.helpers[2];
        let index = (0..6).find(|i| broken.site.view.homes[*i as usize] == Some(helper)).unwrap();
        let binding = broken.programs.iter_mut().find(|p| p.node == helper).unwrap();
        match change {
            0 => {
                use kintsu_store::BlockStore;
                assert!(broken.site.nodes[&helper].store.delete(broken.site.id(index), None).unwrap());
            }
            1 => binding.blocks[0].generation += 1,
            _ => binding.blocks[0].len += 1,
        }
        let outcomes = broken.site.run(&broken.programs, None, &[]).await;
        let outcome = &outcomes[&broken.requestor];
        assert_eq!(culprit(outcome), (kind, helper), "{outcome:?}");
        assert_eq!(outcome.fault.as_ref().unwrap().block, Some(broken.site.id(index)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_result_is_never_visible() {
    let mut broken = broken(Method::Ppr, 100_000).await;
    let program = broken.programs.iter_mut().find(|p| p.node == broken.requestor).unwrap();
    program.blocks[0].expect = Some([7; 16]);
    let outcomes = broken.site.run(&broken.programs, None, &[]).await;
    let outcome = &outcomes[&broken.requestor];
    assert_eq!(culprit(outcome), (FaultKind::Mismatch, broken.requestor), "{outcome:?}");
    assert!(!broken.site.has(broken.requestor, 1));
    assert!(broken.site.left_over().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_is_gone_ends_its_senders() {
    // More than the sockets between the last helper and a receiver with a small window can hold.
    let mut broken = broken(Method::Pipeline, 8 << 20).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(8).unwrap();
    let addr = listener.local_addr().unwrap();
    for program in &mut broken.programs {
        program.peers.iter_mut().filter(|p| p.node == broken.requestor).for_each(|p| p.data = addr);
    }
    let gone = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut some = vec![0; 50_000];
        stream.read_exact(&mut some).await.unwrap();
    });
    let outcomes = broken.site.run(&broken.programs, None, &[broken.requestor]).await;
    gone.await.unwrap();
    let last =
        broken.programs.iter().find(|p| p.sends.iter().any(|(_, to)| *to == broken.requestor)).unwrap();
    assert!(outcomes[&last.node].fault.is_some());
    for (node, outcome) in outcomes.iter().filter(|(_, outcome)| outcome.fault.is_some()) {
        assert_eq!(culprit(outcome), (FaultKind::Lost, broken.requestor), "{node}: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_token_is_refused() {
    use kintsu_runtime::DataPlane;
    use kintsu_wire::Credentials;
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let plane = DataPlane::listen(any, Credentials::token("right").unwrap(), None).await.unwrap();
    for token in [None, Some("wrong".to_owned())] {
        let mut stream = TcpStream::connect(plane.addr().unwrap()).await.unwrap();
        let job = kintsu_plan::RunId(1);
        let hello = Hello { job, lane: 0, from: NodeId(1), to: NodeId(2), token, cluster: None };
        stream.write_all(&frame::hello(FrameVersion::NEWEST, &hello).unwrap()).await.unwrap();
        let mut answer = Vec::new();
        within(stream.read_to_end(&mut answer)).await.unwrap();
        let header = Header::decode(&answer).unwrap();
        assert_eq!(header.kind, Kind::Abort);
        let fault: Fault = frame::unpack(&answer[frame::HEADER_BYTES..]).unwrap();
        assert!(fault.detail.contains("token"), "{}", fault.detail);
    }
    assert!(
        DataPlane::listen("0.0.0.0:0".parse().unwrap(), Credentials::token("t").unwrap(), None)
            .await
            .is_err()
    );
}
