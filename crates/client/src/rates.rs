//! What links carry, as planners take it.

use kintsu_plan::Rates;
use kintsu_wire::message::{Done, Nothing};

use crate::{Client, ClientError};

impl Client {
    /// Tells the cluster what its links carry, in place of what it was told before.
    ///
    /// # Errors
    /// `NotFound` for nodes or racks that are not there; or whatever keeps the coordinator from answering.
    pub async fn set_rates(&self, rates: &Rates) -> Result<(), ClientError> {
        let Done {} = self
            .call(|mut c| {
                let rates = rates.clone();
                async move { c.set_rates(rates).await }
            })
            .await?;
        Ok(())
    }

    /// What the cluster was told that its links carry.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn rates(&self) -> Result<Rates, ClientError> {
        self.call(|mut c| async move { c.rates(Nothing {}).await }).await
    }
}
