//! The probability that data is lost within a given time, as two papers compute it: there is no repair within that
//! time, and all lifetimes are exponential.
//!
//! Both papers subtract the probabilities of all survived events from 1. Here the probabilities of all events that
//! lose data are added instead. This is the same value, and it keeps its precision when the time is short.
//!
//! Sources: CAU (ICPP'18), section 3.5, equations (4) to (6); ChameleonEC, section II-B, equation (2).

use serde::Serialize;

use crate::AnalysisError;

/// Hours of a year of 365 days, as in CAU's printed values.
pub const HOURS_PER_YEAR: f64 = 8760.0;

/// The lifetime of a node in both papers: 10 years.
pub const PAPER_NODE_MTTF_H: f64 = 10.0 * HOURS_PER_YEAR;

/// CAU's share of racks whose switch fails within a year.
const RACK_AFR: f64 = 0.0278;

/// The mean lifetime, in hours, of a component that fails within a year with probability `afr`: equation (4)
/// solved for the lifetime.
pub fn mttf_of_afr_h(afr: f64) -> f64 {
    -HOURS_PER_YEAR / (-afr).ln_1p()
}

/// CAU's lifetime of a rack, theta_2. The paper prints "36 years"; its results need the unrounded 35.47.
pub fn paper_rack_mttf_h() -> f64 {
    mttf_of_afr_h(RACK_AFR)
}

/// Equation (4) of CAU: the probability that a component of mean lifetime `mttf_h` (theta) fails within `hours`
/// (tau).
pub fn failure_probability(hours: f64, mttf_h: f64) -> f64 {
    -(-hours / mttf_h).exp_m1()
}

/// A stripe of an MDS code in the model of CAU, section 3.5: n nodes in r racks of n/r, the parity nodes all in
/// one rack, nothing repaired.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cau {
    /// Nodes, one block each (n).
    pub n: usize,
    /// Data nodes (k).
    pub k: usize,
    /// Racks (r).
    pub racks: usize,
    /// Mean lifetime of a node (theta_1), in hours.
    pub node_mttf_h: f64,
    /// Mean lifetime of a rack (theta_2), in hours.
    pub rack_mttf_h: f64,
}

/// The three data loss probabilities of CAU's Figure 5.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CauLoss {
    /// Erasure coding that updates all parity at once (Pr_ec).
    pub baseline: f64,
    /// Parity updated later, no replica of updated blocks (Pr_cau0).
    pub no_replica: f64,
    /// Parity updated later, one replica of each updated block on a parity node (Pr_cau1).
    pub one_replica: f64,
}

impl Cau {
    /// The paper's setting: RS(9,6), three racks.
    pub fn paper() -> Self {
        let rack_mttf_h = paper_rack_mttf_h();
        Self { n: 9, k: 6, racks: 3, node_mttf_h: PAPER_NODE_MTTF_H, rack_mttf_h }
    }

    /// The probabilities of loss within `hours` (tau). For other numbers of parities than three, the paper's cases
    /// are extended: with one replica, up to n - k nodes may fail if they are all data nodes or all parity nodes.
    ///
    /// # Errors
    /// `Invalid` unless 1 <= k < n, r divides n, a rack holds no more than n - k blocks, and times are positive.
    pub fn loss_within(&self, hours: f64) -> Result<CauLoss, AnalysisError> {
        self.check(hours)?;
        let parities = self.n - self.k;
        let node = failure_probability(hours, self.node_mttf_h);
        let fails = |of: usize, failed: usize| binomial_probability(of, failed, node);
        // Equation (5) without its last factor, summed over the events that lose data.
        let nodes_lose = |lost: &dyn Fn(usize, usize) -> bool| -> f64 {
            let pairs = (0..=self.k).flat_map(|i| (0..=parities).map(move |j| (i, j)));
            pairs.filter(|&(i, j)| lost(i, j)).map(|(i, j)| fails(self.k, i) * fails(parities, j)).sum()
        };
        // Equation (6): one rack fails and all nodes of the others are up.
        let rack = failure_probability(hours, self.rack_mttf_h);
        let racks_fail = |failed: usize| binomial_probability(self.racks, failed, rack);
        let others = (self.n - self.n / self.racks) as f64;
        let one_rack_alone = racks_fail(1) * (-others * hours / self.node_mttf_h).exp();
        let one_rack_and_nodes = racks_fail(1) * -(-others * hours / self.node_mttf_h).exp_m1();
        let more_racks: f64 = (2..=self.racks).map(racks_fail).sum();
        let beyond_one_rack = one_rack_and_nodes + more_racks;
        let loss = |lost: &dyn Fn(usize, usize) -> bool| racks_fail(0) * nodes_lose(lost) + beyond_one_rack;
        let data_racks = 1.0 - 1.0 / self.racks as f64;
        Ok(CauLoss {
            baseline: loss(&|i, j| i + j > parities),
            no_replica: loss(&|i, _| i > 0) + data_racks * one_rack_alone,
            one_replica: loss(&|i, j| i + j > parities || (i > 0 && j > 0)),
        })
    }

