//! A binary tree (PPR; ECPipe, section 2.2): each helper adds its part to what it receives from up to two others.

use kintsu_dag::tree;

use super::method::{MethodRow, Stragglers};
use super::shape::Order;
use crate::RunMode;

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "ppr",
    about: "Partial sums along a binary tree",
    order: Order::Racks,
    shape: |rebuild| rebuild.over_helpers(tree, Some(&|part, _| rebuild.at_requestor(part))),
    run_mode: RunMode::Streamed,
    helpers_receive: true,
    without_rates: None,
    plan: None,
    together: false,
    scheduler: None,
    stragglers: Stragglers::Avoid,
};
