//! Graphs as data, which are sent, stored and written by hand; and the checks when they become a graph again.
//!
//! Not here: the proof against a generator ([`Ecdag::prove`]); data that pass these checks are a well-formed
//! graph, which may still compute wrong blocks.
//!
//! ```json
//! {"n": 6, "w": 1,
//!  "joins": [{"parent": 4, "children": [0, 1, 2, 3], "coefs": "01010101"},
//!            {"parent": 5, "children": [0, 1, 2, 3], "coefs": [1, 2, 4, 8]}],
//!  "binds_x": [{"vertex": 6, "members": [4, 5]}],
//!  "binds_y": [[6, 0]]}
//! ```

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{DagError, Ecdag, MAX_VERTICES, NodeId, Placed, Sink, Vertex};

/// A sequence of elements of GF(2^8): hex in text formats, bytes in binary ones. A list of numbers is also
/// accepted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Elements(pub Vec<u8>);

/// A graph as data.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GraphData {
    /// Blocks in a stripe.
    pub n: usize,
    /// Sub-blocks in a block.
    pub w: usize,
    /// The joins, in any order.
    pub joins: Vec<JoinData>,
    /// The joint computations, in any order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binds_x: Vec<BindData>,
    /// Pairs of a vertex and the child at whose place it is computed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binds_y: Vec<(Vertex, Vertex)>,
}

/// A join as data.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JoinData {
    /// What is computed.
    pub parent: Vertex,
    /// The vertices from which it is computed.
    pub children: Vec<Vertex>,
    /// One coefficient a child.
    pub coefs: Elements,
}

/// A joint computation as data.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BindData {
    /// The virtual vertex that represents it.
    pub vertex: Vertex,
    /// The vertices computed there.
    pub members: Vec<Vertex>,
}

/// A placed graph as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedData {
    /// The graph.
    pub graph: GraphData,
    /// See [`Placed::load_at`].
    pub load_at: Vec<(Vertex, NodeId)>,
    /// See [`Placed::compute_at`].
    pub compute_at: Vec<(Vertex, NodeId)>,
    /// See [`Placed::persist_at`].
    pub persist_at: Vec<(Vertex, (NodeId, Sink))>,
}

impl From<&Placed> for PlacedData {
    fn from(placed: &Placed) -> Self {
        Self {
            graph: GraphData::from(&placed.graph),
            load_at: placed.load_at.iter().map(|(v, n)| (*v, *n)).collect(),
            compute_at: placed.compute_at.iter().map(|(v, n)| (*v, *n)).collect(),
            persist_at: placed.persist_at.iter().map(|(v, to)| (*v, *to)).collect(),
        }
    }
}

impl TryFrom<&PlacedData> for Placed {
    type Error = DagError;

    /// Builds the graph; its places are taken as they are, and are checked when it is lowered.
    ///
    /// # Errors
    /// As for [`GraphData`].
    fn try_from(data: &PlacedData) -> Result<Self, DagError> {
        Ok(Self {
            graph: Ecdag::try_from(&data.graph)?,
            load_at: data.load_at.iter().copied().collect(),
            compute_at: data.compute_at.iter().copied().collect(),
            persist_at: data.persist_at.iter().copied().collect(),
        })
    }
}

impl GraphData {
    /// The number of children of all joins together: the cost of proving the graph, in rows.
    pub fn terms(&self) -> usize {
        self.joins.iter().map(|join| join.children.len()).sum()
    }

    /// One more than the highest vertex number: the size of an array over all vertices.
    pub fn vertices(&self) -> usize {
        let joined = self.joins.iter().flat_map(|join| join.children.iter().chain([&join.parent]));
        let highest = joined.chain(self.binds_x.iter().map(|bind| &bind.vertex)).max();
        highest.map_or(0, |v| v.0 as usize + 1).max(self.n.saturating_mul(self.w))
    }
}

impl From<&Ecdag> for GraphData {
    fn from(graph: &Ecdag) -> Self {
        let joins = graph.joins().iter().map(|(&parent, join)| JoinData {
            parent,
            children: join.children.clone(),
            coefs: Elements(join.coefs.clone()),
        });
        let binds = graph.binds_x().iter();
        Self {
            n: graph.n(),
            w: graph.w(),
            joins: joins.collect(),
            binds_x: binds.map(|b| BindData { vertex: b.vertex, members: b.members.clone() }).collect(),
            binds_y: graph.binds_y().iter().map(|(&parent, &child)| (parent, child)).collect(),
        }
    }
}

impl TryFrom<&GraphData> for Ecdag {
    type Error = DagError;

