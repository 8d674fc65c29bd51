//! Registers a code that a user defines as data. The code is proved before it is kept: sizes, shape, distance,
//! groups, every graph. Codes are proved one at a time, away from the asynchronous threads. The limits on
//! definitions bound the time and memory of the proof.

use std::sync::Arc;

use kintsu_wire::message::{RegisterCode, RegisteredCode};

use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};
use crate::meta::CodeRecord;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: RegisterCode) -> Result<RegisteredCode> {
    let definition = request.definition;
    let _turn = cluster.proving.acquire().await.map_err(|e| CoordinatorError::Storage(e.to_string()))?;
    let keep = move |meta: &crate::meta::Meta| {
        let code = definition.prove()?;
        meta.register_code(&CodeRecord::of(code.as_ref()), &definition)
    };
    let new = cluster.meta.off(keep).await?;
    Ok(RegisteredCode { new })
}

#[cfg(test)]
mod tests {
    use kintsu_code::Definition;
    use kintsu_wire::message::{BeginPut, CodeName, CreateVolume, Encoding, Lookup, PutRef, Remove};

    use super::*;
    use crate::handlers::tests::{begin, cluster, reopen, written};
    use crate::handlers::{
        abort_put, begin_put, codes, commit_put, create_volume, find_code, lookup, remove, remove_code,
    };

    const NAME: &str = "user:two";

    /// `rs:n=4,k=2` under another name.
    fn definition() -> Definition {
        Definition::of(kintsu_code::parse("rs:n=4,k=2").unwrap().as_ref(), NAME).unwrap()
    }

    async fn register(cluster: &Arc<Cluster>, definition: Definition) -> Result<bool> {
        handle(cluster, RegisterCode { definition }).await.map(|reply| reply.new)
    }

    fn mine(name: &str) -> BeginPut {
        BeginPut { code: NAME.into(), ..begin(name, 100) }
    }

    fn name() -> CodeName {
        CodeName { name: NAME.into() }
    }

    #[tokio::test]
    async fn a_name_means_one_definition_also_after_a_restart() {
        let (dir, mut cluster) = cluster(4, 4).await;
        assert!(register(&cluster, definition()).await.unwrap());
        for _ in 0..2 {
            assert!(!register(&cluster, definition()).await.unwrap());
            let weaker = Definition { distance: 2, ..definition() };
            let error = register(&cluster, weaker).await.unwrap_err();
            assert!(
                matches!(error, CoordinatorError::Exists { .. }) && error.to_string().contains("distance 2")
            );
            assert_eq!(find_code::handle(&cluster, name()).await.unwrap(), definition());
            let listed = codes::handle(&cluster).await.unwrap().codes;
            assert_eq!(
                listed.iter().map(|c| (c.name.as_str(), c.n, c.k)).collect::<Vec<_>>(),
                [(NAME, 4, 2)]
            );
            cluster.close().await.unwrap();
            cluster = reopen(&dir);
        }
    }

    #[tokio::test]
    async fn what_does_not_prove_is_refused_and_leaves_nothing() {
        let (_dir, cluster) = cluster(4, 4).await;
        for bad in [
            Definition { name: "rs:n=4,k=2".into(), ..definition() },
            Definition { distance: 4, ..definition() },
            Definition { n: usize::MAX, ..definition() },
            Definition { w: 2, ..definition() },
        ] {
            let error = register(&cluster, bad).await.unwrap_err();
            assert!(matches!(error, CoordinatorError::Code(_)), "{error}");
        }
        assert!(codes::handle(&cluster).await.unwrap().codes.is_empty());
        let error = begin_put::handle(&cluster, mine("a")).await.unwrap_err();
        assert!(matches!(error, CoordinatorError::NotFound { what: "code", .. }), "{error}");
    }

