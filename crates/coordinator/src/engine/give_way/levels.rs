//! What users' P99 usually is, without repairs, for each of the few things that they do in turns: its level. All are logarithms.

/// A P99 that differs from a level by more than this belongs to another one.
pub(super) const OTHER: f64 = 0.15;
/// A measurement is averaged with this many at most.
const AVERAGED: f64 = 8.0;
/// Levels that are remembered.
const MOST: usize = 4;

/// The levels, that of the last window first, then by when they were last met.
#[derive(Debug, Default)]
pub(super) struct Levels(Vec<Level>);

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    /// The P99 without repairs, and how many measurements it is the average of.
    pub(super) usual: f64,
    measured: f64,
    /// The limit of repairs that was found for it, in bytes a second.
    pub(super) rate: f64,
    /// Windows since it was measured.
    pub(super) since_look: u32,
}

/// The level of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// That of the window before, or none that is known and repairs may be the cause.
    Same,
    /// Another one that is known.
    Other,
    /// None that is known, and the P99 is below all of them: users do something else, because repairs do not make them faster.
    Faster,
}

impl Levels {
    /// The level of the last window.
    pub(super) fn now(&self) -> Option<&Level> {
        self.0.first()
    }

    /// Finds the level of a window with this P99, which may have risen by `room`: the one before as long as that can be, else the
    /// highest one that is not above.
    pub(super) fn find(&mut self, p99: f64, room: f64) -> Found {
        let Some(now) = self.now() else { return Found::Same };
        if (now.usual - OTHER..=now.usual + room + OTHER).contains(&p99) {
            return Found::Same;
        }
        let below = self.0.iter().enumerate().filter(|(_, level)| level.usual <= p99 + OTHER);
        match below.max_by(|a, b| a.1.usual.total_cmp(&b.1.usual)) {
            None => Found::Faster,
            Some((0, _)) => Found::Same,
            Some((at, _)) => {
                self.0[..=at].rotate_right(1);
                Found::Other
            }
        }
    }

    /// The P99 was measured, while repairs had this limit otherwise. Returns what was usual before, unless the level is new.
    pub(super) fn learn(&mut self, p99: f64, rate: f64) -> Option<f64> {
        let off = |level: &Level| (p99 - level.usual).abs();
        let known = self.0.iter().enumerate().filter(|(_, level)| off(level) <= OTHER);
        let Some((at, _)) = known.min_by(|a, b| off(a.1).total_cmp(&off(b.1))) else {
            self.0.insert(0, Level { usual: p99, measured: 1.0, rate, since_look: 0 });
            self.0.truncate(MOST);
            return None;
        };
        self.0[..=at].rotate_right(1);
        let level = self.0.first_mut()?;
        let before = level.usual;
        level.measured = (level.measured + 1.0).min(AVERAGED);
        level.usual += (p99 - before) / level.measured;
        level.since_look = 0;
        Some(before)
    }

    /// Repairs have this limit after one more window of this level.
    pub(super) fn held(&mut self, rate: f64) {
        if let Some(level) = self.0.first_mut() {
            level.rate = rate;
            level.since_look += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: f64 = 0.2;

    #[test]
    fn a_window_has_the_level_before_it_or_the_highest_known_one_that_is_not_above_it() {
        let mut levels = Levels::default();
        assert_eq!(levels.find(3.0, ROOM), Found::Same);
        assert_eq!((levels.learn(3.0, 7.0), levels.learn(4.0, 8.0)), (None, None));
        // Slower by what repairs may do, and by more, while no higher level is known.
        for p99 in [3.9, 4.2, 9.0] {
            assert_eq!((levels.find(p99, ROOM), levels.now().unwrap().rate), (Found::Same, 8.0));
        }
        assert_eq!((levels.find(3.5, ROOM), levels.now().unwrap().rate), (Found::Other, 7.0));
        assert_eq!((levels.find(3.1, ROOM), levels.find(3.8, ROOM)), (Found::Same, Found::Same));
        assert_eq!((levels.find(2.8, ROOM), levels.now().unwrap().rate), (Found::Faster, 7.0));
        assert_eq!((levels.find(4.1, ROOM), levels.now().unwrap().rate), (Found::Other, 8.0));
    }

    #[test]
    fn measurements_of_one_level_are_averaged_and_the_level_met_longest_ago_is_forgotten() {
        let mut levels = Levels::default();
        levels.learn(3.0, 7.0);
        levels.held(9.0);
        assert_eq!(levels.now().map(|level| (level.rate, level.since_look)), Some((9.0, 1)));
        assert_eq!(levels.learn(3.1, 7.0), Some(3.0));
        assert_eq!(levels.now().map(|level| (level.usual, level.since_look)), Some((3.05, 0)));
        for number in 1..MOST {
            levels.learn(3.0 + number as f64, 7.0);
        }
        assert_eq!(levels.find(3.0, ROOM), Found::Other);
        levels.learn(9.0, 7.0);
        assert_eq!((levels.find(4.0, ROOM), levels.now().unwrap().usual), (Found::Other, 3.05));
    }
}
