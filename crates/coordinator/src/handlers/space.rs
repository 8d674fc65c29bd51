//! How much is stored, how much is free, and how much data of each code still fits.

use std::sync::Arc;

use kintsu_code::{Code, USER};
use kintsu_wire::message::{AskSpace, Space};

use crate::cluster::Cluster;
use crate::engine::space::{code_space, space};
use crate::error::Result;
use crate::meta::Meta;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: AskSpace) -> Result<Space> {
    let codes = match request.codes.is_empty() {
        true => recorded(cluster).await?.into_iter().map(|(_, code)| code).collect(),
        false => named(cluster, request.codes).await?,
    };
    let (mut space, topology) = space(&cluster.members());
    space.codes = codes.iter().map(|code| code_space(code.as_ref(), &topology)).collect();
    Ok(space)
}

/// The codes that were ever used or registered, with their keys.
pub async fn recorded(cluster: &Arc<Cluster>) -> Result<Vec<(u16, Arc<dyn Code>)>> {
    let worker = cluster.clone();
    let find = move |meta: &Meta| {
        let keys = meta.snapshot()?.code_keys()?;
        keys.into_iter().map(|key| Ok((key, worker.code(key)?))).collect::<Result<Vec<_>>>()
    };
    cluster.meta.off(find).await
}

async fn named(cluster: &Arc<Cluster>, names: Vec<String>) -> Result<Vec<Arc<dyn Code>>> {
    let mut codes = Vec::new();
    for name in names {
        codes.push(match name.starts_with(USER) {
            true => cluster.registered(name).await?.0,
            // A code is proved here, away from the asynchronous threads.
            false => cluster.meta.off(move |_| Ok(kintsu_code::parse(&name)?)).await?,
        });
    }
    Ok(codes)
}
