//! Compares the chain with closed forms and with chains over every pattern of losses, and checks monotonicity.

use super::*;
use crate::{MAX_PATTERNS, costs};
use kintsu_code::parse;
use proptest::prelude::*;

fn by_rack(racks: &[&[u8]]) -> Vec<Vec<BlockIndex>> {
    racks.iter().map(|blocks| blocks.iter().map(|&b| BlockIndex(b)).collect()).collect()
}

fn of(name: &str, environment: &Environment, racks: Option<&[Vec<BlockIndex>]>) -> Reliability {
    let code = parse(name).unwrap();
    reliability(&*code, &costs(&*code).unwrap(), environment, racks, MAX_PATTERNS).unwrap()
}

fn years(name: &str, nodes: usize) -> f64 {
    of(name, &Environment::new(nodes), None).stripe.mttdl_years
}

/// The mean time to loss of an MDS code: the sum over all states of the mean time to go one step further.
fn birth_and_death(n: usize, tolerated: usize, node: f64, single: f64, multiple: f64) -> f64 {
    let mut step = 0.0;
    (0..=tolerated).fold(0.0, |time, failed| {
        let repair = [0.0, single, multiple][failed.min(2)];
        step = (1.0 + repair * step) / ((n - failed) as f64 * node);
        time + step
    })
}

#[test]
fn mds_codes_have_the_closed_form_of_a_birth_and_death_process() {
    for (name, n, m, k) in
        [("rs:n=2,k=1", 2, 1, 1.0), ("rs:n=3,k=1", 3, 2, 1.0), ("rs:n=14,k=10", 14, 4, 10.0)]
    {
        let environment = Environment { detection_h: 1.0, ..Environment::new(31) };
        let ours = of(name, &environment, None);
        // k / 30 of 16 TB at 125 MB/s.
        let repair_h = 1.0 + k / 30.0 * 16e12 / 125e6 / 3600.0;
        assert!((ours.single_repair_h / repair_h - 1.0).abs() < 1e-12);
        assert_eq!(ours.single_repair_h, ours.multiple_repair_h);
        let closed = birth_and_death(n, m, 1.0 / 87_600.0, 1.0 / repair_h, 1.0 / repair_h);
        assert!((ours.stripe.mttdl_h / closed - 1.0).abs() < 1e-12, "{name}");
    }
}

#[test]
fn a_pair_of_replicas_takes_the_time_of_the_textbook() {
    let ours = of("rs:n=2,k=1", &Environment::new(2), None);
    // No node but the replaced one can take what was lost: at its own 125 MB/s.
    let (l, m) = (1.0 / 87_600.0, 1.0 / (0.25 + 16e12 / 125e6 / 3600.0));
    assert!((ours.stripe.mttdl_h / ((3.0 * l + m) / (2.0 * l * l)) - 1.0).abs() < 1e-12);
    // All stripes on the same two nodes are lost together.
    assert_eq!(ours.cluster, ours.stripe);
    assert_eq!(of("rs:n=2,k=1", &Environment::new(20), None).stripes, 2_384_186.0);
}

/// The mean time to loss of a chain over every (set of racks down, set of blocks failed), without merging states.
/// Failed blocks are rebuilt one at a time, each with the same probability.
fn over_all_patterns(code: &dyn Code, rates: &Rates, by_rack: &[Vec<BlockIndex>]) -> f64 {
    let (n, racks) = (code.n(), by_rack.len());
    let survived = |state: usize| {
        let failed = (0..n).filter(|b| state >> b & 1 == 1).map(|b| BlockIndex(b as u8));
        let gone = (0..racks).filter(|r| state >> (n + r) & 1 == 1).flat_map(|r| by_rack[r].clone());
        code.recoverable(&failed.chain(gone).collect::<Vec<_>>())
    };
    let states: Vec<usize> = (0..1 << (n + racks)).filter(|&state| survived(state)).collect();
    let mut chain = Chain::new(states.len());
    for (from, &state) in states.iter().enumerate() {
        let down = (state >> n).count_ones();
        let failed = (state & ((1 << n) - 1)).count_ones();
        for bit in 0..n + racks {
            let there = states.binary_search(&(state ^ 1 << bit));
            let rate = match (bit < n, state >> bit & 1 == 1) {
                (true, false) => rates.node,
                (false, false) => rates.rack,
                (true, true) if (down, failed) == (0, 1) => rates.single,
                (true, true) => rates.multiple / f64::from(failed),
                (false, true) => rates.back,
            };
            match there {
                Ok(to) => chain.add(from, to, rate),
                Err(_) => chain.add_loss(from, rate),
            }
        }
    }
    chain.time_to_loss()
}

