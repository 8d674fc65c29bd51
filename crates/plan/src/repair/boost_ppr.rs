//! RepairBoost over binary trees: many repairs are planned together by its scheduler ([`crate::many`]); one by itself as by
//! [`super::ppr`].

use super::method::MethodRow;
use super::{auto, ppr};

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "boost-ppr",
    about: "RepairBoost over binary trees: places given out so that nodes send and receive evenly",
    together: auto::METHOD.together,
    scheduler: Some("boost-ppr"),
    ..ppr::METHOD
};
