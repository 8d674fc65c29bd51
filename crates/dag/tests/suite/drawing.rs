//! Graphs as text and as pictures.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use kintsu_algebra::Matrix;
use kintsu_dag::{DagError, Ecdag, NodeId, Placed, RackId, Sink, Vertex, chain, star, tree};

fn encode() -> Placed {
    let leaves: Vec<Vertex> = (0..4).map(Vertex).collect();
    let mut graph = Ecdag::new(6, 1);
    graph.join(Vertex(4), &leaves, &[1, 1, 1, 1]).unwrap();
    graph.join(Vertex(5), &leaves, &[1, 2, 4, 8]).unwrap();
    graph.auto_bind().unwrap();
    Placed {
        graph,
        load_at: (0..4).map(|i| (Vertex(i), NodeId(i))).collect(),
        compute_at: BTreeMap::new(),
        persist_at: [(Vertex(0), (NodeId::CLIENT, Sink::Client))]
            .into_iter()
            .chain((4..6).map(|i| (Vertex(i), (NodeId(i), Sink::Block))))
            .collect(),
    }
}

#[test]
fn text_tells_kinds_places_formulas_and_binds() {
    let expected = "\
leaf     v0  on N0  returned on C
leaf     v1  on N1
leaf     v2  on N2
leaf     v3  on N3
joint    v6  on N0  of v4 v5  bound to v0
target   v4  on N0  = 01 v0 + 01 v1 + 01 v2 + 01 v3  persisted on N4
target   v5  on N0  = 01 v0 + 02 v1 + 04 v2 + 08 v3  persisted on N5
";
    assert_eq!(encode().to_text(), expected);
    let mut graph = Ecdag::new(6, 1);
    graph.join(Vertex(7), &[Vertex(1)], &[0x1d]).unwrap();
    graph.bind_y(Vertex(7), Vertex(1)).unwrap();
    graph.join(Vertex(0), &[Vertex(7), Vertex(2)], &[1, 0xff]).unwrap();
    let expected = "\
leaf     v1
leaf     v2
partial  v7  = 1d v1  bound to v1
target   v0  = 01 v7 + ff v2
";
    assert_eq!(graph.to_text(), expected);
}

#[test]
fn a_graph_with_a_cycle_prints_but_is_not_drawn() {
    let mut graph = Ecdag::new(4, 1);
    graph.join(Vertex(8), &[Vertex(9)], &[2]).unwrap();
    graph.join(Vertex(9), &[Vertex(8)], &[1]).unwrap();
    assert_eq!(graph.to_text(), "partial  v8  = 02 v9\npartial  v9  = 01 v8\n");
    assert!(matches!(graph.to_svg(), Err(DagError::Cycle { .. })));
}

/// The value of an attribute in a line of SVG.
fn attribute(line: &str, name: &str) -> f64 {
    let start = line.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
    line[start..].split('"').next().unwrap().parse().unwrap()
}

/// Boxes of the picture, checked to lie inside it and apart from each other.
fn boxes(svg: &str) -> Vec<(f64, f64)> {
    let (width, height) = (attribute(svg, "width"), attribute(svg, "height"));
    let corners: Vec<(f64, f64)> = svg
        .lines()
        .filter(|line| line.starts_with("<rect x=") && line.contains("stroke=\"#333\""))
        .map(|line| (attribute(line, "x"), attribute(line, "y")))
        .collect();
    for (i, (x, y)) in corners.iter().enumerate() {
        assert!(*x >= 0.0 && *y >= 0.0 && x + 76.0 <= width && y + 34.0 <= height, "({x}, {y}) is outside");
        for (a, b) in &corners[..i] {
            assert!((x - a).abs() >= 76.0 || (y - b).abs() >= 34.0, "({x}, {y}) lies on ({a}, {b})");
        }
    }
    corners
}

#[test]
fn pictures_show_every_vertex_and_edge_once_without_overlap() {
    let n = 14;
    let hops: Vec<Vec<Vertex>> = (2..n).map(|i| vec![Vertex(i)]).collect();
    let targets = [Vertex(0), Vertex(1)];
    let coefs = Matrix::from_fn(2, hops.len(), |i, j| (i * 50 + j + 1) as u8);
    for (shape, name) in [(star as fn(_, _, &[_], &[_], &_) -> _, "star"), (tree, "tree"), (chain, "chain")] {
        let graph: Ecdag = shape(n as usize, 1, &hops, &targets, &coefs).unwrap();
        let vertices = graph.topological().unwrap().len();
        let edges: usize = graph.joins().values().map(|join| join.children.len()).sum();
        let placed = Placed {
            graph,
            load_at: (2..n).map(|i| (Vertex(i), NodeId(i))).collect(),
            compute_at: targets.iter().map(|v| (*v, NodeId(0))).collect(),
            persist_at: targets.iter().map(|v| (*v, (NodeId(v.0), Sink::Block))).collect(),
        };
        for svg in [
            placed.to_svg().unwrap(),
            placed.to_svg_by_rack(&|node| RackId(node.0 % 4)).unwrap(),
            placed.graph.to_svg().unwrap(),
        ] {
            assert_eq!(boxes(&svg).len(), vertices, "{name}");
            assert_eq!(svg.matches("<path").count(), edges, "{name}");
            assert!(!svg.contains("NaN") && svg.ends_with("</svg>\n"), "{name}");
        }
    }
}

#[test]
fn pictures_label_edges_nodes_racks_and_sinks() {
    let svg = encode().to_svg().unwrap();
    assert_eq!(boxes(&svg).len(), 6);
    for text in [">v6<", ">02<", ">04<", ">08<", ">N3<", ">N0 \u{2192} N4<", ">N0 \u{2192} C<"] {
        assert!(svg.contains(text), "{text}");
    }
    assert_eq!(svg.matches("stroke-dasharray").count(), 1, "one joint computation");
    assert_eq!(svg.matches("stroke=\"#c4c4c4\"").count(), 2, "v0 is where v4 and v5 are computed");
    let by_rack = encode().to_svg_by_rack(&|node| RackId(node.0 / 2)).unwrap();
    assert!(by_rack.contains(">N3 r1<"));
    let colours = |svg: &str| {
        // The other fills are shades of grey, in short form or long.
        let fills = svg.split("<rect").filter_map(|part| part.split("fill=\"").nth(1));
        let coloured = fills.filter(|fill| {
            let hex = &fill[..fill.find('"').unwrap()];
            hex.len() == 7 && (hex[1..3] != hex[3..5] || hex[3..5] != hex[5..7])
        });
        coloured
            .map(|part| part.split('"').next().unwrap().to_string())
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((colours(&svg).len(), colours(&by_rack).len()), (4, 2));
    assert!(!svg.contains("hsl"), "some viewers paint it black");
    let copy = Placed { graph: Ecdag::new(6, 1), ..encode() };
    assert_eq!(boxes(&copy.to_svg().unwrap()).len(), 3, "persisted leaves are drawn without any join");
}
