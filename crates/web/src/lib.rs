//! The page: a cluster in a browser, to look at. `kintsu page` serves it, and so do `kintsu up` and `kintsu coordinator`.
//!
//! It is a client of the coordinator, by the calls that commands use, so it shows what they print and nothing has to be
//! known twice. It never changes anything. It also tells Prometheus the cluster in numbers (`/metrics`), and a process that has
//! numbers of its own, such as `kintsu s3`, serves them by [`Metrics`].
//!
//! In order of reading: `listener`, [`Page`] (what is where), `guard` (who may ask), `assets` (the files of the page, built by npm from
//! `page/` and kept in `dist/`), `api` (the facts as JSON, one file for each kind), `live` (the facts that change, as a
//! stream), `metrics`.
//!
//! Invariants: it listens on loopback only; a browser that was led here by another site gets nothing (`guard`); nothing is
//! fetched from elsewhere; however many browsers look, the coordinator is asked once a second, and not at all if nobody
//! looks.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod api;
mod assets;
mod error;
mod guard;
mod listener;
mod live;
mod metrics;
mod page;

pub use api::{ExperimentShown, Results, TableShown};
pub use error::PageError;
pub use metrics::Metrics;
pub use page::{DEFAULT_PAGE, Page};
