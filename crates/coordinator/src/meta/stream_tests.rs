//! Streams, whose size is told at their end, and the attributes of objects.

use kintsu_dag::NodeId;
use kintsu_plan::{Division, LayoutKind};
use kintsu_wire::message::{Attributes, Checksum, Encoding, ObjectInfo, WrittenStripe};

use super::tests::{BLOCK, K, after_a_crash, all, check, homes, new_put, open, written};
use super::*;
use crate::engine::commit::Evidence;

/// The digests of these stripes.
fn written_of(stripes: &[PendingStripe]) -> Vec<WrittenStripe> {
    written(&Granted { encoding: Encoding::Online, stripes: stripes.to_vec() })
}

/// Puts a stream of `pieces` full stripes and `rest` bytes, and returns its id and stripes.
fn streamed(meta: &Meta, name: &str, pieces: u64, rest: u64) -> (u64, Vec<PendingStripe>) {
    let full = BLOCK * u64::from(K);
    let division = Division::of_stream(K.into(), 1, LayoutKind::Striped, BLOCK, 4).unwrap();
    let new = NewPut { size: None, division, ..new_put(name, 0, false, Encoding::Online) };
    let (id, first) = meta.begin_put(new, |_, l| Ok(homes(0, l))).unwrap();
    let (mut granted, mut done) = (first.stripes, Vec::new());
    let size = pieces * full + rest;
    let last = size.div_ceil(full) - 1;
    for at in 0..=last {
        if at == last || granted.len() as u64 == at {
            let told = (&written_of(&done)[..], (at == last).then_some(size));
            let ask = || meta.more_stripes(id, at, 1 << 20, told, |_, _, l| Ok(homes(0, l))).unwrap();
            let more = ask();
            assert_eq!(ask(), more, "a lost reply is repeated");
            assert!(more.stripes.len() as u64 <= at.max(2), "{} at {at}", more.stripes.len());
            granted.truncate(at as usize);
            granted.extend(more.stripes);
        }
        done.push(granted[at as usize].clone());
    }
    assert_eq!(granted.len(), done.len(), "what was granted beyond the end is undone");
    check(meta);
    (id, done)
}

#[test]
fn a_stream_gets_stripes_until_its_size_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let full = BLOCK * u64::from(K);
    for (i, (pieces, rest)) in
        [(1, 1), (2, 0), (2, full - 1), (3, 0), (5, 3), (8, 0), (9, 1)].into_iter().enumerate()
    {
        let name = format!("s{i}");
        let (id, stripes) = streamed(&meta, &name, pieces, rest);
        // The layouts are those of an object of known size.
        let size = pieces * full + rest;
        let like = Division::new(size, K.into(), 1, LayoutKind::Striped, BLOCK, 4).unwrap();
        let layouts: Vec<_> = stripes.iter().map(|s| (s.offset, s.layout)).collect();
        assert_eq!(layouts, (0..like.count()).map(|i| like.stripe(i)).collect::<Vec<_>>());
        let (_copy, crashed) = after_a_crash(dir.path());
        for meta in [&crashed, &meta] {
            let info = meta.commit_put(id, &written_of(&stripes), 7).unwrap();
            assert_eq!((info.size, info.stripes), (size, stripes.len() as u64));
            check(meta);
        }
    }
}

#[test]
fn a_stream_without_an_end_is_no_object_and_leaves_only_garbage() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let division = Division::of_stream(K.into(), 1, LayoutKind::Striped, BLOCK, 4).unwrap();
    let new = NewPut { size: None, division, ..new_put("s", 0, false, Encoding::Online) };
    let (id, put) = meta.begin_put(new, |_, l| Ok(homes(0, l))).unwrap();
    let refused = meta.commit_put(id, &written(&put), 1).unwrap_err();
    assert!(refused.to_string().contains("size was told"), "{refused}");
    let tell = |size| meta.more_stripes(id, 0, 9, (&[], Some(size)), |_, _, l| Ok(homes(0, l)));
    tell(20).unwrap();
    assert!(matches!(tell(21), Err(CoordinatorError::Invalid { .. })));
    assert!(meta.abort_put(id).unwrap());
    check(&meta);
    let totals = meta.snapshot().unwrap().totals().unwrap();
    assert_eq!((totals.puts, totals.objects, totals.stripes), (0, 0, 0));
}

#[test]
fn attributes_are_kept_and_rows_without_them_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let meta = open(dir.path());
    let attributes = Attributes {
        content_type: Some("text/plain".into()),
        user: [("a".to_owned(), "1".to_owned())].into(),
        facts: Default::default(),
    };
    let new = NewPut { attributes: attributes.clone(), ..new_put("a", 40, false, Encoding::Online) };
    let (id, put) = meta.begin_put(new, |_, l| Ok(homes(0, l))).unwrap();
    let (down, told) = Default::default();
    let evidence = Evidence { down: &down, told: &told, bearable: &|_| false };
    meta.try_commit(id, &written(&put), (7, Some(Checksum(5))), &evidence).unwrap();
    drop(meta);
    let meta = open(dir.path());
    let info = meta.snapshot().unwrap().view("a", (0, None), 0).unwrap().0;
    assert_eq!((info.checksum, &info.attributes), (Some(Checksum(5)), &attributes));
    let listed = meta.snapshot().unwrap().list(&all("")).unwrap().objects.remove(0);
    assert_eq!((listed.attributes.content_type, listed.attributes.user.len()), (attributes.content_type, 0));

    // Rows as they were before there were attributes: maps with these names and no others.
    #[derive(serde::Serialize)]
    struct Object {
        id: u64,
        size: u64,
        code: u16,
        encoding: Encoding,
        encoded: u64,
        created: u64,
        runs: Vec<(u64, u64)>,
    }
    #[derive(serde::Serialize)]
    struct Put {
        name: String,
        size: u64,
        code: u16,
        encoding: Encoding,
        replace: bool,
        division: Option<Division>,
        runs: Vec<(u64, u64)>,
        fences: std::collections::BTreeMap<NodeId, Fence>,
    }
    let (other, stripes) =
        meta.begin_put(new_put("b", 40, false, Encoding::Online), |_, l| Ok(homes(0, l))).unwrap();
    let row = meta.snapshot().unwrap().object("a").unwrap();
    let pending = meta.snapshot().unwrap().put(other).unwrap().unwrap();
    let ObjectInfo { created, encoding, .. } = info.clone();
    let (encoded, runs) = (row.encoded, row.runs);
    let old = Object { id, size: 40, code: row.code, encoding, encoded, created, runs };
    let old_put = Put {
        name: "b".into(),
        size: 40,
        code: pending.code,
        encoding,
        replace: false,
        division: pending.division,
        runs: pending.runs,
        fences: pending.fences,
    };
    meta.write(|t| {
        t.objects.insert("a", rmp_serde::to_vec_named(&old).unwrap().as_slice())?;
        t.puts.insert(other, rmp_serde::to_vec_named(&old_put).unwrap().as_slice())?;
        Ok(())
    })
    .unwrap();
    drop(meta);
    let meta = open(dir.path());
    let read = meta.snapshot().unwrap().view("a", (0, None), 0).unwrap().0;
    assert_eq!(read, ObjectInfo { checksum: None, attributes: Attributes::default(), ..info });
    let info = meta.commit_put(other, &written(&stripes), 1).unwrap();
    assert_eq!((info.size, info.stripes), (40, 3));
    check(&meta);
}
