//! Codes as data: a complete description of a code, which can be used without the program that made it.
//!
//! A person or a program writes a [`Definition`]; a cluster keeps it and sends it. Its claims are never trusted:
//! [`Definition::prove`] is the only way to a [`Code`], and it checks sizes, shape, systematic form, distance,
//! groups and every graph. Definitions have names of the form `user:NAME`, which no family uses.
//!
//! Cost: the limits below bound the cost of a proof, for any input, to some seconds and a few hundred megabytes.
//! The same definition is proved only once in a process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use kintsu_algebra::Matrix;
use kintsu_dag::{BlockIndex, Ecdag, Elements, GraphData};
use serde::{Deserialize, Serialize};

use crate::decode::decode_linear;
use crate::distance::{Certificate, Theorem};
use crate::linear::{LinearCode, Own, UncheckedCode};
use crate::name::check_shape;
use crate::{Code, CodeError};

/// What the names of user codes begin with.
pub const USER: &str = "user:";

/// Most characters of a name after [`USER`].
const NAME_CHARS: usize = 63;
/// Most symbols in a stripe, `n * w`.
const MAX_SYMBOLS: usize = 1 << 12;
/// Most entries of a generator, `n * w * k * w`.
const MAX_GENERATOR_BYTES: usize = 1 << 22;
/// Most multiply-adds to prove all graphs: children of joins, times `k * w`.
const MAX_GRAPH_COST: usize = 1 << 28;
/// Most vertices of all graphs together; unused numbers below the highest one count too.
const MAX_VERTICES: usize = 1 << 24;
/// Most multiply-adds to check all groups.
const MAX_GROUP_COST: usize = 1 << 29;

/// A code as data.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Definition {
    /// `user:NAME`.
    pub name: String,
    /// Blocks in a stripe.
    pub n: usize,
    /// Data blocks in a stripe.
    pub k: usize,
    /// Sub-blocks in a block.
    pub w: usize,
    /// `n * w` rows of `k * w` elements, identity on top.
    pub generator: Vec<Elements>,
    /// The claimed distance.
    pub distance: usize,
    /// The local repair groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Vec<BlockIndex>>,
    /// The partition for [`Code::place`]; none: groups, then the other blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Vec<Vec<BlockIndex>>>,
    /// The graph that encodes; none: one dense join for each parity symbol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encode: Option<GraphData>,
    /// Graphs that compute all symbols of one or more lost blocks from others; the first graph that fits a loss is
    /// used; if none fits, the loss is decoded from generator and groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<GraphData>,
}

impl Definition {
    /// Any code as data, under a new name. The definition includes [`Code::encode`], [`Code::place`] and the
    /// repairs of single blocks where they differ from what follows from generator and groups.
    ///
    /// # Errors
    /// Those of a decode that fails for a single lost block.
    pub fn of(code: &dyn Code, name: impl Into<String>) -> Result<Self, CodeError> {
        let plain = LinearCode::plain(code);
        let encode = code.encode();
        let place = code.place();
        let mut repairs = Vec::new();
        for lost in blocks(code.n()) {
            let others: Vec<_> = blocks(code.n()).filter(|&b| b != lost).collect();
            let graph = code.decode(&others, &[lost])?;
            if graph != decode_linear(&plain, &others, &[lost])? {
                repairs.push(GraphData::from(&graph));
            }
        }
        let generator = code.generator();
        Ok(Self {
            name: name.into(),
            n: code.n(),
            k: code.k(),
            w: code.w(),
            generator: (0..generator.rows()).map(|i| Elements(generator.row(i).to_vec())).collect(),
            distance: code.distance(),
            groups: code.groups(),
            place: (place != plain.place()).then_some(place),
            encode: (encode != plain.encode()).then(|| GraphData::from(&encode)),
            repairs,
        })
    }

