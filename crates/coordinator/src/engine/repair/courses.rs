//! Re-scheduling of repairs that were planned together (ChameleonEC, section III-C): which of them are postponed, woken
//! or sent along other trees, from the progress of all of them.
//!
//! The paper runs the tasks of a node one after the other, so a task is late when its time has passed. Here repairs
//! share links, so a transmission is late when it lags: when it should have sent what it has sent long ago, if it went
//! on evenly until its expected end. Slices stream, so all transmissions of a repair go as fast as the slowest of them,
//! and when one lags, all do: the caller says which node the others wait for. What is expected comes from the rates that were known when a phase began. It
//! grows while more repairs share the links, and starts anew with each attempt.
//!
//! Reads no clock: the driver gives the time and the progress, and carries out the [`Steer`]s.

use std::collections::BTreeMap;

use kintsu_dag::{NodeId, StripeId};
use kintsu_plan::many::{Disks, Planned, Scene, Step, Underway, reschedule, shared_expectations};
use kintsu_plan::{Rates, Topology};

/// A transmission is late if it lags by this part of a phase
const LATE_PHASES: f64 = 0.1;
/// and by this part of its expected time.
const LATE_PART: f64 = 0.25;
/// How often one repair is re-scheduled, so that it ends. After that it may be planned without the nodes that hold it up.
const MOST_STEPS: u32 = 3;

/// What is to become of a repair.
#[derive(Debug, Clone, PartialEq)]
pub enum Steer {
    /// It stops for now and keeps what it has.
    Postpone,
    /// It goes on from the byte that it has reached.
    Wake,
    /// It goes on from the byte that it has reached, along other trees to the same requestor.
    Retune(Planned),
}

/// The repairs under way.
#[derive(Debug)]
pub struct Courses {
    list: BTreeMap<StripeId, Course>,
    /// The span of a phase, in seconds.
    span: f64,
    /// What users leave of links, as known when the phase began.
    rates: Rates,
    phase: Option<f64>,
}

#[derive(Debug)]
struct Course {
    /// Its `sent_by` has what [`reschedule`] takes: when the next byte of each sender was due.
    underway: Underway,
    begun: f64,
    /// The expected time of the attempt, in seconds.
    expected: f64,
    /// The nodes that the others wait for.
    blamed: Vec<NodeId>,
    steps: u32,
}

impl Courses {
    /// None; phases have this span, in seconds.
    pub fn new(span: f64) -> Self {
        Self { list: BTreeMap::new(), span, rates: Rates::default(), phase: None }
    }

    /// An attempt begins at byte `start`; it may go on with an earlier one.
    pub fn begin(&mut self, planned: Planned, start: u64, now: f64) {
        let steps = self.list.get(&planned.stripe).map_or(0, |course| course.steps);
        let (sent_by, sent) = (BTreeMap::new(), BTreeMap::new());
        let stripe = planned.stripe;
        let underway = Underway { planned, start, sent_by, sent, upto: start, postponed: false };
        self.list.insert(stripe, Course { underway, begun: now, expected: 0.0, blamed: Vec::new(), steps });
    }

    /// The requestor of a stripe has all bytes up to `upto`, and its senders have sent up to `sent`. All wait for the
    /// `blamed` nodes.
    pub fn reached(&mut self, stripe: StripeId, upto: u64, sent: BTreeMap<NodeId, u64>, blamed: Vec<NodeId>) {
        if let Some(course) = self.list.get_mut(&stripe) {
            course.underway.upto = upto.max(course.underway.upto);
            course.underway.sent.extend(sent);
            course.blamed = blamed;
        }
    }

    /// The repair of a stripe has ended.
    pub fn ended(&mut self, stripe: StripeId) {
        self.list.remove(&stripe);
    }

    /// Whether a repair was re-scheduled as often as is allowed.
    pub fn is_done_with(&self, stripe: StripeId) -> bool {
        self.list.get(&stripe).is_some_and(|course| !course.is_open())
    }

