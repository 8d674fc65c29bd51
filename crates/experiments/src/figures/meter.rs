//! Reads the kernel's counters at two moments: bytes on links, and processor time.

use kintsu_lab::{Counters, Cpu};

use super::report::Sample;
use super::site::Site;
use crate::error::Result;

/// The counters at the start.
pub struct Meter {
    counters: Counters,
    cpu: Cpu,
}

impl Meter {
    /// Starts counting.
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub async fn start(site: &Site) -> Result<Self> {
        Ok(Self { counters: site.lab.counters().await?, cpu: site.lab.cpu().await })
    }

    /// The counts since the start, for work that took `seconds`.
    ///
    /// # Errors
    /// As [`Meter::start`].
    pub async fn stop(self, site: &Site, seconds: f64) -> Result<Sample> {
        let cpu = site.lab.cpu().await.since(&self.cpu);
        let counters = site.lab.counters().await?.since(&self.counters);
        Ok(Sample {
            seconds,
            sent_bytes: counters.sent_bytes(),
            cross_rack_bytes: counters.cross_rack_bytes(),
            cpu_seconds: cpu.lab(),
            load: cpu.load(),
            stolen: cpu.stolen(),
            ..Sample::default()
        })
    }
}
