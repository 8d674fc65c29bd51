//! The settings of a cluster.

use kintsu_wire::message::{ChangeSetting, Nothing, Settings};

use crate::{Client, ClientError};

impl Client {
    /// The settings of the cluster.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn settings(&self) -> Result<Settings, ClientError> {
        self.call(|mut c| async move { c.operation.settings(Nothing {}).await }).await
    }

    /// Changes one setting; returns all of them. Agents heed it from their next heartbeat on.
    ///
    /// # Errors
    /// `Invalid` for a value that does not fit the others; or whatever keeps the coordinator from answering.
    pub async fn change_setting(&self, change: ChangeSetting) -> Result<Settings, ClientError> {
        self.call(|mut c| async move { c.operation.change_setting(change).await }).await
    }
}
