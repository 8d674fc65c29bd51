//! Packs in the metadata: members appear and go one by one, the stripe goes with the last one, and a rebuild finds them.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use kintsu_dag::NodeId;
use kintsu_wire::ClusterId;
use kintsu_wire::message::{
    Change, Changed, Check, CodeLabel, Ending, HeldBlock, Label, List, MemberEnd, MemberLabel, MemberReply,
    NewMember, ObjectInfo, ObjectLabel, Step,
};

use super::packs::{labels, name_of};
use super::tests::{check, code, homes, new_put, open, store, written};
use super::*;
use crate::engine::commit::Evidence;
use crate::engine::damage::Whose;
use crate::engine::rebuild::{Wanted, assemble};

fn member(name: &str, size: u64, replace: bool) -> NewMember {
    NewMember { name: name.into(), size, replace, attributes: Default::default(), moves: None }
}

/// Begins a pack: its number, and what was granted.
pub(crate) fn begin(meta: &Meta, members: &[NewMember], from: u32) -> (u64, Granted) {
    let size = members.iter().map(|member| member.size).sum();
    let new = NewPut {
        members: members.to_vec(),
        ..new_put("", size, true, kintsu_wire::message::Encoding::Online)
    };
    meta.begin_put(new, |_, layout| Ok(homes(from, layout))).unwrap()
}

pub(crate) fn commit(
    meta: &Meta,
    (id, granted): &(u64, Granted),
    ends: &[MemberEnd],
) -> Result<Vec<MemberReply>> {
    let (down, told, code) = (Default::default(), Default::default(), code());
    let evidence = Evidence { down: &down, told: &told, bearable: &|_| false };
    match meta.end_pack(*id, &written(granted), ends, &evidence, Making { code: &code, now: 7 })? {
        Commit::Pack(replies) => Ok(replies),
        other => panic!("{other:?}"),
    }
}

/// Stores objects of 4 bytes as a pack; all of them appear.
pub(crate) fn pack(meta: &Meta, names: &[&str]) -> (u64, Vec<ObjectInfo>) {
    let members: Vec<_> = names.iter().map(|name| member(name, 4, true)).collect();
    let begun = begin(meta, &members, 0);
    let replies = commit(meta, &begun, &vec![MemberEnd::default(); names.len()]).unwrap();
    let visible = |reply| match reply {
        MemberReply::Visible(object) => object,
        other => panic!("{other:?}"),
    };
    (begun.0, replies.into_iter().map(visible).collect())
}

fn names(meta: &Meta) -> Vec<String> {
    let list = List { prefix: String::new(), after: None, limit: 100, delimiter: String::new() };
    meta.snapshot().unwrap().list(&list).unwrap().objects.into_iter().map(|object| object.name).collect()
}

pub(crate) fn buried(meta: &Meta) -> Vec<u64> {
    let tombstones = meta.snapshot().unwrap().tombstones(0, 100).unwrap();
    tombstones.into_iter().map(|(_, object)| object).collect()
}

fn steps(checks: Vec<Check>, steps: Vec<Step>) -> MemberEnd {
    let ending = Ending { change: Change { checks, steps }, facts: Default::default() };
    MemberEnd { ending: Some(ending), ..MemberEnd::default() }
}

