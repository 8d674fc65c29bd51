//! The experiment of the LRC study (Kolosov et al., section 6) on a Kintsu cluster: fill it, lose a node, recover,
//! and count what was read and moved for each lost data block. The counts are compared with ARC and NRC.
//!
//! Differences from the paper's Ceph on EC2: blocks are smaller, and links and disks are this machine's, so times
//! are those of processor and page cache; counts do not depend on that. A degraded read here reads only the blocks
//! of the lost block's group (Ceph: the whole object).

use std::path::PathBuf;
use std::time::Instant;

use kintsu_analysis::{Costs, costs};
use kintsu_client::PutOptions;
use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::Method;
use kintsu_wire::message::{NodeAction, ObjectView, RepairTarget};
use serde::Serialize;

use super::site::{Site, real_bytes, sha256};
use crate::error::{Context, Result, ensure};
use crate::{Step, plain};

/// The paper's configurations as far as its text names them: (14,10), (15,10,4), k = 10 with d = 4 (Table 1), Xorbas
/// where it is defined, and (15,8,4), the one of Table 3.
const GROUPS: [&[&str]; 5] = [
    &[
        "rs:n=14,k=10",
        "azure-lrc:n=14,k=10,r=5",
        "azure-lrc-plus1:n=14,k=10,r=6",
        "optimal-lrc:n=14,k=10,r=5",
    ],
    &[
        "rs:n=15,k=10",
        "azure-lrc:n=15,k=10,r=4",
        "azure-lrc-plus1:n=15,k=10,r=4",
        "optimal-lrc:n=15,k=10,r=4",
    ],
    &["rs:n=13,k=10", "azure-lrc:n=14,k=10,r=5", "azure-lrc-plus1:n=15,k=10,r=5"],
    &[
        "rs:n=16,k=10",
        "azure-lrc:n=16,k=10,r=5",
        "azure-lrc-plus1:n=16,k=10,r=5",
        "optimal-lrc:n=16,k=10,r=5",
        "xorbas:n=16,k=10,r=5",
    ],
    &["rs:n=15,k=8", "azure-lrc:n=15,k=8,r=4", "azure-lrc-plus1:n=15,k=8,r=4", "optimal-lrc:n=15,k=8,r=4"],
];

/// Blocks read for each data block of the lost node, as printed in the paper's text (section 6).
const PUBLISHED: [(&str, f64); 2] = [("rs:n=14,k=10", 12.53), ("rs:n=15,k=10", 13.24)];

/// Degraded reads tried for each lost node.
const DEGRADED_READS: usize = 16;

const SLICE_BYTES: u32 = 64 << 10;

/// What to try.
#[derive(Debug, Clone)]
pub struct Options {
    /// Codes; without any, those of the study.
    pub codes: Vec<String>,
    /// Nodes of the cluster.
    pub nodes: u32,
    /// Number of zones. `None`: as in the study, none, and three with the codes of its last configuration.
    pub zones: Option<u32>,
    /// Stripes to fill it with.
    pub stripes: u64,
    /// Size of a block.
    pub block_bytes: u32,
    /// Nodes lost and recovered, one after the other.
    pub victims: u32,
    /// How slices move.
    pub method: Method,
    /// Where to create the cluster's folder, which is removed at the end; by default in the system's folder for
    /// temporary files.
    pub dir: Option<PathBuf>,
}

/// One code's results; costs are blocks for each lost data block unless said otherwise.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Name of the code.
    pub code: String,
    /// Number of zones; 0 for none.
    pub zones: u32,
    /// Average repair cost of the code's blocks.
    pub arc: f64,
    /// The same, normalised by the data blocks.
    pub nrc: f64,
    /// NRC of exactly the blocks that were lost.
    pub nrc_of_lost: f64,
    /// Blocks that recovery read.
    pub read: f64,
    /// Blocks that recovery moved.
    pub moved: f64,
    /// Blocks that crossed zones for each lost data block.
    pub across_zones: f64,
    /// What the paper's recovery read.
    pub published: Option<f64>,
    /// Blocks read by a degraded read of one lost data block, in theory.
    pub degraded: f64,
    /// The same, measured.
    pub degraded_read: f64,
    /// Time of the recovery of all victims.
    pub seconds: f64,
    /// Time for each lost data block, relative to the first code of its group.
    pub relative_time: f64,
    /// How many data blocks were lost.
    pub lost_data_blocks: u64,
    /// How many blocks were lost.
    pub lost_blocks: u64,
}

