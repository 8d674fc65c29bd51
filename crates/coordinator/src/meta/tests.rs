//! Checks the invariants of the metadata store after random operations and after crashes.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use kintsu_dag::{BlockId, BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::{Division, Layout, LayoutKind};
use kintsu_wire::message::{
    BlockRef, DigestBytes, Encoding, FaultKind, HeldBlock, List, MemberEnd, NewMember, WrittenStripe,
};
use proptest::prelude::*;
use redb::ReadableTable;

use super::*;
use crate::engine::commit::{Evidence, Told};
use crate::engine::enroll::Range;
use crate::engine::identity::Applicant;

const N: u8 = 4;
pub(crate) const K: u8 = 2;
pub(crate) const BLOCK: u64 = 8;

pub(crate) fn code() -> CodeRecord {
    CodeRecord {
        name: "rs:n=4,k=2".into(),
        n: N.into(),
        k: K.into(),
        w: 1,
        generator: vec![1, 0, 0, 1, 1, 1, 1, 2],
    }
}

pub(crate) fn open(dir: &Path) -> Meta {
    Meta::open(dir, 1 << 20).unwrap()
}

/// The store as it is on disk now: a process that starts after this one was killed sees the same.
pub(crate) fn after_a_crash(dir: &Path) -> (tempfile::TempDir, Meta) {
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(dir.join(FILE), copy.path().join(FILE)).unwrap();
    let meta = open(copy.path());
    (copy, meta)
}

pub(crate) fn new_put(name: &str, size: u64, replace: bool, encoding: Encoding) -> NewPut {
    let division = Division::new(size, K.into(), 1, LayoutKind::Striped, BLOCK, 4).unwrap();
    let (size, attributes) = (Some(size), Default::default());
    NewPut {
        name: name.into(),
        size,
        code: code(),
        encoding,
        replace,
        volume: None,
        attributes,
        members: Vec::new(),
        division,
        batch: 1 << 20,
    }
}

/// All names with a prefix.
pub(crate) fn all(prefix: &str) -> List {
    List { prefix: prefix.into(), after: None, limit: u32::MAX, delimiter: String::new() }
}

/// Homes on nodes `from, from + 1, ..`.
pub(crate) fn homes(from: u32, layout: &Layout) -> Vec<Option<NodeId>> {
    let stored = |i: u8| layout.block_len(K.into(), BlockIndex(i)) > 0;
    (0..N).map(|i| stored(i).then_some(NodeId(from + u32::from(i)))).collect()
}

pub(crate) fn digest(id: StripeId, index: u8) -> DigestBytes {
    let mut out = [index; 16];
    out[..8].copy_from_slice(&id.0.to_le_bytes());
    out
}

pub(crate) fn written(put: &Granted) -> Vec<WrittenStripe> {
    let one = |s: &PendingStripe| {
        let made = |i: u8| i < K || put.encoding == Encoding::Online;
        let digest = |(i, home): (usize, &Option<NodeId>)| {
            home.filter(|_| made(i as u8)).map(|_| digest(s.id, i as u8))
        };
        WrittenStripe { id: s.id, digests: s.homes.iter().enumerate().map(digest).collect() }
    };
    put.stripes.iter().map(one).collect()
}

pub(crate) fn store(meta: &Meta, name: &str, size: u64, from: u32) -> Granted {
    let (id, put) =
        meta.begin_put(new_put(name, size, true, Encoding::Online), |_, l| Ok(homes(from, l))).unwrap();
    meta.commit_put(id, &written(&put), 7).unwrap();
    put
}

