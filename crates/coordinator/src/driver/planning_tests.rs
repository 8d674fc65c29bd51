//! Codes are proved, and repairs are planned, on threads that may block and outside of the cluster's locks: both may take
//! seconds, and calls of agents and clients must be answered meanwhile.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use kintsu_algebra::Matrix;
use kintsu_code::{Code, CodeError};
use kintsu_dag::{BlockIndex, Ecdag, NodeId, StripeId};
use kintsu_plan::Method;
use tokio::sync::mpsc;

use super::{Source, start_repairs};
use crate::cluster::{Cluster, lock};
use crate::engine::repair::Order;
use crate::handlers::tests::{cluster, put, silence};

/// A code that notes where the planner uses it.
#[derive(Debug)]
struct Witness {
    code: Arc<dyn Code>,
    cluster: Weak<Cluster>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    plans: usize,
    wrong: Vec<&'static str>,
}

impl Witness {
    fn look(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.plans += 1;
        if !may_block() {
            seen.wrong.push("on an asynchronous thread");
        }
        if self.cluster.upgrade().is_some_and(|cluster| stays_locked(&cluster)) {
            seen.wrong.push("under a lock");
        }
    }
}

impl Code for Witness {
    fn decode(&self, available: &[BlockIndex], lost: &[BlockIndex]) -> Result<Ecdag, CodeError> {
        self.look();
        self.code.decode(available, lost)
    }

    fn recoverable(&self, lost: &[BlockIndex]) -> bool {
        self.look();
        self.code.recoverable(lost)
    }

    fn name(&self) -> &str {
        self.code.name()
    }

    fn family(&self) -> &str {
        self.code.family()
    }

    fn n(&self) -> usize {
        self.code.n()
    }

    fn k(&self) -> usize {
        self.code.k()
    }

    fn w(&self) -> usize {
        self.code.w()
    }

    fn generator(&self) -> &Matrix {
        self.code.generator()
    }

    fn encode(&self) -> Ecdag {
        self.code.encode()
    }

    fn place(&self) -> Vec<Vec<BlockIndex>> {
        self.code.place()
    }

    fn groups(&self) -> Vec<Vec<BlockIndex>> {
        self.code.groups()
    }

    fn distance(&self) -> usize {
        self.code.distance()
    }
}

/// Whether this thread may block: tokio refuses to wait on a thread that runs tasks.
pub fn may_block() -> bool {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return true };
    std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(async {}))).is_ok()
}

/// Whether a lock that planning might hold stays taken: others hold it for moments only.
fn stays_locked(cluster: &Cluster) -> bool {
    let free = || {
        cluster.recovery.try_lock().is_ok()
            && cluster.members.try_lock().is_ok()
            && cluster.queue.try_lock().is_ok()
    };
    !(0..1000).any(|_| {
        free() || {
            std::thread::sleep(Duration::from_millis(1));
            false
        }
    })
}

#[tokio::test]
async fn repairs_are_planned_where_they_hold_up_nobody() {
    for method in [Method::Pipeline, Method::Weighted, Method::Optimal] {
        let (_dir, cluster) = cluster(5, 5).await;
        put(&cluster, "a", 320).await;
        cluster.load(StripeId(1)).await.unwrap().unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        for (code, _) in lock(&cluster.codes).values_mut() {
            let (code_itself, cluster) = (code.clone(), Arc::downgrade(&cluster));
            *code = Arc::new(Witness { code: code_itself, cluster, seen: seen.clone() });
        }
        silence(&cluster, &[0]);
        let order = Order { method, ..Order::default() };
        let (listener, mut events) = mpsc::channel(64);
        start_repairs(&cluster, Source::Node(NodeId(0)), order, Some(listener));
        while events.recv().await.is_some() {}
        let seen = seen.lock().unwrap();
        assert!(seen.plans > 0, "nothing was planned");
        assert!(seen.wrong.is_empty(), "{method:?}: planned {:?}", seen.wrong);
    }
}
