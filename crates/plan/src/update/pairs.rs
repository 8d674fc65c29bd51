//! Each pair of racks for itself (CAU, section 3.2, equation 3): the deltas of i' data blocks go from one rack to
//! another, or the deltas of j' parity blocks.
//!
//! For codes other than Reed-Solomon only data symbols with a coefficient in the other rack count, and only parity
//! symbols with a coefficient for this rack's data.

use super::message::Message;
use super::scene::Scene;

/// Always the deltas of data.
pub(super) fn data_delta(scene: &Scene<'_>) -> Vec<Message> {
    over_pairs(scene, |data, _| data)
}

/// Always the deltas of parities.
pub(super) fn parity_delta(scene: &Scene<'_>) -> Vec<Message> {
    over_pairs(scene, |_, parity| parity)
}

/// The fewer of both; of equals the deltas of data.
pub(super) fn selective(scene: &Scene<'_>) -> Vec<Message> {
    over_pairs(scene, |data, parity| if data.len() <= parity.len() { data } else { parity })
}

fn over_pairs(
    scene: &Scene<'_>,
    choose: impl Fn(Vec<Message>, Vec<Message>) -> Vec<Message>,
) -> Vec<Message> {
    let racks = 0..scene.racks.len();
    let pairs = racks.clone().flat_map(|from| racks.clone().map(move |to| (from, to)));
    pairs
        .filter(|(from, to)| from != to)
        .flat_map(|(from, to)| {
            let (data, parity) = (data(scene, from, to), parity(scene, from, to));
            choose(data, parity)
        })
        .collect()
}

fn data(scene: &Scene<'_>, from: usize, to: usize) -> Vec<Message> {
    let rows = scene.rows_of(to);
    let used = |column: &usize| rows.iter().any(|row| scene.rows.row(*row)[*column] != 0);
    let columns = scene.racks[from].own.iter().map(|(column, _)| *column).filter(used);
    columns.map(|column| Message { from, to, vector: scene.unit(column), node: None }).collect()
}

fn parity(scene: &Scene<'_>, from: usize, to: usize) -> Vec<Message> {
    let columns: Vec<usize> = scene.racks[from].own.iter().map(|(column, _)| *column).collect();
    let targets = scene.racks[to].targets.iter();
    let messages =
        targets.map(|&(row, home)| Message { from, to, vector: scene.part(row, &columns), node: Some(home) });
    messages.filter(|message| message.vector.iter().any(|coef| *coef != 0)).collect()
}