/// Checks the invariants in the head of `meta.rs` by a full scan.
pub(crate) fn check(meta: &Meta) {
    let snapshot = meta.snapshot().unwrap();
    let (mut placed, mut lost, mut tally) = (HashSet::new(), HashSet::new(), BTreeMap::new());
    let stripes = snapshot.txn.open_table(tables::STRIPES).unwrap();
    for row in stripes.iter().unwrap() {
        let (id, row) = row.unwrap();
        for (index, block) in StripeRecord::unpack(row.value()).unwrap().made() {
            assert!(placed.insert((block.node.0, id.value(), index.0)));
            let count: &mut (u64, u64) = tally.entry(block.node).or_default();
            count.0 += 1;
            if block.lost {
                lost.insert((id.value(), index.0));
                count.1 += 1;
            }
        }
    }
    let by_node = snapshot.txn.open_table(tables::BY_NODE).unwrap();
    let rows = by_node.iter().unwrap().map(|row| {
        let (key, index) = row.unwrap();
        (key.value().0, key.value().1, index.value())
    });
    assert_eq!(rows.collect::<HashSet<_>>(), placed, "by_node");
    let table = snapshot.txn.open_table(tables::LOST).unwrap();
    assert_eq!(table.iter().unwrap().map(|row| row.unwrap().0.value()).collect::<HashSet<_>>(), lost, "lost");
    let mut tallies = snapshot.tallies().unwrap();
    tallies.retain(|_, counts| *counts != (0, 0));
    assert_eq!(tallies, tally, "tally");
    let garbage = snapshot.txn.open_table(tables::GARBAGE).unwrap();
    for row in garbage.iter().unwrap() {
        let (node, stripe, index, generation) = row.unwrap().0.value();
        let home = placed.contains(&(node, stripe, index));
        let same = || snapshot.stripe(StripeId(stripe)).unwrap().unwrap().generation == generation;
        assert!(!(home && same()), "{node} {stripe}.{index} is a home and garbage");
    }
    let listed: HashSet<u64> = snapshot
        .puts()
        .unwrap()
        .into_iter()
        .flat_map(|id| {
            let put = snapshot.put(id).unwrap().unwrap();
            record::ids_of(&put.runs, 0, u64::MAX).into_iter().map(|(_, stripe)| stripe.0).collect::<Vec<_>>()
        })
        .collect();
    let rows = snapshot.txn.open_table(tables::PUT_STRIPES).unwrap();
    assert_eq!(
        rows.iter().unwrap().map(|row| row.unwrap().0.value()).collect::<HashSet<_>>(),
        listed,
        "put_stripes"
    );
    let objects = snapshot.list(&all("")).unwrap().objects;
    let stripes: HashSet<StripeId> = objects
        .iter()
        .flat_map(|o| snapshot.object(&o.name).unwrap().ids(0, u64::MAX))
        .map(|(_, stripe)| stripe)
        .collect();
    assert_eq!(stripes.len() as u64, snapshot.totals().unwrap().stripes);
    let mut shared = BTreeMap::new();
    for object in &objects {
        let record = snapshot.object(&object.name).unwrap();
        let owner = snapshot.stripe(record.ids(0, 1).first().map_or(StripeId(0), |(_, id)| *id)).unwrap();
        assert_eq!(snapshot.name(object.id).unwrap().as_ref(), Some(&object.name));
        let Some(place) = record.packed else {
            assert!(owner.is_none_or(|stripe| stripe.owner == object.id));
            continue;
        };
        let pack = snapshot.pack(place.pack).unwrap().unwrap();
        assert!(pack.members(place.pack).contains(&object.id) && place.at + object.size <= pack.size);
        assert_eq!((owner.unwrap().owner, record.runs), (place.pack, vec![(pack.stripe.0, 1)]));
        let (count, bytes): &mut (u32, u64) = shared.entry(place.pack).or_default();
        (*count, *bytes) = (*count + 1, *bytes + object.size);
    }
    let rows = snapshot.txn.open_table(tables::PACKS).unwrap();
    let rows = rows.iter().unwrap().map(|row| row.unwrap().0.value());
    let packs: BTreeMap<_, PackRecord> = rows.map(|id| (id, snapshot.pack(id).unwrap().unwrap())).collect();
    let counted: BTreeMap<_, _> = packs.iter().map(|(id, pack)| (*id, (pack.left, pack.live))).collect();
    assert_eq!(counted, shared, "packs");
    check_loose(&snapshot, &packs);
    assert_eq!(objects.iter().map(|o| o.size).sum::<u64>(), snapshot.totals().unwrap().object_bytes);
}

/// Checks the table of loose stripes.
fn check_loose(snapshot: &Snapshot, packs: &BTreeMap<u64, PackRecord>) {
    let table = snapshot.txn.open_table(tables::LOOSE).unwrap();
    let rows: HashSet<u64> = table.iter().unwrap().map(|row| row.unwrap().0.value()).collect();
    let is_loose = |pack: &PackRecord| pack.live * 2 < pack.size || pack.left < 16 && pack.live * 4 <= BLOCK;
    let loose: HashSet<u64> = packs.iter().filter(|(_, pack)| is_loose(pack)).map(|(id, _)| *id).collect();
    let (of_packs, lone): (HashSet<u64>, HashSet<u64>) =
        rows.into_iter().partition(|id| packs.contains_key(id));
    assert_eq!(of_packs, loose, "loose packs");
    for id in lone {
        let object = snapshot.object(&snapshot.name(id).unwrap().expect("an object that is there")).unwrap();
        assert!(object.packed.is_none() && object.stripes() == 1 && object.size * 4 <= BLOCK, "{object:?}");
    }
}

