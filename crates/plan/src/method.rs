//! The names of the repair methods.

use serde::{Deserialize, Serialize};

use crate::RunMode;

/// How a repair moves its slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// A star: one requestor fetches everything, and helpers combine only what the code says they should.
    Conventional,
    /// A binary tree.
    Ppr,
    /// A chain, through as few racks as possible.
    #[default]
    Pipeline,
    /// A chain in the order of block numbers, whatever the racks.
    Flat,
    /// One chain fewer than there are helpers. Each chain ends at a different helper, which delivers to the
    /// requestor.
    Cyclic,
    /// The chain with the fastest slowest link; where no rates are known, the same as [`Self::Pipeline`].
    Weighted,
    /// The best trees that the rates of the links allow, several at once ([`crate::optimal`]); where no rates
    /// are known, a chain.
    Optimal,
    /// As [`Self::Flat`] with whole blocks for slices. A baseline.
    #[serde(rename = "pipe-b")]
    PipeB,
    /// As [`Self::Flat`], each helper doing one thing after the other. A baseline.
    #[serde(rename = "pipe-s")]
    PipeS,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 9] = [
        Self::Conventional,
        Self::Ppr,
        Self::Pipeline,
        Self::Flat,
        Self::Cyclic,
        Self::Weighted,
        Self::Optimal,
        Self::PipeB,
        Self::PipeS,
    ];

    /// The methods that stream. Their times can be predicted from the links alone, unlike those of the baselines.
    pub const STREAMED: [Self; 7] = [
        Self::Conventional,
        Self::Ppr,
        Self::Pipeline,
        Self::Flat,
        Self::Cyclic,
        Self::Weighted,
        Self::Optimal,
    ];

    /// Whether slices go along paths, so that the last helper computes the result for the requestor.
    pub fn is_path(self) -> bool {
        !matches!(self, Self::Conventional | Self::Ppr)
    }

    /// How its plans are run.
    pub fn run_mode(self) -> RunMode {
        match self {
            Self::PipeB => RunMode::WholeBlocks,
            Self::PipeS => RunMode::Serial,
            _ => RunMode::Streamed,
        }
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Conventional => "conventional",
            Self::Ppr => "ppr",
            Self::Pipeline => "pipeline",
            Self::Flat => "flat",
            Self::Cyclic => "cyclic",
            Self::Weighted => "weighted",
            Self::Optimal => "optimal",
            Self::PipeB => "pipe-b",
            Self::PipeS => "pipe-s",
        })
    }
}

impl std::str::FromStr for Method {
    type Err = crate::PlanError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|method| method.to_string() == s);
        found.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(ToString::to_string).collect();
            crate::PlanError::Invalid { what: "method".into(), expected: names.join(", "), got: s.into() }
        })
    }
}
