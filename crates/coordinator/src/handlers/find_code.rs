//! Returns the definition of a registered code.

use std::sync::Arc;

use kintsu_code::Definition;
use kintsu_wire::message::CodeName;

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: CodeName) -> Result<Definition> {
    Ok(cluster.registered(request.name).await?.1)
}
