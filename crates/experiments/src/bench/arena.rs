//! Buffers to measure on: one allocation, carved into stripes of staggered blocks.
//!
//! Blocks start 5 cache lines apart modulo 4 KiB, as a runtime should lay them out: with all of them at one
//! offset, up to a third of the speed is lost to conflicts in the first-level cache.

const LINE_BYTES: usize = 64;
const STAGGER_BYTES: usize = 5 * LINE_BYTES;

/// Memory filled with noise, seen as stripes of `inputs + outputs` blocks.
pub(super) struct Arena {
    memory: Vec<u8>,
    inputs: usize,
    outputs: usize,
    block_bytes: usize,
    stripes: usize,
    next: usize,
}

/// Bytes that one stripe takes.
fn stripe_bytes(inputs: usize, outputs: usize, block_bytes: usize) -> usize {
    (inputs + outputs) * (block_bytes + STAGGER_BYTES)
}

impl Arena {
    /// At least `bytes` bytes, and no stripes yet.
    pub(super) fn new(bytes: usize) -> Self {
        let mut memory = vec![0; bytes + LINE_BYTES];
        let mut state = 1u64;
        for word in memory.as_chunks_mut::<8>().0 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *word = (state ^ (state >> 33)).to_le_bytes();
        }
        Self { memory, inputs: 0, outputs: 0, block_bytes: 0, stripes: 0, next: 0 }
    }

    /// Memory for one stripe, laid out.
    pub(super) fn one_stripe(inputs: usize, outputs: usize, block_bytes: usize) -> Self {
        let mut arena = Self::new(stripe_bytes(inputs, outputs, block_bytes));
        arena.carve(inputs, outputs, block_bytes, 1);
        arena
    }

    /// Lays out as many stripes as fit and are allowed, at least one; the memory grows if needed.
    pub(super) fn carve(&mut self, inputs: usize, outputs: usize, block_bytes: usize, at_most: usize) {
        let stripe_bytes = stripe_bytes(inputs, outputs, block_bytes);
        self.stripes = ((self.memory.len() - LINE_BYTES) / stripe_bytes).min(at_most);
        if self.stripes == 0 {
            *self = Self::new(stripe_bytes);
            self.stripes = 1;
        }
        (self.inputs, self.outputs, self.block_bytes, self.next) = (inputs, outputs, block_bytes, 0);
    }

    /// The inputs and outputs of the next stripe in rotation.
    ///
    /// # Panics
    /// Before the first layout.
    pub(super) fn next(&mut self) -> (Vec<&[u8]>, Vec<&mut [u8]>) {
        let stride = self.block_bytes + STAGGER_BYTES;
        let stripe_bytes = stripe_bytes(self.inputs, self.outputs, self.block_bytes);
        let start = self.memory.as_ptr().align_offset(LINE_BYTES) + self.next * stripe_bytes;
        self.next = (self.next + 1) % self.stripes;
        let (data, parity) = self.memory[start..start + stripe_bytes].split_at_mut(self.inputs * stride);
        let inputs = data.chunks(stride).map(|block| &block[..self.block_bytes]).collect();
        let outputs = parity.chunks_mut(stride).map(|block| &mut block[..self.block_bytes]).collect();
        (inputs, outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_rotate_and_their_blocks_are_staggered() {
        let mut arena = Arena::new(10 << 10);
        arena.carve(2, 1, 1 << 10, usize::MAX);
        let mut starts = Vec::new();
        for _ in 0..3 {
            let (inputs, outputs) = arena.next();
            assert_eq!((inputs.len(), outputs.len()), (2, 1));
            assert!(inputs.iter().all(|i| i.len() == 1 << 10) && outputs[0].len() == 1 << 10);
            assert_eq!(inputs[1].as_ptr() as usize - inputs[0].as_ptr() as usize, (1 << 10) + STAGGER_BYTES);
            starts.push(inputs[0].as_ptr() as usize);
        }
        assert_ne!(starts[0], starts[1]);
        assert_eq!(starts[0], starts[2], "two stripes fit");
        arena.carve(4, 4, 1 << 20, 1);
        assert_eq!(arena.next().1[3].len(), 1 << 20);
    }
}
