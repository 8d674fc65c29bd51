//! The queues between a lane and its edges and sinks: batches in one direction, room in the other.
//!
//! Room is counted in slices; `budget.rs` limits how many bytes these may be. Invariant: what is in a queue,
//! and with the tasks that fill and empty it, never exceeds its room.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

use crate::slice::Slice;

/// How a lane goes through its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Reading, receiving, computing and sending overlap.
    Overlapped,
    /// One slice after the other, and for each slice one operation after the other (ECPipe, section 6.4, Pipe-S).
    Serial,
}

/// Slices that come from a peer.
pub(crate) struct Inlet {
    queue: mpsc::UnboundedReceiver<Vec<Slice>>,
    ready: std::vec::IntoIter<Slice>,
    room: Arc<Semaphore>,
    taken: usize,
    flow: Flow,
}

impl Inlet {
    /// With room for `slices`. In a serial lane there is room for one slice, and only after
    /// [`demand`](Self::demand).
    pub fn new(
        queue: mpsc::UnboundedReceiver<Vec<Slice>>,
        slices: usize,
        flow: Flow,
    ) -> (Self, Arc<Semaphore>) {
        let room = Arc::new(Semaphore::new(if flow == Flow::Serial { 0 } else { slices }));
        let inlet = Self { queue, ready: Vec::new().into_iter(), room: room.clone(), taken: 0, flow };
        (inlet, room)
    }

    /// A slice, if one is there.
    pub fn next(&mut self) -> Option<Slice> {
        if self.ready.len() == 0 {
            self.ready = self.queue.try_recv().ok()?.into_iter();
        }
        self.taken += 1;
        self.ready.next()
    }

    /// Waits for slices; `None` when no more will come.
    pub async fn more(&mut self) -> Option<()> {
        self.ready = self.queue.recv().await?.into_iter();
        Some(())
    }

    /// Asks for one slice more.
    pub fn demand(&self) {
        self.room.add_permits(1);
    }

    /// Gives back the room of the slices that were taken out.
    pub fn give_back(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        if self.flow == Flow::Overlapped && taken > 0 {
            self.room.add_permits(taken);
        }
    }
}

/// A queue whose room is taken for whole steps.
pub(crate) struct Outlet<T> {
    queue: mpsc::UnboundedSender<Vec<T>>,
    room: Arc<Semaphore>,
    /// Room in total.
    most: u32,
    /// What one step puts into it.
    items: u32,
    /// Room that was taken and is not used yet.
    at_hand: u32,
    /// What is still to be handed on.
    held: Vec<T>,
}

impl<T> Outlet<T> {
    /// For a queue with `room` for `steps` steps of `items` each.
    pub fn new(
        queue: mpsc::UnboundedSender<Vec<T>>,
        room: Arc<Semaphore>,
        items: usize,
        steps: usize,
    ) -> Self {
        Self { queue, room, most: (items * steps) as u32, items: items as u32, at_hand: 0, held: Vec::new() }
    }

    /// Takes room for a step, if there is any.
    pub fn has_room(&mut self) -> bool {
        if self.at_hand < self.items {
            let steps = self.room.available_permits() as u32 / self.items;
            let Ok(more) = self.room.try_acquire_many(steps * self.items) else { return false };
            more.forget();
            self.at_hand += steps * self.items;
        }
        let enough = self.at_hand >= self.items;
        self.at_hand -= if enough { self.items } else { 0 };
        enough
    }

    /// Waits for room for a step; `None` when the receiver is gone.
    pub async fn take_room(&mut self) -> Option<()> {
        self.room.acquire_many(self.items).await.ok()?.forget();
        Some(())
    }

    /// Adds one of a step's items; it leaves with the next flush.
    pub fn put(&mut self, item: T) {
        self.held.push(item);
    }

    /// Hands on what is held; false when the receiver is gone.
    pub fn flush(&mut self) -> bool {
        let next = Vec::with_capacity(self.held.len());
        self.held.is_empty() || self.queue.send(std::mem::replace(&mut self.held, next)).is_ok()
    }

    /// Waits until everything has left; `None` when the receiver is gone.
    pub async fn drained(&mut self) -> Option<()> {
        let _all = self.room.acquire_many(self.most - self.at_hand).await.ok()?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlet(steps: usize) -> (Outlet<u32>, Arc<Semaphore>, mpsc::UnboundedReceiver<Vec<u32>>) {
        let (sender, queue) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(2 * steps));
        (Outlet::new(sender, room.clone(), 2, steps), room, queue)
    }

    #[tokio::test]
    async fn room_is_taken_by_steps_and_never_more_than_there_is() {
        let (mut outlet, room, mut queue) = outlet(3);
        assert_eq!((0..5).filter(|_| outlet.has_room()).count(), 3);
        room.add_permits(1);
        assert!(!outlet.has_room(), "half a step");
        room.add_permits(1);
        outlet.take_room().await.unwrap();
        assert!(!outlet.has_room());
        outlet.put(1);
        outlet.put(2);
        assert!(queue.try_recv().is_err(), "not flushed yet");
        assert!(outlet.flush() && outlet.flush());
        assert_eq!(queue.try_recv().unwrap(), [1, 2]);
        assert!(queue.try_recv().is_err(), "nothing twice");
        drop(queue);
        outlet.put(3);
        assert!(!outlet.flush());
    }

    #[tokio::test]
    async fn it_is_drained_when_all_that_is_not_at_hand_came_back() {
        let (mut outlet, room, _queue) = outlet(2);
        assert!(outlet.has_room());
        let early = tokio::time::timeout(std::time::Duration::ZERO, outlet.drained()).await;
        assert!(early.is_err());
        room.add_permits(2);
        outlet.drained().await.unwrap();
        assert!(outlet.has_room() && outlet.has_room());
    }

    #[tokio::test]
    async fn an_inlet_gives_room_back_for_what_was_taken_or_asks_for_it() {
        let (sender, queue) = mpsc::unbounded_channel();
        let (mut inlet, room) = Inlet::new(queue, 5, Flow::Overlapped);
        room.acquire_many(3).await.unwrap().forget();
        sender.send(vec![Slice::Zero(1), Slice::Zero(2)]).unwrap();
        sender.send(vec![Slice::Zero(3)]).unwrap();
        let lens: Vec<_> = std::iter::from_fn(|| inlet.next()).map(|slice| slice.len()).collect();
        assert_eq!(lens, [1, 2, 3]);
        inlet.give_back();
        assert_eq!(room.available_permits(), 5);
        inlet.give_back();
        assert_eq!(room.available_permits(), 5);

        let (_sender, queue) = mpsc::unbounded_channel();
        let (mut serial, room) = Inlet::new(queue, 5, Flow::Serial);
        serial.demand();
        assert_eq!(room.available_permits(), 1);
        serial.give_back();
        assert_eq!(room.available_permits(), 1);
    }
}
