//! A client that goes through its steps and compares what it is told with the model.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kintsu_client::{Client, ClientError, Jobs, PutOptions, RepackOptions};
use kintsu_dag::NodeId;
use kintsu_wire::message::{BadBlock, Encoding, FaultKind, JobEvent, JobReport, NodeAction, RepairTarget};
use tokio::time::timeout;

use crate::history::{Op, many};
use crate::model::{Reading, State, Version};
use crate::stage::Stage;
use crate::volumes::{Hand, Shape, User};

/// The code of all objects.
pub const CODE: &str = "rs:n=5,k=3";
/// Bytes of a cell.
const CELL: u32 = 4 << 10;
/// How long one step may take; every wait of the cluster has a shorter limit.
const PATIENCE: Duration = Duration::from_secs(150);

/// One client.
pub struct Writer {
    pub stage: Arc<Stage>,
    pub number: u64,
    pub seed: u64,
    /// What volumes are like.
    pub shape: Option<Shape>,
}

/// The name of an object of a writer.
fn name(writer: u64, name: u64) -> String {
    format!("w{writer}-{name}")
}

impl Writer {
    /// Goes through all steps.
    pub async fn run(self, ops: Vec<Op>) {
        let client = match self.stage.client().await {
            Ok(client) => client,
            Err(error) => return self.stage.fail(format!("no client: {error}")),
        };
        let mut hand = Hand::default();
        for (step, op) in ops.into_iter().enumerate() {
            if timeout(PATIENCE, self.step(&client, &mut hand, step as u64, op)).await.is_err() {
                self.stage.fail(format!("no end: {op:?} of client {} within {PATIENCE:?}", self.number));
            }
        }
    }

    fn say(&self, what: impl std::fmt::Display) {
        self.stage.trace.say(format!("client {}: {what}", self.number));
    }

