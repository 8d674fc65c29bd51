//! What one sector of a disk may hold, when some writes to it ended, some failed, and some are under way.
//!
//! A write takes effect at one moment between its call and its answer. One that failed may have taken effect, or may do so
//! later, but not behind a write that was begun after the failure and acknowledged. A read sees the sector at one moment
//! of the read, so what was once seen stays until a further write takes effect.
//!
//! All that may be so is kept: each [`State`] is a content with the unfinished writes that are in it. A sector with too
//! many unfinished writes is not judged until a later write has covered it.

use std::ops::Range;

/// Bytes of a sector: what a crash leaves old or new, but never mixed, if it was written as a whole.
pub const SECTOR: usize = 512;

/// More unfinished writes than this are not enumerated.
const MOST_OPEN: usize = 4;

type Bytes = Vec<u8>;

/// A content that the sector may have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    bytes: Bytes,
    /// The unfinished writes that are in it, ascending.
    within: Vec<u64>,
}

/// A write that may still take effect.
#[derive(Debug, Clone)]
struct Open {
    id: u64,
    /// What it writes; the rest of the sector is not its own.
    spans: Vec<Range<usize>>,
    bytes: Bytes,
    begun: u64,
    /// When it failed.
    failed: Option<u64>,
}

impl Open {
    fn on(&self, old: &[u8]) -> Bytes {
        let mut new = old.to_vec();
        for span in &self.spans {
            new[span.clone()].copy_from_slice(&self.bytes[span.clone()]);
        }
        new
    }

    fn is_whole(&self) -> bool {
        self.spans.len() == 1 && self.spans[0] == (0..SECTOR)
    }
}

/// A read that is under way.
#[derive(Debug, Clone)]
struct Watch {
    reader: u64,
    span: Range<usize>,
    allowed: Vec<Bytes>,
    /// Whether what it saw says nothing about the present: something was decided meanwhile.
    changed: bool,
    /// Whether a write of a part of the sector was under way: then only single bytes are judged.
    mixed: bool,
    /// Whether nothing was known of the sector for a while: then it is not judged.
    vague: bool,
}

/// What a part of a sector may be.
#[derive(Debug, Clone)]
pub struct Allowed {
    contents: Vec<Bytes>,
    /// Whether only single bytes are judged.
    mixed: bool,
}

impl Allowed {
    /// Whether this may be what is there from `from` on.
    pub fn has(&self, from: usize, seen: &[u8]) -> bool {
        let part = |bytes: &Bytes| bytes.get(from..from + seen.len()) == Some(seen);
        let byte =
            |(at, byte): (usize, &u8)| self.contents.iter().any(|bytes| bytes.get(from + at) == Some(byte));
        self.contents.iter().any(part) || (self.mixed && seen.iter().enumerate().all(byte))
    }
}

/// One sector.
#[derive(Debug, Clone)]
pub struct Sector {
    states: Vec<State>,
    open: Vec<Open>,
    watches: Vec<Watch>,
    /// Nothing is known of it.
    vague: bool,
}

impl Default for Sector {
    fn default() -> Self {
        let zeros = State { bytes: vec![0; SECTOR], within: Vec::new() };
        Self { states: vec![zeros], open: Vec::new(), watches: Vec::new(), vague: false }
    }
}

impl Sector {
    /// A write begins at `now`: `part` goes to `from` in the sector.
    pub fn begin(&mut self, id: u64, now: u64, from: usize, part: &[u8]) {
        let span = from..from + part.len();
        let mut bytes = vec![0; SECTOR];
        bytes[span.clone()].copy_from_slice(part);
        self.open.push(Open { id, spans: vec![span], bytes, begun: now, failed: None });
        self.vague |= self.open.len() > MOST_OPEN;
        self.tell();
    }

    /// The write failed at `now`: nobody knows whether it took effect.
    pub fn fail(&mut self, id: u64, now: u64) {
        if let Some(open) = self.open.iter_mut().find(|open| open.id == id) {
            open.failed = Some(now);
        }
        self.tell();
    }

