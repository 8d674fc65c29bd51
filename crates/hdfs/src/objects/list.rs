//! Which objects there are, how each is, what is left over; and removing.

use std::collections::BTreeSet;

use super::met::source_of;
use super::object::{
    ENCODED, Found, Object, RECORD, by_inode, checked, columns, find, is_encoded, is_written, record_folder,
    record_in, record_of,
};
use super::put::remove_all;
use super::record::Known;
use super::spread::together;
use crate::status::name;
use crate::walk::Walk;
use crate::{Group, HdfsError, NameNode};

/// An object, by its record.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Listed {
    /// Its folder, or its file.
    pub path: String,
    /// Its code.
    pub code: String,
    /// Its length.
    pub bytes: u64,
    /// Its stripes.
    pub stripes: usize,
    /// Whether it is a file that was encoded where it is.
    pub encoded: bool,
}

/// The objects below a path.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Listing {
    /// In the order of their paths.
    pub objects: Vec<Listed>,
    /// What could not be read, with the reason.
    pub skipped: Vec<String>,
}

/// How an object is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ObjectStatus {
    /// By its record.
    #[serde(flatten)]
    pub listed: Listed,
    /// Largest block.
    pub block_bytes: u64,
    /// Cell.
    pub cell_bytes: u32,
    /// Replicas of the data blocks of an encoded file; more than one until its parity is proved.
    pub replication: Option<u32>,
    /// Blocks that no DataNode has, or only with bytes known to be bad: stripe and index.
    pub missing: Vec<(u64, u8)>,
    /// Stripes with two blocks on one DataNode: HDFS moved or kept them so.
    pub crowded: Vec<u64>,
    /// How many more blocks of a stripe may be lost, at least; `None`: bytes are lost.
    pub spare: Option<usize>,
    /// The DataNodes with blocks of each stripe, by index; empty for those without.
    pub places: Vec<Vec<String>>,
}

/// The objects below `root`. Those in files that were encoded are found wherever they are, if `root` is `/`.
///
/// # Errors
/// `NotFound`, `Denied` for the root; those of calls.
pub async fn list(namenode: &NameNode, root: &str) -> Result<Listing, HdfsError> {
    let (found, skipped) = below(namenode, root).await?;
    let mut listing = Listing { objects: Vec::new(), skipped };
    for folder in found {
        match record_in(namenode, &folder).await {
            Ok(Some(known)) => {
                let path = match &known.record.source {
                    Some(source) => super::object::name_of(namenode, source).await?,
                    None => folder,
                };
                listing.objects.push(listed(path, &known)?);
            }
            Ok(None) => {}
            Err(error) if error.no_namenode() => return Err(error),
            Err(error) => listing.skipped.push(error.to_string()),
        }
    }
    let root = root.trim_end_matches('/');
    let below = |path: &str| path == root || path.starts_with(&format!("{root}/"));
    listing.objects.retain(|object| below(&object.path));
    listing.objects.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(listing)
}

/// The folders with records of the objects at and below a path, those of encoded files too; and what could not be listed.
pub(super) async fn below(namenode: &NameNode, root: &str) -> Result<(Vec<String>, Vec<String>), HdfsError> {
    let (mut found, mut skipped) = folders(namenode, root).await?;
    if !root.trim_end_matches('/').is_empty() {
        match folders(namenode, ENCODED).await {
            Err(HdfsError::NotFound(_)) => {}
            encoded => {
                let (encoded, more) = encoded?;
                found.extend(encoded);
                skipped.extend(more);
            }
        }
    }
    Ok((found, skipped))
}

/// The folders below a path that have a record.
///
/// # Errors
/// `NotFound`, `Denied` for the path; those of calls.
async fn folders(namenode: &NameNode, root: &str) -> Result<(Vec<String>, Vec<String>), HdfsError> {
    let (mut folders, mut walk) = (Vec::new(), Walk::from(namenode, root));
    while let Some(files) = walk.next().await? {
        folders.extend(files.iter().filter_map(|(path, _)| record_folder(path)).map(str::to_owned));
    }
    folders.sort();
    Ok((folders, walk.skipped))
}

fn listed(path: String, known: &Known) -> Result<Listed, HdfsError> {
    Ok(Listed {
        path,
        code: known.code.name().to_owned(),
        bytes: known.record.bytes,
        stripes: known.stripes()?.len(),
        encoded: is_encoded(known),
    })
}

/// How the object at a path is.
///
/// # Errors
/// `NotFound`, `Unsupported` for what is no object, `Parity` for a file that was changed since it was encoded; those of calls.
pub async fn object_status(namenode: &NameNode, path: &str) -> Result<ObjectStatus, HdfsError> {
    let path = checked(path)?;
    let Object { known, groups, .. } = Object::at(namenode, &path).await?;
    let replication = match &known.record.source {
        Some(source) => namenode.file(&by_inode(source.file_id)).await?.and_then(|file| file.replication),
        None => None,
    };
    let numbers = |group: &Group| -> Vec<(u64, u8)> {
        group.missing().into_iter().map(|index| (group.number() as u64, index.0)).collect()
    };
    let places = |group: &Group| {
        let of = |i: usize| group.holders.get(&kintsu_dag::BlockIndex(i as u8));
        let names = |i| of(i).into_iter().flatten().map(|holder| name(&holder.datanode)).collect::<Vec<_>>();
        (0..known.code.n()).map(|i| names(i).join(" ")).collect()
    };
    let full = groups.iter().map(Group::spare).min().unwrap_or(Some(known.code.distance() - 1));
    Ok(ObjectStatus {
        block_bytes: known.record.block_bytes,
        cell_bytes: known.record.cell_bytes,
        replication,
        missing: groups.iter().flat_map(numbers).collect(),
        crowded: groups
            .iter()
            .filter(|group| together(group).is_some())
            .map(|group| group.number() as u64)
            .collect(),
        spare: full,
        places: groups.iter().map(places).collect(),
        listed: listed(path, &known)?,
    })
}

