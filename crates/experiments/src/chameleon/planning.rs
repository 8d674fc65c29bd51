//! Exp#3, #5 and #12: what planning takes, and what needs links and disks that a lab does not have. Computed, without
//! a lab; Exp#3 and #12 by [`super::fluid`].

use std::time::Instant;

use kintsu_dag::{BlockIndex, StripeId};
use kintsu_plan::DamagedStripe;
use kintsu_plan::many::{Disks, History, LostBlock, Phase, phase, scheduler};
use rand::SeedableRng;

use super::fluid::{Damage, Fluid, Idle, lost, scene};
use super::*;
use crate::error::ExperimentError;
use crate::figures::catalog::Kind;
use crate::figures::{Judged, Spread};
use crate::workload::Random;

pub const PHASES: Entry = Entry {
    name: "chameleon-3",
    groups: &[GROUP],
    about: "Exp#3: the length of ChameleonEC's phases, computed for links that change",
    kind: Kind::Computed(
        "computed for the paper's cluster with links of 1 Gb/s, so that a repair takes several phases; users take up to 80% of each link, \
         another part every 5 s; each phase's plan knows what is idle at its beginning; a link never waits for another one of the \
         same repair",
        phases,
    ),
};
pub const PLANNING: Entry = Entry {
    name: "chameleon-5",
    groups: &[GROUP],
    about: "Exp#5: the time to plan, by nodes and lost blocks",
    kind: Kind::Computed(
        "one processor of this machine plans all blocks at once; users take up to 80% of each link",
        planning,
    ),
};
pub const STORAGE: Entry = Entry {
    name: "chameleon-12",
    groups: &[GROUP],
    about: "Exp#12: disks as the bottleneck, computed; ChameleonEC and ChameleonEC-IO",
    kind: Kind::Computed(
        "computed for the paper's cluster: users read and write up to 40% of each disk, over the links; ChameleonEC-IO knows what is \
         idle of disks, the others only what is idle of links; plans take what a disk has idle for its reads and again for its writes, but its arm \
         does both in turn; a link never waits for another one of the same repair",
        storage,
    ),
};

/// 10 Gb/s.
const LINK: f64 = 1.25e9;
/// The paper's: 20 hosts, one of them lost, 200 blocks of 64 MiB.
pub const DAMAGE: Damage = Damage { nodes: 19, code: RS_10_4, blocks: 200, block_bytes: 64 << 20 };
/// The part of a link that users may take.
const BUSY: f64 = 0.8;
/// How often the users' part changes.
const CHANGE_SECONDS: f64 = 5.0;
const STEP_SECONDS: f64 = 0.05;
pub const REPETITIONS: u64 = 5;

pub fn judged(text: String, unit: &str, published: Option<f64>, aim: Option<Aim>, ours: Vec<f64>) -> Judged {
    Judged { text, unit: unit.into(), published, aim, ours: Spread::of(ours), because: String::new() }
}

/// What draws the users of a run.
pub fn users(seed: u64) -> Random {
    Random::seed_from_u64(seed + 1000)
}

/// Links of a tenth of the paper's, so that a repair takes several phases, and what users leave of them.
pub fn busy_links(damage: &Damage, users: &mut Random) -> Idle {
    damage.idle(LINK / 10.0, None, BUSY, users)
}

/// A lost block of stripes whose ids are their places.
pub fn place(lost: &LostBlock<'_>) -> (usize, BlockIndex) {
    (lost.stripe.view.id.0 as usize, lost.block)
}

