//! Calls about volumes that need no data.

use std::collections::BTreeSet;

use kintsu_dag::NodeId;
use kintsu_wire::message::{
    AbandonLogs, AbandonedLogs, CommitVolume, CommittedVolume, CreateVolume, LostLog, Nothing, ResizeVolume,
    SnapshotVolume, TakenSnapshot, VolumeInfo, VolumeList, VolumeName,
};

use crate::{Client, ClientError};

/// The name of the object that is a stripe of a volume (`docs/format.md`, "Volumes").
pub(crate) fn stripe_name(volume: u64, index: u64) -> String {
    format!(".volume/{volume:016x}/{index:016x}")
}

impl Client {
    /// Makes a volume, which reads as zeros and takes no room.
    ///
    /// # Errors
    /// `Exists`; `Invalid` for a size, a block or a code that does not fit.
    pub async fn create_volume(&self, volume: &CreateVolume) -> Result<VolumeInfo, ClientError> {
        self.call(|mut c| {
            let volume = volume.clone();
            async move { c.volumes.create_volume(volume).await }
        })
        .await
    }

    /// All volumes, in order of name.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn volumes(&self) -> Result<Vec<VolumeInfo>, ClientError> {
        let list: VolumeList =
            self.call(|mut c| async move { c.volumes.list_volumes(Nothing {}).await }).await?;
        Ok(list.volumes)
    }

    /// A volume as it is now.
    ///
    /// # Errors
    /// `NotFound`, or whatever keeps the coordinator from answering.
    pub async fn volume_info(&self, name: &str) -> Result<VolumeInfo, ClientError> {
        let request = VolumeName { name: name.to_owned() };
        self.call(|mut c| {
            let request = request.clone();
            async move { c.volumes.volume_info(request).await }
        })
        .await
    }

    /// Changes the size of a volume.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a size that does not fit; `Placement` if something is stored behind the new end.
    pub async fn resize_volume(&self, name: &str, size: u64) -> Result<VolumeInfo, ClientError> {
        let request = ResizeVolume { name: name.to_owned(), size };
        self.call(|mut c| {
            let request = request.clone();
            async move { c.volumes.resize_volume(request).await }
        })
        .await
    }

    /// Takes a snapshot of a volume: another one, to read, with all that was acknowledged until now. Its writer goes on. Space is taken
    /// where the volume is written to later.
    ///
    /// # Errors
    /// `NotFound`; `Exists`; `Invalid` for a snapshot of a snapshot; `Placement` if no node with some log answers.
    pub async fn snapshot_volume(&self, name: &str, snapshot: &str) -> Result<TakenSnapshot, ClientError> {
        let request = SnapshotVolume { name: name.to_owned(), snapshot: snapshot.to_owned() };
        self.call(|mut c| {
            let request = request.clone();
            async move { c.volumes.snapshot_volume(request).await }
        })
        .await
    }

    /// Removes a volume with all that is in it, or a snapshot. Snapshots of a volume stay as they are.
    ///
    /// # Errors
    /// `NotFound`; `Placement` while somebody writes to it.
    pub async fn remove_volume(&self, name: &str) -> Result<VolumeInfo, ClientError> {
        let request = VolumeName { name: name.to_owned() };
        self.call(|mut c| {
            let request = request.clone();
            async move { c.volumes.remove_volume(request).await }
        })
        .await
    }

    /// Brings what is logged for a volume into its blocks and parities now, by a scheme of
    /// [`kintsu_plan::update::Scheme`]; `None`: by that of the volume.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for an unknown scheme; whatever keeps the coordinator from answering.
    pub async fn commit_volume(
        &self,
        name: &str,
        scheme: Option<String>,
    ) -> Result<CommittedVolume, ClientError> {
        let request = CommitVolume { name: name.to_owned(), scheme, blocks: None };
        self.call(|mut c| {
            let request = request.clone();
            async move { c.volumes.commit_volume(request).await }
        })
        .await
    }

    /// The logs of a volume that only nodes have which are gone.
    ///
    /// # Errors
    /// `NotFound`; whatever keeps the coordinator from answering.
    pub async fn lost_logs(&self, name: &str) -> Result<Vec<LostLog>, ClientError> {
        self.call_abandon(AbandonLogs { name: name.to_owned(), abandon: false, nodes: None }).await
    }

    /// Goes on without those of the lost logs that no other nodes had than these, and returns them: their blocks are then as the last
    /// commit left them.
    ///
    /// # Errors
    /// `NotFound`; `Placement` if too few nodes answer, or if another log of such a stripe is lost too; whatever keeps the coordinator
    /// from answering.
    pub async fn abandon_logs(
        &self,
        name: &str,
        nodes: BTreeSet<NodeId>,
    ) -> Result<Vec<LostLog>, ClientError> {
        self.call_abandon(AbandonLogs { name: name.to_owned(), abandon: true, nodes: Some(nodes) }).await
    }

    async fn call_abandon(&self, request: AbandonLogs) -> Result<Vec<LostLog>, ClientError> {
        let answer = self.call(|mut c| {
            let request = request.clone();
            async move { c.volumes.abandon_logs(request).await }
        });
        let AbandonedLogs { logs } = answer.await?;
        Ok(logs)
    }
}
