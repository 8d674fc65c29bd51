//! Graphs as drawings: every box, edge and frame with its position, as data.
//!
//! [`Ecdag::to_svg`] and its siblings write them as SVG documents (`svg.rs`); a page draws them itself. So both look the
//! same. Leaves are on the left, targets on the right.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::layout::{BOX_HEIGHT, BOX_WIDTH, FRAME, Layout};
use crate::{DagError, Ecdag, NodeId, Placed, RackId, Vertex};

/// A graph with the position of everything in it. Lengths are in pixels; x goes to the right, y down.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drawing {
    /// Width of all.
    pub width: f64,
    /// Height of all.
    pub height: f64,
    /// The vertices.
    pub boxes: Vec<DrawnBox>,
    /// The edges, from child to parent.
    pub edges: Vec<DrawnEdge>,
    /// The joint computations.
    pub frames: Vec<DrawnFrame>,
}

/// A vertex.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DrawnBox {
    /// Which vertex.
    pub vertex: Vertex,
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
    /// `v5`, or `v20 = b2.4` where blocks have sub-blocks.
    pub name: String,
    /// Where it is loaded or computed, and where it goes if that is another node; `None` in a graph without places.
    pub place: Option<String>,
    /// The node that loads or computes it.
    pub node: Option<NodeId>,
    /// `#rrggbb`; the same for all vertices of a node, or of a rack.
    pub colour: Option<String>,
    /// It is a symbol, not a partial sum.
    pub symbol: bool,
    /// It is a symbol that the graph computes.
    pub target: bool,
}

/// An edge.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DrawnEdge {
    /// The child.
    pub from: Vertex,
    /// The parent, which adds `coef` times the child.
    pub to: Vertex,
    /// The coefficient.
    pub coef: u8,
    /// It stays on its node; else it is a transfer.
    pub local: bool,
    /// Where it starts: x and y.
    pub start: (f64, f64),
    /// Where it ends.
    pub end: (f64, f64),
}

/// The frame around the members of a joint computation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DrawnFrame {
    /// The vertex that stands for it.
    pub unit: Vertex,
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Ecdag {
    /// The graph as a drawing; edges that `bind_y` keeps on one node are local.
    ///
    /// # Errors
    /// `Cycle` when the graph has no layers, `Invalid` when it is too large.
    pub fn drawing(&self) -> Result<Drawing, DagError> {
        let local = |child, parent| self.binds_y().get(&self.unit_of(parent)) == Some(&child);
        let look = |_| Look::default();
        Ok(drawn(self, &Layout::new(self, &[])?, &look, &local))
    }
}

impl Placed {
    /// The graph as a drawing, a colour for each node.
    ///
    /// # Errors
    /// As [`Ecdag::drawing`].
    pub fn drawing(&self) -> Result<Drawing, DagError> {
        self.described(&|node| (u64::from(node.0), node.to_string()))
    }

    /// The graph as a drawing, a colour for each rack.
    ///
    /// # Errors
    /// As [`Ecdag::drawing`].
    pub fn drawing_by_rack(&self, rack_of: &dyn Fn(NodeId) -> RackId) -> Result<Drawing, DagError> {
        self.described(&|node| (u64::from(rack_of(node).0), format!("{node} {}", rack_of(node))))
    }

    /// Draws with a colour for each distinct key of the nodes, and nodes named as given.
    fn described(&self, describe: &dyn Fn(NodeId) -> (u64, String)) -> Result<Drawing, DagError> {
        let layout = Layout::new(&self.graph, &self.loose())?;
        let nodes: BTreeMap<Vertex, NodeId> =
            layout.corners.keys().filter_map(|v| Some((*v, self.node_of(*v)?))).collect();
        let mut hues: BTreeMap<u64, usize> = nodes.values().map(|node| (describe(*node).0, 0)).collect();
        hues.values_mut().enumerate().for_each(|(i, hue)| *hue = i);
        let look = |vertex| {
            let node = nodes.get(&vertex).copied();
            let described = node.map(describe);
            let colour = described.as_ref().map(|(key, _)| colour(hues[key]));
            let mut place = described.map(|(_, name)| name);
            if let Some((sink, _)) = self.persist_at.get(&vertex).filter(|(n, _)| node != Some(*n)) {
                place = Some(format!("{} \u{2192} {sink}", place.unwrap_or_default()));
            }
            Look { place, node, colour }
        };
        let local = |child, parent| nodes.contains_key(&child) && nodes.get(&child) == nodes.get(&parent);
        Ok(drawn(&self.graph, &layout, &look, &local))
    }
}

