//! The shape of the cluster in a folder: what `kintsu up` records, and continues with.

use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use kintsu_cluster::node_dir;
use serde::{Deserialize, Serialize};

use crate::cli::Up;

/// The file that records the shape of a cluster.
const SHAPE: &str = "cluster.json";

/// The shape of a cluster, as recorded in its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Number of nodes.
    pub nodes: u32,
    /// Number of racks.
    pub racks: u32,
}

/// Checks how many racks were asked for.
///
/// # Errors
/// None, or more than there are nodes.
pub fn check_racks(nodes: u32, racks: u32) -> anyhow::Result<()> {
    ensure!(
        (1..=nodes).contains(&racks),
        "--racks {racks}: expected 1 or more, and at most as many racks as nodes ({nodes}): each rack needs a node"
    );
    Ok(())
}

impl Shape {
    /// The shape of the cluster in `dir`; `None` for a new directory, or one made before the shape was recorded.
    pub fn read(dir: &Path) -> anyhow::Result<Option<Self>> {
        let path = dir.join(SHAPE);
        match std::fs::read(&path) {
            Ok(bytes) => {
                let shape = serde_json::from_slice(&bytes);
                shape.map(Some).with_context(|| format!("{}: expected nodes and racks", path.display()))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// The shape for a start. The arguments must match the recorded shape; more nodes need `--grow`. Without a
    /// record, the folders of nodes are counted.
    pub fn asked(args: &Up, made: Option<Self>) -> anyhow::Result<Self> {
        let Some(made) = made else {
            let there = (0..).take_while(|id| node_dir(&args.dir, *id).is_dir()).count() as u32;
            let nodes = args.nodes.unwrap_or(20.max(there));
            let asked = Self { nodes, racks: args.racks.unwrap_or(5.min(nodes)) };
            check_racks(nodes, asked.racks)?;
            if there > 0 && there != asked.nodes && !args.grow {
                bail!(
                    "{} was made with {there} nodes, got --nodes {}: use --nodes {there}, or --grow to add nodes",
                    args.dir.display(),
                    asked.nodes
                );
            }
            return Ok(asked);
        };
        let asked = Self { nodes: args.nodes.unwrap_or(made.nodes), racks: args.racks.unwrap_or(made.racks) };
        let (dir, Self { nodes, racks }) = (args.dir.display(), made);
        if asked.racks != racks {
            bail!(
                "{dir} was made with {nodes} nodes in {racks} racks, got --racks {}: nodes with blocks cannot \
                 change their racks; leave --racks out",
                asked.racks
            );
        }
        if asked.nodes < nodes {
            bail!(
                "{dir} was made with {nodes} nodes, got --nodes {}: expected {nodes}; to take a node away, drain it \
                 (`kintsu node drain ID`)",
                asked.nodes
            );
        }
        if asked.nodes > nodes && !args.grow {
            bail!(
                "{dir} was made with {nodes} nodes in {racks} racks, got --nodes {}: use --grow to add {} nodes",
                asked.nodes,
                asked.nodes - nodes
            );
        }
        Ok(asked)
    }

    /// Records the shape in `dir`, durably.
    pub fn write(self, dir: &Path) -> anyhow::Result<()> {
        let (path, aside) = (dir.join(SHAPE), dir.join(format!("{SHAPE}.tmp")));
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::File::create(&aside)?;
            file.write_all(&serde_json::to_vec(&self)?)?;
            file.sync_all()?;
            std::fs::rename(&aside, &path)?;
            std::fs::File::open(dir)?.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }
}
