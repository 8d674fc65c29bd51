//! Which codes are in use: a scan of the objects until every recorded code was seen, so it is short where all codes are in
//! use. The result of a long one is reused like that of a scan for damage.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::damage::reused_until;
use crate::cluster::Cluster;
use crate::error::Result;

/// The last scan.
#[derive(Debug, Clone, Default)]
pub struct UsedCodes {
    keys: BTreeSet<u16>,
    until_ms: u64,
}

/// The keys of the codes that an object, a put under way or a volume has, now or a short while ago.
///
/// # Errors
/// The metadata cannot be read.
pub async fn used_codes(cluster: &Arc<Cluster>) -> Result<BTreeSet<u16>> {
    let known = cluster.used_codes().clone();
    let started_ms = cluster.now_ms();
    if started_ms < known.until_ms {
        return Ok(known.keys);
    }
    let (keys, looked) = cluster.meta.off(|meta| meta.snapshot()?.codes_in_use()).await?;
    let until_ms = reused_until(looked, started_ms, cluster.now_ms());
    *cluster.used_codes() = UsedCodes { keys: keys.clone(), until_ms };
    Ok(keys)
}