    /// The code, if all claims of the definition hold. Only the first call for the same content computes the
    /// proof.
    ///
    /// # Errors
    /// `Invalid` for a wrong name, size, shape, group, partition or graph, with expected and given value;
    /// `Distance` when the claimed distance is false, with a loss that shows it; `Unsupported` when the proof
    /// would take too many loss patterns.
    pub fn prove(&self) -> Result<Arc<dyn Code>, CodeError> {
        if let Some(code) = proved().codes.get(self) {
            return Ok(code.clone());
        }
        self.check_sizes()?;
        let own = Own {
            encode: self.encode.as_ref().map(|data| graph_of("encode graph", data)).transpose()?,
            repairs: self
                .repairs
                .iter()
                .map(|data| graph_of("repair graph", data))
                .collect::<Result<_, _>>()?,
            place: self.place.clone(),
        };
        let claim = UncheckedCode {
            name: self.name.clone(),
            n: self.n,
            k: self.k,
            w: self.w,
            generator: self.matrix()?,
            groups: self.groups.clone(),
            distance: self.distance,
            own,
        };
        let code = claim.make(Some(&certificate(self.w)))?;
        proved().keep(self, &code);
        Ok(code)
    }

    /// The first difference between two definitions, in words; none when they are equal.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let numbers = |d: &Self| (d.n, d.k, d.w, d.distance);
        let shape = |d: &Self| format!("n={}, k={}, w={}, distance {}", d.n, d.k, d.w, d.distance);
        let rows = self.generator.iter().zip(&other.generator);
        match self {
            _ if self.name != other.name => Some(format!("{:?} for {:?}", other.name, self.name)),
            _ if numbers(self) != numbers(other) => Some(format!("{} for {}", shape(other), shape(self))),
            _ if self.generator != other.generator => {
                let row = rows.take_while(|(a, b)| a == b).count();
                Some(format!("another generator, from row {row} on"))
            }
            _ if self.groups != other.groups => Some("other local repair groups".into()),
            _ if self.place != other.place => Some("another placement".into()),
            _ if self.encode != other.encode => Some("another encode graph".into()),
            _ if self.repairs != other.repairs => Some("other repair graphs".into()),
            _ => None,
        }
    }

    /// Its approximate size in memory, in bytes.
    fn weight(&self) -> usize {
        let rows: usize = self.generator.iter().map(|row| row.0.len()).sum();
        rows + 16 * self.graphs().map(GraphData::terms).sum::<usize>()
    }

    fn graphs(&self) -> impl Iterator<Item = &GraphData> {
        self.encode.iter().chain(&self.repairs)
    }

    /// Checks that the definition can be proved in bounded time and memory, before anything is allocated.
    fn check_sizes(&self) -> Result<(), CodeError> {
        check_name(&self.name)?;
        check_shape(self.n, self.k)?;
        let (n, k, w) = (self.n, self.k, self.w);
        at_most("symbols of a stripe, n * w", MAX_SYMBOLS, n.saturating_mul(w))?;
        at_most("entries of the generator", MAX_GENERATOR_BYTES, (n * w).saturating_mul(k * w))?;
        let terms = self.graphs().fold(0, |sum: usize, graph| sum.saturating_add(graph.terms()));
        at_most("steps to prove the graphs", MAX_GRAPH_COST, terms.saturating_mul(k * w))?;
        at_most("repair graphs", MAX_SYMBOLS, self.repairs.len())?;
        let vertices = self.graphs().map(GraphData::vertices).fold(0, usize::saturating_add);
        at_most("vertices of the graphs", MAX_VERTICES, vertices)?;
        let cost = |group: &Vec<BlockIndex>| {
            let symbols = group.len().saturating_mul(w);
            symbols.saturating_mul(symbols).saturating_mul(group.len()).saturating_mul(k * w)
        };
        at_most("local repair groups", n, self.groups.len())?;
        let cost = self.groups.iter().map(cost).fold(0, usize::saturating_add);
        at_most("steps to check the local repair groups", MAX_GROUP_COST, cost)?;
        if let Some(group) = self.groups.iter().find(|group| group.len() < 2) {
            let got = format!("one of {}", group.len());
            return Err(CodeError::invalid("local repair groups", "two or more blocks in each", got));
        }
        if let Some(empty) = self.place.iter().flatten().position(Vec::is_empty) {
            let got = format!("group {empty} without one");
            return Err(CodeError::invalid("placement groups", "one or more blocks in each", got));
        }
        at_most("blocks in placement groups", n, self.place.iter().flatten().map(Vec::len).sum())
    }

    /// The generator as a matrix, if it has the shape.
    fn matrix(&self) -> Result<Matrix, CodeError> {
        let (rows, cols) = (self.n * self.w, self.k * self.w);
        let shape = || format!("{rows} rows of {cols} elements: n={}, k={}, w={}", self.n, self.k, self.w);
        if self.generator.len() != rows {
            return Err(CodeError::invalid("generator", shape(), format!("{} rows", self.generator.len())));
        }
        if let Some((i, row)) = self.generator.iter().enumerate().find(|(_, row)| row.0.len() != cols) {
            return Err(CodeError::invalid("generator", shape(), format!("{} in row {i}", row.0.len())));
        }
        let data: Vec<u8> = self.generator.iter().flat_map(|row| &row.0).copied().collect();
        Matrix::from_vec(rows, cols, data).map_err(|e| CodeError::invalid("generator", shape(), e))
    }
}

