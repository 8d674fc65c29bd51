//! `kintsu put`, `get`, `stat`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use kintsu_client::{Client, ClientError, Damage, GetOptions, GetReport, LocatedBlock, NodeSeen, PutOptions};
use kintsu_dag::BlockIndex;
use kintsu_wire::message::{Attributes, Encoding, ObjectInfo};
use serde_json::json;

use super::Context;
use super::destination::Destination;
use super::input::{Input, sink};
use crate::cli::{self, EncodeWhen};
use crate::units::{human, moment};
use crate::{output, progress};

/// How `kintsu put` is to store, as far as its user says.
pub struct PutChoices {
    code: Option<String>,
    encoding: Encoding,
    block_bytes: Option<u64>,
    cell_bytes: Option<u32>,
    replace: bool,
    attributes: Attributes,
}

impl PutChoices {
    fn of(args: &cli::Put) -> anyhow::Result<Self> {
        let mut user = BTreeMap::new();
        for (key, value) in &args.meta {
            let again = user.insert(key.clone(), value.clone()).is_some();
            anyhow::ensure!(!again, "--meta {key}: expected one value, got several");
        }
        let attributes =
            Attributes { content_type: args.content_type.clone(), user, ..Attributes::default() };
        attributes.check().map_err(|(expected, got)| anyhow::anyhow!("expected {expected}, got {got}"))?;
        Ok(Self {
            code: args.code.clone(),
            encoding: match args.encode {
                EncodeWhen::Online => Encoding::Online,
                EncodeWhen::Offline => Encoding::Offline,
            },
            block_bytes: args.block.map(|block| block.0),
            cell_bytes: args.cell.map(|cell| cell.as_u32("--cell")).transpose()?,
            replace: args.replace,
            attributes,
        })
    }

    /// The options for one object. Without a code, it is that of the object which is replaced.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn options(&self, client: &Client, name: &str) -> Result<PutOptions, ClientError> {
        let code = match &self.code {
            Some(code) => code.clone(),
            None if self.replace => match client.info(name).await {
                Ok(old) => old.code,
                Err(ClientError::NotFound(_)) => cli::DEFAULT_CODE.into(),
                Err(error) => return Err(error),
            },
            None => cli::DEFAULT_CODE.into(),
        };
        Ok(PutOptions {
            code,
            encoding: self.encoding,
            block_bytes: self.block_bytes,
            cell_bytes: self.cell_bytes,
            replace: self.replace,
            attributes: self.attributes.clone(),
            kept_bytes: None,
            alone: false,
        })
    }
}

/// `kintsu put`.
pub async fn put(args: cli::Put, context: &Context) -> anyhow::Result<ExitCode> {
    let choices = PutChoices::of(&args)?;
    let (client, name) = (&context.client, args.name.as_str());
    let started = std::time::Instant::now();
    let object = match Input::open(&args.file).await? {
        Input::Folder(folder) => return super::tree::put(folder, name, choices, context).await,
        Input::File(source) => {
            let options = choices.options(client, name).await?;
            let bar = progress::bytes(&format!("put {name}"));
            let show = |done, total| {
                bar.set_length(total);
                bar.set_position(done);
            };
            client.put(Arc::new(source), name, options, show).await?
        }
        Input::Stream(stream) => {
            let options = choices.options(client, name).await?;
            let bar = progress::stream(&format!("put {name}"));
            client.put_reader(stream, name, options, |done| bar.set_position(done)).await?
        }
    };
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

/// What else is known of an object, one line each.
fn details(object: &ObjectInfo) -> String {
    let sum = object.checksum.map_or_else(|| "not known".into(), |sum| sum.to_string());
    let mut lines = vec![
        format!("changed   {}", moment(object.created)),
        format!("size      {} bytes", object.size),
        format!("checksum  {sum}"),
    ];
    lines.extend(object.attributes.content_type.iter().map(|kind| format!("type      {kind}")));
    lines.extend(object.attributes.user.iter().map(|(key, value)| format!("meta      {key}={value}")));
    lines.join("\n")
}

/// `kintsu get`.
pub async fn get(args: cli::Get, context: &Context) -> anyhow::Result<ExitCode> {
    let options = GetOptions { method: args.method };
    let slice = args.slice.0;
    let tree = || super::tree::get(&args.name, args.out.clone(), slice, options, context);
    let like_folders = [args.name.as_bytes(), args.out.as_os_str().as_encoded_bytes()];
    let like_a_folder = args.name.is_empty() || like_folders.iter().any(|path| path.ends_with(b"/"));
    if args.range.is_none() && like_a_folder && is_tree(&args.name, context).await? {
        return tree().await;
    }
    let range = match args.range {
        None => None,
        Some(range) => {
            let size = context.client.info(&args.name).await?.size;
            let (name, first) = (&args.name, range.first);
            anyhow::ensure!(
                first <= size,
                "range of {name}: expected within its {size} bytes, got one from {first} on"
            );
            Some(first..range.last.map_or(size, |last| last + 1))
        }
    };
    let bar = progress::bytes(&format!("get {}", args.name));
    let show = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let client = context.client.in_slices(slice);
    let read = async {
        let to = (args.out.as_path(), Destination::of(&args.out, &args.name)?);
        get_to(&client, &args.name, range, options, to, show).await
    };
    let read = read.await;
    let missing = args.range.is_none() && read.as_ref().is_err_and(is_missing);
    if missing && is_tree(&args.name, context).await? {
        return tree().await;
    }
    let report = read?;
    progress::clear();
    let value = json!({
        "name": args.name, "bytes": report.bytes, "degraded_stripes": report.degraded_stripes,
        "replanned": report.replanned, "slow_nodes": report.slow.iter().map(|node| node.0).collect::<Vec<_>>(),
    });
    let to_stdout = Destination::of(&args.out, &args.name).is_ok_and(|to| matches!(to, Destination::Stdout));
    match (context.json, to_stdout) {
        (true, false) => output::json(&value)?,
        (true, true) => eprintln!("{value}"),
        (false, true) => {}
        (false, false) => output::line(&summary(&args.name, &report))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What a read did, in one line.
fn summary(name: &str, report: &GetReport) -> String {
    let mut line = format!("{name}: {}", human(report.bytes));
    if report.degraded_stripes > 0 {
        line += &format!("; {} stripe(s) read degraded", report.degraded_stripes);
    }
    if !report.slow.is_empty() {
        let nodes: Vec<_> = report.slow.iter().map(ToString::to_string).collect();
        line += &format!("; without the slow node(s) {}", nodes.join(", "));
    }
    line
}

fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ClientError::NotFound(_)))
}

