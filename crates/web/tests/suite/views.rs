//! Every view in Chromium, driven by playwright (`page/test/views.mjs`).

use std::io::Write as _;
use std::num::NonZeroU64;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_plan::Method;
use kintsu_wire::message::{ChangeSetting, Repair, RepairTarget};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::{Shown, npm};

/// How fast repairs may be, so that one can be seen, also by a browser on a loaded machine.
const SLOW: NonZeroU64 = NonZeroU64::new(100_000).unwrap();
/// The longest time for all views.
const PATIENCE: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread")]
async fn every_view_works_in_chromium() {
    drive(None).await;
}

/// Made by `scripts/page.sh shots`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes the screenshots of the docs"]
async fn screenshots() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/page");
    std::fs::create_dir_all(&folder).unwrap();
    drive(Some(&folder)).await;
}

fn chromium() -> Option<&'static str> {
    let known = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    known.into_iter().find(|path| Path::new(path).exists())
}

async fn drive(shots: Option<&Path>) {
    let Some(sources) = npm::sources() else { return };
    let Some(chromium) = chromium() else { return npm::skipped("no Chromium to look at the page with") };
    let shown = Shown::start().await;
    for limit in [ChangeSetting::RepairMinRate(SLOW), ChangeSetting::RepairMaxRate(Some(SLOW))] {
        shown.client.change_setting(limit).await.unwrap();
    }
    let mut browser = Command::new("node");
    browser.arg("test/views.mjs").args([&shown.page.url(), chromium]).current_dir(sources);
    browser.args(shots).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut browser = browser.spawn().unwrap();
    let mut told = browser.stdin.take().unwrap();
    let mut says = BufReader::new(browser.stdout.take().unwrap()).lines();
    let played = async {
        let (mut lost, mut repair) = (None, None);
        while let Some(line) = says.next_line().await.unwrap() {
            match line.as_str() {
                // The views of a whole cluster have been seen.
                "lose a node" => {
                    let homes = shown.client.stripes("films/one.mkv", 0, 1).await.unwrap();
                    let home = homes.stripes[0].blocks[0].as_ref().unwrap().node;
                    shown.cluster.kill_node(home.0).await;
                    dead(&shown, home).await;
                    lost = Some(home);
                    told.write_all(format!("{}\n", home.0).as_bytes()).await.unwrap();
                }
                "repair it" => {
                    let target = RepairTarget::Node(lost.unwrap());
                    let all = Repair { method: Method::Pipeline, ..Repair::new(target) };
                    repair = Some(shown.client.repair_by(all).await.unwrap());
                }
                said => println!("{said}"),
            }
        }
        drop(repair);
        browser.wait().await.unwrap()
    };
    let ended = tokio::time::timeout(PATIENCE, played).await.expect("the browser ends");
    assert!(ended.success(), "the page in Chromium: see above");
    let _ = writeln!(
        std::io::stderr(),
        "COMPARED: every view of the page, in Chromium, with what the cluster does"
    );
    shown.client.change_setting(ChangeSetting::RepairMaxRate(None)).await.unwrap();
    shown.end().await;
}

/// Waits until the coordinator counts a node as dead.
async fn dead(shown: &Shown, node: NodeId) {
    for _ in 0..600 {
        let nodes = shown.client.nodes().await.unwrap().nodes;
        if nodes.iter().any(|known| known.id == node && known.state != kintsu_wire::message::NodeState::Alive)
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("node {} never counted as dead", node.0);
}
