//! Traces of writes replayed against update schemes: how much crosses racks (CAU, section 5.1).
//!
//! Modelling choices, where the paper leaves them open or Kintsu differs:
//!
//! - the address space of each volume is cut into blocks, and k blocks in order are a stripe, placed where a cluster of
//!   n nodes in these racks would place it (for Reed-Solomon all parities in one rack, if they fit), or block after block in
//!   the racks by turns ([`Options::by_turns`]);
//! - each block that a write touches is one update; reads do nothing; every stripe was written before;
//! - clients are at the data node, so what a client sends crosses no rack, for all schemes alike;
//! - when more than u_s stripes are dirty, all of them are committed, and what is left at the end as well;
//! - PARIX's old data cross once for each block and commit interval, its new data with each update; its commits and
//!   all reads of old data cross no rack;
//! - interim replicas cross racks with each update, again for a block that is dirty already;
//! - data grouping follows each commit, and its moves count (whole blocks, also where ranges are counted);
//! - the paper sends whole blocks. Traffic by changed ranges is counted beside it for every scheme: a replica is as
//!   long as the write, and a commit treats each part of a stripe where the same blocks are dirty for itself;
//! - what nodes send is counted as well, and compared with the kernel's counters ([`on_hosts`]): replicas of ranges in the
//!   rack with most parities (for PARIX at all parities), and at a commit slices of the span of all dirty ranges of the
//!   stripe, from home, or for `optimal` from a replica; slices that are all zero are headers alone.

mod account;
mod as_nodes;
mod dirty;
mod hosts_report;
mod locality;
mod on_hosts;
mod report;

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::update::Scheme;
use kintsu_plan::{Layout, LayoutKind, Topology, even_cluster, place};

use crate::error::{ExperimentError, Result};
use crate::trace::Request;

pub use hosts_report::{hosts_markdown, hosts_table, rates};
pub use on_hosts::{Hosts, Links, OnHosts, on_hosts};
pub use report::{Averages, Published, Report, Row, averages, grouping, markdown, table};

use account::{Account, Sent};
use locality::Locality;

/// How to replay.
#[derive(Debug, Clone)]
pub struct Options {
    /// The code.
    pub code: Arc<dyn Code>,
    /// Racks; n nodes are spread evenly over them.
    pub racks: usize,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// A commit starts when more stripes than this are dirty (u_s).
    pub dirty_stripes: usize,
    /// Whether block i of a stripe is in rack i modulo their number, so that parities are in several racks; else as a cluster
    /// places it.
    pub by_turns: bool,
    /// The schemes.
    pub schemes: Vec<Scheme>,
}

/// What is the same for all stripes.
#[derive(Debug, Clone)]
struct Ground {
    code: Arc<dyn Code>,
    layout: Layout,
    topology: Topology,
    block_bytes: u64,
    dirty_stripes: usize,
    by_turns: bool,
}

impl Options {
    fn ground(&self) -> Result<Ground> {
        let (n, k, w) = (self.code.n(), self.code.k(), self.code.w());
        let invalid =
            |what: &str, expected: String, got: u64| Err(ExperimentError::invalid(what, expected, got));
        if !(2..=n).contains(&self.racks) {
            return invalid("racks", format!("2 to {n}, the blocks of a stripe"), self.racks as u64);
        }
        let whole = (4096 * w) as u64;
        if self.block_bytes == 0 || !self.block_bytes.is_multiple_of(whole) || self.block_bytes > 1 << 30 {
            return invalid("block", format!("a multiple of {whole} bytes up to 1 GiB"), self.block_bytes);
        }
        if self.dirty_stripes == 0 {
            return invalid("dirty stripes before a commit", "1 or more".into(), 0);
        }
        let layout = Layout {
            kind: LayoutKind::Contiguous,
            block_bytes: self.block_bytes,
            cell_bytes: self.block_bytes as u32,
            w: w as u16,
            data_bytes: self.block_bytes * k as u64,
        };
        let topology = even_cluster(n, self.racks);
        let ground = Ground {
            code: self.code.clone(),
            layout,
            topology,
            block_bytes: self.block_bytes,
            dirty_stripes: self.dirty_stripes,
            by_turns: self.by_turns,
        };
        if !ground.is_safe()? {
            let expected = format!("so many that {} survives the loss of any one", self.code.name());
            return invalid("racks", expected, self.racks as u64);
        }
        Ok(ground)
    }
}

impl Ground {
    /// The homes of a stripe.
    fn homes(&self, id: u64) -> Result<Vec<Option<NodeId>>> {
        match self.by_turns {
            // Nodes are in racks by turns.
            true => Ok((0..self.code.n() as u32).map(|node| Some(NodeId(node))).collect()),
            false => Ok(place(&*self.code, &self.layout, &self.topology, id)?.homes),
        }
    }

    /// Whether a stripe survives the loss of any one rack.
    fn is_safe(&self) -> Result<bool> {
        let homes = self.homes(1)?;
        let rack = |node: &Option<NodeId>| node.and_then(|node| self.topology.rack(node));
        let racks: BTreeSet<_> = homes.iter().map(rack).collect();
        Ok(racks.into_iter().all(|lost| {
            let here = homes.iter().enumerate().filter(|(_, home)| rack(home) == lost);
            let blocks: Vec<BlockIndex> = here.map(|(i, _)| BlockIndex(i as u8)).collect();
            self.code.recoverable(&blocks)
        }))
    }
}

/// Replays the writes of one trace against all schemes.
///
/// # Errors
/// `Invalid` for options out of their ranges; the errors of the requests; `Plan` if an update cannot be planned.
pub fn replay(
    name: &str,
    requests: impl Iterator<Item = Result<Request>>,
    options: &Options,
) -> Result<Report> {
    let ground = options.ground()?;
    let mut accounts = Vec::new();
    for &scheme in &options.schemes {
        accounts.push(
            [Sent::Blocks, Sent::Ranges, Sent::AsNodes].map(|sent| Account::new(&ground, scheme, sent)),
        );
    }
    let (mut writes, mut updates, mut bytes) = (0, 0, 0);
    let mut locality = Locality::default();
    for request in requests {
        let request = request?;
        if !request.write {
            continue;
        }
        writes += 1;
        bytes += request.bytes;
        let parts: Vec<_> = dirty::parts(&request, ground.block_bytes, ground.code.k() as u64).collect();
        locality.write(parts.iter().map(|part| part.stripe));
        for part in &parts {
            updates += 1;
            for account in accounts.iter_mut().flatten() {
                account.update(part)?;
            }
        }
    }
    let mut rows = Vec::new();
    for mut of_scheme in accounts {
        of_scheme.iter_mut().try_for_each(Account::commit)?;
        let [scheme, ..] = of_scheme.each_ref().map(|account| account.scheme);
        let [blocks, ranges, on_nodes] = of_scheme.map(|account| account.traffic);
        rows.push(Row { scheme, blocks, ranges, on_nodes });
    }
    Ok(Report {
        trace: name.to_owned(),
        code: options.code.name().to_owned(),
        racks: options.racks,
        by_turns: options.by_turns,
        block_bytes: options.block_bytes,
        dirty_stripes: options.dirty_stripes,
        writes,
        updates,
        bytes,
        stripes_per_thousand: locality.average(),
        rows,
    })
}

#[cfg(test)]
mod tests;
