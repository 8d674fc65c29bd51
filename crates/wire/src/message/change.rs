//! Changes of names and attributes, without bytes: decided and done in one transaction, or not at all.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Attributes, Checksum, ObjectInfo};

/// Steps that are taken together, in order, if all checks hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What must be true before the first step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// What is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

impl Change {
    /// Whether it checks and does nothing.
    pub fn is_empty(&self) -> bool {
        self.checks.is_empty() && self.steps.is_empty()
    }
}

/// Something that may be true of the visible objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Check {
    /// The object of this name has this id; `None`: there is no object of this name.
    Is {
        /// The name.
        name: String,
        /// See [`ObjectInfo::id`].
        id: Option<u64>,
    },
    /// The first object, in order of name, whose name begins with this prefix has this id; `None`: there is none.
    First {
        /// The prefix.
        prefix: String,
        /// See [`ObjectInfo::id`].
        id: Option<u64>,
    },
    /// There is an object of this name, and these facts of it have these values; `None`: it has no such fact.
    Facts {
        /// The name.
        name: String,
        /// The facts; it may have others.
        facts: BTreeMap<String, Option<String>>,
    },
}

/// One step of a [`Change`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// An object is removed; nothing happens if there is none of this name.
    Remove {
        /// Its name.
        name: String,
    },
    /// An object gets another name, which is free. It keeps its id.
    Rename {
        /// Its name.
        from: String,
        /// Its new name.
        to: String,
        /// See [`newest_first`].
        #[serde(default)]
        newest_first: bool,
    },
    /// An object without a byte appears under a name that is free.
    Mark {
        /// Its name.
        name: String,
        /// See [`newest_first`].
        #[serde(default)]
        newest_first: bool,
        /// What is known of it.
        attributes: Attributes,
    },
    /// Facts of an object change; the others stay.
    Describe {
        /// Its name.
        name: String,
        /// The new facts; `None` forgets one.
        facts: BTreeMap<String, Option<String>>,
    },
    /// Objects become one object, whose bytes are theirs in this order, under a name that is free. No byte is copied.
    /// All of them have one code and have their parity.
    Join {
        /// The name of the whole.
        name: String,
        /// The names of the parts, which are gone after that. At least one; none twice.
        parts: Vec<String>,
        /// What is known of the whole.
        attributes: Attributes,
        /// The checksum of all bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checksum: Option<Checksum>,
    },
}

/// The name that a step gives if it asks for an order: the given one and 16 hex digits, so that of two such names with one
/// beginning the one that was given later sorts first. `number` grows with each.
pub fn newest_first(name: &str, number: u64) -> String {
    format!("{name}{:016x}", !number)
}

impl Step {
    /// The names that it uses.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Remove { name } | Self::Mark { name, .. } | Self::Describe { name, .. } => vec![name],
            Self::Rename { from, to, .. } => vec![from, to],
            Self::Join { name, parts, .. } => {
                std::iter::once(name).chain(parts).map(String::as_str).collect()
            }
        }
    }
}

/// The answer to a [`Change`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Changed {
    /// All of it is done. The objects that appeared ([`Step::Mark`], [`Step::Join`]), in the order of their steps.
    Done(Vec<ObjectInfo>),
    /// Nothing has changed: this check, counted from 0, does not hold.
    Unmet(u32),
}

/// What happens together with the commit of a put, right before its object becomes visible.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// What is checked and done. The name of the put is free after that, or the put may replace.
    #[serde(default, skip_serializing_if = "Change::is_empty")]
    pub change: Change,
    /// Facts about the object that its writer knows only now, such as a digest of its bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}
