//! `kintsu s3`: buckets and objects for programs that speak S3.

use std::process::ExitCode;
use std::sync::Arc;

use kintsu_s3::{Config, Keys, Limits, Listen, Numbers, S3GatewayError, Server};
use kintsu_web::Metrics;
use serde_json::json;

use super::interrupted;
use super::page::unless_taken;
use super::serve::{finish, ready};
use crate::cli::{DEFAULT_METRICS, Endpoint, S3};

/// Serves a cluster until Ctrl-C or SIGTERM.
pub async fn run(args: S3, endpoint: Endpoint, json: bool) -> anyhow::Result<ExitCode> {
    let keys = Arc::new(Keys::read(&args.keys)?);
    let tls = endpoint.tls.clone().filter(|_| !args.http);
    let encrypted = tls.is_some();
    let listen = Listen { addr: args.listen, trusted: args.trusted_network, tls };
    let client = endpoint.client().await?;
    let config = Config {
        code: args.code.clone(),
        classes: args.classes.iter().cloned().collect(),
        tags: args.etags.into(),
        day: args.lifecycle_day,
        limits: Limits {
            connections: args.connections.into(),
            requests: args.requests.into(),
            memory_bytes: usize::try_from(args.memory.0).unwrap_or(usize::MAX),
            patience: args.patience,
            idle: args.idle,
            ..Limits::default()
        },
    };
    // A cluster that cannot be reached is told now, and not by the first request; by a call that a client's certificate is good for.
    client.list("s3/", None, 1).await?;
    let served = match Server::start(client.clone(), keys.clone(), config, listen).await {
        Ok(server) => tokio::select! {
            served = serve(server, encrypted, &args, &keys, json) => served,
            () = client.repack_regularly() => Ok(ExitCode::SUCCESS),
        },
        Err(S3GatewayError::Listen { on, source }) if source.kind() == std::io::ErrorKind::AddrInUse => {
            Err(anyhow::anyhow!(
                "cannot listen on {on}: {source}; choose another one with --listen (port 0: any free one)"
            ))
        }
        Err(other) => Err(other.into()),
    };
    client.close().await;
    served
}

async fn serve(server: Server, tls: bool, args: &S3, keys: &Keys, json: bool) -> anyhow::Result<ExitCode> {
    let metrics = metrics(args, server.numbers()).await?;
    let metrics_at = metrics.as_ref().map(Metrics::url);
    let url = format!("{}://{}", if tls { "https" } else { "http" }, server.addr());
    let about = json!({
        "url": url, "listen": server.addr(), "keys": keys.count(), "code": args.code, "metrics": metrics_at,
    });
    let told = metrics_at.map(|at| format!("metrics: {at}\n")).unwrap_or_default();
    let text = format!(
        "S3 at {url}, {} keys, new objects in {}\n  aws --endpoint-url {url} s3 ls\n{told}Ctrl-C ends it; what was written stays.",
        keys.count(),
        args.code
    );
    ready(json, about, &text)?;
    interrupted().await?;
    let late = finish(server.connections(), args.wait, server.shutdown(args.wait)).await?;
    Ok(late.unwrap_or(ExitCode::SUCCESS))
}

/// The metrics of a gateway, unless they are not wanted, or their usual address is taken.
async fn metrics(args: &S3, numbers: Numbers) -> anyhow::Result<Option<Metrics>> {
    if args.no_metrics {
        return Ok(None);
    }
    let addr = args.metrics.unwrap_or(DEFAULT_METRICS);
    let started = Metrics::start("metrics", addr, move || numbers.text()).await;
    unless_taken(started, "metrics", args.metrics.is_some())
}
