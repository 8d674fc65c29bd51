//! Names and attributes of objects change together, if what the caller believes of them is true. No byte moves. Blocks of
//! removed objects become garbage.

use std::sync::Arc;

use kintsu_wire::message::{Change, Changed, Step};

use super::begin_put::{checked_attributes, checked_name};
use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};
use crate::meta::volumes::RESERVED;
use crate::meta::{CodeRecord, Making};

/// The code that objects without bytes are said to have. They have no stripes, so it protects nothing.
const CODE_OF_NOTHING: &str = "replication:n=2";

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, change: Change) -> Result<Changed> {
    check(&change)?;
    let (code, now) = (code_of_nothing()?, cluster.unix_seconds());
    let changed = cluster.meta.off(move |meta| meta.change(&change, Making { code: &code, now })).await?;
    cluster.sweep.notify_one();
    Ok(changed)
}

/// The record of the code for objects without bytes.
///
/// # Errors
/// None, as long as the family exists.
pub fn code_of_nothing() -> Result<CodeRecord> {
    Ok(CodeRecord::of(kintsu_code::parse(CODE_OF_NOTHING)?.as_ref()))
}

/// Checks what can be checked without the metadata: names and attributes.
///
/// # Errors
/// What was expected, and what came.
pub fn check(change: &Change) -> Result<()> {
    for step in &change.steps {
        if let Some(name) = step.names().iter().find(|name| name.starts_with(RESERVED)) {
            return Err(CoordinatorError::Invalid {
                what: "object name",
                expected: "an object; stripes of a volume go with the volume".into(),
                got: name.to_string(),
            });
        }
        match step {
            Step::Rename { to: name, .. } => checked_name(name)?,
            Step::Mark { name, attributes, .. } | Step::Join { name, attributes, .. } => {
                checked_name(name)?;
                checked_attributes(attributes)?;
            }
            Step::Remove { .. } | Step::Describe { .. } => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::lookup;
    use crate::handlers::tests::{cluster, put};
    use kintsu_wire::message::{Attributes, Check, Lookup};

    #[tokio::test]
    async fn an_object_without_bytes_can_be_marked_found_and_removed() {
        let (_dir, cluster) = cluster(4, 2).await;
        let name = "s3/b/a\u{1}".to_owned();
        let mark = || Change {
            checks: vec![Check::Is { name: name.clone(), id: None }],
            steps: vec![Step::Mark {
                name: name.clone(),
                newest_first: false,
                attributes: Attributes::default(),
            }],
        };
        let Changed::Done(made) = handle(&cluster, mark()).await.unwrap() else { panic!("unmet") };
        assert_eq!(handle(&cluster, mark()).await.unwrap(), Changed::Unmet(0));
        let lookup = Lookup { name: name.clone(), first: 0, limit: 9, at: None, id: None };
        let view = lookup::handle(&cluster, lookup).await.unwrap();
        assert_eq!((view.object, view.stripes.len()), (made[0].clone(), 0));
        let remove = Change { steps: vec![Step::Remove { name }], ..Change::default() };
        assert_eq!(handle(&cluster, remove.clone()).await.unwrap(), Changed::Done(vec![]));
        assert_eq!(handle(&cluster, remove).await.unwrap(), Changed::Done(vec![]));
    }

    #[tokio::test]
    async fn bad_names_and_stripes_of_volumes_are_refused() {
        let (_dir, cluster) = cluster(4, 2).await;
        put(&cluster, "a", 40).await;
        let rename =
            |from: &str, to: &str| Step::Rename { from: from.into(), to: to.into(), newest_first: false };
        for step in [
            rename("a", "a\n"),
            rename("a", ".volume/1/1"),
            rename(".volume/1/1", "b"),
            Step::Remove { name: ".volume/1/1".into() },
            Step::Mark { name: String::new(), newest_first: false, attributes: Attributes::default() },
        ] {
            let change = Change { steps: vec![step.clone()], ..Change::default() };
            let refused = handle(&cluster, change).await;
            assert!(matches!(refused, Err(CoordinatorError::Invalid { .. })), "{step:?}: {refused:?}");
        }
    }
}
