//! Which node a directory belongs to: a small file beside the blocks.

use std::io::Write;
use std::path::{Path, PathBuf};

use kintsu_dag::NodeId;
use serde::{Deserialize, Serialize};

use crate::AgentError;

const FILE: &str = "node.json";

#[derive(Serialize, Deserialize)]
struct Identity {
    node: NodeId,
}

/// The node that `dir` belongs to, if it was one's before.
///
/// # Errors
/// `Identity` when the record is there but makes no sense; `OtherNode` when it is not `asked`.
pub fn read(dir: &Path, asked: Option<NodeId>) -> Result<Option<NodeId>, AgentError> {
    let path = dir.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(asked),
        Err(e) => return Err(broken(path, &e)),
    };
    let found = serde_json::from_str::<Identity>(&text).map_err(|e| broken(path, &e))?.node;
    match asked {
        Some(asked) if asked != found => Err(AgentError::OtherNode { dir: dir.to_owned(), found, asked }),
        _ => Ok(Some(found)),
    }
}

/// Records that `dir` belongs to `node`, durably.
///
/// # Errors
/// `Identity` when it cannot be written.
pub fn write(dir: &Path, node: NodeId) -> Result<(), AgentError> {
    let path = dir.join(FILE);
    let aside = dir.join(format!("{FILE}.tmp"));
    let text = serde_json::to_string(&Identity { node }).map_err(|e| broken(path.clone(), &e))?;
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(&aside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&aside, &path)?;
        std::fs::File::open(dir)?.sync_all()
    };
    write().map_err(|e| broken(path.clone(), &e))
}

fn broken(path: PathBuf, detail: &dyn std::fmt::Display) -> AgentError {
    AgentError::Identity { path, detail: detail.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_node_and_refuses_another() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path(), None).unwrap(), None);
        assert_eq!(read(dir.path(), Some(NodeId(3))).unwrap(), Some(NodeId(3)));
        write(dir.path(), NodeId(7)).unwrap();
        assert_eq!(read(dir.path(), None).unwrap(), Some(NodeId(7)));
        assert!(matches!(read(dir.path(), Some(NodeId(3))), Err(AgentError::OtherNode { .. })));
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(matches!(read(dir.path(), None), Err(AgentError::Identity { .. })));
    }
}
