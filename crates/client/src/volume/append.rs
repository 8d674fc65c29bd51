//! Writes: the first one to a stripe stores it, the others go to the logs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_wire::message::{AppendUpdates, CommitVolume, LoggedBlocks, LoggedUpdate, StripeOfVolume};
use kintsu_wire::ticket::Ticket;
use tonic::{Code, Status};

use super::Shared;
use super::lease::Writer;
use super::map::{Mapped, Patience};
use crate::{ClientError, PutOptions};

/// The most bytes that one record of a log carries.
const MOST_RECORD_BYTES: usize = 1 << 20;
/// How long nodes may take to make a write durable.
const APPEND_WITHIN: Duration = Duration::from_secs(10);

/// What is written.
#[derive(Clone)]
pub(super) enum Content {
    Bytes(Bytes),
    Zeros(u64),
}

impl Content {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Zeros(count) => *count,
        }
    }

    fn part(&self, from: u64, to: u64) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(bytes.slice(from as usize..to as usize)),
            Self::Zeros(_) => Self::Zeros(to - from),
        }
    }
}

/// A part of one block.
struct Piece {
    block: BlockIndex,
    offset: u64,
    content: Content,
}

pub(super) async fn write(shared: &Arc<Shared>, offset: u64, content: Content) -> Result<(), ClientError> {
    let writer = shared.writer.as_ref().ok_or_else(|| {
        let name = &shared.info.name;
        ClientError::Invalid(format!("volume {name}: expected one that was opened to write, got one to read"))
    })?;
    let _held = shared.ranges.hold(offset..offset + content.len()).await;
    let stripe = shared.info.stripe_bytes();
    let (mut at, end) = (offset, offset + content.len());
    let mut parts = Vec::new();
    while at < end {
        let upto = (at - at % stripe + stripe).min(end);
        let part = content.part(at - offset, upto - offset);
        parts.push(in_stripe(shared, writer, at / stripe, at % stripe, part));
        at = upto;
    }
    futures::future::join_all(parts).await.into_iter().collect::<Result<(), _>>()?;
    // The lease was sure when the nodes were asked; a writer that lost it meanwhile was refused by them.
    Ok(())
}

async fn in_stripe(
    shared: &Arc<Shared>,
    writer: &Writer,
    index: u64,
    offset: u64,
    content: Content,
) -> Result<(), ClientError> {
    let zeros = matches!(content, Content::Zeros(_));
    let found = match shared.map.stripe(index).await? {
        // It may have been made since; the coordinator also says whether this is still the writer.
        None if zeros => shared.map.existing(index).await?,
        found => found,
    };
    let mapped = match found {
        Some(mapped) => mapped,
        None if zeros && !shared.map.may_appear(index) => return Ok(()),
        None => match make(shared, writer, index, offset, &content).await? {
            Some(mapped) => mapped,
            None => return Ok(()),
        },
    };
    let block_bytes = shared.info.block_bytes;
    let (mut at, end) = (offset, offset + content.len());
    let mut pieces = Vec::new();
    while at < end {
        let upto = (at - at % block_bytes + block_bytes).min(end);
        let block = BlockIndex((at / block_bytes) as u8);
        pieces.push(Piece {
            block,
            offset: at % block_bytes,
            content: content.part(at - offset, upto - offset),
        });
        at = upto;
    }
    let mut patience = Patience::of(&shared.client);
    let mut mapped = mapped;
    loop {
        let logged = pieces.iter().map(|piece| log(shared, writer, index, mapped.clone(), piece));
        // All to their ends: what is under way when this returns could come behind a later write.
        let epochs: Vec<u64> =
            futures::future::join_all(logged).await.into_iter().collect::<Result<_, ClientError>>()?;
        let Some(&epoch) = epochs.first().filter(|_| shared.at_once) else { return Ok(()) };
        // Blocks that were logged under several epochs are logged once more.
        if epochs.iter().all(|other| *other == epoch) {
            match commit(shared, index, epoch, &pieces).await {
                Err(error) if patience.bears(&error) => patience.wait().await,
                Err(error) => {
                    shared.map.fail(index, epoch);
                    return Err(error);
                }
                Ok(()) => return Ok(()),
            }
        }
        let now = shared.map.renew(index, &mapped, None).await;
        mapped = now.inspect_err(|_| shared.map.fail(index, epoch))?.ok_or_else(|| gone(shared, index))?;
    }
}

