//! Measures the links of all nodes that live, and tells what is known then.

use std::sync::Arc;

use kintsu_wire::message::KnownRates;

use super::known_rates;
use crate::cluster::Cluster;
use crate::driver::measure;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<KnownRates> {
    measure(cluster).await?;
    known_rates::handle(cluster).await
}
