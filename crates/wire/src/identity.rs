//! The ids of clusters and of folders, and what agents remember of the metadata's history.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::WireError;

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// A new one, from the operating system's random numbers.
            ///
            /// # Errors
            /// `Invalid` where the system has none.
            pub fn random() -> Result<Self, WireError> {
                let mut bytes = [0; 16];
                getrandom::fill(&mut bytes).map_err(|error| WireError::Invalid {
                    what: $what,
                    expected: "random numbers from the operating system".into(),
                    got: error.to_string(),
                })?;
                Ok(Self(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = WireError;

            fn from_str(text: &str) -> Result<Self, WireError> {
                let digits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
                let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
                number.map(|number| Self(number.to_be_bytes())).ok_or_else(|| WireError::Invalid {
                    what: $what,
                    expected: "32 hex digits".into(),
                    got: format!("{text:?}"),
                })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.to_string())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

random_id!(
    /// The id of a cluster: created with its metadata, kept in every node's folder, shown in every handshake. As
    /// text 32 hex digits.
    ClusterId,
    "cluster id"
);

random_id!(
    /// The id of a node's folder: distinguishes two folders even if their paths are equal. As text 32 hex digits.
    FolderId,
    "folder id"
);

impl FolderId {
    /// The id of the log in this folder since its record `at`, before which it may lack something; the folder's own, and the other way
    /// round, if that is 0.
    pub fn log(self, at: u64) -> Self {
        let mut id = self;
        id.0.iter_mut().rev().zip(at.to_le_bytes()).for_each(|(byte, number)| *byte ^= number);
        id
    }

    /// Since which record this folder's log has had this id; `None` if it is no id of a log in this folder.
    pub fn log_since(self, log: Self) -> Option<u64> {
        let (first, last) =
            (|id: Self| u128::from_be_bytes(id.0) >> 64, |id: Self| u128::from_be_bytes(id.0) as u64);
        (first(self) == first(log)).then(|| last(self) ^ last(log))
    }
}

/// A point in the history of a cluster's metadata. Agents remember the last point that they were told. A
/// coordinator whose history does not contain that point has older or other metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Number of the coordinator's start that told it.
    pub boot: u64,
    /// A random number of that start. It distinguishes two starts from the same copy of metadata, which have the
    /// same `boot`.
    pub nonce: u64,
    /// Transactions committed until then, over all starts.
    pub history: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_an_id_for_each_time_that_it_was_damaged() {
        let folder = FolderId::random().unwrap();
        assert_eq!(folder.log(0), folder);
        for at in [1, 255, 256, u64::MAX] {
            assert_eq!(folder.log_since(folder.log(at)), Some(at));
            assert_eq!(folder.log(at).to_string()[..16], folder.to_string()[..16]);
        }
        assert_eq!(folder.log_since(FolderId::random().unwrap()), None);
    }

    #[test]
    fn ids_are_32_hex_digits_and_never_the_same() {
        let (a, b) = (ClusterId::random().unwrap(), ClusterId::random().unwrap());
        assert_ne!(a, b);
        assert_eq!(a.to_string().len(), 32);
        assert_eq!(a.to_string().parse::<ClusterId>().unwrap(), a);
        for bad in ["", "12", &"g".repeat(32), &"+".repeat(32), &"1".repeat(33)] {
            assert!(bad.parse::<FolderId>().unwrap_err().to_string().contains("32 hex digits"), "{bad}");
        }
        let packed = rmp_serde::to_vec(&a).unwrap();
        assert_eq!(rmp_serde::from_slice::<ClusterId>(&packed).unwrap(), a);
    }
}
