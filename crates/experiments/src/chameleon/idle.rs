//! `auto` under YCSB-A on several networks and with several codes: part of what the idle bandwidth allows.

use super::*;
use crate::figures::NO_PAPER;
use crate::figures::catalog::Kind;
use crate::figures::catalog::own::two_speeds;

pub const NETWORKS: Entry = Entry {
    name: "by-default-busy",
    groups: &[GROUP],
    about: "recovery of a node with no option under YCSB-A, compared with what users leave of the links",
    kind: Kind::Measured(networks),
};

/// The part of what the idle bandwidth allows that a recovery with no option should reach under YCSB-A.
const OF_IDLE: f64 = 0.85;

/// With faster links `auto` and users keep the processors of one machine busy: at 35 Mb/s by more than three quarters.
const LINK_MEGABITS: f64 = 20.0;
/// As long on these links as the other experiments' on theirs; users' values likewise.
const HALVED: u64 = 2;

/// Who gets the blocks, as it is named, and how often each is repeated: every node, the one that lost them, or that one and three more.
static REQUESTORS: [(&str, Requestors, usize); 3] = [
    ("", Requestors::Any, RUNS_ALONE),
    (", one requestor", Requestors::Count(1), RUNS),
    (", four requestors", Requestors::Count(4), RUNS),
];

/// A lab for each code, because a wiped node loses the blocks of all objects.
fn networks(size: Size) -> Result<Experiment> {
    let link = mbps(LINK_MEGABITS)?;
    let flat = kintsu_lab::Spec::even(HOSTS, 1, link);
    let racks = [0, 0, 0, 1, 1, 1, 2, 2, 2];
    let racks = kintsu_lab::Spec::in_racks(&racks, link).with_rack_links(mbps(2.0 * LINK_MEGABITS)?);
    let slow = mbps(LINK_MEGABITS / 2.0)?;
    let every = &REQUESTORS[..1];
    let all = [
        ("17 hosts", flat.clone(), RS_10_4, &REQUESTORS[..]),
        ("17 hosts", flat.clone(), "rs:n=9,k=6", &REQUESTORS[..]),
        ("17 hosts", flat.clone(), "azure-lrc:n=16,k=12,r=6", every),
        ("17 hosts of two speeds", two_speeds(flat.clone(), slow), RS_10_4, every),
        ("17 hosts of two speeds", two_speeds(flat, slow), "rs:n=9,k=6", every),
        ("9 hosts in 3 racks", racks.clone(), "rs:n=9,k=6", every),
        ("9 hosts of two speeds in 3 racks", two_speeds(racks, slow), "azure-lrc:n=8,k=4,r=2", every),
    ];
    let mut load = ycsb_a();
    load.scales.values_mut().for_each(|scale| scale.sizes /= HALVED as f64);
    let (mut scenes, mut claims) = (Vec::new(), Vec::new());
    for (network, spec, code, requestors) in all {
        let mut cases = Vec::new();
        for (to, requestors, runs) in requestors {
            let x = format!("{network}, {code}{to}");
            let recovery = THIS.recovery(size, Some(load.clone()));
            // Of a short repair its beginning is a large part, and so is one block more or less on a link.
            let stripes = 2 * recovery.stripes;
            let recovery =
                Recovery { told: false, phase: None, stripes, requestors: requestors.clone(), ..recovery };
            let case = THIS.case(x.as_str(), recovery).code(code).runs(0..=*runs);
            cases.push(Case { block_bytes: BLOCK / HALVED, ..case });
            let value = Value::OfIdle(Point::new(OURS, x.as_str()));
            let text = format!("{x}: part of what the idle bandwidth allows");
            claims.push(Claim::new(text, value).aim(Aim::AtLeast(OF_IDLE)));
        }
        scenes.push(Scene { spec, free: Vec::new(), cases });
    }
    Ok(Experiment {
        differs: "17 and 9 hosts with links of 20 Mb/s, of two speeds: every other one of 10; 40 Mb/s between racks, of which what users take \
                  is not known, so that the bound has all of it; 48 stripes of 512 KiB blocks; the cluster measures its links; users are \
                  eight tasks with values of half the paper's size; with one requestor, the node that lost the blocks, and with four, it and \
                  three more, each once; else every node",
        axis: "network",
        scenes,
        claims,
        ..experiment("by-default-busy", "Recovery of a node with no option under YCSB-A", NO_PAPER)
    })
}
