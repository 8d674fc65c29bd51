//! Rebuilds metadata from the blocks that agents hold. After agents have reported their blocks, a pass makes
//! every object visible that can be read, one object after another, the newest first.
//!
//! An object that any agent remembers as removed does not become visible; if it is visible already, it is
//! removed. So each pass first asks all living agents, and does not begin until each of them has answered.
//! Nothing is deleted until an operator has ended the rebuild.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kintsu_code::{Code, USER};
use kintsu_dag::{NodeId, StripeId};
use kintsu_wire::message::{CodeLabel, Covered, DigestBytes, Incomplete, MemberLabel, Nothing, ObjectLabel};

use super::guard::guarded;
use crate::answer::answer;
use crate::cluster::Cluster;
use crate::engine::rebuild::{Pass, Ranges, Wanted, assemble, is_in};
use crate::error::{CoordinatorError, Result};
use crate::meta::{CodeRecord, Meta, NodeRecord, Shown, ShownPack, StripeRecord};

/// How long a pass waits after a report: agents often report at about the same time.
const QUIET: Duration = Duration::from_secs(1);
/// While agents are still reporting, a pass waits again, up to this many times.
const MOST_WAITS: u32 = 20;
/// Delay before a pass that failed is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// How long an agent may take to say which objects it remembers as removed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes passes until the coordinator ends.
pub async fn rebuild(cluster: Arc<Cluster>) {
    loop {
        tokio::select! {
            () = cluster.rebuilt.notified() => {}
            () = tokio::time::sleep(AGAIN) => {}
        }
        if !cluster.is_rebuilding() || cluster.rebuild().is_settled() {
            continue;
        }
        for _ in 0..MOST_WAITS {
            tokio::time::sleep(QUIET).await;
            if cluster.reports().is_empty() {
                break;
            }
        }
        if let Err(error) = guarded(pass(&cluster)).await {
            tracing::warn!("rebuilding has to wait: {error}");
            cluster.rebuild().waits(error.to_string());
        }
    }
}

/// Makes all objects visible that are complete now.
///
/// # Errors
/// An agent does not say which objects it remembers as removed; the disk fails.
pub(super) async fn pass(cluster: &Arc<Cluster>) -> Result<()> {
    let tellings = cluster.rebuild().tellings();
    let removed = removed(cluster).await?;
    let worker = cluster.clone();
    let pass = cluster.meta.off(move |meta| build(&worker, meta, &removed)).await?;
    for name in &pass.dropped {
        tracing::warn!("{name:?} is removed: an agent remembers its removal");
    }
    let status = {
        let mut rebuild = cluster.rebuild();
        rebuild.passed(tellings, pass);
        rebuild.status(true)
    };
    tracing::warn!(
        "rebuilding: {} agents, {} blocks, {} objects back, {} incomplete, {} older versions (`kintsu rebuild` shows them, \
         `kintsu rebuild finish` ends it)",
        status.agents,
        status.blocks,
        status.shown,
        status.incomplete,
        status.covered
    );
    cluster.auto().nodes_changed();
    Ok(())
}

/// The objects that the metadata or any living agent remember as removed, as ordered ranges of ids.
async fn removed(cluster: &Arc<Cluster>) -> Result<Ranges> {
    let living: Vec<(NodeId, u64)> = {
        let members = cluster.members();
        members.iter().filter(|(_, m)| m.up).map(|(node, m)| (node, m.record.incarnation)).collect()
    };
    let unasked = cluster.rebuild().unasked(living);
    for (node, start) in unasked {
        let mut agent = cluster.agent(node)?;
        let late = "it did not say which objects are removed";
        let ranges = answer(node, PATIENCE, late, agent.removed(Nothing {})).await?.ranges;
        cluster.rebuild().remembers(node, start, ranges);
    }
    let own = cluster.meta.off(|meta| meta.snapshot()?.tombstones(0, usize::MAX)).await?;
    Ok(cluster.rebuild().removed(own.into_iter().map(|(_, object)| object)))
}

/// Does the work of one pass, over all objects that were found. Blocking.
fn build(cluster: &Cluster, meta: &Meta, removed: &Ranges) -> Result<Pass> {
    let mut pass = Pass::new(meta.drop_buried(removed)?);
    let mut codes = Codes::default();
    // Packs that objects moved into come last: these objects are older than what was written under their names since.
    let mut queue: VecDeque<_> =
        meta.snapshot()?.found_objects()?.into_iter().map(|id| (id, false)).collect();
    while let Some((id, is_last)) = queue.pop_front() {
        let snapshot = meta.snapshot()?;
        if is_in(removed, id) || snapshot.name(id)?.is_some() || snapshot.put(id)?.is_some() {
            meta.drop_found(&[id])?;
            continue;
        }
        let Some((object, found)) = snapshot.found(id)? else { continue };
        if !is_last && object.members.iter().any(|member| member.id < id) {
            queue.push_back((id, true));
            continue;
        }
        let newer = snapshot.object_id(&object.name)?.filter(|known| *known > id);
        let nodes: BTreeSet<NodeId> = snapshot.nodes()?.into_keys().collect();
        let seen = found.iter().map(|stripe| stripe.offset.saturating_add(stripe.layout.data_bytes)).max();
        let whole = codes.find(&object.code).and_then(|code| {
            let endless = || "nothing was found of its last stripe, which alone tells the size of a stream";
            let size = object.size.ok_or_else(|| endless().to_owned())?;
            let encoding = object.encoding;
            let wanted = Wanted { id, size, encoding, code: code.as_ref(), key: 0, nodes: &nodes };
            Ok((CodeRecord::of(code.as_ref()), assemble(wanted, &found)?))
        });
        drop(found);
        if !object.members.is_empty() {
            show_pack((cluster, meta), &mut pass, (object, whole), removed)?;
            continue;
        }
        let (name, size) = (object.name.clone(), object.size.or(seen).unwrap_or_default());
        if let Some(by) = newer {
            // An older version: its blocks stay where they are, and stay unknown.
            if whole.is_ok() {
                pass.covered(Covered { name, version: id, size, created: object.created, by });
            }
            continue;
        }
        let shown = match whole {
            Ok((code, stripes)) => {
                judged(meta.show_found(Shown { object, code, stripes }, cluster.unix_seconds()))?
            }
            Err(missing) => Err(missing),
        };
        match shown {
            Ok(None) => {}
            Ok(Some(unheard)) => {
                unheard_of(cluster, unheard);
                pass.shown += 1;
            }
            Err(missing) => pass.incomplete(Incomplete { name, version: id, size, missing }),
        }
    }
    meta.settle()?;
    Ok(pass)
}

