//! Reads the kernel's counters at two moments: bytes on links, and processor time.

use std::time::Instant;

use kintsu_lab::{Counters, Cpu, Traffic};

use super::report::Sample;
use super::site::Site;
use crate::error::Result;

/// The counters at the start.
pub struct Meter {
    counters: Counters,
    cpu: Cpu,
    started: Instant,
}

/// What links carried.
pub struct Carried {
    /// The link of each node, by `NodeId`.
    pub nodes: Vec<Traffic>,
    /// In how many seconds.
    pub seconds: f64,
}

impl Meter {
    /// Starts counting.
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub async fn start(site: &Site) -> Result<Self> {
        let (counters, cpu) = (site.lab.counters().await?, site.lab.cpu().await);
        Ok(Self { counters, cpu, started: Instant::now() })
    }

    /// The counts since the start, for work that took `seconds`.
    ///
    /// # Errors
    /// As [`Meter::start`].
    pub async fn stop(self, site: &Site, seconds: f64) -> Result<Sample> {
        Ok(self.stop_with_links(site, seconds).await?.0)
    }

    /// The same, with what each link carried meanwhile.
    ///
    /// # Errors
    /// As [`Meter::start`].
    pub async fn stop_with_links(self, site: &Site, seconds: f64) -> Result<(Sample, Carried)> {
        let cpu = site.lab.cpu().await.since(&self.cpu);
        let counters = site.lab.counters().await?.since(&self.counters);
        let passed = self.started.elapsed().as_secs_f64();
        let sample = Sample {
            seconds,
            sent_bytes: counters.sent_bytes(),
            cross_rack_bytes: counters.cross_rack_bytes(),
            cpu_seconds: cpu.lab(),
            load: cpu.load(),
            stolen: cpu.stolen(),
            ..Sample::default()
        };
        Ok((sample, Carried { nodes: counters.nodes, seconds: passed }))
    }
}
