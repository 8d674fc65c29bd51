//! The names of the schedules, which decide whose links a recovery uses.

use serde::{Deserialize, Serialize};

use crate::many::scheduler;
use crate::{Method, PlanError};

/// How the repairs of many stripes choose helpers and requestors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// The helpers and requestors whose links have the least load in this recovery, relative to their rates where
    /// these are known.
    #[default]
    Balanced,
    /// The least recently used helpers (ECPipe, section 3.3).
    Greedy,
    /// The available helpers with the smallest index: no schedule at all (ECPipe's comparison, section 6.1).
    ByIndex,
    /// PUSH-Rep (ECPipe, section 6.4): as by index, and one requestor gets every block.
    PushRep,
    /// PUSH-Sur (ECPipe, section 6.4): as by index, and all survivors get blocks in turn.
    PushSur,
    /// Helpers and requestors are drawn, for each stripe by itself (ChameleonEC, section V-A: CR, PPR and ECPipe).
    Random,
}

impl Schedule {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Balanced, Self::Greedy, Self::ByIndex, Self::PushRep, Self::PushSur, Self::Random];

    /// Whether one requestor gets every block.
    pub fn single_requestor(self) -> bool {
        self == Self::PushRep
    }

    /// Whether repairs by this method have their trees planned together ([`super::Recovery::window`]). Where no rates are known,
    /// only those are whose method is the same without them ([`crate::MethodRow::without_rates`] is `None`).
    pub fn together(self, method: Method) -> bool {
        method.row().together && self == Self::Balanced
    }

    /// Whether the stripes of a recovery by this method begin phase by phase ([`crate::many::phase`]).
    pub fn in_phases(self, method: Method) -> bool {
        let scheduler = method.row().scheduler.and_then(|name| scheduler(name).ok());
        self.together(method) && scheduler.is_some_and(|scheduler| scheduler.in_phases)
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Balanced => "balanced",
            Self::Greedy => "greedy",
            Self::ByIndex => "by-index",
            Self::PushRep => "push-rep",
            Self::PushSur => "push-sur",
            Self::Random => "random",
        })
    }
}

impl std::str::FromStr for Schedule {
    type Err = PlanError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|schedule| schedule.to_string() == s);
        named.ok_or_else(|| PlanError::Invalid {
            what: "schedule".into(),
            expected: Self::ALL.map(|schedule| schedule.to_string()).join(", "),
            got: s.into(),
        })
    }
}