    fn check(&self, hours: f64) -> Result<(), AnalysisError> {
        let Self { n, k, racks, .. } = *self;
        let fits = 1 <= k && k < n && racks > 1 && n.is_multiple_of(racks) && n / racks <= n - k;
        if !fits {
            let expected = "1 <= k < n, racks that divide n, at most n - k blocks in each";
            return Err(AnalysisError::invalid("stripe", expected, format!("n={n}, k={k}, racks={racks}")));
        }
        check_time("duration (tau)", hours)?;
        check_time("lifetime of a node", self.node_mttf_h)?;
        check_time("lifetime of a rack", self.rack_mttf_h)
    }
}

/// A system of k + m nodes in the model of ChameleonEC, section II-B: data is lost if m or more of the others fail
/// while one failed node is repaired.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Chameleon {
    /// Data blocks of a stripe (k).
    pub k: usize,
    /// Parity blocks of a stripe (m).
    pub m: usize,
    /// Mean lifetime of a node (theta), in hours.
    pub node_mttf_h: f64,
    /// What a node stores, in bytes.
    pub node_bytes: f64,
}

impl Chameleon {
    /// The paper's setting: RS(14,10) written as k = 10, m = 4; 96 TB a node.
    pub fn paper() -> Self {
        Self { k: 10, m: 4, node_mttf_h: PAPER_NODE_MTTF_H, node_bytes: 96e12 }
    }

    /// Equation (2): the probability of loss during the repair of one node (Pr_dl) at a throughput in bytes
    /// repaired per second. The paper draws it as a curve (Figure 2) and prints no value.
    ///
    /// # Errors
    /// `Invalid` unless k and m are at least 1 and all quantities are positive.
    pub fn loss_during_repair(&self, bytes_per_s: f64) -> Result<f64, AnalysisError> {
        if self.k == 0 || self.m == 0 {
            let got = format!("k={}, m={}", self.k, self.m);
            return Err(AnalysisError::invalid("code of the model", "k >= 1 and m >= 1", got));
        }
        check_time("lifetime of a node", self.node_mttf_h)?;
        check_positive("repair throughput", "bytes per second", bytes_per_s)?;
        check_positive("capacity of a node", "bytes", self.node_bytes)?;
        let others = self.k + self.m - 1;
        let hours = self.node_bytes / bytes_per_s / 3600.0;
        let node = failure_probability(hours, self.node_mttf_h);
        Ok((self.m..=others).map(|failed| binomial_probability(others, failed, node)).sum())
    }
}

/// The probability that exactly `failed` of `of` components fail when each fails with probability `p`.
pub(crate) fn binomial_probability(of: usize, failed: usize, p: f64) -> f64 {
    let ways = (0..failed).fold(1.0, |ways, i| ways * (of - i) as f64 / (i + 1) as f64);
    ways * p.powi(failed as i32) * (1.0 - p).powi((of - failed) as i32)
}

pub(crate) fn check_time(what: &str, hours: f64) -> Result<(), AnalysisError> {
    check_positive(what, "hours", hours)
}

