//! The model: which versions of an object a name may stand for. A name has one writer, which does one thing
//! after the other, and any number of readers.
//!
//! A write whose outcome the client did not learn may become visible at any later time, or never.
//!
//! While the coordinator has not its own metadata, a read may see any version, or none. When older metadata
//! were completed from blocks, what was removed after them may be back, and what a put wrote that failed later; what was
//! put must be, unless it has no bytes.

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
pub struct Model {
    names: BTreeMap<String, Name>,
    /// How often the coordinator got other metadata, or its own back.
    changes: u64,
    /// It has not its own.
    muddled: bool,
    /// It once got older ones.
    older: bool,
}

#[derive(Debug, Default)]
struct Name {
    current: State,
    /// Writes whose outcome is not known.
    limbo: Vec<State>,
    /// Writes since `current` that changed nothing. Only the metadata know that: their blocks may still be there.
    refused: Vec<State>,
    under_way: Option<State>,
    /// All writes that were ever begun.
    begun: Vec<State>,
}

/// A read that has begun.
pub struct Reading {
    legal: Vec<State>,
    begun: usize,
    changes: u64,
}

impl Name {
    fn legal(&self) -> Vec<State> {
        [self.current].into_iter().chain(self.limbo.iter().copied()).chain(self.under_way).collect()
    }
}

impl Model {
    fn name(&mut self, name: &str) -> &mut Name {
        self.names.entry(name.to_owned()).or_default()
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
            name.refused.clear();
        }
    }

    /// The write changed nothing.
    pub fn refused(&mut self, name: &str) {
        let name = self.name(name);
        name.refused.extend(name.under_way.take());
    }

    /// The write may have happened, or may still happen.
    pub fn unknown(&mut self, name: &str) {
        let name = self.name(name);
        name.limbo.extend(name.under_way.take());
    }

    /// Names that were ever written.
    pub fn names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    /// The coordinator gets metadata that are not its own, or its own are back.
    pub fn muddle(&mut self, muddled: bool) {
        self.changes += 1;
        self.muddled = muddled;
    }

    /// The coordinator gets older metadata.
    pub fn grow_older(&mut self) {
        self.muddle(true);
        self.older = true;
        for name in self.names.values_mut() {
            name.limbo.append(&mut name.refused);
        }
    }

    /// Whether the coordinator once got older metadata.
    pub fn is_older(&self) -> bool {
        self.older
    }

    /// Whether the coordinator had not its own metadata at some time since the read began.
    pub fn is_muddled(&self, reading: &Reading) -> bool {
        self.muddled || self.changes != reading.changes
    }

    /// A read begins.
    pub fn read(&mut self, name: &str) -> Reading {
        let (changes, older) = (self.changes, self.older);
        let name = self.name(name);
        let mut legal = name.legal();
        // An object without bytes has no blocks that could tell of it.
        if older && name.current.is_none_or(|version| version.len == 0) {
            legal.push(None);
            legal.extend(&name.begun);
        }
        Reading { legal, begun: name.begun.len(), changes }
    }

    /// What the read may have seen, now that it has ended.
    pub fn legal(&mut self, name: &str, reading: &Reading) -> Vec<State> {
        let muddled = self.is_muddled(reading);
        let begun = &self.name(name).begun;
        if muddled {
            return [None].into_iter().chain(begun.iter().copied()).collect();
        }
        reading.legal.iter().chain(&begun[reading.begun..]).copied().collect()
    }
}
