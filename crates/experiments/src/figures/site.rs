//! A running lab with a client and stripes of random bytes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use kintsu_client::{Client, PutOptions, ReadAt};
use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, RackId};
use kintsu_lab::{Host, Lab, Link, Options, Rate, Spec};
use kintsu_plan::{Layout, StripeView, Topology};
use kintsu_runtime::Conductor;
use kintsu_wire::Credentials;
use kintsu_wire::message::{BlockPlace, CauseKind, Encoding, NodeAction, NodeState};

use super::declare::{Case, Scene};
use super::simulated::Trial;
use crate::error::{ExperimentError, Result};
use crate::jobs::finish;

/// A lab and what experiments need for it.
pub struct Site {
    /// The lab.
    pub lab: Lab,
    /// A client whose own link has no limit.
    pub client: Client,
    /// Starts programs on agents.
    pub conductor: Conductor,
    /// The names of the stored objects, by their description.
    stored: BTreeMap<Wanted, String>,
    /// Where the blocks of objects that are recovered were when they were written, by name.
    homes: BTreeMap<String, Homes>,
}

/// The nodes with an object's blocks, by stripe and block.
type Homes = Vec<Vec<Option<NodeId>>>;

/// An object of random bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// Name of the code.
    pub code: String,
    /// Bytes in a block.
    pub block_bytes: u64,
    /// Bytes in a cell; by default what fits the code.
    pub cell_bytes: Option<u32>,
    /// How many stripes.
    pub stripes: u64,
    /// Whether it is written plain with its parity made afterwards, so that each block holds contiguous bytes.
    pub encoded_later: bool,
}

impl Wanted {
    /// One stripe for a case.
    pub fn of(case: &Case) -> Self {
        let Case { code, block_bytes, cell_bytes, .. } = case.clone();
        Self { code, block_bytes, cell_bytes, stripes: 1, encoded_later: false }
    }
}

/// A stripe in the lab, as planners and agents need to know it.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Where its blocks are.
    pub view: StripeView,
    /// The nodes, their racks and the rates of their links.
    pub topology: Topology,
    /// The generation of its blocks.
    pub generation: u32,
    /// The digests of its blocks.
    pub digests: Vec<Option<[u8; 16]>>,
}

impl Site {
    /// Brings the lab of a scene up.
    ///
    /// # Errors
    /// When the lab does not come up.
    pub async fn up(scene: &Scene, spec: &Spec) -> Result<Self> {
        let untold = scene.cases.iter().any(|case| !case.work.is_told());
        let phase = scene.cases.iter().find_map(|case| case.work.phase());
        let phase = phase.map(|phase| ["--phase".into(), format!("{}ms", phase.as_millis()).into()]);
        let coordinator_args = phase.into_iter().flatten().collect();
        let options = Options { measure: untold, coordinator_args, ..Options::default() };
        let lab = Lab::up(spec, options).await?;
        let client = lab.client().await?;
        let credentials = Credentials::token(lab.token());
        let credentials =
            credentials.map_err(|e| ExperimentError::invalid("token", "one that can be shown", e))?;
        let cluster = client.status().await?.cluster;
        if let Some(cluster) = cluster {
            credentials.join(cluster).map_err(|e| ExperimentError::invalid("cluster", "the lab's own", e))?;
        }
        let site = Self {
            lab,
            client,
            conductor: Conductor::new(credentials),
            stored: BTreeMap::new(),
            homes: BTreeMap::new(),
        };
        for node in &scene.free {
            // A node that is being emptied gets no blocks.
            finish(site.client.command_node(*node, NodeAction::Drain).await?, |_, _| {}).await?;
        }
        Ok(site)
    }

    /// Ends the lab.
    pub async fn down(self) {
        self.client.close().await;
        self.lab.down().await;
    }

    /// The host of a node.
    pub fn host(&self, node: NodeId) -> Option<&Host> {
        self.lab.hosts().get(node.0 as usize)
    }

    /// Waits until the coordinator considers a node alive.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn wait_alive(&self, node: NodeId) -> Result<()> {
        for _ in 0..600 {
            let nodes = self.client.nodes().await?.nodes;
            if nodes.iter().any(|known| known.id == node && known.state == NodeState::Alive) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(ExperimentError::invalid("node", format!("{node} alive within a minute"), "silence"))
    }

