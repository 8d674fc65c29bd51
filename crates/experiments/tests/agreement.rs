//! The simulator agrees with the measurements: every repair in the recorded results of `kintsu lab run agreement`
//! is planned again in the same way and played on the links that the lab had. No lab is brought up and no clock is
//! read.
#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::path::PathBuf;

use kintsu_experiments::figures::{Case, Experiment, Kind, Point, Report, Row, Size, Spread, find};
use kintsu_lab::Spec;

/// Largest allowed difference of the simulator, in percent.
const PERCENT: f64 = 5.0;

/// The file that the command wrote with `--out`.
fn recorded() -> Report {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/repair-experiments/agreement.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        let how = "kintsu lab run agreement --out docs/repair-experiments";
        panic!("{}: {error}; it is recorded by `{how}`", path.display())
    });
    serde_json::from_str(&text).unwrap()
}

/// The experiment that was recorded, as it is declared now.
fn declared(report: &Report) -> Experiment {
    let entry = find(std::slice::from_ref(&report.experiment)).unwrap()[0];
    let Kind::Measured(make) = entry.kind else { panic!("{} is not measured", report.experiment) };
    make(Size { quick: report.quick, scale: Some(report.scale) }).unwrap()
}

/// The median of the simulator's times today; panics for a repetition without a plan.
fn simulated(spec: &Spec, case: &Case, row: &Row) -> f64 {
    let seconds = row.samples.iter().map(|sample| {
        let trial = sample.trial.as_ref();
        let trial = trial.unwrap_or_else(|| panic!("{:?}: a repetition without a plan", row.point));
        trial.simulate(spec, case).unwrap().unwrap_or_else(|| panic!("{:?}: not played", row.point))
    });
    Spread::of(seconds).unwrap().median
}

#[test]
fn the_simulator_says_what_was_measured() {
    let report = recorded();
    let experiment = declared(&report);
    let (mut compared, mut off) = (0, Vec::new());
    for scene in &experiment.scenes {
        let spec = scene.spec.clone().scaled(report.scale).unwrap();
        for case in &scene.cases {
            let point = Point::new(case.series.clone(), case.x.clone());
            let row = report.row(&point).unwrap_or_else(|| panic!("{point:?}: expected a row, got none"));
            assert!(row.samples.len() >= 3, "{point:?}: {} repetitions", row.samples.len());
            assert_eq!((&row.code, row.block_bytes), (&case.code, case.block_bytes), "{point:?}");
            let measured = row.spread(report.measure).unwrap().median;
            let said = simulated(&spec, case, row);
            let above = 100.0 * (said / measured - 1.0);
            if above.abs() > PERCENT {
                off.push(format!("{}, {}: {said:.3} s, {above:+.1}%", point.x, point.series));
            }
            compared += 1;
        }
    }
    assert_eq!(compared, report.rows.len(), "rows that the experiment does not declare");
    assert!(compared >= 28, "{compared} rows");
    assert!(off.is_empty(), "too far off: {off:#?}");
}

#[test]
fn what_is_compared_depends_on_the_links() {
    // This fails if the links do not come from the lab, or if the simulator does not play the plan.
    let report = recorded();
    let experiment = declared(&report);
    for scene in &experiment.scenes {
        let slow = scene.spec.clone().scaled(report.scale / 2.0).unwrap();
        let spec = scene.spec.clone().scaled(report.scale).unwrap();
        for case in &scene.cases {
            let row = report.row(&Point::new(case.series.clone(), case.x.clone())).unwrap();
            let slower = simulated(&slow, case, row) / simulated(&spec, case, row);
            // The start takes no longer at half the rates, and new plans may round the shares of trees
            // differently.
            assert!((1.9..2.01).contains(&slower), "{:?}: {slower}", row.point);
        }
    }
}
