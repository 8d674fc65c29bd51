//! The model of a volume: a disk with writes that ended, failed, or are under way (`sector.rs`).

use std::collections::BTreeMap;
use std::ops::Range;

use super::sector::{Allowed, SECTOR, Sector};

/// A disk that began with zeros.
#[derive(Debug, Default)]
pub struct Disk {
    sectors: BTreeMap<u64, Sector>,
    /// Writes whose end is not known yet: the bytes that they write.
    writes: BTreeMap<u64, Range<u64>>,
    /// Counts what happens.
    clock: u64,
    /// Whether what was once seen of a failed write must stay.
    once_seen: bool,
}

/// A read that has begun.
#[derive(Debug)]
pub struct Reading {
    number: u64,
    range: Range<u64>,
}

impl Disk {
    /// A write begins; returns its number.
    pub fn begin(&mut self, offset: u64, bytes: &[u8]) -> u64 {
        self.clock += 1;
        let number = self.clock;
        let range = offset..offset + bytes.len() as u64;
        for (sector, span, at) in parts(&range) {
            let part = &bytes[at..at + span.len()];
            self.sectors.entry(sector).or_default().begin(number, number, span.start, part);
        }
        self.writes.insert(number, range);
        number
    }

    /// A write has ended; `acknowledged`, or with an error.
    pub fn end(&mut self, number: u64, acknowledged: bool) {
        self.clock += 1;
        let Some(range) = self.writes.remove(&number) else { return };
        for (sector, ..) in parts(&range) {
            let sector = self.sectors.entry(sector).or_default();
            match acknowledged {
                true => sector.acknowledge(number),
                false => sector.fail(number, self.clock),
            }
        }
    }

    /// A read begins.
    pub fn read(&mut self, offset: u64, len: u64) -> Reading {
        self.clock += 1;
        let range = offset..offset + len;
        for (sector, span, _) in parts(&range) {
            self.sectors.entry(sector).or_default().watch(self.clock, span);
        }
        Reading { number: self.clock, range }
    }

    /// A snapshot was taken while this went on, as if it were a read of all: what it may hold.
    pub fn cut(&mut self, reading: Reading) -> Cut {
        self.clock += 1;
        let Reading { number, range } = reading;
        let judged = |(at, ..): (u64, Range<usize>, usize)| {
            Some((at, self.sectors.entry(at).or_default().seen(number)?))
        };
        Cut(parts(&range).filter_map(judged).collect())
    }

    /// The read saw these bytes, or nothing.
    ///
    /// # Errors
    /// The first byte of a sector that cannot be so, and whether something like it was once written.
    pub fn saw(&mut self, reading: Reading, seen: Option<&[u8]>) -> Result<(), String> {
        self.clock += 1;
        let Reading { number, range } = reading;
        let mut wrong = None;
        for (at, span, from) in parts(&range) {
            let sector = self.sectors.entry(at).or_default();
            match seen.map(|seen| seen.get(from..from + span.len())) {
                None => sector.leave(number),
                Some(Some(part)) if sector.saw(number, part, self.once_seen) => {}
                Some(part) => {
                    let zeros = part.is_some_and(|part| part.iter().all(|byte| *byte == 0));
                    let what = if zeros { "zeros" } else { "other bytes" };
                    let first = at * SECTOR as u64 + span.start as u64;
                    wrong.get_or_insert(format!("{what} at {first}, in sector {at}"));
                }
            }
        }
        wrong.map_or(Ok(()), Err)
    }
}

/// What each sector of a snapshot may be; others are not judged.
#[derive(Debug, Default)]
pub struct Cut(BTreeMap<u64, Allowed>);

impl Cut {
    /// Whether a read from `offset` may see this.
    ///
    /// # Errors
    /// The first sector that cannot be so.
    pub fn check(&self, offset: u64, seen: &[u8]) -> Result<(), String> {
        for (at, span, from) in parts(&(offset..offset + seen.len() as u64)) {
            let part = &seen[from..from + span.len()];
            if self.0.get(&at).is_some_and(|allowed| !allowed.has(span.start, part)) {
                return Err(format!("other bytes in sector {at}"));
            }
        }
        Ok(())
    }
}

