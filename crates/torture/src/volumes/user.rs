//! A client of volumes, which compares what it reads with the model.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use kintsu_client::{Client, ClientError, Volume, VolumeAccess};
use kintsu_wire::message::CreateVolume;

use super::disk::{Disk, Reading};
use super::snapshots::Snapshots;
use super::{Act, Shape};
use crate::dice::content;
use crate::stage::Stage;

/// The models of all volumes of a history.
#[derive(Debug, Default)]
pub struct Volumes {
    held: Mutex<BTreeMap<u64, Held>>,
    pub snapshots: Snapshots,
}

/// The model of one volume.
#[derive(Debug, Default)]
pub struct Held {
    /// What it holds.
    pub disk: Disk,
    /// Whether it exists, as far as anybody knows.
    exists: bool,
    /// Somebody removes it, or tried to.
    removing: bool,
    /// How often it was removed.
    removed: u64,
}

/// The volumes that a client has open.
#[derive(Default)]
pub struct Hand(BTreeMap<u64, Opened>);

struct Opened {
    volume: Volume,
    writes: bool,
    /// The model's `removed` when it was opened.
    of: u64,
}

impl Volumes {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the model of a volume.
    pub fn with<T>(&self, number: u64, change: impl FnOnce(&mut Held) -> T) -> T {
        change(self.all().entry(number).or_default())
    }

    /// The volumes that were ever used.
    pub fn numbers(&self) -> Vec<u64> {
        self.all().keys().copied().collect()
    }
}

impl Held {
    /// Whether what it holds is judged; `of`: `removed` when it was opened.
    fn counts(&self, of: u64) -> bool {
        self.exists && !self.removing && self.removed == of
    }

    /// Whether it was not removed since it had been removed so often.
    pub fn is_same(&self, removed: u64) -> bool {
        self.removed == removed
    }

    /// Whether it exists, and nobody tried to remove it.
    pub fn is_there(&self) -> bool {
        self.exists && !self.removing
    }
}

/// The name of a volume.
pub fn name(number: u64) -> String {
    format!("volume{number}")
}

/// A client in a step.
pub struct User<'a> {
    pub stage: &'a Stage,
    pub client: &'a Client,
    pub shape: Shape,
    /// Which client it is, and what all that it writes in this step is made of.
    pub number: u64,
    pub seed: u64,
}

