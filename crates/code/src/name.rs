//! Codes by name: `family:key=value,...`, the families that exist, and a cache of made codes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    Code, CodeError, USER, azure_lrc, azure_lrc_plus1, butterfly, clay, drc, hitchhiker, less, miser,
    optimal_lrc, replication, rotated_rs, rs, xorbas,
};

/// A family of codes that can be selected by name.
#[derive(Debug)]
pub struct Family {
    /// The part of a name before the colon.
    pub name: &'static str,
    /// The keys it understands, in canonical order.
    pub keys: &'static [Key],
    /// One line that describes it.
    pub about: &'static str,
    /// An example of a valid name.
    pub example: &'static str,
    pub(crate) make: Make,
}

/// Makes a code of a family from its parameters and checks all its claims.
pub(crate) type Make = fn(&Params<'_>) -> Result<Arc<dyn Code>, CodeError>;

/// A parameter of a family.
#[derive(Debug)]
pub struct Key {
    /// The part before the equals sign.
    pub name: &'static str,
    /// What it sets.
    pub about: &'static str,
    /// The default value; `None` when the key must be given.
    pub default: Option<&'static str>,
    /// A value that makes the better code, where it is defined. (The default makes the same bytes as ever.)
    pub better: Option<&'static str>,
}

impl Key {
    pub(crate) const fn required(name: &'static str, about: &'static str) -> Self {
        Self { name, about, default: None, better: None }
    }
}

static FAMILIES: &[Family] = &[
    replication::FAMILY,
    rs::FAMILY,
    azure_lrc::FAMILY,
    azure_lrc_plus1::FAMILY,
    xorbas::FAMILY,
    optimal_lrc::FAMILY,
    hitchhiker::FAMILY,
    less::FAMILY,
    miser::FAMILY,
    butterfly::FAMILY,
    rotated_rs::FAMILY,
    drc::FAMILY,
    clay::FAMILY,
];

/// All families, in the order they are shown.
pub fn families() -> &'static [Family] {
    FAMILIES
}

/// The most codes in the cache. A cluster uses a handful, so the limit only guards against a flood of names.
const CACHED: usize = 256;

static CACHE: Mutex<Option<HashMap<String, Arc<dyn Code>>>> = Mutex::new(None);

/// The code with this name. Keys may come in any order; [`Code::name`] has them canonical. Only the
/// first call for a name makes and proves the code, later ones share it.
///
/// # Errors
/// `Invalid` for a name that is malformed or has parameters out of range, `Distance` or
/// `Unsupported` for parameters whose claim is false or not provable.
pub fn parse(name: &str) -> Result<Arc<dyn Code>, CodeError> {
    if let Some(code) = CACHE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().get(name)
    {
        return Ok(code.clone());
    }
    let params = Params::parse(name)?;
    let code = (params.family.make)(&params)?;
    let mut guard = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let cache = guard.get_or_insert_default();
    if cache.len() >= CACHED {
        cache.clear();
    }
    cache.insert(name.to_owned(), code.clone());
    Ok(code)
}

/// A parsed name: every key is known, given once, and present unless it has a default.
#[derive(Debug)]
pub(crate) struct Params<'a> {
    family: &'static Family,
    values: Vec<(&'static str, &'a str)>,
}

impl<'a> Params<'a> {
    fn parse(name: &'a str) -> Result<Self, CodeError> {
        if name.starts_with(USER) {
            let expected =
                "a code of a family; user codes are looked up in the cluster that they are registered with";
            return Err(CodeError::invalid("code", expected, format!("{name:?}")));
        }
        let (family, rest) = name.split_once(':').unwrap_or((name, ""));
        let family = FAMILIES.iter().find(|f| f.name == family).ok_or_else(|| {
            let known: Vec<_> = FAMILIES.iter().map(|f| format!("{} ({})", f.name, f.example)).collect();
            CodeError::invalid("code family", format!("one of {}", known.join(", ")), format!("{family:?}"))
        })?;
        let mut params = Self { family, values: Vec::new() };
        for part in rest.split(',').filter(|_| !rest.is_empty()) {
            params.add(part)?;
        }
        for key in family.keys {
            match key.default {
                _ if params.values.iter().any(|(name, _)| *name == key.name) => {}
                Some(value) => params.values.push((key.name, value)),
                None => {
                    let expected =
                        format!("a value for {} ({}), as in {}", key.name, key.about, family.example);
                    return Err(CodeError::invalid("code", expected, format!("{name:?}")));
                }
            }
        }
        Ok(params)
    }

    fn add(&mut self, part: &'a str) -> Result<(), CodeError> {
        let what = || format!("parameter of {}", self.family.name);
        let Some((key, value)) = part.split_once('=') else {
            let expected = format!("key=value, as in {}", self.family.example);
            return Err(CodeError::invalid(what(), expected, format!("{part:?}")));
        };
        let Some(key) = self.family.keys.iter().find(|k| k.name == key) else {
            let known: Vec<_> = self.family.keys.iter().map(|k| k.name).collect();
            return Err(CodeError::invalid(
                what(),
                format!("one of {}", known.join(", ")),
                format!("{key:?}"),
            ));
        };
        if let Some((_, first)) = self.values.iter().find(|(name, _)| *name == key.name) {
            let got = format!("{}={first} and {part}", key.name);
            return Err(CodeError::invalid(what(), format!("{} once", key.name), got));
        }
        self.values.push((key.name, value));
        Ok(())
    }

    /// The value of one of the family's keys.
    pub(crate) fn word(&self, key: &str) -> &'a str {
        let found = self.values.iter().find(|(name, _)| *name == key);
        found.expect("a family asks for its own keys, and all of them have values").1
    }

    /// The value of one of the family's keys as a number.
    pub(crate) fn number(&self, key: &str) -> Result<usize, CodeError> {
        let word = self.word(key);
        let digits = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
        word.parse().ok().filter(|_| digits).ok_or_else(|| {
            let what = format!("{key} of {}", self.family.name);
            CodeError::invalid(what, "a number up to 255", format!("{word:?}"))
        })
    }

    /// n and k, checked by [`check_shape`].
    pub(crate) fn shape(&self) -> Result<(usize, usize), CodeError> {
        let (n, k) = (self.number("n")?, self.number("k")?);
        check_shape(n, k)?;
        Ok((n, k))
    }
}

/// Checks 1 <= k < n <= 255: the field has 255 elements other than zero.
pub(crate) fn check_shape(n: usize, k: usize) -> Result<(), CodeError> {
    let refuse = |expected: &str| Err(CodeError::invalid("code shape", expected, format!("n={n}, k={k}")));
    match (n, k) {
        (_, 0) => refuse("k >= 1"),
        _ if n <= k => refuse("n > k"),
        _ if n > 255 => refuse("n <= 255"),
        _ => Ok(()),
    }
}