#[test]
fn a_put_is_seen_whole_or_not_at_all_whenever_the_process_dies() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let (id, put) =
        meta.begin_put(new_put("a", 40, false, Encoding::Online), |_, l| Ok(homes(0, l))).unwrap();
    meta.settle().unwrap();
    let (_keep, crashed) = after_a_crash(dir.path());
    assert!(crashed.snapshot().unwrap().object("a").is_err());
    assert_eq!(crashed.snapshot().unwrap().puts().unwrap(), [id]);
    // The client repeats its commit to the new process, and once more because it lost the reply.
    let info = crashed.commit_put(id, &written(&put), 7).unwrap();
    assert_eq!((info.size, info.stripes, info.encoded), (40, 3, true));
    assert_eq!(crashed.commit_put(id, &written(&put), 9).unwrap(), info);
    check(&crashed);

    meta.commit_put(id, &written(&put), 7).unwrap();
    let (_keep, crashed) = after_a_crash(dir.path());
    check(&crashed);
    let snapshot = crashed.snapshot().unwrap();
    let stripes = snapshot.view("a", (0, None), 100).unwrap().1.1;
    assert_eq!(stripes.iter().map(|s| s.offset).collect::<Vec<_>>(), [0, 16, 32]);
    assert_eq!(stripes[2].blocks[1].as_ref().unwrap().len, 4);
    assert_eq!(snapshot.puts().unwrap(), [0u64; 0]);
    // Ids continue from the last one.
    let (next, put) =
        crashed.begin_put(new_put("b", 1, false, Encoding::Online), |_, l| Ok(homes(0, l))).unwrap();
    assert!(next > id && put.stripes[0].id > stripes[2].id);
}

#[test]
fn a_put_that_began_just_before_a_crash_never_began_and_its_ids_are_not_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let begin = |meta: &Meta, name: &str| {
        meta.begin_put(new_put(name, 16, false, Encoding::Online), |_, l| Ok(homes(0, l))).unwrap()
    };
    let start = |meta: &Meta| meta.begin(kintsu_wire::ClusterId([1; 16]), 5, false).unwrap();
    start(&meta);
    let (kept, before) = begin(&meta, "a");
    meta.commit_put(kept, &written(&before), 7).unwrap();
    let history = meta.history();
    // The last of them makes all before it durable.
    let most = super::MOST_UNSETTLED as usize;
    for waiting in 1..most {
        begin(&meta, &format!("b{waiting}"));
        assert!(meta.is_unsettled() && meta.history() == history, "{waiting} have begun");
    }
    let crash = || {
        let (keep, crashed) = after_a_crash(dir.path());
        start(&crashed);
        (keep, crashed)
    };
    let (_keep, crashed) = crash();
    assert_eq!(crashed.snapshot().unwrap().puts().unwrap(), [0u64; 0]);
    let (last, lost) = begin(&meta, "c");
    assert!(!meta.is_unsettled() && meta.history() == history + most as u64);
    assert_eq!(crash().1.snapshot().unwrap().puts().unwrap().len(), most);
    let (next, put) = begin(&crashed, "d");
    assert!(next > last && put.stripes[0].id > lost.stripes[0].id);
    assert!(crashed.commit_put(last, &written(&lost), 7).is_err());
    assert_eq!(crashed.snapshot().unwrap().view("a", (0, None), 1).unwrap().0.size, 16);
    check(&crashed);
    // A large put is durable when it has begun.
    let large = new_put("e", 16 * (super::puts::SMALL + 1), false, Encoding::Online);
    let (id, _) = meta.begin_put(large, |_, l| Ok(homes(0, l))).unwrap();
    assert!(crash().1.snapshot().unwrap().puts().unwrap().contains(&id));
}

#[test]
fn a_name_is_replaced_in_one_step() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let old = store(&meta, "a", 16, 0);
    let refused = meta.begin_put(new_put("a", 1, false, Encoding::Online), |_, l| Ok(homes(0, l)));
    assert!(matches!(refused, Err(CoordinatorError::Exists { .. })));
    let (id, put) = meta.begin_put(new_put("a", 5, true, Encoding::Online), |_, l| Ok(homes(4, l))).unwrap();
    assert_eq!(after_a_crash(dir.path()).1.snapshot().unwrap().view("a", (0, None), 0).unwrap().0.size, 16);
    meta.commit_put(id, &written(&put), 8).unwrap();
    let (_keep, crashed) = after_a_crash(dir.path());
    assert_eq!(crashed.snapshot().unwrap().view("a", (0, None), 0).unwrap().0.size, 5);
    check(&crashed);
    let garbage = crashed.snapshot().unwrap().garbage(NodeId(1), 10).unwrap();
    assert_eq!(garbage.iter().map(|g| g.id.stripe).collect::<Vec<_>>(), [old.stripes[0].id]);
}

