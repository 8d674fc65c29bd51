//! Reads: the log over the block, at its home or elsewhere.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_store::{Generation, Logged};
use kintsu_wire::ambient::{FixedFault, is_back};
use kintsu_wire::message::{ReadUpdates, StripeInfo, UpdatedBytes, UpdatesOf, VolumeStripe};
use tonic::{Code, Status};

use super::Shared;
use super::map::{LookedUp, Mapped, Patience};
use crate::{ClientError, Found, GetOptions};

/// How long a node may take to read a part of a block.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// What one call reads.
const MOST_READ_BYTES: u64 = 4 << 20;

/// A part of one block.
#[derive(Clone, Copy)]
struct Part {
    index: u64,
    block: BlockIndex,
    offset: u64,
    len: u64,
}

pub(super) async fn read(shared: &Arc<Shared>, offset: u64, len: u64) -> Result<Bytes, ClientError> {
    let (block_bytes, k) = (shared.info.block_bytes, u64::from(shared.info.k));
    let (mut at, end) = (offset, offset + len);
    let mut parts = Vec::new();
    while at < end {
        let upto = (at - at % block_bytes + block_bytes).min(end).min(at + MOST_READ_BYTES);
        let number = at / block_bytes;
        let (index, block) = (number / k, BlockIndex((number % k) as u8));
        parts.push(Part { index, block, offset: at % block_bytes, len: upto - at });
        at = upto;
    }
    if let [part] = parts[..] {
        return of_block(shared, part).await;
    }
    let read = futures::future::try_join_all(parts.into_iter().map(|part| of_block(shared, part))).await?;
    let mut whole = BytesMut::with_capacity(len as usize);
    read.iter().for_each(|part| whole.extend_from_slice(part));
    Ok(whole.freeze())
}

