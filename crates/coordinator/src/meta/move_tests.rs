//! Small objects that move into packs: they stay what they are, what changed meanwhile stays where it is, and a rebuild finds
//! each once.

use kintsu_dag::NodeId;
use kintsu_wire::message::{
    Change, Checksum, Encoding, FaultKind, FindLoose, LooseStripe, MemberEnd, MemberReply, Moving, NewMember,
    Step,
};

use super::pack_tests::{begin, buried, commit, find, pack, shown};
use super::tests::{after_a_crash, check, code, homes, new_put, open, store, written};
use super::*;
use crate::engine::commit::Evidence;

fn loose(meta: &Meta) -> Vec<LooseStripe> {
    let find = FindLoose { after: 0, limit: 100, older_than_s: 0 };
    meta.snapshot().unwrap().loose(&find, 100).unwrap().stripes
}

/// Begins to move all objects of these loose stripes to nodes from `from` on, in the order in which they are named.
pub(crate) fn begin_moves(meta: &Meta, stripes: &[LooseStripe], from: u32) -> Result<(u64, Granted)> {
    let member = |stripe: &LooseStripe, id: u64, size: u64| NewMember {
        name: String::new(),
        size,
        replace: false,
        attributes: Default::default(),
        moves: Some(Moving { id, stripe: stripe.stripe, created: 0 }),
    };
    let members = stripes.iter().flat_map(|s| s.members.iter().map(move |m| member(s, m.id, m.size)));
    let members = meta.snapshot()?.moving(members.collect(), &code().name)?;
    Ok(begin(meta, &members, from))
}

/// Moves what is loose and fits one stripe, of which an object may be removed meanwhile.
pub(crate) fn repack(meta: &Meta, from: u32, remove: Option<u8>, end: u8) {
    let mut bytes = 0;
    let fits = |stripe: &LooseStripe| {
        bytes += stripe.members.iter().map(|member| member.size).sum::<u64>();
        bytes <= 16
    };
    let stripes: Vec<_> = loose(meta).into_iter().take_while(fits).collect();
    if stripes.is_empty() {
        return;
    }
    let begun = begin_moves(meta, &stripes, from).unwrap();
    if let Some(name) = remove {
        let _ = meta.remove(&format!("o{name}"));
    }
    match end {
        0 => drop(meta.abort_put(begun.0).unwrap()),
        1 => {}
        _ => drop(commit(meta, &begun, &fine(stripes.iter().map(|s| s.members.len()).sum())).unwrap()),
    }
}

fn change(meta: &Meta, step: Step) {
    let code = code();
    let change = Change { checks: vec![], steps: vec![step] };
    meta.change(&change, Making { code: &code, now: 9 }).unwrap();
}

fn object(meta: &Meta, name: &str) -> ObjectRecord {
    meta.snapshot().unwrap().object(name).unwrap()
}

fn is_visible(reply: &MemberReply) -> bool {
    matches!(reply, MemberReply::Visible(_))
}

fn fine(count: usize) -> Vec<MemberEnd> {
    vec![MemberEnd::default(); count]
}

/// Stores an object of 2 bytes with a checksum.
fn put_with_sum(meta: &Meta, name: &str, sum: u64) {
    let (id, granted) =
        meta.begin_put(new_put(name, 2, true, Encoding::Online), |_, l| Ok(homes(0, l))).unwrap();
    let (down, told) = (Default::default(), Default::default());
    let evidence = Evidence { down: &down, told: &told, bearable: &|_| false };
    meta.try_commit(id, &written(&granted), (7, Some(Checksum(sum))), &evidence).unwrap();
}

