//! The emulated cluster as an experiment uses it, from inside: this test program enters its own namespaces, as
//! `kintsu lab run` does. Without permission for namespaces it says so and skips the tests.
#![allow(clippy::unwrap_used, reason = "a test: what fails is its failure")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use kintsu_client::PutOptions;
use kintsu_dag::NodeId;
use kintsu_lab::{Change, Counters, Entry, Lab, Link, Options, Place, Rate, Spec};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(90);

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let entry = Entry { name: Some(format!("t-api-{}", std::process::id())), dir: None };
        match kintsu_lab::enter(&entry).await {
            Ok(Place::Left(code)) => return code,
            Ok(Place::Inside) => {}
            Err(reason @ kintsu_lab::LabError::Unsupported { .. }) => {
                eprintln!("SKIPPED: {reason}");
                return ExitCode::SUCCESS;
            }
            Err(other) => panic!("{other}"),
        }
        rates_hold_and_change().await;
        bytes_are_counted_and_hosts_fail().await;
        println!("lab_api: ok");
        ExitCode::SUCCESS
    })
}

fn options() -> Options {
    Options { program: Some(env!("CARGO_BIN_EXE_kintsu").into()), ..Options::default() }
}

fn rate(text: &str) -> Option<Rate> {
    Some(text.parse().unwrap())
}

/// What `tc` says on a node's host.
async fn tc(lab: &Lab, node: u32, args: &[&str]) -> String {
    let out = lab.command(Some(NodeId(node)), "tc").args(args).output().await.unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap()
}

async fn rates_hold_and_change() {
    let mut spec = Spec::in_racks(&[0, 0, 1], rate("100Mb/s")).with_rack_links(rate("50Mb/s"));
    spec.set_rate("node 0 to 1".parse().unwrap(), rate("10Mb/s")).unwrap();
    for (ms, link, text) in [(20, "node 2 up", "30Mb/s"), (0, "node 0 to 2", "5Mb/s")] {
        let (at, link) = (Duration::from_millis(ms), link.parse().unwrap());
        spec.changes.push(Change { at, link, rate: rate(text) });
    }
    let lab = Lab::up(&spec, options()).await.unwrap();
    let second = Lab::up(&spec, options()).await.unwrap_err();
    assert!(second.to_string().contains("one at a time"), "{second}");

    let classes = tc(&lab, 0, &["class", "show", "dev", "eth0"]).await;
    for shown in ["1:11 parent 1:1 leaf", "ceil 10Mbit", "ceil 100Mbit"] {
        assert!(classes.contains(shown), "{shown}: {classes}");
    }
    lab.start_changes().await.finished().await.unwrap();
    assert!(tc(&lab, 0, &["class", "show", "dev", "eth0"]).await.contains("ceil 5Mbit"));
    assert!(tc(&lab, 2, &["qdisc", "show", "dev", "eth0"]).await.contains("rate 30Mbit"));
    assert_eq!(lab.spec().await.rates().up[&NodeId(2)].get(), 30_000_000 / 8);

    lab.set_rate(Link::NodeDown(NodeId(1)), rate("7Mb/s")).await.unwrap();
    lab.set_rate(Link::RackUp(kintsu_dag::RackId(1)), None).await.unwrap();
    let out = lab.command(None, "tc").args(["qdisc", "show"]).output().await.unwrap();
    let shown = String::from_utf8(out.stdout).unwrap();
    let line = |device: &str| shown.lines().find(|line| line.contains(&format!("dev {device} "))).unwrap();
    assert!(line("h1").contains("rate 7Mbit"), "{shown}");
    assert!(line("r1up").contains("pfifo") && line("r1down").contains("rate 50Mbit"), "{shown}");
    lab.set_rate("node 0 to 1".parse().unwrap(), None).await.unwrap();
    assert!(!tc(&lab, 0, &["class", "show", "dev", "eth0"]).await.contains("ceil 10Mbit"));
    for link in ["node 1 to 0", "node 3 up", "rack 2 down"] {
        let error = lab.set_rate(link.parse().unwrap(), None).await.unwrap_err();
        assert!(error.to_string().contains("expected"), "{error}");
    }

    // Connections in the lab use cubic, so that the links limit them, not an estimate of the rate (bbr).
    let out = lab.command(Some(NodeId(1)), "ss").args(["-tin"]).output().await;
    if let Ok(out) = out {
        let shown = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(shown.contains("cubic") && !shown.contains("bbr"), "{shown}");
    }
    let data = lab.data().to_owned();
    assert!(data.exists());
    lab.down().await;
    assert!(!data.exists());
}

async fn bytes_are_counted_and_hosts_fail() {
    // Another lab after the first.
    let spec = Spec::in_racks(&[0, 0, 0, 1, 1, 1], rate("80Mb/s"));
    let lab = Lab::up(&spec, options()).await.unwrap();
    assert_eq!(lab.hosts().len(), 6);
    let client = lab.client().await.unwrap();
    for (host, listed) in lab.hosts().iter().zip(client.nodes().await.unwrap().nodes) {
        assert_eq!((host.node, host.rack), (listed.id, listed.rack));
    }

    let bytes: Vec<u8> = (0..2u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let before = lab.counters().await.unwrap();
    let size = bytes.len() as u64;
    client
        .put(Arc::new(bytes::Bytes::from(bytes)), "object", PutOptions::new("rs:n=4,k=2"), |_, _| {})
        .await
        .unwrap();
    let moved = lab.counters().await.unwrap().since(&before);
    bounded("received", received(&moved), 2 * size);
    let racks: u64 = moved.racks.iter().map(|rack| rack.received_bytes).sum();
    bounded("received by racks", racks, 2 * size);
    assert_eq!(moved.nodes.len() + moved.racks.len(), 8);
    assert!(lab.cpu().await.lab() >= 0.0 && lab.cpu().await.available > 0.0);

    let victim = NodeId(5);
    let reachable = async |node: NodeId| {
        let connect = TcpStream::connect(lab.hosts()[node.0 as usize].control);
        timeout(Duration::from_secs(1), connect).await.is_ok_and(|connected| connected.is_ok())
    };
    let answers = async || timeout(PATIENCE, async { while !reachable(victim).await {} }).await.is_ok();
    assert!(answers().await);
    lab.cut(victim).await.unwrap();
    assert!(!reachable(victim).await, "a cut host answers nobody");
    lab.heal(victim).await.unwrap();
    assert!(answers().await, "it answers again");

    lab.kill(victim).await.unwrap();
    assert!(lab.kill(victim).await.is_err() && lab.cut(NodeId(6)).await.is_err());
    assert!(!reachable(victim).await, "nobody listens on its host");
    lab.start(victim).await.unwrap();
    assert!(answers().await && lab.start(victim).await.is_err());
    lab.down().await;
}

fn received(counters: &Counters) -> u64 {
    counters.nodes.iter().map(|node| node.received_bytes).sum()
}

/// The payload, with headers and some control on top.
fn bounded(what: &str, counted: u64, payload: u64) {
    let most = payload + payload / 8 + 1_000_000;
    assert!((payload..most).contains(&counted), "{what}: expected {payload} to {most} bytes, got {counted}");
}