async fn of_block(shared: &Arc<Shared>, part: Part) -> Result<Bytes, ClientError> {
    let mut patience = Patience::of(&shared.client);
    let Some(mut mapped) = shared.map.existing(part.index).await? else {
        return Ok(Bytes::from(vec![0; part.len as usize]));
    };
    // Under which epoch and generation the home refused: it has lost the log or the block if they are still the same.
    let mut refused = None;
    let mut failed = None;
    loop {
        let error = match attempt(shared, &mapped, part, &mut refused).await {
            Ok((bytes, current)) if current || is_current(shared, &mapped, part).await => return Ok(bytes),
            Ok(_) => ClientError::Io(format!("{}: its logs are changing", mapped.block(part.block))),
            Err(error) => error,
        };
        if patience.is_over() {
            return Err(error);
        }
        tracing::debug!("volume {}: {error}", shared.info.name);
        patience.wait().await;
        match shared.map.renew(part.index, &mapped, failed).await {
            Ok(Some(now)) => {
                // Nodes know an epoch that was never recorded, if the map is still the same.
                let same = now.stripe.epoch == mapped.stripe.epoch && now.epochs() == mapped.epochs();
                failed = same.then_some(now.stripe.epoch).filter(|_| !now.stripe.logs.is_empty());
                mapped = now;
            }
            Ok(None) => return Ok(Bytes::from(vec![0; part.len as usize])),
            Err(error) if patience.bears(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

async fn attempt(
    shared: &Arc<Shared>,
    mapped: &Mapped,
    part: Part,
    refused: &mut Option<(u64, u32)>,
) -> Result<(Bytes, bool), ClientError> {
    let log = mapped.log(part.block);
    let asked = (mapped.stripe.epoch, mapped.generation(part.block));
    let again = *refused == Some(asked);
    let home = mapped.home(part.block).filter(|home| !again && !shared.map.is_silent(*home));
    if let Some(home) = home.filter(|home| log.is_empty() || log.first() == Some(home)) {
        let others = confirmed(shared, mapped, part, home);
        let (answer, others) = tokio::join!(ask(shared, mapped, part, home, Some(asked.1)), others);
        match answer {
            Ok(UpdatedBytes { pieces, .. }) => return Ok((whole(pieces, part)?, others?)),
            // The map is too old, or the block is of another generation by now.
            Err(status) if status.code() == Code::FailedPrecondition => {
                *refused = Some(asked);
                return Err(ClientError::Io(kintsu_wire::words(&status)));
            }
            Err(status) => {
                tracing::debug!("{} is read without {home}: {}", mapped.block(part.block), status.message());
                if status.code() == Code::Unavailable {
                    shared.map.avoid(home);
                }
            }
        }
    }
    degraded(shared, mapped, part).await
}

/// Whether all nodes that log the block, besides the one that is read, know no newer epoch. As one of them at least knows it
/// when the others have changed, what was read has all that was acknowledged before. False if one of them does not answer.
///
/// # Errors
/// One of them refuses: the map is too old.
async fn confirmed(
    shared: &Arc<Shared>,
    mapped: &Mapped,
    part: Part,
    read: NodeId,
) -> Result<bool, ClientError> {
    if is_back(FixedFault::ReadsUnconfirmed) {
        return Ok(true);
    }
    let others = mapped.log(part.block).iter().copied().filter(|node| *node != read);
    let nothing = Part { len: 0, ..part };
    let asked = others.map(async |node| {
        if shared.map.is_silent(node) {
            return Ok(false);
        }
        match ask(shared, mapped, nothing, node, None).await {
            Ok(_) => Ok(true),
            Err(status) if status.code() == Code::FailedPrecondition => {
                Err(ClientError::Io(kintsu_wire::words(&status)))
            }
            Err(status) => {
                if status.code() == Code::Unavailable {
                    shared.map.avoid(node);
                }
                Ok(false)
            }
        }
    });
    let all = futures::future::try_join_all(asked).await?;
    // Where nothing is logged the map is as new as this read.
    Ok(all.into_iter().all(|current| current))
}

/// Whether the coordinator still has the nodes of this map: then it had them while they were read.
async fn is_current(shared: &Arc<Shared>, mapped: &Arc<Mapped>, part: Part) -> bool {
    match shared.map.now(part.index).await {
        Ok(Some(now)) => {
            let what = |stripe: &VolumeStripe| (stripe.stripe.id, stripe.epoch);
            what(&now) == what(&mapped.stripe) && now.logs == mapped.stripe.logs
        }
        _ => false,
    }
}

/// The log from a node that answers, over the block as it is read or decoded.
async fn degraded(shared: &Arc<Shared>, mapped: &Mapped, part: Part) -> Result<(Bytes, bool), ClientError> {
    let mut logged = None;
    let mut current = true;
    let mut why = None;
    if mapped.stripe.frozen {
        // Nothing else tells that a repair has given its blocks new homes.
        shared.map.forget(part.index);
    }
    let log = mapped.log(part.block);
    let (silent, others): (Vec<NodeId>, Vec<NodeId>) =
        log.iter().copied().partition(|node| shared.map.is_silent(*node));
    for node in others.into_iter().chain(silent) {
        match ask(shared, mapped, part, node, None).await {
            Ok(found) => {
                logged = Some(found);
                current = confirmed(shared, mapped, part, node).await?;
                break;
            }
            Err(status) => {
                if status.code() == Code::Unavailable {
                    shared.map.avoid(node);
                }
                why = Some(status);
            }
        }
    }
    let UpdatedBytes { pieces, deltas, sum: _ } = match (logged, why) {
        (Some(logged), _) => logged,
        (None, None) => UpdatedBytes::default(),
        (None, Some(status)) => {
            let nodes: Vec<_> = log.iter().map(ToString::to_string).collect();
            let message = kintsu_wire::words(&status);
            return Err(ClientError::Unreachable(format!(
                "log of {}: expected an answer of {}, got {message}",
                mapped.block(part.block),
                nodes.join(" or ")
            )));
        }
    };
    if let [(from, bytes)] = &pieces[..]
        && (*from, bytes.len() as u64) == (part.offset, part.len)
    {
        return Ok((bytes.clone(), current));
    }
    let from = u64::from(part.block.0) * shared.info.block_bytes + part.offset;
    let (mut bytes, version) = decoded(shared, mapped, part, from).await?;
    let plain = pieces.into_iter().map(|(offset, bytes)| (offset, bytes, None));
    let deltas = deltas.into_iter().map(|(offset, bytes, of)| (offset, bytes, Some(Generation(of))));
    for (offset, piece, delta_of) in plain.chain(deltas) {
        if delta_of.is_some() && version.is_none() {
            let block = mapped.block(part.block);
            return Err(ClientError::Io(format!("{block}: a commit has changed it while it was decoded")));
        }
        // New bytes are the same over any version.
        let over = Generation(version.unwrap_or_default());
        let laid = Logged { offset, bytes: piece.into(), delta_of }.lay_over(over, part.offset, &mut bytes);
        laid.map_err(|error| ClientError::Io(format!("log of {}: {error}", mapped.block(part.block))))?;
    }
    Ok((bytes.into(), current))
}

/// The part of the block as the last commit left it, and the block's generation; `None` if a commit has ended meanwhile, so that
/// bytes may be of several. The coordinator is asked where the stripe's blocks are once for an epoch,
/// and again, if it answers, when they may not be there any more.
async fn decoded(
    shared: &Arc<Shared>,
    mapped: &Mapped,
    part: Part,
    from: u64,
) -> Result<(Vec<u8>, Option<u32>), ClientError> {
    let before = |known: LookedUp| shared.client.found_before(known.said.0.clone(), known.said.1);
    let found = match mapped.looked_up(part.block) {
        Some(known) if !known.doubted => before(known),
        known => match (look_up(shared, mapped, part, from).await, known) {
            (Err(error), Some(known)) if error.is_unreachable() => before(known),
            (found, _) => found?,
        },
    };
    let generations = found.view().stripes.first().map(StripeInfo::generations).unwrap_or_default();
    let generation = generations.get(usize::from(part.block.0)).copied();
    let mut bytes = Vec::with_capacity(part.len as usize);
    let read = found.read(Some(from..from + part.len), GetOptions::default(), &mut bytes, |_, _| {}).await;
    if !read.as_ref().is_ok_and(|report| report.replanned == 0) {
        mapped.doubt_looked_up();
    }
    read.map(|report| (bytes, generation.filter(|_| !report.updated)))
}

async fn look_up(shared: &Arc<Shared>, mapped: &Mapped, part: Part, from: u64) -> Result<Found, ClientError> {
    let name = crate::volume::operate::stripe_name(mapped.owner(), part.index);
    let found = shared.client.find(&name, from).await?;
    let (expected, got) = (mapped.stripe.stripe.id, found.view().stripes.first().map(|stripe| stripe.id));
    if got != Some(expected) {
        // A snapshot has it by now, and the name is that of a copy.
        return Err(ClientError::Io(format!("{name}: expected stripe {expected}, got another one")));
    }
    mapped.keep_looked_up((found.view().clone(), found.answered()));
    Ok(found)
}

async fn ask(
    shared: &Arc<Shared>,
    mapped: &Mapped,
    part: Part,
    node: NodeId,
    over: Option<u32>,
) -> Result<UpdatedBytes, Status> {
    let of =
        UpdatesOf { block: mapped.block(part.block), replica: mapped.is_replica(part.block, node), upto: 0 };
    let epochs = (!mapped.log(part.block).is_empty()).then(|| mapped.epochs());
    let (folder, ticket) = (mapped.stripe.folders.get(&node).copied(), mapped.ticket(part.block, node));
    let plain = mapped.stripe.frozen;
    let (offset, len) = (part.offset, part.len as u32);
    let request = ReadUpdates { of, offset, len, epochs, folder, over, plain, ticket };
    let address = mapped.control(node).ok_or_else(|| Status::unavailable(format!("{node} is unknown")))?;
    let agent = shared.client.conductor().agent_of(node, address);
    let mut agent = agent.map_err(|error| Status::unavailable(error.to_string()))?;
    match tokio::time::timeout(READ_WITHIN, agent.read_updates(request)).await {
        Ok(Ok(answer)) if !answer.get_ref().is_sound(of.block) => {
            Err(Status::data_loss(format!("{}: {node}'s answer was damaged on its way here", of.block)))
        }
        Ok(answer) => answer.map(tonic::Response::into_inner),
        Err(_) => Err(Status::unavailable(format!("{node}: no answer within {READ_WITHIN:?}"))),
    }
}

/// The part, if that is what came.
fn whole(mut pieces: Vec<(u64, Bytes)>, part: Part) -> Result<Bytes, ClientError> {
    match pieces.pop() {
        Some((offset, bytes)) if (offset, bytes.len() as u64) == (part.offset, part.len) => Ok(bytes),
        other_part => Err(other(part, other_part.map_or(0, |(_, bytes)| bytes.len()))),
    }
}

fn other(part: Part, got: usize) -> ClientError {
    let Part { block, offset, len, .. } = part;
    ClientError::Corrupt(format!("{block}: expected {len} bytes from {offset}, got {got} of another part"))
}
