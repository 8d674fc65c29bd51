//! Changes of names and attributes, without bytes: objects get other names, are joined, removed, described or made empty,
//! all in one transaction and only if what the caller believes is true ([`Change`]).
//!
//! Invariant: an id names one object as long as it exists, whatever its name; a join ends the ids of its parts.

use std::collections::BTreeMap;

use kintsu_wire::message::{
    Attributes, Change, Changed, Check, Checksum, Encoding, ObjectInfo, Step, check_facts, newest_first,
};
use redb::ReadableTable;

use super::objects::{add_object, drop_object, info};
use super::puts::invalid;
use super::record::{self, CodeRecord, ObjectRecord};
use super::write::Tables;
use super::{Meta, tables};
use crate::error::{CoordinatorError, Result};

/// What the steps need besides the tables.
#[derive(Clone, Copy)]
pub struct Making<'c> {
    /// The code that objects without bytes are said to have.
    pub code: &'c CodeRecord,
    /// Seconds since 1970.
    pub now: u64,
}

impl Meta {
    /// Takes all steps if all checks hold; else changes nothing.
    ///
    /// # Errors
    /// A step that cannot be taken: a name that is taken or of no object, facts that are too long, parts that cannot be
    /// joined. Then nothing changes.
    pub fn change(&self, change: &Change, making: Making<'_>) -> Result<Changed> {
        self.together(|t| match unmet(t, &change.checks)? {
            Some(check) => Ok(Changed::Unmet(check)),
            None => Ok(Changed::Done(take(t, &change.steps, making)?)),
        })
    }
}

/// The first check that does not hold.
pub(super) fn unmet(t: &Tables<'_>, checks: &[Check]) -> Result<Option<u32>> {
    for (i, check) in checks.iter().enumerate() {
        let holds = match check {
            Check::Is { name, id } => t.object(name)?.map(|object| object.id) == *id,
            Check::First { prefix, id } => first(t, prefix)? == *id,
            Check::Facts { name, facts } => {
                let has = t.object(name)?.map(|object| object.attributes.facts);
                has.is_some_and(|has| facts.iter().all(|(name, value)| has.get(name) == value.as_ref()))
            }
        };
        if !holds {
            return Ok(Some(i as u32));
        }
    }
    Ok(None)
}

/// The id of the first object whose name begins with a prefix.
fn first(t: &Tables<'_>, prefix: &str) -> Result<Option<u64>> {
    let Some(row) = t.objects.range(prefix..)?.next() else { return Ok(None) };
    let (name, row) = row?;
    if !name.value().starts_with(prefix) {
        return Ok(None);
    }
    Ok(Some(record::unpack::<ObjectRecord>("object", row.value())?.id))
}

/// Takes steps in order; returns the objects that they made.
pub(super) fn take(t: &mut Tables<'_>, steps: &[Step], making: Making<'_>) -> Result<Vec<ObjectInfo>> {
    let mut made = Vec::new();
    for step in steps {
        match step {
            Step::Remove { name } => {
                if let Some(object) = t.object(name)? {
                    drop_object(t, name, &object)?;
                }
            }
            Step::Rename { from, to, newest_first } => {
                let object = existing(t, from)?;
                let to = &in_order(t, to, *newest_first)?;
                vacant(t, to)?;
                t.objects.remove(from.as_str())?;
                t.set_object(to, &object)?;
                t.names.insert(object.id, to.as_str())?;
            }
            Step::Mark { name, newest_first, attributes } => {
                let name = in_order(t, name, *newest_first)?;
                made.push(mark(t, &name, attributes, making)?);
            }
            Step::Describe { name, facts } => {
                let mut object = existing(t, name)?;
                describe(&mut object.attributes.facts, facts)?;
                t.set_object(name, &object)?;
            }
            Step::Join { name, parts, attributes, checksum } => {
                made.push(join(t, name, parts, (attributes, *checksum), making.now)?);
            }
        }
    }
    Ok(made)
}

/// The name that a step gives.
fn in_order(t: &mut Tables<'_>, name: &str, ordered: bool) -> Result<String> {
    Ok(if ordered { newest_first(name, t.next(tables::COUNT_PUT, 1)?) } else { name.to_owned() })
}

fn mark(t: &mut Tables<'_>, name: &str, attributes: &Attributes, making: Making<'_>) -> Result<ObjectInfo> {
    vacant(t, name)?;
    let object = ObjectRecord {
        id: t.next(tables::COUNT_PUT, 1)?,
        size: 0,
        code: t.code_key(making.code)?,
        encoding: Encoding::Online,
        encoded: 0,
        created: making.now,
        runs: Vec::new(),
        checksum: Some(Checksum(0)),
        attributes: attributes.clone(),
        packed: None,
    };
    add_object(t, name, &object)?;
    Ok(info(name, &object, &making.code.name))
}

