//! The table of schemes. A new scheme is a row here and a file beside it.

use serde::{Deserialize, Serialize};

use crate::PlanError;

/// How parity follows data that were overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// The delta goes to each parity node at once, with every write.
    Baseline,
    /// Parity nodes log new data at once, with the old data when a place is first written; they compute the deltas later.
    Parix,
    /// Later, and between racks always the deltas of data blocks.
    DataDelta,
    /// Later, and between racks always the deltas of parity blocks.
    ParityDelta,
    /// Later, and between two racks whichever of both is less.
    CauNogroup,
    /// The same, and dirty blocks of a stripe move together.
    Cau,
    /// The least traffic between racks of the graphs that are known; replicas wait where the commit needs them.
    #[default]
    Optimal,
}

/// Where the interim replica of an update goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterimRule {
    /// None is needed: the parity is up to date at once, or its nodes have what they need.
    None,
    /// To a parity node in another rack, which drops it after the commit (CAU, section 3.4).
    AnyParity,
    /// To the rack where the commit needs most deltas.
    Hub,
}

/// What there is to know about a scheme.
#[derive(Debug)]
pub struct SchemeRow {
    /// The scheme.
    pub scheme: Scheme,
    /// Its name on the command line.
    pub name: &'static str,
    /// One line of description.
    pub about: &'static str,
    /// Whether parities follow with every write; otherwise at a commit.
    pub at_once: bool,
    /// Whether parity nodes log new data with every write, and old data with the first to a place since a commit. Then
    /// they need nothing more.
    pub old_first: bool,
    /// Where the interim replica goes.
    pub interim: InterimRule,
    /// Whether a commit ends with [`crate::update::group`].
    pub groups: bool,
    /// Whether only the ranges that were written are sent; otherwise whole blocks, as in the paper.
    pub ranges: bool,
}

const fn row(scheme: Scheme, name: &'static str, about: &'static str) -> SchemeRow {
    let interim = InterimRule::AnyParity;
    SchemeRow { scheme, name, about, at_once: false, old_first: false, interim, groups: false, ranges: false }
}

const ROWS: [SchemeRow; 7] = [
    SchemeRow {
        at_once: true,
        interim: InterimRule::None,
        ..row(Scheme::Baseline, "baseline", "the delta to each parity node, with every write")
    },
    SchemeRow {
        old_first: true,
        interim: InterimRule::None,
        ..row(
            Scheme::Parix,
            "parix",
            "new data, at first also old data, to each parity node, with every write",
        )
    },
    row(Scheme::DataDelta, "data-delta", "at a commit, deltas of data blocks between racks"),
    row(Scheme::ParityDelta, "parity-delta", "at a commit, deltas of parity blocks between racks"),
    row(Scheme::CauNogroup, "cau-nogroup", "at a commit, the lesser of both for each pair of racks"),
    SchemeRow {
        groups: true,
        ..row(Scheme::Cau, "cau", "the same, and dirty blocks of a stripe move to one rack")
    },
    SchemeRow {
        interim: InterimRule::Hub,
        ranges: true,
        ..row(
            Scheme::Optimal,
            "optimal",
            "changed ranges, to the rack where the commit needs them; then least traffic",
        )
    },
];

impl SchemeRow {
    /// Whether replicas are deltas, so that a commit finds in the hub what it needs there.
    pub fn replicates_deltas(&self) -> bool {
        self.interim == InterimRule::Hub
    }

    /// Whether a commit reads deltas of nodes that have the same as home.
    pub fn reads_replicas(&self) -> bool {
        self.old_first || self.replicates_deltas()
    }
}

impl Scheme {
    /// All schemes, simple ones first.
    pub fn all() -> impl Iterator<Item = &'static SchemeRow> {
        ROWS.iter()
    }

    /// What there is to know about it.
    pub fn row(self) -> &'static SchemeRow {
        // The rows are in the order of the variants; a test compares them.
        &ROWS[self as usize]
    }
}

impl std::fmt::Display for Scheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.row().name)
    }
}

impl std::str::FromStr for Scheme {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        Self::all().find(|row| row.name == text).map(|row| row.scheme).ok_or_else(|| {
            let names: Vec<_> = Self::all().map(|row| row.name).collect();
            PlanError::Invalid { what: "update scheme".into(), expected: names.join(", "), got: text.into() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_is_found_by_its_name() {
        for (at, row) in Scheme::all().enumerate() {
            assert_eq!((row.scheme as usize, row.scheme.row().scheme), (at, row.scheme));
            assert_eq!(row.name.parse::<Scheme>().unwrap(), row.scheme);
            assert_eq!(serde_name(row.scheme), row.name);
        }
        assert!("raid".parse::<Scheme>().unwrap_err().to_string().contains("cau-nogroup, cau, optimal"));
    }

    /// The name that serde gives a unit variant.
    fn serde_name(scheme: Scheme) -> String {
        format!("{scheme:?}").chars().fold(String::new(), |mut name, c| {
            if c.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(c.to_lowercase());
            name
        })
    }
}
