//! The identity of a folder: a small file beside the blocks that names cluster, node and the folder itself.
//!
//! The folder's id is created at the first start and never changes. Folders are distinguished by this id and not
//! by their paths: equal paths on all hosts are normal, and the empty folder under an unmounted disk has the path
//! of the disk.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use kintsu_dag::NodeId;
use kintsu_wire::{ClusterId, FolderId, Seen};
use serde::{Deserialize, Serialize};

use crate::AgentError;

/// The file's name.
pub const FILE: &str = "node.json";

/// The identity of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The folder's own id.
    pub folder: FolderId,
    /// The node that it belongs to; `None` before its first registration.
    pub node: Option<NodeId>,
    /// The cluster that it belongs to; `None` before its first registration.
    pub cluster: Option<ClusterId>,
    /// The last point of the metadata's history that it was told.
    pub seen: Option<Seen>,
}

/// The identity of an open folder, as its file says.
#[derive(Debug)]
pub struct Recorded {
    now: Mutex<Identity>,
    /// For who writes the file.
    writing: Mutex<()>,
}

impl Recorded {
    /// What the file says now.
    pub fn new(identity: Identity) -> Self {
        Self { now: Mutex::new(identity), writing: Mutex::default() }
    }

    /// The identity; never waits for the disk, since calls ask for it on async threads.
    pub fn now(&self) -> Identity {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it once `write` has made it durable; one change after the other. Blocking.
    ///
    /// # Errors
    /// Those of `write`; nothing has changed then.
    pub fn change(
        &self,
        change: impl FnOnce(Identity) -> Identity,
        write: impl FnOnce(&Identity) -> Result<(), AgentError>,
    ) -> Result<(), AgentError> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.now();
        let new = change(old);
        if new != old {
            write(&new)?;
            *self.now.lock().unwrap_or_else(PoisonError::into_inner) = new;
        }
        Ok(())
    }
}

/// The file's content, also as written by versions that recorded only the node.
#[derive(Deserialize)]
struct Record {
    node: Option<NodeId>,
    folder: Option<FolderId>,
    cluster: Option<ClusterId>,
    seen: Option<Seen>,
}

/// How a folder is to be opened.
#[derive(Debug, Clone, Copy)]
pub struct FolderClaim {
    /// The node that it should belong to.
    pub node: Option<NodeId>,
    /// How many blocks are in it.
    pub blocks: usize,
    /// Whether it replaces the node's former folder.
    pub replace: bool,
}

/// The identity of the folder `dir`; a new folder gets one, durably.
///
/// # Errors
/// `Identity` when the record is unreadable or cannot be written; `OtherNode` when it names another node than the
/// claim; `Unnamed` when there are blocks but no record.
pub fn open(dir: &Path, claim: FolderClaim) -> Result<Identity, AgentError> {
    let found = read(dir)?;
    if found.is_none() && claim.blocks > 0 && !(claim.replace && claim.node.is_some()) {
        return Err(AgentError::Unnamed { dir: dir.to_owned(), blocks: claim.blocks });
    }
    let known = found.as_ref().and_then(|record| record.node);
    if let (Some(found), Some(asked)) = (known, claim.node)
        && found != asked
    {
        return Err(AgentError::OtherNode { dir: dir.to_owned(), found, asked });
    }
    if let Some(Record { node, folder: Some(folder), cluster, seen }) = found {
        return Ok(Identity { folder, node: node.or(claim.node), cluster, seen });
    }
    let folder = FolderId::random()?;
    let identity = Identity { folder, node: known, cluster: None, seen: None };
    write(dir, &identity)?;
    Ok(Identity { node: known.or(claim.node), ..identity })
}

/// The folder's id, read from its file now; `None` without the file.
///
/// # Errors
/// `Identity` when the file cannot be read.
pub fn folder(dir: &Path) -> Result<Option<FolderId>, AgentError> {
    Ok(read(dir)?.and_then(|record| record.folder))
}

/// The cluster that a folder belongs to, from its file; `None` without the file.
///
/// # Errors
/// `Identity` when the file cannot be read.
pub fn cluster_of(dir: &Path) -> Result<Option<ClusterId>, AgentError> {
    Ok(read(dir)?.and_then(|record| record.cluster))
}