    #[tokio::test]
    async fn answers_bring_the_definition_of_a_registered_code_only() {
        let (_dir, cluster) = cluster(4, 4).await;
        register(&cluster, definition()).await.unwrap();
        let ticket = begin_put::handle(&cluster, mine("a")).await.unwrap();
        let stripes = written(&ticket, Encoding::Online, 2);
        assert_eq!(ticket.definition, Some(definition()));
        commit_put::handle(
            &cluster,
            kintsu_wire::message::CommitPut { put: ticket.put, stripes, checksum: None, ending: None },
        )
        .await
        .unwrap();
        crate::handlers::tests::put(&cluster, "b", 100).await;
        let look = |name: &str, limit| {
            lookup::handle(&cluster, Lookup { name: name.into(), first: 0, limit, at: None, id: None })
        };
        let view = look("a", 9).await.unwrap();
        assert_eq!((view.object.code.as_str(), view.definition), (NAME, Some(definition())));
        assert_eq!(look("a", 0).await.unwrap().definition, None);
        assert_eq!(look("b", 9).await.unwrap().definition, None);
    }

    #[tokio::test]
    async fn a_code_in_use_stays() {
        let (dir, cluster) = cluster(4, 4).await;
        register(&cluster, definition()).await.unwrap();
        let refused = |cluster: Arc<Cluster>, words: &'static str| async move {
            let error = remove_code::handle(&cluster, name()).await.unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        let ticket = begin_put::handle(&cluster, mine("a")).await.unwrap();
        refused(cluster.clone(), "used by the put of \"a\"").await;
        let stripes = written(&ticket, Encoding::Online, 2);
        commit_put::handle(
            &cluster,
            kintsu_wire::message::CommitPut { put: ticket.put, stripes, checksum: None, ending: None },
        )
        .await
        .unwrap();
        refused(cluster.clone(), "used by object \"a\"").await;
        cluster.close().await.unwrap();
        let cluster = reopen(&dir);
        let stripe =
            lookup::handle(&cluster, Lookup { name: "a".into(), first: 0, limit: 1, at: None, id: None })
                .await
                .unwrap();
        let code = cluster.load(stripe.stripes[0].id).await.unwrap().unwrap().0.code;
        assert_eq!(code.name(), NAME);
        remove::handle(&cluster, Remove { name: "a".into() }).await.unwrap();
        remove_code::handle(&cluster, name()).await.unwrap();
        refused(cluster.clone(), "expected one that exists").await;
    }

    #[tokio::test]
    async fn a_code_of_a_volume_stays_though_nothing_was_written() {
        let (_dir, cluster) = cluster(4, 4).await;
        register(&cluster, definition()).await.unwrap();
        let disk = CreateVolume {
            name: "disk".into(),
            size: 1 << 20,
            code: NAME.into(),
            block_bytes: 4096,
            durability: Default::default(),
            scheme: None,
        };
        create_volume::handle(&cluster, disk).await.unwrap();
        let refused = remove_code::handle(&cluster, name()).await.unwrap_err().to_string();
        assert!(refused.contains("used by volume \"disk\""), "{refused}");
    }

    #[tokio::test]
    async fn a_name_that_is_free_again_gets_a_new_key() {
        let (_dir, cluster) = cluster(4, 4).await;
        let mut keys = Vec::new();
        for distance in [3, 2] {
            register(&cluster, Definition { distance, ..definition() }).await.unwrap();
            let key = cluster.meta.snapshot().unwrap().registered(NAME).unwrap().unwrap();
            let worker = cluster.clone();
            let code = cluster.meta.off(move |_| worker.code(key)).await.unwrap();
            assert_eq!(code.distance(), distance);
            keys.push(key);
            let ticket = begin_put::handle(&cluster, mine("a")).await.unwrap();
            abort_put::handle(&cluster, PutRef { put: ticket.put }).await.unwrap();
            remove_code::handle(&cluster, name()).await.unwrap();
        }
        assert_ne!(keys[0], keys[1]);
    }
}
