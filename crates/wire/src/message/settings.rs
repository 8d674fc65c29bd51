//! Settings of a cluster, which operators change while it runs.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

use serde::{Deserialize, Serialize};

/// All settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Bytes a second that repairs and other background work may at most send, receive and read on a node; `None`: as
    /// many as there is room for.
    pub repair_max_rate: Option<NonZeroU64>,
    /// Bytes a second that they may use on a node however slow users' operations are.
    pub repair_min_rate: NonZeroU64,
    /// By how many percent the 99th percentile of the time of users' operations may rise because of repairs; `None`: by any
    /// amount.
    pub repair_target: Option<NonZeroU32>,
    /// If more than this share of the nodes is gone at once, in percent, or a whole rack, automatic repair of nodes is held;
    /// `None`: it never is.
    pub repair_hold: Option<NonZeroU32>,
}

/// The default of [`Settings::repair_min_rate`]: 1 MB/s.
const MIN_RATE: NonZeroU64 = NonZeroU64::new(1_000_000).expect("not zero");

/// The default of [`Settings::repair_hold`].
const HOLD: NonZeroU32 = NonZeroU32::new(25).expect("not zero");

impl Default for Settings {
    fn default() -> Self {
        Self {
            repair_max_rate: None,
            repair_min_rate: MIN_RATE,
            repair_target: None,
            repair_hold: Some(HOLD),
        }
    }
}

/// A new value of one setting; the others stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeSetting {
    /// [`Settings::repair_max_rate`].
    RepairMaxRate(Option<NonZeroU64>),
    /// [`Settings::repair_min_rate`].
    RepairMinRate(NonZeroU64),
    /// [`Settings::repair_target`].
    RepairTarget(Option<NonZeroU32>),
    /// [`Settings::repair_hold`].
    RepairHold(Option<NonZeroU32>),
}

impl fmt::Display for ChangeSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |rate: NonZeroU64| format!("{rate} bytes/s");
        let percent = |percent: NonZeroU32| format!("{percent}%");
        let (name, value) = match *self {
            Self::RepairMaxRate(most) => ("repair.max-rate", most.map(rate)),
            Self::RepairMinRate(least) => ("repair.min-rate", Some(rate(least))),
            Self::RepairTarget(target) => ("repair.target", target.map(percent)),
            Self::RepairHold(share) => ("repair.hold", share.map(percent)),
        };
        write!(f, "{name} {}", value.as_deref().unwrap_or("none"))
    }
}

/// How fast repairs and other background work may be now, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairLimit {
    /// Bytes a second that they may send, receive and read on each node; `None`: no limit.
    pub rate: Option<NonZeroU64>,
    /// Why.
    pub why: WhyLimit,
    /// Bytes a second that they sent lately, at the node where this was most.
    pub sent: u64,
    /// The 99th percentile of the time of users' operations lately, in microseconds; `None`: too few are known.
    pub p99_us: Option<u64>,
    /// The same without repairs, as far as known.
    pub usual_us: Option<u64>,
    /// What it may rise to.
    pub target_us: Option<u64>,
}

/// Why repairs have the limit that they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyLimit {
    /// There is no limit and no target.
    Free,
    /// There is a ceiling and no target.
    MaxRate,
    /// Users' operations must not take longer than the target.
    Target,
    /// Repairs go down to their floor for a moment, to measure how long users' operations usually take.
    Looking,
    /// There is a target, and hardly any user.
    NoUsers,
    /// There is a target, but stripes would become unreadable by one more loss.
    Endangered,
}

impl fmt::Display for RepairLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.rate.map_or("as fast as there is room".into(), |rate| match rate.get() as f64 {
            rate if rate < 1e6 => format!("{:.0} kB/s a node", rate / 1e3),
            rate => format!("{:.1} MB/s a node", rate / 1e6),
        });
        let ms = |micros: Option<u64>| match micros {
            Some(micros) if micros < 10_000 => format!("{:.1} ms", micros as f64 / 1e3),
            Some(micros) => format!("{} ms", micros / 1000),
            None => "not known yet".into(),
        };
        match self.why {
            WhyLimit::Free => write!(f, "{rate}"),
            WhyLimit::MaxRate => write!(f, "at most {rate} (repair.max-rate)"),
            WhyLimit::Target => {
                let (now, target, usual) = (ms(self.p99_us), ms(self.target_us), ms(self.usual_us));
                write!(f, "held back to {rate}: foreground P99 {now}, target {target}, usually {usual}")
            }
            WhyLimit::Looking => {
                write!(
                    f,
                    "held back to {rate} for a moment, to measure how long users' operations usually take"
                )
            }
            WhyLimit::NoUsers => {
                write!(f, "at most {rate} for now: users are idle, and it rises as repairs use it")
            }
            WhyLimit::Endangered => {
                write!(
                    f,
                    "{rate}: the target waits for stripes that would become unreadable by one more loss"
                )
            }
        }
    }
}