/// What a box shows besides its vertex.
#[derive(Default)]
struct Look {
    place: Option<String>,
    node: Option<NodeId>,
    colour: Option<String>,
}

/// Puts everything in its place. `local` says whether the edge from a child to a parent stays on one node.
fn drawn(
    graph: &Ecdag,
    layout: &Layout,
    look: &dyn Fn(Vertex) -> Look,
    local: &dyn Fn(Vertex, Vertex) -> bool,
) -> Drawing {
    let boxes = layout.corners.iter().map(|(&vertex, &(x, y))| {
        let Look { place, node, colour } = look(vertex);
        let symbol = graph.is_symbol(vertex);
        DrawnBox {
            vertex,
            x,
            y,
            width: BOX_WIDTH,
            height: BOX_HEIGHT,
            name: name(graph, vertex),
            place,
            node,
            colour,
            symbol,
            target: symbol && graph.joins().contains_key(&vertex),
        }
    });
    let edges = graph.joins().iter().flat_map(|(&to, join)| {
        join.children.iter().zip(&join.coefs).map(move |(&from, &coef)| {
            let (left, right) = (layout.corners[&from], layout.corners[&to]);
            let start = (left.0 + BOX_WIDTH, left.1 + BOX_HEIGHT / 2.0);
            let end = (right.0, right.1 + BOX_HEIGHT / 2.0);
            DrawnEdge { from, to, coef, local: local(from, to), start, end }
        })
    });
    let framed = layout.clusters.iter().filter(|cluster| graph.bind_of(cluster.unit).is_some());
    let frames = framed.map(|cluster| DrawnFrame {
        unit: cluster.unit,
        x: cluster.x - 5.0,
        y: cluster.y + FRAME - 5.0,
        width: BOX_WIDTH + 10.0,
        height: cluster.height - 2.0 * FRAME + 10.0,
    });
    Drawing {
        width: layout.width,
        height: layout.height,
        boxes: boxes.collect(),
        edges: edges.collect(),
        frames: frames.collect(),
    }
}

/// The name of a vertex: with its block and sub-block where blocks have several.
fn name(graph: &Ecdag, vertex: Vertex) -> String {
    let w = graph.w();
    match graph.is_symbol(vertex) && w > 1 {
        true => format!("{vertex} = b{}.{}", vertex.0 as usize / w, vertex.0 as usize % w),
        false => vertex.to_string(),
    }
}

/// Very different colours for neighbouring numbers: hues that are a golden angle apart. As `#rrggbb`, because some
/// viewers paint `hsl()` black.
fn colour(number: usize) -> String {
    let hue = (number as f64 * 137.508) % 360.0;
    let lightness = 0.84 - (number / 12 % 3) as f64 * 0.08;
    let chroma = 0.65 * (1.0 - (2.0 * lightness - 1.0).abs());
    // CSS Color 4, section 7.1: each channel is a trapezoid over the hue.
    let channel = |offset: f64| {
        let turn = (offset + hue / 30.0) % 12.0;
        let part = lightness - chroma / 2.0 * (turn - 3.0).min(9.0 - turn).clamp(-1.0, 1.0);
        (part * 255.0).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", channel(0.0), channel(8.0), channel(4.0))
}

#[cfg(test)]
mod tests {
    use super::colour;

    #[test]
    fn colours_are_plain_and_differ() {
        // hsl(0, 65%, 84%) and hsl(138, 65%, 84%).
        assert_eq!([colour(0), colour(1)], ["#f1bcbc", "#bcf1cb"]);
        let all: std::collections::BTreeSet<_> = (0..36).map(colour).collect();
        assert_eq!(all.len(), 36);
    }
}
