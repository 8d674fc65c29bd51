//! What is known of an object besides its bytes: their checksum, and what its user says about it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest content type in bytes.
const CONTENT_TYPE_BYTES: usize = 255;

/// Longest name of a user attribute in bytes.
const KEY_BYTES: usize = 128;

/// Most bytes of all names and values of user attributes together.
const USER_BYTES: usize = 2048;

/// Longest name of a fact in bytes.
const FACT_BYTES: usize = 64;

/// Most bytes of all names and values of facts together.
const FACTS_BYTES: usize = 64 << 10;

/// What the user of an object says about it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// What kind of content it has, such as `text/plain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The user's own attributes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub user: BTreeMap<String, String>,
    /// What a gateway has noted of it, such as an entity tag. A [`ListPage`](super::ListPage) leaves out those whose names
    /// begin with a dot.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

impl Attributes {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Leaves what a listing shows: neither the user's own attributes, nor facts whose names begin with a dot.
    pub fn for_listing(&mut self) {
        self.user.clear();
        self.facts.retain(|name, _| !name.starts_with('.'));
    }

    /// What is written to the labels of blocks: all but the facts, which may be long and change.
    pub fn for_label(self) -> Self {
        Self { facts: BTreeMap::new(), ..self }
    }

    /// Checks the lengths, and that there are no control characters.
    ///
    /// # Errors
    /// What was expected, and what came.
    pub fn check(&self) -> Result<(), (String, String)> {
        let plain = |text: &str| !text.chars().any(char::is_control);
        if let Some(kind) = &self.content_type
            && (kind.is_empty() || kind.len() > CONTENT_TYPE_BYTES || !plain(kind))
        {
            let expected =
                format!("a content type of 1 to {CONTENT_TYPE_BYTES} bytes without control characters");
            return Err((expected, format!("{} bytes: {kind:?}", kind.len())));
        }
        for (key, value) in &self.user {
            if key.is_empty() || key.len() > KEY_BYTES || !plain(key) || !plain(value) {
                let expected = format!(
                    "user attributes with names of 1 to {KEY_BYTES} bytes, and no control characters"
                );
                return Err((expected, format!("{key:?} = {value:?}")));
            }
        }
        check_facts(&self.facts)?;
        let bytes: usize = self.user.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > USER_BYTES {
            let expected =
                format!("user attributes of {USER_BYTES} bytes at most, names and values together");
            return Err((expected, format!("{bytes} bytes")));
        }
        Ok(())
    }
}

/// Checks the lengths of facts. Their values may be any text.
///
/// # Errors
/// What was expected, and what came.
pub fn check_facts(facts: &BTreeMap<String, String>) -> Result<(), (String, String)> {
    if let Some(name) = facts.keys().find(|name| name.is_empty() || name.len() > FACT_BYTES) {
        return Err((format!("facts with names of 1 to {FACT_BYTES} bytes"), format!("{name:?}")));
    }
    let bytes: usize = facts.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > FACTS_BYTES {
        let expected = format!("facts of {FACTS_BYTES} bytes at most, names and values together");
        return Err((expected, format!("{bytes} bytes")));
    }
    Ok(())
}

/// The checksum of all bytes of an object: their CRC-64/NVME, printed as `crc64nvme:` and 16 hex digits.
///
/// It depends on the bytes alone, not on how they are stored. The checksum of a whole can be computed from those of
/// its parts, so that parts may be written and read in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum(pub u64);

const CHECKSUM_PREFIX: &str = "crc64nvme:";

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{CHECKSUM_PREFIX}{:016x}", self.0)
    }
}

impl FromStr for Checksum {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix(CHECKSUM_PREFIX).filter(|digits| digits.len() == 16);
        digits
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map(Self)
            .ok_or_else(|| format!("expected {CHECKSUM_PREFIX} and 16 hex digits, got {text:?}"))
    }
}

impl Serialize for Checksum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
        } else {
            u64::deserialize(deserializer).map(Self)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_text_for_people_and_a_number_for_programs() {
        let sum = Checksum(0x00ab);
        assert_eq!(sum.to_string(), "crc64nvme:00000000000000ab");
        assert_eq!(sum.to_string().parse(), Ok(sum));
        for bad in
            ["", "crc64nvme:", "crc64nvme:00000000000000a", "crc64nvme:00000000000000ag", "00000000000000ab"]
        {
            assert!(bad.parse::<Checksum>().is_err(), "{bad}");
        }
        let bytes = rmp_serde::to_vec_named(&sum).unwrap();
        assert_eq!(rmp_serde::from_slice::<Checksum>(&bytes).unwrap(), sum);
        assert!(bytes.len() <= 9);
    }

    #[test]
    fn a_listing_leaves_out_what_is_long() {
        let map = |names: [&str; 2]| names.map(|name| (name.to_owned(), "v".to_owned())).into();
        let mut attributes = Attributes {
            content_type: Some("t".into()),
            user: map(["a", "b"]),
            facts: map(["etag", ".tags"]),
        };
        attributes.for_listing();
        assert!(attributes.user.is_empty() && attributes.content_type.is_some());
        assert_eq!(attributes.facts.keys().collect::<Vec<_>>(), ["etag"]);
    }

    #[test]
    fn attributes_are_short_text() {
        let user = |key: &str, value: &str| Attributes {
            user: BTreeMap::from([(key.to_owned(), value.to_owned())]),
            ..Attributes::default()
        };
        let typed = |kind: &str| Attributes { content_type: Some(kind.into()), ..Attributes::default() };
        let noted = |name: &str, value: &str| Attributes {
            facts: BTreeMap::from([(name.to_owned(), value.to_owned())]),
            ..Attributes::default()
        };
        for good in [
            user("a", ""),
            user("日本", "a b"),
            user(&"k".repeat(128), &"v".repeat(1920)),
            typed("text/plain"),
            noted("e", &"v".repeat(4096)),
        ] {
            assert_eq!(good.check(), Ok(()));
        }
        for bad in [
            user("", "v"),
            user(&"k".repeat(129), ""),
            user("k", &"v".repeat(2048)),
            user("k", "a\nb"),
            typed(""),
            typed("a\u{7f}"),
            typed(&"t".repeat(256)),
            noted("", "v"),
            noted(&"n".repeat(65), "v"),
            noted("n", &"v".repeat(64 << 10)),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