fn lumped(code: &dyn Code, rates: &Rates, by_rack: &[Vec<BlockIndex>]) -> f64 {
    rates.chain(&Survived::count(code, by_rack, MAX_PATTERNS).unwrap()).time_to_loss()
}

#[test]
fn lumping_is_exact_without_repair_and_close_with_it() {
    let without = Rates { node: 1.0, rack: 0.3, back: 0.0, single: 0.0, multiple: 0.0 };
    let with = Rates { node: 1e-5, rack: 3e-6, back: 0.08, single: 0.5, multiple: 0.2 };
    for (name, racks) in [
        ("azure-lrc:n=7,k=4,r=2", by_rack(&[])),
        ("azure-lrc:n=6,k=3,r=2", by_rack(&[&[0, 2], &[1, 3], &[4, 5]])),
        ("azure-lrc:n=6,k=3,r=2", by_rack(&[&[0, 1, 3], &[2, 4, 5]])),
        ("rs:n=6,k=3", by_rack(&[&[0, 1], &[2], &[3, 4, 5]])),
        ("rs:n=5,k=3", by_rack(&[&[0], &[1], &[2], &[3], &[4]])),
    ] {
        let code = parse(name).unwrap();
        let ratio = |rates: &Rates| lumped(&*code, rates, &racks) / over_all_patterns(&*code, rates, &racks);
        assert!((ratio(&without) - 1.0).abs() < 1e-10, "{name}: {}", ratio(&without));
        assert!((ratio(&with) - 1.0).abs() < 1e-3, "{name}: {}", ratio(&with));
    }
}

#[test]
fn reliability_orders_codes_as_it_should() {
    // More replicas or more parity give a longer time. The same tolerance over more blocks gives a shorter time.
    assert!(years("rs:n=2,k=1", 20) < years("rs:n=3,k=1", 20));
    assert!(years("rs:n=9,k=6", 20) < years("rs:n=10,k=6", 20));
    assert!(years("rs:n=14,k=10", 20) < years("rs:n=10,k=6", 20));
    // Some losses beyond d - 1 are decoded, and single repairs are fast. So the LRC is better than RS of the same
    // distance and k, but worse than RS of the same size.
    assert!(years("azure-lrc:n=10,k=6,r=3", 20) > years("rs:n=9,k=6", 20));
    let slow = Environment { detection_h: 1e4, ..Environment::new(20) };
    let at_equal_repair = |name| of(name, &slow, None).stripe.mttdl_h;
    assert!(at_equal_repair("azure-lrc:n=10,k=6,r=3") < at_equal_repair("rs:n=10,k=6"));
}

#[test]
fn coefficients_that_decode_more_losses_have_a_longer_mttdl() {
    // The same shape and distance, once with points in cosets, once with points that leave more losses
    // undecodable.
    let code = parse("azure-lrc:n=10,k=6,r=3").unwrap();
    let poor = (2..250).find_map(|seed: u8| {
        let entry = |i: usize, j: usize| match i {
            _ if i < 6 => u8::from(i == j),
            6 | 7 => u8::from(j / 3 == i - 6),
            _ => kintsu_algebra::pow(kintsu_algebra::exp(j * usize::from(seed) % 255), i - 7),
        };
        let generator = kintsu_algebra::Matrix::from_fn(10, 6, entry);
        let poor = kintsu_code::from_generator("poor", 10, 6, 1, generator, code.groups(), 4).ok()?;
        let decoded = |code: &dyn Code| Survived::count(code, &[], MAX_PATTERNS).unwrap().get(0, 4);
        (decoded(&*poor) < decoded(&*code)).then_some(poor)
    });
    let (poor, environment) = (poor.expect("most coefficients decode less"), Environment::new(20));
    let life = |code: &dyn Code| {
        reliability(code, &costs(code).unwrap(), &environment, None, MAX_PATTERNS).unwrap().stripe.mttdl_h
    };
    assert!(life(&*poor) < life(&*code));
}