#[test]
fn members_appear_each_for_itself() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    for name in ["taken", "old", "watched"] {
        store(&meta, name, 8, 0);
    }
    let old = meta.snapshot().unwrap().object("old").unwrap().id;
    let members =
        [("new", false), ("taken", false), ("watched", true), ("stuck", true), ("old", true), ("gone", true)]
            .map(|(name, replace)| member(name, 2, replace));
    let unmet = steps(
        vec![Check::Is { name: "watched".into(), id: None }],
        vec![Step::Remove { name: "new".into() }],
    );
    // Its first step is taken, and then undone, since the second one cannot be.
    let stuck = steps(
        vec![],
        vec![
            Step::Remove { name: "taken".into() },
            Step::Rename { from: "nobody".into(), to: "x".into(), newest_first: false },
        ],
    );
    let given_up = MemberEnd { given_up: true, ..MemberEnd::default() };
    let fine = MemberEnd::default();
    let ends = [fine.clone(), fine.clone(), unmet, stuck, fine, given_up];
    let begun = begin(&meta, &members, 0);
    assert_eq!(names(&meta), ["old", "taken", "watched"], "nothing is visible before the commit");
    let replies = commit(&meta, &begun, &ends).unwrap();
    check(&meta);
    let code_of = |reply: &MemberReply| match reply {
        MemberReply::Visible(_) => "visible".to_owned(),
        MemberReply::Unmet(check) => format!("unmet {check}"),
        MemberReply::Refused { code, .. } => format!("{:?}", tonic::Code::from_i32(*code)),
    };
    assert_eq!(
        replies.iter().map(code_of).collect::<Vec<_>>(),
        ["visible", "AlreadyExists", "unmet 0", "NotFound", "visible", "Aborted"]
    );
    assert_eq!(names(&meta), ["new", "old", "taken", "watched"]);
    let id = begun.0;
    // Blocks tell of those that did not appear, so agents must hear that they are gone.
    assert_eq!(buried(&meta), [id + 2, id + 3, id + 4, old, id + 6]);
    let snapshot = meta.snapshot().unwrap();
    assert_eq!(snapshot.left_behind().unwrap(), 5);
    for (name, at) in [("new", 0), ("old", 8)] {
        let (info, (first, stripes), _) = snapshot.view(name, (0, Some(1)), 9).unwrap();
        assert_eq!((info.size, info.stripes, info.created, info.encoded), (2, 1, 7, true));
        assert_eq!((first, stripes.len(), stripes[0].offset, stripes[0].before), (0, 1, 0, at), "{name}");
        assert_eq!(stripes[0].layout.data_bytes, 12);
    }
    assert_eq!(snapshot.whose(id).unwrap(), Some(Whose::Objects("new".into(), 2)));
    // The same call again, since its answer may be lost.
    let again = commit(&meta, &begun, &vec![MemberEnd::default(); 6]).unwrap();
    assert_eq!((&again[0], &again[4]), (&replies[0], &replies[4]));
    assert!(matches!(again[1], MemberReply::Refused { .. }), "{again:?}");
    assert!(meta.abort_put(id).is_err(), "it is visible");
}

#[test]
fn the_stripe_goes_with_the_last_member() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let (id, objects) = pack(&meta, &["a", "b", "c"]);
    let totals = || meta.snapshot().unwrap().totals().unwrap();
    assert_eq!((totals().objects, totals().object_bytes, totals().stripes), (3, 12, 1));
    meta.remove("b").unwrap();
    store(&meta, "a", 8, 4);
    check(&meta);
    assert_eq!((totals().objects, totals().object_bytes, totals().stripes, totals().garbage), (2, 12, 2, 0));
    assert_eq!(meta.snapshot().unwrap().whose(id).unwrap(), Some(Whose::Objects("c".into(), 1)));
    // A new name does not change where it is.
    let rename = Step::Rename { from: "c".into(), to: "d".into(), newest_first: false };
    let code = code();
    let rename = Change { checks: vec![], steps: vec![rename] };
    assert_eq!(meta.change(&rename, Making { code: &code, now: 8 }).unwrap(), Changed::Done(vec![]));
    assert_eq!(meta.snapshot().unwrap().view("d", (0, None), 1).unwrap().1.1[0].before, 8);
    meta.remove("d").unwrap();
    check(&meta);
    assert_eq!((totals().objects, totals().stripes, totals().garbage), (1, 1, 4));
    assert_eq!(buried(&meta), [objects[1].id, objects[0].id, objects[2].id, id]);
    assert!(meta.remove("d").is_err());
}

#[test]
fn of_two_members_of_a_name_the_later_one_stays() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let (id, objects) = pack(&meta, &["a", "a"]);
    check(&meta);
    assert_eq!((objects[0].id, objects[1].id), (id + 1, id + 2));
    assert_eq!(meta.snapshot().unwrap().object("a").unwrap().id, id + 2);
    assert_eq!(meta.snapshot().unwrap().view("a", (0, None), 1).unwrap().1.1[0].before, 4);
    assert_eq!(buried(&meta), [id + 1]);
}

