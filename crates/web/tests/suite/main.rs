//! Tests of the page as browsers and programs see it: a real cluster, a real listener, a real Chromium.
#![allow(clippy::unwrap_used, missing_docs, reason = "what fails here is the test's failure")]

mod assets;
mod facts;
mod npm;
mod views;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kintsu_analysis::{BarChart, BarGroup, ChartBar};
use kintsu_client::{Client, PutOptions};
use kintsu_cluster::{Cluster, Options};
use kintsu_web::{ExperimentShown, Page, Results, TableShown};
use kintsu_wire::message::{CreateVolume, Durability};

/// Nine nodes in three racks with a few objects and a volume, and their page, with the results of an experiment.
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
        let results =
            Results { folder: dir.path().join("results"), read: Arc::new(|| Ok(vec![experiment()])) };
        let page = Page::start(client.clone(), "127.0.0.1:0".parse().unwrap(), Some(results)).await.unwrap();
        Self { cluster, dir, client, page }
    }

    /// Ends everything.
    pub async fn end(self) {
        self.page.shutdown().await;
        self.client.close().await;
        self.cluster.shutdown().await.unwrap();
    }
}

/// Two repairs by two methods, as `kintsu lab run ecpipe-8a` reports them.
fn experiment() -> ExperimentShown {
    let group = |label: &str, values: [f64; 2]| {
        let bar = |(series, value): (usize, &f64)| ChartBar {
            series,
            value: *value,
            range: (value - 0.01, value + 0.02),
        };
        BarGroup { label: label.to_owned(), bars: values.iter().enumerate().map(bar).collect() }
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let title = "Time to repair one block".to_owned();
    ExperimentShown {
        name: "ecpipe-8a".to_owned(),
        title: title.clone(),
        source: "Li et al., ECPipe, figure 8(a)".to_owned(),
        differs: "links of 500 Mb/s".to_owned(),
        chart: BarChart {
            title,
            axis: "seconds".to_owned(),
            groups_are: "code".to_owned(),
            series: words(&["conventional", "pipeline"]),
            groups: vec![group("RS(9,6)", [6.8, 1.14]), group("RS(14,10)", [11.24, 1.147])],
        },
        tables: vec![
            TableShown {
                headings: words(&["claim", "published", "measured"]),
                rows: vec![words(&["pipeline beside one block", "1.09", "1.01"])],
            },
            TableShown {
                headings: words(&["code", "method", "seconds"]),
                rows: vec![words(&["RS(14,10)", "pipeline", "1.147"])],
            },
        ],
    }
}
