//! Exp#9 and #10: several codes, and reads of lost blocks.

use super::*;
use crate::figures::catalog::Kind;

pub const CODES: Entry = Entry {
    name: "chameleon-9",
    groups: &[GROUP],
    about: "Exp#9: repair rate under YCSB-A of four codes; RS(14,10) is in Exp#6",
    kind: Kind::Measured(codes),
};
pub const READS: Entry = Entry {
    name: "chameleon-10",
    groups: &[GROUP],
    about: "Exp#10: reads of lost blocks under YCSB-A; ChameleonEC itself is not run",
    kind: Kind::Measured(reads),
};

const BUTTERFLY: &str = "Butterfly(4,2)";
const LINEAR: [(&str, &str); 3] = [
    ("RS(8,3)", "rs:n=11,k=8"),
    ("LRC(8,2,2)", "azure-lrc:n=12,k=8,r=4"),
    ("LRC(10,2,2)", "azure-lrc:n=14,k=10,r=5"),
];

/// A lab for each code, because a wiped node loses the blocks of all objects.
fn codes(size: Size) -> Result<Experiment> {
    let mut scenes = Vec::new();
    for (x, code) in LINEAR {
        let cases = all().map(|racer| racer.case(x, racer.recovery(size, Some(ycsb_a()))).code(code));
        scenes.push(scene(MEGABITS, cases.collect())?);
    }
    // Four blocks a stripe: more stripes for as many lost blocks.
    let stripes = if size.quick { 24 } else { 84 };
    let cases = [BASELINES[0], THE_PAPERS, THIS].map(|racer| {
        let recovery = Recovery { stripes, ..racer.recovery(size, Some(ycsb_a())) };
        racer.case(BUTTERFLY, recovery).code("butterfly:n=4,k=2")
    });
    scenes.push(scene(MEGABITS, cases.into())?);
    let xs = LINEAR.map(|(x, _)| x);
    let mut claims = gains(&xs, [None; 3]);
    let value = Value::Gain(Point::new(CHAMELEON, BUTTERFLY), Point::new(CR, BUTTERFLY));
    claims.push(Claim::new("ChameleonEC over CR, Butterfly(4,2)", value).published(4.9));
    Ok(Experiment {
        differs: differs!("RS(14,10) is in chameleon-6; users are eight tasks"),
        axis: "code",
        scenes,
        claims,
        ..experiment(
            "chameleon-9",
            "Repair rate under YCSB-A by code",
            "ChameleonEC, Fig. 20: 12.2 to 35.7, 31.4 to 54.2, 65.7 to 97.0% faster than CR, PPR, ECPipe for RS codes and LRCs, \
             4.9% faster than CR for Butterfly(4,2)",
        )
    })
}

/// A read with no option, by the method that the client predicts to be fastest.
const BY_DEFAULT: &str = "no option";

/// The code decides how much a read of one block moves. ChameleonEC's dispatch is for repairs that are planned together, and no read is
/// planned by it.
fn reads(size: Size) -> Result<Experiment> {
    let all = size.some(&[("RS(6,3)", "rs:n=9,k=6"), ("RS(8,3)", "rs:n=11,k=8"), ("RS(10,4)", RS_10_4)]);
    let series =
        BASELINES.map(|racer| (racer.series, Some(racer.method))).into_iter().chain([(BY_DEFAULT, None)]);
    let (mut cases, mut claims) = (Vec::new(), Vec::new());
    let client = kintsu_dag::NodeId(HOSTS);
    for (x, code) in &all {
        cases.extend(series.clone().map(|(name, method)| {
            let read = UnderLoad::Read { method, load: ycsb_a(), stripes: 4, phase: Some(PHASE) };
            case(name, *x, 2 * BLOCK, Work::UnderLoad(read)).code(*code).at(client).runs(0..=RUNS)
        }));
        let over =
            BASELINES.iter().map(|b| Value::Gain(Point::new(BY_DEFAULT, *x), Point::new(b.series, *x)));
        let text = format!("a read with no option over the three, {x} (paper: ChameleonEC)");
        let claim = Claim::new(text, Value::Mean(over.collect()));
        let published = match *x {
            "RS(6,3)" => Some(59.1),
            "RS(10,4)" => Some(35.7),
            _ => None,
        };
        claims.push(Claim { published, ..claim });
    }
    let spec = kintsu_lab::Spec::even(HOSTS + 1, 1, mbps(MEGABITS)?);
    Ok(Experiment {
        differs: "blocks of 2 MiB, read one after the other on a host without blocks; eight tasks; \
                  ChameleonEC is not run, because no read is planned by it here: in its place is a read with no option, which takes the method \
                  that is predicted to be fastest; the other methods plan by the rates of links, where the paper's choose at random, \
                  which is in their favour",
        axis: "code",
        scenes: vec![Scene { spec, free: vec![client], cases }],
        claims,
        ..experiment(
            "chameleon-10",
            "Reads of lost blocks under YCSB-A",
            "ChameleonEC, Fig. 21: 20.9 to 152.0% faster, 59.1% on average for RS(6,3), 35.7% for RS(10,4)",
        )
    })
}
