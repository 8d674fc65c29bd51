//! The folder of a cluster as it was, to start again from the same state.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Where the copy is kept, inside the cluster's own folder.
const FOLDER: &str = "before";

/// Files in the folders of nodes from this size on are blocks. They never change, so a link is a copy of them.
const BLOCK_BYTES: u64 = 64 << 10;

/// A copy of the coordinator's and all nodes' folders; removed when dropped.
pub struct Copy {
    cluster: PathBuf,
}

impl Copy {
    /// Copies a cluster that does not run.
    pub fn of(cluster: &Path) -> anyhow::Result<Self> {
        let copy = Self { cluster: cluster.to_owned() };
        copy.each(|from, to| tree(from, to, from.file_name().is_some_and(|name| name != "coordinator")))?;
        Ok(copy)
    }

    /// Puts everything back as it was. The cluster must not run.
    pub fn restore(&self) -> anyhow::Result<()> {
        self.each(|folder, copy| {
            std::fs::remove_dir_all(folder)?;
            tree(copy, folder, folder.file_name().is_some_and(|name| name != "coordinator"))
        })
    }

    /// Calls `act(folder, its copy)` for the folders of the coordinator and of each node.
    fn each(&self, act: impl Fn(&Path, &Path) -> std::io::Result<()>) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(&self.cluster)? {
            let folder = entry?.path();
            let Some(name) = folder.file_name().filter(|name| folder.is_dir() && *name != FOLDER) else {
                continue;
            };
            act(&folder, &self.cluster.join(FOLDER).join(name))
                .with_context(|| format!("cannot copy {}", folder.display()))?;
        }
        Ok(())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let folder = self.cluster.join(FOLDER);
        if let Err(error) = std::fs::remove_dir_all(&folder) {
            eprintln!("kintsu: {} is left behind: {error}", folder.display());
        }
    }
}

/// Copies a folder; large files as links if `link`.
fn tree(from: &Path, to: &Path, link: bool) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, copy, about) = (entry.path(), to.join(entry.file_name()), entry.metadata()?);
        if about.is_dir() {
            tree(&path, &copy, link)?;
        } else if !(link && about.len() >= BLOCK_BYTES && std::fs::hard_link(&path, &copy).is_ok()) {
            std::fs::copy(&path, &copy)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_put_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("node-0/blocks")).unwrap();
        std::fs::create_dir_all(at("coordinator")).unwrap();
        let block = vec![7; 100_000];
        std::fs::write(at("node-0/blocks/b"), &block).unwrap();
        std::fs::write(at("coordinator/metadata"), &block).unwrap();
        std::fs::write(at("other"), "stays").unwrap();
        let before = Copy::of(dir.path()).unwrap();
        std::fs::remove_file(at("node-0/blocks/b")).unwrap();
        std::fs::write(at("node-0/new"), "x").unwrap();
        // Metadata change in place.
        std::fs::write(at("coordinator/metadata"), "changed").unwrap();
        before.restore().unwrap();
        assert_eq!(std::fs::read(at("node-0/blocks/b")).unwrap(), block);
        assert_eq!(std::fs::read(at("coordinator/metadata")).unwrap(), block);
        assert!(!at("node-0/new").exists() && at("other").exists());
        drop(before);
        assert!(!at("before").exists());
    }
}
