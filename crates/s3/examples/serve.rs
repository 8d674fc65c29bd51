//! A cluster of six nodes and two gateways, for other programs to test.
#![allow(clippy::unwrap_used)]
use kintsu_client::Client;
use kintsu_cluster::{Cluster, Options};
use kintsu_s3::{Config, Keys, Listen, Server};
use std::sync::Arc;
use std::time::Duration;

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let cluster = Cluster::start(Options::new(&args[1], 6, 6)).await.unwrap();
    let keys = Arc::new(Keys::read(std::path::Path::new(&args[2])).unwrap());
    let mut servers = Vec::new();
    for (port, day) in [(args[3].parse::<u16>().unwrap(), 86_400), (args[4].parse().unwrap(), 10)] {
        let client = Client::connect(&cluster.endpoint(), Default::default()).await.unwrap();
        let config = Config { day: Duration::from_secs(day), ..Config::new("rs:n=4,k=2") };
        let listen = Listen { addr: ([127, 0, 0, 1], port).into(), trusted: None, tls: None };
        servers.push(Server::start(client, keys.clone(), config, listen).await.unwrap());
    }
    println!("ready");
    tokio::signal::ctrl_c().await.unwrap();
}
