//! A cluster in TLS: it works, and whoever may not do something is refused.
#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use kintsu_agent::{Agent, AgentConfig, AgentHandle};
use kintsu_client::{Client, ClientError, PutOptions, Volume, VolumeAccess};
use kintsu_coordinator::{Config, Coordinator, CoordinatorHandle};
use kintsu_dag::{BlockId, BlockIndex, NodeId, RackId, Sink, Task, Vertex};
use kintsu_plan::{BlockBinding, Peer, Program, RunId, Window};
use kintsu_runtime::Conductor;
use kintsu_wire::channel::serve;
use kintsu_wire::message::{
    AppendUpdates, BlockPage, CreateVolume, Durability, FaultKind, FreezeUpdates, JobEvent, JobRef,
    LoggedUpdate, MapVolume, Nothing, ObjectView, OpenVolume, Register, RunEvent, RunPrograms, VolumeMap,
};
use kintsu_wire::ticket::{self, Access, KEY_BYTES, Ticket, TicketSecret};
use kintsu_wire::tls::{Authority, Issue};
use kintsu_wire::{ClusterId, Credentials, FolderId, Tls, connect_agent, connect_coordinator};
use tempfile::TempDir;
use tonic::Code;
use tonic::service::Routes;

const CLUSTER: ClusterId = ClusterId([0xaa; 16]);

/// A coordinator and four agents, each with a certificate of its own.
struct Stage {
    dir: TempDir,
    authority: Authority,
    coordinator: CoordinatorHandle,
    agents: Vec<AgentHandle>,
}

impl Stage {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::init(&dir.path().join("ca"), CLUSTER).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let tls = Some(tls_of(&dir, &authority, "coordinator"));
        let config = Config { tls, ..Config::new(dir.path().join("metadata"), any) };
        let coordinator = Coordinator::start(config).await.unwrap();
        let mut stage = Self { dir, authority, coordinator, agents: Vec::new() };
        for node in 0..4 {
            let agent = stage.agent(node, &format!("agent/{node}"), None).await.unwrap();
            assert_eq!(agent.id(), NodeId(node), "the certificate says which node a new folder is");
            stage.agents.push(agent);
        }
        stage
    }

    async fn agent(
        &self,
        folder: u32,
        role: &str,
        id: Option<u32>,
    ) -> Result<AgentHandle, kintsu_agent::AgentError> {
        let dir = self.dir.path().join(format!("node-{folder}"));
        let config = AgentConfig {
            node: id.map(NodeId),
            tls: Some(self.tls(role)),
            ..AgentConfig::new(dir, self.coordinator.addr().to_string())
        };
        Agent::start(config).await
    }

    fn tls(&self, role: &str) -> Tls {
        tls_of(&self.dir, &self.authority, role)
    }

    async fn client(&self, tls: Option<Tls>) -> Client {
        self.client_with(kintsu_client::Options { tls, ..Default::default() }).await
    }

    async fn client_with(&self, options: kintsu_client::Options) -> Client {
        Client::connect(&self.coordinator.addr().to_string(), options).await.unwrap()
    }

    /// What calls an agent directly.
    fn conductor(&self, role: &str) -> Conductor {
        Conductor::new(Credentials::of(None, Some(&self.tls(role))).unwrap())
    }

    async fn end(self) {
        for agent in &self.agents {
            agent.shutdown().await;
        }
        self.coordinator.shutdown();
        self.coordinator.wait().await.unwrap();
    }
}

fn tls_of(dir: &TempDir, authority: &Authority, role: &str) -> Tls {
    Tls::open(&issued(dir, authority, role)).unwrap()
}

fn issued(dir: &TempDir, authority: &Authority, role: &str) -> PathBuf {
    let out = dir.path().join(format!("{}-{}", role.replace('/', "-"), authority.cluster()));
    let (roles, valid) = (vec![role.parse().unwrap()], Duration::from_secs(3600));
    authority.issue(&Issue { roles, hosts: Vec::new(), valid, out: out.clone(), replace: true }).unwrap();
    out
}

