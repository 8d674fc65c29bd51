//! Bytes that runs have moved on one node, and which of these runs give way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::give_way::{Busy, GiveWay};

/// What the runs that share this have moved so far, in bytes of slices and blocks.
#[derive(Debug, Default)]
pub struct Carried {
    /// Sent to other nodes.
    pub sent: AtomicU64,
    /// Received from other nodes.
    pub received: AtomicU64,
    /// Read from local blocks.
    pub read: AtomicU64,
    /// Written to local blocks.
    pub written: AtomicU64,
    /// `None`: these runs and others do not affect each other.
    side: Option<Side>,
}

#[derive(Debug)]
enum Side {
    /// Users wait for these runs.
    Users(Arc<GiveWay>),
    /// Nobody waits for these runs.
    Background(Arc<GiveWay>),
}

impl Carried {
    /// For runs that users wait for.
    pub fn by_users(way: Arc<GiveWay>) -> Self {
        Self { side: Some(Side::Users(way)), ..Self::default() }
    }

    /// For runs that give way to those of users.
    pub fn in_background(way: Arc<GiveWay>) -> Self {
        Self { side: Some(Side::Background(way)), ..Self::default() }
    }

    /// Counts a background read of blocks that no run asked for, and waits until users' slices have gone and the node's limit
    /// allows the next one.
    pub async fn has_read(&self, bytes: u64) {
        add(&self.read, bytes);
        if let Some(way) = self.gives_way() {
            if way.users_wait() {
                way.let_users_go().await;
            }
            way.keep_limit([0, 0, bytes]).await;
        }
    }

    /// What these runs must heed before each step, if they give way.
    pub(crate) fn gives_way(&self) -> Option<&Arc<GiveWay>> {
        match &self.side {
            Some(Side::Background(way)) => Some(way),
            _ => None,
        }
    }

    /// Marks that a user waits for a read or a write, as long as the result lives.
    pub fn busy(&self) -> Option<Busy<'_>> {
        match &self.side {
            Some(Side::Users(way)) => Some(way.busy()),
            _ => None,
        }
    }
}

/// Adds to one of the counts.
pub(crate) fn add(count: &AtomicU64, bytes: u64) {
    count.fetch_add(bytes, Ordering::Relaxed);
}
