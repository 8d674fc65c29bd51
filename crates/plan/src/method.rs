//! The names of the repair methods.

use serde::{Deserialize, Serialize};

/// How a repair moves its slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// A star: one requestor fetches everything, and helpers combine only what the code says they should.
    Conventional,
    /// A binary tree.
    Ppr,
    /// A chain.
    #[default]
    Pipeline,
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Conventional => "conventional",
            Self::Ppr => "ppr",
            Self::Pipeline => "pipeline",
        })
    }
}

impl std::str::FromStr for Method {
    type Err = crate::PlanError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "conventional" => Ok(Self::Conventional),
            "ppr" => Ok(Self::Ppr),
            "pipeline" => Ok(Self::Pipeline),
            _ => Err(crate::PlanError::Invalid {
                what: "method".into(),
                expected: "conventional, ppr or pipeline".into(),
                got: s.into(),
            }),
        }
    }
}