#[test]
fn a_pack_of_which_nothing_appears_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    store(&meta, "a", 8, 4);
    let begun = begin(&meta, &[member("a", 4, false)], 0);
    assert!(commit(&meta, &begun, &[]).is_err(), "one member too few");
    let replies = commit(&meta, &begun, &[MemberEnd::default()]).unwrap();
    assert!(matches!(replies[..], [MemberReply::Refused { .. }]), "{replies:?}");
    check(&meta);
    let totals = meta.snapshot().unwrap().totals().unwrap();
    assert_eq!((totals.objects, totals.stripes, totals.puts, totals.garbage), (1, 1, 0, 3));
    let aborted = begin(&meta, &[member("b", 4, false), member("c", 4, false)], 0);
    assert!(meta.abort_put(aborted.0).unwrap());
    assert!(commit(&meta, &aborted, &vec![MemberEnd::default(); 2]).is_err());
    check(&meta);
}

#[test]
fn a_member_is_no_part_of_a_joined_object() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    pack(&meta, &["a", "b"]);
    let (name, parts) = ("whole".into(), vec!["a".into(), "b".into()]);
    let join = Step::Join { name, parts, attributes: Default::default(), checksum: None };
    let code = code();
    let change = Change { checks: vec![], steps: vec![join] };
    let error = meta.change(&change, Making { code: &code, now: 8 }).unwrap_err().to_string();
    assert!(error.contains("stripes of their own") && error.contains("a, which shares"), "{error}");
    assert_eq!(names(&meta), ["a", "b"]);
}

#[test]
fn ids_of_members_are_not_given_again_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    meta.begin(ClusterId([1; 16]), 5, false).unwrap();
    let many: Vec<_> = (0..8).map(|i| member(&format!("m{i}"), 2, false)).collect();
    let (before, _) = begin(&meta, &many, 0);
    // What was begun may be lost.
    let (_keep, crashed) = super::tests::after_a_crash(dir.path());
    crashed.begin(ClusterId([1; 16]), 6, false).unwrap();
    let (after, _) = begin(&crashed, &many, 0);
    assert!(after > before + 8, "{after} and {before}");
}

/// What a rebuild finds of a pack, of which blocks 0 and 1 are there.
pub(crate) fn find(meta: &Meta, id: u64, stripe: u64, members: &[NewMember]) -> Shown {
    let code = kintsu_code::parse("rs:n=4,k=2").unwrap();
    let layout = kintsu_plan::Layout {
        kind: kintsu_plan::LayoutKind::Striped,
        block_bytes: 8,
        cell_bytes: 8,
        w: 1,
        data_bytes: 16,
    };
    let object = ObjectLabel {
        id,
        name: name_of(id),
        size: Some(16),
        created: 5,
        encoding: kintsu_wire::message::Encoding::Online,
        code: CodeLabel::of(code.as_ref(), None),
        attributes: Default::default(),
        members: labels(id, members.to_vec()),
    };
    let homes = (0..4).map(|i| Some(NodeId(i))).collect();
    let label = Label { cluster: ClusterId([1; 16]), object: object.clone(), offset: 0, layout, homes };
    let stripe = kintsu_dag::StripeId(stripe);
    let labels = HashMap::from([(stripe, Bytes::from(label.pack()))]);
    for index in [0, 1] {
        let block = kintsu_dag::BlockId { stripe, index: kintsu_dag::BlockIndex(index) };
        let held = HeldBlock { id: block, generation: 1, len: 8, digest: [index + 1; 16] };
        meta.note_found(NodeId(index.into()), &[held], &labels).unwrap();
    }
    shown(meta, id)
}

pub(crate) fn shown(meta: &Meta, id: u64) -> Shown {
    let code = kintsu_code::parse("rs:n=4,k=2").unwrap();
    let (object, stripes) = meta.snapshot().unwrap().found(id).unwrap().unwrap();
    let (nodes, encoding) = (Default::default(), object.encoding);
    let wanted = Wanted { id, size: 16, encoding, code: code.as_ref(), key: 0, nodes: &nodes };
    let stripes = assemble(wanted, &stripes).unwrap();
    Shown { object, code: CodeRecord::of(code.as_ref()), stripes }
}

