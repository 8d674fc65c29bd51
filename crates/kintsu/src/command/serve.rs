//! `kintsu up`, `coordinator`, `agent`: the commands that run until they are ended.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use kintsu_agent::{Agent, AgentConfig, AgentError, AgentHandle};
use kintsu_client::Client;
use kintsu_cluster::{Cluster, Options, coordinator_dir, node_dir};
use kintsu_coordinator::{Config, Coordinator, CoordinatorHandle, Restore};
use kintsu_dag::{NodeId, RackId};
use kintsu_web::Page;
use kintsu_wire::ClusterId;
use serde_json::json;

use super::{backup, interrupted, page};
use crate::cli::{AgentArgs, CoordinatorArgs, Endpoint, Rack, Up};
use crate::launcher::Shape;
use crate::output;

/// `kintsu up`.
pub async fn up(args: Up, endpoint: Endpoint, json: bool) -> anyhow::Result<ExitCode> {
    let found = Shape::read(&args.dir)?;
    let shape = Shape::asked(&args, found)?;
    // A start that is refused makes no folder.
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    if Some(shape) != found {
        shape.write(&args.dir)?;
    }
    let config = Config {
        token: endpoint.token.clone(),
        tls: endpoint.tls.clone(),
        grace: args.grace,
        ..Config::new(coordinator_dir(&args.dir), args.listen)
    };
    let mut config = args.metadata.configure(config);
    if config.rebuild {
        // The nodes start after their coordinator, but their folders say to which cluster they belong.
        config.adopt = cluster_of(&args.dir, shape.nodes)?;
    }
    let options = Options {
        replace: args.replace.clone(),
        coordinator: config,
        ..Options::new(&args.dir, shape.nodes, shape.racks)
    };
    let cluster = tokio::select! {
        started = Cluster::start(options) => started?,
        code = super::interrupted() => return code,
    };
    let endpoint = Endpoint { coordinator: cluster.endpoint(), ..endpoint };
    let page = page::own(args.page, &endpoint).await?;
    // With TLS, a coordinator's certificate is not allowed the calls of a client.
    let client = if endpoint.tls.is_none() { Some(endpoint.client().await?) } else { None };
    let endpoint = endpoint.coordinator;
    if json {
        output::json(&json!({
            "listen": endpoint, "nodes": shape.nodes, "racks": shape.racks, "dir": args.dir,
            "page": page.as_ref().map(Page::url),
        }))?;
    } else {
        output::line(&format!(
            "{} nodes in {} racks, kept in {}; coordinator on {endpoint}",
            shape.nodes,
            shape.racks,
            args.dir.display()
        ))?;
        if endpoint != crate::cli::DEFAULT_ENDPOINT {
            output::line(&format!("export KINTSU_COORDINATOR={endpoint}"))?;
        }
        if let Some(page) = &page {
            output::line(&format!("page: {}", page.url()))?;
        }
        output::line("Ctrl-C ends it; the data stays.")?;
    }
    tokio::select! {
        () = cluster.ending() => {}
        () = repack(client) => {}
        code = super::interrupted() => { code?; }
    }
    drop(page);
    cluster.shutdown_by(end).await?;
    Ok(ExitCode::SUCCESS)
}

/// Gathers small objects into packs from time to time, for ever.
async fn repack(client: Option<Client>) {
    match client {
        Some(client) => client.repack_regularly().await,
        None => std::future::pending().await,
    }
}

/// The cluster of the nodes in a folder, if they belong to one.
fn cluster_of(dir: &Path, nodes: u32) -> anyhow::Result<Option<ClusterId>> {
    for id in 0..nodes {
        if let Some(cluster) = kintsu_agent::cluster_of(&node_dir(dir, id))? {
            return Ok(Some(cluster));
        }
    }
    anyhow::bail!("--rebuild: expected nodes in {} that belong to a cluster, got none", dir.display())
}

/// `kintsu coordinator`.
pub async fn coordinator(args: CoordinatorArgs, endpoint: Endpoint, json: bool) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    let config = Config {
        token: endpoint.token.clone(),
        tls: endpoint.tls.clone(),
        trusted: args.listener.trusted.trusted_network,
        grace: args.grace,
        restore: args.restore.map(|from| match from.to_str() {
            Some("auto") => Restore::Auto { wait: args.restore_wait },
            _ => Restore::File(from),
        }),
        ..Config::new(args.dir, args.listener.listen)
    };
    let config = args.metadata.configure(config);
    let coordinator = tokio::select! {
        started = Coordinator::start(config) => started?,
        code = super::interrupted() => return code,
    };
    let endpoint = Endpoint { coordinator: coordinator.addr().to_string(), ..endpoint };
    let page = page::own(args.page, &endpoint).await?;
    let mut value = json!({"listen": coordinator.addr(), "page": page.as_ref().map(Page::url)});
    if let Some(restored) = coordinator.restored() {
        value["restored"] = backup::restored_json(restored);
        if !json {
            output::line(&backup::restored_text(restored))?;
        }
    }
    let mut text = format!("coordinator on {}", coordinator.addr());
    if let Some(page) = &page {
        text += &format!("\npage: {}", page.url());
    }
    ready(json, value, &text)?;
    tokio::select! {
        () = coordinator.ending() => {}
        code = super::interrupted() => { code?; }
    }
    drop(page);
    end(coordinator).await?;
    Ok(ExitCode::SUCCESS)
}

