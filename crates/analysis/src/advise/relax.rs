//! What to change when nothing fits. An MDS code fits wherever any code does, so it is enough to test shapes (n,
//! k).

use crate::advise::{MAX_WIDTH, Relaxation, Requirements};

/// The code of this shape from a family that exists for every shape.
fn mds((n, k): (usize, usize)) -> String {
    format!("rs:n={n},k={k}")
}

/// For each requirement, the smallest change of it alone that lets a code fit, if there is one.
pub(super) fn relaxations(requirements: &Requirements) -> Vec<Relaxation> {
    let found = [
        overhead(requirements),
        tolerate(requirements),
        nodes(requirements),
        widest(requirements),
        racks(requirements),
        any_rack(requirements),
    ];
    found.into_iter().flatten().collect()
}

/// The shape with the least overhead, then the fewest blocks, if any fits.
fn cheapest(requirements: &Requirements) -> Option<(usize, usize)> {
    requirements.shapes().into_iter().min_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)).then(a.cmp(b)))
}

fn overhead(requirements: &Requirements) -> Option<Relaxation> {
    let (n, k) = cheapest(&Requirements { max_overhead: f64::INFINITY, ..requirements.clone() })?;
    // Rounded up, so that the printed value is enough.
    let needed = (n as f64 / k as f64 * 1000.0 - 1e-9).ceil() / 1000.0;
    let change = format!("allow an overhead of {needed} (now {})", requirements.max_overhead);
    Some(Relaxation { change, code: mds((n, k)) })
}

fn tolerate(requirements: &Requirements) -> Option<Relaxation> {
    let fewer = (1..requirements.tolerate).rev();
    first(
        fewer,
        requirements,
        |changed, tolerate| changed.tolerate = tolerate,
        |tolerate| format!("tolerate {tolerate} lost nodes (now {})", requirements.tolerate),
    )
}

fn nodes(requirements: &Requirements) -> Option<Relaxation> {
    let now = requirements.environment.nodes;
    let set = |changed: &mut Requirements, nodes: usize| {
        changed.environment.nodes = nodes;
        changed.widest = changed.widest.max(nodes.min(MAX_WIDTH));
    };
    first(now + 1..=MAX_WIDTH, requirements, set, |nodes| format!("use {nodes} nodes (now {now})"))
}

fn widest(requirements: &Requirements) -> Option<Relaxation> {
    let most = requirements.environment.nodes.min(MAX_WIDTH);
    first(
        requirements.widest + 1..=most,
        requirements,
        |changed, widest| changed.widest = widest,
        |widest| format!("allow stripes of {widest} blocks (now {})", requirements.widest),
    )
}

fn racks(requirements: &Requirements) -> Option<Relaxation> {
    let more = requirements.racks + 1..=requirements.environment.nodes.min(requirements.racks + MAX_WIDTH);
    first(
        more,
        requirements,
        |changed, racks| changed.racks = racks,
        |racks| format!("spread the nodes over {racks} racks (now {})", requirements.racks),
    )
}

fn any_rack(requirements: &Requirements) -> Option<Relaxation> {
    let wanted = requirements.survive_rack.then_some(0);
    first(
        wanted,
        requirements,
        |changed, _| changed.survive_rack = false,
        |_| "drop the requirement to survive the loss of a rack".to_owned(),
    )
}

/// The first value with which something fits.
fn first(
    values: impl IntoIterator<Item = usize>,
    requirements: &Requirements,
    set: impl Fn(&mut Requirements, usize),
    change: impl Fn(usize) -> String,
) -> Option<Relaxation> {
    values.into_iter().find_map(|value| {
        let mut changed = requirements.clone();
        set(&mut changed, value);
        cheapest(&changed).map(|shape| Relaxation { change: change(value), code: mds(shape) })
    })
}