    /// Has the coordinator forget which nodes it took for slow and how fast repairs were, so that the next sample begins as the first
    /// one did. Returns when all nodes are alive and have registered again.
    ///
    /// # Errors
    /// When it does not start again, or a node does not come back.
    pub async fn forget(&self) -> Result<()> {
        self.lab.restart_coordinator().await?;
        for _ in 0..600 {
            let causes = self.client.health(0).await?.causes;
            if causes.iter().all(|cause| cause.kind != CauseKind::Unreported) {
                for host in self.lab.hosts() {
                    self.wait_alive(host.node).await?;
                }
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(ExperimentError::invalid("nodes", "all registered within a minute", "some that are not"))
    }

    /// The name of an object; it is written if it is not there yet.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn object(&mut self, wanted: &Wanted) -> Result<String> {
        if let Some(name) = self.stored.get(wanted) {
            return Ok(name.clone());
        }
        let free = |name: &String| !self.stored.values().any(|taken| taken == name);
        let name = (0..).map(|number| format!("object-{number}")).find(free).unwrap_or_default();
        if wanted.encoded_later {
            self.put(wanted, &name, Encoding::Offline).await?;
            finish(self.client.encode(&name).await?, |_, _| {}).await?;
        } else {
            self.put(wanted, &name, Encoding::Online).await?;
        }
        self.stored.insert(wanted.clone(), name.clone());
        Ok(name)
    }

    /// The name of an object that is laid out as a new one, to be recovered. A node that was wiped gets few of its blocks back unless it
    /// is the only requestor, so after some recoveries all stripes would be on the same nodes, and only the others could get
    /// blocks. An object of which blocks have moved is therefore written again. `told` says whether the coordinator is told
    /// the rates of links. Then it is written over links without limits; and the coordinator starts anew, so
    /// that it takes no write for what users do. Otherwise it would take what it saw for what links carry, so they keep their limits.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn laid_out(&mut self, wanted: &Wanted, told: bool) -> Result<String> {
        let mut name = self.object(wanted).await?;
        let mut homes = self.homes(wanted, &name).await?;
        if self.homes.get(&name).is_some_and(|written| *written != homes) {
            self.client.remove(&name).await?;
            self.stored.remove(wanted);
            let limits = if told { self.lift().await? } else { Limits::new() };
            let written = self.object(wanted).await;
            self.limit(&limits).await?;
            name = written?;
            homes = self.homes(wanted, &name).await?;
        }
        self.homes.insert(name.clone(), homes);
        if told {
            self.forget().await?;
        }
        Ok(name)
    }

    /// Where the blocks of an object are.
    async fn homes(&self, wanted: &Wanted, name: &str) -> Result<Homes> {
        let mut homes = Homes::new();
        while (homes.len() as u64) < wanted.stripes {
            let found =
                self.client.stripes(name, homes.len() as u64, wanted.stripes - homes.len() as u64).await?;
            if found.stripes.is_empty() {
                let came = format!("{} of {name}", homes.len());
                return Err(ExperimentError::invalid("stripes", wanted.stripes.to_string(), came));
            }
            let of = |blocks: Vec<Option<BlockPlace>>| {
                blocks.iter().map(|block| block.as_ref().map(|b| b.node)).collect()
            };
            homes.extend(found.stripes.into_iter().map(|stripe| of(stripe.blocks)));
        }
        Ok(homes)
    }

    /// Lets links carry what they can; returns their limits.
    ///
    /// # Errors
    /// When a rate cannot be set.
    pub async fn lift(&self) -> Result<Limits> {
        let limits = links(&self.lab.spec().await);
        for (link, _) in &limits {
            self.lab.set_rate(*link, None).await?;
        }
        Ok(limits)
    }

    /// Gives links these limits again.
    ///
    /// # Errors
    /// As [`Site::lift`].
    pub async fn limit(&self, limits: &Limits) -> Result<()> {
        for (link, rate) in limits {
            self.lab.set_rate(*link, *rate).await?;
        }
        Ok(())
    }

    /// Writes an object of random bytes; returns its length.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn put(&self, wanted: &Wanted, name: &str, encoding: Encoding) -> Result<u64> {
        let code = parse(&wanted.code)?;
        let (block_bytes, cell_bytes) = sizes(&*code, wanted.block_bytes, wanted.cell_bytes);
        let options = PutOptions {
            encoding,
            block_bytes: Some(block_bytes),
            cell_bytes: Some(cell_bytes),
            replace: true,
            ..PutOptions::new(&wanted.code)
        };
        let len = wanted.stripes * code.k() as u64 * block_bytes;
        let source = Arc::new(Noise::new(len));
        self.client.put(source, name, options, |_, _| {}).await?;
        Ok(len)
    }

    /// A stripe of an object as it is now.
    ///
    /// # Errors
    /// When the coordinator does not know it.
    pub async fn stripe(&self, name: &str, position: u64) -> Result<Stored> {
        let (view, mut topology) = self.client.stripe_view(name, position).await?;
        topology.rates = self.lab.spec().await.rates();
        let found = self.client.stripes(name, position, 1).await?;
        let info = found.stripes.first();
        let info =
            info.ok_or_else(|| ExperimentError::invalid("stripe", format!("{position} of {name}"), "none"))?;
        let digests = info.blocks.iter().map(|place| place.as_ref().and_then(|place| place.digest));
        Ok(Stored { view, topology, generation: info.generation, digests: digests.collect() })
    }
}

