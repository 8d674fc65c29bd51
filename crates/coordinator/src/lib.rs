//! kintsu-coordinator
mod error;
pub mod meta;
pub use error::{CoordinatorError, Result};
pub mod members;
pub mod repair;