    /// Builds the graph in the order of the data, and checks each join and bind.
    ///
    /// # Errors
    /// `Invalid` for a stripe of no or too many symbols and whatever [`Ecdag::join`], [`Ecdag::bind_x`] and
    /// [`Ecdag::bind_y`] refuse, as well as a joint computation under a number in use; `Cycle`.
    fn try_from(data: &GraphData) -> Result<Self, DagError> {
        if !data.n.checked_mul(data.w).is_some_and(|symbols| (1..=MAX_VERTICES as usize).contains(&symbols)) {
            return Err(invalid("graph", "1 to 2^20 symbols", format!("n={}, w={}", data.n, data.w)));
        }
        let mut graph = Self::new(data.n, data.w);
        let mut used = BTreeSet::new();
        for join in &data.joins {
            graph.join(join.parent, &join.children, &join.coefs.0)?;
            used.extend(join.children.iter().chain([&join.parent]).copied());
        }
        for bind in &data.binds_x {
            if graph.is_symbol(bind.vertex) || !used.insert(bind.vertex) {
                let expected = "a virtual vertex that nothing else uses to stand for it";
                return Err(invalid("bind_x", expected, bind.vertex));
            }
            graph.bind_x_as(bind.vertex, &bind.members)?;
        }
        let mut bound = BTreeSet::new();
        for &(parent, child) in &data.binds_y {
            if !bound.insert(parent) {
                return Err(invalid("bind_y", "each vertex bound once", format!("{parent} twice")));
            }
            graph.bind_y(parent, child)?;
        }
        graph.topological()?;
        Ok(graph)
    }
}

impl TryFrom<GraphData> for Ecdag {
    type Error = DagError;

    fn try_from(data: GraphData) -> Result<Self, DagError> {
        Self::try_from(&data)
    }
}

fn invalid(what: &str, expected: &str, got: impl fmt::Display) -> DagError {
    DagError::Invalid { what: what.into(), expected: expected.into(), got: got.to_string() }
}

impl Serialize for Elements {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return serializer.serialize_bytes(&self.0);
        }
        serializer.serialize_str(&self.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Elements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ElementsVisitor).map(Self)
    }
}

struct ElementsVisitor;

/// The most elements for which memory is reserved in advance, whatever length the list claims.
const MAX_AHEAD: usize = 1 << 12;

impl<'de> Visitor<'de> for ElementsVisitor {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("elements of GF(2^8): two hex digits each, or numbers from 0 to 255")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Vec<u8>, E> {
        let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
        let pair = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let elements = text.as_bytes().chunks(2).map(pair).collect::<Option<Vec<u8>>>();
        elements.ok_or_else(|| {
            let bad = text.char_indices().find(|(_, c)| !c.is_ascii_hexdigit());
            match bad {
                Some((at, c)) => E::custom(format!("expected {self:?}, got {c:?} at position {at}")),
                None => E::custom(format!("expected {self:?}, got {} hex digits", text.len())),
            }
        })
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }

    fn visit_byte_buf<E: serde::de::Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
        Ok(bytes)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u8>, A::Error> {
        let mut elements = Vec::with_capacity(list.size_hint().unwrap_or(0).min(MAX_AHEAD));
        while let Some(number) = list.next_element::<i64>()? {
            let element = u8::try_from(number);
            elements.push(element.map_err(|_| A::Error::custom(format!("expected {self:?}, got {number}")))?);
        }
        Ok(elements)
    }
}

