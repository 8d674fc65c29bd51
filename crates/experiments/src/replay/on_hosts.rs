//! Writes of a trace replayed against volumes on emulated hosts. The kernel's counters of the racks' uplinks say what
//! crossed racks; beside them stands what the analysis says of the same writes and the same places of blocks.
//!
//! What counts: bytes that nodes sent to nodes of other racks, headers of packets included. What does not: what the client
//! sends to data nodes and what they answer, calls to and from the coordinator, and whatever came before: each stripe is
//! stored whole, then each of its data blocks is written to and committed once, so that connections exist.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use kintsu_client::{Client, ReadAt as _, Volume, VolumeAccess};
use kintsu_dag::NodeId;
use kintsu_lab::{Lab, Rate, Spec};
use kintsu_plan::Topology;
use kintsu_plan::update::Scheme;
use kintsu_wire::message::{CreateVolume, Durability};
use serde::Serialize;

use super::account::{Account, Sent, Traffic};
use super::dirty::{self, Part, StripeKey};
use super::{Ground, Options};
use crate::error::{ExperimentError, Result};
use crate::figures::site::Noise;
use crate::step::Step;
use crate::trace::Request;

/// How writes are replayed there.
#[derive(Debug, Clone)]
pub struct Hosts {
    /// Each update writes its whole block, as in the paper.
    pub whole_blocks: bool,
    /// Updates at the same time; each scheme is replayed with each of these numbers.
    pub at_once: Vec<usize>,
    /// Its links.
    pub links: Links,
}

/// The rates of links; `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Links {
    /// Of each rack's link to the others.
    pub rack: Option<Rate>,
    /// Of each node's link.
    pub node: Option<Rate>,
    /// From each node to each one of another rack, as between machines of distant regions.
    pub pair: Option<Rate>,
}

impl Links {
    fn spec(&self, nodes: u32, racks: u32) -> Result<Spec> {
        let between = |from, to| if from == to { None } else { self.pair };
        let pairs: Vec<Vec<_>> = (0..racks).map(|a| (0..racks).map(|b| between(a, b)).collect()).collect();
        let spec = Spec::even(nodes, racks, self.node).with_rack_links(self.rack);
        let groups: Vec<usize> = spec.nodes.iter().map(|node| node.rack.0 as usize).collect();
        Ok(spec.with_pair_rates(&groups, &pairs)?)
    }
}

impl std::fmt::Display for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = [("racks", self.rack), ("nodes", self.node), ("nodes of two racks", self.pair)];
        let limits: Vec<String> =
            all.iter().filter_map(|(of, rate)| Some(format!("{of} {}", (*rate)?))).collect();
        match limits.is_empty() {
            true => f.write_str("no limit"),
            false => f.write_str(&limits.join(", ")),
        }
    }
}

/// One trace on emulated hosts.
#[derive(Debug, Clone, Serialize)]
pub struct OnHosts {
    /// The name of the trace.
    pub trace: String,
    /// The code.
    pub code: String,
    /// How many racks.
    pub racks: usize,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Dirty stripes before a commit (u_s).
    pub dirty_stripes: usize,
    /// Blocks that were updated, each as often as that happened.
    pub updates: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Stripes that were written to.
    pub stripes: u64,
    /// The links.
    pub links: Links,
    /// The schemes, each with every number of updates at the same time.
    pub rows: Vec<HostsRow>,
}

/// One scheme on emulated hosts.
#[derive(Debug, Clone, Serialize)]
pub struct HostsRow {
    /// The scheme.
    pub scheme: Scheme,
    /// Updates at the same time.
    pub at_once: usize,
    /// What the analysis says.
    pub analysis: Traffic,
    /// Bytes that nodes sent to nodes of other racks, as the kernel counted them.
    pub kernel_bytes: u64,
    /// The segments that these came in, each with a header of 66 bytes.
    pub segments: u64,
    /// Time for all updates, with their commits.
    pub seconds: f64,
}

/// Ethernet, IP and TCP headers of one segment.
const HEADER_BYTES: u64 = 66;
/// The volume commits by itself what has been dirty for longer; it must not, so that the analysis knows what is committed
/// together.
const COMMIT_AFTER: Duration = Duration::from_secs(20);
/// Updates between two looks at the clock, at least.
const STRIDE: usize = 64;
/// Stripes that are stored at the same time.
const STORED_AT_ONCE: usize = 2;

impl HostsRow {
    /// What the kernel counted over what the analysis says.
    pub fn ratio(&self) -> f64 {
        self.kernel_bytes as f64 / self.analysis.total().max(1) as f64
    }

    /// The same without the headers of segments.
    pub fn ratio_of_payload(&self) -> f64 {
        let payload = self.kernel_bytes.saturating_sub(HEADER_BYTES * self.segments);
        payload as f64 / self.analysis.total().max(1) as f64
    }
}

impl OnHosts {
    /// Updates a second.
    pub fn rate(&self, row: &HostsRow) -> f64 {
        self.updates as f64 / row.seconds.max(1e-9)
    }

