//! Options that describe a cluster for a model: its size, its failures and its repair speed.

use std::time::Duration;

use clap::Args;
use kintsu_analysis::{Environment, HOURS_PER_YEAR, mttf_of_afr_h};

use crate::units::{Bytes, parse_duration};

/// How nodes and racks fail and how fast they are repaired.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Failures and repair")]
pub struct Failures {
    /// Mean time to failure of a node, in years.
    #[arg(long, value_name = "YEARS", default_value_t = 10.0)]
    pub mttf: f64,
    /// Nodes that fail within a year, in percent, instead of --mttf.
    #[arg(long, value_name = "PERCENT", conflicts_with = "mttf")]
    pub afr: Option<f64>,
    /// Racks (switches) that fail within a year, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 2.78)]
    pub rack_afr: f64,
    /// How long a failed rack is down.
    #[arg(long, default_value = "12h", value_name = "DURATION", value_parser = parse_duration)]
    pub rack_outage: Duration,
    /// Bandwidth of each node for repair, in bytes a second.
    #[arg(long, default_value = "125MB")]
    pub bandwidth: Bytes,
    /// Bytes stored on a node.
    #[arg(long, default_value = "16TB")]
    pub capacity: Bytes,
    /// Time from a failure to the start of its repair.
    #[arg(long, default_value = "15m", value_name = "DURATION", value_parser = parse_duration)]
    pub detection: Duration,
    /// Size of a block.
    #[arg(long, default_value = "64MiB")]
    pub block: Bytes,
}

impl Failures {
    /// A cluster of this many nodes.
    ///
    /// # Errors
    /// When a percentage is not between 0 and 100.
    pub fn environment(&self, nodes: usize) -> anyhow::Result<Environment> {
        Ok(Environment {
            nodes,
            node_mttf_h: self.afr.map_or(Ok(self.mttf * HOURS_PER_YEAR), |afr| mttf_h("--afr", afr))?,
            rack_mttf_h: mttf_h("--rack-afr", self.rack_afr)?,
            rack_outage_h: hours(self.rack_outage),
            node_bytes: self.capacity.0 as f64,
            bandwidth: self.bandwidth.0 as f64,
            detection_h: hours(self.detection),
            block_bytes: self.block.0 as f64,
        })
    }
}

fn mttf_h(option: &str, percent: f64) -> anyhow::Result<f64> {
    anyhow::ensure!(
        percent > 0.0 && percent < 100.0,
        "{option}: expected a percentage between 0 and 100, got {percent}"
    );
    Ok(mttf_of_afr_h(percent / 100.0))
}

fn hours(duration: Duration) -> f64 {
    duration.as_secs_f64() / 3600.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use kintsu_analysis::paper_rack_mttf_h;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        failures: Failures,
    }

    fn parsed(line: &[&str]) -> anyhow::Result<Environment> {
        Line::try_parse_from([&["x"], line].concat())?.failures.environment(20)
    }

    #[test]
    fn the_defaults_are_those_of_the_analysis() {
        let (ours, theirs) = (parsed(&[]).unwrap(), Environment::new(20));
        assert!((ours.rack_mttf_h / paper_rack_mttf_h() - 1.0).abs() < 1e-12);
        assert_eq!(Environment { rack_mttf_h: theirs.rack_mttf_h, ..ours }, theirs);
    }

    #[test]
    fn a_failure_rate_takes_the_place_of_a_lifetime() {
        let afr = parsed(&["--afr", "4"]).unwrap();
        assert!((afr.node_mttf_h / HOURS_PER_YEAR - 24.496_598).abs() < 1e-6);
        assert!(parsed(&["--afr", "4", "--mttf", "10"]).is_err());
        let error = parsed(&["--afr", "100"]).unwrap_err().to_string();
        assert!(error.contains("--afr: expected a percentage between 0 and 100, got 100"), "{error}");
    }
}
