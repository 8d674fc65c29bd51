//! The checksum of an object (CRC-64/NVME) from its pieces, in any order.
//!
//! A CRC is a remainder modulo a polynomial P over GF(2). Without its constants at begin and end it is linear: the
//! remainder of the whole is the sum over all pieces of r(piece) x^(8 b), where b is the number of bytes behind the
//! piece. The sizes of streams are not known while they are written, so a [`Sum`] collects
//! r(piece) x^(-8 end) instead, and multiplies by x^(8 size) at the end. Sums of different pieces are added by XOR, so
//! pieces may come from several threads, and those of a failed attempt are left out.
//!
//! Polynomials are in the reflected bit order of the CRC: bit 63 is the coefficient of x^0.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crc_fast::{CrcAlgorithm, Digest};
use kintsu_wire::message::Checksum;

/// x^64 + the terms of the polynomial 0xad93d23594c93659, reflected, without x^64.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;

/// x^0.
const ONE: u64 = 1 << 63;

/// x^8.
const BYTE: u64 = 1 << 55;

/// `FORWARD[i]` is x^(8 * 2^i) mod P.
const FORWARD: [u64; 64] = squares(BYTE);

/// `BACK[i]` is x^(-8 * 2^i) mod P.
const BACK: [u64; 64] = squares(byte_back());

/// What the state of the CRC begins with, and what is added to it at the end.
const COMPLEMENT: u64 = u64::MAX;

/// The sum over the pieces of an object that were seen until now, and their bytes.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    sum: AtomicU64,
    bytes: AtomicU64,
}

impl Sum {
    /// Adds the piece of the object that begins at `offset`.
    pub(crate) fn add(&self, offset: u64, piece: &[u8]) {
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc64Nvme, 0);
        digest.update(piece);
        let remainder = digest.finalize() ^ COMPLEMENT;
        let end = offset.wrapping_add(piece.len() as u64);
        self.sum.fetch_xor(shifted(remainder, end, &BACK), Relaxed);
        self.bytes.fetch_add(piece.len() as u64, Relaxed);
    }

    /// Adds all pieces of another sum.
    pub(crate) fn merge(&self, other: &Self) {
        self.sum.fetch_xor(other.sum.load(Relaxed), Relaxed);
        self.bytes.fetch_add(other.bytes.load(Relaxed), Relaxed);
    }

    /// The checksum of an object of `size` bytes, if pieces of that many bytes were added.
    pub(crate) fn of(&self, size: u64) -> Option<Checksum> {
        let remainder = shifted(self.sum.load(Relaxed), size, &FORWARD);
        let begin = shifted(COMPLEMENT, size, &FORWARD);
        (self.bytes.load(Relaxed) == size).then_some(Checksum(remainder ^ begin ^ COMPLEMENT))
    }
}

/// The checksum of parts, one behind the other, from their checksums and lengths in bytes.
pub fn joined(parts: impl IntoIterator<Item = (Checksum, u64)>) -> Checksum {
    // The constants at begin and end of a CRC are equal, so those of neighbours cancel out.
    let join = |sum: u64, (part, len): (Checksum, u64)| shifted(sum, len, &FORWARD) ^ part.0;
    Checksum(parts.into_iter().fold(0, join))
}

/// The checksum of bytes that come in order.
pub(crate) struct Running(Digest);

impl Running {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Nvme))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn end(&self) -> Checksum {
        Checksum(self.0.finalize())
    }
}

/// `value` times the power of x that `count` bytes are, in one direction; one product for each set bit of `count`.
fn shifted(value: u64, count: u64, powers: &[u64; 64]) -> u64 {
    let (mut value, mut rest) = (value, count);
    while rest != 0 {
        value = multiply(value, powers[rest.trailing_zeros() as usize]);
        rest &= rest - 1;
    }
    value
}

/// a * b mod P.
const fn multiply(a: u64, mut b: u64) -> u64 {
    let (mut product, mut bit) = (0, ONE);
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 != 0 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
        bit >>= 1;
    }
    product
}

/// The power, its square, the square of that and so on.
const fn squares(first: u64) -> [u64; 64] {
    let mut table = [first; 64];
    let mut i = 1;
    while i < table.len() {
        table[i] = multiply(table[i - 1], table[i - 1]);
        i += 1;
    }
    table
}

/// x^-8. P is x Q + 1, so Q is x^-1.
const fn byte_back() -> u64 {
    let mut power = (POLYNOMIAL << 1) | 1;
    let mut i = 0;
    while i < 3 {
        power = multiply(power, power);
        i += 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The CRC bit by bit, as the catalogue of CRCs defines it.
    fn by_definition(bytes: &[u8]) -> u64 {
        let step = |state: u64, _| if state & 1 != 0 { (state >> 1) ^ POLYNOMIAL } else { state >> 1 };
        let byte = |state: u64, byte: &u8| (0..8).fold(state ^ u64::from(*byte), step);
        bytes.iter().fold(COMPLEMENT, byte) ^ COMPLEMENT
    }

    #[test]
    fn the_check_value_of_the_catalogue_comes_out() {
        let digits = b"123456789";
        assert_eq!(by_definition(digits), 0xae8b_1486_0a79_9888);
        let mut running = Running::new();
        running.update(&digits[..4]);
        running.update(&digits[4..]);
        assert_eq!(running.end(), Checksum(0xae8b_1486_0a79_9888));
        assert_eq!(Sum::default().of(0), Some(Checksum(by_definition(b""))));
        assert_eq!(multiply(BYTE, byte_back()), ONE);
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_give_the_checksum_of_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..3000),
            cuts in prop::collection::vec(0usize..3000, 0..8),
            turn in 0usize..8,
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut pieces: Vec<_> = cuts.windows(2).map(|ends| ends[0]..ends[1]).collect();
            let count = pieces.len();
            pieces.rotate_left(turn % count);
            let (one, other) = (Sum::default(), Sum::default());
            for (i, piece) in pieces.into_iter().enumerate() {
                [&one, &other][i % 2].add(piece.start as u64, &bytes[piece]);
            }
            one.merge(&other);
            let in_order = bytes.chunks(7).map(|part| (Checksum(by_definition(part)), part.len() as u64));
            prop_assert_eq!(joined(in_order), Checksum(by_definition(&bytes)));
            let size = bytes.len() as u64;
            prop_assert_eq!(one.of(size), Some(Checksum(by_definition(&bytes))));
            prop_assert_eq!(one.of(size + 1), None);
        }
    }
}
