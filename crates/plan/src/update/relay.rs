//! The fewest crossings without replicas: racks also pass on what they received, and combinations of it.
//!
//! Racks are served one after the other. A rack that was served knows more than its own deltas, and may serve the next
//! one with fewer messages: for example, one delta in each of three racks and one parity in each takes four messages,
//! not six: two racks send theirs to the third, which sends each a combination. First, one rack (the hub) may get all deltas of some racks. All hubs, sets of racks and
//! orders are tried, and the search ends at the bound. That no graph has fewer crossings is known only where the
//! bound is reached; tests count how often it is.

use super::direct::from_one;
use super::message::{Message, combination};
use super::pairs;
use super::scene::Scene;

/// With more racks, or coefficients, the search would take too long: then each pair of racks stands for itself.
const MOST_RACKS: usize = 4;
const MOST_COEFFICIENTS: usize = 1024;

/// The messages, and no fewer than `bound` if the bound is right.
pub(super) fn messages(scene: &Scene<'_>, bound: usize) -> Vec<Message> {
    let mut best = pairs::selective(scene);
    if scene.racks.len() > MOST_RACKS || scene.rows.as_slice().len() > MOST_COEFFICIENTS {
        return best;
    }
    let served: Vec<usize> =
        (0..scene.racks.len()).filter(|rack| !scene.racks[*rack].targets.is_empty()).collect();
    let orders = orders(&served);
    for (hub, givers) in hubs(scene) {
        let mut start = State::new(scene);
        if let Some(hub) = hub {
            givers.iter().for_each(|&giver| start.give_all(hub, giver));
        }
        for order in &orders {
            if best.len() <= bound {
                return best;
            }
            let mut state = start.clone();
            let finished = order.iter().all(|&rack| state.serve(rack, best.len()));
            if finished && state.sent.len() < best.len() {
                best = state.sent;
            }
        }
    }
    best
}

/// No hub; then each rack as a hub for each set of other racks with deltas.
fn hubs(scene: &Scene<'_>) -> Vec<(Option<usize>, Vec<usize>)> {
    let mut hubs = vec![(None, Vec::new())];
    for hub in 0..scene.racks.len() {
        let others: Vec<usize> = (0..scene.racks.len())
            .filter(|other| *other != hub && !scene.racks[*other].own.is_empty())
            .collect();
        for mask in 1..1usize << others.len() {
            let givers = others.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
            hubs.push((Some(hub), givers.map(|(_, rack)| *rack).collect()));
        }
    }
    hubs
}

fn orders(items: &[usize]) -> Vec<Vec<usize>> {
    if items.len() < 2 {
        return vec![items.to_vec()];
    }
    let first = |(at, &item): (usize, &usize)| {
        let rest: Vec<usize> =
            items.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, item)| *item).collect();
        orders(&rest).into_iter().map(move |rest| [vec![item], rest].concat()).collect::<Vec<_>>()
    };
    items.iter().enumerate().flat_map(first).collect()
}

/// What each rack knows after some messages.
#[derive(Clone)]
struct State<'a> {
    scene: &'a Scene<'a>,
    known: Vec<Vec<Vec<u8>>>,
    sent: Vec<Message>,
}

impl<'a> State<'a> {
    fn new(scene: &'a Scene<'a>) -> Self {
        let own =
            |rack: &super::scene::Rack| rack.own.iter().map(|(column, _)| scene.unit(*column)).collect();
        Self { scene, known: scene.racks.iter().map(own).collect(), sent: Vec::new() }
    }

    fn knows(&self, rack: usize, vector: &[u8]) -> bool {
        combination(self.known[rack].iter().map(Vec::as_slice), vector).is_some()
    }

    fn send(&mut self, message: Message) {
        self.known[message.to].push(message.vector.clone());
        self.sent.push(message);
    }

    fn give_all(&mut self, hub: usize, giver: usize) {
        for &(column, _) in &self.scene.racks[giver].own {
            let vector = self.scene.unit(column);
            self.send(Message { from: giver, to: hub, vector, node: None });
        }
    }

    /// Sends a rack what its parities lack. Gives up when that takes `most` messages or more in all.
    fn serve(&mut self, to: usize, most: usize) -> bool {
        let rows = self.scene.rows_of(to);
        loop {
            let open: Vec<usize> =
                rows.iter().copied().filter(|row| !self.knows(to, self.scene.rows.row(*row))).collect();
            if open.is_empty() {
                return true;
            }
            if self.sent.len() >= most {
                return false;
            }
            if !self.send_whole(to, &open) {
                self.send_parts(to, &open);
            }
        }
    }

    /// Sends, from the rack that can complete most of these rows, one message for each. False if no rack can
    /// complete any.
    fn send_whole(&mut self, to: usize, open: &[usize]) -> bool {
        let others = (0..self.known.len()).filter(|from| *from != to);
        let offers = others.map(|from| {
            let vectors = open.iter().filter_map(|&row| self.completing(from, to, self.scene.rows.row(row)));
            (from, vectors.collect::<Vec<_>>())
        });
        let Some((from, vectors)) = offers.max_by_key(|(from, vectors)| (vectors.len(), usize::MAX - from))
        else {
            return false;
        };
        let offered = !vectors.is_empty();
        for vector in vectors {
            if !self.knows(to, &vector) {
                self.send(Message { from, to, vector, node: None });
            }
        }
        offered
    }

    /// What rack `from` can send so that rack `to` can compute a row that it cannot compute yet.
    fn completing(&self, from: usize, to: usize, row: &[u8]) -> Option<Vec<u8>> {
        let (own, other) = (&self.known[to], &self.known[from]);
        let both = own.iter().chain(other).map(Vec::as_slice);
        let coefs = combination(both, row)?;
        let mut vector = vec![0; row.len()];
        for (known, &coef) in other.iter().zip(&coefs[own.len()..]) {
            kintsu_algebra::add_scaled(&mut vector, known, coef);
        }
        // A multiple of one delta: the delta itself, which others may use too.
        if let [at] =
            vector.iter().enumerate().filter(|(_, c)| **c != 0).map(|(at, _)| at).collect::<Vec<_>>()[..]
        {
            vector[at] = 1;
        }
        Some(vector)
    }

    /// Sends what the rack with most of the missing deltas adds to these rows.
    fn send_parts(&mut self, to: usize, open: &[usize]) {
        let needed = |column: &usize| open.iter().any(|row| self.scene.rows.row(*row)[*column] != 0);
        let missing: Vec<usize> = (0..self.scene.symbols.len())
            .filter(|column| needed(column) && !self.knows(to, &self.scene.unit(*column)))
            .collect();
        let others = (0..self.known.len()).filter(|from| *from != to);
        let offers = others.map(|from| {
            let here = missing.iter().copied().filter(|column| self.knows(from, &self.scene.unit(*column)));
            (from, here.collect::<Vec<_>>())
        });
        if let Some((from, columns)) = offers.max_by_key(|(from, here)| (here.len(), usize::MAX - from)) {
            for message in from_one(self.scene, from, to, open, &columns) {
                self.send(message);
            }
        }
    }
}
