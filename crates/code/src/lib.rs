//! kintsu-code

use kintsu_algebra::Matrix;
use kintsu_dag::{BlockIndex, Ecdag};

/// Why a code or a decoding is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {}

/// A linear code as graphs.
#[allow(missing_docs)]
pub trait Code: Send + Sync + std::fmt::Debug {
    fn name(&self) -> &str;
    fn family(&self) -> &str;
    fn n(&self) -> usize;
    fn k(&self) -> usize;
    fn w(&self) -> usize;
    fn generator(&self) -> &Matrix;
    fn encode(&self) -> Ecdag;
    fn decode(&self, available: &[BlockIndex], lost: &[BlockIndex]) -> Result<Ecdag, CodeError>;
    fn place(&self) -> Vec<Vec<BlockIndex>>;
    fn groups(&self) -> Vec<Vec<BlockIndex>>;
    fn distance(&self) -> usize;
}
