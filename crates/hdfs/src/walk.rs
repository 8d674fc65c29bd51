//! All files below a path, page by page.

use std::collections::BTreeMap;

use crate::objects::{ENCODED, Met, Records};
use crate::proto::names::FileStatus;
use crate::{Group, HdfsError, NameNode};

/// A folder, and the name up to which it was listed.
type Place = (String, Vec<u8>);

/// Goes over the files below a path with one call for a page of a folder.
pub struct Walk<'a> {
    namenode: &'a NameNode,
    root: String,
    folders: Vec<Place>,
    /// A folder that was gone over before the root.
    before: Option<&'static str>,
    /// Folders that may not be read, with the reason.
    pub skipped: Vec<String>,
}

impl<'a> Walk<'a> {
    /// Begins at a file or folder.
    pub fn from(namenode: &'a NameNode, root: &str) -> Self {
        let root = match root.trim_end_matches('/') {
            "" => "/".to_owned(),
            root => root.to_owned(),
        };
        let folders = vec![(root.clone(), Vec::new())];
        Self { namenode, root, folders, before: None, skipped: Vec::new() }
    }

    /// The same after another folder, which may be missing.
    fn after(mut self, folder: &'static str) -> Self {
        self.folders.push((folder.to_owned(), Vec::new()));
        Self { before: Some(folder), ..self }
    }

    /// The next files with their paths, with the places of their blocks but without tokens; `None` at the end. Folders
    /// that the user may not read go to `skipped`, unless it is the root.
    ///
    /// # Errors
    /// `NotFound` if the root is missing; those of calls.
    pub async fn next(&mut self) -> Result<Option<Vec<(String, FileStatus)>>, HdfsError> {
        let Some((folder, after)) = self.folders.pop() else { return Ok(None) };
        let first = folder == self.root;
        let page = match self.namenode.listing(&folder, after).await {
            Ok(page) => page,
            Err(error @ HdfsError::Denied { .. }) if !first => {
                self.skipped.push(error.to_string());
                return Ok(Some(Vec::new()));
            }
            // Removed since its parent was listed.
            Err(HdfsError::NotFound(_)) if !first => return Ok(Some(Vec::new())),
            Err(error) => return Err(error),
        };
        if let Some(last) = page.entries.last().filter(|_| page.remaining > 0) {
            self.folders.push((folder.clone(), last.name.clone()));
        }
        let mut files = Vec::new();
        for entry in page.entries {
            // A file that is listed itself has an empty name.
            let path = match entry.name.is_empty() {
                true => folder.clone(),
                false => format!("{}/{}", folder.trim_end_matches('/'), String::from_utf8_lossy(&entry.name)),
            };
            match entry.kind {
                1 if self.before == Some(&path) => {}
                1 => self.folders.push((path, Vec::new())),
                2 => files.push((path, entry)),
                _ => {}
            }
        }
        Ok(Some(files))
    }
}

/// The complete groups of all readable files below a path, and the stripes of the objects there, by their ids. `records` are those that were
/// read before: of objects that are unchanged nothing is read.
///
/// # Errors
/// `NotFound`, `Denied` for the path; those of calls.
pub(crate) async fn groups(
    namenode: &NameNode,
    root: &str,
    records: &mut Records,
) -> Result<BTreeMap<u64, Group>, HdfsError> {
    let (mut groups, mut objects) = (BTreeMap::new(), Met::default());
    let mut walk = Walk::from(namenode, root).after(ENCODED);
    while let Some(files) = walk.next().await? {
        for (path, mut file) in files {
            objects.file(&path, &mut file);
            let Some(blocks) = file.blocks.as_ref().filter(|_| file.policy.is_some()) else { continue };
            match Group::of(&path, &file, blocks) {
                Ok(found) => groups.extend(found.into_iter().map(|group| (group.id, group))),
                Err(error) => tracing::info!("{error}"),
            }
        }
    }
    // A stripe of which HDFS has no block has no id, and nothing can be done for it.
    let stripes = objects.stripes(namenode, records).await?.into_iter();
    let there = stripes.filter(|stripe| stripe.expected().any(|index| stripe.named(index)));
    groups.extend(there.map(|stripe| (stripe.id, stripe)));
    Ok(groups)
}
