//! Room in memory for the runs of users, which share it: however many of them there are, they cannot take all that the host has.
//! Runs of the coordinator need none: it limits them itself, and users must not hold them up.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// Most bytes that the programs of all runs of users may hold at once: their slices, if none is given back before the step's end.
pub const MOST_BYTES: u64 = 1 << 30;

/// What a run holds besides its slices, about: a short block that is gathered, and its tasks.
const EACH_BYTES: u64 = 64 << 10;

/// Room is given in pieces of this size.
const PIECE_BYTES: u64 = 4 << 10;

/// How long a run waits for its turn. Whoever conducts it gives an agent 5 s to answer.
const TURN_WITHIN: Duration = Duration::from_secs(3);

/// The room that is left.
pub struct Room {
    pieces: Arc<Semaphore>,
}

/// What a run holds of the room, until it is dropped.
pub type Held = OwnedSemaphorePermit;

impl Default for Room {
    fn default() -> Self {
        Self { pieces: Arc::new(Semaphore::new(pieces(MOST_BYTES) as usize)) }
    }
}

fn pieces(bytes: u64) -> u32 {
    bytes.clamp(1, MOST_BYTES).div_ceil(PIECE_BYTES) as u32
}

impl Room {
    /// Waits for room for a run whose slices have this many bytes: first come, first served. One that has more than all room
    /// gets all of it.
    ///
    /// # Errors
    /// `ResourceExhausted` if other runs do not leave as much in time.
    pub async fn take(&self, bytes: u64) -> Result<Held, Status> {
        let bytes = bytes.saturating_add(EACH_BYTES);
        let turn = self.pieces.clone().acquire_many_owned(pieces(bytes));
        match tokio::time::timeout(TURN_WITHIN, turn).await {
            Ok(Ok(held)) => Ok(held),
            // It is never closed, but that is no reason to panic.
            Ok(Err(_)) | Err(_) => {
                let left = self.pieces.available_permits() as u64 * PIECE_BYTES;
                Err(Status::resource_exhausted(format!(
                    "busy: expected room for {bytes} bytes of a run within {TURN_WITHIN:?}, got {left} of the {MOST_BYTES} bytes that \
                     runs of users share; try again"
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn runs_wait_for_room_in_turn_and_are_told_if_there_is_none() {
        let room = Room::default();
        let most = room.take(u64::MAX).await.unwrap();
        assert_eq!(room.pieces.available_permits(), 0);
        let refused = room.take(1).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(refused.message().contains("busy: expected room for 65537 bytes"), "{refused:?}");
        // A large run is not overtaken for ever by small ones.
        let (large, small) = (room.take(MOST_BYTES), room.take(1));
        let ends = async {
            tokio::time::sleep(TURN_WITHIN / 2).await;
            drop(most);
        };
        let begins = async {
            drop(large.await.unwrap());
            tokio::time::Instant::now()
        };
        let after = async {
            let held = small.await.unwrap();
            (tokio::time::Instant::now(), held)
        };
        let (large_began, (small_began, held), ()) = tokio::join!(begins, after, ends);
        assert!(small_began >= large_began);
        drop(held);
        assert_eq!(room.pieces.available_permits(), pieces(MOST_BYTES) as usize, "all is given back");
    }
}
