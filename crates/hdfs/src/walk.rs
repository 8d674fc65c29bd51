//! All files below a path, page by page.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::group::INDEX_BITS;
use crate::objects::{ENCODED, Met, Records};
use crate::proto::names::{DatanodeInfo, FileStatus, LocatedBlocks};
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

/// Why scans leave files alone: a policy whose code is not known. Each reason is told once, whatever the number of its files; a group that cannot be is a reason of its own.
/// So is each object that cannot be read, or is an encoded file that was changed.
#[derive(Default)]
pub(crate) struct LeftAlone {
    known: BTreeSet<String>,
    /// The folders of these objects.
    objects: BTreeSet<String>,
    new: Vec<String>,
}

impl LeftAlone {
    /// The file at this path is left alone.
    fn note(&mut self, path: &str, why: &HdfsError) {
        let why = why.to_string();
        if self.known.insert(why.strip_prefix(path).unwrap_or(&why).to_owned()) {
            self.new.push(format!("{why}; files like that are left alone"));
        }
    }

    /// The object with the record in this folder is left alone, or some of it; or nothing is wrong with it any more.
    pub(crate) fn object(&mut self, folder: &str, why: Option<&HdfsError>) {
        match why {
            None => _ = self.objects.remove(folder),
            Some(why) => {
                if self.objects.insert(folder.to_owned()) {
                    self.new.push(why.to_string());
                }
            }
        }
    }

    /// There are only these objects.
    pub(crate) fn only_objects(&mut self, folders: &BTreeSet<&str>) {
        self.objects.retain(|folder| folders.contains(folder.as_str()));
    }

    /// What was not told yet.
    pub(crate) fn untold(&mut self) -> Vec<String> {
        std::mem::take(&mut self.new)
    }
}

/// DataNodes by their ids, as they were first listed in a scan. What was listed of blocks shares them: else they would take most of the
/// memory.
#[derive(Default)]
struct Nodes(BTreeMap<String, Arc<DatanodeInfo>>);

impl Nodes {
    fn share(&mut self, group: &mut Group) {
        for holder in group.holders.values_mut().flatten() {
            match self.0.get(&holder.datanode.id.uuid) {
                Some(known) => holder.datanode = known.clone(),
                None => _ = self.0.insert(holder.datanode.id.uuid.clone(), holder.datanode.clone()),
            }
        }
    }
}

/// What a scan of the namespace found.
#[derive(Default)]
pub(crate) struct Scan {
    /// The complete groups of all readable files below the path, and the stripes of the objects there, by their ids.
    pub groups: BTreeMap<u64, Group>,
    /// Those of the blocks that were asked for, by their ids in HDFS, that no file has which was met: whatever its policy is, and whether its
    /// groups can be judged. A file that was renamed meanwhile may not have been met.
    pub unmet: BTreeSet<u64>,
    /// Whether it went over all folders of the NameNode.
    pub all: bool,
}

/// Goes over all files below a path. `records` are those that were read before: of objects that are unchanged nothing is read. Files that
/// cannot be judged go to `left_alone`. `asked` are blocks, by their ids in HDFS: does any file have them?
///
/// # Errors
/// `NotFound`, `Denied` for the path; those of calls.
pub(crate) async fn groups(
    namenode: &NameNode,
    root: &str,
    records: &mut Records,
    left_alone: &mut LeftAlone,
    asked: BTreeSet<u64>,
) -> Result<Scan, HdfsError> {
    let (mut groups, mut objects, mut unmet) = (BTreeMap::new(), Met::default(), asked);
    let mut nodes = Nodes::default();
    let mut walk = Walk::from(namenode, root).after(ENCODED);
    while let Some(files) = walk.next().await? {
        for (path, mut file) in files {
            file.blocks.iter().for_each(|blocks| meet(blocks, &mut unmet));
            objects.file(&path, &mut file);
            let Some(blocks) = file.blocks.as_ref().filter(|_| file.policy.is_some()) else { continue };
            match Group::of(&path, &file, blocks) {
                Ok(mut found) => {
                    found.iter_mut().for_each(|group| nodes.share(group));
                    groups.extend(found.into_iter().map(|group| (group.id, group)));
                }
                Err(error) => left_alone.note(&path, &error),
            }
        }
    }
    // A stripe of which HDFS has no block has no id, and nothing can be done for it.
    let stripes = objects.stripes(namenode, records, left_alone).await?.into_iter();
    let there = stripes.filter(|stripe| stripe.expected().any(|index| stripe.named(index)));
    groups.extend(there.map(|mut stripe| {
        nodes.share(&mut stripe);
        (stripe.id, stripe)
    }));
    Ok(Scan { groups, unmet, all: walk.root == "/" && walk.skipped.is_empty() })
}

