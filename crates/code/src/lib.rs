<<<<<<< HEAD
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
=======
//! Erasure codes: from a name and its parameters to a generator matrix, encode and decode graphs,
//! and groups.
//!
//! A code is made by name ([`parse`], `rs:n=14,k=10`) or from data ([`from_generator`]). Either way
//! its claimed distance is proved before it is handed out, by exhaustion or by a theorem whose
//! conditions are checked on the very matrix (see the `distance` module). A code is a value: it moves no
//! bytes, knows no nodes and does no I/O. Block order is data `0..k`, then local parities, then
//! global parities.
//!
//! Source: OpenEC (FAST'19), section 3.3, for the interface; each family names its own.

mod azure_lrc;
mod code;
mod decode;
mod describe;
mod distance;
mod error;
mod linear;
mod name;
mod rs;

pub use code::Code;
pub use decode::decode_linear;
pub use describe::{CodeReport, report};
pub use error::CodeError;
pub use linear::from_generator;
pub use name::{Family, Key, families, parse};
>>>>>>> ef77055 (Codes by name: RS and Azure-LRC, each proved when it is made)
