//! The rates of links, as planners use them.

use kintsu_plan::Rates;
use kintsu_wire::message::{Done, Nothing};

use crate::{Client, ClientError};

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

    /// The rates of links that the cluster was told.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn rates(&self) -> Result<Rates, ClientError> {
        self.call(|mut c| async move { c.objects.rates(Nothing {}).await }).await
    }
}
