//! The calls that change files: what HDFS's own clients do to write, rename and remove them. They are made only for objects that
//! users store ([`crate::objects`]).

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::namenode::CLIENT;
use crate::proto::Empty;
use crate::proto::changes::{
    AbandonBlock, AddBlock, AddedBlock, Complete, Create, Created, Delete, Done, MakeFolder, Mode, Rename,
    RenewLease, SetOwner, SetReplication,
};
use crate::proto::names::{DatanodeInfo, ExtendedBlock, FileStatus, LocatedBlock};
use crate::{HdfsError, NameNode};

/// How long the NameNode may take to hear from a DataNode that a finished block is there.
const HEARD_WITHIN: Duration = Duration::from_secs(30);

/// Pause between two tries.
const AGAIN: Duration = Duration::from_millis(100);

/// A new file, replicated also in folders with an erasure-coding policy. Names of new files are drawn, so one that is there already
/// is the same call made twice.
const NEW: u32 = 1 | 2 | 0x80;

/// A file that is being written: what its lease is held under.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    pub path: String,
    pub client: String,
    pub file_id: u64,
}

impl NameNode {
    /// Begins a file in a folder that exists.
    ///
    /// # Errors
    /// Those of calls.
    pub(crate) async fn create(
        &self,
        path: &str,
        client: &str,
        mode: Mode,
        replication: u32,
        block_bytes: u64,
    ) -> Result<Open, HdfsError> {
        let ask = Create {
            path: path.into(),
            mode,
            client: client.into(),
            flags: NEW,
            with_parents: false,
            replication,
            block_bytes,
        };
        let created: Created = self.call(CLIENT, "create", path, &ask).await?;
        let file_id = created.status.and_then(|status: FileStatus| status.file_id).unwrap_or(0);
        Ok(Open { path: path.into(), client: client.into(), file_id })
    }

    /// Adds a block to a file, if possible on the `favored` DataNodes (`ip:port`), and never on those `excluded`. `previous` is the block
    /// before it with its length.
    ///
    /// # Errors
    /// Those of calls.
    pub(crate) async fn add_block(
        &self,
        file: &Open,
        previous: Option<&ExtendedBlock>,
        favored: Vec<String>,
        excluded: Vec<DatanodeInfo>,
    ) -> Result<LocatedBlock, HdfsError> {
        let ask = AddBlock {
            path: file.path.clone(),
            client: file.client.clone(),
            previous: previous.cloned(),
            excluded,
            file_id: Some(file.file_id),
            favored,
        };
        let deadline = Instant::now() + HEARD_WITHIN;
        loop {
            let added: Result<AddedBlock, _> = self.call(CLIENT, "addBlock", &file.path, &ask).await;
            match added {
                // The DataNode has finished the block before, and has not told yet.
                Err(HdfsError::Refused { exception, .. })
                    if exception == "NotReplicatedYetException" && Instant::now() < deadline => {}
                added => return Ok(added?.block),
            }
            sleep(AGAIN).await;
        }
    }

    /// Gives up the last block of a file.
    ///
    /// # Errors
    /// Those of calls.
    pub(crate) async fn abandon_block(&self, file: &Open, block: ExtendedBlock) -> Result<(), HdfsError> {
        let ask = AbandonBlock {
            block,
            path: file.path.clone(),
            client: file.client.clone(),
            file_id: Some(file.file_id),
        };
        let _: Empty = self.call(CLIENT, "abandonBlock", &file.path, &ask).await?;
        Ok(())
    }

    /// Ends a file. `last` is its last block with its length.
    ///
    /// # Errors
    /// `Refused` if the NameNode does not hear of the last block within half a minute; those of calls.
    pub(crate) async fn complete(&self, file: &Open, last: Option<ExtendedBlock>) -> Result<(), HdfsError> {
        let ask = Complete {
            path: file.path.clone(),
            client: file.client.clone(),
            last,
            file_id: Some(file.file_id),
        };
        let deadline = Instant::now() + HEARD_WITHIN;
        loop {
            let answer: Done = self.call(CLIENT, "complete", &file.path, &ask).await?;
            if answer.done {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(HdfsError::Refused {
                    call: "complete",
                    exception: "the last block is not there".into(),
                    message: format!("{}: no DataNode reported it", file.path),
                });
            }
            sleep(AGAIN).await;
        }
    }

    /// Keeps the leases of all files that this client writes.
    ///
    /// # Errors
    /// Those of calls.
    pub(crate) async fn renew_lease(&self, client: &str) -> Result<(), HdfsError> {
        let ask = RenewLease { client: client.into() };
        let _: Empty = self.call(CLIENT, "renewLease", "renew a lease", &ask).await?;
        Ok(())
    }

    /// Gives a file another name, in one step. With `overwrite` it takes the place of a file of that name.
    ///
    /// # Errors
    /// `Refused` with FileAlreadyExistsException where there is one, and `overwrite` is not set; those of calls.
    pub(crate) async fn rename(&self, from: &str, to: &str, overwrite: bool) -> Result<(), HdfsError> {
        let ask = Rename { from: from.into(), to: to.into(), overwrite };
        let _: Empty = self.call(CLIENT, "rename2", to, &ask).await?;
        Ok(())
    }

    /// Sets how many replicas a file has.
    ///
    /// # Errors
    /// `NotFound`; those of calls.
    pub(crate) async fn set_replication(&self, path: &str, replication: u32) -> Result<(), HdfsError> {
        let ask = SetReplication { path: path.into(), replication };
        let answer: Done = self.call(CLIENT, "setReplication", path, &ask).await?;
        if answer.done { Ok(()) } else { Err(HdfsError::NotFound(path.into())) }
    }

    /// Gives a file to another user.
    ///
    /// # Errors
    /// `Denied` for all but superusers; those of calls.
    pub(crate) async fn set_owner(&self, path: &str, owner: &str, group: &str) -> Result<(), HdfsError> {
        let ask = SetOwner { path: path.into(), owner: Some(owner.into()), group: Some(group.into()) };
        let _: Empty = self.call(CLIENT, "setOwner", path, &ask).await?;
        Ok(())
    }

    /// Makes a folder and those above it; one that is there stays as it is.
    ///
    /// # Errors
    /// Those of calls.
    pub(crate) async fn make_folder(&self, path: &str) -> Result<(), HdfsError> {
        let ask = MakeFolder { path: path.into(), mode: Mode { bits: 0o755 }, with_parents: true };
        let _: Done = self.call(CLIENT, "mkdirs", path, &ask).await?;
        Ok(())
    }

    /// Removes a file, or a folder with nothing in it; whether it was there.
    ///
    /// # Errors
    /// `Refused` for a folder that is not empty; those of calls.
    pub(crate) async fn delete(&self, path: &str) -> Result<bool, HdfsError> {
        let ask = Delete { path: path.into(), recursive: false };
        let answer: Done = self.call(CLIENT, "delete", path, &ask).await?;
        Ok(answer.done)
    }
}
