//! The positions of the boxes in the drawing of a graph.
//!
//! Layers run from left to right. A computation is one layer before the first one that uses it, and the members of
//! a `bind_x` are stacked in one layer. Within a layer, order and height follow the neighbours' heights in a few
//! sweeps, so that chains are straight and trees have no crossings where possible.

use std::collections::BTreeMap;

use crate::{DagError, Ecdag, Vertex};

pub(crate) const BOX_WIDTH: f64 = 76.0;
pub(crate) const BOX_HEIGHT: f64 = 34.0;
const COLUMN: f64 = 150.0;
const GAP: f64 = 14.0;
/// Between the members of one computation.
const STACK: f64 = 4.0;
/// Above and below the members of a joint computation, for its frame.
pub(crate) const FRAME: f64 = 8.0;
const MARGIN: f64 = 24.0;
const SWEEPS: usize = 12;
/// The weight of a leaf, relative to a computation, when heights are averaged.
const LEAF_WEIGHT: f64 = 0.05;

/// The boxes of one joint computation or a single vertex.
pub(crate) struct Cluster {
    /// The vertex, or the one that represents the joint computation.
    pub unit: Vertex,
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Height of all members with the room for a frame.
    pub height: f64,
}

/// All boxes of a graph.
pub(crate) struct Layout {
    pub clusters: Vec<Cluster>,
    /// The upper left corner of each vertex's box.
    pub corners: BTreeMap<Vertex, (f64, f64)>,
    pub width: f64,
    pub height: f64,
}

impl Layout {
    /// Lays out a graph and `loose` vertices beside it.
    ///
    /// # Errors
    /// `Cycle` when it has no layers, `Invalid` when it is too large.
    pub fn new(graph: &Ecdag, loose: &[Vertex]) -> Result<Self, DagError> {
        let mut sketch = Sketch::new(graph, loose)?;
        for sweep in 0..SWEEPS {
            let count = sketch.layers.len();
            for i in 0..count {
                sketch.settle(if sweep % 2 == 0 { count - 1 - i } else { i }, sweep % 2 == 0);
            }
        }
        Ok(sketch.finish(graph))
    }
}

/// The units while the layout is computed.
struct Sketch {
    units: Vec<Vertex>,
    heights: Vec<f64>,
    weights: Vec<f64>,
    children: Vec<Vec<usize>>,
    parents: Vec<Vec<usize>>,
    /// The units of each layer, from top to bottom.
    layers: Vec<Vec<usize>>,
    /// The middle of each unit.
    middles: Vec<f64>,
}

impl Sketch {
    fn new(graph: &Ecdag, loose: &[Vertex]) -> Result<Self, DagError> {
        let units = graph.schedule(loose)?;
        let index: BTreeMap<Vertex, usize> = units.iter().enumerate().map(|(i, unit)| (*unit, i)).collect();
        let mut children = vec![Vec::new(); units.len()];
        let mut parents = vec![Vec::new(); units.len()];
        for (i, unit) in units.iter().enumerate() {
            for child in graph.inputs(*unit) {
                let child = index[&graph.unit_of(child)];
                children[i].push(child);
                parents[child].push(i);
            }
        }
        let stack = |unit: &Vertex| graph.members(unit).len() as f64 * (BOX_HEIGHT + STACK) - STACK;
        let heights: Vec<f64> = units.iter().map(|unit| stack(unit) + 2.0 * frame(graph, *unit)).collect();
        let weights = children.iter().map(|c| if c.is_empty() { LEAF_WEIGHT } else { 1.0 }).collect();
        let layers = layers(&children, &parents);
        let mut middles = vec![0.0; units.len()];
        for layer in &layers {
            let mut y = 0.0;
            for &unit in layer {
                middles[unit] = y + heights[unit] / 2.0;
                y += heights[unit] + GAP;
            }
        }
        Ok(Self { units, heights, weights, children, parents, layers, middles })
    }

    /// Moves the units of a layer towards their parents (or their children), without overlap.
    fn settle(&mut self, layer: usize, to_parents: bool) {
        let mut wanted: Vec<(f64, usize)> = self.layers[layer]
            .iter()
            .map(|&unit| {
                let near = if to_parents { &self.parents[unit] } else { &self.children[unit] };
                let weight: f64 = near.iter().map(|v| self.weights[*v]).sum();
                let sum: f64 = near.iter().map(|v| self.weights[*v] * self.middles[*v]).sum();
                (if near.is_empty() { self.middles[unit] } else { sum / weight }, unit)
            })
            .collect();
        wanted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut bottom, mut off, mut weight) = (f64::NEG_INFINITY, 0.0, 0.0);
        for &(middle, unit) in &wanted {
            let half = self.heights[unit] / 2.0;
            self.middles[unit] = middle.max(bottom + GAP + half);
            bottom = self.middles[unit] + half;
            off += self.weights[unit] * (self.middles[unit] - middle);
            weight += self.weights[unit];
        }
        for &(_, unit) in &wanted {
            self.middles[unit] -= off / weight;
        }
        self.layers[layer] = wanted.into_iter().map(|(_, unit)| unit).collect();
    }

    fn finish(self, graph: &Ecdag) -> Layout {
        let tops: Vec<f64> = self.middles.iter().zip(&self.heights).map(|(m, h)| m - h / 2.0).collect();
        let up = tops.iter().copied().fold(f64::INFINITY, f64::min);
        let mut clusters = Vec::with_capacity(self.units.len());
        let mut corners = BTreeMap::new();
        for (column, layer) in self.layers.iter().enumerate() {
            for &at in layer {
                let (unit, height) = (self.units[at], self.heights[at]);
                let (x, y) = (MARGIN + column as f64 * COLUMN, MARGIN + tops[at] - up);
                for (i, member) in graph.members(&unit).iter().enumerate() {
                    let down = frame(graph, unit) + i as f64 * (BOX_HEIGHT + STACK);
                    corners.insert(*member, (x, y + down));
                }
                clusters.push(Cluster { unit, x, y, height });
            }
        }
        let right = clusters.iter().map(|c| c.x + BOX_WIDTH).fold(MARGIN, f64::max);
        let bottom = clusters.iter().map(|c| c.y + c.height).fold(MARGIN, f64::max);
        Layout { clusters, corners, width: right + MARGIN, height: bottom + MARGIN }
    }
}

/// The room for a frame above a unit's boxes, and below them.
fn frame(graph: &Ecdag, unit: Vertex) -> f64 {
    if graph.bind_of(unit).is_some() { FRAME } else { 0.0 }
}

/// Units by layer: a sink is as deep as its longest path; every other unit is one layer before its first user.
fn layers(children: &[Vec<usize>], parents: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut depth = vec![0; children.len()];
    for unit in 0..children.len() {
        depth[unit] = children[unit].iter().map(|c| depth[*c] + 1).max().unwrap_or(0);
    }
    for unit in (0..children.len()).rev() {
        if let Some(first) = parents[unit].iter().map(|p| depth[*p]).min() {
            depth[unit] = first - 1;
        }
    }
    let mut layers = vec![Vec::new(); depth.iter().max().map_or(0, |deepest| deepest + 1)];
    for (unit, depth) in depth.into_iter().enumerate() {
        layers[depth].push(unit);
    }
    layers
}
