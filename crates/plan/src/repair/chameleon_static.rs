//! ChameleonEC's plans alone (in the paper's Exp#11: ETRP): as [`super::chameleon`], and nothing is done about stragglers.

use super::chameleon;
use super::method::{MethodRow, Stragglers};

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "chameleon-static",
    about: "ChameleonEC without re-scheduling",
    stragglers: Stragglers::Endure,
    ..chameleon::METHOD
};
