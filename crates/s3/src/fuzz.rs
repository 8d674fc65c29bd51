//! The way in for a fuzzer (`fuzz/`).

use std::path::Path;

use crate::acl::Acl;
use crate::body::{base64, unhex};
use crate::keys::{matches, parse_text};
use crate::names::checked_key;
use crate::policy::Policy;

/// Reads a text as that part of a request which `which` chooses.
pub fn read(which: u8, text: &str) {
    match which % 6 {
        0 => drop(Policy::parse(text, "bucket")),
        1 => drop(parse_text(Path::new("keys"), text)),
        2 => drop(Acl::of(Some(text), "owner")),
        3 => drop(checked_key(text)),
        4 => drop((base64(text.as_bytes()), unhex(text))),
        _ => {
            let (pattern, name) = text.split_once('\n').unwrap_or((text, ""));
            let _ = matches(pattern, name);
        }
    }
}
