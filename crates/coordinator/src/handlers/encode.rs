//! Encodes an object that was written with offline encoding. Stripes that are encoded already are left as they
//! are, so an interrupted encoding can be continued by the same call.

use std::sync::Arc;

use kintsu_wire::message::Encode;

use crate::cluster::Cluster;
use crate::driver::{self, Job, Listener};
use crate::engine::jobs::Work;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Encode, listener: Listener) -> Result<()> {
    let name = request.name.clone();
    cluster.meta.off(move |meta| meta.snapshot()?.object(&name)).await?;
    let what = format!("object {:?}", request.name);
    let job = Job::begin(cluster, Work::Encode, what, Some(listener));
    cluster.spawn(driver::encode(cluster.clone(), request, job));
    Ok(())
}