/// The sectors of a range: each with the part of it in the range, and where that part is in the range.
fn parts(range: &Range<u64>) -> impl Iterator<Item = (u64, Range<usize>, usize)> + use<> {
    let (start, end, size) = (range.start, range.end, SECTOR as u64);
    (start / size..end.div_ceil(size)).map(move |sector| {
        let (from, to) = (start.max(sector * size), end.min((sector + 1) * size));
        let within = (from - sector * size) as usize..(to - sector * size) as usize;
        (sector, within, (from - start) as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 3 * SECTOR as u64;

    fn see(disk: &mut Disk, offset: u64, bytes: &[u8]) -> bool {
        let reading = disk.read(offset, bytes.len() as u64);
        disk.saw(reading, Some(bytes)).is_ok()
    }

    fn write(disk: &mut Disk, offset: u64, bytes: &[u8], acknowledged: bool) {
        let number = disk.begin(offset, bytes);
        disk.end(number, acknowledged);
    }

    #[test]
    fn what_was_acknowledged_is_seen() {
        let mut disk = Disk::default();
        assert!(see(&mut disk, 0, &[0; 1000]) && !see(&mut disk, 0, &[1; 10]));
        write(&mut disk, 100, &[1; 1000], true);
        assert!(see(&mut disk, 100, &[1; 1000]) && see(&mut disk, 99, &[0, 1]));
        assert!(!see(&mut disk, 100, &[0]) && !see(&mut disk, 1099, &[1, 1]));
    }

    #[test]
    fn what_failed_is_old_or_new_by_sector_and_once_seen_it_stays() {
        let mut disk = Disk { once_seen: true, ..Disk::default() };
        write(&mut disk, 0, &[1; LEN as usize], true);
        write(&mut disk, 0, &[2; LEN as usize], false);
        let mut torn = [1; SECTOR];
        torn[9] = 2;
        assert!(!see(&mut disk, 0, &torn));
        assert!(see(&mut disk, 0, &[1; SECTOR]) && see(&mut disk, SECTOR as u64, &[2; SECTOR]));
        assert!(see(&mut disk, 0, &[2; SECTOR]), "it may still come");
        assert!(!see(&mut disk, 0, &[1; SECTOR]) && !see(&mut disk, SECTOR as u64 + 5, &[1]));
        // The third sector was never seen: a later write ends the doubt.
        write(&mut disk, 2 * SECTOR as u64, &[3; SECTOR], true);
        assert!(see(&mut disk, 2 * SECTOR as u64, &[3; SECTOR]));
        assert!(!see(&mut disk, 2 * SECTOR as u64, &[2; SECTOR]));
    }

    #[test]
    fn a_snapshot_holds_what_was_there_when_it_was_taken() {
        let mut disk = Disk::default();
        write(&mut disk, 0, &[1; SECTOR], true);
        write(&mut disk, SECTOR as u64, &[2; SECTOR], false);
        let taking = disk.read(0, LEN);
        let late = disk.begin(2 * SECTOR as u64, &[3; SECTOR]);
        let cut = disk.cut(taking);
        disk.end(late, true);
        write(&mut disk, 0, &[9; LEN as usize], true);
        assert!(cut.check(0, &[1; SECTOR]).is_ok() && cut.check(10, &[1; 20]).is_ok());
        assert!(cut.check(0, &[0; SECTOR]).is_err() && cut.check(0, &[9; SECTOR]).is_err());
        for (at, either) in [(1, [0, 2]), (2, [0, 3])] {
            for byte in either {
                assert!(cut.check(at * SECTOR as u64, &[byte; SECTOR]).is_ok());
            }
            assert!(cut.check(at * SECTOR as u64, &[9; SECTOR]).is_err());
        }
    }

    #[test]
    fn writes_at_the_same_time_may_come_in_any_order() {
        for last in [1, 2] {
            let mut disk = Disk::default();
            let (a, b) = (disk.begin(0, &[1; SECTOR]), disk.begin(0, &[2; SECTOR]));
            disk.end(a, true);
            disk.end(b, true);
            assert!(!see(&mut disk, 0, &[0; SECTOR]));
            disk.once_seen = true;
            assert!(see(&mut disk, 0, &[last; SECTOR]) && !see(&mut disk, 0, &[3 - last; SECTOR]));
        }
    }

    #[test]
    fn a_read_may_see_what_was_there_at_any_moment_of_it() {
        let mut disk = Disk::default();
        let [early, late] = [(); 2].map(|()| disk.read(0, SECTOR as u64));
        write(&mut disk, 0, &[1; SECTOR], true);
        assert!(disk.saw(early, Some(&[0; SECTOR])).is_ok() && see(&mut disk, 0, &[1; SECTOR]));
        assert!(disk.saw(late, Some(&[1; SECTOR])).is_ok() && !see(&mut disk, 0, &[0; SECTOR]));
        let unknown = disk.read(0, 10);
        assert!(disk.saw(unknown, None).is_ok());
    }

    #[test]
    fn too_many_unfinished_writes_are_not_judged_until_one_covers_them() {
        let mut disk = Disk::default();
        for byte in 1..9 {
            write(&mut disk, 0, &[byte; 10], false);
        }
        assert!(see(&mut disk, 0, &[77; 10]));
        write(&mut disk, 0, &[9; SECTOR], true);
        assert!(!see(&mut disk, 0, &[8; 10]) && see(&mut disk, 0, &[9; 10]));
    }
}
