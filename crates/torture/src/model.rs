//! The model: which versions of an object a name may stand for. A name has one writer, which does one thing
//! after the other, and any number of readers.
//!
//! A write whose outcome the client did not learn may become visible at any later time, or never.

use std::collections::BTreeMap;

use crate::dice::content;

/// A version of an object; `None` if there is no object of this name.
pub type State = Option<Version>;

/// What was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    pub seed: u64,
    pub len: usize,
}

impl Version {
    pub fn bytes(self) -> Vec<u8> {
        content(self.seed, self.len)
    }
}

/// All names.
#[derive(Debug, Default)]
pub struct Model(BTreeMap<String, Name>);

#[derive(Debug, Default)]
struct Name {
    current: State,
    /// Writes whose outcome is not known.
    limbo: Vec<State>,
    under_way: Option<State>,
    /// All writes that were ever begun.
    begun: Vec<State>,
}

/// A read that has begun.
pub struct Reading {
    legal: Vec<State>,
    begun: usize,
}

impl Name {
    fn legal(&self) -> Vec<State> {
        [self.current].into_iter().chain(self.limbo.iter().copied()).chain(self.under_way).collect()
    }
}

impl Model {
    fn name(&mut self, name: &str) -> &mut Name {
        self.0.entry(name.to_owned()).or_default()
    }

    /// A put or a remove begins.
    pub fn begin(&mut self, name: &str, state: State) {
        let name = self.name(name);
        name.under_way = Some(state);
        name.begun.push(state);
    }

    /// The write was acknowledged.
    pub fn acknowledged(&mut self, name: &str) {
        let name = self.name(name);
        if let Some(state) = name.under_way.take() {
            name.current = state;
        }
    }

    /// The write changed nothing.
    pub fn refused(&mut self, name: &str) {
        self.name(name).under_way = None;
    }

    /// The write may have happened, or may still happen.
    pub fn unknown(&mut self, name: &str) {
        let name = self.name(name);
        name.limbo.extend(name.under_way.take());
    }

    /// Names that were ever written.
    pub fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// A read begins.
    pub fn read(&mut self, name: &str) -> Reading {
        let name = self.name(name);
        Reading { legal: name.legal(), begun: name.begun.len() }
    }

    /// What the read may have seen, now that it has ended.
    pub fn legal(&mut self, name: &str, reading: &Reading) -> Vec<State> {
        let begun = &self.name(name).begun[reading.begun..];
        reading.legal.iter().chain(begun).copied().collect()
    }
}
