//! Volumes: fixed-size virtual disks. Reads and writes go to the nodes directly; the coordinator says where blocks are, and
//! who may write.
//!
//! - a stripe exists when something was written to it: its first write stores it whole, as an object of one stripe;
//! - every other write goes to the logs of all nodes that the stripe's map names, and is acknowledged when it is durable in
//!   all of them; blocks and parities follow later (`docs/adr/0008-updates-in-place.md`). If the volume's scheme updates
//!   parities with each write, one node logs it, and it is acknowledged when it is committed;
//! - a read lays the log over the block, at its home; without the home it decodes the block, and gets the log from
//!   another node that has it;
//! - a call whose map is too old is refused by a node, which knows a newer epoch; then the map is asked for once more.
//!
//! Invariants: nothing is acknowledged without a lease; writes to the same bytes reach the logs in the order in which they
//! were called, if each waited for the one before; a call that was dropped goes on until it is clear how it ended.

mod append;
mod lease;
mod map;
mod operate;
mod ranges;
mod read;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kintsu_plan::update::Scheme;
use kintsu_plan::{StripeView, Topology};
use kintsu_wire::message::{OpenVolume, VolumeInfo};

use crate::{Client, ClientError};
use lease::Writer;
use map::Map;
pub(crate) use operate::stripe_name;
use ranges::Ranges;

/// What is written at once, or a stripe if that is longer; longer writes are cut.
const MOST_WRITE_BYTES: u64 = 8 << 20;

/// How a volume is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VolumeAccess {
    /// To read. What the writer wrote is seen when it is acknowledged.
    #[default]
    Read,
    /// To read and write, unless somebody else does.
    Write,
    /// The same, and whoever writes until now is refused from now on.
    TakeOver,
}

/// A part of a volume that is stored, or that is not, and reads as zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// Whether it is stored.
    pub allocated: bool,
}

/// An open volume; cheap to clone, all clones share one lease. When the last one is dropped, the lease is given back.
#[derive(Clone)]
pub struct Volume {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    info: VolumeInfo,
    map: Map,
    writer: Option<Writer>,
    /// Whether parities follow with each write.
    at_once: bool,
    /// Whether nodes with replicas get the bytes that writes replace.
    sends_old: bool,
    /// Whether replicas are deltas.
    sends_deltas: bool,
    /// Writes under way.
    ranges: Ranges,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("name", &self.shared.info.name).finish_non_exhaustive()
    }
}

impl Client {
    /// Opens a volume.
    ///
    /// # Errors
    /// `NotFound`; `Placement` if somebody else writes to it; whatever keeps the coordinator from answering.
    pub async fn open_volume(&self, name: &str, access: VolumeAccess) -> Result<Volume, ClientError> {
        let random = || getrandom::u64().map_err(|e| ClientError::Io(format!("no random numbers: {e}")));
        let writer = match access {
            VolumeAccess::Read => None,
            VolumeAccess::Write | VolumeAccess::TakeOver => Some(random()?),
        };
        let open = OpenVolume { name: name.to_owned(), writer, take: access == VolumeAccess::TakeOver };
        let asked = tokio::time::Instant::now();
        let opened = self.call(|mut c| {
            let open = open.clone();
            async move { c.volumes.open_volume(open).await }
        });
        let opened = opened.await?;
        self.join(opened.cluster)?;
        let id = opened.volume.id;
        let lease = Duration::from_millis(opened.lease_ms);
        let writer = writer.map(|writer| Writer::hold(self, (id, writer), opened.taken, asked, lease));
        let map = Map::new(self.clone(), &opened.volume, writer.as_ref().map(Writer::number));
        let row = opened.volume.scheme.parse::<Scheme>().unwrap_or_default().row();
        let (at_once, sends_old, sends_deltas) = (row.at_once, row.old_first, row.replicates_deltas());
        let (client, info, ranges) = (self.clone(), opened.volume, Ranges::default());
        let shared = Shared { client, info, map, writer, at_once, sends_old, sends_deltas, ranges };
        Ok(Volume { shared: Arc::new(shared) })
    }
}

impl Volume {
    /// The volume as it was when it was opened.
    pub fn info(&self) -> &VolumeInfo {
        &self.shared.info
    }

    /// Its size in bytes; grows when it is resized.
    pub fn size(&self) -> u64 {
        self.shared.map.size()
    }

