//! Graphs as standalone SVG pictures, from leaves on the left to targets on the right.
//!
//! A box is a vertex, coloured by its node or rack: square for symbols, rounded for partial sums, with a heavy
//! border for targets. A dashed frame is a joint computation. A dark edge is a transfer between nodes, a pale one
//! stays on its node. Coefficients other than 1 are written on the edges if there are few edges.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::layout::{BOX_HEIGHT, BOX_WIDTH, FRAME, Layout};
use crate::{DagError, Ecdag, NodeId, Placed, RackId, Vertex};

/// Up to this many edges, coefficients are shown and can be read.
const LABELLED_EDGES: usize = 32;
const CAPTION_HEIGHT: f64 = 20.0;

impl Ecdag {
    /// The graph as an SVG document; edges that `bind_y` keeps on one node are pale.
    ///
    /// # Errors
    /// `Cycle` when the graph has no layers, `Invalid` when it is too large.
    pub fn to_svg(&self) -> Result<String, DagError> {
        let local = |child, parent| self.binds_y().get(&self.unit_of(parent)) == Some(&child);
        let look = |_| Look { label: None, colour: None };
        Ok(Picture { graph: self, layout: Layout::new(self, &[])?, look: &look, local: &local }.draw())
    }
}

impl Placed {
    /// The graph as an SVG document, a colour for each node.
    ///
    /// # Errors
    /// As [`Ecdag::to_svg`].
    pub fn to_svg(&self) -> Result<String, DagError> {
        self.draw(&|node| (u64::from(node.0), node.to_string()))
    }

    /// The graph as an SVG document, a colour for each rack.
    ///
    /// # Errors
    /// As [`Ecdag::to_svg`].
    pub fn to_svg_by_rack(&self, rack_of: &dyn Fn(NodeId) -> RackId) -> Result<String, DagError> {
        self.draw(&|node| (u64::from(rack_of(node).0), format!("{node} {}", rack_of(node))))
    }

    /// Draws with a colour for each distinct key of the nodes, and nodes named as given.
    fn draw(&self, describe: &dyn Fn(NodeId) -> (u64, String)) -> Result<String, DagError> {
        let layout = Layout::new(&self.graph, &self.loose())?;
        let nodes: BTreeMap<Vertex, NodeId> =
            layout.corners.keys().filter_map(|v| Some((*v, self.node_of(*v)?))).collect();
        let mut hues: BTreeMap<u64, usize> = nodes.values().map(|node| (describe(*node).0, 0)).collect();
        hues.values_mut().enumerate().for_each(|(i, hue)| *hue = i);
        let look = |vertex| {
            let described = nodes.get(&vertex).map(|node| describe(*node));
            let colour = described.as_ref().map(|(key, _)| colour(hues[key]));
            let mut label = described.map(|(_, name)| name);
            if let Some((sink, _)) =
                self.persist_at.get(&vertex).filter(|(n, _)| nodes.get(&vertex) != Some(n))
            {
                label = Some(format!("{} \u{2192} {sink}", label.unwrap_or_default()));
            }
            Look { label, colour }
        };
        let local = |child, parent| nodes.contains_key(&child) && nodes.get(&child) == nodes.get(&parent);
        Ok(Picture { graph: &self.graph, layout, look: &look, local: &local }.draw())
    }
}

/// What a box shows besides its vertex.
struct Look {
    label: Option<String>,
    colour: Option<String>,
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

struct Picture<'a> {
    graph: &'a Ecdag,
    layout: Layout,
    look: &'a dyn Fn(Vertex) -> Look,
    /// Whether the edge from a child to a parent stays on one node.
    local: &'a dyn Fn(Vertex, Vertex) -> bool,
}

