//! A code given by its generator matrix and its groups. Every family here makes one.

use std::sync::Arc;

use kintsu_algebra::Matrix;
use kintsu_dag::{BlockIndex, Ecdag, Vertex};

use crate::decode::{decode_linear, join_row, validate};
use crate::distance::{self, Certificate};
use crate::name::check_shape;
use crate::{Code, CodeError};

/// A checked linear code.
#[derive(Debug)]
pub(crate) struct LinearCode {
    name: String,
    n: usize,
    k: usize,
    w: usize,
    generator: Matrix,
    groups: Vec<Vec<BlockIndex>>,
    distance: usize,
    own: Own,
}

/// A code's own graphs and partition, for codes where those that follow from generator and groups are not the
/// best. Each graph is proved when the code is made.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// The graph that encodes; none: one dense join for each parity symbol.
    pub(crate) encode: Option<Ecdag>,
    /// Graphs that repair their targets (all symbols of one or more blocks) from their leaves. The first one that
    /// fits a loss is used; if none fits, the loss is decoded from generator and groups.
    pub(crate) repairs: Vec<Ecdag>,
    /// The partition for [`Code::place`]; none: groups, then the other blocks.
    pub(crate) place: Option<Vec<Vec<BlockIndex>>>,
}

/// A linear code before it is checked: the fields of [`from_generator`].
pub(crate) struct UncheckedCode {
    pub(crate) name: String,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) w: usize,
    pub(crate) generator: Matrix,
    pub(crate) groups: Vec<Vec<BlockIndex>>,
    pub(crate) distance: usize,
    pub(crate) own: Own,
}

/// A code given as data: `generator` is `(n * w) x (k * w)`, identity on top; `groups` are its local repair groups
/// (none: no locality). It is checked like any other code: shape, systematic form, groups, and `claimed_distance`
/// by exhaustion over loss patterns.
///
/// # Errors
/// `Invalid` for a wrong shape, a matrix that is not systematic or has a zero row, or a group that does not repair
/// its members; `Distance` when the claim is false, with a loss that shows it; `Unsupported` when there are too
/// many patterns to try.
pub fn from_generator(
    name: impl Into<String>,
    n: usize,
    k: usize,
    w: usize,
    generator: Matrix,
    groups: Vec<Vec<BlockIndex>>,
    claimed_distance: usize,
) -> Result<Arc<dyn Code>, CodeError> {
    let own = Own::default();
    let claim =
        UncheckedCode { name: name.into(), n, k, w, generator, groups, distance: claimed_distance, own };
    claim.make(None)
}

impl UncheckedCode {
    /// The code, if all claims hold.
    pub(crate) fn make(self, certificate: Option<&Certificate>) -> Result<Arc<dyn Code>, CodeError> {
        Ok(Arc::new(self.check(certificate)?))
    }

    /// Checks all claims; a certificate replaces the exhaustive search for the distance.
    pub(crate) fn check(self, certificate: Option<&Certificate>) -> Result<LinearCode, CodeError> {
        let Self { name, n, k, w, generator, groups, distance, own } = self;
        check_shape(n, k)?;
        check_generator(n, k, w, &generator)?;
        if !(1..=n - k + 1).contains(&distance) {
            let expected = format!("1 to n - k + 1 = {}", n - k + 1);
            return Err(CodeError::invalid("claimed distance", expected, distance));
        }
        distance::check(&name, &generator, w, distance, certificate)?;
        for group in &groups {
            check_group(&generator, w, group)?;
        }
        own.check(n, k, w, &generator)?;
        Ok(LinearCode { name, n, k, w, generator, groups, distance, own })
    }
}

impl LinearCode {
    /// A code by generator, groups and distance alone, without its own graphs and partition.
    pub(crate) fn plain(code: &dyn Code) -> Self {
        Self {
            name: code.name().to_owned(),
            n: code.n(),
            k: code.k(),
            w: code.w(),
            generator: code.generator().clone(),
            groups: code.groups(),
            distance: code.distance(),
            own: Own::default(),
        }
    }
}

impl Own {
    fn check(&self, n: usize, k: usize, w: usize, generator: &Matrix) -> Result<(), CodeError> {
        let blocks = |range: std::ops::Range<usize>| range.map(|b| BlockIndex(b as u8)).collect::<Vec<_>>();
        if let Some(graph) = &self.encode {
            check_graph("encode graph", graph, w, generator, &blocks(k..n))?;
            if let Some(leaf) = graph.leaves().into_iter().find(|leaf| leaf.0 as usize >= k * w) {
                return Err(CodeError::invalid("encode graph", "leaves that are data symbols", leaf));
            }
        }
        for graph in &self.repairs {
            check_graph("repair graph", graph, w, generator, &blocks_of(&graph.targets(), w))?;
        }
        let mut placed = self.place.iter().flatten().flatten().copied().collect::<Vec<_>>();
        placed.sort_unstable();
        if self.place.is_some() && placed != blocks(0..n) {
            return Err(CodeError::invalid("placement groups", "each block once", format!("{placed:?}")));
        }
        Ok(())
    }

    /// The first repair of exactly the `lost` blocks that reads none but `available` ones.
    fn repair(&self, available: &[BlockIndex], lost: &[BlockIndex], w: usize) -> Option<&Ecdag> {
        let mut wanted = lost.to_vec();
        wanted.sort_unstable();
        self.repairs.iter().find(|graph| {
            blocks_of(&graph.targets(), w) == wanted
                && blocks_of(&graph.leaves(), w).iter().all(|block| available.contains(block))
        })
    }
}