/// A file with these blocks was met. Ids of groups are negative, and their internal blocks have the ids that follow.
fn meet(blocks: &LocatedBlocks, unmet: &mut BTreeSet<u64>) {
    if unmet.is_empty() {
        return;
    }
    for id in blocks.blocks.iter().chain(&blocks.last).map(|located| located.block.id) {
        let last = if (id as i64) < 0 { id | INDEX_BITS } else { id };
        unmet.extract_if(id..=last, |_| true).for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::group::tests::{datanode, listed};
    use crate::proto::names::{Listing, ListingPage, Policy};

    #[tokio::test]
    async fn encrypted_files_are_listed_and_groups_share_their_datanodes() {
        let files = ["a", "b"].map(|name| {
            let (status, mut blocks) =
                listed((0..5).map(|i| (i, datanode(([10, 0, 0, 1], i.into()).into()))));
            blocks.blocks[0].block.id = if name == "a" { -16i64 } else { -32 } as u64;
            blocks.encryption = Some(crate::proto::Empty {});
            let policy = blocks.policy.clone();
            FileStatus { kind: 2, name: name.into(), blocks: Some(blocks), policy, ..status }
        });
        let page = Listing { page: Some(ListingPage { entries: files.to_vec(), remaining: 0 }) };
        let namenode = crate::fake::namenode(&[("getListing", page.encode_to_vec())]);
        let (mut records, mut left_alone) = (Records::default(), LeftAlone::default());
        let found =
            groups(&namenode, "/", &mut records, &mut left_alone, BTreeSet::new()).await.unwrap().groups;
        assert_eq!((found.len(), left_alone.untold().len()), (2, 0));
        let mut first = found.values().map(|group| &group.holders[&kintsu_dag::BlockIndex(0)][0].datanode);
        assert!(Arc::ptr_eq(first.next().unwrap(), first.next().unwrap()));
    }

    #[tokio::test]
    async fn a_reason_to_leave_files_alone_is_told_once() {
        let file = |name: &str, id| {
            let policy = Some(Policy { id, ..Policy::default() });
            let blocks = LocatedBlocks { policy: policy.clone(), ..LocatedBlocks::default() };
            FileStatus { kind: 2, name: name.into(), blocks: Some(blocks), policy, ..FileStatus::default() }
        };
        // RS-LEGACY-6-3-1024k, a policy that nobody knows, RS-6-3-1024k.
        let entries = vec![file("a", 3), file("b", 3), file("c", 99), file("d", 1)];
        let page = Listing { page: Some(ListingPage { entries, remaining: 0 }) };
        let namenode = crate::fake::namenode(&[("getListing", page.encode_to_vec())]);
        let (mut records, mut left_alone) = (Records::default(), LeftAlone::default());
        groups(&namenode, "/", &mut records, &mut left_alone, BTreeSet::new()).await.unwrap();
        let told = left_alone.untold();
        let parts = ["rs-legacy", "id 99"];
        assert!(told.len() == 2 && parts.iter().zip(&told).all(|(part, why)| why.contains(part)), "{told:?}");
        groups(&namenode, "/", &mut records, &mut left_alone, BTreeSet::new()).await.unwrap();
        assert_eq!(left_alone.untold(), Vec::<String>::new(), "the next scan has nothing new to say");
    }
    #[tokio::test]
    async fn a_block_is_met_with_its_file_also_where_the_file_cannot_be_judged() {
        use crate::proto::names::{ExtendedBlock, LocatedBlock};

        let file = |name: &str, ids: &[i64], policy: Option<u32>| {
            let block = |id: &i64| LocatedBlock {
                block: ExtendedBlock { id: *id as u64, ..ExtendedBlock::default() },
                ..LocatedBlock::default()
            };
            let policy = policy.map(|id| Policy { id, ..Policy::default() });
            let blocks =
                LocatedBlocks { blocks: ids.iter().map(block).collect(), ..LocatedBlocks::default() };
            FileStatus { kind: 2, name: name.into(), blocks: Some(blocks), policy, ..FileStatus::default() }
        };
        // Of a policy that nobody knows, and the file of an object's block.
        let entries = vec![file("a", &[-32, -64], Some(99)), file(".kintsu-b", &[1_073_741_825], None)];
        let page = Listing { page: Some(ListingPage { entries, remaining: 0 }) };
        let namenode = crate::fake::namenode(&[("getListing", page.encode_to_vec())]);
        let ids = |ids: &[i64]| ids.iter().map(|id| *id as u64).collect::<BTreeSet<u64>>();
        let asked = ids(&[-31, -17, -16, -15, -49, -48, 1_073_741_825, 1_073_741_826]);
        for (root, all) in [("/", true), ("/warehouse", false)] {
            let (mut records, mut left_alone) = (Records::default(), LeftAlone::default());
            let found = groups(&namenode, root, &mut records, &mut left_alone, asked.clone()).await.unwrap();
            assert_eq!((found.unmet, found.all), (ids(&[-16, -15, -48, 1_073_741_826]), all));
        }
    }
}