/// Makes the parts one object. Their stripes stay what they are; only their owner and their place in the object change.
fn join(
    t: &mut Tables<'_>,
    name: &str,
    parts: &[String],
    (attributes, checksum): (&Attributes, Option<Checksum>),
    now: u64,
) -> Result<ObjectInfo> {
    let id = t.next(tables::COUNT_PUT, 1)?;
    let (mut runs, mut size, mut encoded, mut code) = (Vec::new(), 0u64, 0u64, None);
    for part in parts {
        let object = existing(t, part)?;
        let (expected, has) = (*code.get_or_insert(object.code), object.code);
        if has != expected && object.size > 0 {
            let (expected, has) = (t.code(expected)?.name, t.code(has)?.name);
            return Err(invalid("parts of an object", format!("parts with the code {expected}"), has));
        }
        if object.plain() > 0 {
            let got = format!("{} stripes without parity in {part}", object.plain());
            return Err(invalid("parts of an object", "parts that have their parity".into(), got));
        }
        if object.packed.is_some() {
            let got = format!("{part}, which shares its stripe");
            return Err(invalid("parts of an object", "parts with stripes of their own".into(), got));
        }
        for (_, stripe) in object.ids(0, u64::MAX) {
            let mut row = t.stripe(stripe)?.ok_or_else(|| CoordinatorError::Corrupt {
                what: format!("stripe {stripe}"),
                expected: "a row for every stripe of an object".into(),
                got: "none".into(),
            })?;
            (row.owner, row.offset) = (id, row.offset + size);
            t.set_stripe(stripe, &row)?;
            record::push_id(&mut runs, stripe);
        }
        size += object.size;
        encoded += object.encoded;
        // Not buried: blocks of these stripes carry its id, and a rebuild of the metadata must still know them.
        t.objects.remove(part.as_str())?;
        t.names.remove(object.id)?;
        t.loose.remove(object.id)?;
        let bytes = t.counter(tables::COUNT_BYTES)?;
        t.set_counter(tables::COUNT_BYTES, bytes.saturating_sub(object.size))?;
    }
    let Some(code) = code else {
        return Err(invalid("parts of an object", "at least one".into(), "none".into()));
    };
    vacant(t, name)?;
    let (encoding, attributes) = (Encoding::Online, attributes.clone());
    let (created, packed) = (now, None);
    let object =
        ObjectRecord { id, size, code, encoding, encoded, created, runs, checksum, attributes, packed };
    add_object(t, name, &object)?;
    Ok(info(name, &object, &t.code(code)?.name))
}

/// Changes facts.
fn describe(facts: &mut BTreeMap<String, String>, news: &BTreeMap<String, Option<String>>) -> Result<()> {
    for (name, value) in news {
        match value {
            Some(value) => facts.insert(name.clone(), value.clone()),
            None => facts.remove(name),
        };
    }
    checked(facts)
}

/// Adds what the writer of an object learned at the end.
pub(super) fn add_facts(attributes: &mut Attributes, facts: &BTreeMap<String, String>) -> Result<()> {
    attributes.facts.extend(facts.iter().map(|(name, value)| (name.clone(), value.clone())));
    checked(&attributes.facts)
}

fn checked(facts: &BTreeMap<String, String>) -> Result<()> {
    check_facts(facts).map_err(|(expected, got)| invalid("facts of an object", expected, got))
}

fn existing(t: &Tables<'_>, name: &str) -> Result<ObjectRecord> {
    t.object(name)?.ok_or_else(|| CoordinatorError::NotFound { what: "object", name: name.into() })
}

