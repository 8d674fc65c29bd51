//! Optimal LRCs: every block, parity or not, is repaired from r others by XOR, with the largest distance that such
//! a code can have, `d = n - k - ceil((k + t) / r) + 2` with `t = -n mod (r + 1)`.
//!
//! Data and global parities fill groups of r blocks, in order, and each group has one local parity. The last group
//! is `t` blocks shorter. Block order: data, local parities, global parities. Two constructions:
//!
//! - Fewer than r global parities (g): the local XORs and the checks `sum a_b^i c_b = 0`, i = 1..=g. The local
//!   checks add up to the check for i = 0, so this is a subcode of a Reed-Solomon code, with `d = g + 2`, which is
//!   the bound.
//! - Otherwise evaluations of polynomials (Tamo and Barg, "A Family of Optimal Locally Recoverable Codes", IEEE Trans. IT
//!   2014; all lengths: Kolosov, Barg, Tamo, Yadgar, "Optimal LRC codes for all lengths n <= q", 2018). The points
//!   fall into sets A_1..A_m of r + 1 on each of which a polynomial of degree r + 1 is constant; t points of A_m stay unused
//!   (a shortened code). Functions: `h x^i`, i < r - t, and `p^j x^i`, i < r, j >= 1, the k of lowest degree, with h
//!   vanishing on the unused points and p on A_m. On each set such a function is of degree below r: its values,
//!   scaled by `1 / prod (a - b)`, sum to zero.

use std::sync::Arc;

use kintsu_algebra::{Matrix, add, exp, inv, mul, pow};
use kintsu_dag::BlockIndex;

use crate::distance::{Certificate, Theorem};
use crate::linear::{Own, UncheckedCode};
use crate::name::{Family, Key, Params};
use crate::{Code, CodeError};

pub(crate) const FAMILY: Family = Family {
    name: "optimal-lrc",
    keys: &[
        Key::required("n", "blocks in a stripe; n mod (r + 1) must not be 1"),
        Key::required("k", "data blocks in a stripe"),
        Key::required("r", "blocks that any repair reads; a group has r + 1, the last one may be smaller"),
    ],
    about: "Optimal LRC: every block is repaired from r others by XOR, at the largest distance there can be",
    example: "optimal-lrc:n=12,k=6,r=3",
    make,
};

/// The number of elements of the field, which limits the points.
const FIELD: usize = 256;

/// How many polynomials are tried to find sets of points where no subgroup gives them.
const POLYNOMIALS: u64 = 20_000;

/// How many orders of the points of each set are tried until data determine the rest.
const ORDERS: u64 = 64;

/// k data blocks and `globals` global parities in `groups` groups of r with a local parity each; the last group is
/// `missing` blocks short.
#[derive(Debug, Clone, Copy)]
struct Shape {
    n: usize,
    k: usize,
    r: usize,
    groups: usize,
    globals: usize,
    missing: usize,
}

fn make(params: &Params<'_>) -> Result<Arc<dyn Code>, CodeError> {
    let (n, k) = params.shape()?;
    let shape = Shape::new(n, k, params.number("r")?)?;
    let found = if shape.globals < shape.r { shape.by_checks() } else { shape.by_evaluation() };
    let name = format!("optimal-lrc:n={n},k={k},r={}", shape.r);
    let Some((generator, theorem)) = found else {
        let expected =
            "a polynomial of degree r + 1 that is constant on enough sets of r + 1 elements of GF(2^8)";
        let got = format!("none among {POLYNOMIALS} tried for r = {}", shape.r);
        return Err(CodeError::Unsupported { name, expected: expected.into(), got });
    };
    let groups = shape.members().into_iter().map(|g| g.iter().map(|&b| BlockIndex(b as u8)).collect());
    let groups = groups.collect();
    let claim = UncheckedCode {
        name,
        n,
        k,
        w: 1,
        generator,
        groups,
        distance: shape.distance(),
        own: Own::default(),
    };
    claim.make(Some(&Certificate { theorem, split: 1 }))
}