    async fn step(&self, client: &Client, hand: &mut Hand, step: u64, op: Op) {
        match op {
            Op::Put { name: number, len, offline } => {
                let seed = self.seed ^ (self.number << 56) ^ (step << 40);
                self.put(client, number, Version { seed, len }, offline).await;
            }
            Op::PutMany { names, len } => {
                let puts = many(names).map(|number| {
                    let seed = self.seed ^ (self.number << 56) ^ (step << 40) ^ (number << 32);
                    self.put(client, number, Version { seed, len }, false)
                });
                futures::future::join_all(puts).await;
            }
            Op::Remove { name: number } => {
                let name = name(self.number, number);
                let reading = self.stage.model().read(&name);
                self.stage.model().begin(&name, None);
                let removed = client.remove(&name).await.map(drop);
                self.say(format!("remove {name}: {}", short(&removed)));
                if let Err(ClientError::NotFound(_)) = removed
                    && !self.stage.model().is_muddled(&reading)
                {
                    self.stage.model().acknowledged(&name);
                    let legal = self.stage.model().legal(&name, &reading);
                    // The last legal state is the remove itself, which does not count here.
                    if !legal[..legal.len() - 1].contains(&None) {
                        self.stage.fail(format!("{name} is there and cannot be removed: not found"));
                    }
                } else {
                    self.written(&name, &reading, removed.err());
                }
            }
            Op::Get { writer, name: number, range } => {
                check_read(&self.stage, client, &name(writer, number), range).await;
            }
            Op::Repair => {
                let report =
                    finish(client.repair_by(kintsu_wire::message::Repair::new(RepairTarget::All)).await)
                        .await;
                self.say(format!("repair: {}", told(&report)));
            }
            Op::Encode { name: number } => {
                let report = finish(client.encode(&name(self.number, number)).await).await;
                self.say(format!("encode {}: {}", name(self.number, number), told(&report)));
            }
            Op::Accuse { name: number } => {
                let name = name(self.number, number);
                let Ok(view) = client.stripes(&name, 0, 1000).await else { return };
                for place in view.stripes.iter().flat_map(|stripe| stripe.blocks.iter().flatten()) {
                    let (kind, detail) = (FaultKind::Corrupt, "as a client says".into());
                    let bad = BadBlock { id: place.id, node: place.node, kind, detail };
                    let told = self.stage.accuse(client, bad).await;
                    self.say(format!("{} on {} is reported as bad: {told:?}", place.id, place.node));
                }
            }
            Op::Scrub => {
                let report = finish(client.scrub(None).await).await;
                self.say(format!("scrub: {}", told(&report)));
            }
            Op::Repack => {
                let options = RepackOptions { older_than: Duration::ZERO, least: 2 };
                let report = client.repack(options, |_| {}).await;
                self.say(format!("repack: {report:?}"));
            }
            Op::Drain { node, patience_ms } => {
                self.command(client, node, NodeAction::Drain, patience_ms).await;
            }
            Op::Wipe { node, patience_ms } => {
                self.command(client, node, NodeAction::Wipe, patience_ms).await;
            }
            Op::Volume { number, act } => {
                let Some(shape) = self.shape else { return };
                let seed = self.seed ^ (self.number << 56) ^ (step << 40);
                let (stage, number_of_user) = (&*self.stage, self.number);
                User { stage, client, shape, number: number_of_user, seed }.act(hand, number, act).await;
            }
            Op::Pause { ms } => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    }

    async fn put(&self, client: &Client, number: u64, version: Version, offline: bool) {
        let name = name(self.number, number);
        let reading = self.stage.model().read(&name);
        self.stage.model().begin(&name, Some(version));
        let put = put(client, &name, version, offline).await;
        self.say(format!("put {name}, {} bytes: {}", version.len, short(&put)));
        self.written(&name, &reading, put.err());
    }

    async fn command(&self, client: &Client, node: u32, action: NodeAction, patience_ms: u64) {
        let commanded = async { finish(client.command_node(NodeId(node), action).await).await };
        match timeout(Duration::from_millis(patience_ms), commanded).await {
            Ok(report) => self.say(format!("{action:?} node{node}: {}", told(&report))),
            Err(_) => self.say(format!("{action:?} node{node}: the client waits no longer")),
        }
    }

    fn written(&self, name: &str, reading: &Reading, error: Option<ClientError>) {
        let mut model = self.stage.model();
        // The coordinator of an empty folder takes objects without bytes, and forgets them.
        let strange = model.is_muddled(reading) && !model.is_older();
        match error {
            None if strange => model.unknown(name),
            None => model.acknowledged(name),
            // What one coordinator refused may come back when its older metadata are completed from blocks.
            Some(ClientError::Placement(_) | ClientError::Full(_) | ClientError::Invalid(_))
                if !model.is_older() =>
            {
                model.refused(name);
            }
            Some(_) => model.unknown(name),
        }
    }
}

/// Puts a version; every other one as a stream, whose size the cluster does not know before its end.
pub async fn put(client: &Client, name: &str, version: Version, offline: bool) -> Result<(), ClientError> {
    let encoding = if offline { Encoding::Offline } else { Encoding::Online };
    let options = PutOptions {
        block_bytes: Some(2 * u64::from(CELL)),
        cell_bytes: Some(CELL),
        encoding,
        replace: true,
        ..PutOptions::new(CODE)
    };
    let bytes = version.bytes();
    if version.seed.count_ones().is_multiple_of(2) {
        return client.put_stream(&mut &bytes[..], name, options, |_| {}).await.map(drop);
    }
    client.put(Arc::new(Bytes::from(bytes)), name, options, |_, _| {}).await.map(drop)
}

/// Reads an object and compares it with the model; returns whether the read had a result.
pub async fn check_read(stage: &Stage, client: &Client, name: &str, range: Option<(u64, u64)>) -> bool {
    let reading = stage.model().read(name);
    let (mut out, mut from, mut upto) = (Vec::new(), 0, None);
    let outcome = async {
        let range = match range {
            None => None,
            Some((a, b)) => {
                let size = client.info(name).await?.size;
                (from, upto) = ((a.min(b) * size / 1000) as usize, Some((a.max(b) * size / 1000) as usize));
                Some(from as u64..upto.unwrap_or(from) as u64)
            }
        };
        client.get(name, range, &mut out, |_, _| {}).await
    }
    .await;
    let legal = stage.model().legal(name, &reading);
    let seen = |state: &State| match (&outcome, state) {
        (Err(ClientError::NotFound(_)), state) => state.is_none(),
        (_, None) => out.is_empty() && outcome.is_err(),
        (_, Some(version)) => {
            let bytes = version.bytes();
            let wanted = bytes.get(from..upto.unwrap_or(bytes.len()));
            wanted.is_some_and(|bytes| if outcome.is_ok() { bytes == out } else { bytes.starts_with(&out) })
                || (outcome.is_err() && out.is_empty())
        }
    };
    let what = range.map_or(String::new(), |_| format!(" {from}..{}", upto.unwrap_or(0)));
    stage.trace.say(format!("get {name}{what}: {} bytes, {}", out.len(), short(&outcome.as_ref().map(drop))));
    if !legal.iter().any(seen) {
        let outcome = short(&outcome.as_ref().map(drop));
        stage.fail(format!("get {name}{what}: {} bytes, {outcome}; expected one of {legal:?}", out.len()));
    }
    outcome.is_ok() || matches!(outcome, Err(ClientError::NotFound(_)))
}

/// Follows a job to its end; `None` if its end was not reported.
pub async fn finish(jobs: Result<Jobs, ClientError>) -> Result<Option<JobReport>, ClientError> {
    let mut jobs = jobs?;
    while let Some(event) = jobs.next().await? {
        if let JobEvent::Ended(report) = event {
            return Ok(Some(report));
        }
    }
    Ok(None)
}

fn short<T, E: std::fmt::Debug>(result: &Result<T, E>) -> String {
    match result {
        Ok(_) => "done".into(),
        Err(error) => format!("{error:?}"),
    }
}

fn told(report: &Result<Option<JobReport>, ClientError>) -> String {
    match report {
        Ok(Some(report)) => {
            format!("{} blocks, failed {:?}, bad {:?}", report.blocks, report.failed, report.bad)
        }
        Ok(None) => "no report".into(),
        Err(error) => format!("{error:?}"),
    }
}