#[test]
fn a_rack_with_too_many_blocks_bounds_the_mttdl() {
    let environment = Environment::new(9);
    let safe = by_rack(&[&[0, 1, 2], &[3, 4, 5], &[6, 7, 8]]);
    let unsafe_ = by_rack(&[&[0, 1, 2, 3], &[4, 5, 6, 7], &[8]]);
    let safe = of("rs:n=9,k=6", &environment, Some(&safe)).racks.unwrap();
    let bad = of("rs:n=9,k=6", &environment, Some(&unsafe_)).racks.unwrap();
    assert!(safe.survives_any_rack && !bad.survives_any_rack);
    assert_eq!((safe.blocks_per_rack, bad.blocks_per_rack), (3, 4));
    // The time until the first of two racks fails.
    assert!((bad.stripe.mttdl_h / (environment.rack_mttf_h / 2.0) - 1.0).abs() < 0.01);
    assert!(safe.stripe.mttdl_h > 50.0 * bad.stripe.mttdl_h);
    let without = of("rs:n=9,k=6", &environment, None);
    assert!(without.racks.is_none() && without.stripe.mttdl_h > safe.stripe.mttdl_h);
}

#[test]
fn losses_that_were_not_counted_shorten_the_mttdl() {
    let code = parse("azure-lrc:n=12,k=6,r=3").unwrap();
    let (costs, environment) = (costs(&*code).unwrap(), Environment::new(12));
    let at = |patterns| reliability(&*code, &costs, &environment, None, patterns).unwrap();
    let (all, few) = (at(MAX_PATTERNS), at(100));
    assert_eq!((all.counted, few.counted), (6, code.distance() - 1));
    assert!(few.stripe.mttdl_h < all.stripe.mttdl_h);
}

#[test]
fn senseless_environments_are_refused() {
    let code = parse("rs:n=9,k=6").unwrap();
    let costs = costs(&*code).unwrap();
    let said = |environment: &Environment, racks: Option<&[Vec<BlockIndex>]>| {
        reliability(&*code, &costs, environment, racks, 0).unwrap_err().to_string()
    };
    assert!(said(&Environment::new(8), None).contains("expected at least 9"));
    let still = Environment { bandwidth: 0.0, ..Environment::new(9) };
    assert!(said(&still, None).contains("repair bandwidth"));
    let twice = by_rack(&[&[0, 1, 2, 3], &[3, 4, 5, 6, 7, 8]]);
    assert!(said(&Environment::new(9), Some(&twice)).contains("each of the 9 blocks"));
}

#[test]
fn lifetimes_have_their_nines() {
    let life = Lifetime::of(8760.0 * 1e11);
    assert!((life.nines - 11.0).abs() < 1e-9 && (life.annual_loss / 1e-11 - 1.0).abs() < 1e-9);
    assert!((Lifetime::of(8760.0).annual_loss - 0.632_120_558_828_557_7).abs() < 1e-15);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_mttdl_grows_with_faster_repair_and_better_parts(
        lrc in proptest::bool::ANY, bandwidth in 1e6f64..1e10, factor in 1.01f64..100.0,
    ) {
        let name = if lrc { "azure-lrc:n=8,k=4,r=2" } else { "rs:n=8,k=4" };
        let racks = by_rack(&[&[0, 2, 4], &[1, 3, 5], &[6, 7]]);
        let base = Environment { bandwidth, ..Environment::new(10) };
        let lives = |environment: &Environment| {
            let all = of(name, environment, Some(&racks));
            (all.stripe.mttdl_h, all.racks.unwrap().stripe.mttdl_h)
        };
        let (nodes, both) = lives(&base);
        prop_assert!(both < nodes);
        for better in [
            Environment { bandwidth: bandwidth * factor, ..base.clone() },
            Environment { node_bytes: base.node_bytes / factor, ..base.clone() },
            Environment { detection_h: base.detection_h / factor, ..base.clone() },
            Environment { node_mttf_h: base.node_mttf_h * factor, ..base.clone() },
        ] {
            prop_assert!(lives(&better).0 > nodes && lives(&better).1 > both);
        }
        for better in [
            Environment { rack_mttf_h: base.rack_mttf_h * factor, ..base.clone() },
            Environment { rack_outage_h: base.rack_outage_h / factor, ..base.clone() },
        ] {
            prop_assert!(lives(&better).0 == nodes && lives(&better).1 > both);
        }
    }
}