#[test]
fn objects_that_move_stay_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    put_with_sum(&meta, "a", 5);
    store(&meta, "b", 2, 0);
    // Neither what is larger, nor what may be joined with others, nor a stripe of a volume.
    for (name, size) in [("large", 3), (".s3/part/x/1", 2), (".volume/1/1", 2), ("long", 40)] {
        store(&meta, name, size, 0);
    }
    let facts = [("lock".to_owned(), Some("on".to_owned()))].into();
    change(&meta, Step::Describe { name: "a".into(), facts });
    let (before, stripes) = (["a", "b"].map(|name| object(&meta, name)), loose(&meta));
    assert_eq!(stripes.iter().map(|s| s.members[0].id).collect::<Vec<_>>(), before.clone().map(|o| o.id));
    assert_eq!((stripes[0].size, stripes[0].block_bytes, stripes[0].cell_bytes), (2, 8, 4));
    // What is hidden from listings is not checked below.
    [".s3/part/x/1", ".volume/1/1"].iter().for_each(|name| _ = meta.remove(name).unwrap());
    let gone = buried(&meta);
    let totals = || meta.snapshot().unwrap().totals().unwrap();
    let was = totals();

    let begun = begin_moves(&meta, &stripes, 4).unwrap();
    // Its name is that of now when it moves.
    change(&meta, Step::Rename { from: "b".into(), to: "c".into(), newest_first: false });
    assert_eq!(loose(&meta), stripes, "nothing moves before the commit");
    let (_keep, crashed) = after_a_crash(dir.path());
    assert_eq!(object(&crashed, "a"), before[0]);
    let ends = [MemberEnd { checksum: Some(Checksum(5)), ..MemberEnd::default() }, MemberEnd::default()];
    let replies = commit(&meta, &begun, &ends).unwrap();
    assert!(replies.iter().all(is_visible), "{replies:?}");
    check(&meta);
    let (_keep, crashed) = after_a_crash(dir.path());
    check(&crashed);
    for (meta, (name, old, at)) in [&meta, &crashed]
        .into_iter()
        .flat_map(|meta| [("a", &before[0], 0), ("c", &before[1], 2)].into_iter().map(move |of| (meta, of)))
    {
        let new = object(meta, name);
        let place = new.packed.unwrap();
        assert_eq!((place.pack, place.at), (begun.0, at));
        assert_eq!(ObjectRecord { packed: None, runs: old.runs.clone(), ..new }, *old);
        assert_eq!(meta.snapshot().unwrap().view(name, (0, None), 1).unwrap().1.1[0].before, at);
    }
    // Two stripes of three blocks each are gone, and one has come. No tombstone says that an object is gone.
    let (now, blocks) = (totals(), 2 * 3);
    assert_eq!((now.objects, now.object_bytes), (was.objects, was.object_bytes));
    assert_eq!((now.stripes + 1, now.garbage), (was.stripes, was.garbage + blocks));
    assert_eq!(buried(&meta), gone);
    // The same call again, since its answer may be lost.
    assert_eq!(commit(&meta, &begun, &ends).unwrap(), replies);

    meta.remove("a").unwrap();
    meta.remove("c").unwrap();
    check(&meta);
    assert_eq!(buried(&meta)[gone.len()..], [before[0].id, before[1].id, begun.0]);
}

#[test]
fn what_changed_meanwhile_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let names = ["removed", "replaced", "other", "given", "fine"];
    names.iter().for_each(|name| put_with_sum(&meta, name, 5));
    let (stripes, old) = (loose(&meta), names.map(|name| object(&meta, name)));
    let begun = begin_moves(&meta, &stripes, 4).unwrap();
    meta.remove("removed").unwrap();
    store(&meta, "replaced", 2, 0);
    let gone = buried(&meta);
    let mut ends = fine(5);
    ends[2].checksum = Some(Checksum(6));
    ends[3].given_up = true;
    let replies = commit(&meta, &begun, &ends).unwrap();
    assert_eq!(replies.iter().map(is_visible).collect::<Vec<_>>(), [false, false, false, false, true]);
    check(&meta);
    assert_eq!(buried(&meta), gone, "what did not move has its own tombstone, or none");
    assert_eq!(["other", "given"].map(|name| object(&meta, name)), [old[2].clone(), old[3].clone()]);
    assert_eq!(object(&meta, "fine").packed.unwrap().at, 8);
    assert_eq!(commit(&meta, &begun, &ends).unwrap().iter().filter(|reply| is_visible(reply)).count(), 1);

    // Of two that copy one object, the first moves it. A pack of which nothing moved goes.
    let stripes: Vec<_> = loose(&meta).into_iter().filter(|s| s.members[0].id == old[2].id).collect();
    let (first, second) =
        (begin_moves(&meta, &stripes, 4).unwrap(), begin_moves(&meta, &stripes, 4).unwrap());
    assert!(is_visible(&commit(&meta, &second, &fine(1)).unwrap()[0]));
    assert!(!is_visible(&commit(&meta, &first, &fine(1)).unwrap()[0]));
    check(&meta);
    assert_eq!(object(&meta, "other").packed.unwrap().pack, second.0);
    assert_eq!(buried(&meta).last(), Some(&first.0));
    // Who comes later is refused at once.
    assert!(matches!(begin_moves(&meta, &stripes, 4), Err(CoordinatorError::Conflict { .. })));
    assert!(meta.abort_put(begin_moves(&meta, &loose(&meta), 4).unwrap().0).unwrap());
    check(&meta);
}