#[test]
fn of_two_puts_of_one_name_the_second_fails_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let begin = || meta.begin_put(new_put("a", 16, false, Encoding::Online), |_, l| Ok(homes(0, l))).unwrap();
    let ((first, one), (second, two)) = (begin(), begin());
    meta.commit_put(first, &written(&one), 1).unwrap();
    assert!(matches!(meta.commit_put(second, &written(&two), 2), Err(CoordinatorError::Exists { .. })));
    let snapshot = meta.snapshot().unwrap();
    assert_eq!((snapshot.totals().unwrap().puts, snapshot.totals().unwrap().garbage), (0, 4));
    assert!(matches!(meta.commit_put(second, &written(&two), 2), Err(CoordinatorError::NotFound { .. })));
    check(&meta);
}

#[test]
fn a_commit_needs_exactly_the_digests_of_the_blocks_that_were_made() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    for encoding in [Encoding::Online, Encoding::Offline] {
        let (id, put) = meta.begin_put(new_put("a", 17, false, encoding), |_, l| Ok(homes(0, l))).unwrap();
        let good = written(&put);
        let mut bad = vec![good[..1].to_vec()];
        for (s, i) in [(0, 0), (0, 3), (1, 1), (1, 3)] {
            let mut one = good.clone();
            let slot: &mut Option<DigestBytes> = &mut one[s].digests[i];
            *slot = if slot.is_some() { None } else { Some([9; 16]) };
            bad.push(one);
        }
        for wrong in bad {
            assert!(matches!(meta.commit_put(id, &wrong, 1), Err(CoordinatorError::Invalid { .. })));
        }
        meta.commit_put(id, &good, 1).unwrap();
        check(&meta);
        meta.remove("a").unwrap();
    }
}

#[test]
fn a_stripe_that_moved_is_committed_under_its_new_id() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let (id, put) =
        meta.begin_put(new_put("a", 40, false, Encoding::Online), |_, l| Ok(homes(0, l))).unwrap();
    let moved = meta.move_stripe(id, put.stripes[1].id, |_, _, l| Ok(homes(4, l))).unwrap();
    assert_eq!((moved.offset, moved.layout), (put.stripes[1].offset, put.stripes[1].layout));
    assert!(meta.commit_put(id, &written(&put), 1).is_err());
    let mut now = put.clone();
    now.stripes[1] = moved.clone();
    meta.commit_put(id, &written(&now), 1).unwrap();
    check(&meta);
    let snapshot = meta.snapshot().unwrap();
    let object = snapshot.object("a").unwrap();
    let ids: Vec<_> = object.ids(0, 9).into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, [put.stripes[0].id, moved.id, put.stripes[2].id]);
    assert!(snapshot.must_sweep(NodeId(0), put.stripes[1].id).unwrap());
    assert!(meta.abort_put(id).is_err());
}