/// Repairs the `waiting` blocks in their order, in phases of `span` seconds. In each phase, what is idle at its beginning is
/// what the plan knows. Returns the stripe of each block and the second in which it was repaired, in the order of time.
pub fn in_phases(
    damage: &Damage,
    stripes: &mut [DamagedStripe],
    mut waiting: Vec<(usize, BlockIndex)>,
    span: f64,
    mut users: Random,
) -> Result<Vec<(StripeId, f64)>> {
    let mut idle = busy_links(damage, &mut users);
    let (mut fluid, mut clock, mut change) = (Fluid::default(), 0.0, CHANGE_SECONDS);
    let mut repaired = Vec::new();
    while !(waiting.is_empty() && fluid.is_idle()) {
        let (underway, topology) = (fluid.underway(), damage.topology(idle.rates.clone()));
        let of = |(at, block): &(usize, BlockIndex)| LostBlock { stripe: &stripes[*at], block: *block };
        let blocks: Vec<LostBlock<'_>> = waiting.iter().map(of).collect();
        let Phase { repairs, refused, left } =
            phase(&scene(&topology, &idle.disks, &underway), &blocks, span);
        if let Some((_, error)) = refused.into_iter().next() {
            return Err(error.into());
        }
        waiting = left.iter().map(place).collect();
        for repair in repairs {
            fluid.start(&topology, &repair.planned);
            // It gets no other block of the stripe.
            stripes[repair.planned.stripe.0 as usize].barred.insert(repair.planned.requestor);
        }
        let end = clock + span;
        while clock < end && !fluid.is_idle() {
            clock += STEP_SECONDS;
            repaired.extend(fluid.pass(STEP_SECONDS, &idle).into_iter().map(|stripe| (stripe, clock)));
            if clock >= change {
                idle = busy_links(damage, &mut users);
                change += CHANGE_SECONDS;
            }
        }
    }
    Ok(repaired)
}

fn phases() -> Result<Vec<Judged>> {
    let rate = |span: f64, seed: u64| -> Result<f64> {
        let mut stripes = DAMAGE.stripes(&mut Random::seed_from_u64(seed))?;
        let waiting = lost(&stripes).iter().map(place).collect();
        let repaired = in_phases(&DAMAGE, &mut stripes, waiting, span, users(seed))?;
        let seconds = repaired.last().map_or(f64::INFINITY, |(_, second)| *second);
        Ok((DAMAGE.blocks as u64 * DAMAGE.block_bytes) as f64 / seconds / f64::from(1 << 20))
    };
    let of = |span: f64| (0..REPETITIONS).map(|seed| rate(span, seed)).collect::<Result<Vec<f64>>>();
    let base = of(10.0)?;
    let mut claims = vec![judged(
        "repair rate with phases of 10 s, links of 1 Gb/s".into(),
        "MiB/s",
        None,
        None,
        base.clone(),
    )];
    for span in [20.0, 30.0, 40.0] {
        let slower = of(span)?.iter().zip(&base).map(|(rate, base)| 100.0 * (1.0 - rate / base)).collect();
        let published = (span == 20.0).then_some(5.4);
        claims.push(judged(
            format!("phases of {span} s: slower than of 10 s by"),
            "%",
            published,
            None,
            slower,
        ));
    }
    Ok(claims)
}

fn planning() -> Result<Vec<Judged>> {
    let mut claims = Vec::new();
    for (nodes, blocks) in [(20, 200), (100, 200), (100, 1000), (500, 1000)] {
        let damage = Damage { nodes, blocks, ..DAMAGE };
        let largest = (nodes, blocks) == (500, 1000);
        for name in ["chameleon", "auto"] {
            let random = &mut Random::seed_from_u64(1);
            let stripes = damage.stripes(random)?;
            let idle = damage.idle(LINK, None, BUSY, random);
            let topology = damage.topology(idle.rates);
            let took = |_| -> Result<f64> {
                let scheduler = scheduler(name)?;
                let clock = Instant::now();
                let planned = scheduler.plan(
                    &scene(&topology, &idle.disks, &[]),
                    &mut History::default(),
                    &lost(&stripes),
                );
                let took = 1000.0 * clock.elapsed().as_secs_f64();
                planned.into_iter().collect::<Result<Vec<_>, _>>()?;
                Ok(took)
            };
            let took = (0..REPETITIONS).map(took).collect::<Result<Vec<_>>>()?;
            let published = (largest && name == "chameleon").then_some(550.0);
            let aim = largest.then_some(Aim::AtMost(20.0));
            let text = format!("{name}: to plan {blocks} blocks over {nodes} nodes");
            claims.push(judged(text, "ms", published, aim, took));
        }
    }
    Ok(claims)
}

