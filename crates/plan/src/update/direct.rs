//! Each rack is served directly by racks that hold deltas, at home or as interim replicas.
//!
//! If one rack, the hub, holds all deltas, each other rack gets from it as many combinations as the rank of what it
//! lacks, and no graph sends less (`bound`). This is what interim replicas are placed for.

use std::collections::{BTreeMap, BTreeSet};

use super::message::{Message, Part, combination};
use super::scene::Scene;

/// One part for each rack with parities.
pub(super) fn parts(scene: &Scene<'_>) -> Vec<Part> {
    let served = (0..scene.racks.len()).filter(|rack| !scene.racks[*rack].targets.is_empty());
    served.map(|rack| serve(scene, rack)).collect()
}

fn serve(scene: &Scene<'_>, rack: usize) -> Part {
    let rows = scene.rows_of(rack);
    let used = |column: &usize| rows.iter().any(|row| scene.rows.row(*row)[*column] != 0);
    let here = scene.racks[rack].known(true);
    let mut sources: BTreeMap<usize, _> =
        here.into_iter().filter(|(column, _)| used(column)).map(|(c, node)| (c, (rack, node))).collect();
    let mut missing: BTreeSet<usize> =
        (0..scene.symbols.len()).filter(used).filter(|column| !sources.contains_key(column)).collect();
    let mut messages = Vec::new();
    while !missing.is_empty() {
        let others = (0..scene.racks.len()).filter(|other| *other != rack);
        let holds = |other: &usize| {
            let known = scene.racks[*other].known(true);
            known.keys().filter(|column| missing.contains(column)).count()
        };
        // The first of equals. Every delta is at least at home, so each turn finds some.
        let Some(from) = others.min_by_key(|other| usize::MAX - holds(other)) else { break };
        let known = scene.racks[from].known(true);
        let taken: Vec<usize> = known.keys().copied().filter(|column| missing.contains(column)).collect();
        if taken.is_empty() {
            break;
        }
        messages.extend(from_one(scene, from, rack, &rows, &taken));
        for column in taken {
            missing.remove(&column);
            sources.insert(column, (from, known[&column]));
        }
    }
    Part { rack, sources, messages }
}

/// The fewest messages with what these columns add to the rows: the deltas themselves, or independent combinations.
pub(super) fn from_one(
    scene: &Scene<'_>,
    from: usize,
    to: usize,
    rows: &[usize],
    columns: &[usize],
) -> Vec<Message> {
    let message = |vector| Message { from, to, vector, node: None };
    if scene.rank(rows, columns) == columns.len() {
        return columns.iter().map(|&column| message(scene.unit(column))).collect();
    }
    independent(rows.iter().map(|&row| scene.part(row, columns))).into_iter().map(message).collect()
}

/// The vectors that are no combination of those before them.
pub(super) fn independent(vectors: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for vector in vectors {
        let zero = vector.iter().all(|coef| *coef == 0);
        if !zero && combination(kept.iter().map(Vec::as_slice), &vector).is_none() {
            kept.push(vector);
        }
    }
    kept
}