/// Checks that a graph over the code's symbols computes all symbols of `blocks`, and only those.
fn check_graph(
    what: &str,
    graph: &Ecdag,
    w: usize,
    generator: &Matrix,
    blocks: &[BlockIndex],
) -> Result<(), CodeError> {
    graph
        .prove(generator)
        .map_err(|error| CodeError::invalid(what, "a graph that proves against the generator", error))?;
    let expected = blocks.iter().flat_map(|b| usize::from(b.0) * w..(usize::from(b.0) + 1) * w);
    if graph.w() != w || !graph.targets().iter().map(|v| v.0 as usize).eq(expected) {
        let expected = format!("all {w} symbols of {blocks:?} computed, and no others");
        return Err(CodeError::invalid(what, expected, format!("{:?}", graph.targets())));
    }
    Ok(())
}

/// The blocks of symbols in order of number, each once.
fn blocks_of(symbols: &[Vertex], w: usize) -> Vec<BlockIndex> {
    let mut blocks: Vec<_> = symbols.iter().map(|v| BlockIndex((v.0 as usize / w) as u8)).collect();
    blocks.dedup();
    blocks
}

fn check_generator(n: usize, k: usize, w: usize, generator: &Matrix) -> Result<(), CodeError> {
    let (rows, cols) = (generator.rows(), generator.cols());
    if w == 0 || n.checked_mul(w) != Some(rows) || k.checked_mul(w) != Some(cols) {
        let expected = format!("(n * w) x (k * w) with n={n}, k={k}, w={w} >= 1");
        return Err(CodeError::invalid("generator", expected, format!("{rows} x {cols}")));
    }
    let identity = |i: usize| generator.row(i).iter().enumerate().all(|(j, &c)| c == u8::from(i == j));
    if let Some(i) = (0..cols).find(|&i| !identity(i)) {
        let got = format!("row {i}: {:02x?}", generator.row(i));
        return Err(CodeError::invalid("generator", "the identity on top", got));
    }
    if let Some(i) = (cols..rows).find(|&i| generator.row(i).iter().all(|&c| c == 0)) {
        let expected = "parity rows with a coefficient other than zero";
        return Err(CodeError::invalid("generator", expected, format!("row {i} all zero")));
    }
    Ok(())
}

/// Checks that the other members determine each member of the group.
fn check_group(generator: &Matrix, w: usize, group: &[BlockIndex]) -> Result<(), CodeError> {
    let refuse = |expected: &str| {
        let names: Vec<_> = group.iter().map(ToString::to_string).collect();
        Err(CodeError::invalid("local repair group", expected, names.join(", ")))
    };
    let blocks: Vec<usize> = group.iter().map(|b| usize::from(b.0)).collect();
    if blocks.iter().any(|b| (b + 1) * w > generator.rows()) {
        return refuse("blocks below n");
    }
    let rows = |blocks: &[usize]| generator.select_rows(blocks.iter().flat_map(|b| b * w..(b + 1) * w));
    let rank = rows(&blocks).rank();
    for i in 0..blocks.len() {
        let mut others = blocks.clone();
        let block = others.remove(i);
        if others.is_empty() || others.contains(&block) || rows(&others).rank() < rank {
            return refuse("two or more distinct blocks, each determined by the others");
        }
    }
    Ok(())
}

impl Code for LinearCode {
    fn name(&self) -> &str {
        &self.name
    }

    fn family(&self) -> &str {
        self.name.split(':').next().unwrap_or_default()
    }

    fn n(&self) -> usize {
        self.n
    }

    fn k(&self) -> usize {
        self.k
    }

    fn w(&self) -> usize {
        self.w
    }

    fn generator(&self) -> &Matrix {
        &self.generator
    }

    fn encode(&self) -> Ecdag {
        if let Some(graph) = &self.own.encode {
            return graph.clone();
        }
        let mut graph = Ecdag::new(self.n, self.w);
        let data: Vec<usize> = (0..self.k * self.w).collect();
        let mut alike: Vec<(Vec<Vertex>, Vec<Vertex>)> = Vec::new();
        for symbol in data.len()..self.n * self.w {
            join_row(&mut graph, symbol, &data, self.generator.row(symbol));
            let parent = Vertex(symbol as u32);
            let children = &graph.joins()[&parent].children;
            match alike.iter_mut().find(|(shared, _)| shared == children) {
                Some((_, parents)) => parents.push(parent),
                None => alike.push((children.clone(), vec![parent])),
            }
        }
        for (_, parents) in alike.iter().filter(|(_, parents)| parents.len() > 1) {
            graph.bind_x(parents).expect("each parity is joined, and has one set of children");
        }
        graph
    }

    fn decode(&self, available: &[BlockIndex], lost: &[BlockIndex]) -> Result<Ecdag, CodeError> {
        validate(self.n, available, lost)?;
        match self.own.repair(available, lost, self.w) {
            Some(graph) => Ok(graph.clone()),
            None => decode_linear(self, available, lost),
        }
    }

    fn place(&self) -> Vec<Vec<BlockIndex>> {
        if let Some(groups) = &self.own.place {
            return groups.clone();
        }
        let mut placed = vec![false; self.n];
        let mut take = |b: &BlockIndex| !std::mem::replace(&mut placed[usize::from(b.0)], true);
        let all: Vec<_> = (0..self.n).map(|b| BlockIndex(b as u8)).collect();
        let groups = self.groups.iter().chain([&all]);
        let groups = groups.map(|g| g.iter().copied().filter(&mut take).collect::<Vec<_>>());
        groups.filter(|g| !g.is_empty()).collect()
    }

    fn groups(&self) -> Vec<Vec<BlockIndex>> {
        self.groups.clone()
    }

    fn distance(&self) -> usize {
        self.distance
    }
}
