//! Exp#7, #8 and #13: links of several rates, and several lost nodes.

use super::*;
use crate::figures::catalog::Kind;

pub const QUIET: Entry = Entry {
    name: "chameleon-7",
    groups: &[GROUP],
    about: "Exp#7: repair rate without users, by the rate of the links",
    kind: Kind::Measured(quiet),
};
pub const BUSY: Entry = Entry {
    name: "chameleon-13",
    groups: &[GROUP],
    about: "Exp#13: repair rate under YCSB-A, by the rate of the links",
    kind: Kind::Measured(busy),
};
pub const NODES: Entry = Entry {
    name: "chameleon-8",
    groups: &[GROUP],
    about: "Exp#8: one to three nodes lost under YCSB-A",
    kind: Kind::Measured(nodes),
};

/// 1 to 10 Gb/s in the paper. At more than 70 Mb/s the processors of one machine are the limit.
const RATES: [f64; 3] = [17.5, 35.0, 70.0];
/// Under YCSB-A the one between is in Exp#6.
const ENDS: [f64; 2] = [17.5, 70.0];

/// Why ChameleonEC's lead is smaller than published where several nodes are lost.
const SEVERAL: &str = "as published, ChameleonEC repairs each block of a stripe by itself; conventional repair sends the blocks of a stripe's helpers once for all \
                       that the stripe lost. The baselines are also balanced, as in chameleon-6";

fn by_rate(size: Size, rates: &[f64], load: Option<&Load>) -> Result<(Vec<Scene>, Vec<String>)> {
    let (mut scenes, mut xs) = (Vec::new(), Vec::new());
    for megabits in size.some(rates) {
        let x = format!("{megabits} Mb/s");
        let cases = all().map(|racer| {
            let recovery = racer.recovery(size, load.cloned());
            // Without users a repair takes less, of which its beginning is a larger part.
            let stripes = recovery.stripes * if load.is_none() { 2 } else { 1 };
            // Blocks that take about as long.
            let block_bytes = (BLOCK as f64 * megabits / MEGABITS) as u64;
            Case { block_bytes, ..racer.case(&x, Recovery { stripes, ..recovery }) }
        });
        scenes.push(scene(megabits, cases.collect())?);
        xs.push(x);
    }
    Ok((scenes, xs))
}

/// ChameleonEC over the mean of the baselines at an x.
fn over_all(x: &str) -> Value {
    Value::Mean(
        BASELINES.iter().map(|b| Value::Gain(Point::new(CHAMELEON, x), Point::new(b.series, x))).collect(),
    )
}

fn quiet(size: Size) -> Result<Experiment> {
    let (scenes, xs) = by_rate(size, &RATES, None)?;
    let mut claims = gains(&xs, [None; 3]);
    let all = Value::Mean(BASELINES.iter().map(|b| gain(CHAMELEON, b.series, &xs)).collect());
    claims.push(Claim::new("ChameleonEC over the three, on average", all).published(35.1));
    for x in &xs {
        let text = format!("auto at {x}: part of the links' bound");
        claims.push(Claim::new(text, Value::OfBound(Point::new(OURS, x))).aim(Aim::AtLeast(0.9)));
    }
    Ok(Experiment {
        differs: differs!(
            "17.5 to 70 Mb/s for 1 to 10 Gb/s; about 40 blocks of 0.5 to 2 MiB, which take about as long"
        ),
        axis: "links",
        scenes,
        claims,
        ..experiment(
            "chameleon-7",
            "Repair rate without users, RS(14,10)",
            "ChameleonEC, Fig. 18: 25.0 to 41.3% faster than the others, 35.1% on average",
        )
    })
}

fn busy(size: Size) -> Result<Experiment> {
    let (scenes, xs) = by_rate(size, &ENDS, Some(&ycsb_a()))?;
    let mut claims = gains(&xs, [None; 3]);
    for (x, published) in [(xs.first(), 64.4), (xs.last(), 40.1)] {
        if let Some(x) = x {
            let text = format!("ChameleonEC over the three at {x}");
            claims.push(Claim::new(text, over_all(x)).published(published));
        }
    }
    Ok(Experiment {
        differs: differs!(
            "17.5 and 70 Mb/s for 1 to 10 Gb/s, 35 Mb/s in chameleon-6; blocks of 0.5 and 2 MiB, which take about as long; disks never limit here, as they do in the paper at 10 Gb/s; eight tasks"
        ),
        axis: "links",
        scenes,
        claims,
        ..experiment(
            "chameleon-13",
            "Repair rate under YCSB-A, by the rate of the links, RS(14,10)",
            "ChameleonEC, Fig. 24: 64.4% faster than the others at 1 Gb/s, 40.1% at 10 Gb/s",
        )
    })
}

/// A lab for each count, because a wiped node loses the blocks of all objects.
fn nodes(size: Size) -> Result<Experiment> {
    let (mut scenes, mut xs) = (Vec::new(), Vec::new());
    // The loss of three nodes must not take a value.
    let load = Load { copies: 4, ..ycsb_a() };
    for nodes in size.some(&[1, 2, 3]) {
        let x = format!("{nodes} lost");
        // As many lost blocks with three nodes as with one would be fewer stripes than nodes.
        let stripes = if size.quick { 12 } else { 24 / nodes as u64 };
        let cases = all().map(|racer| {
            racer.case(&x, Recovery { nodes, stripes, ..racer.recovery(size, Some(load.clone())) })
        });
        scenes.push(scene(MEGABITS, cases.collect())?);
        xs.push(x);
    }
    let mut claims = gains(&xs, [None; 3]);
    claims.iter_mut().filter(|claim| claim.because == STRONGER).for_each(|claim| claim.because = SEVERAL);
    for (x, published) in [(xs.first(), 43.6), (xs.last(), 65.7)] {
        if let Some(x) = x {
            let text = format!("ChameleonEC over the three, {x}");
            claims.push(Claim::new(text, over_all(x)).published(published));
        }
    }
    Ok(Experiment {
        differs: differs!(
            "20 blocks of 1 MiB are lost in all; eight tasks, whose values are replicated four times; the stripes that bear the fewest further losses are repaired first"
        ),
        axis: "nodes",
        scenes,
        claims,
        ..experiment(
            "chameleon-8",
            "Repair rate under YCSB-A after the loss of one to three nodes, RS(14,10)",
            "ChameleonEC, Fig. 19: 43.6% faster than the others for one node, 65.7% for three",
        )
    })
}
