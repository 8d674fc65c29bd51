//! `kintsu put`, `get`, `ls`, `stat`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use kintsu_client::{FileSource, GetOptions, PutOptions};
use kintsu_dag::BlockIndex;
use kintsu_wire::message::{Encoding, ObjectInfo};
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::Context;
use super::damage::{Damage, fault};
use super::destination::Destination;
use crate::cli::{self, EncodeWhen};
use crate::{output, progress, units::human};

/// `kintsu put`.
pub async fn put(args: cli::Put, context: &Context) -> anyhow::Result<ExitCode> {
    let source =
        FileSource::open(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let options = PutOptions {
        code: args.code,
        encoding: match args.encode {
            EncodeWhen::Online => Encoding::Online,
            EncodeWhen::Offline => Encoding::Offline,
        },
        block_bytes: args.block.map(|block| block.0),
        cell_bytes: args.cell.map(|cell| cell.as_u32("--cell")).transpose()?,
        replace: args.replace,
    };
    let bar = progress::bytes(&format!("put {}", args.name));
    let started = std::time::Instant::now();
    let object = context
        .client
        .put(Arc::new(source), &args.name, options, |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        })
        .await?;
    progress::clear();
    if context.json {
        output::json(&object)?;
        return Ok(ExitCode::SUCCESS);
    }
    let seconds = started.elapsed().as_secs_f64();
    output::line(&format!(
        "{}; {:.0} MB/s",
        describe(&object),
        object.size as f64 / 1e6 / seconds.max(1e-9)
    ))?;
    if object.stripes > 0 {
        warn_of_racks(context, &args.name).await?;
    }
    if !object.encoded {
        output::line(&format!("no parity yet: run `kintsu encode {}`", object.name))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Warns if the loss of one rack would lose data, because there are too few racks for the code.
async fn warn_of_racks(context: &Context, name: &str) -> anyhow::Result<()> {
    let (view, topology) = context.client.stripe_view(name, 0).await?;
    let mut racks: BTreeMap<_, Vec<BlockIndex>> = BTreeMap::new();
    for (index, home) in view.homes.iter().enumerate() {
        if let Some(rack) = home.and_then(|node| topology.rack(node)) {
            racks.entry(rack).or_default().push(BlockIndex(index as u8));
        }
    }
    if let Some((rack, blocks)) = racks.iter().find(|(_, blocks)| !view.code.recoverable(blocks)) {
        eprintln!(
            "kintsu: too few racks for {}: the loss of {rack} ({} blocks of a stripe) would lose data; \
             expected racks with {} or fewer",
            view.code.name(),
            blocks.len(),
            view.code.distance() - 1
        );
    }
    Ok(())
}

fn describe(object: &ObjectInfo) -> String {
    let encoded = if object.encoded { "encoded" } else { "NOT encoded" };
    format!(
        "{}: {}, {}, {} stripe(s), {encoded}",
        object.name,
        human(object.size),
        object.code,
        object.stripes
    )
}

/// `kintsu get`.
pub async fn get(args: cli::Get, context: &Context) -> anyhow::Result<ExitCode> {
    let range = match args.range {
        None => None,
        Some(range) => {
            let size = context.client.info(&args.name).await?.size;
            let last = range.last.unwrap_or(size.saturating_sub(1));
            Some(range.first..last + 1)
        }
    };
    let client = context.client.in_slices(args.slice.0);
    let options = GetOptions { method: args.method.map(Into::into) };
    let bar = progress::bytes(&format!("get {}", args.name));
    let show = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let destination = Destination::of(&args.out, &args.name)?;
    let to_stdout = matches!(destination, Destination::Stdout);
    if matches!(destination, Destination::Through(_)) {
        // Opening it may wait for a reader, and may lose its content, so check first that the object exists.
        context.client.info(&args.name).await?;
    }
    let opened = tokio::task::spawn_blocking(|| destination.open()).await??;
    let file = tokio::fs::File::from_std(opened.file.try_clone()?);
    let mut out = tokio::io::BufWriter::with_capacity(1 << 20, file);
    let report = client.get_with(&args.name, range, options, &mut out, show).await?;
    out.flush().await?;
    tokio::task::spawn_blocking(|| opened.publish())
        .await?
        .with_context(|| format!("cannot write {}", args.out.display()))?;
    progress::clear();
    let value = json!({
        "name": args.name, "bytes": report.bytes, "degraded_stripes": report.degraded_stripes,
    });
    match (context.json, to_stdout) {
        (true, false) => output::json(&value)?,
        (true, true) => eprintln!("{value}"),
        (false, true) => {}
        (false, false) => output::line(&format!(
            "{}: {}{}",
            args.name,
            human(report.bytes),
            if report.degraded_stripes > 0 {
                format!("; {} stripe(s) read degraded", report.degraded_stripes)
            } else {
                String::new()
            }
        ))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// `kintsu ls`.
pub async fn ls(args: cli::Ls, context: &Context) -> anyhow::Result<ExitCode> {
    let mut after = args.after;
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut first = true;
    if context.json {
        print!("[");
    }
    while left > 0 {
        let page = context.client.list(&args.prefix, after.as_deref(), left.min(1000) as u32).await?;
        for object in &page.objects {
            if context.json {
                print!("{}{}", if first { "" } else { ",\n " }, serde_json::to_string(object)?);
            } else {
                output::line(&format!("{:>10}  {:32} {}", human(object.size), object.code, object.name))?;
            }
            first = false;
        }
        left -= page.objects.len() as u64;
        after = page.objects.last().map(|o| o.name.clone());
        if !page.more || after.is_none() {
            break;
        }
    }
    if context.json {
        output::line("]")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `kintsu stat`.
pub async fn stat(args: cli::Name, context: &Context) -> anyhow::Result<ExitCode> {
    let object = context.client.info(&args.name).await?;
    let nodes = context.client.nodes().await?.nodes;
    let (mut rows, mut damage) = (Vec::new(), Damage::default());
    let mut at = 0;
    while at < object.stripes {
        let view = context.client.stripes(&args.name, at, 256).await?;
        anyhow::ensure!(!view.stripes.is_empty(), "{} changed while it was read; try again", args.name);
        for stripe in &view.stripes {
            damage.add(stripe, view.definition.as_ref(), &nodes);
            for block in stripe.blocks.iter().flatten() {
                let node = nodes.iter().find(|n| n.id == block.node);
                rows.push(json!({
                    "stripe": stripe.id.0,
                    "index": block.id.index.0,
                    "node": block.node.0,
                    "rack": node.map(|n| n.rack.0),
                    "path": node.map(|n| kintsu_store::block_path(Path::new(&n.dir), block.id)),
                    "length": block.len,
                    "checksum": block.digest.map(|d| kintsu_store::Digest(d).to_string()),
                    "lost": block.lost,
                    "fault": fault(block, &nodes),
                }));
            }
        }
        at += view.stripes.len() as u64;
    }
    if context.json {
        let mut value = serde_json::to_value(&object)?;
        value["blocks"] = rows.into();
        value["damage"] = damage.json();
        output::json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&describe(&object))?;
    let mut table = output::table(["stripe", "block", "node", "rack", "length", "checksum", "path"]);
    for row in &rows {
        let text = |key: &str| row[key].as_str().map_or_else(|| row[key].to_string(), str::to_owned);
        let fault = row["fault"].as_str().map_or(String::new(), |fault| format!(" {fault}"));
        table.add_row([
            text("stripe"),
            text("index"),
            text("node") + &fault,
            text("rack"),
            text("length"),
            text("checksum"),
            text("path"),
        ]);
    }
    output::line(&table.to_string())?;
    damage.lines().iter().try_for_each(|line| output::line(line))?;
    Ok(ExitCode::SUCCESS)
}