/// Tries the codes one after the other; `progress` gets the bytes that are recovered of each lost node.
///
/// # Errors
/// For options out of their ranges, for wrong bytes, and when the cluster fails.
pub async fn run(options: &Options, progress: &mut dyn FnMut(&Step)) -> Result<Vec<Row>> {
    ensure!(
        options.nodes >= 17 && options.victims >= 1 && options.victims < options.nodes,
        "expected 17 nodes or more, and 1 to nodes - 1 of them lost in turn, got {} and {}",
        options.nodes,
        options.victims
    );
    ensure!(
        options.block_bytes > 0 && options.block_bytes.is_multiple_of(4096),
        "expected a --block of whole 4 KiB pages, got {} bytes",
        options.block_bytes
    );
    let mut rows = Vec::new();
    let own: Vec<&str> = options.codes.iter().map(String::as_str).collect();
    if options.zones.is_none() {
        let groups = if own.is_empty() { GROUPS.to_vec() } else { vec![&own[..]] };
        let site = Site::start(options.nodes, options.nodes, options.dir.as_deref()).await?;
        let recovered = async {
            for group in groups {
                recover_group(&site, group, 0, options, progress, &mut rows).await?;
            }
            Ok(())
        };
        let recovered = recovered.await;
        site.end(recovered).await?;
    }
    // Zones (section 6, "Multiple zones"): placement keeps each group of five in one of three.
    let zones = options.zones.or(own.is_empty().then_some(3));
    if let Some(zones) = zones {
        let codes = if own.is_empty() { GROUPS[4] } else { &own[..] };
        let site = Site::start(options.nodes.next_multiple_of(zones), zones, options.dir.as_deref()).await?;
        let recovered = recover_group(&site, codes, zones, options, progress, &mut rows).await;
        site.end(recovered).await?;
    }
    Ok(rows)
}

async fn recover_group(
    site: &Site,
    names: &[&str],
    zones: u32,
    options: &Options,
    progress: &mut dyn FnMut(&Step),
    rows: &mut Vec<Row>,
) -> Result<()> {
    let mut baseline = None;
    for name in names {
        let code = kintsu_code::parse(name)?;
        let mut row = recover(site, &*code, zones, options, progress).await.context(name)?;
        let time = row.seconds / row.lost_data_blocks.max(1) as f64;
        row.relative_time = time / *baseline.get_or_insert(time);
        rows.push(row);
    }
    Ok(())
}

/// Fills the cluster with one object, loses nodes in turn, and recovers each.
async fn recover(
    site: &Site,
    code: &dyn Code,
    zones: u32,
    options: &Options,
    progress: &mut dyn FnMut(&Step),
) -> Result<Row> {
    let block = u64::from(options.block_bytes);
    let what = format!("{}{}", code.name(), if zones > 0 { " in zones" } else { "" });
    let mut step = Step { what, done: 0, total: 0 };
    progress(&step);
    let bytes = real_bytes(None, (options.stripes * code.k() as u64 * block) as usize)?;
    // Blocks of one cell: a block is one range of the object.
    let put = PutOptions {
        block_bytes: Some(block),
        cell_bytes: Some(options.block_bytes),
        ..PutOptions::new(code.name())
    };
    site.put(NAME, bytes.clone(), put).await?;
    let costs = costs(code)?;
    let (mut lost, mut total) = (Lost::default(), Total::default());
    for victim in (0..options.victims).map(NodeId) {
        let view = site.stripes(NAME).await?;
        let blocks = blocks_on(&view, victim);
        lost.add(&blocks, &costs, code.k());
        site.command(victim, NodeAction::Stop).await?;
        for &(stripe, index) in
            blocks.iter().filter(|(_, b)| usize::from(b.0) < code.k()).take(DEGRADED_READS)
        {
            let start = (stripe * code.k() as u64 + u64::from(index.0)) * block;
            let (digest, report) = site.get(NAME, Some(start..start + block)).await?;
            let expected = sha256(&bytes[start as usize..(start + block) as usize]);
            ensure!(digest == expected, "degraded read: expected SHA-256 {expected}, got {digest}");
            total.degraded_reads += 1;
            total.degraded_bytes += report.bytes_read;
        }
        let started = Instant::now();
        let show = |done, total| {
            (step.done, step.total) = (done, total);
            progress(&step);
        };
        let report = site.repair(RepairTarget::Node(victim), options.method, SLICE_BYTES, show).await?;
        total.seconds += started.elapsed().as_secs_f64();
        total.read += report.bytes_read;
        total.moved += report.bytes_moved;
        total.across += report.bytes_across_racks;
        ensure!(
            report.blocks == blocks.len() as u64,
            "recovery of {victim}: expected {} blocks, got {}",
            blocks.len(),
            report.blocks
        );
        site.command(victim, NodeAction::Start).await?;
    }
    let (digest, _) = site.get(NAME, None).await?;
    ensure!(digest == sha256(&bytes), "the object changed in recovery");
    site.client.remove(NAME).await?;
    Ok(total.row(code, zones, &costs, &lost, block))
}