/// Ends a coordinator, after a last copy of its metadata.
async fn end(coordinator: CoordinatorHandle) -> anyhow::Result<()> {
    coordinator.shutdown();
    let mut ended = std::pin::pin!(coordinator.wait());
    let copied = match tokio::time::timeout(Duration::from_millis(500), &mut ended).await {
        Ok(ended) => ended?,
        Err(_) => {
            eprintln!(
                "kintsu: ending; agents get a last copy of the metadata (20 s at most, Ctrl-C skips it)"
            );
            tokio::select! {
                ended = ended => ended?,
                code = super::interrupted() => return code.map(|_| ()),
            }
        }
    };
    match copied {
        Some(copied) if copied.nodes.is_empty() => {
            let reasons =
                if copied.failed.is_empty() { "no agent is alive".into() } else { copied.failed.join("; ") };
            eprintln!("kintsu: no agent took a last copy of the metadata: {reasons}");
        }
        Some(copied) => {
            let nodes: Vec<String> = copied.nodes.iter().map(ToString::to_string).collect();
            tracing::info!("copy {} of the metadata is kept by {}", copied.number, nodes.join(", "));
        }
        None => {}
    }
    Ok(())
}

/// `kintsu agent`.
pub async fn agent(args: AgentArgs, endpoint: Endpoint, json: bool) -> anyhow::Result<ExitCode> {
    let (rack, rack_name) = match &args.rack {
        Rack::Number(rack) => (RackId(*rack), None),
        Rack::Name(name) => (RackId(0), Some(name.clone())),
    };
    let config = AgentConfig {
        node: args.id.map(NodeId),
        name: args.name,
        rack,
        rack_name: rack_name.clone(),
        replace: args.replace,
        moved: args.moved,
        listen_control: args.listeners.listen,
        listen_data: args.listeners.listen_data,
        token: endpoint.token,
        tls: endpoint.tls,
        trusted: args.listeners.trusted.trusted_network,
        ..AgentConfig::new(args.dir, endpoint.coordinator)
    };
    let rack = rack_name.unwrap_or_else(|| rack.0.to_string());
    serve_agent(Agent::start(config), json, |id| format!("node {} in rack {rack}", id.0)).await
}

/// Starts an agent, says what it is (`named`) and where it listens, and serves until it ends or Ctrl-C.
pub async fn serve_agent(
    start: impl Future<Output = Result<AgentHandle, AgentError>>,
    json: bool,
    named: impl FnOnce(NodeId) -> String,
) -> anyhow::Result<ExitCode> {
    let agent = tokio::select! {
        started = start => started?,
        code = super::interrupted() => return code,
    };
    let (id, control, data) = (agent.id(), agent.control(), agent.data());
    ready(
        json,
        json!({"node": id.0, "control": control, "data": data}),
        &format!("{}; commands on {control}, slices on {data}", named(id)),
    )?;
    tokio::select! {
        () = agent.wait() => return Ok(ExitCode::SUCCESS),
        code = super::interrupted() => { code?; }
    }
    agent.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// Ends a server: the requests of its connections are finished within `wait`, unless Ctrl-C comes again. Returns the exit code
/// if some were not.
pub async fn finish(
    connections: usize,
    wait: Duration,
    shutdown: impl Future<Output = bool>,
) -> anyhow::Result<Option<ExitCode>> {
    let seconds = wait.as_secs();
    if connections > 0 {
        eprintln!(
            "kintsu: ending; requests of {connections} connections are finished ({seconds} s at most, Ctrl-C skips it)"
        );
    }
    let answered = tokio::select! {
        answered = shutdown => answered,
        code = interrupted() => return code.map(Some),
    };
    if answered {
        return Ok(None);
    }
    eprintln!(
        "kintsu: some requests were not answered within {seconds} s; they may have been carried out or not"
    );
    Ok(Some(ExitCode::FAILURE))
}

pub fn ready(as_json: bool, value: serde_json::Value, text: &str) -> anyhow::Result<()> {
    if as_json { output::json(&value) } else { output::line(text) }
}