fn content() -> Vec<u8> {
    (0..300_000_u32).map(|i| (i % 251) as u8).collect()
}

async fn put(client: &Client, name: &str) {
    let source = Arc::new(Bytes::from(content()));
    client.put(source, name, PutOptions::new("rs:n=4,k=2"), |_, _| {}).await.unwrap();
}

async fn get(client: &Client, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    client.get(name, None, &mut bytes, |_, _| {}).await.unwrap();
    bytes
}

/// Calls a server that wants another token than this one.
async fn refused_for_its_token(shown: &Credentials) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let demanded = Credentials::token("secret").unwrap();
    let serving = tokio::spawn(serve(Routes::default(), demanded, listener, std::future::pending()));
    let refused = connect_agent(addr, shown).unwrap().shutdown(Nothing {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    serving.abort();
}

/// A volume of this client, opened for writing.
async fn disk(client: &Client) -> Volume {
    let volume = CreateVolume {
        name: "disk".into(),
        size: 1 << 20,
        code: "rs:n=4,k=2".into(),
        block_bytes: 128 << 10,
        durability: Durability::Node,
        scheme: None,
    };
    client.create_volume(&volume).await.unwrap();
    client.open_volume("disk", VolumeAccess::Write).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn users_work_and_everybody_else_is_refused() {
    let stage = Stage::start().await;
    let alice = stage.client(Some(stage.tls("client/alice"))).await;
    put(&alice, "a").await;
    assert!(get(&alice, "a").await == content());

    let disk = disk(&alice).await;
    disk.write(0, Bytes::from(content())).await.unwrap();
    disk.write(1000, Bytes::from_static(b"new")).await.unwrap();
    assert_eq!(disk.read(998, 7).await.unwrap()[2..5], *b"new");
    disk.close().await.unwrap();

    // A client is no operator, and an operator is a client too.
    let error = alice.nodes().await.unwrap_err().to_string();
    assert!(error.contains("expected an operator, got client/alice"), "{error}");
    let carol = stage.client(Some(stage.tls("operator/carol"))).await;
    assert_eq!(carol.nodes().await.unwrap().nodes.len(), 4);
    assert!(get(&carol, "a").await == content());
    let agent = stage.client(Some(stage.tls("agent/1"))).await;
    assert!(agent.info("a").await.unwrap_err().to_string().contains("got agent/1"));

    // Degraded, as a slice stream between agents and the client.
    stage.agents[1].shutdown().await;
    assert!(get(&alice, "a").await == content());

    let strangers = [
        ("plain text", None),
        ("another authority", {
            let dir = tempfile::tempdir().unwrap();
            let other = Authority::init(&dir.path().join("ca"), CLUSTER).unwrap();
            Some(tls_of(&dir, &other, "client"))
        }),
    ];
    for (who, tls) in strangers {
        let call_timeout = Duration::from_secs(5);
        let options = kintsu_client::Options { tls, call_timeout, ..Default::default() };
        let error = stage.client_with(options).await.info("a").await.unwrap_err();
        assert!(matches!(error, ClientError::Unreachable(_)), "{who}: {error}");
    }
    alice.close().await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_obey_the_coordinator_and_their_own_certificates_only() {
    let stage = Stage::start().await;
    let control = stage.agents[0].control();
    for (role, words) in [
        ("client", "got client"),
        ("operator", "got operator"),
        ("agent/1", "got agent/1"),
        ("agent/0", "got"),
    ] {
        let refused = stage.conductor(role).agent(control).unwrap().wipe(Nothing {}).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{role}");
        assert!(refused.message().contains(words), "{refused:?}");
    }
    stage.conductor("coordinator").agent(control).unwrap().removed(Nothing {}).await.unwrap();
    // Somebody without TLS hears nothing at all.
    let plain = Credentials::none();
    plain.join(CLUSTER).unwrap();
    assert!(connect_agent(control, &plain).unwrap().removed(Nothing {}).await.is_err());

    // Node 2's agent with the certificate of node 1's.
    stage.agents[2].shutdown().await;
    let error = stage.agent(2, "agent/1", Some(2)).await.err().unwrap().to_string();
    assert!(error.contains("expected agent/2, got agent/1"), "{error}");
    let error = stage.agent(9, "client", None).await.err().unwrap().to_string();
    assert!(error.contains("expected an agent, got client"), "{error}");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_meant_for_one_node_is_not_done_by_another() {
    let stage = Stage::start().await;
    let carol = stage.client(Some(stage.tls("operator/carol"))).await;
    put(&carol, "a").await;
    let view = carol.stripes("a", 0, 1).await.unwrap();
    let kept = view.stripes[0].blocks.iter().flatten().find(|block| block.node == NodeId(2)).unwrap();
    let file = kintsu_store::block_path(&stage.dir.path().join("node-2"), kept.id);
    assert!(file.exists());
    // Whoever has the key of node 3's agent says that it listens where node 2's does.
    stage.agents[3].shutdown().await;
    let credentials = Credentials::of(None, Some(&stage.tls("agent/3"))).unwrap();
    let mut thief = connect_coordinator(stage.coordinator.addr(), &credentials).unwrap().membership;
    let (node, incarnation) = (NodeId(3), 77);
    let register = Register {
        node: Some(node),
        name: None,
        rack: RackId(0),
        rack_name: None,
        control: stage.agents[2].control(),
        data: stage.agents[2].data(),
        dir: "/stolen".into(),
        incarnation,
        cluster: None,
        folder: FolderId([7; 16]),
        log: None,
        seen: None,
        blocks: 0,
        next_stripe: 0,
        replace: true,
        moved: true,
        protocol: 0,
    };
    thief.register(register).await.unwrap();
    let page = BlockPage {
        node,
        incarnation,
        number: 0,
        upto: None,
        blocks: Vec::new(),
        damaged: Vec::new(),
        aside: Vec::new(),
        labels: Vec::new(),
    };
    thief.report_blocks(page).await.unwrap();
    let mut wipe = carol.wipe_by_force(node).await.unwrap();
    let refused = loop {
        match wipe.next().await {
            Ok(Some(event)) => {
                assert!(!matches!(event, JobEvent::Ended(_)), "node 2 was told to wipe itself")
            }
            Ok(None) => panic!("the wipe has no end"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(refused.contains("N3"), "{refused}");
    assert!(file.exists());
    carol.close().await;
    stage.end().await;
}

/// A program on the node of a block that reads it, or writes it.
fn program(view: &ObjectView, index: usize, writes: bool) -> (SocketAddr, Program) {
    let stripe = &view.stripes[0];
    let place = stripe.blocks[index].clone().unwrap();
    let block = BlockBinding {
        index: BlockIndex(index as u8),
        id: place.id,
        generation: stripe.generation,
        len: place.len,
        unit_bytes: 4096,
        expect: None,
        label: Vec::new(),
        next: None,
        replica: false,
    };
    let vertex = Vertex(index as u32);
    let task = if writes { Task::Persist { vertex, sink: Sink::Block } } else { Task::Load { vertex } };
    let program = Program {
        job: RunId(77),
        lane: 0,
        node: place.node,
        window: Window::whole(0, place.len, 4096, 1),
        tasks: vec![task],
        sends: Vec::new(),
        blocks: vec![block],
        peers: Vec::new(),
        resume_key: 0,
        serial: false,
        rate: None,
    };
    (view.nodes.iter().find(|node| node.id == place.node).unwrap().control, program)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_touches_only_blocks_for_which_it_has_tickets() {
    let stage = Stage::start().await;
    let client = stage.client(Some(stage.tls("client"))).await;
    put(&client, "a").await;
    put(&client, "b").await;
    let (a, b) = (client.stripes("a", 0, 1).await.unwrap(), client.stripes("b", 0, 1).await.unwrap());
    let conductor = stage.conductor("client");
    let run = async |view: &ObjectView, index: usize, writes: bool, tickets: &[Ticket]| {
        let (control, program) = program(view, index, writes);
        let tickets = tickets.to_vec();
        let run = RunPrograms { programs: vec![program], tickets, ..RunPrograms::default() };
        conductor.agent(control).unwrap().run(run).await.map(drop)
    };
    let (of_a, of_b) = (&a.stripes[0].tickets, &b.stripes[0].tickets);
    run(&a, 0, false, &of_a[..1]).await.unwrap();
    let refusals: [(&str, usize, bool, &[Ticket]); 4] = [
        ("none", 0, false, &[]),
        ("of another object", 0, false, of_b),
        ("of another block", 0, false, &of_a[1..]),
        ("to read only", 0, true, of_a),
    ];
    for (ticket, index, writes, tickets) in refusals {
        let refused = run(&a, index, writes, tickets).await.expect_err(ticket);
        assert_eq!(refused.code(), Code::PermissionDenied, "{ticket}: {refused:?}");
        assert!(refused.message().contains("expected a ticket to"), "{refused:?}");
    }
    // A ticket under another secret than the coordinator's, one whose time somebody made longer, and one whose time has passed.
    let (place, generation, until) =
        (a.stripes[0].blocks[0].clone().unwrap(), a.stripes[0].generation, of_a[0].until);
    let issued = |key: &[u8; KEY_BYTES], until| {
        let secret = TicketSecret::new(CLUSTER, key);
        secret.issue(place.node, place.id, generation, Access::Read, until)
    };
    let mut longer = of_a[0];
    longer.until += 1;
    let key = ticket::key_from(&std::fs::read(stage.dir.path().join("metadata/tickets.key")).unwrap());
    let key = key.unwrap();
    assert_eq!(issued(&key, until), of_a[0], "this is how the coordinator issues tickets");
    // Tickets are valid for a day.
    let expired = issued(&key, until - 24 * 3600 - 60);
    for (ticket, words) in [
        (issued(&[1; KEY_BYTES], u64::MAX), "did not issue"),
        (longer, "did not issue"),
        (expired, "got one that expired"),
    ] {
        let refused = run(&a, 0, false, &[ticket]).await.expect_err(words);
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
        assert!(refused.message().contains(words), "{words}: {refused:?}");
    }
    stage.end().await;
}

/// Another writer of the volume, whose calls are made by hand: which volume it is, and where its first stripe is.
async fn by_hand(stage: &Stage, writer: u64) -> (u64, VolumeMap) {
    let credentials = Credentials::of(None, Some(&stage.tls("client/alice"))).unwrap();
    let mut volumes = connect_coordinator(stage.coordinator.addr(), &credentials).unwrap().volumes;
    let open = OpenVolume { name: "disk".into(), writer: Some(writer), take: true };
    let volume = volumes.open_volume(open).await.unwrap().into_inner().volume.id;
    let map = MapVolume { volume, first: 0, count: 1, writer: Some(writer), failed: None, own: None };
    (volume, volumes.map_volume(map).await.unwrap().into_inner())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_certificate_alone_logs_nothing_and_fixes_no_log() {
    let stage = Stage::start().await;
    let alice = stage.client(Some(stage.tls("client/alice"))).await;
    let disk = disk(&alice).await;
    disk.write(0, Bytes::from(content())).await.unwrap();
    disk.close().await.unwrap();
    let (volume, map) = by_hand(&stage, 7).await;
    let stripe = map.stripes[0].clone();
    let block = BlockId { stripe: stripe.stripe.id, index: BlockIndex(0) };
    let control = |node: NodeId| map.nodes.iter().find(|known| known.id == node).unwrap().control;
    let [home, replica] = [control(stripe.logs[0][0]), control(stripe.logs[0][1])];
    let [for_home, for_replica] = [stripe.log_tickets[0][0], stripe.log_tickets[0][1]];
    let append = |tickets: &[Ticket]| AppendUpdates {
        updates: vec![LoggedUpdate {
            volume,
            epoch: stripe.epoch,
            block,
            offset: 1000,
            data: Bytes::from_static(b"by hand"),
            zeros: 0,
            delta_of: None,
            sum: None,
        }],
        replica: true,
        fenced: true,
        tickets: tickets.to_vec(),
        ..AppendUpdates::default()
    };

    // Whoever has the key of some agent. The ticket for the home is what that agent could show if it was one.
    let mut agent = stage.conductor("agent/3").agent(replica).unwrap();
    let others = &stripe.log_tickets[1];
    for (append, words) in [
        (append(&[]), "expected a ticket to log updates of"),
        (append(&[for_home]), "did not issue for this node"),
        (append(others), "got others only"),
        (AppendUpdates { fenced: false, ..append(&[for_replica]) }, "only the coordinator may log"),
        (AppendUpdates { replica: false, ..append(&[for_replica]) }, "expected replicas from an agent"),
        (AppendUpdates { forward: vec![home], ..append(&[for_replica]) }, "for this node alone"),
    ] {
        let refused = agent.append_updates(append).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
        assert!(refused.message().contains(words), "{words}: {refused:?}");
    }
    let freeze = |replica, tickets: &[Ticket]| FreezeUpdates {
        blocks: vec![block],
        replica,
        tickets: tickets.to_vec(),
        ..FreezeUpdates::default()
    };
    for (freeze, words) in [
        (freeze(true, &[]), "expected a ticket to fix the log of"),
        (freeze(true, &[for_replica]), "got others only"),
        (freeze(false, &[]), "expected replicas from an agent"),
    ] {
        let refused = agent.freeze_updates(freeze).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
        assert!(refused.message().contains(words), "{words}: {refused:?}");
    }

    // Nor is a home somebody whom a client without a ticket can send.
    let mut agent = stage.conductor("client/alice").agent(home).unwrap();
    let forwarded = |tickets: Vec<Vec<Ticket>>| AppendUpdates {
        replica: false,
        forward: vec![replica],
        forward_tickets: tickets,
        ..append(&[for_home])
    };
    let refused = agent.append_updates(forwarded(vec![])).await.unwrap_err();
    assert!(refused.message().contains("expected a ticket to log updates of"), "{refused:?}");
    agent.append_updates(forwarded(vec![vec![for_replica]])).await.unwrap();
    assert_eq!(disk_bytes(&alice, 998, 11).await[2..9], *b"by hand");

    // A commit fixes the log of the replica too, so that it can be released there.
    alice.commit_volume("disk", None).await.unwrap();
    let mut agent = stage.conductor("coordinator").agent(replica).unwrap();
    let left = agent.pending_updates(Nothing {}).await.unwrap().into_inner().pending;
    assert!(left.iter().all(|pending| pending.block != block), "{left:?}");
    assert_eq!(disk_bytes(&alice, 998, 11).await[2..9], *b"by hand");
    alice.close().await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_to_log_is_good_for_one_epoch_of_one_volume() {
    let stage = Stage::start().await;
    let alice = stage.client(Some(stage.tls("client/alice"))).await;
    let disk = disk(&alice).await;
    disk.write(0, Bytes::from(content())).await.unwrap();
    disk.close().await.unwrap();
    let (volume, before) = by_hand(&stage, 7).await;
    let (_, now) = by_hand(&stage, 8).await;
    let (before, stripe) = (&before.stripes[0], &now.stripes[0]);
    assert!(before.epoch < stripe.epoch);
    let block = BlockId { stripe: stripe.stripe.id, index: BlockIndex(0) };
    let update = |volume, epoch| LoggedUpdate {
        volume,
        epoch,
        block,
        offset: 1000,
        data: Bytes::from_static(b"by hand"),
        zeros: 0,
        delta_of: None,
        sum: None,
    };
    // The former writer at the home, and the thief of an agent's key at a replica: each has kept its ticket.
    for (role, at) in [("client/alice", 0), ("agent/3", 1)] {
        let node = stripe.logs[0][at];
        assert_eq!(before.logs[0][at], node, "both writers log there");
        let control = now.nodes.iter().find(|known| known.id == node).unwrap().control;
        let mut agent = stage.conductor(role).agent(control).unwrap();
        let append = |updates, old, ticket| AppendUpdates {
            updates,
            old,
            replica: at > 0,
            fenced: true,
            tickets: vec![ticket],
            ..AppendUpdates::default()
        };
        let (kept, fresh) = (before.log_tickets[0][at], stripe.log_tickets[0][at]);
        let good = update(volume, stripe.epoch);
        for (append, words) in [
            (append(vec![good.clone()], vec![], kept), "the epoch of its successor"),
            (append(vec![update(volume + 9, 0)], vec![], kept), "a volume that nobody knows"),
            (append(vec![update(volume + 9, 0)], vec![], fresh), "the same, with a ticket of now"),
            (append(vec![good.clone(), update(volume + 9, 0)], vec![], fresh), "one of them"),
            (append(vec![good.clone()], vec![update(volume + 9, 0)], fresh), "bytes that are replaced"),
        ] {
            let refused = agent.append_updates(append).await.expect_err(words);
            assert_eq!(refused.code(), Code::PermissionDenied, "{words}: {refused:?}");
            assert!(refused.message().contains("did not issue for this node"), "{words}: {refused:?}");
        }
        let late = agent.append_updates(append(vec![update(volume, before.epoch)], vec![], kept));
        assert_eq!(late.await.unwrap_err().code(), Code::FailedPrecondition);
        agent.append_updates(append(vec![good], vec![], fresh)).await.unwrap();
    }
    alice.close().await;
    stage.end().await;
}

/// A part of the volume, for somebody who only reads it.
async fn disk_bytes(client: &Client, offset: u64, len: u64) -> Bytes {
    let disk = client.open_volume("disk", VolumeAccess::Read).await.unwrap();
    let bytes = disk.read(offset, len).await.unwrap();
    disk.close().await.unwrap();
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runs_of_users_share_the_memory_of_an_agent() {
    let stage = Stage::start().await;
    let alice = stage.client(Some(stage.tls("client/alice"))).await;
    put(&alice, "a").await;
    let control = stage.agents[0].control();
    // Passes on a slice of 64 MiB, for which it waits in vain. For that nobody needs a ticket.
    let relay = |job| Program {
        job: RunId(job),
        lane: 0,
        node: NodeId(0),
        window: Window::whole(0, 1 << 26, 1 << 26, 1),
        tasks: vec![Task::Fetch { vertex: Vertex(0), from: NodeId(1) }],
        sends: vec![(Vertex(0), NodeId(2))],
        blocks: Vec::new(),
        peers: [1, 2]
            .map(|node| Peer { node: NodeId(node), data: stage.agents[node as usize].data() })
            .to_vec(),
        resume_key: 0,
        serial: false,
        rate: None,
    };
    let run = |role: &str, job| {
        let mut agent = stage.conductor(role).agent(control).unwrap();
        let run = RunPrograms { programs: vec![relay(job)], ..RunPrograms::default() };
        async move { agent.run(run).await }
    };
    let runs = futures::future::join_all((1..=15).map(|job| run("client/alice", job))).await;
    let runs: Vec<_> = runs.into_iter().map(|run| run.unwrap().into_inner()).collect();
    let (more, orders) = tokio::join!(run("operator/carol", 16), run("coordinator", 17));
    let busy = more.unwrap_err();
    assert_eq!(busy.code(), Code::ResourceExhausted, "{busy:?}");
    assert!(busy.message().contains("busy: expected room"), "{busy:?}");
    // The coordinator needs no room, and what needs little has some.
    orders.unwrap();
    assert!(get(&alice, "a").await == content());
    let mut agent = stage.conductor("client/alice").agent(control).unwrap();
    agent.abort(JobRef { job: RunId(1) }).await.unwrap();
    run("operator/carol", 18).await.unwrap();
    drop(runs);
    alice.close().await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_ended_by_whoever_runs_it_and_by_the_coordinator() {
    let stage = Stage::start().await;
    let alice = stage.client(Some(stage.tls("client/alice"))).await;
    put(&alice, "a").await;
    let view = alice.stripes("a", 0, 1).await.unwrap();
    let (control, program) = program(&view, 0, false);
    // A step a second.
    let programs = vec![Program { rate: NonZeroU64::new(4096), ..program }];
    let (job, tickets) = (programs[0].job, &view.stripes[0].tickets);
    let agent = |role: &str| stage.conductor(role).agent(control).unwrap();
    for (runs, ends) in
        [("client/alice", "client/alice"), ("client/alice", "coordinator"), ("coordinator", "coordinator")]
    {
        let (programs, tickets) = (programs.clone(), tickets.clone());
        let run = RunPrograms { programs, tickets, ..RunPrograms::default() };
        let mut events = agent(runs).run(run).await.unwrap().into_inner();
        for other in ["client/eve", "client", "operator/carol"] {
            let refused = agent(other).abort(JobRef { job }).await.expect_err(other);
            assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
            assert!(refused.message().contains("whoever runs it"), "{refused:?}");
        }
        agent(ends).abort(JobRef { job }).await.unwrap();
        let outcome = loop {
            if let RunEvent::Ended(outcome) = events.message().await.unwrap().unwrap() {
                break outcome;
            }
        };
        assert_eq!(outcome.fault.map(|fault| fault.kind), Some(FaultKind::Aborted), "{runs}, {ends}");
    }
    // A job that nobody runs has ended.
    agent("client/eve").abort(JobRef { job }).await.unwrap();
    alice.close().await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_and_a_refusal_have_one_line_each_in_the_audit_log() {
    // The lines of all tests of this program; nobody else is `ann`.
    let log = tempfile::NamedTempFile::new().unwrap();
    let file = Mutex::new(log.reopen().unwrap());
    tracing_subscriber::fmt().with_env_filter("audit=info").with_ansi(false).with_writer(file).init();
    let stage = Stage::start().await;
    let ann = stage.client(Some(stage.tls("client/ann"))).await;
    put(&ann, "audited").await;
    let view = ann.stripes("audited", 0, 1).await.unwrap();
    let disk = disk(&ann).await;
    disk.write(0, Bytes::from_static(b"new")).await.unwrap();
    disk.close().await.unwrap();
    ann.commit_volume("disk", None).await.unwrap();
    ann.nodes().await.unwrap_err();
    let (control, program) = program(&view, 0, false);
    let mut agent = stage.conductor("client/ann").agent(control).unwrap();
    agent.wipe(Nothing {}).await.unwrap_err();
    agent.run(RunPrograms { programs: vec![program], ..RunPrograms::default() }).await.unwrap_err();
    // Node 0's agent with the certificate of node 3's.
    stage.agents[0].shutdown().await;
    stage.agent(0, "agent/3", Some(0)).await.err().unwrap();
    ann.remove("audited").await.unwrap();
    for shown in [Credentials::token("guessed").unwrap(), Credentials::none()] {
        refused_for_its_token(&shown).await;
    }

    let text = std::fs::read_to_string(log.path()).unwrap();
    for (ended, who, what, says) in [
        ("done", "client/ann", "commit_put", "audited"),
        ("done", "client/ann", "create_volume", "disk"),
        ("done", "client/ann", "close_volume", "volume"),
        ("done", "client/ann", "commit_volume", "disk"),
        ("done", "client/ann", "remove", "audited"),
        ("refused", "client/ann", "Operation", "expected an operator"),
        ("refused", "client/ann", "wipe", "expected the coordinator"),
        ("refused", "client/ann", "run", "expected a ticket to"),
        ("refused", "agent/3", "register", "expected agent/0"),
        ("refused", "somebody", "call", "expected this cluster's token, got another one"),
        ("refused", "somebody", "call", "expected this cluster's token, got none"),
    ] {
        let (begin, what) =
            (format!(" audit: {ended} who={who} from 127.0.0.1:"), format!("what=\"{what}\""));
        let is_it = |line: &&str| line.contains(&begin) && line.contains(&what) && line.contains(says);
        assert_eq!(text.lines().filter(is_it).count(), 1, "{ended} {what} {says}: {text}");
    }
    ann.close().await;
    stage.end().await;
}
