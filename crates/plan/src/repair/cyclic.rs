//! Several chains in turn (the cyclic version of repair pipelining; ECPipe, section 4.1), for a requestor whose links
//! are slow.

use kintsu_dag::chain;

use super::method::MethodRow;
use super::pipeline;
use super::rebuild::parts;
use super::shape::{Rebuild, Rebuilt};
use crate::PlanError;

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "cyclic",
    about: "Several chains, each ending at another helper: for a requestor whose links are slow",
    shape,
    ..pipeline::METHOD
};

/// k-1 paths, each beginning one helper later and delivering from another one.
fn shape(rebuild: &Rebuild<'_>) -> Result<Rebuilt, PlanError> {
    let parts = parts(rebuild.view, &rebuild.graph()?)?;
    let mut routes = rebuild.routes(&parts)?;
    let helpers = routes.concat();
    let longest = routes.iter().map(Vec::len).max().unwrap_or(0);
    let mut lanes = vec![rebuild.lane(&parts, &routes, chain, None)?];
    for _ in 2..longest {
        routes.iter_mut().for_each(|route| route.rotate_left(1));
        lanes.push(rebuild.lane(&parts, &routes, chain, None)?);
    }
    Ok(Rebuilt { lanes, helpers, path_is_best: None })
}
