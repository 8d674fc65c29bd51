//! Lists all registered codes.

use std::sync::Arc;

use kintsu_wire::message::{CodeInfo, CodeList};

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<CodeList> {
    let definitions = cluster.meta.off(|meta| meta.snapshot()?.definitions()).await?;
    Ok(CodeList { codes: definitions.iter().map(CodeInfo::from).collect() })
}