fn read(dir: &Path) -> Result<Option<Record>, AgentError> {
    let path = dir.join(FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|e| broken(&path, &e)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(broken(&path, &e)),
    }
}

/// Records the identity, durably.
///
/// # Errors
/// `Identity` when it cannot be written.
pub fn write(dir: &Path, identity: &Identity) -> Result<(), AgentError> {
    let path = dir.join(FILE);
    let text = serde_json::to_string(identity).map_err(|e| broken(&path, &e))?;
    replace(dir, FILE, text.as_bytes()).map_err(|e| broken(&path, &e))
}

/// Replaces a file of `dir` atomically; the new content is durable on return.
///
/// # Errors
/// Errors of the file system.
pub fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let aside = dir.join(format!("{name}.tmp"));
    let mut file = File::create(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&aside, dir.join(name))?;
    File::open(dir)?.sync_all()
}

fn broken(path: &Path, detail: &dyn std::fmt::Display) -> AgentError {
    AgentError::Identity { path: PathBuf::from(path), detail: detail.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(node: Option<u32>) -> FolderClaim {
        FolderClaim { node: node.map(NodeId), blocks: 0, replace: false }
    }

    #[test]
    fn a_folder_keeps_its_id_and_its_node_and_refuses_another() {
        let dir = tempfile::tempdir().unwrap();
        let new = open(dir.path(), claim(None)).unwrap();
        assert_eq!((new.node, new.cluster, new.seen), (None, None, None));
        assert_eq!(open(dir.path(), claim(Some(3))).unwrap(), Identity { node: Some(NodeId(3)), ..new });
        let seen = Some(Seen { boot: 1, nonce: 2, history: 3 });
        let named = Identity { node: Some(NodeId(7)), cluster: Some(ClusterId([1; 16])), seen, ..new };
        write(dir.path(), &named).unwrap();
        assert_eq!(open(dir.path(), claim(None)).unwrap(), named);
        assert_eq!(folder(dir.path()).unwrap(), Some(new.folder));
        assert!(matches!(open(dir.path(), claim(Some(3))), Err(AgentError::OtherNode { .. })));
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(matches!(open(dir.path(), claim(None)), Err(AgentError::Identity { .. })));
        let other = tempfile::tempdir().unwrap();
        assert_ne!(open(other.path(), claim(None)).unwrap().folder, new.folder);
    }

    #[test]
    fn nobody_waits_for_the_disk_to_know_the_identity() {
        let old = Identity { folder: FolderId::random().unwrap(), node: None, cluster: None, seen: None };
        let new = Identity { node: Some(NodeId(7)), ..old };
        let recorded = Recorded::new(old);
        let write = |written: &Identity| {
            assert_eq!(*written, new);
            assert!(recorded.now.try_lock().is_ok_and(|now| *now == old), "until it is durable");
            Ok(())
        };
        recorded.change(|_| new, write).unwrap();
        assert_eq!(recorded.now(), new);
        let full = AgentError::Unnamed { dir: PathBuf::new(), blocks: 1 };
        assert!(recorded.change(|_| old, |_| Err(full)).is_err());
        assert_eq!(recorded.now(), new);
        recorded.change(|same| same, |_| panic!("nothing to write")).unwrap();
    }

    #[test]
    fn a_folder_of_an_older_version_keeps_its_node_and_gets_an_id() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), r#"{"node":5}"#).unwrap();
        let first = open(dir.path(), FolderClaim { blocks: 9, ..claim(None) }).unwrap();
        assert_eq!((first.node, first.cluster), (Some(NodeId(5)), None));
        assert_eq!(open(dir.path(), claim(Some(5))).unwrap(), first);
    }

    #[test]
    fn blocks_without_a_record_are_not_a_new_node() {
        let dir = tempfile::tempdir().unwrap();
        let lost = FolderClaim { blocks: 12, ..claim(None) };
        let error = open(dir.path(), lost).unwrap_err();
        assert!(
            error.to_string().contains("12 blocks") && error.to_string().contains("--replace"),
            "{error}"
        );
        assert!(open(dir.path(), FolderClaim { replace: true, ..lost }).is_err(), "which node?");
        assert!(!dir.path().join(FILE).exists());
        let told = FolderClaim { replace: true, node: Some(NodeId(4)), ..lost };
        assert_eq!(open(dir.path(), told).unwrap().node, Some(NodeId(4)));
    }
}
