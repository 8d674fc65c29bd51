//! Loose stripes of small objects become packs: objects that lie alone or in packs that are mostly dead are read, written together
//! as one pack, and moved there by its commit (`docs/adr/0016-packs.md`).
//!
//! The coordinator names the stripes. Those of one kind are gathered; a pack is written when that is worth it ([`Group::is_worth`]).
//! One pack is written at a time, and users go on meanwhile: who reads an object that moves looks it up again (`portion.rs`), and
//! an object that is replaced, removed or moved by somebody else before the commit stays as it is then. If this ends at any
//! moment, each object is at its old place or at its new one. Several clients may do this at once; one of them moves an object, and
//! the others have written it in vain.
//!
//! Memory: two packs, and what is said of the loose stripes of each kind that do not fill one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use kintsu_dag::StripeId;
use kintsu_wire::message::{
    Checksum, FindLoose, Lookup, LooseMember, LooseStripe, LooseStripes, MOST_MEMBERS, MemberEnd,
    MemberReply, Moving, NewMember,
};
use serde::Serialize;
use tokio::time::Instant;
use tonic::Code;

use crate::checksum::Running;
use crate::pack::{Kind, SAID_BYTES};
use crate::read::GetOptions;
use crate::{Client, ClientError};

/// Loose stripes that are asked for at a time.
const PAGE: u32 = 256;

/// Objects that are read at the same time.
const READS: usize = 8;

/// A pack is worth it if it frees at least this many bytes of objects that are gone.
const FREED_BYTES: u64 = 64 << 10;

/// The time between two rounds of [`Client::repack_regularly`].
const PAUSE: Duration = Duration::from_secs(3600);

/// What is gathered into packs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepackOptions {
    /// What was written less than this long ago is left where it is.
    pub older_than: Duration,
    /// A pack that is not full takes the place of at least this many stripes (2 at least), unless it frees many bytes.
    pub least: usize,
}

impl Default for RepackOptions {
    fn default() -> Self {
        Self { older_than: Duration::from_secs(600), least: 16 }
    }
}

/// What was gathered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RepackReport {
    /// Loose stripes that were found.
    pub loose: u64,
    /// Packs that were written.
    pub packs: u64,
    /// Objects that moved into them.
    pub objects: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Stripes that are gone, because all of their objects moved.
    pub stripes_freed: u64,
    /// Bytes of objects that had gone before, in these stripes.
    pub bytes_freed: u64,
    /// Objects that were to move and did not: they changed meanwhile, or could not be read.
    pub left: u64,
    /// Why packs or objects were left as they are, for people; the first few reasons.
    pub failed: Vec<String>,
}

/// Reasons that a report has at most.
const MOST_REASONS: usize = 16;

impl RepackReport {
    fn failed(&mut self, objects: usize, why: String) {
        self.left += objects as u64;
        if self.failed.len() < MOST_REASONS && !self.failed.contains(&why) {
            self.failed.push(why);
        }
    }
}

/// Loose stripes of one kind that may become a pack.
#[derive(Default)]
struct Group {
    stripes: Vec<LooseStripe>,
    members: usize,
    bytes: u64,
    said: usize,
}

impl Group {
    /// Adds a stripe if there is room for it.
    fn add(&mut self, stripe: LooseStripe, most_bytes: u64) -> Result<(), LooseStripe> {
        let bytes = stripe.members.iter().fold(self.bytes, |sum, m| sum.saturating_add(m.size));
        let said = stripe.members.iter().fold(self.said, |sum, m| sum.saturating_add(m.said as usize));
        let members = self.members + stripe.members.len();
        if bytes > most_bytes || said > SAID_BYTES || members > MOST_MEMBERS {
            return Err(stripe);
        }
        (self.bytes, self.said, self.members) = (bytes, said, members);
        self.stripes.push(stripe);
        Ok(())
    }

    /// Bytes of objects that are gone.
    fn dead(&self) -> u64 {
        let all = self.stripes.iter().fold(0u64, |sum, stripe| sum.saturating_add(stripe.size));
        all.saturating_sub(self.bytes)
    }

    /// Whether it is worth a pack: it takes the place of many stripes, or of several and is half full, or frees many bytes.
    fn is_worth(&self, least: usize, most_bytes: u64) -> bool {
        let count = self.stripes.len();
        count >= least.max(2) || count >= 2 && self.bytes * 2 >= most_bytes || self.dead() >= FREED_BYTES
    }
}

/// An object that was read.
struct Copied {
    new: NewMember,
    bytes: Bytes,
    sum: Checksum,
}

impl Client {
    /// Gathers loose stripes into packs. `progress` gets a report of what is done until then, after each pack. Dropping the future
    /// abandons the pack that is being written.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering. Objects that cannot be read, and packs that cannot be written, are no error:
    /// the report has the reasons.
    pub async fn repack(
        &self,
        options: RepackOptions,
        progress: impl Fn(&RepackReport),
    ) -> Result<RepackReport, ClientError> {
        let (mut report, mut groups) = (RepackReport::default(), BTreeMap::<Kind, Group>::new());
        let mut after = Some(0);
        while let Some(from) = after {
            let page = self.loose(from, options.older_than).await?;
            report.loose += page.stripes.len() as u64;
            for stripe in page.stripes {
                let kind = Kind {
                    code: stripe.code.clone(),
                    block_bytes: Some(stripe.block_bytes),
                    cell_bytes: Some(stripe.cell_bytes),
                };
                let group = groups.entry(kind.clone()).or_default();
                let Err(stripe) = group.add(stripe, kind.most_bytes()) else { continue };
                let full = std::mem::take(group);
                // One that has no room in an empty group is left where it is.
                let _ = group.add(stripe, kind.most_bytes());
                self.gather(&kind, full, options, &mut report).await?;
                progress(&report);
            }
            after = page.next.filter(|next| *next > from);
        }
        for (kind, group) in groups {
            self.gather(&kind, group, options, &mut report).await?;
            progress(&report);
        }
        Ok(report)
    }

