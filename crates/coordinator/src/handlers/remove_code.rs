//! Forgets a registered code that nothing uses.

use std::sync::Arc;

use kintsu_wire::message::{CodeName, Done};

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: CodeName) -> Result<Done> {
    cluster.meta.off(move |meta| meta.remove_code(&request.name)).await?;
    Ok(Done {})
}
