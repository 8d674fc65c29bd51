//! Codes as data: how a cluster learns codes that are not built in.

use kintsu_code::Definition;
use serde::{Deserialize, Serialize};

/// Keep a code, so that objects can be stored with it under its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterCode {
    /// What it is.
    pub definition: Definition,
}

/// The answer to [`RegisterCode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredCode {
    /// Whether it was unknown before.
    pub new: bool,
}

/// A code by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeName {
    /// `user:NAME`.
    pub name: String,
}

/// A summary of a registered code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeInfo {
    /// Its name.
    pub name: String,
    /// Blocks in a stripe.
    pub n: usize,
    /// Data blocks in a stripe.
    pub k: usize,
    /// Sub-blocks in a block.
    pub w: usize,
    /// Its proved distance.
    pub distance: usize,
    /// How many repair graphs it brings.
    pub repairs: usize,
}

/// All registered codes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeList {
    /// In order of name.
    pub codes: Vec<CodeInfo>,
}

impl From<&Definition> for CodeInfo {
    fn from(code: &Definition) -> Self {
        let Definition { name, n, k, w, distance, repairs, .. } = code;
        Self { name: name.clone(), n: *n, k: *k, w: *w, distance: *distance, repairs: repairs.len() }
    }
}
