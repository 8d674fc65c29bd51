//! The digest of a block that comes in order, piece by piece: the same as a store of Kintsu's records for a block.

use crc_fast::{CrcAlgorithm, Digest as Crc};
use kintsu_store::{Digest, UNIT_BYTES};

/// A digest that is not finished. Memory: four bytes for each unit.
pub(crate) struct Running {
    units: Vec<u32>,
    unit: Crc,
    within: usize,
    len: u64,
}

impl Running {
    pub(crate) fn new() -> Self {
        Self { units: Vec::new(), unit: Crc::new(CrcAlgorithm::Crc32Iscsi), within: 0, len: 0 }
    }

    /// Takes a piece of a block of `len` bytes; the digest at its end. `kept` lasts while the pieces come in order from the first byte.
    pub(crate) fn follow(kept: &mut Option<Self>, offset: u64, bytes: &[u8], len: u64) -> Option<Digest> {
        let in_order = kept.take().filter(|digest| digest.len() == offset);
        let mut digest = in_order.or_else(|| (offset == 0).then(Self::new))?;
        digest.update(bytes);
        if digest.len() < len {
            *kept = Some(digest);
            return None;
        }
        Some(digest.finish())
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Takes the next bytes.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(UNIT_BYTES - self.within));
            self.unit.update(now);
            self.within += now.len();
            bytes = rest;
            if self.within == UNIT_BYTES {
                self.end_unit();
            }
        }
    }

    /// The digest of all bytes.
    pub(crate) fn finish(mut self) -> Digest {
        if self.within > 0 {
            self.end_unit();
        }
        Digest::of_units(self.len, &self.units)
    }

    fn end_unit(&mut self) {
        self.units.push(self.unit.finalize() as u32);
        (self.unit, self.within) = (Crc::new(CrcAlgorithm::Crc32Iscsi), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_give_the_digest_of_the_whole() {
        let data: Vec<u8> = (0..3 * UNIT_BYTES + 7).map(|i| (i * 31 % 253) as u8).collect();
        for len in [0, 1, UNIT_BYTES, UNIT_BYTES + 1, data.len()] {
            for piece in [1000, UNIT_BYTES, UNIT_BYTES + 1, data.len()] {
                let mut running = Running::new();
                data[..len].chunks(piece).for_each(|piece| running.update(piece));
                assert_eq!(running.len(), len as u64);
                assert_eq!(running.finish(), Digest::of_bytes(&data[..len]), "{len} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_block_is_followed_while_its_pieces_come_in_order() {
        let data = [7; 100];
        let mut kept = None;
        let mut pieces = |places: &[(usize, usize)]| {
            let ends = places.iter().map(|(from, to)| {
                Running::follow(&mut kept, *from as u64, &data[*from..*to], data.len() as u64)
            });
            ends.last().flatten()
        };
        assert_eq!(pieces(&[(0, 60), (60, 100)]), Some(Digest::of_bytes(&data)));
        assert_eq!(pieces(&[(0, 60), (61, 100)]), None, "a byte is left out");
        assert_eq!(pieces(&[(60, 100)]), None);
        assert_eq!(pieces(&[(0, 60), (0, 100)]), Some(Digest::of_bytes(&data)), "it begins again");
    }
}
