//! `kintsu hdfs coordinator` and `agent`.

use std::process::ExitCode;

use anyhow::Context as _;
use kintsu_agent::{Agent, AgentConfig};
use kintsu_hdfs::beside::{self, Beside, Block, Event, tell_crowds};
use kintsu_hdfs::{Agents, Coordinator, DatanodeStore, Directories, NameNode, cluster_of};
use kintsu_lab::Rate;
use kintsu_store::{FileStore, StoreError};
use serde_json::json;
use tokio::sync::mpsc;

use super::serve::{ready, serve_agent};
use crate::cli::{Endpoint, HdfsAgent, HdfsCoordinator};
use crate::output;

/// Events that may wait to be printed.
const WAITING: usize = 256;

/// `kintsu hdfs coordinator`: prints events until Ctrl-C.
pub async fn coordinator(
    args: HdfsCoordinator,
    namenode: NameNode,
    endpoint: Endpoint,
    json: bool,
) -> anyhow::Result<ExitCode> {
    refuse_tls(&endpoint)?;
    let config = Beside {
        listen: args.listener.listen,
        token: endpoint.token,
        trusted: args.listener.trusted.trusted_network,
        method: args.method,
        root: args.path,
        scan: args.scan,
        at_once: args.at_once.into(),
        report_after: args.report_after,
        repair_rate: args.repair_max_rate.map(Rate::bytes),
    };
    let (events, mut happens) = mpsc::channel(WAITING);
    let coordinator = tokio::select! {
        started = beside::start(namenode, config, events) => started?,
        code = super::interrupted() => return code,
    };
    let addr = coordinator.addr();
    ready(json, json!({"listen": addr}), &format!("coordinator beside HDFS on {addr}"))?;
    // On a thread of its own: standard output may take nothing for as long as it likes.
    let print = tokio::task::spawn_blocking(move || {
        while let Some(event) = happens.blocking_recv() {
            if json { output::json(&event)? } else { output::line(&told(&event))? }
        }
        anyhow::Ok(())
    });
    let code = tokio::select! {
        printed = print => printed.context("printing events")?.map(|()| ExitCode::SUCCESS),
        code = super::interrupted() => code,
    };
    coordinator.shutdown().await;
    code
}

fn told(event: &Event) -> String {
    let name = |block: &Block| format!("{}, group {}, block {}", block.path, block.group, block.index);
    match event {
        Event::Gone { datanode, why } => format!("DataNode {datanode} is gone: {why}"),
        Event::Back { datanode } => format!("DataNode {datanode} is back"),
        Event::Staged { block, datanode, ms, helpers } => {
            format!("{}: rebuilt from {helpers} blocks in {ms} ms, staged beside {datanode}", name(block))
        }
        Event::Reported { block, datanode } => {
            format!("{}: the NameNode was told that {datanode} has lost it", name(block))
        }
        Event::Counted { block, datanode, proved } => {
            let proved =
                if *proved { "" } else { "; not proved, because no more blocks than needed were there" };
            format!("{}: counted on {datanode}{proved}", name(block))
        }
        Event::Moved { block, from, to } => {
            format!(
                "{}: moved from {from}, to which HDFS brought another block of the group, to {to}",
                name(block)
            )
        }
        Event::Wrong { block, datanode } => {
            format!("{}: unreadable or wrong on {datanode}; kintsu hdfs verify says more", name(block))
        }
        Event::Dropped { block, why } => format!("{}: the rebuilt block was dropped: {why}", name(block)),
        Event::Failed { what, why } => format!("failed: {what}: {why}"),
        Event::Note { text } => format!("note: {text}"),
        Event::Missed { events } => {
            format!("{events} events were not printed: standard output took nothing for too long")
        }
        other => format!("{other:?}"),
    }
}

/// Beside HDFS a cluster's id is that of its blocks, which no certificate names.
fn refuse_tls(endpoint: &Endpoint) -> anyhow::Result<()> {
    anyhow::ensure!(
        endpoint.tls.is_none(),
        "beside HDFS: expected no --tls (it is not supported there), got --tls"
    );
    Ok(())
}

/// The coordinator beside HDFS, if its agents were asked for.
pub fn coordinator_of(agents: bool, endpoint: &Endpoint) -> anyhow::Result<Option<Coordinator>> {
    if !agents {
        return Ok(None);
    }
    refuse_tls(endpoint)?;
    Ok(Some(Coordinator::at(&endpoint.coordinator, endpoint.token.as_deref())?))
}

/// The agents of the coordinator beside HDFS, if they were asked for.
pub async fn asked(agents: bool, endpoint: &Endpoint) -> anyhow::Result<Option<Agents>> {
    Ok(match coordinator_of(agents, endpoint)? {
        Some(coordinator) => Some(Agents::of(coordinator).await?),
        None => None,
    })
}

/// `kintsu hdfs agent`.
pub async fn agent(args: HdfsAgent, endpoint: Endpoint, json: bool) -> anyhow::Result<ExitCode> {
    refuse_tls(&endpoint)?;
    let coordinator = Coordinator::at(&endpoint.coordinator, endpoint.token.as_deref());
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    let config = AgentConfig {
        name: Some(args.datanode.to_string()),
        listen_control: args.listeners.listen,
        listen_data: args.listeners.listen_data,
        token: endpoint.token,
        trusted: args.listeners.trusted.trusted_network,
        ..AgentConfig::new(args.dir, endpoint.coordinator)
    };
    // The folder knows the cluster from its first registration on, before anybody asks for blocks.
    let folder = config.dir.clone();
    let of_cluster = move |pool: &str| {
        kintsu_agent::cluster_of(&folder).is_ok_and(|cluster| cluster == Some(cluster_of(pool)))
    };
    let directories = Directories::of(args.data_dir, of_cluster);
    let (of_datanode, datanode) = (directories.clone(), args.datanode.to_string());
    let telling = async move {
        match coordinator {
            Ok(coordinator) => tell_crowds(of_datanode, datanode, coordinator).await,
            // The agent says what is wrong with the address.
            Err(_) => std::future::pending().await,
        }
    };
    let open = move |dir: &std::path::Path| -> Result<_, StoreError> {
        let store = DatanodeStore::new(FileStore::open(dir)?, directories)?;
        Ok(store as std::sync::Arc<dyn kintsu_store::BlockStore>)
    };
    let named = |_| format!("agent beside DataNode {}", args.datanode);
    tokio::select! {
        ended = serve_agent(Agent::start_on(config, open), json, named) => ended,
        never = telling => match never {},
    }
}
