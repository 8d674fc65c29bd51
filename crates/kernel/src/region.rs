//! The two one-region operations that need no prepared matrix.

use crate::{Backend, arch};

/// `dst ^= src`.
///
/// # Panics
/// When the lengths differ.
pub fn xor_into(dst: &mut [u8], src: &[u8]) {
    assert_eq!(dst.len(), src.len(), "both regions of one length");
    arch::of(Backend::best()).xor_into(dst, src);
}

/// `data *= c`, byte by byte and in place.
pub fn scale_in_place(c: u8, data: &mut [u8]) {
    match c {
        0 => data.fill(0),
        1 => {}
        _ => arch::of(Backend::best()).scale_in_place(c, data),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: usize, len: usize) -> Vec<u8> {
        (0..len).map(|i| (((i + seed) * 0x9E37_79B9) >> 7) as u8).collect()
    }

    #[test]
    fn every_backend_agrees_with_the_field_on_misaligned_regions() {
        for backend in Backend::available() {
            let unit = arch::of(backend);
            for len in (0..=600).chain([4096, 10_007]) {
                let (a, b) = (noise(1, len + 2), noise(977, len));
                let mut sum = a.clone();
                unit.xor_into(&mut sum[1..=len], &b);
                assert_eq!((sum[0], sum[len + 1]), (a[0], a[len + 1]), "{backend}");
                assert!((0..len).all(|i| sum[i + 1] == a[i + 1] ^ b[i]), "{backend}, {len}");
                for c in [0, 1, 2, 0x8e, 255] {
                    let mut product = a.clone();
                    unit.scale_in_place(c, &mut product[1..=len]);
                    assert_eq!((product[0], product[len + 1]), (a[0], a[len + 1]), "{backend}");
                    let scaled = |i| product[i] == kintsu_algebra::mul(c, a[i]);
                    assert!((1..=len).all(scaled), "{backend}, {len}, {c}");
                }
            }
        }
    }

    #[test]
    fn public_operations_handle_every_coefficient_and_refuse_unequal_lengths() {
        for c in 0..=255 {
            let mut data = noise(3, 100);
            scale_in_place(c, &mut data);
            assert!(data.iter().zip(noise(3, 100)).all(|(&d, x)| d == kintsu_algebra::mul(c, x)));
        }
        let mut twice = noise(5, 99);
        xor_into(&mut twice, &noise(5, 99));
        assert_eq!(twice, vec![0; 99]);
        assert!(std::panic::catch_unwind(|| xor_into(&mut [0; 2], &[0; 3])).is_err());
    }
}