    /// Reads `len` bytes from `offset`. What was never written is zeros.
    ///
    /// # Errors
    /// `Invalid` for no bytes, and past the end; `Unrecoverable` when too few nodes are left; `Unreachable` when none that
    /// logged updates answers.
    pub async fn read(&self, offset: u64, len: u64) -> Result<Bytes, ClientError> {
        self.check(offset, len)?;
        read::read(&self.shared, offset, len).await
    }

    /// Writes bytes at `offset`; they are durable when this returns. If it fails, each of them may be written or not. A
    /// dropped call goes on.
    ///
    /// # Errors
    /// `Invalid` for no bytes, past the end, and for a volume that was opened to read; `Interrupted` when somebody else has
    /// taken the volume over; `Full`; `Placement` when too few nodes answer.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), ClientError> {
        self.check(offset, data.len() as u64)?;
        // Cut between stripes: a stripe that is written whole is stored without a log.
        let stripe = self.shared.info.stripe_bytes();
        let most = stripe * (MOST_WRITE_BYTES / stripe).max(1);
        let (mut at, end) = (offset, offset + data.len() as u64);
        while at < end {
            let upto = (at - at % stripe + most).min(end);
            let part = data.slice((at - offset) as usize..(upto - offset) as usize);
            let (shared, content) = (self.shared.clone(), append::Content::Bytes(part));
            self.to_its_end(async move { append::write(&shared, at, content).await }).await?;
            at = upto;
        }
        Ok(())
    }

    /// Writes zeros. Where nothing is stored, nothing is stored after it either.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub async fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        self.check(offset, len)?;
        let stripe = self.shared.info.stripe_bytes();
        let mut at = offset;
        while at < offset + len {
            let upto = (at - at % stripe + stripe).min(offset + len);
            let (shared, zeros) = (self.shared.clone(), append::Content::Zeros(upto - at));
            self.to_its_end(async move { append::write(&shared, at, zeros).await }).await?;
            at = upto;
        }
        Ok(())
    }

    /// The bytes are not needed any more: they read as zeros from now on. The space of their stripes is not freed.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub async fn trim(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        self.write_zeroes(offset, len).await
    }

    /// Makes all finished writes durable. They are already: this only tells whether this is still the writer.
    ///
    /// # Errors
    /// `Interrupted` when somebody else has taken the volume over.
    pub async fn flush(&self) -> Result<(), ClientError> {
        match &self.shared.writer {
            Some(writer) => writer.check().await,
            None => Ok(()),
        }
    }

    /// Which parts of a range are stored, in order, together the whole range.
    ///
    /// # Errors
    /// `Invalid` for no bytes and past the end; whatever keeps the coordinator from answering.
    pub async fn allocated(&self, offset: u64, len: u64) -> Result<Vec<Extent>, ClientError> {
        self.check(offset, len)?;
        let stripe = self.shared.info.stripe_bytes();
        let mut extents: Vec<Extent> = Vec::new();
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let upto = (at - at % stripe + stripe).min(end);
            let allocated = self.shared.map.stripe(at / stripe).await?.is_some();
            match extents.last_mut() {
                Some(last) if last.allocated == allocated => last.len += upto - at,
                _ => extents.push(Extent { offset: at, len: upto - at, allocated }),
            }
            at = upto;
        }
        Ok(extents)
    }

    /// Where the blocks of a stripe are, counted in the volume, and the nodes of the cluster.
    ///
    /// # Errors
    /// `NotFound` for a stripe to which nothing was written; whatever keeps the coordinator from answering.
    pub async fn stripe_view(&self, index: u64) -> Result<(StripeView, Topology), ClientError> {
        self.shared.client.stripe_view(&stripe_name(self.shared.info.id, index), 0).await
    }

    /// Gives the lease back, so that somebody else can write at once.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering; the lease then ends by itself.
    pub async fn close(self) -> Result<(), ClientError> {
        match &self.shared.writer {
            Some(writer) => writer.close().await,
            None => Ok(()),
        }
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        let size = self.size();
        if len > 0 && offset.checked_add(len).is_some_and(|end| end <= size) {
            return Ok(());
        }
        let name = &self.shared.info.name;
        Err(ClientError::Invalid(format!(
            "range of volume {name}: expected at least 1 byte within its {size} bytes, got {len} from {offset}"
        )))
    }

    /// Runs a write to its end even if the caller stops waiting: a later write to the same bytes must come behind it.
    async fn to_its_end(
        &self,
        write: impl Future<Output = Result<(), ClientError>> + Send + 'static,
    ) -> Result<(), ClientError> {
        match tokio::spawn(write).await {
            Ok(ended) => ended,
            Err(error) => Err(ClientError::Io(format!("a write ended early: {error}"))),
        }
    }
}
