//! Graphs as standalone SVG pictures, from leaves on the left to targets on the right.
//!
//! A box is a vertex, coloured by its node or rack: square for symbols, rounded for partial sums, with a heavy
//! border for targets. A dashed frame is a joint computation. A dark edge is a transfer between nodes, a pale one
//! stays on its node. Coefficients other than 1 are written on the edges if there are few edges.

use std::fmt::Write;

use crate::drawing::{Drawing, DrawnBox, DrawnEdge, DrawnFrame};
use crate::{DagError, Ecdag, NodeId, Placed, RackId};

/// Up to this many edges, coefficients are shown and can be read.
const LABELLED_EDGES: usize = 32;
const CAPTION_HEIGHT: f64 = 20.0;

impl Ecdag {
    /// The graph as an SVG document; edges that `bind_y` keeps on one node are pale.
    ///
    /// # Errors
    /// `Cycle` when the graph has no layers, `Invalid` when it is too large.
    pub fn to_svg(&self) -> Result<String, DagError> {
        Ok(self.drawing()?.to_svg())
    }
}

impl Placed {
    /// The graph as an SVG document, a colour for each node.
    ///
    /// # Errors
    /// As [`Ecdag::to_svg`].
    pub fn to_svg(&self) -> Result<String, DagError> {
        Ok(self.drawing()?.to_svg())
    }

    /// The graph as an SVG document, a colour for each rack.
    ///
    /// # Errors
    /// As [`Ecdag::to_svg`].
    pub fn to_svg_by_rack(&self, rack_of: &dyn Fn(NodeId) -> RackId) -> Result<String, DagError> {
        Ok(self.drawing_by_rack(rack_of)?.to_svg())
    }
}

impl Drawing {
    /// The drawing as an SVG document.
    pub fn to_svg(&self) -> String {
        let mut svg = String::new();
        let (width, height) = (self.width.max(320.0), self.height + CAPTION_HEIGHT);
        let _ = writeln!(
            svg,
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="sans-serif" font-size="12" text-anchor="middle">
<rect width="100%" height="100%" fill="#fff"/>"##
        );
        let labelled = self.edges.len() <= LABELLED_EDGES;
        self.frames.iter().for_each(|frame| draw_frame(&mut svg, frame));
        draw_edges(&mut svg, &self.edges, labelled);
        self.boxes.iter().for_each(|drawn| draw_box(&mut svg, drawn));
        let caption = match labelled {
            true => "An edge without a number has coefficient 1.".to_string(),
            false => format!("The coefficients of {} edges are left out.", self.edges.len()),
        };
        let _ = writeln!(
            svg,
            r##"<text x="24" y="{:.0}" text-anchor="start" font-size="11" fill="#777">{caption}</text>
</svg>"##,
            height - 10.0
        );
        svg
    }
}

fn draw_frame(svg: &mut String, frame: &DrawnFrame) {
    let DrawnFrame { unit, x, y, width, height } = frame;
    let _ = writeln!(
        svg,
        r##"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="6" fill="#f6f6f6" stroke="#777" stroke-dasharray="4 3"/>
<text x="{:.1}" y="{:.1}" font-size="9" text-anchor="end" fill="#777">{unit}</text>"##,
        x + width - 1.0,
        // Just below the frame.
        y + height + 8.0,
    );
}

/// Draws all edges, and their coefficients on top of them.
fn draw_edges(svg: &mut String, edges: &[DrawnEdge], labelled: bool) {
    let mut labels = String::new();
    for edge in edges {
        let ((x1, y1), (x2, y2)) = (edge.start, edge.end);
        let bend = (x2 - x1) / 2.0;
        let stroke = if edge.local { "#c4c4c4" } else { "#444" };
        let _ = writeln!(
            svg,
            r##"<path d="M{x1:.1} {y1:.1}C{:.1} {y1:.1} {:.1} {y2:.1} {x2:.1} {y2:.1}" fill="none" stroke="{stroke}" stroke-width="1.3"/>"##,
            x1 + bend,
            x2 - bend,
        );
        if labelled && edge.coef != 1 {
            let (x, y) = along(0.3, (x1, y1), (x2, y2));
            let _ = writeln!(
                labels,
                r##"<text x="{x:.1}" y="{:.1}" font-size="10" fill="#a33" stroke="#fff" stroke-width="3" paint-order="stroke">{:02x}</text>"##,
                y + 3.5,
                edge.coef,
            );
        }
    }
    svg.push_str(&labels);
}

fn draw_box(svg: &mut String, drawn: &DrawnBox) {
    let DrawnBox { x, y, width, height, name, place, colour, symbol, target, .. } = drawn;
    let radius = if *symbol { 2.0 } else { height / 2.0 };
    let middle = x + width / 2.0;
    let base = y + height / 2.0 + if place.is_some() { -2.0 } else { 4.0 };
    let _ = writeln!(
        svg,
        r##"<rect x="{x:.1}" y="{y:.1}" width="{width}" height="{height}" rx="{radius}" fill="{}" stroke="#333" stroke-width="{}"/>
<text x="{middle:.1}" y="{base:.1}">{name}</text>"##,
        colour.as_deref().unwrap_or("#eee"),
        if *target { 2.5 } else { 1.0 },
    );
    if let Some(place) = place {
        let _ = writeln!(
            svg,
            r##"<text x="{middle:.1}" y="{:.1}" font-size="10" fill="#333">{place}</text>"##,
            base + 13.0
        );
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