impl Shape {
    fn new(n: usize, k: usize, r: usize) -> Result<Self, CodeError> {
        let refuse = |expected: String| {
            Err(CodeError::invalid("shape of optimal-lrc", expected, format!("n={n}, k={k}, r={r}")))
        };
        if !(1..=k).contains(&r) {
            return refuse(format!("r from 1 to k = {k}"));
        }
        if n % (r + 1) == 1 {
            return refuse("n mod (r + 1) other than 1, so that no group has a single block".into());
        }
        let groups = n.div_ceil(r + 1);
        if n < k + groups + 1 {
            return refuse(format!(
                "n - k - m >= 1 global parity, with m = ceil(n / (r + 1)) = {groups} local ones"
            ));
        }
        let missing = groups * (r + 1) - n;
        Ok(Self { n, k, r, groups, globals: n - k - groups, missing })
    }

    fn distance(self) -> usize {
        self.n - self.k + 2 - (self.k + self.missing).div_ceil(self.r)
    }

    /// The blocks of each group, its local parity last.
    fn members(self) -> Vec<Vec<usize>> {
        let first_global = self.k + self.groups;
        let others: Vec<usize> = (0..self.k).chain(first_global..self.n).collect();
        let local = |group: usize| self.k + group;
        let groups = others.chunks(self.r).enumerate();
        groups.map(|(i, members)| members.iter().copied().chain([local(i)]).collect()).collect()
    }

    /// The construction from local XORs and `globals` checks, with the first choice of points for which the
    /// parities are determined.
    fn by_checks(self) -> Option<(Matrix, Theorem)> {
        let members = self.members();
        // Powers of 2^step are distinct when the step has no divisor in common with 255.
        let steps = (1..FIELD - 1).filter(|step| [3, 5, 17].iter().all(|p| step % p != 0));
        steps.into_iter().find_map(|step| {
            let points: Vec<u8> = (0..self.n).map(|b| exp(b * step)).collect();
            let group_of = |b: usize| members.iter().position(|group| group.contains(&b));
            let check = |i: usize, b: usize| match i.checked_sub(self.groups) {
                None => u8::from(group_of(b) == Some(i)),
                Some(power) => pow(points[b], power + 1),
            };
            let checks = self.n - self.k;
            let parity = Matrix::from_fn(checks, checks, |i, j| check(i, self.k + j));
            let data = Matrix::from_fn(checks, self.k, check);
            let rows = parity.inverse().ok()?.product(&data).ok()?;
            let theorem = Theorem::Checks { points, multipliers: vec![1; self.n], checks: self.globals + 1 };
            Some((systematic(&rows), theorem))
        })
    }

    /// The construction from evaluations of polynomials, with the first order of the points in which data
    /// determine the rest.
    fn by_evaluation(self) -> Option<(Matrix, Theorem)> {
        let sets = point_sets(self.r + 1, self.groups)?;
        let members = self.members();
        (0..ORDERS).find_map(|order| {
            let mut points = vec![0; self.n];
            for (group, set) in members.iter().zip(&sets) {
                let mut set = set.clone();
                set.sort_by_key(|&a| if order == 0 { 0 } else { mixed(order, usize::from(a)) });
                group.iter().zip(set).for_each(|(&block, a)| points[block] = a);
            }
            let unused: Vec<u8> =
                sets[self.groups - 1].iter().copied().filter(|a| !points.contains(a)).collect();
            let values = self.values(&points, &sets, &unused);
            let rows = values.select_rows(self.k..self.n);
            let rows = rows.product(&values.select_rows(0..self.k).inverse().ok()?).ok()?;
            let whole = |b: usize| {
                let others = (0..self.n).filter(|&c| c != b).map(|c| add(points[b], points[c]));
                let scale = mul(scale(&sets, points[b]), vanishing(&unused, points[b]));
                inv(others.fold(scale, mul))
            };
            let multipliers = (0..self.n).map(whole).collect::<Option<Vec<u8>>>()?;
            let theorem = Theorem::Checks { points, multipliers, checks: self.distance() - 1 };
            Some((systematic(&rows), theorem))
        })
    }

