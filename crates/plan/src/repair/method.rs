//! What a method says of itself: its row of the table ([`Method`]). Command line, messages, comparisons and schedulers take
//! from the row what they need to know.

use kintsu_dag::BlockIndex;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::shape::{Order, Shape};
use crate::{Method, PlanError, Rates, Repair, RepairPlan, RunMode, StripeView, Topology};

/// What there is to know about a method.
#[derive(Debug)]
pub struct MethodRow {
    /// Its name on the command line, in JSON and in messages.
    pub name: &'static str,
    /// One line that describes it.
    pub about: &'static str,
    /// The helpers that it prefers, and the order in which its paths pass them.
    pub(crate) order: Order,
    /// Makes the graphs that compute the lost blocks.
    pub(crate) shape: Shape,
    /// How its plans are run.
    pub run_mode: RunMode,
    /// Whether helpers receive from other helpers. If not, only requestors receive.
    pub helpers_receive: bool,
    /// The method that is used instead where no rates of links are known.
    pub without_rates: Option<Method>,
    /// Plans a whole repair, where that is more than the graphs of `shape` at their requestors.
    pub(crate) plan: Option<PlanRepair>,
    /// Whether its repairs of many stripes are planned together ([`crate::Recovery::window`]).
    pub together: bool,
    /// The scheduler that plans these repairs together ([`crate::many::SCHEDULERS`]). A method that has another one
    /// instead of it where no rates are known ([`Self::without_rates`]) is then not planned together.
    pub scheduler: Option<&'static str>,
    /// What is done about nodes that delay a repair.
    pub stragglers: Stragglers,
}

/// What a coordinator does when a node delays a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stragglers {
    /// Plans the rest without the node, where others can replace it.
    Avoid,
    /// Re-schedules as ChameleonEC does ([`crate::many::reschedule`]), where the repair was planned together with
    /// others.
    Reschedule,
    /// Nothing.
    Endure,
}

/// Plans a repair from blocks of the preference, earlier ones preferred.
pub(crate) type PlanRepair =
    fn(&StripeView, &Topology, &Repair, &[BlockIndex]) -> Result<RepairPlan, PlanError>;

impl Method {
    /// Its name.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The methods that stream, each with a plan of its own for a single repair. Their times can be predicted from the
    /// links alone, unlike those of the baselines.
    pub fn streamed() -> impl Iterator<Item = Self> {
        let fixed = |method: &Self| {
            let row = method.row();
            // What is drawn by lot predicts nothing.
            let fixed_path = row.order != Order::Drawn;
            fixed_path
                && row.run_mode == RunMode::Streamed
                && (row.scheduler.is_none() || row.without_rates.is_some())
        };
        Self::ALL.into_iter().filter(fixed)
    }

    /// How its plans are run.
    pub const fn run_mode(self) -> RunMode {
        self.row().run_mode
    }

    /// The method that plans are made by where these rates are known: this one, or the one instead of it where
    /// none are.
    pub fn given(self, rates: &Rates) -> Self {
        self.row().without_rates.filter(|_| rates.is_empty()).unwrap_or(self)
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Method {
    type Err = PlanError;

    fn from_str(s: &str) -> Result<Self, PlanError> {
        let found = Self::ALL.into_iter().find(|method| method.name() == s);
        found.ok_or_else(|| PlanError::Invalid {
            what: "method".into(),
            expected: Self::ALL.map(Self::name).join(", "),
            got: s.into(),
        })
    }
}

impl Serialize for Method {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Method {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_a_name_of_its_own_and_says_what_it_is() {
        for (i, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!(method.name().parse::<Method>().unwrap(), method);
            assert!(Method::ALL[..i].iter().all(|other| other.name() != method.name()));
            assert!(method.row().about.len() > 10, "{method}");
            assert_eq!(method.given(&Rates::default()).row().without_rates, None, "{method}");
        }
        assert!("chain".parse::<Method>().unwrap_err().to_string().contains("conventional, ppr, pipeline"));
    }
}