impl User<'_> {
    pub(super) fn say(&self, what: impl std::fmt::Display) {
        self.stage.trace.say(format!("client {}: {what}", self.number));
    }

    /// One step.
    pub async fn act(&self, hand: &mut Hand, number: u64, act: Act) {
        if self.number == self.shape.first_user && !self.ensure(number).await {
            return;
        }
        match act {
            Act::Write { offset, len, take } => {
                let Some(opened) = self.writer(hand, number, take).await else { return };
                let Some((offset, len)) = cut(&opened.volume, offset, len) else { return };
                let lost = self.write(opened, number, offset, content(self.seed, len as usize)).await;
                forget_if(hand, number, lost);
            }
            Act::Burst { offset, len, count } => {
                let Some(opened) = self.writer(hand, number, false).await else { return };
                let Some((offset, len)) = cut(&opened.volume, offset, len) else { return };

                let write = |i| self.write(opened, number, offset, content(self.seed ^ i, len as usize));
                let lost = futures::future::join_all((0..count).map(write)).await;
                forget_if(hand, number, lost.contains(&true));
            }
            Act::Zeroes { offset, len, trim } => {
                let Some(opened) = self.writer(hand, number, false).await else { return };
                let Some((offset, len)) = cut(&opened.volume, offset, len) else { return };
                let begun = self.begin(number, offset, &vec![0; len as usize]);
                let done = match trim {
                    true => opened.volume.trim(offset, len).await,
                    false => opened.volume.write_zeroes(offset, len).await,
                };
                let lost = self.ended(opened, number, begun, &format!("zeros {offset}+{len}"), done);
                forget_if(hand, number, lost);
            }
            Act::Read { offset, len } => {
                if !hand.0.contains_key(&number) {
                    self.open(hand, number, VolumeAccess::Read).await;
                }
                let Some(opened) = hand.0.get(&number) else { return };
                let Some((offset, len)) = cut(&opened.volume, offset, len) else { return };
                let read = self.read(opened, number, offset, len).await;
                let gone = matches!(read, Err(ClientError::Interrupted(_) | ClientError::NotFound(_)));
                forget_if(hand, number, gone);
            }
            Act::ReadAnew { offset, len } => {
                let mut anew = Hand::default();
                self.open(&mut anew, number, VolumeAccess::Read).await;
                let Some(opened) = anew.0.get(&number) else { return };
                let Some((offset, len)) = cut(&opened.volume, offset, len) else { return };
                let _ = self.read(opened, number, offset, len).await;
            }
            Act::Flush => {
                let Some(opened) = hand.0.get(&number).filter(|opened| opened.writes) else { return };
                let flushed = opened.volume.flush().await;
                self.say(format!("flush {}: {flushed:?}", name(number)));
                forget_if(hand, number, flushed.is_err());
            }
            Act::Commit { scheme } => {
                // What such a volume has of its scheme is worth nothing to others.
                let own = self.shape.scheme(number).filter(|own| *own == "parix" && scheme == "baseline");
                let scheme = own.unwrap_or(scheme);
                let done = self.client.commit_volume(&name(number), Some(scheme.into())).await;
                self.say(format!("commit {} by {scheme}: {done:?}", name(number)));
            }
            Act::Close => {
                let Some(opened) = hand.0.remove(&number) else { return };
                let closed = opened.volume.close().await;
                self.say(format!("close {}: {closed:?}", name(number)));
            }
            Act::Resize { more } => {
                let stripe = self.shape.size.div_ceil(4).next_multiple_of(512);
                let size = self.shape.size.saturating_add_signed(more * stripe as i64).max(512);
                let sized = self.client.resize_volume(&name(number), size).await;
                self.say(format!("resize {} to {size}: {sized:?}", name(number)));
            }
            Act::Remove => {
                if let Some(opened) = hand.0.remove(&number) {
                    let _ = opened.volume.close().await;
                }
                self.remove(number).await;
            }
            Act::Snapshot => self.snapshot(number).await,
            Act::ReadSnapshot { which, offset, len } => {
                let Some(name) = self.stage.volumes.snapshots.pick(which) else { return };
                if let Err(error) = self.read_snapshot(&name, offset, len).await {
                    self.say(format!("read of {name}: {error}"));
                }
            }
            Act::RemoveSnapshot { which } => {
                let Some(name) = self.stage.volumes.snapshots.pick(which) else { return };
                self.remove_snapshot(&name).await;
            }
        }
    }

    /// Makes the volume if there is none; false if that is not known.
    async fn ensure(&self, number: u64) -> bool {
        let (exists, removing) = self.stage.volumes.with(number, |held| (held.exists, held.removing));
        if removing && !self.remove(number).await {
            return false;
        }
        if exists && !removing {
            return true;
        }
        let Shape { code, durability, block_bytes, size, .. } = self.shape;
        let scheme = self.shape.scheme(number).map(str::to_owned);
        let volume =
            CreateVolume { name: name(number), size, code: code.into(), block_bytes, durability, scheme };
        let made = self.client.create_volume(&volume).await;
        self.say(format!("create {}: {made:?}", name(number)));
        // An earlier attempt may have made it.
        let there = matches!(made, Ok(_) | Err(ClientError::Exists(_)));
        if there {
            self.stage.volumes.with(number, |held| held.exists = true);
        }
        there
    }

    /// Removes it; whether it is gone.
    pub async fn remove(&self, number: u64) -> bool {
        let before = self.stage.volumes.with(number, |held| std::mem::replace(&mut held.removing, true));
        let removed = self.client.remove_volume(&name(number)).await;
        self.say(format!("remove {}: {removed:?}", name(number)));
        self.stage.volumes.with(number, |held| match removed {
            Ok(_) | Err(ClientError::NotFound(_)) => {
                *held = Held { removed: held.removed + 1, ..Held::default() };
                true
            }
            // Somebody writes: nothing was removed by this call. Otherwise it has begun.
            Err(ClientError::Placement(ref why)) if why.contains("one with a lease") => {
                held.removing = before;
                false
            }
            Err(_) => false,
        })
    }

    async fn open(&self, hand: &mut Hand, number: u64, access: VolumeAccess) {
        let (of, was) = self.stage.volumes.with(number, |held| (held.removed, held.is_there()));
        match self.client.open_volume(&name(number), access).await {
            Ok(volume) => {
                self.say(format!("open {} {access:?}: epoch {}", name(number), volume.info().epoch));
                hand.0.insert(number, Opened { volume, writes: access != VolumeAccess::Read, of });
            }
            Err(error) => {
                self.say(format!("open {} {access:?}: {error:?}", name(number)));
                self.check_there(number, of, was, &error);
            }
        }
    }

    /// `was`: whether it was there when the call began.
    fn check_there(&self, number: u64, of: u64, was: bool, error: &ClientError) {
        if was
            && matches!(error, ClientError::NotFound(_))
            && self.stage.volumes.with(number, |held| held.counts(of))
        {
            self.stage.fail(format!("{} is there and was not found: {error}", name(number)));
        }
    }

    /// The volume, opened to write.
    async fn writer<'h>(&self, hand: &'h mut Hand, number: u64, take: bool) -> Option<&'h Opened> {
        if !hand.0.get(&number).is_some_and(|opened| opened.writes) {
            let access = if take { VolumeAccess::TakeOver } else { VolumeAccess::Write };
            self.open(hand, number, access).await;
        }
        hand.0.get(&number).filter(|opened| opened.writes)
    }

    fn begin(&self, number: u64, offset: u64, bytes: &[u8]) -> (u64, u64) {
        self.stage.volumes.with(number, |held| (held.removed, held.disk.begin(offset, bytes)))
    }

    /// Writes; returns whether the client is not the writer any more.
    async fn write(&self, opened: &Opened, number: u64, offset: u64, bytes: Vec<u8>) -> bool {
        let begun = self.begin(number, offset, &bytes);
        let what = format!("write {offset}+{}", bytes.len());
        let done = opened.volume.write(offset, Bytes::from(bytes)).await;
        self.ended(opened, number, begun, &what, done)
    }

    fn ended(
        &self,
        opened: &Opened,
        number: u64,
        (removed, write): (u64, u64),
        what: &str,
        done: Result<(), ClientError>,
    ) -> bool {
        self.say(format!("{} of {}: {done:?}", what, name(number)));
        self.stage.volumes.with(number, |held| {
            if held.removed == removed {
                held.disk.end(write, done.is_ok() && opened.of == removed);
            }
        });
        matches!(done, Err(ClientError::Interrupted(_) | ClientError::NotFound(_)))
    }

    pub(super) fn reading(&self, number: u64, offset: u64, len: u64) -> (u64, Reading) {
        self.stage.volumes.with(number, |held| (held.removed, held.disk.read(offset, len)))
    }

    /// Reads and compares.
    async fn read(&self, opened: &Opened, number: u64, offset: u64, len: u64) -> Result<Bytes, ClientError> {
        let was = self.stage.volumes.with(number, |held| held.is_there());
        let (removed, reading) = self.reading(number, offset, len);
        let read = opened.volume.read(offset, len).await;
        let told = read.as_ref().map(Bytes::len);
        self.say(format!("read {offset}+{len} of {}: {told:?}", name(number)));
        if let Err(error) = &read {
            self.check_there(number, opened.of, was, error);
        }
        let judged = self.stage.volumes.with(number, |held| match held.removed == removed {
            true => {
                let counts = held.counts(opened.of);
                held.disk.saw(reading, read.as_deref().ok().filter(|_| counts))
            }
            false => Ok(()),
        });
        if let Err(wrong) = judged {
            self.stage.fail(format!("a read of {} saw {wrong}", name(number)));
        }
        read
    }

    /// Reads all of a volume anew.
    ///
    /// # Errors
    /// It cannot be read. Wrong bytes are told to the stage.
    pub async fn read_all(&self, number: u64, access: VolumeAccess) -> Result<(), String> {
        let of = self.stage.volumes.with(number, |held| held.removed);
        let volume = self.client.open_volume(&name(number), access).await;
        let volume = volume.map_err(|error| format!("{}: {error}", name(number)))?;
        let (opened, len) = (Opened { writes: access != VolumeAccess::Read, of, volume }, u64::MAX);
        let Some((offset, len)) = cut(&opened.volume, 0, len) else { return Ok(()) };
        let read = self.read(&opened, number, offset, len).await;
        read.map(drop).map_err(|error| format!("{} cannot be read: {error}", name(number)))
    }

    /// Writes to each stripe of a volume as its new writer.
    ///
    /// # Errors
    /// It cannot be written.
    pub async fn write_all(&self, number: u64) -> Result<(), String> {
        let mut hand = Hand::default();
        let opened = self.writer(&mut hand, number, true).await;
        let opened = opened.ok_or_else(|| format!("{} cannot be opened to write", name(number)))?;
        let (size, stripe) = (opened.volume.size(), opened.volume.info().stripe_bytes());
        for offset in (0..size).step_by(stripe as usize) {
            let len = (size - offset).min(700);
            let bytes = content(self.seed ^ offset, len as usize);
            let (begun, what) = (self.begin(number, offset, &bytes), format!("write {offset}+{len}"));
            let done = opened.volume.write(offset, Bytes::from(bytes)).await;
            let why = done.as_ref().err().map(ToString::to_string);
            self.ended(opened, number, begun, &what, done);
            why.map_or(Ok(()), |why| Err(format!("{} cannot be written: {why}", name(number))))?;
        }
        Ok(())
    }
}

/// The part of a range that the volume has.
pub(super) fn cut(volume: &Volume, offset: u64, len: u64) -> Option<(u64, u64)> {
    let size = volume.size();
    (offset < size && len > 0).then(|| (offset, len.min(size - offset)))
}

fn forget_if(hand: &mut Hand, number: u64, lost: bool) {
    if lost {
        hand.0.remove(&number);
    }
}