impl Picture<'_> {
    fn draw(&self) -> String {
        let mut svg = String::new();
        let (width, height) = (self.layout.width.max(320.0), self.layout.height + CAPTION_HEIGHT);
        let _ = writeln!(
            svg,
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="sans-serif" font-size="12" text-anchor="middle">
<rect width="100%" height="100%" fill="#fff"/>"##
        );
        let edges = self.graph.joins().values().map(|join| join.children.len()).sum::<usize>();
        let labelled = edges <= LABELLED_EDGES;
        for cluster in &self.layout.clusters {
            if self.graph.bind_of(cluster.unit).is_some() {
                self.draw_frame(&mut svg, cluster.unit, cluster.x, cluster.y, cluster.height);
            }
        }
        self.draw_edges(&mut svg, labelled);
        for (&vertex, &corner) in &self.layout.corners {
            self.draw_box(&mut svg, vertex, corner);
        }
        let caption = match labelled {
            true => "An edge without a number has coefficient 1.".to_string(),
            false => format!("The coefficients of {edges} edges are left out."),
        };
        let _ = writeln!(
            svg,
            r##"<text x="24" y="{:.0}" text-anchor="start" font-size="11" fill="#777">{caption}</text>
</svg>"##,
            height - 10.0
        );
        svg
    }

    fn draw_frame(&self, svg: &mut String, unit: Vertex, x: f64, y: f64, height: f64) {
        let _ = writeln!(
            svg,
            r##"<rect x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}" rx="6" fill="#f6f6f6" stroke="#777" stroke-dasharray="4 3"/>
<text x="{:.1}" y="{:.1}" font-size="9" text-anchor="end" fill="#777">{unit}</text>"##,
            x - 5.0,
            y + FRAME - 5.0,
            BOX_WIDTH + 10.0,
            height - 2.0 * FRAME + 10.0,
            x + BOX_WIDTH + 4.0,
            y + height + 5.0,
        );
    }

    /// Draws all edges, and their coefficients on top of them.
    fn draw_edges(&self, svg: &mut String, labelled: bool) {
        let mut labels = String::new();
        for (&parent, join) in self.graph.joins() {
            for (&child, &coef) in join.children.iter().zip(&join.coefs) {
                let (from, to) = (self.layout.corners[&child], self.layout.corners[&parent]);
                let (x1, y1) = (from.0 + BOX_WIDTH, from.1 + BOX_HEIGHT / 2.0);
                let (x2, y2) = (to.0, to.1 + BOX_HEIGHT / 2.0);
                let bend = (x2 - x1) / 2.0;
                let stroke = if (self.local)(child, parent) { "#c4c4c4" } else { "#444" };
                let _ = writeln!(
                    svg,
                    r##"<path d="M{x1:.1} {y1:.1}C{:.1} {y1:.1} {:.1} {y2:.1} {x2:.1} {y2:.1}" fill="none" stroke="{stroke}" stroke-width="1.3"/>"##,
                    x1 + bend,
                    x2 - bend,
                );
                if labelled && coef != 1 {
                    let (x, y) = along(0.3, (x1, y1), (x2, y2));
                    let _ = writeln!(
                        labels,
                        r##"<text x="{x:.1}" y="{:.1}" font-size="10" fill="#a33" stroke="#fff" stroke-width="3" paint-order="stroke">{coef:02x}</text>"##,
                        y + 3.5,
                    );
                }
            }
        }
        svg.push_str(&labels);
    }

    fn draw_box(&self, svg: &mut String, vertex: Vertex, (x, y): (f64, f64)) {
        let Look { label, colour } = (self.look)(vertex);
        let target = self.graph.is_symbol(vertex) && self.graph.joins().contains_key(&vertex);
        let radius = if self.graph.is_symbol(vertex) { 2.0 } else { BOX_HEIGHT / 2.0 };
        let name = match self.graph.is_symbol(vertex) && self.graph.w() > 1 {
            true => {
                format!(
                    "{vertex} = b{}.{}",
                    vertex.0 as usize / self.graph.w(),
                    vertex.0 as usize % self.graph.w()
                )
            }
            false => vertex.to_string(),
        };
        let middle = x + BOX_WIDTH / 2.0;
        let base = y + BOX_HEIGHT / 2.0 + if label.is_some() { -2.0 } else { 4.0 };
        let _ = writeln!(
            svg,
            r##"<rect x="{x:.1}" y="{y:.1}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="{radius}" fill="{}" stroke="#333" stroke-width="{}"/>
<text x="{middle:.1}" y="{base:.1}">{name}</text>"##,
            colour.as_deref().unwrap_or("#eee"),
            if target { 2.5 } else { 1.0 },
        );
        if let Some(label) = label {
            let _ = writeln!(
                svg,
                r##"<text x="{middle:.1}" y="{:.1}" font-size="10" fill="#333">{label}</text>"##,
                base + 13.0
            );
        }
    }
}

/// The point of an edge's curve at `t` from 0 (child) to 1 (parent).
fn along(t: f64, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> (f64, f64) {
    let middle = (x1 + x2) / 2.0;
    let s = 1.0 - t;
    let curve = |a: f64, b: f64, c: f64, d: f64| {
        s * s * s * a + 3.0 * s * s * t * b + 3.0 * s * t * t * c + t * t * t * d
    };
    (curve(x1, middle, middle, x2), curve(y1, y1, y2, y2))
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