/// Accepts a positive finite quantity.
pub(crate) fn check_positive(what: &str, unit: &str, value: f64) -> Result<(), AnalysisError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(AnalysisError::invalid(what, format!("a positive number of {unit}"), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To three significant digits, as printed.
    fn printed(value: f64) -> String {
        format!("{value:.2e}")
    }

    #[test]
    fn the_values_that_cau_prints() {
        let loss = Cau::paper().loss_within(18.0).unwrap();
        assert_eq!(printed(loss.one_replica), "9.83e-7");
        assert_eq!(printed(loss.baseline), "2.24e-7");
        assert!(loss.no_replica > 1e-3, "more than a thousand times the others: {}", loss.no_replica);
        // The paper prints the rack's lifetime as 36 years; with this rounded value the results would differ.
        assert_eq!(format!("{:.2}", paper_rack_mttf_h() / HOURS_PER_YEAR), "35.47");
        assert!((failure_probability(HOURS_PER_YEAR, paper_rack_mttf_h()) - 0.0278).abs() < 1e-15);
        let rounded = Cau { rack_mttf_h: 36.0 * HOURS_PER_YEAR, ..Cau::paper() }.loss_within(18.0).unwrap();
        assert_eq!(
            (printed(rounded.one_replica), printed(rounded.baseline)),
            ("9.80e-7".into(), "2.21e-7".into())
        );
    }

    /// The sums of section 3.5 as they are written.
    fn as_written(cau: &Cau, hours: f64) -> CauLoss {
        let f1 = failure_probability(hours, cau.node_mttf_h);
        let f2 = failure_probability(hours, cau.rack_mttf_h);
        let e = |i, j| {
            binomial_probability(6, i, f1) * binomial_probability(3, j, f1) * binomial_probability(3, 0, f2)
        };
        let f_1 = binomial_probability(3, 1, f2) * (1.0 - f1).powi(6);
        let up_to_3: f64 = (0..=3).flat_map(|i| (0..=3 - i).map(move |j| (i, j))).map(|(i, j)| e(i, j)).sum();
        let parities: f64 = (1..=3).map(|j| e(0, j)).sum();
        let data: f64 = (1..=3).map(|i| e(i, 0)).sum();
        CauLoss {
            baseline: 1.0 - (up_to_3 + f_1),
            no_replica: 1.0 - (e(0, 0) + parities + f_1 / 3.0),
            one_replica: 1.0 - (e(0, 0) + parities + data + f_1),
        }
    }

    #[test]
    fn what_is_lost_and_what_is_survived_add_up_to_one() {
        for hours in [1.0, 6.0, 18.0, 1000.0, 50_000.0] {
            let (ours, written) =
                (Cau::paper().loss_within(hours).unwrap(), as_written(&Cau::paper(), hours));
            for (a, b) in [
                (ours.baseline, written.baseline),
                (ours.no_replica, written.no_replica),
                (ours.one_replica, written.one_replica),
            ] {
                assert!((a - b).abs() < 1e-14, "{a} {b} at {hours} h");
            }
            assert!(ours.baseline < ours.one_replica && ours.one_replica < ours.no_replica);
        }
        // The paper's own form would have lost all precision here.
        let short = Cau::paper().loss_within(1e-6).unwrap().baseline;
        assert!(short > 0.0 && short < 1e-17, "{short}");
    }

    #[test]
    fn faster_repair_loses_less_as_chameleon_draws() {
        let at = |mb: f64| Chameleon::paper().loss_during_repair(mb * 1e6).unwrap();
        assert_eq!(
            [printed(at(50.0)), printed(at(100.0)), printed(at(800.0))],
            ["9.29e-7", "5.97e-8", "1.49e-11"]
        );
        // Equation (2) as it is written, at 50 MB/s.
        let node = failure_probability(96e12 / 50e6 / 3600.0, PAPER_NODE_MTTF_H);
        let survived: f64 = (0..4).map(|i| binomial_probability(13, i, node)).sum();
        assert!((at(50.0) - (1.0 - survived)).abs() < 1e-14);
        // m = 4 failures within half the time are nearly 2^4 times rarer.
        assert!((at(400.0) / at(800.0) - 16.0).abs() < 0.1);
    }

    #[test]
    fn senseless_settings_are_refused() {
        let said = |cau: Cau, hours: f64| cau.loss_within(hours).unwrap_err().to_string();
        let four = said(Cau { racks: 4, ..Cau::paper() }, 18.0);
        assert!(four.contains("racks that divide n") && four.contains("racks=4"), "{four}");
        assert!(said(Cau { k: 7, ..Cau::paper() }, 18.0).contains("k=7"));
        assert!(said(Cau::paper(), f64::NAN).contains("positive number of hours, got NaN"));
        let none = Chameleon { m: 0, ..Chameleon::paper() }.loss_during_repair(1e9).unwrap_err();
        assert!(none.to_string().contains("m >= 1"), "{none}");
        assert!(Chameleon::paper().loss_during_repair(0.0).is_err());
    }
}
