//! Exp#1, #2 and #4: repairs and users in each other's way.

use super::*;
use crate::figures::catalog::Kind;

pub const TRACES: Entry = Entry {
    name: "chameleon-1",
    groups: &[GROUP, "chameleon-2"],
    about: "Exp#1 and #2: repair rate, users' P99 and the trace's time under four traces",
    kind: Kind::Measured(traces),
};
pub const CHANGES: Entry = Entry {
    name: "chameleon-4",
    groups: &[GROUP],
    about: "Exp#4: repair rate while one trace follows the other",
    kind: Kind::Measured(changes),
};

const ALL: [&str; 4] = ["ycsb-a", "ibm", "twitter", "etc"];

/// Operations of each trace, which take about as long as a repair.
const OPERATIONS: [u64; 4] = [240, 480, 400, 720];

/// Why users' P99 has no aim.
const FEW: &str = "a point has 240 to 720 operations, so that 2 to 7 of them decide P99: too few for an aim";

fn traces(size: Size) -> Result<Experiment> {
    let some = if size.quick { 2 } else { ALL.len() };
    let traces: Vec<_> = ALL.into_iter().zip(OPERATIONS).take(some).collect();
    let mut cases = Vec::new();
    for (x, operations) in &traces {
        let load = Load { trace: Some(*operations), ..load(&[*x]) };
        let of = |racer: Racer| racer.recovery(size, Some(load.clone()));
        let alone = Recovery { method: None, ..of(THIS) };
        cases.push(Racer { series: ALONE, ..THIS }.case(*x, alone));
        cases.extend(all().map(|racer| racer.case(*x, of(racer))));
    }
    let xs: Vec<&str> = traces.into_iter().map(|(x, _)| x).collect();
    let mut claims = gains(&xs, [Some(23.5), Some(31.4), Some(65.6)]);
    for (baseline, published) in BASELINES.iter().zip([18.2, 9.1, 17.6]) {
        let value =
            mean(&xs, |x| Value::CalmerTail(Point::new(CHAMELEON, x), Point::new(baseline.series, x)));
        let text = format!("users' P99 with ChameleonEC below that with {}", baseline.series);
        claims.push(Claim::new(text, value).published(published).because(FEW));
    }
    for (baseline, published) in BASELINES.iter().zip([45.9, 50.2, 56.7]) {
        let value = mean(&xs, |x| {
            let [of, over, alone] = [CHAMELEON, baseline.series, ALONE].map(|series| Point::new(series, x));
            Value::CalmerTrace(of, over, alone)
        });
        let text = format!("Exp#2: interference degree of ChameleonEC below that of {}", baseline.series);
        claims.push(Claim::new(text, value).published(published));
    }
    for racer in all() {
        let value = mean(&xs, |x| Value::Interference(Point::new(racer.series, x), Point::new(ALONE, x)));
        claims.push(Claim::new(format!("Exp#2: interference degree of {}", racer.series), value));
    }
    Ok(Experiment {
        differs: differs!(
            "traces of 240 to 720 operations by eight tasks, which begin with the repair; users do the same for 4 s before, which counts nowhere; values of the paper's 512 KB \
                  (YCSB-A), 1/8 (IBM), 16 x (Twitter) and 1024 x (ETC) of the published lengths, replicated three times; without repair, nodes are wiped too, and the time is that \
                  of the trace; the generators stand in for the recorded traces"
        ),
        axis: "trace",
        scenes: vec![scene(MEGABITS, cases)?],
        claims,
        ..experiment(
            "chameleon-1",
            "Repair and users in each other's way, RS(14,10)",
            "ChameleonEC, Fig. 12 and 13: ChameleonEC repairs 23.5, 31.4, 65.6% faster than CR, PPR, ECPipe, with P99 18.2, 9.1, \
             17.6% and interference degrees 45.9, 50.2, 56.7% lower",
        )
    })
}

fn changes(size: Size) -> Result<Experiment> {
    let span = if size.quick { seconds(1.0) } else { seconds(2.0) };
    let load = Load { span, ..load(&ALL) };
    let x = "all four in turn";
    let stripes = if size.quick { 24 } else { 72 };
    let cases = all().map(|racer| {
        racer.case(x, Recovery { stripes, ..racer.recovery(size, Some(load.clone())) }).runs(0..=RUNS_ALONE)
    });
    Ok(Experiment {
        differs: differs!(
            "each trace lasts 2 s (15 s in the paper), after which each task goes on to the next one with its next operation; the repair begins \
                  after 4 s; traces as in chameleon-1"
        ),
        axis: "traces",
        scenes: vec![scene(MEGABITS, cases.collect())?],
        claims: gains(&[x], [Some(51.5), Some(53.0), Some(97.2)]),
        ..experiment(
            "chameleon-4",
            "Repair rate while users change what they do, RS(14,10)",
            "ChameleonEC, Fig. 15: 51.5, 53.0, 97.2% faster than CR, PPR, ECPipe",
        )
    })
}