/// Has the updates that were logged under an epoch brought into their blocks and the parities.
async fn commit(shared: &Arc<Shared>, index: u64, epoch: u64, pieces: &[Piece]) -> Result<(), ClientError> {
    let blocks = LoggedBlocks { index, epoch, blocks: pieces.iter().map(|piece| piece.block).collect() };
    let commit = CommitVolume { name: shared.info.name.clone(), scheme: None, blocks: Some(blocks) };
    let done = shared.client.call(|mut c| {
        let commit = commit.clone();
        async move { c.volumes.commit_volume(commit).await }
    });
    match done.await?.left.pop() {
        None => Ok(()),
        Some(left) => Err(ClientError::Placement(format!("volume {}: {left}", shared.info.name))),
    }
}

/// Makes a stripe that is not known to exist, with what is written. Returns the stripe if it exists by then: nothing is written to
/// it yet.
async fn make(
    shared: &Arc<Shared>,
    writer: &Writer,
    index: u64,
    offset: u64,
    content: &Content,
) -> Result<Option<Arc<Mapped>>, ClientError> {
    let mut patience = Patience::of(&shared.client);
    loop {
        let turn = shared.map.turn(index).await;
        if let Some(mapped) = shared.map.known(index).flatten() {
            return Ok(Some(mapped));
        }
        let error = match create(shared, writer, index, offset, content).await {
            Ok(()) => {
                // It is durable, whether its logs are ready for the next write or not.
                shared.map.forget(index);
                if let Err(error) = shared.map.ask(index, None, false).await {
                    tracing::debug!("volume {}: stripe {index} is new: {error}", shared.info.name);
                }
                return Ok(None);
            }
            // An earlier attempt, whose answer was lost, has made it.
            Err(ClientError::Exists(_)) => match shared.map.ask(index, None, false).await {
                Ok(mapped) => return mapped.ok_or_else(|| gone(shared, index)).map(Some),
                Err(error) => error,
            },
            Err(error) => {
                // It may be made in spite of that.
                shared.map.doubt(index);
                error
            }
        };
        if !patience.bears_of_put(&error) {
            return Err(error);
        }
        tracing::debug!("volume {}: stripe {index}: {error}; trying again", shared.info.name);
        drop(turn);
        patience.wait().await;
    }
}

/// Stores a stripe whole: what is written, and zeros.
async fn create(
    shared: &Arc<Shared>,
    writer: &Writer,
    index: u64,
    offset: u64,
    content: &Content,
) -> Result<(), ClientError> {
    writer.check().await?;
    let info = &shared.info;
    let mut bytes = vec![0; info.stripe_bytes() as usize];
    if let Content::Bytes(content) = content {
        bytes[offset as usize..offset as usize + content.len()].copy_from_slice(content);
    }
    let of = StripeOfVolume { volume: info.id, index, epoch: writer.taken() };
    let options = PutOptions {
        block_bytes: Some(info.block_bytes),
        cell_bytes: Some(info.block_bytes as u32),
        ..PutOptions::new(&info.code)
    };
    shared.client.put_stripe(Bytes::from(bytes), of, options).await
}

/// Logs a part of a block, wherever its logs are by then; returns under which epoch.
async fn log(
    shared: &Arc<Shared>,
    writer: &Writer,
    index: u64,
    mut mapped: Arc<Mapped>,
    piece: &Piece,
) -> Result<u64, ClientError> {
    let mut patience = Patience::of(&shared.client);
    let mut emptied = false;
    loop {
        writer.check().await?;
        while mapped.stripe.shared {
            let own = shared.map.own(index, &mapped).await;
            mapped = own.inspect_err(|error| lose(writer, error))?.ok_or_else(|| gone(shared, index))?;
        }
        let epoch = mapped.stripe.epoch;
        let status = match append(shared, &mapped, piece).await {
            Ok(log_bytes) => {
                // What goes into a large log leaves it again before the write ends, so that writers are held up by as much as they
                // write, and not until all is committed. The write is durable, also if that fails.
                if log_bytes >= shared.client.large_log_bytes()
                    && let Err(error) = empty(shared, Some(mapped.all_logged())).await
                {
                    tracing::info!("volume {}: a log of {log_bytes} bytes stays: {error}", shared.info.name);
                }
                return Ok(epoch);
            }
            Err(status) => status,
        };
        // Whatever a node answered, another one may have logged it.
        let fail = |error| {
            shared.map.fail(index, epoch);
            Err(error)
        };
        match status.code() {
            Code::InvalidArgument => return fail(ClientError::Invalid(kintsu_wire::words(&status))),
            Code::ResourceExhausted if !emptied => {
                emptied = true;
                if let Err(error) = empty(shared, None).await {
                    return fail(error);
                }
            }
            Code::ResourceExhausted => return fail(ClientError::Full(kintsu_wire::words(&status))),
            _ if patience.is_over() => return fail(ClientError::Io(kintsu_wire::words(&status))),
            _ => tracing::debug!("volume {}: {}", shared.info.name, kintsu_wire::words(&status)),
        }
        mapped = loop {
            match shared.map.renew(index, &mapped, Some(epoch)).await {
                Ok(now) => break now.ok_or_else(|| gone(shared, index))?,
                Err(lost @ ClientError::Interrupted(_)) => {
                    lose(writer, &lost);
                    return Err(lost);
                }
                Err(error) if patience.bears(&error) => patience.wait().await,
                Err(error) => return fail(error),
            }
        };
    }
}