#[test]
fn a_repaired_block_moves_home_only_as_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let put = store(&meta, "a", 16, 0);
    let id = put.stripes[0].id;
    let lost = LostBlock {
        id: BlockId { stripe: id, index: BlockIndex(1) },
        node: NodeId(1),
        why: FaultKind::Corrupt,
    };
    // What is said of another version of the block says nothing of this one.
    assert!(!meta.mark_lost_of(lost, Some(2)).unwrap());
    assert_eq!(meta.snapshot().unwrap().totals().unwrap().lost, 0);
    assert!(meta.mark_lost_of(lost, Some(1)).unwrap());
    assert_eq!(meta.mark_lost(&[LostBlock { node: NodeId(2), ..lost }]).unwrap(), []);
    check(&meta);
    let land =
        |to, digest| Landing { index: BlockIndex(1), from: NodeId(1), to: NodeId(to), generation: 1, digest };
    assert!(meta.rehome(id, 1, &[land(9, [0; 16])]).is_err(), "another digest");
    assert!(meta.rehome(id, 1, &[land(2, digest(id, 1))]).is_err(), "a node with another block");
    check(&meta);
    assert_eq!(meta.rehome(id, 1, &[land(9, digest(id, 1))]).unwrap(), [BlockIndex(1)]);
    check(&meta);
    let snapshot = meta.snapshot().unwrap();
    assert!(snapshot.must_sweep(NodeId(1), id).unwrap() && !snapshot.must_sweep(NodeId(9), id).unwrap());
    // A second repair of the same block comes too late: its new file is garbage.
    assert_eq!(meta.rehome(id, 1, &[land(8, digest(id, 1))]).unwrap(), []);
    assert!(meta.snapshot().unwrap().must_sweep(NodeId(8), id).unwrap());
    // But not if it wrote to the node where the block is now.
    assert_eq!(meta.rehome(id, 1, &[land(9, digest(id, 1))]).unwrap(), []);
    assert!(!meta.snapshot().unwrap().must_sweep(NodeId(9), id).unwrap());
    // A repair in place removes the flag and leaves no garbage.
    meta.mark_lost(&[LostBlock { node: NodeId(9), ..lost }]).unwrap();
    let again = Landing { from: NodeId(9), ..land(9, digest(id, 1)) };
    assert_eq!(meta.rehome(id, 1, &[again]).unwrap(), [BlockIndex(1)]);
    assert!(!meta.snapshot().unwrap().must_sweep(NodeId(9), id).unwrap());
    check(&meta);
}

#[test]
fn what_a_node_holds_is_compared_with_what_it_should_hold() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let ids: Vec<StripeId> = (0..5).map(|i| store(&meta, &format!("o{i}"), 16, 0).stripes[0].id).collect();
    let (put, pending) =
        meta.begin_put(new_put("p", 16, false, Encoding::Online), |_, l| Ok(homes(0, l))).unwrap();
    let held = |stripe, generation, len, digest| HeldBlock {
        id: BlockId { stripe, index: BlockIndex(0) },
        generation,
        len,
        digest,
    };
    let there = [
        held(ids[0], 1, 8, digest(ids[0], 0)),
        held(ids[1], 1, 8, [0; 16]),
        held(ids[2], 2, 8, digest(ids[2], 0)),
        held(ids[3], 1, 7, digest(ids[3], 0)),
        held(pending.stripes[0].id, 1, 8, [1; 16]),
        held(StripeId(999), 1, 8, [1; 16]),
        held(StripeId(998), 1, 8, [1; 16]),
    ];
    let node = NodeId(0);
    let comparison =
        meta.snapshot().unwrap().compare(node, Range::default(), &there, &Default::default()).unwrap();
    let lost: Vec<_> = comparison.lost.iter().map(|l| (l.id.stripe, l.why)).collect();
    use FaultKind::{Corrupt, Missing, Stale};
    assert_eq!(lost, [(ids[1], Corrupt), (ids[2], Stale), (ids[3], Corrupt), (ids[4], Missing)]);
    let keep = HashSet::from([BlockId { stripe: StripeId(998), index: BlockIndex(0) }]);
    let (_, unknown) = meta.reconcile(node, Range::default(), &comparison, &there, &keep, None).unwrap();
    check(&meta);
    assert_eq!(
        meta.snapshot().unwrap().garbage(node, 10).unwrap(),
        [],
        "nothing is deleted because it is unknown"
    );
    assert_eq!(unknown.iter().map(|g| g.id.stripe).collect::<Vec<_>>(), [ids[2], StripeId(999)]);
    meta.abort_put(put).unwrap();

    // The node comes back with all its blocks: headers show that a block is there, not that its bytes are sound.
    let all: Vec<_> = ids.iter().map(|&id| held(id, 1, 8, digest(id, 0))).collect();
    let comparison =
        meta.snapshot().unwrap().compare(node, Range::default(), &all, &Default::default()).unwrap();
    assert_eq!(comparison.lost, []);
    meta.reconcile(node, Range::default(), &comparison, &all, &HashSet::new(), None).unwrap();
    let still: Vec<_> = meta.snapshot().unwrap().lost(None, 10).unwrap();
    assert_eq!(still.iter().map(|(b, _)| b.stripe).collect::<Vec<_>>(), [ids[1], ids[3]]);
    assert_eq!(meta.snapshot().unwrap().garbage(node, 10).unwrap(), []);
    assert_eq!(meta.wipe(node).unwrap(), 5);
    check(&meta);
}