/// What was found of an object, as records, or why it is not whole.
type Whole = Result<(CodeRecord, Vec<(StripeId, StripeRecord)>), String>;

/// The same for the members of a pack.
fn show_pack(
    (cluster, meta): (&Cluster, &Meta),
    pass: &mut Pass,
    (object, whole): (ObjectLabel, Whole),
    removed: &Ranges,
) -> Result<()> {
    let is_removed = |id| is_in(removed, id);
    let (members, created) = (object.members.clone(), object.created);
    let shown = match whole {
        Ok((code, stripes)) => {
            let shown = Shown { object, code, stripes };
            judged(meta.show_found_pack(&shown, is_removed, cluster.unix_seconds()))?
        }
        Err(missing) => Err(missing),
    };
    match shown {
        Ok(ShownPack { shown, covered, unheard, .. }) => {
            unheard_of(cluster, unheard);
            pass.shown += shown;
            for (MemberLabel { id, name, size, .. }, by) in covered {
                pass.covered(Covered { name, version: id, size, created, by });
            }
        }
        Err(missing) => {
            let snapshot = meta.snapshot()?;
            for MemberLabel { id, name, size, .. } in members {
                let newer = snapshot.object_id(&name)?.is_some_and(|known| known >= id);
                if !newer && !is_removed(id) && snapshot.name(id)?.is_none() {
                    pass.incomplete(Incomplete { name, version: id, size, missing: missing.clone() });
                }
            }
        }
    }
    Ok(())
}

/// What was shown, or why it cannot be, for people; other errors end the pass.
fn judged<T>(shown: Result<T>) -> Result<Result<T, String>> {
    use CoordinatorError as E;
    match shown {
        Ok(shown) => Ok(Ok(shown)),
        Err(error @ (E::Conflict { .. } | E::NotFound { .. } | E::Corrupt { .. })) => {
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

/// Nodes that are known only from labels.
fn unheard_of(cluster: &Cluster, unheard: BTreeMap<NodeId, NodeRecord>) {
    let now = cluster.now_ms();
    let mut members = cluster.members();
    unheard.into_iter().for_each(|(node, record)| members.unheard(node, record, now));
}

/// The codes that labels name, each proved once per pass.
#[derive(Default)]
struct Codes(HashMap<(String, DigestBytes), Result<Arc<dyn Code>, String>>);

impl Codes {
    fn find(&mut self, label: &CodeLabel) -> Result<Arc<dyn Code>, String> {
        let key = (label.name.clone(), label.generator);
        self.0.entry(key).or_insert_with(|| prove(label)).clone()
    }
}

/// The code of a label, if its name still means the generator that the label records.
fn prove(label: &CodeLabel) -> Result<Arc<dyn Code>, String> {
    let name = &label.name;
    let code = match (&label.definition, name.starts_with(USER)) {
        (Some(definition), true) => definition.prove(),
        (None, false) => kintsu_code::parse(name),
        _ => {
            return Err(format!("code {name}: expected a definition if and only if it is a registered code"));
        }
    };
    let code = code.map_err(|e| format!("code {name}: {e}"))?;
    let now = CodeLabel::of(code.as_ref(), label.definition.clone());
    if (&now.name, now.n, now.k, now.w, now.generator) == (name, label.n, label.k, label.w, label.generator) {
        return Ok(code);
    }
    Err(format!("code {name}: expected the generator in the blocks' labels, got another one by this name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_counts_only_if_it_means_the_generator_of_the_label() {
        let code = kintsu_code::parse("rs:n=5,k=3").unwrap();
        let label = CodeLabel::of(code.as_ref(), None);
        assert_eq!(prove(&label).unwrap().name(), "rs:n=5,k=3");
        let other = CodeLabel { generator: [1; 16], ..label.clone() };
        assert!(prove(&other).unwrap_err().contains("another one by this name"));
        let nameless = CodeLabel { name: "user:mine".into(), ..label };
        assert!(prove(&nameless).unwrap_err().contains("expected a definition"));
    }
}
