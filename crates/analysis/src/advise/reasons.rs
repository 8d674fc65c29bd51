//! The reasons in words: why the first answer is the first, where the others are worse, and what to know before
//! using a code.

use kintsu_code::Code;

use crate::advise::{Answer, Objective, Requirements};
use crate::{Costs, RackReliability, Ratio, sent_along_a_path};

/// Writes the reasons of all answers, which must be in order.
pub(super) fn explain(requirements: &Requirements, answers: &mut [Answer], considered: usize) {
    let Some((first, others)) = answers.split_first_mut() else { return };
    others.iter_mut().for_each(|other| other.reasons = against(first, other));
    first.reasons = in_favour(requirements, first, considered);
}

fn in_favour(requirements: &Requirements, answer: &Answer, considered: usize) -> Vec<String> {
    let Answer { n, d, overhead, degraded, nrc, .. } = answer;
    let (degraded, nrc, overhead) = (degraded.decimal(), nrc.decimal(), overhead.decimal());
    let of_all = match requirements.survive_rack {
        true => format!("the least of those of {considered} codes that survive the loss of a rack"),
        false => format!("the least of {considered} codes that fit"),
    };
    let mut reasons = vec![match requirements.objective {
        Objective::Degraded => format!("a read of a lost block costs {degraded} blocks, {of_all}"),
        Objective::Recovery => {
            format!("a lost node costs {nrc} blocks read for each of its data blocks, {of_all}")
        }
        Objective::Balanced => {
            format!("degraded read {degraded} x NRC {nrc} x overhead {overhead}: {of_all}")
        }
    }];
    let beyond = match answer.beyond_distance {
        // Rounded down, because 100 % would mean a larger distance.
        Some(fraction) if fraction > 0.0 => {
            format!(", and {:.2} % of the losses of {d}", (1e4 * fraction).floor() / 100.0)
        }
        _ => String::new(),
    };
    reasons.push(format!("any {} lost nodes are tolerated (distance {d}){beyond}", d - 1));
    reasons.push(format!("{overhead} bytes stored for each byte, within {}", requirements.max_overhead));
    if let Some(racks) = answer.reliability.racks.as_ref().filter(|racks| racks.survives_any_rack) {
        let most = racks.blocks_per_rack;
        reasons.push(format!(
            "over {} racks it has at most {most} of {n} blocks in one, and survives the loss of any one rack",
            requirements.racks
        ));
    }
    reasons
}

/// Where `other` is worse than the first, then where it is better.
fn against(first: &Answer, other: &Answer) -> Vec<String> {
    let measures = [
        ("degraded read", first.degraded, other.degraded),
        ("NRC", first.nrc, other.nrc),
        ("overhead", first.overhead, other.overhead),
    ];
    let compared = |worse: bool| {
        let differ =
            measures.iter().filter(|(_, first, other)| if worse { other > first } else { other < first });
        let told = differ
            .map(|(what, first, other)| format!("{what} {} against {}", other.decimal(), first.decimal()));
        told.collect::<Vec<_>>().join(", ")
    };
    let mut reasons = Vec::new();
    for (what, told) in [("worse", compared(true)), ("better", compared(false))] {
        if !told.is_empty() {
            reasons.push(format!("{what}: {told}"));
        }
    }
    let better = |is: bool| if is { "better" } else { "worse" };
    if other.d != first.d {
        let what = better(other.d > first.d);
        reasons.push(format!("{what}: any {} lost nodes tolerated against {}", other.d - 1, first.d - 1));
    }
    let safe =
        |answer: &Answer| answer.reliability.racks.as_ref().is_some_and(|racks| racks.survives_any_rack);
    if safe(other) != safe(first) {
        let verb = if safe(other) { "survives" } else { "does not survive" };
        reasons.push(format!("{}: {verb} the loss of any one rack", better(safe(other))));
    }
    let [mttdl, first_mttdl] = [other, first].map(|answer| answer.reliability.stripe.mttdl_years);
    if mttdl.max(first_mttdl) > 1.1 * mttdl.min(first_mttdl) {
        let what = better(mttdl > first_mttdl);
        reasons.push(format!("{what}: MTTDL of a stripe {mttdl:.1e} years against {first_mttdl:.1e}"));
    }
    if reasons.is_empty() {
        let why = if other.w > first.w { "more sub-blocks" } else { "a tie, broken by size and name" };
        reasons.push(format!("the same costs; {why}"));
    }
    reasons
}

/// What to know before using the code.
pub(super) fn caveats(
    requirements: &Requirements,
    code: &dyn Code,
    costs: &Costs,
    racks: Option<&RackReliability>,
) -> Vec<String> {
    let (n, k, w) = (code.n(), code.k(), code.w());
    let mut caveats = Vec::new();
    match racks {
        Some(racks) if !racks.survives_any_rack => caveats.push(format!(
            "the loss of a rack can lose data: over {} racks, one rack holds {} of {n} blocks",
            requirements.racks, racks.blocks_per_rack
        )),
        None => caveats.push(format!("its {n} blocks cannot be spread over {} racks", requirements.racks)),
        Some(_) => {}
    }
    let nodes = requirements.environment.nodes;
    match nodes - n {
        0 => caveats.push(format!("stripes use all {nodes} nodes: blocks of a lost node cannot be rebuilt before the node is replaced")),
        spare if spare < requirements.tolerate => caveats.push(format!(
            "stripes use {n} of {nodes} nodes: {spare} lost block{} of a stripe can be rebuilt, further ones only after a node is replaced",
            if spare == 1 { "" } else { "s" }
        )),
        _ => {}
    }
    let highest = |of: &[crate::RepairCost]| of.iter().map(|cost| cost.read).max();
    if let (Some(data), Some(parity)) = (highest(&costs.per_block[..k]), highest(&costs.per_block[k..]))
        && parity > data
    {
        let costly = costs.per_block[k..].iter().filter(|cost| cost.read > data).count();
        caveats.push(format!(
            "{costly} parity block{} of {n} cost{} up to {} blocks to repair; data blocks at most {}",
            if costly == 1 { "" } else { "s" },
            if costly == 1 { "s" } else { "" },
            parity.decimal(),
            data.decimal()
        ));
    }
    if w > 1 {
        caveats.push(format!(
            "blocks have {w} sub-blocks: a read of a lost block, however small, computes cells of at least {} KiB",
            4 * w
        ));
    }
    caveats.extend(path_caveat(code, costs));
    let helpers = costs.per_block.iter().map(|cost| cost.helpers).max().unwrap_or(0);
    if helpers > k {
        caveats.push(format!(
            "a repair reads parts of {helpers} blocks, more nodes than the {k} of RS: any slow node delays it"
        ));
    }
    caveats
}

/// Warns if a path sends more than a star. For codes without sub-blocks both send the same.
fn path_caveat(code: &dyn Code, costs: &Costs) -> Option<String> {
    if code.w() == 1 {
        return None;
    }
    let data = &costs.per_block[..code.k()];
    let along = data.iter().map(|cost| sent_along_a_path(code, cost.block).ok().flatten());
    let path: Ratio = along.collect::<Option<Vec<Ratio>>>()?.into_iter().sum();
    let star: Ratio = data.iter().map(|cost| cost.moved).sum();
    let [path, star] = [path, star].map(|sum| sum / data.len());
    (path > star).then(|| {
        format!(
            "the repair of a data block sends {} blocks along a path, {} by a star: single repairs are faster along the path, \
             many at once by stars",
            path.decimal(),
            star.decimal()
        )
    })
}
