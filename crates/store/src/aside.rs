//! Blocks that were set aside: what is known of each, and the name under which it is kept.

use std::fmt;

use kintsu_dag::{BlockId, BlockIndex, StripeId};
use serde::{Deserialize, Serialize};

use crate::{BlockMeta, Generation};

/// Why a block was set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// The metadata do not know it.
    Unknown,
    /// It is damaged.
    Rotten,
    /// Another block was written in its place.
    Displaced,
}

impl Reason {
    const ALL: [Self; 3] = [Self::Unknown, Self::Rotten, Self::Displaced];

    /// The word for this reason in file names.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Rotten => "rotten",
            Self::Displaced => "displaced",
        }
    }

    /// The reason that a word stands for.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.word() == word)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A block that was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinedFile {
    /// The name under which it is kept; unique among the blocks set aside in this store.
    pub name: String,
    /// Which block it was.
    pub id: BlockId,
    /// Why it was set aside.
    pub reason: Reason,
    /// When, in seconds since 1970.
    pub at_unix: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// Its header, if that is sound.
    pub meta: Option<BlockMeta>,
}

/// The name of a file that was set aside: `s300.b2.g7.displaced.1764345600.4`.
///
/// It says block, generation (left out where that was unknown), reason, time, and a number that makes it unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QuarantinedName {
    pub(crate) id: BlockId,
    pub(crate) generation: Option<Generation>,
    pub(crate) reason: Reason,
    pub(crate) at_unix: u64,
    pub(crate) number: u64,
}

impl QuarantinedName {
    /// Parses a name; `None` if it is not exactly of this form.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('.');
        let stripe = StripeId(parts.next()?.strip_prefix('s')?.parse().ok()?);
        let index = BlockIndex(parts.next()?.strip_prefix('b')?.parse().ok()?);
        let mut word = parts.next()?;
        let generation = match word.strip_prefix('g') {
            Some(number) => {
                word = parts.next()?;
                Some(Generation(number.parse().ok()?))
            }
            None => None,
        };
        let reason = Reason::parse(word)?;
        let at_unix = parts.next()?.parse().ok()?;
        let number = parts.next()?.parse().ok().filter(|&number| number < u64::MAX)?;
        let read = Self { id: BlockId { stripe, index }, generation, reason, at_unix, number };
        (read.to_string() == name).then_some(read)
    }
}

impl fmt::Display for QuarantinedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.id)?;
        if let Some(generation) = self.generation {
            write!(f, "{generation}.")?;
        }
        write!(f, "{}.{}.{}", self.reason, self.at_unix, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_strangers_are_not() {
        let id = BlockId { stripe: StripeId(300), index: BlockIndex(2) };
        for reason in Reason::ALL {
            for generation in [None, Some(Generation(7))] {
                let name = QuarantinedName { id, generation, reason, at_unix: 1_764_345_600, number: 4 };
                assert_eq!(QuarantinedName::parse(&name.to_string()), Some(name));
            }
        }
        let name = QuarantinedName {
            id,
            generation: Some(Generation(7)),
            reason: Reason::Displaced,
            at_unix: 5,
            number: 4,
        };
        assert_eq!(name.to_string(), "s300.b2.g7.displaced.5.4");
        for stranger in [
            "",
            "s300.b2",
            "s300.b2.g7.displaced.5",
            "s300.b2.g7.displaced.5.4.block",
            "s300.b2.g7.lost.5.4",
            "s300.b2.g07.displaced.5.4",
            "s300.b2.g7.displaced.+5.4",
            "../s300.b2.g7.displaced.5.4",
        ] {
            assert_eq!(QuarantinedName::parse(stranger), None, "{stranger}");
        }
    }
}