#[test]
fn lists_are_pages_in_order_of_name() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    for name in ["b/1", "a", "b/2", "c", "b"] {
        store(&meta, name, 0, 0);
    }
    let page = |prefix: &str, after: Option<&str>, limit| {
        let list = List { after: after.map(str::to_owned), limit, ..all(prefix) };
        let page = meta.snapshot().unwrap().list(&list).unwrap();
        (page.objects.into_iter().map(|o| o.name).collect::<Vec<_>>().join(" "), page.more)
    };
    assert_eq!(page("", None, 9), ("a b b/1 b/2 c".into(), false));
    assert_eq!(page("", None, 2), ("a b".into(), true));
    assert_eq!(page("", Some("b"), 2), ("b/1 b/2".into(), true));
    assert_eq!(page("b/", None, 2), ("b/1 b/2".into(), false));
    assert_eq!(page("b/", Some("a"), 1), ("b/1".into(), true));
    assert_eq!(page("b/", Some("b/2"), 5), (String::new(), false));
    assert_eq!(page("x", None, 5), (String::new(), false));
}

#[test]
fn names_with_a_delimiter_are_listed_by_what_they_have_in_common() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let odd = format!("a/{}{}", char::MAX, char::MAX);
    for name in ["a", "a/1", "a/b/1", "a/b/2", &odd, "a0", "b/1", "b/2", "c/", "c/x", "d//e"] {
        store(&meta, name, 0, 0);
    }
    let pages = |prefix: &str, delimiter: &str, limit| {
        let (mut shown, mut after) = (Vec::new(), None);
        loop {
            let list = List { after: after.clone(), limit, delimiter: delimiter.into(), ..all(prefix) };
            let page = meta.snapshot().unwrap().list(&list).unwrap();
            assert!(page.objects.len() + page.prefixes.len() <= limit as usize);
            after = page.last().map(str::to_owned);
            shown.extend(page.objects.into_iter().map(|object| object.name));
            shown.extend(page.prefixes.into_iter().map(|prefix| format!("{prefix}*")));
            if !page.more {
                shown.sort();
                return shown.join(" ");
            }
        }
    };
    for limit in [1, 2, 3, 100] {
        assert_eq!(pages("", "/", limit), "a a/* a0 b/* c/* d/*", "{limit}");
        assert_eq!(pages("a/", "/", limit), format!("a/1 a/b/* {odd}"));
        assert_eq!(pages("a/b", "/", limit), "a/b/*");
        assert_eq!(pages("c/", "/", limit), "c/ c/x");
        assert_eq!(pages("d/", "/", limit), "d//*");
        assert_eq!(pages("", "//", limit), format!("a a/1 a/b/1 a/b/2 {odd} a0 b/1 b/2 c/ c/x d//*"));
        assert_eq!(pages("x", "/", limit), "");
    }
}

#[test]
fn a_second_coordinator_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let Err(error) = Meta::open(dir.path(), 1 << 20) else { panic!("opened twice") };
    assert!(error.to_string().contains("no other coordinator"), "{error}");
    let boot = |meta: &Meta| meta.begin(kintsu_wire::ClusterId([1; 16]), 5, false).unwrap().1.boot;
    assert_eq!(boot(&meta), 1);
    drop(meta);
    assert_eq!(boot(&open(dir.path())), 2);
}

#[derive(Debug, Clone)]
pub(crate) enum Op {
    Put { name: u8, size: u64, from: u32, offline: bool, end: u8 },
    Pack { names: [u8; 3], size: u64, from: u32, end: u8 },
    Repack { from: u32, remove: Option<u8>, end: u8 },
    Remove(u8),
    Lose { stripe: u64, index: u8, node: u32 },
    Rehome { stripe: u64, index: u8, to: u32, late: Option<u32> },
    Encode { stripe: u64, to: u32 },
    Trash { node: u32, stripe: u64, index: u8 },
    Wipe(u32),
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let (stripe, index, node) = (1u64..12, 0..N, 0u32..9);
    prop_oneof![
        3 => (0u8..4, 0u64..40, 0u32..5, any::<bool>(), 0u8..4).prop_map(|(name, size, from, offline, end)| {
            Op::Put { name, size, from, offline, end }
        }),
        2 => (any::<[u8; 3]>(), 1u64..5, 0u32..5, 0u8..4).prop_map(|(names, size, from, end)| {
            Op::Pack { names: names.map(|name| name % 4), size, from, end }
        }),
        2 => (0u32..5, prop::option::weighted(0.3, 0u8..4), 0u8..3)
            .prop_map(|(from, remove, end)| Op::Repack { from, remove, end }),
        1 => (0u8..4).prop_map(Op::Remove),
        3 => (stripe.clone(), index.clone(), node.clone())
            .prop_map(|(stripe, index, node)| Op::Lose { stripe, index, node }),
        3 => ((stripe.clone(), index.clone(), node.clone()), prop::option::weighted(0.2, node.clone()))
            .prop_map(|((stripe, index, to), late)| Op::Rehome { stripe, index, to, late }),
        1 => (stripe.clone(), 0u32..8).prop_map(|(stripe, to)| Op::Encode { stripe, to }),
        1 => (node.clone(), stripe, index).prop_map(|(node, stripe, index)| Op::Trash { node, stripe, index }),
        1 => node.prop_map(Op::Wipe),
    ]
}