    /// For each scheme the row with most updates a second.
    pub fn best(&self) -> Vec<&HostsRow> {
        let mut best: Vec<&HostsRow> = Vec::new();
        for row in &self.rows {
            match best.iter_mut().find(|known| known.scheme == row.scheme) {
                Some(known) if known.seconds <= row.seconds => {}
                Some(known) => *known = row,
                None => best.push(row),
            }
        }
        best
    }
}

/// Replays writes of one trace, the first ones, against all schemes. The caller is inside ([`kintsu_lab::enter`]).
///
/// # Errors
/// As [`super::replay`]; when a lab does not come up, or nodes do not do what they are asked for.
pub async fn on_hosts(
    name: &str,
    writes: &[Request],
    options: &Options,
    hosts: &Hosts,
    tell: &dyn Fn(Step),
) -> Result<OnHosts> {
    let ground = options.ground()?;
    let (parts, stripes) = dense(writes, &ground, hosts)?;
    let spec = hosts.links.spec(options.code.n() as u32, options.racks as u32)?;
    // The replay says when there is a commit. On nodes a stripe more than u_s is dirty then.
    let most = (options.dirty_stripes + 2).to_string();
    let coordinator_args = vec![OsString::from("--dirty-stripes"), OsString::from(most)];
    let lab = Lab::up(&spec, kintsu_lab::Options { coordinator_args, ..Default::default() }).await?;
    let run = Run { lab: &lab, client: lab.client().await?, ground, parts: &parts, stripes, tell };
    let mut rows = Vec::new();
    for &scheme in &options.schemes {
        for &at_once in &hosts.at_once {
            rows.push(run.scheme(scheme, at_once).await?);
        }
    }
    run.client.close().await;
    lab.down().await;
    Ok(OnHosts {
        trace: name.to_owned(),
        code: options.code.name().to_owned(),
        racks: options.racks,
        block_bytes: options.block_bytes,
        dirty_stripes: options.dirty_stripes,
        updates: parts.len() as u64,
        bytes: parts.iter().map(|part| part.range.end - part.range.start).sum(),
        stripes,
        links: hosts.links,
        rows,
    })
}

/// What they write, on stripes that are numbered in the order in which they come.
fn dense(writes: &[Request], ground: &Ground, hosts: &Hosts) -> Result<(Vec<Part>, u64)> {
    let (mut parts, mut numbers) = (Vec::new(), HashMap::new());
    for request in writes {
        for mut part in dirty::parts(request, ground.block_bytes, ground.code.k() as u64) {
            let next = numbers.len() as u64;
            part.stripe = (0, *numbers.entry(part.stripe).or_insert(next));
            if hosts.whole_blocks {
                part.range = 0..ground.block_bytes;
            }
            parts.push(part);
        }
    }
    if parts.is_empty() {
        return Err(ExperimentError::invalid("trace", "1 write or more", 0));
    }
    Ok((parts, numbers.len() as u64))
}

struct Run<'a> {
    lab: &'a Lab,
    client: Client,
    ground: Ground,
    parts: &'a [Part],
    stripes: u64,
    tell: &'a dyn Fn(Step),
}

/// Where the blocks of stripes are.
type Homes = HashMap<StripeKey, Vec<Option<NodeId>>>;