#[test]
fn a_pack_that_is_mostly_gone_is_left_by_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let (old, objects) = pack(&meta, &["a", "b", "c", "d"]);
    meta.remove("b").unwrap();
    meta.remove("c").unwrap();
    assert_eq!(loose(&meta), [], "half of it is there");
    meta.remove("d").unwrap();
    check(&meta);
    let stripes = loose(&meta);
    assert_eq!((stripes.len(), stripes[0].size, stripes[0].members[0].id), (1, 16, objects[0].id));
    let (older, upto) = (FindLoose { after: 0, limit: 9, older_than_s: 90 }, 100 - 90 - 4);
    assert_eq!(
        meta.snapshot().unwrap().loose(&older, upto + 90).unwrap().stripes,
        [],
        "written a moment ago"
    );
    let begun = begin_moves(&meta, &stripes, 4).unwrap();
    assert!(is_visible(&commit(&meta, &begun, &fine(1)).unwrap()[0]));
    check(&meta);
    let snapshot = meta.snapshot().unwrap();
    assert!(snapshot.pack(old).unwrap().is_none());
    assert_eq!(buried(&meta).last(), Some(&old));
    assert_eq!(snapshot.pack(begun.0).unwrap().unwrap().moved, [objects[0].id]);
    assert_eq!(snapshot.whose(begun.0).unwrap(), Some(crate::engine::damage::Whose::Objects("a".into(), 1)));
    assert_eq!(snapshot.totals().unwrap().stripes, 1);
    assert_eq!(loose(&meta), [], "four bytes are much in blocks of eight");
}

#[test]
fn loose_stripes_are_told_page_by_page_and_found_in_older_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    (0..5).for_each(|i| _ = store(&meta, &format!("{i}"), 2, 0));
    pack(&meta, &["a", "b", "c"]);
    ["a", "b"].iter().for_each(|name| _ = meta.remove(name).unwrap());
    check(&meta);
    let all = loose(&meta);
    assert_eq!(all.len(), 6);
    let (mut after, mut paged) = (Some(0), Vec::new());
    while let Some(from) = after {
        let page = FindLoose { after: from, limit: 2, older_than_s: 0 };
        let page = meta.snapshot().unwrap().loose(&page, 100).unwrap();
        assert!(page.stripes.len() <= 2);
        (after, paged) = (page.next, [paged, page.stripes].concat());
    }
    assert_eq!(paged, all);
    meta.write(|t| {
        t.loose.retain(|_, _| false)?;
        let ids: Vec<u64> =
            redb::ReadableTable::iter(&t.packs)?.map(|row| Ok(row?.0.value())).collect::<Result<_>>()?;
        for id in ids {
            let pack = t.pack(id)?.unwrap();
            t.set_pack(id, &PackRecord { live: 0, ..pack })?;
        }
        t.set_counter(tables::COUNT_VERSION, 6)
    })
    .unwrap();
    drop(meta);
    let meta = open(dir.path());
    check(&meta);
    assert_eq!(loose(&meta), all);
}

