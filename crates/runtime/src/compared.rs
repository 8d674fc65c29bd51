//! A block that is computed from the other blocks of its stripe, to be compared with the one that is stored. Only their
//! digests are compared, so nothing is read here, and nothing is written.

use kintsu_dag::NodeId;
use kintsu_store::{BlockMeta, UnitSums};
use kintsu_wire::message::{Fault, FaultKind, HeldBlock};

use crate::covered::Covered;
use crate::local::BlockSink;

/// The block as it comes. Memory: its unit checksums.
pub(crate) struct Compared {
    node: NodeId,
    stored: BlockMeta,
    covered: Covered,
    sums: UnitSums,
}

impl Compared {
    /// To be compared with a stored block of this node.
    pub fn new(node: NodeId, stored: BlockMeta) -> Self {
        let sums = UnitSums::of_block(stored.len, stored.unit_bytes.max(1));
        Self { node, stored, covered: Covered::default(), sums }
    }
}

impl BlockSink for Compared {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        for range in self.covered.missing(offset..offset + data.len() as u64) {
            let piece = &data[(range.start - offset) as usize..(range.end - offset) as usize];
            self.sums.add_and_sum(range.start, piece);
            self.covered.add(range);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Option<HeldBlock>, Fault> {
        let Self { node, stored, sums, .. } = *self;
        let (kind, detail) = match sums.digest() {
            Some(digest) if digest == stored.digest => return Ok(None),
            Some(digest) => {
                let expected = stored.digest;
                let detail = format!("what the other blocks say: expected digest {expected}, got {digest}");
                (FaultKind::Mismatch, detail)
            }
            None => {
                let (expected, got) = (stored.len, sums.written());
                (FaultKind::Invalid, format!("block to compare: expected {expected} bytes, got {got}"))
            }
        };
        Err(Fault { kind, node, block: Some(stored.id), detail })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::{BlockId, BlockIndex, StripeId};
    use kintsu_store::{Digest, Generation, UNIT_BYTES};

    #[test]
    fn a_block_must_be_what_is_stored_from_its_first_byte_to_the_last() {
        let bytes: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
        let id = BlockId { stripe: StripeId(1), index: BlockIndex(4) };
        let (generation, digest) = (Generation(1), Digest::of_bytes(&bytes));
        let (len, unit_bytes) = (bytes.len() as u64, UNIT_BYTES as u32);
        let stored = BlockMeta { id, generation, len, unit_bytes, digest };
        let compare = |pieces: &[(usize, &[u8])]| {
            let mut compared = Box::new(Compared::new(NodeId(3), stored));
            pieces.iter().for_each(|(at, piece)| compared.write_at(*at as u64, piece).unwrap());
            compared.finish().map_err(|fault| (fault.kind, fault.block))
        };
        // In any order; what came before counts.
        let pieces = [(70_000, &bytes[70_000..]), (0, &bytes[..90_000])];
        assert_eq!(compare(&pieces), Ok(None));
        assert_eq!(compare(&pieces[..1]), Err((FaultKind::Invalid, Some(id))));
        let mut wrong = bytes.clone();
        wrong[123_456] ^= 1;
        assert_eq!(compare(&[(0, &wrong[..])]), Err((FaultKind::Mismatch, Some(id))));
    }
}