impl Run<'_> {
    async fn scheme(&self, scheme: Scheme, at_once: usize) -> Result<HostsRow> {
        let block_bytes = self.ground.block_bytes;
        let name = format!("replay-{scheme}");
        let create = CreateVolume {
            name: name.clone(),
            size: self.stripes * self.stripe_bytes(),
            code: self.ground.code.name().to_owned(),
            block_bytes,
            durability: Durability::Rack,
            scheme: Some(scheme.to_string()),
        };
        self.client.create_volume(&create).await?;
        let volume = self.client.open_volume(&name, VolumeAccess::Write).await?;
        let (homes, topology) = self.store(&volume, scheme).await?;
        let before = self.lab.counters().await?;
        let began = Instant::now();
        let early = self.replay(&volume, scheme, at_once).await?;
        let seconds = began.elapsed().as_secs_f64();
        let crossed = self.lab.counters().await?.since(&before);
        volume.close().await?;
        self.client.remove_volume(&name).await?;
        let ground = Ground { topology, ..self.ground.clone() };
        let analysis = analysis(&ground, scheme, self.parts, homes, &early)?;
        let (kernel_bytes, segments) = (crossed.between_racks_bytes(), crossed.between_racks_packets());
        Ok(HostsRow { scheme, at_once, analysis, kernel_bytes, segments, seconds })
    }

    fn stripe_bytes(&self) -> u64 {
        self.ground.block_bytes * self.ground.code.k() as u64
    }

    /// Stores all stripes, and writes to each of their blocks once.
    async fn store(&self, volume: &Volume, scheme: Scheme) -> Result<(Homes, Topology)> {
        let stripe_bytes = self.stripe_bytes();
        let content = noise(stripe_bytes)?;
        let stored = futures::stream::iter(0..self.stripes).map(async |index| {
            volume.write(index * stripe_bytes, content.clone()).await?;
            for block in 0..self.ground.code.k() as u64 {
                let at = index * stripe_bytes + block * self.ground.block_bytes;
                volume.write(at, content.slice(1..513)).await?;
            }
            Ok::<_, ExperimentError>(index)
        });
        let mut stored = stored.buffer_unordered(STORED_AT_ONCE);
        let mut done = 0;
        while stored.try_next().await?.is_some() {
            done += 1;
            self.say(scheme, "storing stripes", done, self.stripes);
        }
        self.commit(volume, scheme).await?;
        let (mut homes, mut topology) = (Homes::new(), Topology::default());
        for index in 0..self.stripes {
            let (view, known) = volume.stripe_view(index).await?;
            homes.insert((0, index), view.homes);
            topology = known;
        }
        Ok((homes, topology))
    }

    /// All updates, with commits when more stripes are dirty than may be. Returns after which updates there were
    /// commits before that.
    async fn replay(&self, volume: &Volume, scheme: Scheme, at_once: usize) -> Result<BTreeSet<usize>> {
        let longest = self.parts.iter().map(|part| part.range.end - part.range.start).max().unwrap_or(0);
        let content = noise(longest + SHIFTS)?;
        let (mut early, mut committed, mut at) = (BTreeSet::new(), Instant::now(), 0);
        let mut dirty = BTreeSet::new();
        while at < self.parts.len() {
            let range = self.stride(at, STRIDE.max(4 * at_once), &mut dirty);
            let updates = futures::stream::iter(range.clone()).map(async |number| {
                let part = &self.parts[number];
                let offset = part.stripe.1 * self.stripe_bytes()
                    + u64::from(part.block.0) * self.ground.block_bytes
                    + part.range.start;
                let from = number % SHIFTS as usize;
                let to = from + (part.range.end - part.range.start) as usize;
                volume.write(offset, content.slice(from..to)).await
            });
            updates.buffer_unordered(at_once).try_collect::<()>().await?;
            at = range.end;
            let full = dirty.len() > self.ground.dirty_stripes;
            if full || at == self.parts.len() || committed.elapsed() > COMMIT_AFTER {
                self.commit(volume, scheme).await?;
                if !full {
                    early.insert(at - 1);
                }
                dirty.clear();
                committed = Instant::now();
            }
            self.say(scheme, "updates", at as u64, self.parts.len() as u64);
        }
        Ok(early)
    }

    /// The next updates, up to one after which there must be a commit.
    fn stride(&self, at: usize, most: usize, dirty: &mut BTreeSet<StripeKey>) -> Range<usize> {
        let end = self.parts.len().min(at + most);
        for number in at..end {
            dirty.insert(self.parts[number].stripe);
            if dirty.len() > self.ground.dirty_stripes {
                return at..number + 1;
            }
        }
        at..end
    }

    async fn commit(&self, volume: &Volume, scheme: Scheme) -> Result<()> {
        let name = &volume.info().name;
        let done = self.client.commit_volume(name, Some(scheme.to_string())).await?;
        match done.left.is_empty() {
            true => Ok(()),
            false => Err(ExperimentError::invalid("commit", "nothing dirty after it", done.left.join("; "))),
        }
    }

    fn say(&self, scheme: Scheme, what: &str, done: u64, total: u64) {
        (self.tell)(Step { what: format!("{scheme}: {what}"), done, total });
    }
}

/// Contents differ from one update of a range to the next.
const SHIFTS: u64 = 251;

fn noise(len: u64) -> Result<Bytes> {
    let mut bytes = vec![0; len as usize];
    Noise::new(len).read_at(0, &mut bytes).map_err(ExperimentError::io("random bytes"))?;
    Ok(Bytes::from(bytes))
}

/// What the analysis says of these updates, with commits also after those in `early`.
fn analysis(
    ground: &Ground,
    scheme: Scheme,
    parts: &[Part],
    homes: Homes,
    early: &BTreeSet<usize>,
) -> Result<Traffic> {
    let mut account = Account::at(ground, scheme, Sent::AsNodes, homes);
    for (number, part) in parts.iter().enumerate() {
        account.update(part)?;
        if early.contains(&number) {
            account.commit()?;
        }
    }
    Ok(account.traffic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_have_links_between_each_two_of_their_nodes() {
        let rate = |text: &str| Some(text.parse::<Rate>().unwrap());
        let links = Links { node: rate("113Mb/s"), pair: rate("10Mb/s"), ..Links::default() };
        let spec = links.spec(6, 3).unwrap();
        assert_eq!(spec.pairs.len(), 6 * 4, "to each node but itself and one in its rack");
        assert!(!spec.pairs.contains_key(&(NodeId(0), NodeId(3))), "both are in rack 0");
        assert_eq!(links.to_string(), "nodes 113Mb/s, nodes of two racks 10Mb/s");
        assert_eq!(Links::default().to_string(), "no limit");
        assert!(Links::default().spec(6, 3).unwrap().pairs.is_empty());
    }
}