const NAME: &str = "lrc-study";

/// What was lost, over all victims.
#[derive(Default)]
struct Lost {
    blocks: u64,
    data: u64,
    /// Blocks that theory reads to rebuild them.
    cost: f64,
}

impl Lost {
    fn add(&mut self, blocks: &[(u64, BlockIndex)], costs: &Costs, k: usize) {
        for (_, index) in blocks {
            let index = usize::from(index.0);
            self.blocks += 1;
            self.data += u64::from(index < k);
            self.cost += costs.per_block[index].read.as_f64();
        }
    }
}

/// What was measured, over all victims.
#[derive(Default)]
struct Total {
    read: u64,
    moved: u64,
    across: u64,
    seconds: f64,
    degraded_reads: u64,
    degraded_bytes: u64,
}

impl Total {
    fn row(&self, code: &dyn Code, zones: u32, costs: &Costs, lost: &Lost, block: u64) -> Row {
        let data = lost.data.max(1) as f64;
        let per_lost = |bytes: u64| bytes as f64 / block as f64 / data;
        let published = PUBLISHED.iter().find(|(name, _)| *name == code.name() && zones == 0);
        Row {
            code: code.name().to_owned(),
            zones,
            arc: costs.arc.as_f64(),
            nrc: costs.nrc.as_f64(),
            nrc_of_lost: lost.cost / data,
            read: per_lost(self.read),
            moved: per_lost(self.moved),
            across_zones: if zones > 0 { per_lost(self.across) } else { 0.0 },
            published: published.map(|(_, value)| *value),
            degraded: costs.degraded.as_f64(),
            degraded_read: self.degraded_bytes as f64 / block as f64 / self.degraded_reads.max(1) as f64,
            seconds: self.seconds,
            relative_time: 1.0,
            lost_data_blocks: lost.data,
            lost_blocks: lost.blocks,
        }
    }
}

/// The blocks of a node: the stripe's position in the object, and the block's in the stripe.
fn blocks_on(view: &ObjectView, node: NodeId) -> Vec<(u64, BlockIndex)> {
    let stripes = view.stripes.iter().enumerate();
    let places = stripes.flat_map(|(i, s)| s.blocks.iter().flatten().map(move |place| (i as u64, place)));
    places.filter(|(_, place)| place.node == node).map(|(i, place)| (i, place.id.index)).collect()
}

/// The rows as a table for people; `block` is the size of a block in words.
pub fn table(rows: &[Row], options: &Options, block: &str) -> String {
    let mut table = plain::table([
        "code",
        "zones",
        "ARC",
        "NRC",
        "NRC of lost",
        "read",
        "moved",
        "across zones",
        "paper's read",
        "degraded cost",
        "degraded read",
        "time",
        "to first",
        "lost (data)",
    ]);
    for row in rows {
        table.add_row([
            row.code.clone(),
            if row.zones == 0 { "-".into() } else { row.zones.to_string() },
            format!("{:.2}", row.arc),
            format!("{:.2}", row.nrc),
            format!("{:.2}", row.nrc_of_lost),
            format!("{:.2}", row.read),
            format!("{:.2}", row.moved),
            if row.zones == 0 { "-".into() } else { format!("{:.2}", row.across_zones) },
            row.published.map_or("-".into(), |value| format!("{value:.2}")),
            format!("{:.2}", row.degraded),
            format!("{:.2}", row.degraded_read),
            format!("{:.2} s", row.seconds),
            format!("{:.2}", row.relative_time),
            format!("{} ({})", row.lost_blocks, row.lost_data_blocks),
        ]);
    }
    format!(
        "{table}\n\
         (Blocks for each lost data block; {} nodes, {} stripes, {} of blocks, {} node(s) lost in turn. NRC of lost: NRC with\n \
         exactly the blocks that were lost, whose shares of data and parity differ from the code's: measured reads equal\n \
         it. A degraded read of a block reads what its repair reads, r blocks in a group; the paper's Ceph read k blocks.\n \
         Times are of this machine's processor and page cache, without a network, so they depend less on the bytes.\n \
         docs/lrc-study.md explains the deviations from the paper.)",
        options.nodes, options.stripes, block, options.victims,
    )
}
