//! RepairBoost over chains: many repairs are planned together by its scheduler ([`crate::many`]); one by itself as by
//! [`super::pipeline`].

use super::method::MethodRow;
use super::{auto, pipeline};

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "boost-ecpipe",
    about: "RepairBoost over chains: places given out so that nodes send and receive evenly",
    together: auto::METHOD.together,
    scheduler: Some("boost-ecpipe"),
    ..pipeline::METHOD
};
