//! Whose turn it is to change the logs of a volume's stripe.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use kintsu_dag::StripeId;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use crate::cluster::lock;

/// Stripes whose logs move at the same time though no user asks for it. Users of such a stripe wait, and the moves of many at once
/// hold each other up.
const MOVES_AT_ONCE: usize = 2;

/// Who may change where stripes are logged.
pub struct Turns {
    /// One task at a time changes where a stripe is logged, commits it, or moves a data block of it.
    stripes: Mutex<HashMap<StripeId, Arc<tokio::sync::Mutex<()>>>>,
    /// While a snapshot of a volume is taken, no logs of its stripes change for writers.
    cuts: Mutex<HashMap<u64, Arc<tokio::sync::RwLock<()>>>>,
    moves: Arc<Semaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        let moves = Arc::new(Semaphore::new(MOVES_AT_ONCE));
        Self { stripes: Mutex::default(), cuts: Mutex::default(), moves }
    }
}

impl Turns {
    /// Waits until logs may be moved though no user asks for it; taken before the turn on a stripe.
    pub async fn moving(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        self.moves.clone().acquire_owned().await.ok()
    }

    /// Waits for the turn on a stripe.
    pub async fn of(&self, stripe: StripeId) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = lock(&self.stripes);
            if turns.len() > 4096 {
                turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            turns.entry(stripe).or_default().clone()
        };
        turn.lock_owned().await
    }

    /// Taken to write by who takes a snapshot of the volume, to read by who changes logs for its writer.
    pub fn cut(&self, volume: u64) -> Arc<tokio::sync::RwLock<()>> {
        let mut cuts = lock(&self.cuts);
        if cuts.len() > 4096 {
            cuts.retain(|_, cut| Arc::strong_count(cut) > 1);
        }
        cuts.entry(volume).or_default().clone()
    }
}
