//! The interface of a code, as OpenEC's `ECBase` has it (section 3.3), plus what the planner asks.

use std::collections::BTreeSet;

use kintsu_algebra::Matrix;
use kintsu_dag::{BlockIndex, Ecdag};

use crate::CodeError;

/// A systematic linear code over GF(2^8) whose claimed distance has been proved.
///
/// Symbol `block * w + sub` carries row `block * w + sub` of [`Code::generator`]; the first `k * w`
/// rows are the identity.
pub trait Code: Send + Sync + std::fmt::Debug {
    /// The canonical name: `rs:n=14,k=10`; keys that have their default value are left out.
    fn name(&self) -> &str;

    /// The family: the name up to the colon.
    fn family(&self) -> &str;

    /// Blocks in a stripe.
    fn n(&self) -> usize;

    /// Data blocks in a stripe.
    fn k(&self) -> usize;

    /// Sub-blocks in a block (1 for codes without sub-packetization).
    fn w(&self) -> usize;

    /// The generator matrix, `(n * w) x (k * w)`, identity on top.
    fn generator(&self) -> &Matrix;

    /// The graph that computes every parity symbol from the data symbols. Parities with the same
    /// children are bound (`bind_x`), so that their inputs are fetched once.
    fn encode(&self) -> Ecdag;

    /// The graph that computes the symbols of all `lost` blocks from those of `available` blocks,
    /// which are given in order of preference (earlier is cheaper to read). A lost block with a
    /// local repair group that is otherwise available is repaired from that group, whatever the
    /// preference; the rest from as few and as early blocks as the code allows, by way of other lost blocks
    /// (inner vertices then) where that reads less. Every leaf has a
    /// coefficient other than zero somewhere. Where to compute is the planner's choice, with one
    /// exception: what a helper should combine before it sends is bound (`bind_y`) to a symbol of that
    /// helper. No lost block gives an empty graph.
    ///
    /// # Errors
    /// `Unrecoverable` when the available blocks do not determine the lost ones; `Invalid` for a
    /// block that is out of range, given twice, or both lost and available.
    fn decode(&self, available: &[BlockIndex], lost: &[BlockIndex]) -> Result<Ecdag, CodeError>;

    /// A partition of all blocks into groups whose repair profits from being kept together (in one
    /// rack): each local repair group, then the blocks in none of them. A code without local groups gives a
    /// single group of all n blocks: no preference.
    fn place(&self) -> Vec<Vec<BlockIndex>>;

    /// The local repair groups: each block of a group is computed from the others of that group
    /// alone. Empty for a code without locality.
    fn groups(&self) -> Vec<Vec<BlockIndex>>;

    /// The proved distance: any `distance() - 1` lost blocks can be decoded.
    fn distance(&self) -> usize;

    /// Whether the blocks not in `lost` determine the whole stripe. Cost: one rank of the
    /// generator.
    fn recoverable(&self, lost: &[BlockIndex]) -> bool {
        let lost: BTreeSet<usize> = lost.iter().map(|b| usize::from(b.0)).collect();
        let left = (0..self.n()).filter(|b| !lost.contains(b));
        let w = self.w();
        self.generator().select_rows(left.flat_map(|b| b * w..(b + 1) * w)).rank() == self.k() * w
    }
}