    /// The write was acknowledged.
    pub fn acknowledge(&mut self, id: u64) {
        let Some(at) = self.open.iter().position(|open| open.id == id) else { return };
        if self.vague {
            let done = self.open.remove(at);
            let overlapped =
                self.open.iter().any(|open| open.failed.is_none_or(|failed| failed > done.begun));
            if done.is_whole() && !overlapped {
                self.states = vec![State { bytes: done.bytes, within: Vec::new() }];
                self.open.clear();
                self.vague = false;
            }
        } else {
            let mut states = self.reachable();
            states.retain(|state| state.within.contains(&id));
            let done = self.open.remove(at);
            // What failed before it began does not come behind it.
            for open in self.open.iter_mut().filter(|open| open.failed.is_some_and(|f| f < done.begun)) {
                for gone in &done.spans {
                    open.spans = open.spans.iter().flat_map(|span| without(span, gone)).collect();
                }
            }
            self.open.retain(|open| !open.spans.is_empty());
            for state in &mut states {
                state.within.retain(|id| self.open.iter().any(|open| open.id == *id));
            }
            states.sort();
            states.dedup();
            self.states = states;
        }
        self.watches.iter_mut().for_each(|watch| watch.changed = true);
        self.tell();
    }

    /// A read of a part begins.
    pub fn watch(&mut self, reader: u64, span: Range<usize>) {
        let allowed = Vec::new();
        self.watches.push(Watch { reader, span, allowed, changed: false, mixed: false, vague: false });
        self.tell();
    }

    /// The read is over: what it may have seen, if that can be judged.
    pub fn seen(&mut self, reader: u64) -> Option<Allowed> {
        let at = self.watches.iter().position(|watch| watch.reader == reader)?;
        let Watch { allowed, mixed, vague, .. } = self.watches.remove(at);
        (!vague).then_some(Allowed { contents: allowed, mixed })
    }

    /// The read is over, and nobody knows what it saw.
    pub fn leave(&mut self, reader: u64) {
        self.watches.retain(|watch| watch.reader != reader);
    }

    /// The read saw this; false if it cannot be. `once`: what was once seen stays.
    pub fn saw(&mut self, reader: u64, seen: &[u8], once: bool) -> bool {
        let Some(at) = self.watches.iter().position(|watch| watch.reader == reader) else { return true };
        let watch = self.watches.remove(at);
        if watch.vague {
            return true;
        }
        if !watch.allowed.iter().any(|bytes| bytes == seen) {
            return Allowed { contents: watch.allowed, mixed: watch.mixed }.has(0, seen);
        }
        if once && !watch.changed {
            self.states = self.reachable();
            self.states.retain(|state| state.bytes[watch.span.clone()] == *seen);
            // Others that read at the same time may have read before.
            self.watches.iter_mut().for_each(|other| other.changed = true);
        }
        true
    }

    /// All states, if any of the unfinished writes take effect now, in any order.
    fn reachable(&self) -> Vec<State> {
        let mut all = self.states.clone();
        let mut at = 0;
        while at < all.len() {
            for open in &self.open {
                let State { bytes, within } = &all[at];
                if within.contains(&open.id) {
                    continue;
                }
                let mut with = within.clone();
                with.push(open.id);
                with.sort_unstable();
                let next = State { bytes: open.on(bytes), within: with };
                if !all.contains(&next) {
                    all.push(next);
                }
            }
            at += 1;
        }
        all
    }

    /// Tells those who read what they may see from now on too.
    fn tell(&mut self) {
        self.watches.iter_mut().for_each(|watch| watch.vague |= self.vague);
        if self.watches.is_empty() || self.vague {
            return;
        }
        let states = self.reachable();
        let mixed = self.open.iter().any(|open| open.failed.is_none() && !open.is_whole());
        for watch in &mut self.watches {
            watch.mixed |= mixed;
            for state in &states {
                let part = state.bytes[watch.span.clone()].to_vec();
                if !watch.allowed.contains(&part) {
                    watch.allowed.push(part);
                }
            }
        }
    }
}

/// What is left of a span without another one.
fn without(span: &Range<usize>, gone: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let before = span.start..span.end.min(gone.start);
    let behind = span.start.max(gone.end)..span.end;
    [before, behind].into_iter().filter(|part| part.start < part.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_not_judged_if_nothing_was_known_of_the_sector_for_a_while() {
        let (mut sector, part) = (Sector::default(), |id: u64| vec![id as u8; SECTOR]);
        for id in 1..=3 {
            sector.begin(id, id, 0, &part(id));
            sector.fail(id, 10 + id);
        }
        sector.begin(20, 20, 0, &part(20));
        sector.begin(21, 21, 0, &part(21));
        sector.watch(22, 0..SECTOR);
        sector.acknowledge(20);
        sector.acknowledge(21);
        assert!(
            sector.saw(22, &part(3), true),
            "write 3 failed, and may have been what was there when the read began"
        );
        sector.watch(30, 0..SECTOR);
        assert!(!sector.saw(30, &part(3), true), "not after write 21 was acknowledged");
        sector.watch(31, 0..SECTOR);
        assert!(sector.saw(31, &part(21), true));
    }
}
