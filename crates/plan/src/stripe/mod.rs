//! What plans are made of: a stripe, how its bytes lie in blocks, and the nodes and racks that it is on.
//!
//! - `layout` and `division`: which bytes of an object are in which block ([`Layout`], [`Division`]);
//! - `topology`: the nodes, and a stripe on them ([`Topology`], [`StripeView`]);
//! - `place`: chooses nodes for blocks, with `deal` (which rack gets which blocks) and `draw` (a number that depends
//!   only on a seed); `on_paper`: an imaginary cluster; `capacity`: what still fits.

mod capacity;
mod deal;
mod division;
mod draw;
mod layout;
mod on_paper;
pub(crate) mod place;
mod topology;

pub use capacity::{Capacity, capacity};
pub use division::Division;
pub use draw::draw;
pub use layout::{Extent, Layout, LayoutKind};
pub use on_paper::{blocks_by_rack, even_cluster, stripe_on_paper};
pub use place::{Placement, place, place_lost};
pub use topology::{Node, StripeView, Topology};
