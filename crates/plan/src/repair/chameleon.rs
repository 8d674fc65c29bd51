//! ChameleonEC: many repairs are planned together by its scheduler ([`crate::many`]); one by itself as by
//! [`super::auto`].

use super::auto;
use super::method::{MethodRow, Stragglers};

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "chameleon",
    about: "ChameleonEC: upload and download tasks by least estimated time, in phases",
    scheduler: Some("chameleon"),
    stragglers: Stragglers::Reschedule,
    ..auto::METHOD
};