/// Whether the name means all objects below it: no object has it, and others are below it.
///
/// # Errors
/// It ends like a folder, and nothing is below it; whatever keeps the coordinator from answering.
async fn is_tree(name: &str, context: &Context) -> anyhow::Result<bool> {
    if name.is_empty() {
        return Ok(true);
    }
    match context.client.info(name).await {
        Err(ClientError::NotFound(_)) if super::tree::exists(name, context).await? => Ok(true),
        Err(ClientError::NotFound(_)) if !name.ends_with('/') => Ok(false),
        Ok(_) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads an object into the destination that `path` means.
///
/// # Errors
/// It cannot be read or written; a regular file is then as it was.
pub async fn get_to(
    client: &Client,
    name: &str,
    range: Option<Range<u64>>,
    options: GetOptions,
    (path, destination): (&Path, Destination),
    show: impl Fn(u64, u64),
) -> anyhow::Result<GetReport> {
    if matches!(destination, Destination::Through(_)) {
        // Opening it may wait for a reader, and may lose its content, so check first that the object exists.
        client.info(name).await?;
    }
    let opened = tokio::task::spawn_blocking(|| destination.open()).await??;
    let mut out = sink(opened.file.try_clone()?);
    let report = client.get_with(name, range, options, &mut *out, show).await?;
    drop(out);
    tokio::task::spawn_blocking(|| opened.publish())
        .await?
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(report)
}

/// `kintsu stat`.
pub async fn stat(args: cli::Name, context: &Context) -> anyhow::Result<ExitCode> {
    let object = context.client.info(&args.name).await?;
    // Whoever only reads and writes is told less of the nodes, and with each page.
    let mut nodes: Vec<NodeSeen> = match context.client.is_operator() {
        true => context.client.nodes().await?.nodes.iter().map(NodeSeen::from).collect(),
        false => Vec::new(),
    };
    let (mut blocks, mut damage) = (Vec::new(), Damage::default());
    // Of a stripe that it shares: the object's bytes there, and how many bytes the stripe has.
    let mut shared = None;
    let mut at = 0;
    while at < object.stripes {
        let view = context.client.stripes(&args.name, at, 256).await?;
        anyhow::ensure!(!view.stripes.is_empty(), "{} changed while it was read; try again", args.name);
        if !context.client.is_operator() {
            nodes = view.nodes.iter().map(NodeSeen::from).collect();
        }
        for stripe in &view.stripes {
            damage.add(stripe, view.definition.as_ref(), &nodes);
            blocks.extend(LocatedBlock::all(stripe, &nodes));
            let place = (stripe.before..stripe.before + object.size, stripe.layout.data_bytes);
            shared = Some(place).filter(|(bytes, all)| object.stripes == 1 && bytes.end - bytes.start < *all);
        }
        at += view.stripes.len() as u64;
    }
    if context.json {
        let mut value = serde_json::to_value(&object)?;
        value["blocks"] = serde_json::to_value(&blocks)?;
        value["damage"] = serde_json::to_value(&damage)?;
        if let Some((bytes, all)) = shared {
            value["shared"] = serde_json::json!({ "from": bytes.start, "to": bytes.end, "of": all });
        }
        output::json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&describe(&object))?;
    output::line(&details(&object))?;
    if let Some((bytes, all)) = shared {
        let (from, to) = (bytes.start, bytes.end);
        output::line(&format!("shares its stripe with other objects: it has bytes {from} to {to} of {all}"))?;
    }
    let mut table = output::table(["stripe", "block", "node", "rack", "length", "checksum", "path"]);
    for block in &blocks {
        let text = |value: Option<String>| value.unwrap_or_else(|| "null".into());
        table.add_row([
            block.stripe.0.to_string(),
            block.index.0.to_string(),
            block.node.0.to_string() + &block.fault.map_or(String::new(), |fault| format!(" {fault}")),
            text(block.rack.map(|rack| rack.0.to_string())),
            block.length.to_string(),
            text(block.checksum.clone()),
            text(block.path.as_ref().map(|path| path.display().to_string())),
        ]);
    }
    output::line(&table.to_string())?;
    damage.lines().iter().try_for_each(|line| output::line(line))?;
    Ok(ExitCode::SUCCESS)
}