#[test]
fn a_rebuild_brings_back_the_members_that_nobody_removed() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    meta.begin_rebuild().unwrap();
    let four = |name: &str| member(name, 4, false);
    let found = find(&meta, 10, 100, &[four("a"), four("b"), four("a"), four("c")]);
    let done = meta.show_found_pack(&found, |id| id == 12, 9).unwrap();
    check(&meta);
    // The first "a" was replaced by the second.
    assert_eq!((done.shown, done.unheard.len(), done.covered.len()), (2, 4, 1));
    assert_eq!((done.covered[0].0.id, done.covered[0].1), (11, 13));
    assert_eq!(names(&meta), ["a", "c"]);
    let snapshot = meta.snapshot().unwrap();
    for (name, id, at) in [("a", 13, 8), ("c", 14, 12)] {
        let object = snapshot.object(name).unwrap();
        assert_eq!((object.id, object.size, object.created), (id, 4, 5));
        assert_eq!(snapshot.view(name, (0, None), 1).unwrap().1.1[0].before, at);
    }
    let pack = snapshot.pack(10).unwrap().unwrap();
    assert_eq!((pack.size, pack.count, pack.left), (16, 4, 2));
    assert!(snapshot.next_stripe().unwrap() > 100);
    drop(snapshot);
    // Without the newer one the older one comes back, from the stripe that is visible already.
    meta.remove("a").unwrap();
    let again = meta.show_found_pack(&shown(&meta, 10), |id| id == 12 || id == 13, 9).unwrap();
    assert_eq!((again.shown, again.covered.len()), (1, 0));
    check(&meta);
    assert_eq!(meta.snapshot().unwrap().object("a").unwrap().id, 11);
    assert!(meta.snapshot().unwrap().found(10).unwrap().is_none(), "nothing is left to find");
    // An agent remembers more.
    assert_eq!(meta.drop_buried(&[(11, 20)]).unwrap(), ["a", "c"]);
    check(&meta);
    let totals = meta.snapshot().unwrap().totals().unwrap();
    assert_eq!((totals.objects, totals.stripes, totals.garbage), (0, 0, 4));
}

#[test]
fn a_pack_whose_members_are_all_older_stays_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    meta.begin_rebuild().unwrap();
    let found = find(&meta, 10, 100, &[member("a", 4, false)]);
    // Ids have leapt beyond those that were found.
    store(&meta, "a", 8, 4);
    let done = meta.show_found_pack(&found, |_| false, 9).unwrap();
    assert_eq!((done.shown, done.covered.len()), (0, 1));
    check(&meta);
    assert!(meta.snapshot().unwrap().pack(10).unwrap().is_none());
    assert!(meta.snapshot().unwrap().found(10).unwrap().is_some());
    assert_eq!(meta.show_found_pack(&found, |_| true, 9).unwrap(), ShownPack::default());
    assert!(meta.snapshot().unwrap().found(10).unwrap().is_none(), "they are gone for good");
}

#[test]
fn a_label_that_cannot_be_true_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    meta.begin_rebuild().unwrap();
    let found = find(&meta, 10, 100, &[member("a", 4, false)]);
    let good = found.object.members[0].clone();
    for bad in [
        MemberLabel { id: 10, ..good.clone() },
        MemberLabel { id: 10_000, ..good.clone() },
        MemberLabel { at: 13, ..good.clone() },
        MemberLabel { at: u64::MAX, ..good.clone() },
        MemberLabel { size: 0, ..good.clone() },
    ] {
        let object = ObjectLabel { members: vec![bad.clone()], ..found.object.clone() };
        let refused = meta.show_found_pack(&Shown { object, ..found.clone() }, |_| false, 9);
        assert!(matches!(refused, Err(CoordinatorError::Corrupt { .. })), "{bad:?}: {refused:?}");
    }
    assert!(names(&meta).is_empty());
}

#[test]
fn what_a_block_that_is_repaired_says_leaves_out_who_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let (id, objects) = pack(&meta, &["a", "b", "c"]);
    meta.remove("b").unwrap();
    let snapshot = meta.snapshot().unwrap();
    let row = snapshot.pack(id).unwrap().unwrap();
    let code = CodeLabel::of(kintsu_code::parse("rs:n=4,k=2").unwrap().as_ref(), None);
    let label = packs::label(id, &row, snapshot.members(id, &row).unwrap(), code);
    let said: BTreeMap<_, _> =
        label.members.iter().map(|m| (m.name.as_str(), (m.id, m.at, m.size))).collect();
    assert_eq!(said, [("a", (objects[0].id, 0, 4)), ("c", (objects[2].id, 8, 4))].into());
    assert_eq!((label.id, label.size, label.created), (id, Some(12), 7));
}
