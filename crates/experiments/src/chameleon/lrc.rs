//! The LRC study's benchmark during a repair (Kolosov et al., Fig. 15).

use super::*;
use crate::figures::catalog::Kind;

pub const BENCHMARK: Entry = Entry {
    name: "lrc-15",
    groups: &[GROUP],
    about: "the LRC study's Fig. 15: a benchmark's reads during the recovery of a node, four codes",
    kind: Kind::Measured(benchmark),
};

const READS: &str = "no recovery";
const REPAIR: &str = "recovery";

fn benchmark(size: Size) -> Result<Experiment> {
    let all = [
        ("Reed-Solomon", "rs:n=15,k=10"),
        ("Azure-LRC", "azure-lrc:n=15,k=10,r=4"),
        ("Azure-LRC+1", "azure-lrc-plus1:n=15,k=10,r=4"),
        ("Optimal-LRC", "optimal-lrc:n=15,k=10,r=4"),
    ];
    let (mut scenes, mut claims) = (Vec::new(), Vec::new());
    for (x, code) in all {
        let load = Load {
            coded: true,
            tasks: 16,
            trace: Some(if size.quick { 400 } else { 700 }),
            ..load(&["rados"])
        };
        let recovery = Recovery { phase: None, ..THIS.recovery(size, Some(load)) };
        let alone = Recovery { method: None, ..recovery.clone() };
        let of = |series, recovery| Racer { series, ..THIS }.case(x, recovery).code(code);
        // A lab each, so that every code's objects have the same names.
        scenes.push(scene(MEGABITS, vec![of(READS, alone), of(REPAIR, recovery)])?);
        let longer = Value::Interference(Point::new(REPAIR, x), Point::new(READS, x));
        claims.push(Claim::new(
            format!(
                "{x}: the benchmark takes longer with a recovery than without, a node being lost in both, by"
            ),
            longer,
        ));
    }
    let rs = Point::new(REPAIR, "Reed-Solomon");
    for (x, _) in &all[1..] {
        let rate = Value::RateRatio(Point::new(REPAIR, *x), rs.clone());
        let claim = Claim::new(format!("{x}: recovery rate over Reed-Solomon's"), rate);
        claims.push(claim.aim(Aim::AtLeast(1.0)));
    }
    Ok(Experiment {
        differs: "17 hosts with links of 35 Mb/s, and no disks, for 36 OSDs on SSDs; 700 reads of objects of 256 KiB (4 MiB in the \
                  paper) by 16 tasks, which begin with the recovery, and go on for 4 s before, which counts nowhere; links limit the recovery, and not Ceph's \
                  settings; without recovery a node is wiped too, so that its blocks are rebuilt for reads, and the time is that of the \
                  reads",
        axis: "code",
        scenes,
        claims,
        ..experiment(
            "lrc-15",
            "A benchmark during the recovery of a node, (15,10,4)",
            "Kolosov et al., Fig. 15: recovery ends in the order of the codes' costs, Azure-LRC+1 first and Reed-Solomon last; the \
             benchmark loses most with Reed-Solomon, least with Azure-LRC+1 and Optimal-LRC",
        )
    })
}