/// Accepts `user:` and a name of small letters, digits, dots, dashes and underscores.
///
/// # Errors
/// `Invalid` for any other.
pub fn check_name(name: &str) -> Result<(), CodeError> {
    let short = |s: &str| s.chars().take(2 * NAME_CHARS).collect::<String>();
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let good = name.strip_prefix(USER).map(str::as_bytes).is_some_and(|rest| {
        rest.len() <= NAME_CHARS
            && rest.first().is_some_and(|&c| plain(c))
            && rest.iter().all(|&c| plain(c) || b"._-".contains(&c))
    });
    if good {
        return Ok(());
    }
    let expected = format!(
        "{USER} and 1 to {NAME_CHARS} of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
    );
    Err(CodeError::invalid("name of a user code", expected, format!("{:?}", short(name))))
}

fn at_most(what: &str, most: usize, got: usize) -> Result<(), CodeError> {
    if got <= most { Ok(()) } else { Err(CodeError::invalid(what, format!("at most {most}"), got)) }
}

/// The graph of these data, if it is well formed and every vertex in it is used.
fn graph_of(what: &str, data: &GraphData) -> Result<Ecdag, CodeError> {
    let graph = Ecdag::try_from(data).map_err(|e| CodeError::invalid(what, "a well-formed graph", e))?;
    let mut used = BTreeMap::new();
    for join in graph.joins().values() {
        for (&child, &coef) in join.children.iter().zip(&join.coefs) {
            *used.entry(child).or_insert(false) |= coef != 0;
        }
    }
    if graph.targets().is_empty() {
        return Err(CodeError::invalid(what, "one or more symbols computed", "none"));
    }
    if let Some((vertex, _)) = used.iter().find(|(_, counts)| !**counts) {
        let got = format!("only zeros for {vertex}");
        return Err(CodeError::invalid(
            what,
            "a coefficient other than zero for each vertex that is used",
            got,
        ));
    }
    match graph.joins().keys().find(|v| !graph.is_symbol(**v) && !used.contains_key(v)) {
        Some(idle) => {
            Err(CodeError::invalid(what, "a use for each virtual vertex", format!("{idle} without")))
        }
        None => Ok(graph),
    }
}

/// A theorem whose conditions can be checked without parameters. Where they do not hold, loss patterns are tried.
fn certificate(w: usize) -> Certificate {
    let flat = Certificate { theorem: Theorem::Reciprocals, split: 1 };
    match w {
        1 => flat,
        _ => Certificate { theorem: Theorem::Piggybacks { w, base: Box::new(flat) }, split: 1 },
    }
}

fn blocks(n: usize) -> impl Iterator<Item = BlockIndex> {
    (0..n).map(|b| BlockIndex(b as u8))
}

/// Codes proved in this process, by content.
#[derive(Default)]
struct Proved {
    codes: HashMap<Definition, Arc<dyn Code>>,
    bytes: usize,
}

/// The most memory for all kept definitions; a cluster uses a few kilobytes.
const KEPT_BYTES: usize = 1 << 26;
/// The most definitions that are kept.
const KEPT: usize = 256;

static PROVED: LazyLock<Mutex<Proved>> = LazyLock::new(Mutex::default);

/// The codes proved so far. A panic elsewhere leaves them as they were.
fn proved() -> MutexGuard<'static, Proved> {
    PROVED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proved {
    fn keep(&mut self, definition: &Definition, code: &Arc<dyn Code>) {
        if self.codes.len() >= KEPT || self.bytes >= KEPT_BYTES {
            *self = Self::default();
        }
        if self.codes.insert(definition.clone(), code.clone()).is_none() {
            self.bytes += definition.weight();
        }
    }
}

#[cfg(test)]
mod tests;
