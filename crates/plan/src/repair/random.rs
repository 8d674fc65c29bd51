//! A chain through random helpers in random order (ECPipe, section 6.2: the basic version in its comparison): what a
//! cluster does that knows neither racks nor rates. The draw depends on the stripe and the lost blocks alone.

use super::method::MethodRow;
use super::pipeline;
use super::shape::Order;

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "random",
    about: "As pipeline, through random helpers in random order. A baseline",
    order: Order::Drawn,
    ..pipeline::METHOD
};
