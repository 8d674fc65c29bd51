//! The codes that may be an answer: made, proved, measured, and compared with the requirements.

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_code::{Code, CodeError, Family, families, parse};
use kintsu_dag::BlockIndex;

use crate::advise::{Placer, Requirements, survives_any_rack};
use crate::{AnalysisError, Costs, costs};

/// Codes with more sub-blocks than this are left out; with this many the smallest cell is 256 KiB.
pub(super) const MAX_SUB_BLOCKS: usize = 64;

/// A code with local groups is tried if the bound on the losses that it tolerates exceeds the required losses by at most
/// this many. No family is that far below its bound.
const SURPLUS: usize = 3;

/// A code that meets the requirements.
pub(super) struct Fit {
    pub(super) code: Arc<dyn Code>,
    pub(super) costs: Costs,
    /// Its blocks by rack, as the cluster would place them.
    pub(super) placed: Option<Vec<Vec<BlockIndex>>>,
}

/// The best code of a family, if one fits.
pub(super) struct Found {
    pub(super) family: &'static str,
    pub(super) best: Option<Fit>,
    /// Why other codes of the family were refused.
    against: Against,
}

/// Reasons against codes of a family: of each kind the first, or the one that is closest to fitting.
#[derive(Default)]
struct Against {
    undefined: Option<String>,
    unproved: Option<String>,
    sub_blocks: Option<(usize, String)>,
    tolerated: Option<(usize, String)>,
    racks: Option<String>,
}

/// The result of a search: one entry for each family, and how many codes met all requirements except the one for racks.
pub(super) struct Search {
    pub(super) found: Vec<Found>,
    pub(super) considered: usize,
}

/// The best code of each family. Blocks are placed in racks only until the first code that fits.
pub(super) fn search(
    requirements: &Requirements,
    shapes: &[(usize, usize)],
    placer: Placer<'_>,
    mut progress: impl FnMut(usize, usize),
) -> Result<Search, AnalysisError> {
    let names: Vec<BTreeSet<String>> = families()
        .iter()
        .map(|family| shapes.iter().flat_map(|&(n, k)| names(family, n, k, requirements.tolerate)).collect())
        .collect();
    let total = names.iter().map(BTreeSet::len).sum();
    let (mut done, mut considered) = (0, 0);
    let mut found = Vec::new();
    for (family, names) in families().iter().zip(names) {
        let mut against = Against::default();
        let mut fits = Vec::new();
        for name in names {
            progress(done, total);
            done += 1;
            if let Some(code) = against.admit(requirements, &name) {
                let costs = costs(&*code)?;
                fits.push(Fit { code, costs, placed: None });
            }
        }
        considered += fits.len();
        fits.sort_by(|a, b| requirements.objective.order(a, b));
        let best = fits.into_iter().find_map(|fit| against.admit_placed(requirements, fit, placer));
        found.push(Found { family: family.name, best, against });
    }
    progress(total, total);
    Ok(Search { found, considered })
}

