//! The two forms of a coefficient `c` that vector units use.
//!
//! Both exist because multiplication by `c` is linear over GF(2):
//! `c * x = c * (x & 0x0f) + c * (x & 0xf0)`, two tables of 16 products (Plank, Greenan and
//! Miller, "Screaming Fast Galois Field Arithmetic Using Intel SIMD Instructions", FAST'13); and
//! an 8x8 matrix of bits whose column `i` is `c * 2^i`.

use kintsu_algebra::mul;

/// The products of `c` with the low and with the high nibbles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(32))]
pub(super) struct NibbleTables {
    /// `low[x] == c * x`.
    pub low: [u8; 16],
    /// `high[x] == c * (x << 4)`.
    pub high: [u8; 16],
}

impl NibbleTables {
    pub(super) fn new(c: u8) -> Self {
        Self {
            low: std::array::from_fn(|x| mul(c, x as u8)),
            high: std::array::from_fn(|x| mul(c, (x as u8) << 4)),
        }
    }
}

/// The bit matrix of `x -> c * x` as `gf2p8affineqb` wants it: byte `7 - i` is the row that yields
/// bit `i` of the product, and bit `j` of that row selects bit `j` of `x`.
#[cfg(any(target_arch = "x86_64", test))]
pub(super) fn bit_matrix(c: u8) -> u64 {
    let mut matrix = 0;
    for out_bit in 0..8 {
        for in_bit in 0..8 {
            let set = u64::from(mul(c, 1 << in_bit) >> out_bit & 1);
            matrix |= set << (8 * (7 - out_bit) + in_bit);
        }
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nibble_tables_recombine_to_every_product() {
        for c in 0..=255 {
            let tables = NibbleTables::new(c);
            for x in 0..=255u8 {
                let product = tables.low[usize::from(x & 15)] ^ tables.high[usize::from(x >> 4)];
                assert_eq!(product, mul(c, x), "{c} * {x}");
            }
        }
    }

    #[test]
    fn bit_matrices_yield_every_product() {
        for c in 0..=255 {
            let rows = bit_matrix(c).to_be_bytes();
            for x in 0..=255u8 {
                let product = (0..8).fold(0, |p, i| p | ((rows[i] & x).count_ones() as u8 & 1) << i);
                assert_eq!(product, mul(c, x), "{c} * {x}");
            }
        }
    }
}