/// All disks of a node share one arm's rate, of which users read and write up to 40% each, over the links. The plan of `-io` knows
/// what is idle of disks, the others only what is idle of links.
fn storage() -> Result<Vec<Judged>> {
    const SCHEDULERS: [&str; 4] = ["cr", "ppr", "ecpipe", "chameleon"];
    let mut claims = Vec::new();
    for (megabytes, published) in [(500.0, 43.8), (250.0, 15.5)] {
        let seconds = |name: &str, io: bool, seed: u64| -> Result<f64> {
            let random = &mut Random::seed_from_u64(seed);
            let stripes = DAMAGE.stripes(random)?;
            let idle = DAMAGE.idle(LINK, Some(megabytes * 1e6), BUSY, random);
            let topology = DAMAGE.topology(idle.rates.clone());
            let unknown = Disks::default();
            let scene = scene(&topology, if io { &idle.disks } else { &unknown }, &[]);
            let mut history = History::default();
            history.seed = seed;
            let mut fluid = Fluid::default();
            for planned in scheduler(name)?.plan(&scene, &mut history, &lost(&stripes)) {
                fluid.start(&topology, &planned?);
            }
            let mut clock = 0.0;
            while !fluid.is_idle() {
                fluid.pass(STEP_SECONDS, &idle);
                clock += STEP_SECONDS;
                if clock > 1e5 {
                    return Err(ExperimentError::invalid("repairs", "an end", "none after a day"));
                }
            }
            Ok(clock)
        };
        let all = |name: &str, io| {
            (0..REPETITIONS).map(|seed| seconds(name, io, seed)).collect::<Result<Vec<f64>>>()
        };
        let [cr, ppr, ecpipe, chameleon] = SCHEDULERS.map(|name| all(name, false));
        let (chameleon, io) = (chameleon?, all("chameleon", true)?);
        let faster = |slow: &[f64], fast: &[f64]| -> Vec<f64> {
            slow.iter().zip(fast).map(|(slow, fast)| 100.0 * (slow / fast - 1.0)).collect()
        };
        // The mean over the methods of each run, as the paper tells it.
        let others = [cr?, ppr?, ecpipe?].map(|other| faster(&other, &chameleon));
        let over = (0..chameleon.len()).map(|run| mean_of(&others, run)).collect();
        let disks = format!("disks of {megabytes} MB/s");
        claims.push(judged(
            format!("ChameleonEC over CR, PPR and ECPipe, on average, {disks}"),
            "%",
            Some(published),
            None,
            over,
        ));
        let published = (megabytes == 250.0).then_some(35.7);
        let text = format!("ChameleonEC-IO over ChameleonEC, {disks}");
        claims.push(judged(text, "%", published, Some(Aim::AtLeast(0.0)), faster(&chameleon, &io)));
        let auto = all("auto", true)?;
        claims.push(judged(
            format!("auto over ChameleonEC-IO, {disks}"),
            "%",
            None,
            None,
            faster(&io, &auto),
        ));
    }
    Ok(claims)
}

/// The mean of what several methods have in one run.
fn mean_of(methods: &[Vec<f64>], run: usize) -> f64 {
    methods.iter().filter_map(|runs| runs.get(run)).sum::<f64>() / methods.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_spared_by_plans_that_know_them() {
        let claims = storage().unwrap();
        let io: Vec<_> = claims.iter().filter(|claim| claim.text.contains("-IO over")).collect();
        assert!(io.len() == 2 && io.iter().all(|claim| claim.holds() == Some(true)), "{io:?}");
        // One value of each run, whatever the number of methods.
        let runs: Vec<_> = claims.iter().map(|claim| claim.ours.map(|ours| ours.runs)).collect();
        assert_eq!(runs, vec![Some(REPETITIONS as usize); claims.len()]);
        assert_eq!(mean_of(&[vec![1.0, 9.0], vec![3.0, 0.0]], 0), 2.0);
    }
}