pub(crate) fn apply(meta: &Meta, op: Op) {
    match op {
        Op::Put { name, size, from, offline, end } => {
            let encoding = if offline { Encoding::Offline } else { Encoding::Online };
            let new = NewPut { batch: 1, ..new_put(&format!("o{name}"), size, name % 2 == 0, encoding) };
            if let Ok((id, mut put)) = meta.begin_put(new, |_, l| Ok(homes(from, l))) {
                // Some of its stripes are granted later, and one is placed again.
                let count = size.div_ceil(BLOCK * u64::from(K));
                while (put.stripes.len() as u64) < count && end != 1 {
                    let (at, told) = (put.stripes.len() as u64, written(&put));
                    let more =
                        meta.more_stripes(id, at, 1, (&told, None), |_, _, l| Ok(homes(from, l))).unwrap();
                    put.stripes.extend(more.stripes);
                }
                if let (true, Some(first)) = (end == 3, put.stripes.first_mut()) {
                    *first = meta.move_stripe(id, first.id, |_, _, l| Ok(homes(from + 1, l))).unwrap();
                }
                let _ = match end {
                    0 => meta.abort_put(id).map(|_| ()),
                    1 => Ok(()),
                    _ => meta.commit_put(id, &written(&put), 1).map(|_| ()),
                };
            }
        }
        Op::Pack { names, size, from, end } => {
            let member = |name| NewMember {
                name: format!("o{name}"),
                size,
                replace: name % 2 == 0,
                attributes: Default::default(),
                moves: None,
            };
            let mut begun = super::pack_tests::begin(meta, &names.map(member), from);
            if end == 3 {
                let old = begun.1.stripes[0].id;
                begun.1.stripes[0] =
                    meta.move_stripe(begun.0, old, |_, _, l| Ok(homes(from + 1, l))).unwrap();
            }
            match end {
                0 => drop(meta.abort_put(begun.0).unwrap()),
                1 => {}
                _ => drop(super::pack_tests::commit(meta, &begun, &vec![MemberEnd::default(); 3])),
            }
        }
        Op::Repack { from, remove, end } => super::move_tests::repack(meta, from, remove, end),
        Op::Remove(name) => drop(meta.remove(&format!("o{name}"))),
        Op::Lose { stripe, index, node } => {
            let id = BlockId { stripe: StripeId(stripe), index: BlockIndex(index) };
            meta.mark_lost(&[LostBlock { id, node: NodeId(node), why: FaultKind::Missing }]).unwrap();
        }
        Op::Rehome { stripe, index, to, late } => {
            let id = StripeId(stripe);
            let Some(record) = meta.snapshot().unwrap().stripe(id).unwrap() else { return };
            let Some(from) = record.block(BlockIndex(index)).map(|b| b.node) else { return };
            let from = late.map_or(from, NodeId);
            let (index, to, digest) = (BlockIndex(index), NodeId(to), digest(id, index));
            let _ = meta.rehome(id, 1, &[Landing { index, from, to, generation: 1, digest }]);
        }
        Op::Encode { stripe, to } => {
            let id = StripeId(stripe);
            let parity = |i: u8| Parity {
                index: BlockIndex(i),
                node: NodeId(to + u32::from(i)),
                digest: digest(id, i),
            };
            let _ = meta.set_encoded(id, 1, &[parity(2), parity(3)]);
        }
        Op::Trash { node, stripe, index } => {
            let id = BlockId { stripe: StripeId(stripe), index: BlockIndex(index) };
            meta.trash(&[(NodeId(node), BlockRef { id, generation: 1 })]).unwrap();
        }
        Op::Wipe(node) => drop(meta.wipe(NodeId(node)).unwrap()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_invariants_hold_after_any_operations(ops in prop::collection::vec(op(), 1..40)) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let meta = open(dir.path());
        let any = "127.0.0.1:1".parse().unwrap();
        let record = NodeRecord::new(RackId(0), any, any, String::new(), 1);
        let folder = kintsu_wire::FolderId([3; 16]);
        meta.enroll(Applicant { node: Some(NodeId(3)), folder, replace: false, moved: false, record }).unwrap();
        for op in ops {
            apply(&meta, op);
            check(&meta);
        }
        check(&after_a_crash(dir.path()).1);
        meta.settle().unwrap();
        let (_keep, crashed) = after_a_crash(dir.path());
        check(&crashed);
        prop_assert_eq!(crashed.snapshot().unwrap().totals().unwrap(), meta.snapshot().unwrap().totals().unwrap());
    }
}

#[test]
fn a_store_of_version_1_is_taken_over_and_one_of_another_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let set = |version| {
        let meta = open(dir.path());
        meta.write(|t| t.set_counter(tables::COUNT_VERSION, version)).unwrap();
    };
    set(1);
    let meta = open(dir.path());
    let version = meta.write(|t| t.counter(tables::COUNT_VERSION)).unwrap();
    assert_eq!(version, tables::VERSION, "older programs refuse it now");
    drop(meta);
    set(tables::VERSION + 1);
    let Err(error) = Meta::open(dir.path(), 1 << 20) else { panic!("opened") };
    assert!(error.to_string().contains(&format!("version 1 to {}", tables::VERSION)), "{error}");
    assert!(error.to_string().contains(&format!("version {}", tables::VERSION + 1)), "{error}");
}

