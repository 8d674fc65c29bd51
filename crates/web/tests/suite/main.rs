//! Tests of the page as browsers and programs see it: a real cluster, a real listener, a real Chromium.
#![allow(clippy::unwrap_used, missing_docs, reason = "what fails here is the test's failure")]

mod assets;
mod facts;
mod npm;
mod views;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kintsu_client::{Client, PutOptions};
use kintsu_cluster::{Cluster, Options};
use kintsu_web::Page;
use kintsu_wire::message::{CreateVolume, Durability};

/// Nine nodes in three racks with a few objects and a volume, and their page.
pub struct Shown {
    /// The nodes.
    pub cluster: Cluster,
    /// Where they keep their blocks.
    pub dir: tempfile::TempDir,
    /// A client of them.
    pub client: Client,
    /// Their page.
    pub page: Page,
}

impl Shown {
    /// Starts everything.
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new(dir.path(), 9, 3);
        options.coordinator.heartbeat = Duration::from_millis(100);
        options.coordinator.grace = Duration::from_secs(3600);
        let cluster = Cluster::start(options).await.unwrap();
        let client = Client::connect(&cluster.endpoint(), Default::default()).await.unwrap();
        for (name, code, bytes) in [
            ("films/one.mkv", "rs:n=6,k=4", 6 << 20),
            ("films/two.mkv", "azure-lrc:n=8,k=4,r=2", 1 << 20),
            ("notes <b>.txt", "replication:n=3", 1000),
        ] {
            let mut options = PutOptions::new(code);
            options.block_bytes = Some(512 << 10);
            let content = Arc::new(Bytes::from(vec![7; bytes]));
            client.put(content, name, options, |_, _| {}).await.unwrap();
        }
        let (name, code) = ("disk".to_owned(), "rs:n=6,k=4".to_owned());
        let volume = CreateVolume {
            name,
            size: 8 << 20,
            code,
            block_bytes: 1 << 20,
            durability: Durability::Rack,
            scheme: None,
        };
        client.create_volume(&volume).await.unwrap();
        let page = Page::start(client.clone(), "127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        Self { cluster, dir, client, page }
    }

    /// Ends everything.
    pub async fn end(self) {
        self.page.shutdown().await;
        self.client.close().await;
        self.cluster.shutdown().await.unwrap();
    }
}
