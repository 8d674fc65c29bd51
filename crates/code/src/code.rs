//! The interface of a code, like OpenEC's `ECBase` (section 3.3), plus what the planner needs.

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

    /// The graph that computes the symbols of all `lost` blocks from those of `available` blocks, which are given
    /// in order of preference (earlier is cheaper to read). A lost block whose local repair group is otherwise
    /// available is repaired from that group, whatever the preference. The other lost blocks are repaired from as
    /// few and as early blocks as the code allows, through other lost blocks (which then are inner vertices) where
    /// that reads less. Every leaf has a nonzero coefficient somewhere. The planner chooses where to compute, with
    /// one exception: what a helper should combine before it sends is bound (`bind_y`) to a symbol of that helper.
    /// Without lost blocks the graph is empty.
    ///
    /// # Errors
    /// `Unrecoverable` when the available blocks do not determine the lost ones; `Invalid` for a
    /// block that is out of range, given twice, or both lost and available.
    fn decode(&self, available: &[BlockIndex], lost: &[BlockIndex]) -> Result<Ecdag, CodeError>;

    /// A partition of all blocks into groups that should be kept together (in one rack) for cheaper repairs: each
    /// local repair group, then the blocks in no group. A code without local groups gives a single group of all n
    /// blocks: no preference.
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
