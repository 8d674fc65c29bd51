//! How a call moves its bytes: as suits where they are.
//!
//! Measured on Zen 4 ((9,6) to (16,12), 64 KiB to 1 MiB blocks): what lies in the L2 cache needs no prefetch, which costs
//! up to a tenth there. From the L3 cache and from memory a prefetch into L1 brings a tenth. Outputs that are in
//! no cache are best written past the caches, which saves reading them first: up to a quarter, where multiplying is not
//! what takes the time.
//!
//! How much a call touches tells the first two apart. Whether an output is in a cache cannot be known from its length, so
//! the time of a single read tells it. Measured in ticks of the time stamp counter: 52 to 104 from any cache, 400 to 2000
//! from memory. A wrong guess costs some speed; the bytes are the same.

/// Bytes of all regions from which on they count as too many for the L2 cache.
const L2_BYTES: usize = 1 << 20;

/// Calls that touch less than this do not ask where their outputs are.
const LEAST_ASKED_BYTES: usize = 256 << 10;

/// A read that takes this many ticks or more came from memory.
#[cfg(target_arch = "x86_64")]
const MEMORY_TICKS: u64 = 300;

/// Alignment of an output that is written past the caches: a cache line, which is also the longest vector.
pub(super) const STREAM_ALIGN: usize = 64;

/// How a pass moves its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From and to the L2 cache: just read and written.
    Near,
    /// From beyond the L2 cache: regions are prefetched into L1.
    Ahead,
    /// The same, and outputs, which are aligned to [`STREAM_ALIGN`], are written past the caches.
    Stream,
}

impl Way {
    /// For regions of `touched` bytes together that are not written past the caches.
    pub(super) fn of_size(touched: usize) -> Self {
        if touched > L2_BYTES { Self::Ahead } else { Self::Near }
    }

    /// For regions of `touched` bytes together, of which `outputs` are overwritten, not added to. If they are to be
    /// written past the caches, their first bytes up to the alignment, which [`Way::head`] counts, are to be written in
    /// another way.
    pub(super) fn choose(touched: usize, outputs: &[&mut [u8]]) -> Self {
        let far = touched >= LEAST_ASKED_BYTES
            && Self::head(outputs).is_some()
            && outputs.last().and_then(|output| output.get(output.len() / 2)).is_some_and(is_far);
        if far { Self::Stream } else { Self::of_size(touched) }
    }

    /// Bytes up to the first aligned one, if that is the same for all outputs.
    pub(super) fn head(outputs: &[&mut [u8]]) -> Option<usize> {
        let head = |output: &[u8]| output.as_ptr().addr().wrapping_neg() % STREAM_ALIGN;
        let first = head(outputs.first()?);
        outputs.iter().all(|output| head(output) == first).then_some(first)
    }
}

/// Whether this byte is in memory and in no cache, by the time of reading it.
#[cfg(target_arch = "x86_64")]
fn is_far(byte: &u8) -> bool {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 processor has both instructions. The read is that of a reference; being volatile, it is neither left out nor
    // moved.
    unsafe {
        let start = _rdtsc();
        _mm_lfence();
        std::ptr::from_ref(byte).read_volatile();
        _mm_lfence();
        _rdtsc().wrapping_sub(start) >= MEMORY_TICKS
    }
}

/// Nobody knows here, and there is no instruction to write past the caches.
#[cfg(not(target_arch = "x86_64"))]
fn is_far(_byte: &u8) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_decides_on_prefetching_and_small_calls_or_uneven_outputs_are_never_streamed() {
        let mut memory = vec![0; 1 << 20];
        let (a, b) = memory.split_at_mut(1 << 19);
        assert_eq!(Way::choose(LEAST_ASKED_BYTES - 1, &[a, b]), Way::Near);
        assert_eq!((Way::of_size(L2_BYTES), Way::of_size(L2_BYTES + 1)), (Way::Near, Way::Ahead));
        assert_eq!(Way::choose(L2_BYTES, &[a, &mut b[1..]]), Way::Near, "of different alignment");
        assert_eq!(Way::choose(L2_BYTES, &[]), Way::Near);
        assert_eq!(Way::choose(L2_BYTES, &[&mut []]), Way::Near);
    }

    #[test]
    fn the_head_ends_at_an_aligned_byte() {
        let mut memory = vec![0; 1000];
        for skip in 0..130 {
            let output = &mut memory[skip..];
            let address = output.as_ptr().addr();
            let head = Way::head(&[output]).unwrap();
            assert!(head < STREAM_ALIGN && (address + head).is_multiple_of(STREAM_ALIGN));
        }
    }

    /// Nothing says where a byte is, but most of many reads in turn come from a cache.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_byte_that_was_just_read_is_near() {
        let byte = 7;
        let far = (0..1000).filter(|_| is_far(std::hint::black_box(&byte))).count();
        assert!(far < 500, "{far} of 1000");
    }
}