/// What a removal did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Removed {
    /// The object that is gone.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Files that are left, with the reason.
    pub left: Vec<String>,
}

/// Removes an object: first its record (or the file that was encoded), then its files. What the record does not name stays.
///
/// # Errors
/// `NotFound`, `Unsupported` for what is no object; `Denied`; those of calls.
pub async fn remove(namenode: &NameNode, path: &str) -> Result<Removed, HdfsError> {
    let path = checked(path)?;
    let (folder, known) = match find(namenode, &path).await? {
        Found::Folder(Some(known)) => (path.clone(), known),
        Found::File(_, Some(encoded)) => encoded,
        Found::Folder(None) | Found::File(_, None) => {
            return Err(HdfsError::Unsupported {
                what: path,
                expected: "an object".into(),
                got: "something that Kintsu did not store, and does not remove".into(),
            });
        }
    };
    if let Some(source) = &known.record.source {
        // Another file may have its name by now.
        match namenode.delete(&by_inode(source.file_id)).await {
            Ok(_) | Err(HdfsError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    namenode.delete(&record_of(&folder)).await?;
    let mut left = remove_all(namenode, &columns(&folder, &known)).await;
    // Others may have put files there: HDFS refuses to remove a folder that is not empty.
    if let Err(error) = namenode.delete(&folder).await {
        left.push(format!("{folder}: {error}"));
    }
    Ok(Removed { path, bytes: known.record.bytes, left })
}

/// Files of writes that were killed: of the form of Kintsu's own, and named by no record in their folder. Also the parity of
/// encoded files that are gone; one that only a snapshot has is. With `remove` they are removed; do that only while nobody writes there.
///
/// # Errors
/// `NotFound`, `Denied` for the root; those of calls.
pub async fn leftovers(namenode: &NameNode, root: &str, remove: bool) -> Result<Vec<String>, HdfsError> {
    let (mut walk, mut candidates) = (Walk::from(namenode, root), Vec::new());
    while let Some(files) = walk.next().await? {
        candidates.extend(files.into_iter().map(|(path, _)| path).filter(|path| is_ours(path)));
    }
    let mut left = Vec::new();
    let mut last: Option<(String, BTreeSet<String>)> = None;
    for path in candidates {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        if last.as_ref().is_none_or(|(known, _)| *known != folder) {
            // A record that cannot be read names nobody knows what: then nothing there is left over.
            let named = match record_in(namenode, &folder).await? {
                Some(known) if gone(namenode, &known).await? => BTreeSet::new(),
                Some(known) => columns(&folder, &known).into_iter().chain([record_of(&folder)]).collect(),
                None => BTreeSet::new(),
            };
            last = Some((folder, named));
        }
        if last.as_ref().is_some_and(|(_, named)| !named.contains(&path)) {
            left.push(path);
        }
    }
    if remove {
        // The records last: with them what is left would still be found.
        left.sort_by_key(|path| path.ends_with(&format!("/{RECORD}")));
        let stay = remove_all(namenode, &left).await;
        if let Some(first) = stay.first() {
            return Err(HdfsError::NotHandedOver { what: "leftovers".into(), message: first.clone() });
        }
    }
    Ok(left)
}

/// Whether a file may be left over by its path: it is of a write of Kintsu's, or the record of an encoded file.
fn is_ours(path: &str) -> bool {
    is_written(path) || record_folder(path).and_then(source_of).is_some()
}

/// Whether it is the parity of a file that is gone.
async fn gone(namenode: &NameNode, known: &Known) -> Result<bool, HdfsError> {
    let Some(source) = &known.record.source else { return Ok(false) };
    match namenode.file(&by_inode(source.file_id)).await {
        Ok(status) => Ok(status.is_none()),
        Err(HdfsError::NotFound(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::object::column;

    #[test]
    fn only_files_that_kintsu_itself_names_so_are_left_over() {
        let version = format!("{:016x}", 0xfeed_u64);
        for path in [
            column("/a", &version, 0),
            column("/.kintsu/7", &version, 15),
            format!("/a/.kintsu-{version}-record"),
        ] {
            assert!(is_ours(&path), "{path}");
        }
        assert!(is_ours("/.kintsu/16387/.kintsu"));
        let others = [
            "/a/.kintsu-notes",
            "/a/.kintsu-backup-1",
            "/a/.kintsu-000000000000feed-1.bak",
            "/a/.kintsu-000000000000feed-01",
            "/a/.kintsu-000000000000feed-300",
            "/a/.kintsu-000000000000feed",
            "/a/.kintsu-000000000000FEED-1",
            "/a/x.kintsu-000000000000feed-1",
            "/a/.kintsu",
            "/.kintsu-old/7/.kintsu",
            "/.kintsu2/7/.kintsu",
            "/.kintsu/mine/.kintsu",
        ];
        for path in others {
            assert!(!is_ours(path), "{path}");
        }
    }
}
