//! The CRC32C of two pieces put together, from the CRC32Cs of the pieces.
//!
//! A CRC is a remainder modulo a polynomial P over GF(2); to append n bytes is to multiply by
//! x^(8n) and add. The powers x^(8 * 2^i) mod P are made once at compile time, so that joining two
//! pieces costs one 32-bit polynomial product per set bit of n: for the usual power of two, one.
//!
//! Polynomials are in the reflected bit order of CRC32C: bit 31 is the coefficient of x^0.

/// x^32 + the terms of the Castagnoli polynomial, reflected, without x^32.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `POWERS[i]` is x^(8 * 2^i) mod P.
const POWERS: [u32; 32] = powers();

/// The CRC32C of `a` followed by `b`, given both CRC32Cs and the length of `b`.
pub(crate) fn combine(crc_a: u32, crc_b: u32, len_b: u32) -> u32 {
    let mut shifted = crc_a;
    let mut rest = len_b;
    while rest != 0 {
        shifted = multiply(shifted, POWERS[rest.trailing_zeros() as usize]);
        rest &= rest - 1;
    }
    shifted ^ crc_b
}

/// The CRC32C of `len` zero bytes; costs two 32-bit polynomial products per bit of `len`.
pub(crate) fn of_zeros(len: u32) -> u32 {
    let (mut all, mut run, mut run_len) = (0, crc_fast::crc32_iscsi(&[0]), 1u32);
    let mut rest = len;
    while rest != 0 {
        if rest & 1 != 0 {
            all = combine(all, run, run_len);
        }
        rest >>= 1;
        if rest != 0 {
            run = combine(run, run, run_len);
            run_len <<= 1;
        }
    }
    all
}

/// a * b mod P.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 1 << 31;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 != 0 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
        bit >>= 1;
    }
    product
}

const fn powers() -> [u32; 32] {
    let mut table = [1 << 23; 32]; // x^8
    let mut i = 1;
    while i < table.len() {
        table[i] = multiply(table[i - 1], table[i - 1]);
        i += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_crc_of_rfc_3720() {
        assert_eq!(crc_fast::crc32_iscsi(b"123456789"), 0xe306_9283);
        // Appendix B.4.
        assert_eq!(crc_fast::crc32_iscsi(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc_fast::crc32_iscsi(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn combine_equals_the_crc_of_the_whole() {
        let data: Vec<u8> = (0..70_000u32).map(|i| (i.wrapping_mul(i) >> 5) as u8).collect();
        for cut in [0, 1, 2, 3, 7, 8, 255, 4096, 32768, 65535, 65536, 69_999, 70_000] {
            let (a, b) = data.split_at(cut);
            let whole = combine(crc_fast::crc32_iscsi(a), crc_fast::crc32_iscsi(b), b.len() as u32);
            assert_eq!(whole, crc_fast::crc32_iscsi(&data), "cut at {cut}");
        }
    }

    #[test]
    fn zeros_have_the_crc_of_zeros() {
        for len in [0, 1, 2, 3, 7, 32, 100, 4096, 65_535, 65_536, 1 << 20] {
            assert_eq!(of_zeros(len), crc_fast::crc32_iscsi(&vec![0; len as usize]), "{len} zeros");
        }
    }
}