    /// Gathers loose stripes once in an hour, for ever.
    pub async fn repack_regularly(&self) {
        loop {
            tokio::time::sleep(PAUSE).await;
            match self.repack(RepackOptions::default(), |_| {}).await {
                Ok(RepackReport { packs: 0, left: 0, .. }) => {}
                Ok(RepackReport { packs, objects, stripes_freed, left, failed, .. }) => {
                    tracing::info!(
                        "{objects} small objects of {stripes_freed} stripes moved into {packs} packs; {left} stayed: {}",
                        failed.join("; ")
                    );
                }
                Err(error) => tracing::info!("small objects were not gathered: {error}"),
            }
        }
    }

    async fn loose(&self, after: u64, older_than: Duration) -> Result<LooseStripes, ClientError> {
        let find = FindLoose { after, limit: PAGE, older_than_s: older_than.as_secs() };
        self.call_patiently(|mut c| {
            let find = find.clone();
            async move { c.objects.find_loose(find).await }
        })
        .await
    }

    /// Writes a pack of the objects of these stripes, if that is worth it.
    async fn gather(
        &self,
        kind: &Kind,
        group: Group,
        options: RepackOptions,
        report: &mut RepackReport,
    ) -> Result<(), ClientError> {
        if !group.is_worth(options.least, kind.most_bytes()) {
            return Ok(());
        }
        let members = group.stripes.iter().flat_map(|s| s.members.iter().map(|member| (s.stripe, *member)));
        let reads = members.map(|(stripe, member)| async move {
            self.copied(stripe, member).await.map_err(|error| (member.id, error))
        });
        let reads: Vec<_> = reads.collect();
        let reads: Vec<_> = futures::stream::iter(reads).buffered(READS).collect().await;
        let mut copies = Vec::with_capacity(reads.len());
        for read in reads {
            match read {
                Ok(copied) => copies.push(copied),
                // It was removed meanwhile, so it wastes nothing any more.
                Err((_, ClientError::NotFound(_))) => {}
                Err((id, error)) => report.failed(1, format!("object {id}: {error}")),
            }
        }
        if copies.is_empty() {
            return Ok(());
        }
        let ends: Vec<_> = copies
            .iter()
            .map(|copy| MemberEnd { checksum: Some(copy.sum), ..MemberEnd::default() })
            .collect();
        let new = copies.into_iter().map(|copy| (copy.new, copy.bytes)).collect();
        let written = self.pack(kind, new, || ends.clone()).await;
        let replies = match written {
            Ok((replies, _)) => replies,
            Err(error) if error.is_unreachable() => return Err(error),
            Err(error) => {
                report.failed(ends.len(), error.to_string());
                return Ok(());
            }
        };
        let mut there = BTreeSet::new();
        for reply in replies {
            match reply {
                MemberReply::Visible(object) => {
                    there.insert(object.id);
                    report.bytes += object.size;
                }
                MemberReply::Refused { code, .. } if Code::from_i32(code) == Code::NotFound => {}
                MemberReply::Refused { words, .. } => report.failed(1, words),
                MemberReply::Unmet(_) => report.failed(1, "a check that nobody asked for".into()),
            }
        }
        report.objects += there.len() as u64;
        report.packs += u64::from(!there.is_empty());
        for stripe in group.stripes {
            if stripe.members.iter().all(|member| there.contains(&member.id)) {
                report.stripes_freed += 1;
                let live = stripe.members.iter().fold(0u64, |sum, m| sum.saturating_add(m.size));
                report.bytes_freed += stripe.size.saturating_sub(live);
            }
        }
        Ok(())
    }

    /// The bytes of an object, if it is still in this stripe.
    async fn copied(&self, stripe: StripeId, member: LooseMember) -> Result<Copied, ClientError> {
        let asked = Instant::now();
        let lookup = Lookup { name: String::new(), first: 0, limit: 1, at: None, id: Some(member.id) };
        let mut view = self.look(lookup).await?;
        let at = view.stripes.first().map(|stripe| stripe.id);
        if (view.object.size, view.object.stripes, at) != (member.size, 1, Some(stripe)) {
            return Err(ClientError::Interrupted("it is elsewhere by now".into()));
        }
        // No user waits for it.
        view.timed = false;
        let mut bytes = Vec::with_capacity(view.object.size as usize);
        let found = self.found_before(view, asked.elapsed());
        found.read(None, GetOptions::default(), &mut bytes, |_, _| {}).await?;
        let mut sum = Running::new();
        sum.update(&bytes);
        let new = NewMember {
            name: String::new(),
            size: member.size,
            replace: false,
            attributes: Default::default(),
            moves: Some(Moving { id: member.id, stripe, created: 0 }),
        };
        Ok(Copied { new, bytes: bytes.into(), sum: sum.end() })
    }
}