#[test]
fn a_put_of_version_2_is_taken_over_with_its_stripes() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let (id, put) =
        meta.begin_put(new_put("a", 40, false, Encoding::Online), |_, l| Ok(homes(0, l))).unwrap();
    let (other, _) =
        meta.begin_put(new_put("b", 0, false, Encoding::Online), |_, l| Ok(homes(0, l))).unwrap();
    // The rows as version 2 had them: maps with these names and no others.
    #[derive(serde::Serialize)]
    struct Stripe {
        id: StripeId,
        generation: u32,
        offset: u64,
        layout: Layout,
        homes: Vec<Option<NodeId>>,
    }
    #[derive(serde::Serialize)]
    struct Put {
        name: String,
        size: u64,
        code: u16,
        encoding: Encoding,
        replace: bool,
        stripes: Vec<Stripe>,
    }
    let stripes = |row: &PendingStripe| Stripe {
        id: row.id,
        generation: row.generation,
        offset: row.offset,
        layout: row.layout,
        homes: row.homes.clone(),
    };
    let old = |name: &str, size, stripes| {
        let encoding = Encoding::Online;
        rmp_serde::to_vec_named(&Put { name: name.into(), size, code: 0, encoding, replace: false, stripes })
            .unwrap()
    };
    meta.write(|t| {
        t.put_stripes.retain(|_, _| false)?;
        t.puts.insert(id, old("a", 40, put.stripes.iter().map(stripes).collect()).as_slice())?;
        t.puts.insert(other, old("b", 0, Vec::new()).as_slice())?;
        t.set_counter(tables::COUNT_VERSION, 2)
    })
    .unwrap();
    drop(meta);
    let meta = open(dir.path());
    check(&meta);
    assert!(put.stripes.iter().all(|s| meta.snapshot().unwrap().is_pending(s.id).unwrap()));
    // Its nodes may have restarted meanwhile: they must be asked.
    let (down, told) = (Default::default(), Default::default());
    let evidence = Evidence { down: &down, told: &told, bearable: &|_| false };
    let Commit::Unsure(doubts) = meta.try_commit(id, &written(&put), (1, None), &evidence).unwrap() else {
        panic!("committed unseen")
    };
    assert_eq!(
        doubts.iter().map(|d| (d.node.0, d.blocks.len())).collect::<Vec<_>>(),
        [(0, 3), (1, 3), (2, 3), (3, 3)]
    );
    let told: BTreeMap<_, _> = doubts
        .iter()
        .map(|d| {
            let there = d.blocks.iter().map(|b| b.id).collect();
            (d.node, Told { there, ..Told::nothing(d) })
        })
        .collect();
    let evidence = Evidence { told: &told, ..evidence };
    let Commit::Visible(object) = meta.try_commit(id, &written(&put), (1, None), &evidence).unwrap() else {
        panic!("all blocks are there")
    };
    assert_eq!((object.size, object.stripes), (40, 3));
    assert!(meta.abort_put(other).unwrap());
    check(&meta);
}
