//! Dispatches the upload and download tasks of one repair (ChameleonEC, section III-A).
//!
//! A repair from k helpers (the paper's sources) is k uploads and k downloads of a block. The requestor (its
//! destination) is the node that would finish its downloads first with one more. It gets one download. Each of the
//! k - 1 others goes to the node, requestor or helper, that would finish first with it; with its first download a
//! helper also gets the upload of what it combines. The helpers that are still missing only upload: those that would
//! finish their uploads first.
//!
//! | paper | here |
//! |---|---|
//! | T_up, T_down of a node | bytes: `load` of its uplink and downlink |
//! | B_up, B_down | one over `pace` |
//! | R, the repair time of a node | [`Desk::time`] of the busiest of its links and disks |
//!
//! Where the paper says nothing, of nodes that finish at the same time the one whose other direction is idler is
//! taken, then the one with the smaller number. Disks count like links (section III-D): each helper reads the block
//! that it uploads, the requestor writes one; so one rule covers both bottlenecks.

use super::desk::{Case, Desk};

/// The tasks of one repair.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tasks {
    pub requestor: usize,
    /// The k helpers, each with the number of its downloads, in the order of their numbers.
    pub helpers: Vec<(usize, usize)>,
    /// When the last of these nodes is done, in seconds, with all the work that it has.
    pub seconds: f64,
}

/// A candidate helper while tasks are dispatched.
struct Candidate {
    node: usize,
    downloads: usize,
    uploads: bool,
}

/// The tasks of a repair, for a requestor out of `open`. `None` without a requestor or with fewer than k helpers.
pub(super) fn dispatch(desk: &Desk<'_>, case: &Case, open: &[usize]) -> Option<Tasks> {
    let Case { bytes, k, helpers } = case;
    if helpers.len() < *k || *k == 0 {
        return None;
    }
    let requestor = requestor(desk, *bytes, open.iter().copied())?;
    let mut candidates: Vec<Candidate> =
        helpers.iter().map(|&node| Candidate { node, downloads: 0, uploads: false }).collect();
    let mut at_requestor = 1;
    let own = desk.sending(requestor, 0.0);
    let mut times: Vec<(f64, f64)> =
        candidates.iter().map(|helper| next_download(desk, helper, *bytes)).collect();
    for _ in 1..*k {
        let here = own.max(desk.time(desk.down(requestor), (at_requestor + 1) as f64 * bytes));
        let here = here.max(desk.time(desk.write(requestor), *bytes));
        let best = times.iter().enumerate().min_by(|a, b| order(a.1, b.1));
        match best {
            Some((at, (seconds, _))) if *seconds < here => {
                candidates[at].downloads += 1;
                candidates[at].uploads = true;
                times[at] = next_download(desk, &candidates[at], *bytes);
            }
            _ => at_requestor += 1,
        }
    }
    let relays = candidates.iter().filter(|helper| helper.uploads).count();
    let mut rest: Vec<(usize, (f64, f64))> = candidates
        .iter()
        .enumerate()
        .filter(|(_, helper)| !helper.uploads)
        .map(|(at, helper)| (at, (desk.sending(helper.node, *bytes), desk.receiving(helper.node, 0.0))))
        .collect();
    rest.sort_by(|a, b| order(&a.1, &b.1));
    rest.iter().take(*k - relays).for_each(|(at, _)| candidates[*at].uploads = true);
    let chosen: Vec<(usize, usize)> = candidates
        .iter()
        .filter(|helper| helper.uploads)
        .map(|helper| (helper.node, helper.downloads))
        .collect();
    let done = |&(node, downloads): &(usize, usize)| {
        desk.sending(node, *bytes).max(desk.time(desk.down(node), downloads as f64 * bytes))
    };
    let last = desk.time(desk.down(requestor), at_requestor as f64 * bytes);
    let last = last.max(desk.time(desk.write(requestor), *bytes)).max(own);
    let seconds = chosen.iter().map(done).fold(last, f64::max);
    Some(Tasks { requestor, helpers: chosen, seconds })
}

/// The node that would finish first with one more block to receive.
pub(super) fn requestor(desk: &Desk<'_>, bytes: f64, open: impl IntoIterator<Item = usize>) -> Option<usize> {
    let mut best: Option<(f64, f64, usize)> = None;
    for node in open {
        let seconds = desk.receiving(node, bytes);
        if best.is_none_or(|(least, ..)| seconds <= least) {
            let other = desk.sending(node, 0.0);
            if best.is_none_or(|(least, idlest, _)| seconds < least || other < idlest) {
                best = Some((seconds, other, node));
            }
        }
    }
    best.map(|(_, _, node)| node)
}

/// When a helper would be done with one more download of this repair, and when its uplink would be.
fn next_download(desk: &Desk<'_>, helper: &Candidate, bytes: f64) -> (f64, f64) {
    // Whether it has the upload already or gets it with this download: it sends one block in this repair.
    let sent = desk.sending(helper.node, bytes);
    let received = desk.time(desk.down(helper.node), (helper.downloads + 1) as f64 * bytes);
    (sent.max(received), sent)
}

fn order(a: &(f64, f64), b: &(f64, f64)) -> std::cmp::Ordering {
    a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
}