    /// The functions, by degree, at the points of all blocks, scaled: `n x k`.
    fn values(self, points: &[u8], sets: &[Vec<u8>], unused: &[u8]) -> Matrix {
        let short = self.r - self.missing;
        Matrix::from_fn(self.n, self.k, |b, f| {
            let a = points[b];
            let value = match f.checked_sub(short) {
                None => mul(vanishing(unused, a), pow(a, f)),
                Some(f) => {
                    let p = vanishing(&sets[self.groups - 1], a);
                    mul(pow(p, f / self.r + 1), pow(a, f % self.r))
                }
            };
            mul(value, scale(sets, a))
        })
    }
}

/// The identity on top of these rows.
fn systematic(rows: &Matrix) -> Matrix {
    let k = rows.cols();
    Matrix::from_fn(k + rows.rows(), k, |i, j| if i < k { u8::from(i == j) } else { rows.row(i - k)[j] })
}

/// `prod (a - z)` over the zeros.
fn vanishing(zeros: &[u8], a: u8) -> u8 {
    zeros.iter().fold(1, |product, &zero| mul(product, add(a, zero)))
}

/// `1 / prod (a - b)` over the other points b of the set of a.
fn scale(sets: &[Vec<u8>], a: u8) -> u8 {
    let set = sets.iter().find(|set| set.contains(&a)).expect("every point is of a set");
    let others: Vec<u8> = set.iter().copied().filter(|&b| b != a).collect();
    inv(vanishing(&others, a)).expect("the points of a set are distinct")
}

/// `count` disjoint sets of `size` elements on each of which one polynomial of degree `size` is constant.
///
/// Where the additive or the multiplicative group of the field has a subgroup of this size, its cosets. Otherwise
/// preimages under x^q, for q that divides both `size` and 255, of level sets of a polynomial u among the q-th
/// powers: u(x^q) is constant on them. The u are products of linear factors, tried in a fixed order.
fn point_sets(size: usize, count: usize) -> Option<Vec<Vec<u8>>> {
    let sets: Vec<Vec<u8>> = if size.is_power_of_two() {
        (0..FIELD / size).map(|c| (0..size).map(|i| (c * size + i) as u8).collect()).collect()
    } else {
        let divides = |q: &usize| size.is_multiple_of(*q) && (FIELD - 1).is_multiple_of(*q);
        (1..=size).rev().filter(divides).find_map(|q| {
            let tries = if q == size { 1 } else { POLYNOMIALS };
            (0..tries).find_map(|seed| Some(level_sets(size / q, q, seed)).filter(|sets| sets.len() >= count))
        })?
    };
    (sets.len() >= count).then(|| sets[..count].to_vec())
}

/// The sets of `degree * q` elements on which u(x^q) is constant, u the `seed`-th polynomial of that degree.
fn level_sets(degree: usize, q: usize, seed: u64) -> Vec<Vec<u8>> {
    let powers = (FIELD - 1) / q;
    let mut order: Vec<usize> = (0..powers).collect();
    order.sort_by_key(|&i| mixed(seed, i));
    let roots: Vec<u8> = order.iter().take(degree).map(|&i| exp(i * q)).collect();
    let mut levels = vec![Vec::new(); FIELD];
    for log in 0..powers {
        levels[usize::from(vanishing(&roots, exp(log * q)))].push(log);
    }
    levels.retain(|level| level.len() == degree);
    // The q-th roots of 2^(q log) are 2^(log + i 255/q).
    let roots_of = |log: &usize| (0..q).map(|i| exp(log + i * powers)).collect::<Vec<_>>();
    levels.iter().map(|level| level.iter().flat_map(roots_of).collect()).collect()
}

/// A pseudo-random number for each pair.
fn mixed(seed: u64, i: usize) -> u64 {
    let mixed = (seed << 8 | i as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 27)
}