    /// Whether there is nothing to look after.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Time has passed: what is to be done, and with which stripes. `topology` and `disks` have the rates that are idle now.
    pub fn steps(&mut self, topology: &Topology, disks: &Disks, now: f64) -> Vec<(StripeId, Steer)> {
        if self.phase.is_none_or(|begun| now - begun > self.span) {
            (self.phase, self.rates) = (Some(now), topology.rates.clone());
        }
        self.expect(topology, now);
        let scene = Scene { disks, ..Scene::of(topology) };
        let open: Vec<StripeId> =
            self.list.iter().filter(|(_, course)| course.is_open()).map(|(stripe, _)| *stripe).collect();
        let underway: Vec<Underway> = open.iter().map(|stripe| self.list[stripe].underway.clone()).collect();
        let mut steers = Vec::new();
        for step in reschedule(&scene, &underway, now, LATE_PHASES * self.span) {
            let (number, steer) = match step {
                Step::Postpone(number) => (number, Steer::Postpone),
                Step::Wake { repair, .. } => (repair, Steer::Wake),
                Step::Retune { repair, planned, .. } => (repair, Steer::Retune(planned)),
            };
            let Some(course) = self.list.get_mut(&open[number]) else { continue };
            course.underway.postponed = steer == Steer::Postpone;
            if let Steer::Retune(planned) = &steer {
                course.underway.planned = planned.clone();
            }
            course.restart(now);
            steers.push((open[number], steer));
        }
        steers
    }

    /// Sets when each sender should have sent what it has. What is known of disks is too rough for that.
    fn expect(&mut self, topology: &Topology, now: f64) {
        let known = Topology { rates: self.rates.clone(), ..topology.clone() };
        let scene = Scene::of(&known);
        let underway: Vec<Underway> = self.list.values().map(|course| course.underway.clone()).collect();
        for (course, seconds) in self.list.values_mut().zip(shared_expectations(&scene, &underway)) {
            // What is left becomes less; what was expected of all does not.
            course.expected = seconds.into_values().fold(course.expected, f64::max);
            course.mark(now);
        }
    }
}

impl Course {
    /// Whether it may be re-scheduled: it is postponed, or was not re-scheduled often.
    fn is_open(&self) -> bool {
        self.underway.postponed || self.steps < MOST_STEPS
    }

    fn restart(&mut self, now: f64) {
        self.steps += 1;
        (self.begun, self.expected) = (now, 0.0);
        self.blamed.clear();
        self.underway.sent.clear();
        self.underway.start = self.underway.upto;
    }