/// Names of this family with n blocks, k of them data. If it has a locality r: each that leaves room for the tolerated
/// losses but not much more; a number d of helpers: each that needs few sub-blocks; a number alpha of sub-blocks: each.
fn names(family: &Family, n: usize, k: usize, tolerate: usize) -> Vec<String> {
    let has = |name: &str| family.keys.iter().any(|key| key.name == name);
    // Local parities reduce the distance: d <= n - k - ceil(k / r) + 2. Global parities beyond those that the
    // distance needs cost storage and repairs and make no repair cheaper, so the same code with fewer of them is
    // better.
    let roomy = |r: &usize| {
        let most = (n - k + 1).checked_sub(k.div_ceil(*r));
        most.is_some_and(|most| (tolerate..=tolerate + SURPLUS).contains(&most))
    };
    let localities: Vec<usize> = if has("r") { (1..=k).filter(roomy).collect() } else { vec![0] };
    // With s = d - k + 1 an MSR code whose helpers read only what they send has at least s^ceil((n - 1) / s)
    // sub-blocks (Balaji and Kumar, ISIT'18). Codes with too many are not made.
    let few = |d: &usize| {
        let s = d + 1 - k;
        s.checked_pow((n - 1).div_ceil(s) as u32).is_some_and(|w| w <= MAX_SUB_BLOCKS)
    };
    let helpers: Vec<usize> = if has("d") { (k..n).filter(few).collect() } else { vec![0] };
    let divisions: Vec<usize> = if has("alpha") { (2..=n - k).collect() } else { vec![0] };
    let better: &[bool] =
        if family.keys.iter().any(|key| key.better.is_some()) { &[true, false] } else { &[false] };
    let name = |r: usize, d: usize, alpha: usize, better: bool| {
        let value = |key: &kintsu_code::Key| match key.name {
            "n" => Some(format!("n={n}")),
            "k" => Some(format!("k={k}")),
            "r" => Some(format!("r={r}")),
            "d" => Some(format!("d={d}")),
            "alpha" => Some(format!("alpha={alpha}")),
            name => key.better.filter(|_| better).map(|value| format!("{name}={value}")),
        };
        let keys: Vec<_> = family.keys.iter().filter_map(value).collect();
        format!("{}:{}", family.name, keys.join(","))
    };
    let mut names = Vec::new();
    for (&r, &d) in localities.iter().flat_map(|r| helpers.iter().map(move |d| (r, d))) {
        for &alpha in &divisions {
            names.extend(better.iter().map(|&better| name(r, d, alpha, better)));
        }
    }
    names
}

impl Against {
    /// The code, if it exists and meets all requirements except the one for racks.
    fn admit(&mut self, requirements: &Requirements, name: &str) -> Option<Arc<dyn Code>> {
        let code = match parse(name) {
            Ok(code) => code,
            Err(error @ CodeError::Invalid { .. }) => {
                self.undefined.get_or_insert(error.to_string());
                return None;
            }
            Err(error) => {
                self.unproved.get_or_insert(error.to_string());
                return None;
            }
        };
        // A family may interpret its parameters in its own way.
        if code.n() > requirements.environment.nodes || !requirements.allows(code.n(), code.k()) {
            return None;
        }
        let tolerated = code.distance() - 1;
        if tolerated < requirements.tolerate {
            if self.tolerated.as_ref().is_none_or(|(most, _)| tolerated > *most) {
                self.tolerated = Some((tolerated, code.name().to_owned()));
            }
            return None;
        }
        if code.w() > MAX_SUB_BLOCKS {
            if self.sub_blocks.as_ref().is_none_or(|(least, _)| code.w() < *least) {
                self.sub_blocks = Some((code.w(), code.name().to_owned()));
            }
            return None;
        }
        Some(code)
    }

    /// The code with its blocks placed, if it meets the rack requirement.
    fn admit_placed(&mut self, requirements: &Requirements, mut fit: Fit, placer: Placer<'_>) -> Option<Fit> {
        fit.placed = placer(&*fit.code);
        let safe = fit.placed.as_ref().is_some_and(|racks| survives_any_rack(&*fit.code, racks));
        if requirements.survive_rack && !safe {
            self.racks.get_or_insert(fit.code.name().to_owned());
            return None;
        }
        Some(fit)
    }
}

impl Found {
    /// Why the family has no answer; none when it has one.
    pub(super) fn refusal(&self) -> Option<String> {
        let Against { undefined, unproved, sub_blocks, tolerated, racks } = &self.against;
        if self.best.is_some() {
            return None;
        }
        let racks = racks
            .as_ref()
            .map(|code| format!("{code} would fit, but does not survive the loss of any one rack"));
        let sub_blocks = sub_blocks.as_ref().map(|(w, code)| {
            format!("{code} would fit, but has {w} sub-blocks in a block; more than {MAX_SUB_BLOCKS} make small reads expensive")
        });
        let tolerated = tolerated.as_ref().map(|(most, code)| {
            format!("within the overhead at most {most} lost nodes are tolerated ({code})")
        });
        let undefined = undefined.as_ref().map(|error| format!("not defined for what would fit: {error}"));
        let none = || "no parameters within the overhead leave room for the losses to tolerate".to_owned();
        Some(
            racks
                .or(sub_blocks)
                .or(tolerated)
                .or_else(|| unproved.clone())
                .or(undefined)
                .unwrap_or_else(none),
        )
    }
}
