//! Says where an object is: returns the object, a page of its stripes, and all nodes. Reads one snapshot.

use std::sync::Arc;

use kintsu_wire::message::{Lookup, ObjectView};

use crate::cluster::Cluster;
use crate::error::Result;

/// Most stripes in one answer, so that it stays well below the size limit of messages.
const MOST_STRIPES: u64 = 16_384;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Lookup) -> Result<ObjectView> {
    let Lookup { name, first, limit } = request;
    let (object, stripes, definition) = cluster
        .meta
        .off(move |meta| {
            let snapshot = meta.snapshot()?;
            let object = snapshot.object(&name)?;
            let stripes = snapshot.stripes(&object, first, limit.min(MOST_STRIPES))?;
            let definition = if limit == 0 { None } else { snapshot.definition(object.code)? };
            Ok((snapshot.object_info(&name)?, stripes, definition))
        })
        .await?;
    Ok(ObjectView { object, stripes, definition, nodes: cluster.members().addresses() })
}
