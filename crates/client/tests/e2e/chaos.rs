//! Several clients put, replace, remove and read while nodes die and come back. Every put that succeeded must be
//! there, and every read must be right.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kintsu_client::{Client, ClientError, PutOptions};
use kintsu_wire::message::Encoding;
use tokio::sync::RwLock;
use tokio::time::Instant;

use crate::bytes::{assert_same, content};
use crate::cluster::{Cluster, LRC, RS, options};

const LASTS: Duration = Duration::from_secs(10);
const CLIENTS: u64 = 3;

/// A reproducible random generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// One client with its own names, and what it must find under them.
async fn one_client(id: u64, cluster: Arc<RwLock<Cluster>>, stop: Arc<AtomicBool>) -> u64 {
    let (mut dice, mut model) = (Dice(id * 7919 + 1), BTreeMap::<String, Vec<u8>>::new());
    let client = cluster.read().await.client().await;
    let mut steps = 0;
    while !stop.load(Ordering::Relaxed) {
        let name = format!("c{id}-{}", dice.below(4));
        match dice.below(6) {
            0 | 1 => {
                let data = content(dice.below(1 << 40), dice.below(700_000) as usize);
                let code = if dice.below(2) == 0 { RS } else { LRC };
                let options = PutOptions { replace: true, ..options(code, Encoding::Online) };
                let source = Arc::new(bytes::Bytes::from(data.clone()));
                match client.put(source, &name, options, |_, _| {}).await {
                    Ok(_) => drop(model.insert(name, data)),
                    // Too few nodes are alive now; the former object is still there.
                    Err(ClientError::Placement(_)) => {}
                    // The coordinator was away when the put began.
                    Err(ClientError::Unreachable(_)) => {}
                    Err(other) => panic!("put {name}: {other:?}"),
                }
            }
            2 if model.contains_key(&name) => match client.remove(&name).await {
                Ok(_) => drop(model.remove(&name)),
                Err(ClientError::Unreachable(_)) if !exists(&client, &name).await => {
                    model.remove(&name);
                }
                Err(ClientError::Unreachable(_)) => {}
                Err(other) => panic!("remove {name}: {other:?}"),
            },
            _ => match model.get(&name) {
                None => assert!(!exists(&client, &name).await),
                Some(data) => {
                    let from = dice.below(data.len() as u64 + 1);
                    let upto = from + dice.below(data.len() as u64 - from + 1);
                    let mut out = Vec::new();
                    match client.get(&name, Some(from..upto), &mut out, |_, _| {}).await {
                        Ok(_) => assert_same(&out, &data[from as usize..upto as usize]),
                        Err(ClientError::Unreachable(_)) => {}
                        Err(other) => panic!("get {name}: {other:?}"),
                    }
                }
            },
        }
        steps += 1;
    }
    for (name, data) in &model {
        let mut out = Vec::new();
        client.get(name, None, &mut out, |_, _| {}).await.unwrap();
        assert_same(&out, data);
    }
    steps
}

/// Whether there is such an object, however long the coordinator stays away.
async fn exists(client: &Client, name: &str) -> bool {
    loop {
        match client.info(name).await {
            Ok(_) => return true,
            Err(ClientError::NotFound(_)) => return false,
            Err(ClientError::Unreachable(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(other) => panic!("info {name}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_come_and_go_under_load() {
    chaos(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_does_the_coordinator() {
    chaos(true).await;
}

async fn chaos(of_the_coordinator: bool) {
    let nodes = 12;
    let cluster = Arc::new(RwLock::new(Cluster::start(nodes, 6).await));
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> =
        (0..CLIENTS).map(|id| tokio::spawn(one_client(id, cluster.clone(), stop.clone()))).collect();
    let (mut dice, end) = (Dice(4711), Instant::now() + LASTS);
    while Instant::now() < end && clients.iter().all(|c| !c.is_finished()) {
        if of_the_coordinator {
            cluster.write().await.restart_coordinator().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let victim = dice.below(u64::from(nodes)) as u32;
        cluster.write().await.kill(victim).await;
        tokio::time::sleep(Duration::from_millis(dice.below(4000))).await;
        cluster.write().await.start_node(victim).await;
        tokio::time::sleep(Duration::from_millis(dice.below(300))).await;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.await.unwrap() > 0);
    }
}