impl Stored {
    /// Bytes in its longest block.
    pub fn block_bytes(&self) -> u64 {
        self.view.layout.longest(self.view.code.k())
    }

    /// The record of a repair or copy of these blocks in slices of `step_bytes`.
    pub fn trial(&self, goals: &[(BlockIndex, NodeId)], step_bytes: u32) -> Trial {
        let StripeView { id, layout, homes, .. } = self.view.clone();
        Trial { stripe: id, layout, homes, goals: goals.to_vec(), step_bytes }
    }
}

/// Links with their limits.
pub type Limits = Vec<(Link, Option<Rate>)>;

/// The links of nodes and racks that have limits.
fn links(spec: &Spec) -> Limits {
    let nodes = spec.node_ids().zip(&spec.nodes);
    let nodes =
        nodes.flat_map(|(id, node)| [(Link::NodeUp(id), node.link.up), (Link::NodeDown(id), node.link.down)]);
    let racks = (0..).map(RackId).zip(&spec.racks);
    let racks = racks.flat_map(|(id, link)| [(Link::RackUp(id), link.up), (Link::RackDown(id), link.down)]);
    nodes.chain(racks).filter(|(_, rate)| rate.is_some()).collect()
}

/// A block and a cell size that fit the code; the block is as long as requested or a little longer.
pub fn sizes(code: &dyn Code, block_bytes: u64, cell_bytes: Option<u32>) -> (u64, u32) {
    let (_, cell) = Layout::sizes(code.w(), None, cell_bytes);
    let cell = if code.w() == 1 { u64::from(cell).min(block_bytes) as u32 } else { cell };
    (block_bytes.next_multiple_of(u64::from(cell.max(1))), cell)
}

/// The code with this name.
///
/// # Errors
/// `Invalid` when there is none.
pub fn parse(name: &str) -> Result<Arc<dyn Code>> {
    kintsu_code::parse(name).map_err(|error| ExperimentError::invalid("code", "one that can be made", error))
}

/// Bytes that look random and are the same at every reading.
pub struct Noise {
    len: u64,
}

impl ReadAt for Noise {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let skip = (offset % 8) as usize;
        let mut word = offset / 8;
        let (head, rest) = buffer.split_at_mut(((8 - skip) % 8).min(buffer.len()));
        if !head.is_empty() {
            head.copy_from_slice(&self.word(word)[skip..][..head.len()]);
            word += 1;
        }
        for chunk in rest.chunks_mut(8) {
            chunk.copy_from_slice(&self.word(word)[..chunk.len()]);
            word += 1;
        }
        Ok(())
    }
}

impl Noise {
    /// This many bytes.
    pub fn new(len: u64) -> Self {
        Self { len }
    }

    /// Writes them to a file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &std::path::Path) -> io::Result<()> {
        let mut file = std::fs::File::create(path)?;
        let mut piece = vec![0; 1 << 20];
        let mut at = 0;
        while at < self.len {
            let len = (self.len - at).min(1 << 20) as usize;
            self.read_at(at, &mut piece[..len])?;
            io::Write::write_all(&mut file, &piece[..len])?;
            at += len as u64;
        }
        Ok(())
    }

    /// The word at this place: the finaliser of SplitMix64 (Steele, Lea, Flood 2014) over a counter.
    fn word(&self, at: u64) -> [u8; 8] {
        let mut z = (at ^ self.len.rotate_left(32)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_the_same_however_it_is_read() {
        let noise = Noise::new(100);
        let mut whole = vec![0; 100];
        noise.read_at(0, &mut whole).unwrap();
        for from in 0..100 {
            for to in from..=100 {
                let mut part = vec![0; to - from];
                noise.read_at(from as u64, &mut part).unwrap();
                assert_eq!(part, whole[from..to], "{from}..{to}");
            }
        }
        assert!(noise.read_at(99, &mut [0; 2]).is_err());
        assert!(whole.chunks(8).collect::<std::collections::BTreeSet<_>>().len() > 12);
    }

    #[test]
    fn blocks_are_whole_cells() {
        for (name, least) in [("rs:n=14,k=10", 1 << 20), ("drc:n=9,k=6", 16 << 20), ("rs:n=3,k=2", 5000)] {
            let code = parse(name).unwrap();
            let (block, cell) = sizes(&*code, least, None);
            let kind = kintsu_plan::LayoutKind::Striped;
            kintsu_plan::Division::new(1, code.k(), code.w(), kind, block, cell).unwrap();
            assert!(block >= least && block < 2 * least);
        }
        assert!(parse("nonsense").is_err());
    }
}
