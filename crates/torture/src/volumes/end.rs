//! What must hold for volumes when all faults have ended: all of each can be read and written, what is logged reaches its
//! blocks and is forgotten, parity follows from data, and the bytes are still the same.

use kintsu_client::{Client, VolumeAccess};

use super::Shape;
use super::user::{User, name};
use crate::census;
use crate::finale::{repaired, until};
use crate::history::History;
use crate::stage::Stage;

/// The number that the checks go by in traces.
const CHECKER: u64 = 99;

/// Checks all volumes.
///
/// # Errors
/// The first broken promise; wrong bytes are told to the stage.
pub async fn hold(stage: &Stage, client: &Client, shape: Shape, seed: u64) -> Result<(), String> {
    let user = User { stage, client, shape, number: CHECKER, seed: seed ^ (CHECKER << 48) };
    let user = &user;
    let all =
        || stage.volumes.numbers().into_iter().filter(|n| stage.volumes.with(*n, |held| held.is_there()));
    for number in all() {
        until("a volume can be read", || user.read_all(number, VolumeAccess::Read)).await?;
    }
    snapshots_hold(stage, user).await?;
    settled(stage, client).await?;
    until("logs are empty", || forgotten(stage)).await?;
    let unequal = census::unequal(stage, client).await?;
    if !unequal.is_empty() {
        return Err(format!("parity does not match: {unequal:?}"));
    }
    for number in all() {
        until("a volume can be read", || user.read_all(number, VolumeAccess::Read)).await?;
        until("a volume can be written", || user.write_all(number)).await?;
        until("a volume can be read", || user.read_all(number, VolumeAccess::Read)).await?;
    }
    settled(stage, client).await?;
    let unequal = census::unequal(stage, client).await?;
    if !unequal.is_empty() {
        return Err(format!("parity does not match at the end: {unequal:?}"));
    }
    for number in all() {
        until("a volume can be read", || user.read_all(number, VolumeAccess::Read)).await?;
    }
    snapshots_hold(stage, user).await
}

/// All snapshots can be read, and hold what they held.
async fn snapshots_hold(stage: &Stage, user: &User<'_>) -> Result<(), String> {
    for name in stage.volumes.snapshots.names() {
        until("a snapshot can be read", || user.read_snapshot(&name, 0, u64::MAX)).await?;
    }
    Ok(())
}

/// Removes all snapshots, also those of which nobody knows whether they were taken.
///
/// # Errors
/// Some are there still.
pub async fn without_snapshots(stage: &Stage, client: &Client) -> Result<(), String> {
    stage.volumes.snapshots.forget_all();
    for volume in client.volumes().await.map_err(|e| e.to_string())? {
        if volume.snapshot_of.is_some() {
            client.remove_volume(&volume.name).await.map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

/// Removes a volume.
///
/// # Errors
/// It is not gone yet.
pub async fn removed(stage: &Stage, client: &Client, history: &History, number: u64) -> Result<(), String> {
    let Some(shape) = history.shape else { return Ok(()) };
    let user = User { stage, client, shape, number: CHECKER, seed: history.seed };
    if user.remove(number).await { Ok(()) } else { Err(name(number)) }
}

/// Everything is committed, and what commits left out because a node was away is repaired.
async fn settled(stage: &Stage, client: &Client) -> Result<(), String> {
    until("updates are committed", || committed(stage, client)).await?;
    until("what commits left out is repaired", || repaired(stage, client)).await
}

async fn committed(stage: &Stage, client: &Client) -> Result<(), String> {
    for volume in client.volumes().await.map_err(|e| e.to_string())? {
        let done = client.commit_volume(&volume.name, None).await.map_err(|e| e.to_string())?;
        stage.trace.say(format!("commit {}: {done:?}", volume.name));
        if !done.left.is_empty() || done.stripes > 0 {
            return Err(format!("{}: {done:?}", volume.name));
        }
    }
    Ok(())
}

async fn forgotten(stage: &Stage) -> Result<(), String> {
    let logged = census::logged(stage);
    if logged.is_empty() { Ok(()) } else { Err(format!("{logged:?}")) }
}
