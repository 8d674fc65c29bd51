//! What the kernel counted between two moments: bytes on links, and processor time.

use super::report::Sample;
use super::site::Site;
use crate::error::Result;
use crate::{Counters, Cpu};

/// The counters at the start.
pub struct Meter {
    counters: Counters,
    cpu: Cpu,
}

impl Meter {
    /// Begins to count.
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub async fn start(site: &Site) -> Result<Self> {
        Ok(Self { counters: site.lab.counters().await?, cpu: site.lab.cpu().await })
    }

    /// What was counted, for something that took so many seconds.
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