    fn mark(&mut self, now: f64) {
        let Underway { planned, start, sent, .. } = &self.underway;
        let whole = planned.bytes.saturating_sub(*start).max(1) as f64;
        let sends = planned.sends();
        let due = |sender: NodeId| {
            let done = sent.get(&sender).map_or(0, |sent| sent.saturating_sub(*start)) as f64 / whole;
            // One that has sent everything is never late.
            if done >= 1.0 { now } else { self.begun + self.expected * (done + LATE_PART) }
        };
        let mut sent_by: BTreeMap<NodeId, f64> = sends.iter().map(|(from, ..)| (*from, now)).collect();
        for blamed in &self.blamed {
            let relayed = sends.iter().any(|(from, to, _)| from == blamed && *to != planned.requestor);
            let fed: Vec<NodeId> =
                sends.iter().filter(|(_, to, _)| to == blamed && !relayed).map(|(from, ..)| *from).collect();
            // What goes to a slow node can go elsewhere. What it sends itself can if a helper gets it.
            for late in if fed.is_empty() { vec![*blamed] } else { fed } {
                sent_by.entry(late).and_modify(|by| *by = due(late));
            }
        }
        self.underway.sent_by = sent_by;
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use kintsu_dag::BlockIndex;
    use kintsu_plan::even_cluster;
    use kintsu_plan::many::Route;
    use kintsu_plan::optimal::SharedTree;

    use super::*;

    const BYTES: u64 = 1000;

    fn n(node: u32) -> NodeId {
        NodeId(node)
    }

    /// Along nodes 1, 2 and 3, or others, to a requestor; the first sends to the second.
    fn planned(stripe: u64, nodes: [u32; 3], requestor: u32) -> Planned {
        let [a, b, c] = nodes.map(NodeId);
        let tree = SharedTree { parents: [(a, Some(b)), (b, None), (c, None)].into(), share: 1 };
        let route = Route::Trees(vec![tree]);
        let (stripe, block) = (StripeId(stripe), BlockIndex(0));
        Planned { stripe, block, bytes: BYTES, requestor: n(requestor), route, also: Vec::new(), turn: 0 }
    }

    fn topology() -> Topology {
        let mut topology = even_cluster(10, 1);
        topology.rates = Rates::even((0..10).map(NodeId), NonZeroU64::new(100).unwrap());
        topology
    }

    /// Runs half a second after the other; `pace` says how many bytes a sender sends in each. All wait for one node.
    fn run(
        courses: &mut Courses,
        stripes: &[u64],
        blamed: u32,
        pace: impl Fn(u64, u32) -> u64,
    ) -> Option<(f64, Vec<(StripeId, Steer)>)> {
        for half in 0..80u64 {
            let now = half as f64 / 2.0;
            for stripe in stripes {
                let sent = (1..10).map(|node| (n(node), (pace(*stripe, node) * half).min(BYTES))).collect();
                let upto = (1..4).map(|node| pace(*stripe, node) * half).min().unwrap().min(BYTES);
                courses.reached(StripeId(*stripe), upto, sent, vec![n(blamed)]);
                if upto >= BYTES {
                    courses.ended(StripeId(*stripe));
                }
            }
            let steers = courses.steps(&topology(), &Disks::default(), now);
            if !steers.is_empty() {
                return Some((now, steers));
            }
        }
        None
    }

    #[test]
    fn a_repair_that_goes_as_expected_is_left_alone() {
        let mut courses = Courses::new(20.0);
        // The requestor receives two blocks in 20 seconds.
        courses.begin(planned(1, [1, 2, 3], 9), 0, 0.0);
        assert_eq!(run(&mut courses, &[1], 1, |_, _| 25), None);
        assert!(courses.is_empty());
        // A second one shares its links: each has twice the time.
        (1..=2).for_each(|stripe| courses.begin(planned(stripe, [1, 2, 3], 9), 0, 0.0));
        assert_eq!(run(&mut courses, &[1, 2], 1, |_, _| 13), None);
    }

    #[test]
    fn what_a_slow_node_sends_to_a_helper_goes_to_the_requestor_long_before_it_should_have_ended() {
        let mut courses = Courses::new(20.0);
        courses.begin(planned(1, [1, 2, 3], 9), 0, 0.0);
        let (now, steers) = run(&mut courses, &[1], 1, |_, node| if node == 3 { 25 } else { 3 }).unwrap();
        assert!((7.0..10.0).contains(&now), "{now}");
        let [(StripeId(1), Steer::Retune(planned))] = &steers[..] else { panic!("{steers:?}") };
        let Route::Trees(trees) = &planned.route else { panic!() };
        assert_eq!(trees[0].parents[&n(1)], None);
        // It begins anew, and the attempt that follows too.
        assert_eq!(courses.steps(&topology(), &Disks::default(), now + 1.0), []);
    }

    #[test]
    fn after_some_steps_a_repair_is_left_alone_also_in_its_next_attempt() {
        let mut courses = Courses::new(20.0);
        courses.begin(planned(1, [1, 2, 3], 9), 0, 0.0);
        for step in 1..=MOST_STEPS {
            assert!(!courses.is_done_with(StripeId(1)), "{step}");
            courses.list.get_mut(&StripeId(1)).unwrap().restart(0.0);
            courses.begin(planned(1, [1, 2, 3], 9), 0, 0.0);
        }
        assert!(courses.is_done_with(StripeId(1)));
        courses.list.get_mut(&StripeId(1)).unwrap().underway.postponed = true;
        assert!(!courses.is_done_with(StripeId(1)), "it is to be woken");
        courses.ended(StripeId(1));
        assert!(!courses.is_done_with(StripeId(1)));
    }

    #[test]
    fn a_repair_whose_slow_node_sends_to_the_requestor_waits_until_others_are_done_and_not_for_ever() {
        let mut courses = Courses::new(20.0);
        courses.begin(planned(1, [1, 2, 3], 9), 0, 0.0);
        courses.begin(planned(2, [1, 2, 4], 8), 0, 0.0);
        let slow = |stripe, node| if (stripe, node) == (1, 3) { 1 } else { 25 };
        let (now, steers) = run(&mut courses, &[1, 2], 3, slow).unwrap();
        assert_eq!(steers, [(StripeId(1), Steer::Postpone)]);
        courses.ended(StripeId(2));
        assert_eq!(courses.steps(&topology(), &Disks::default(), now + 1.0), [(StripeId(1), Steer::Wake)]);
        for turn in 0..2 * MOST_STEPS {
            let stripe = u64::from(turn) + 3;
            courses.begin(planned(stripe, [5, 6, 7], 9), 0, now + 1.0);
            let steers = courses.steps(&topology(), &Disks::default(), now + 100.0 * f64::from(turn + 1));
            courses.ended(StripeId(stripe));
            courses.steps(&topology(), &Disks::default(), now + 100.0 * f64::from(turn + 1));
            assert!(
                turn < MOST_STEPS || steers.iter().all(|(stripe, _)| *stripe != StripeId(1)),
                "{turn}: {steers:?}"
            );
        }
        assert!(!courses.list[&StripeId(1)].underway.postponed);
    }
}
