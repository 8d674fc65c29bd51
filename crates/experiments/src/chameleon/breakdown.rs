//! Exp#6 and #11: RepairBoost, and what re-scheduling is worth.

use super::*;
use crate::figures::catalog::Kind;

/// ChameleonEC without re-scheduling.
const STATIC: &str = "ETRP";

/// RepairBoost over the paper's baselines, each with as many repairs at once as the coordinator decides.
pub(super) const WITH_BOOST: [Racer; 3] = [
    Racer { series: "RB+CR", method: Method::BoostCr, per_node: 0 },
    Racer { series: "RB+PPR", method: Method::BoostPpr, per_node: 0 },
    Racer { series: RB_ECPIPE, method: Method::BoostEcpipe, per_node: 0 },
];
const RB_ECPIPE: &str = "RB+ECPipe";

/// The paper's baselines as it has them, helpers and requestors drawn, with how many percent faster than each ChameleonEC is there.
const DRAWN: [(Racer, f64); 3] = [
    (Racer { series: "CR, drawn", method: Method::Conventional, per_node: 0 }, 23.5),
    (Racer { series: "PPR, drawn", method: Method::Ppr, per_node: 0 }, 31.4),
    (Racer { series: "ECPipe, drawn", method: Method::Pipeline, per_node: 0 }, 65.6),
];

pub const BOOSTED: Entry = Entry {
    name: "chameleon-6",
    groups: &[GROUP],
    about: "Exp#6: ChameleonEC beside RepairBoost under YCSB-A",
    kind: Kind::Measured(boosted),
};
pub const STRAGGLERS: Entry = Entry {
    name: "chameleon-11",
    groups: &[GROUP],
    about: "Exp#11: a straggler during the repair under YCSB-A, with and without re-scheduling",
    kind: Kind::Measured(stragglers),
};

fn boosted(size: Size) -> Result<Experiment> {
    let x = "YCSB-A";
    let racers = WITH_BOOST.into_iter().chain(all());
    let swept = racers.map(|racer| racer.case(x, racer.recovery(size, Some(ycsb_a()))));
    let drawn = DRAWN.iter().map(|(racer, _)| {
        let recovery = racer.recovery(size, Some(ycsb_a()));
        Case { sweep: None, ..racer.case(x, Recovery { schedule: Schedule::Random, ..recovery }) }
    });
    let cases = swept.chain(drawn).map(|case| case.runs(0..=RUNS_ALONE)).collect();
    let published = WITH_BOOST.iter().zip([34.8, 16.7, 46.2]);
    let mut claims: Vec<Claim> = published
        .map(|(Racer { series, .. }, published)| {
            let text = format!("ChameleonEC's repair rate over {series}");
            Claim::new(text, gain(CHAMELEON, series, &[x])).published(published).aim(NOT_SLOWER)
        })
        .collect();
    for (Racer { series, .. }, published) in DRAWN {
        let text = format!("ChameleonEC's repair rate over {series} (paper: Exp#1, average)");
        claims.push(Claim::new(text, gain(CHAMELEON, series, &[x])).published(published));
    }
    let value = gain(RB_ECPIPE, ECPIPE, &[x]);
    claims.push(Claim::new("RB+ECPipe over ECPipe", value).published(100.0 * (142.7 / 110.6 - 1.0)));
    claims.push(ours(&[x]));
    Ok(Experiment {
        differs: differs!(
            "eight tasks; RepairBoost's plans stream in slices like all others here; \"drawn\": CR, PPR and ECPipe as the paper has them, helpers and \
             requestors at random, without a limit for a node; these too go around slow nodes"
        ),
        axis: "users",
        scenes: vec![scene(MEGABITS, cases)?],
        claims,
        ..experiment(
            "chameleon-6",
            "ChameleonEC beside RepairBoost under YCSB-A, RS(14,10)",
            "ChameleonEC, Fig. 17: 34.8, 16.7, 46.2% faster than CR, PPR, ECPipe with RepairBoost; ECPipe 110.6 MB/s without \
             it, 142.7 MB/s with it",
        )
    })
}

fn stragglers(size: Size) -> Result<Experiment> {
    let (mut cases, mut xs) = (Vec::new(), Vec::new());
    for after in size.some(&[0.0, 0.4, 0.8]) {
        let x = format!("{after} s");
        let alone = Racer { series: STATIC, method: Method::ChameleonStatic, per_node: 0 };
        cases.extend(all().chain([alone]).map(|racer| {
            let recovery = racer.recovery(size, Some(ycsb_a()));
            racer.case(&x, Recovery { straggler: seconds(after), ..recovery })
        }));
        xs.push(x);
    }
    let rescheduled =
        Claim::new("ChameleonEC's repair rate over its plans alone", gain(CHAMELEON, STATIC, &xs))
            .published(31.4)
            .aim(Aim::AtLeast(31.0))
            .because(
                "in the paper a node's transmissions run one after the other, so a late one holds up all behind it; here they stream side by side, and plans \
                 that are not re-scheduled lose less",
            );
    Ok(Experiment {
        differs: differs!(
            "0, 0.4 and 0.8 s for 0, 5 and 10 s; the time is that of the whole repair and not of the first phase; eight tasks read blocks of 1 MiB from one node; users are eight tasks"
        ),
        axis: "straggler after",
        scenes: vec![scene(MEGABITS, cases)?],
        claims: gains(&xs, [Some(34.5), Some(18.8), Some(43.5)]).into_iter().chain([rescheduled]).collect(),
        ..experiment(
            "chameleon-11",
            "A straggler during a repair under YCSB-A, RS(14,10)",
            "ChameleonEC, Fig. 22: 34.5, 18.8, 43.5% faster than CR, PPR, ECPipe, 31.4% faster than without re-scheduling",
        )
    })
}
