//! RepairBoost over conventional repair: many repairs are planned together by its scheduler ([`crate::many`]); one by itself as by
//! [`super::conventional`].

use super::method::MethodRow;
use super::{auto, conventional};

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "boost-cr",
    about: "RepairBoost over conventional repair: places given out so that nodes send and receive evenly",
    together: auto::METHOD.together,
    scheduler: Some("boost-cr"),
    ..conventional::METHOD
};
