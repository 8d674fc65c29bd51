//! A chain in the order of block numbers: what a cluster does that knows nothing of racks.

use super::method::MethodRow;
use super::pipeline;
use super::shape::Order;

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "flat",
    about: "As pipeline, in the order of block numbers, without regard to racks",
    order: Order::Index,
    ..pipeline::METHOD
};
