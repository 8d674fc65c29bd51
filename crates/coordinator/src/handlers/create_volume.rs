//! Makes a volume. Nothing of it is stored before it is written to.

use std::sync::Arc;

use kintsu_code::{Code, USER};
use kintsu_plan::update::Scheme;
use kintsu_plan::{Division, LayoutKind, MOST_STEP_BYTES};
use kintsu_wire::message::{CreateVolume, VolumeInfo};

use crate::cluster::Cluster;
use crate::engine::put::{BadName, check_name};
use crate::error::{CoordinatorError, Result};
use crate::meta::{CodeRecord, Meta, VolumeRecord};

/// The largest volume: its stripes are numbered by 32 bits.
const MOST_STRIPES: u64 = 1 << 32;
/// The unit of sizes.
pub const SECTOR_BYTES: u64 = 512;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: CreateVolume) -> Result<VolumeInfo> {
    check_volume_name(&request.name)?;
    check_size(request.size)?;
    let registered = match request.code.starts_with(USER) {
        true => Some(cluster.registered(request.code.clone()).await?.0),
        false => None,
    };
    let scheme = request.scheme.as_deref().map_or(Ok(Scheme::default()), str::parse)?;
    let (id, created) = (random()?, cluster.unix_seconds());
    let create = move |meta: &Meta| {
        let code = registered.map_or_else(|| kintsu_code::parse(&request.code), Ok)?;
        check_code(code.as_ref(), request.block_bytes, request.size)?;
        let volume = VolumeRecord {
            id,
            size: request.size,
            code: 0,
            block_bytes: request.block_bytes,
            durability: request.durability,
            scheme,
            created,
            epoch: 0,
            taken: 0,
            writer: None,
            stripes: 0,
            snapshot: None,
            cuts: 0,
            cut: 0,
            removing: false,
        };
        meta.create_volume(&request.name, &CodeRecord::of(code.as_ref()), volume)?;
        Ok(meta.snapshot()?.volume(&request.name)?.info(false))
    };
    cluster.meta.off(create).await
}

/// Checks the name of a volume or snapshot.
///
/// # Errors
/// It is no name of an object, or has a slash.
pub fn check_volume_name(name: &str) -> Result<()> {
    let slash = || BadName { expected: "a name without /".into(), got: name.into() };
    let checked = check_name(name).and_then(|()| if name.contains('/') { Err(slash()) } else { Ok(()) });
    let invalid =
        |BadName { expected, got }| CoordinatorError::Invalid { what: "volume name", expected, got };
    checked.map_err(invalid)
}

/// A size is a multiple of a sector, and not zero.
pub fn check_size(size: u64) -> Result<()> {
    if size > 0 && size.is_multiple_of(SECTOR_BYTES) {
        return Ok(());
    }
    let expected = format!("a multiple of {SECTOR_BYTES} bytes, more than 0");
    Err(CoordinatorError::Invalid { what: "size of a volume", expected, got: size.to_string() })
}

/// A write changes one data block, and a commit the parities that follow from it: that every [`Code`] is systematic is enough.
fn check_code(code: &dyn Code, block_bytes: u64, size: u64) -> Result<()> {
    let invalid = |what, expected: String, got: String| CoordinatorError::Invalid { what, expected, got };
    if code.distance() < 2 {
        let expected = "one that bears the loss of a block".into();
        return Err(invalid("code of a volume", expected, code.name().into()));
    }
    let most = u64::from(MOST_STEP_BYTES);
    if !block_bytes.is_multiple_of(4096) || !(4096..=most).contains(&block_bytes) {
        let expected = format!("a multiple of 4096 from 4096 to {most} bytes");
        return Err(invalid("block of a volume", expected, block_bytes.to_string()));
    }
    // The cell is the block: each data block holds a contiguous part of the stripe.
    let stripe = block_bytes * code.k() as u64;
    Division::new(stripe, code.k(), code.w(), LayoutKind::Striped, block_bytes, block_bytes as u32)?;
    check_stripes(size, stripe, block_bytes)
}

/// The stripes of a volume can be numbered.
pub fn check_stripes(size: u64, stripe: u64, block_bytes: u64) -> Result<()> {
    if size.div_ceil(stripe) <= MOST_STRIPES {
        return Ok(());
    }
    let expected = format!("at most {} bytes with blocks of {block_bytes}", stripe * MOST_STRIPES);
    Err(CoordinatorError::Invalid { what: "size of a volume", expected, got: size.to_string() })
}

/// A random number other than 0.
pub fn random() -> Result<u64> {
    let random = getrandom::u64();
    random
        .map(|id| id.max(1))
        .map_err(|error| CoordinatorError::Internal(format!("no random numbers: {error}")))
}