/// What a rebuild finds of a pack with id 30 into which objects moved.
fn find_moved(meta: &Meta, members: &[(u64, &str)]) -> Shown {
    let member = |&(id, name): &(u64, &str)| NewMember {
        name: name.into(),
        size: 16 / members.len() as u64,
        replace: false,
        attributes: Default::default(),
        moves: Some(Moving { id, stripe: kintsu_dag::StripeId(1), created: 3 }),
    };
    find(meta, 30, 300, &members.iter().map(member).collect::<Vec<_>>())
}

#[test]
fn a_rebuild_finds_an_object_once_at_its_old_place_or_its_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    meta.begin_rebuild().unwrap();
    // The old place of 11 is there, that of 12 is not; 13 is removed, and 14 is covered by what was written later.
    let (id, _) = pack(&meta, &["x"]);
    let four = |name: &str| NewMember {
        name: name.into(),
        size: 4,
        replace: false,
        attributes: Default::default(),
        moves: None,
    };
    let old = find(&meta, 10, 100, &[four("a")]);
    assert_eq!(meta.show_found_pack(&old, |_| false, 9).unwrap().shown, 1);
    let found = find_moved(&meta, &[(11, "a"), (12, "b"), (13, "c"), (14, "x")]);
    let done = meta.show_found_pack(&found, |id| id == 13, 9).unwrap();
    check(&meta);
    assert_eq!((done.shown, done.elsewhere, done.covered.len()), (1, 0, 1));
    assert_eq!(done.covered[0].1, id + 1);
    let (a, b) = (object(&meta, "a"), object(&meta, "b"));
    // Blocks 2 and 3 of the old place are lost, so it moves.
    assert_eq!((a.id, a.packed.unwrap().pack, a.created), (11, 30, 5));
    assert_eq!((b.id, b.packed.unwrap().pack, b.packed.unwrap().at, b.created), (12, 30, 4, 3));
    let snapshot = meta.snapshot().unwrap();
    assert_eq!(snapshot.pack(30).unwrap().unwrap().left, 2);
    assert!(snapshot.pack(10).unwrap().is_none() && snapshot.object("c").is_err());
    // The next pass finds nothing new, and keeps what may come back.
    let again = meta.show_found_pack(&shown(&meta, 30), |id| id == 13, 9).unwrap();
    assert_eq!((again.shown, again.covered.len()), (0, 1));
    meta.remove("x").unwrap();
    assert_eq!(meta.show_found_pack(&shown(&meta, 30), |id| id == 13, 9).unwrap().shown, 1);
    check(&meta);
    assert_eq!(object(&meta, "x").id, 14);
    assert!(meta.snapshot().unwrap().found(30).unwrap().is_none());
}

#[test]
fn older_metadata_follow_an_object_that_moved_since() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    (0..11).for_each(|i| _ = store(&meta, &format!("{i}"), 16, 0));
    meta.begin_rebuild().unwrap();
    let old = object(&meta, "3");
    let found = find_moved(&meta, &[(old.id, "3")]);
    let done = meta.show_found_pack(&found, |_| false, 9).unwrap();
    assert_eq!((done.shown, done.elsewhere), (0, 1));
    assert_eq!(object(&meta, "3"), old, "its place is whole");
    let lost = meta.snapshot().unwrap().stripe(old.ids(0, 1)[0].1).unwrap().unwrap();
    let node = lost.blocks[0].unwrap().node;
    let id = kintsu_dag::BlockId { stripe: old.ids(0, 1)[0].1, index: kintsu_dag::BlockIndex(0) };
    assert_eq!(node, NodeId(0));
    meta.mark_lost(&[LostBlock { id, node, why: FaultKind::Missing }]).unwrap();
    let done = meta.show_found_pack(&shown(&meta, 30), |_| false, 9).unwrap();
    check(&meta);
    assert_eq!((done.shown, done.elsewhere), (0, 0));
    let new = object(&meta, "3");
    assert_eq!(new.packed.unwrap().pack, 30);
    assert_eq!(ObjectRecord { packed: None, runs: old.runs.clone(), ..new }, old);
}
