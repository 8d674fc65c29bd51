//! The rates of links, as planners use them.

use std::time::Duration;

use kintsu_plan::Rates;
use kintsu_wire::message::{Done, KnownRates, Nothing};

use crate::{Client, ClientError};

/// The longest wait while rates are measured: seconds where processors have time, and as many for a measurement that is under way.
const MEASURING: Duration = Duration::from_secs(120);

impl Client {
    /// Sets the rates of the cluster's links; replaces earlier ones.
    ///
    /// # Errors
    /// `NotFound` for unknown nodes or racks; or whatever keeps the coordinator from answering.
    pub async fn set_rates(&self, rates: &Rates) -> Result<(), ClientError> {
        let Done {} = self
            .call(|mut c| {
                let rates = rates.clone();
                async move { c.operation.set_rates(rates).await }
            })
            .await?;
        Ok(())
    }

    /// Everything that the cluster knows about its links.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn known_rates(&self) -> Result<KnownRates, ClientError> {
        self.call(|mut c| async move { c.operation.known_rates(Nothing {}).await }).await
    }

    /// Has the links of all nodes measured by short probes; returns what the cluster knows then. Takes seconds.
    ///
    /// # Errors
    /// Fewer than two nodes can be measured; or whatever keeps the coordinator from answering.
    pub async fn measure_rates(&self) -> Result<KnownRates, ClientError> {
        self.call_within(MEASURING, |mut c| async move { c.operation.measure_rates(Nothing {}).await }).await
    }

    /// What users leave of the links whose capacity is known, as planners use it.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn rates(&self) -> Result<Rates, ClientError> {
        self.call(|mut c| async move { c.objects.rates(Nothing {}).await }).await
    }
}