fn vacant(t: &Tables<'_>, name: &str) -> Result<()> {
    if t.objects.get(name)?.is_none() {
        return Ok(());
    }
    let hint = "; a change gives only names that are free".to_owned();
    Err(CoordinatorError::Exists { what: "object", name: name.into(), hint })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::commit::Evidence;
    use crate::meta::tests::{code, homes, new_put, open, written};
    use kintsu_wire::message::{Ending, List};

    fn making(code: &CodeRecord) -> Making<'_> {
        Making { code, now: 7 }
    }

    /// Stores an object and returns its id.
    fn put(meta: &Meta, name: &str, size: u64) -> u64 {
        let (id, granted) =
            meta.begin_put(new_put(name, size, true, Encoding::Online), |_, l| Ok(homes(0, l))).unwrap();
        meta.commit_put(id, &written(&granted), 1).unwrap();
        id
    }

    fn names(meta: &Meta, prefix: &str) -> Vec<String> {
        let list = List { prefix: prefix.into(), after: None, limit: 100, delimiter: String::new() };
        let page = meta.snapshot().unwrap().list(&list).unwrap();
        page.objects.into_iter().map(|object| object.name).collect()
    }

    fn change(checks: Vec<Check>, steps: Vec<Step>) -> Change {
        Change { checks, steps }
    }

    fn rename(from: &str, to: &str) -> Step {
        Step::Rename { from: from.into(), to: to.into(), newest_first: false }
    }

    #[test]
    fn steps_are_taken_together_and_only_if_the_checks_hold() {
        let dir = tempfile::tempdir().unwrap();
        let (meta, code) = (open(dir.path()), code());
        let a = put(&meta, "a", 40);
        let is = |name: &str, id| Check::Is { name: name.into(), id };
        let first = |prefix: &str, id| Check::First { prefix: prefix.into(), id };
        for (i, wrong) in
            [is("a", None), is("a", Some(a + 1)), is("b", Some(a)), first("a", None), first("b", Some(a))]
                .into_iter()
                .enumerate()
        {
            let all = change(vec![is("a", Some(a)), wrong], vec![rename("a", "b")]);
            assert_eq!(meta.change(&all, making(&code)).unwrap(), Changed::Unmet(1), "{i}");
        }
        let mark = Step::Mark { name: "a".into(), newest_first: false, attributes: Attributes::default() };
        let both = change(vec![first("a", Some(a)), first("b", None)], vec![rename("a", "b"), mark.clone()]);
        let Changed::Done(made) = meta.change(&both, making(&code)).unwrap() else { panic!("unmet") };
        assert_eq!((made[0].name.as_str(), made[0].size, made[0].created), ("a", 0, 7));
        assert!(made[0].id > a);
        let view = meta.snapshot().unwrap().view("b", (0, None), 9).unwrap();
        assert_eq!((view.0.id, view.1.1.len()), (a, 3));
        assert_eq!(meta.snapshot().unwrap().name(a).unwrap().as_deref(), Some("b"));
        // The second step fails, so the first one is undone.
        let half = change(vec![], vec![rename("b", "c"), mark]);
        assert!(meta.change(&half, making(&code)).is_err());
        assert_eq!(names(&meta, ""), ["a", "b"]);
    }

    #[test]
    fn parts_become_one_object_whose_bytes_are_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let (meta, code) = (open(dir.path()), code());
        let parts = [(".s3/part/1", 40), (".s3/part/2", 0), (".s3/part/3", 70)];
        for (name, size) in parts {
            put(&meta, name, size);
        }
        let before = meta.snapshot().unwrap().totals().unwrap();
        let join = |parts: &[&str]| Step::Join {
            name: "whole".into(),
            parts: parts.iter().map(|part| part.to_string()).collect(),
            attributes: Attributes::default(),
            checksum: Some(Checksum(9)),
        };
        for wrong in [&[][..], &[".s3/part/1", ".s3/part/9"], &[".s3/part/1", ".s3/part/1"]] {
            assert!(meta.change(&change(vec![], vec![join(wrong)]), making(&code)).is_err());
        }
        let all = change(vec![], vec![join(&parts.map(|part| part.0))]);
        let Changed::Done(made) = meta.change(&all, making(&code)).unwrap() else { panic!("unmet") };
        assert_eq!((made[0].size, made[0].checksum), (110, Some(Checksum(9))));
        assert!(names(&meta, ".s3/").is_empty());
        let snapshot = meta.snapshot().unwrap();
        let after = snapshot.totals().unwrap();
        assert_eq!((after.object_bytes, after.stripes), (before.object_bytes, before.stripes));
        let stripes = snapshot.view("whole", (0, None), 99).unwrap().1.1;
        let mut end = 0;
        for (position, stripe) in stripes.iter().enumerate() {
            assert_eq!(stripe.offset, end);
            let upto = end + stripe.layout.data_bytes;
            for at in [end, upto - 1] {
                let found = snapshot.view("whole", (77, Some(at)), 1).unwrap().1;
                assert_eq!((found.0, found.1[0].id), (position as u64, stripe.id), "byte {at}");
            }
            end = upto;
        }
        assert_eq!(end, 110);
        let last = snapshot.view("whole", (0, Some(1 << 40)), 1).unwrap().1;
        assert_eq!(last.0, stripes.len() as u64 - 1);
        meta.remove("whole").unwrap();
        let none = meta.snapshot().unwrap().totals().unwrap();
        assert_eq!((none.object_bytes, none.stripes), (0, 0));
    }

    #[test]
    fn of_names_given_in_order_the_newest_is_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let (meta, code) = (open(dir.path()), code());
        let (older, newer) = (put(&meta, "older", 10), put(&meta, "newer", 10));
        // The younger object is put aside first: the order is that of the steps.
        for name in ["newer", "older"] {
            let step = Step::Rename { from: name.into(), to: "v/".into(), newest_first: true };
            meta.change(&change(vec![], vec![step]), making(&code)).unwrap();
        }
        let name = "v/".to_owned();
        let mark = Step::Mark { name, newest_first: true, attributes: Attributes::default() };
        let Changed::Done(made) = meta.change(&change(vec![], vec![mark]), making(&code)).unwrap() else {
            panic!("unmet")
        };
        let ids =
            names(&meta, "v/").into_iter().map(|name| meta.snapshot().unwrap().object(&name).unwrap().id);
        assert_eq!(ids.collect::<Vec<_>>(), [made[0].id, older, newer]);
    }

    #[test]
    fn facts_change_one_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let (meta, code) = (open(dir.path()), code());
        put(&meta, "a", 10);
        let describe = |facts: &[(&str, Option<&str>)]| {
            let facts = facts.iter().map(|(name, value)| (name.to_string(), value.map(str::to_owned)));
            let step = Step::Describe { name: "a".into(), facts: facts.collect() };
            meta.change(&change(vec![], vec![step]), making(&code))
        };
        describe(&[("etag", Some("e")), (".tags", Some("t"))]).unwrap();
        describe(&[(".tags", None), ("class", Some("c"))]).unwrap();
        let facts = meta.snapshot().unwrap().object("a").unwrap().attributes.facts;
        let text = |text: &str| text.to_owned();
        assert_eq!(facts, [(text("class"), text("c")), (text("etag"), text("e"))].into());
        let holds = |object: &str, facts: &[(&str, Option<&str>)]| {
            let facts = facts.iter().map(|(name, value)| (name.to_string(), value.map(str::to_owned)));
            let check = Check::Facts { name: object.into(), facts: facts.collect() };
            meta.change(&change(vec![check], vec![]), making(&code)).unwrap() == Changed::Done(vec![])
        };
        assert!(holds("a", &[("class", Some("c")), (".tags", None)]));
        for wrong in [("class", None), ("class", Some("d")), (".tags", Some("t"))] {
            assert!(!holds("a", &[wrong]), "{wrong:?}");
        }
        assert!(holds("a", &[]) && !holds("b", &[]), "facts of no object");
        assert!(describe(&[("", Some("x"))]).is_err());
        assert!(describe(&[("x", Some(&"x".repeat(70_000)))]).is_err());
    }

    #[test]
    fn a_put_ends_with_its_change_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let (meta, code) = (open(dir.path()), code());
        let old = put(&meta, "a", 40);
        let (id, granted) =
            meta.begin_put(new_put("a", 20, true, Encoding::Online), |_, l| Ok(homes(0, l))).unwrap();
        let written = written(&granted);
        let ending = |current| Ending {
            change: change(vec![Check::Is { name: "a".into(), id: current }], vec![rename("a", "older")]),
            facts: [("etag".to_owned(), "e".to_owned())].into(),
        };
        let (down, told) = (Default::default(), Default::default());
        let evidence = Evidence { down: &down, told: &told, bearable: &|_| false };
        let end = |ending| {
            meta.end_put(id, &written, (5, None), &evidence, Some((&ending, making(&code)))).unwrap()
        };
        assert_eq!(end(ending(None)), super::super::Commit::Unmet(0));
        assert_eq!(names(&meta, ""), ["a"]);
        let super::super::Commit::Visible(object) = end(ending(Some(old))) else { panic!("not visible") };
        assert_eq!((object.id, object.attributes.facts["etag"].as_str()), (id, "e"));
        assert_eq!(meta.snapshot().unwrap().object("older").unwrap().id, old);
        // Repeated after its answer was lost, it changes nothing more.
        let super::super::Commit::Visible(again) = end(ending(Some(old))) else { panic!("not visible") };
        assert_eq!(again, object);
        assert_eq!(names(&meta, ""), ["a", "older"]);
    }
}