/// Notes that somebody else is the writer, if that is what the error says.
fn lose(writer: &Writer, error: &ClientError) {
    if matches!(error, ClientError::Interrupted(_)) {
        writer.lose(error.clone());
    }
}

/// One attempt; returns the bytes of the log.
async fn append(shared: &Arc<Shared>, mapped: &Mapped, piece: &Piece) -> Result<u64, Status> {
    let missing = || Status::unavailable("no node logs for the block yet");
    let (first, rest) = mapped.log(piece.block).split_first().ok_or_else(missing)?;
    let address = |node| mapped.control(node).ok_or_else(missing);
    let forward = rest.iter().map(|node| address(*node)).collect::<Result<Vec<_>, _>>()?;
    let tickets = |node: &NodeId| -> Vec<Ticket> { mapped.ticket(piece.block, *node).into_iter().collect() };
    let append = AppendUpdates {
        updates: records(mapped, piece),
        replica: mapped.is_replica(piece.block, *first),
        forward,
        fenced: true,
        send_old: shared.sends_old,
        // A home that has an older version by now, which no commit left there, has lost one.
        deltas_from: shared.sends_deltas.then(|| mapped.generation(piece.block)),
        tickets: tickets(first),
        forward_tickets: rest.iter().map(tickets).collect(),
        ..AppendUpdates::default()
    };
    let agent = shared.client.conductor().agent_of(*first, address(*first)?);
    let mut agent = agent.map_err(|error| Status::unavailable(error.to_string()))?;
    match tokio::time::timeout(APPEND_WITHIN, agent.append_updates(append)).await {
        Ok(answer) => answer.map(|appended| appended.into_inner().log_bytes),
        Err(_) => Err(Status::unavailable(format!("{first}: no answer within {APPEND_WITHIN:?}"))),
    }
}

fn records(mapped: &Mapped, piece: &Piece) -> Vec<LoggedUpdate> {
    let (volume, epoch) = (mapped.epochs().volume, mapped.stripe.epoch);
    let block = mapped.block(piece.block);
    let record = |offset, data, zeros| {
        LoggedUpdate { volume, epoch, block, offset, data, zeros, delta_of: None, sum: None }.summed()
    };
    match &piece.content {
        Content::Zeros(count) => vec![record(piece.offset, Bytes::new(), *count as u32)],
        Content::Bytes(bytes) => (0..bytes.len())
            .step_by(MOST_RECORD_BYTES)
            .map(|from| {
                let part = bytes.slice(from..bytes.len().min(from + MOST_RECORD_BYTES));
                record(piece.offset + from as u64, part, 0)
            })
            .collect(),
    }
}

/// Brings what is logged into the blocks, for one stripe or for all, so that the logs have room.
async fn empty(shared: &Arc<Shared>, blocks: Option<LoggedBlocks>) -> Result<(), ClientError> {
    let commit = CommitVolume { name: shared.info.name.clone(), scheme: None, blocks };
    let done = shared.client.call_patiently(|mut c| {
        let commit = commit.clone();
        async move { c.volumes.commit_volume(commit).await }
    });
    done.await.map(drop)
}

fn gone(shared: &Shared, index: u64) -> ClientError {
    ClientError::Interrupted(format!("stripe {index} of volume {} is gone: it was removed", shared.info.name))
}