impl fmt::Debug for ElementsVisitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expecting(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listing3() -> Ecdag {
        let data = [0, 1, 2, 3].map(Vertex);
        let mut graph = Ecdag::new(6, 1);
        graph.join(Vertex(4), &data, &[1, 1, 1, 1]).unwrap();
        graph.join(Vertex(5), &data, &[1, 2, 4, 0xff]).unwrap();
        let both = graph.bind_x(&[Vertex(4), Vertex(5)]).unwrap();
        graph.bind_y(both, Vertex(0)).unwrap();
        graph
    }

    #[test]
    fn a_graph_comes_back_from_json_and_messagepack() {
        let data = GraphData::from(&listing3());
        assert_eq!(Ecdag::try_from(&data).unwrap(), listing3());
        let json = serde_json::to_string(&data).unwrap();
        assert!(json.contains(r#"{"parent":5,"children":[0,1,2,3],"coefs":"010204ff"}"#), "{json}");
        assert_eq!(serde_json::from_str::<GraphData>(&json).unwrap(), data);
        let packed = rmp_serde::to_vec_named(&data).unwrap();
        assert_eq!(rmp_serde::from_slice::<GraphData>(&packed).unwrap(), data);
    }

    #[test]
    fn elements_are_hex_or_numbers_of_the_field() {
        let read = |json: &str| serde_json::from_str::<Elements>(json).map_err(|e| e.to_string());
        assert_eq!(read("\"01fF00\"").unwrap().0, [1, 255, 0]);
        assert_eq!(read("[1, 255, 0]").unwrap().0, [1, 255, 0]);
        assert_eq!(read("\"\"").unwrap().0, [0u8; 0]);
        for (bad, words) in [
            ("[256]", "got 256"),
            ("[-1]", "got -1"),
            ("\"012\"", "got 3 hex digits"),
            ("\"0g\"", "got 'g' at position 1"),
            ("\"é\"", "got 'é' at position 0"),
            ("7", "elements of GF(2^8)"),
            ("[0.5]", "0.5"),
        ] {
            let error = read(bad).unwrap_err();
            assert!(error.contains(words), "{bad}: {error}");
        }
    }

    #[test]
    fn what_is_no_graph_is_refused() {
        let spoil = |change: &dyn Fn(&mut GraphData)| {
            let mut data = GraphData::from(&listing3());
            change(&mut data);
            Ecdag::try_from(data).expect_err("a spoilt graph").to_string()
        };
        let bind = |vertex| BindData { vertex: Vertex(vertex), members: vec![Vertex(5)] };
        assert!(spoil(&|d| d.w = 0).contains("symbols"));
        assert!(spoil(&|d| d.n = usize::MAX).contains("symbols"));
        assert!(spoil(&|d| (d.n, d.w) = (1 << 15, 1 << 15)).contains("symbols"));
        assert!(spoil(&|d| d.joins.push(d.joins[0].clone())).contains("second join"));
        assert!(spoil(&|d| d.joins[0].coefs.0.truncate(1)).contains("1 coefficients"));
        assert!(spoil(&|d| d.joins[0].children[0] = Vertex(u32::MAX)).contains("2^20"));
        assert!(spoil(&|d| d.joins[0].children[0] = Vertex(6)).contains("nothing else uses"));
        assert!(spoil(&|d| d.binds_x = vec![bind(3)]).contains("nothing else uses"));
        assert!(spoil(&|d| d.binds_x = vec![bind(6), bind(6)]).contains("nothing else uses"));
        assert!(spoil(&|d| d.binds_x = vec![bind(6), bind(7)]).contains("bound once"));
        assert!(spoil(&|d| d.binds_x = vec![bind(u32::MAX)]).contains("2^20"));
        assert!(spoil(&|d| d.binds_y = vec![(Vertex(6), Vertex(5))]).contains("one of its children"));
        assert!(spoil(&|d| d.binds_y.push(d.binds_y[0])).contains("bound once"));
        assert!(spoil(&|d| d.joins[0].children[0] = Vertex(5)).contains("cycle"));
    }

    fn vertex() -> impl Strategy<Value = Vertex> {
        prop_oneof![12 => 0u32..12, 1 => any::<u32>()].prop_map(Vertex)
    }

    prop_compose! {
        fn garbage()(
            n in prop_oneof![9 => 0usize..8, 1 => any::<usize>()],
            w in prop_oneof![9 => 0usize..3, 1 => any::<usize>()],
            joins in prop::collection::vec((vertex(), prop::collection::vec((vertex(), any::<u8>()), 0..4)), 0..6),
            binds_x in prop::collection::vec((vertex(), prop::collection::vec(vertex(), 0..4)), 0..3),
            binds_y in prop::collection::vec((vertex(), vertex()), 0..3),
        ) -> GraphData {
            let join = |(parent, terms): (Vertex, Vec<(Vertex, u8)>)| {
                let (children, coefs) = terms.into_iter().unzip();
                JoinData { parent, children, coefs: Elements(coefs) }
            };
            let bind = |(vertex, members)| BindData { vertex, members };
            let (joins, binds_x) =
                (joins.into_iter().map(join).collect(), binds_x.into_iter().map(bind).collect());
            GraphData { n, w, joins, binds_x, binds_y }
        }
    }

    proptest! {
        #[test]
        fn any_data_are_refused_or_a_graph_that_says_the_same(data in garbage()) {
            if let Ok(graph) = Ecdag::try_from(&data) {
                let back = GraphData::from(&graph);
                prop_assert_eq!(&Ecdag::try_from(&back).unwrap(), &graph);
                prop_assert_eq!(back.terms(), data.terms());
                prop_assert_eq!(back.vertices(), data.vertices());
                prop_assert!(graph.to_text().lines().count() >= data.joins.len());
            }
        }
    }
}
