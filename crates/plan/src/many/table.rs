//! The schedulers by name.

use super::auto::auto;
use super::baselines::{Choice, Shape, Spread, plain};
use super::boost::boosted;
use super::chameleon;
use super::scene::{History, LostBlock, Planned, Scene};
use crate::PlanError;

/// One for each block.
type Outcomes = Vec<Result<Planned, PlanError>>;

/// A scheduler of many repairs.
#[derive(Clone, Copy)]
pub struct Scheduler {
    /// Its name.
    pub name: &'static str,
    /// One sentence about it.
    pub about: &'static str,
    /// Whether its repairs are paced to end together, if all of them run at once.
    pub ends_together: bool,
    /// Whether it plans only what fits into a phase ([`super::phase`]), and the rest when the next one begins. Its plan of
    /// all blocks then takes each phase to end in its span, as simulations do.
    pub in_phases: bool,
    /// Whether nodes send on only whole blocks, as published; otherwise everything streams in slices.
    pub whole_blocks: bool,
    plan: fn(&Scene<'_>, &mut History, &[LostBlock<'_>]) -> Outcomes,
}

impl Scheduler {
    /// The repair of each block, in the order of the blocks; [`Planned::turn`] says in which order to start them.
    pub fn plan(
        &self,
        scene: &Scene<'_>,
        history: &mut History,
        blocks: &[LostBlock<'_>],
    ) -> Vec<Result<Planned, PlanError>> {
        (self.plan)(scene, history, blocks)
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All schedulers, the default first.
pub const SCHEDULERS: [Scheduler; 11] = [
    Scheduler {
        name: "auto",
        about: "stars, chains and trees so that no link is busy much longer than the others",
        ends_together: true,
        in_phases: false,
        whole_blocks: false,
        plan: auto,
    },
    Scheduler {
        name: "chameleon",
        about: "ChameleonEC: upload and download tasks by least estimated time, in phases",
        ends_together: false,
        in_phases: true,
        whole_blocks: false,
        plan: chameleon::all,
    },
    Scheduler {
        name: "cr",
        about: "conventional repair from random helpers",
        ends_together: false,
        in_phases: false,
        whole_blocks: false,
        plan: |scene, history, blocks| {
            plain(scene, history, blocks, (Shape::Star, Choice::Random, Spread::Even))
        },
    },
    Scheduler {
        name: "ppr",
        about: "binary trees over random helpers",
        ends_together: false,
        in_phases: false,
        whole_blocks: false,
        plan: |scene, history, blocks| {
            plain(scene, history, blocks, (Shape::Binary, Choice::Random, Spread::Even))
        },
    },
    Scheduler {
        name: "ecpipe",
        about: "chains over random helpers",
        ends_together: false,
        in_phases: false,
        whole_blocks: false,
        plan: |scene, history, blocks| {
            plain(scene, history, blocks, (Shape::Chain, Choice::Random, Spread::Even))
        },
    },
    Scheduler {
        name: "ecpipe-lru",
        about: "chains over the least recently used helpers",
        ends_together: false,
        in_phases: false,
        whole_blocks: false,
        plan: |scene, history, blocks| {
            plain(scene, history, blocks, (Shape::Chain, Choice::LeastRecent, Spread::Even))
        },
    },
    Scheduler {
        name: "push-rep",
        about: "whole blocks along chains to one requestor",
        ends_together: false,
        in_phases: false,
        whole_blocks: true,
        plan: |scene, history, blocks| {
            plain(scene, history, blocks, (Shape::Chain, Choice::ByIndex, Spread::One))
        },
    },
    Scheduler {
        name: "push-sur",
        about: "whole blocks along chains to all survivors in turn",
        ends_together: false,
        in_phases: false,
        whole_blocks: true,
        plan: |scene, history, blocks| {
            plain(scene, history, blocks, (Shape::Chain, Choice::ByIndex, Spread::Even))
        },
    },
    Scheduler {
        name: "boost-cr",
        about: "RepairBoost over conventional repair",
        ends_together: false,
        in_phases: false,
        whole_blocks: false,
        plan: |scene, history, blocks| boosted(scene, history, blocks, Shape::Star),
    },
    Scheduler {
        name: "boost-ppr",
        about: "RepairBoost over binary trees",
        ends_together: false,
        in_phases: false,
        whole_blocks: false,
        plan: |scene, history, blocks| boosted(scene, history, blocks, Shape::Binary),
    },
    Scheduler {
        name: "boost-ecpipe",
        about: "RepairBoost over chains",
        ends_together: false,
        in_phases: false,
        whole_blocks: false,
        plan: |scene, history, blocks| boosted(scene, history, blocks, Shape::Chain),
    },
];

/// The scheduler of this name.
///
/// # Errors
/// `Invalid` for an unknown one.
pub fn scheduler(name: &str) -> Result<&'static Scheduler, PlanError> {
    SCHEDULERS.iter().find(|scheduler| scheduler.name == name).ok_or_else(|| {
        let names: Vec<_> = SCHEDULERS.iter().map(|scheduler| scheduler.name).collect();
        PlanError::Invalid { what: "scheduler".into(), expected: names.join(", "), got: name.into() }
    })
}
