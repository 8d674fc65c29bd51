//! Lets the faults of a history happen at their times, and ends all of them at last.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kintsu_store::simdisk::{Failure, SimDisk};
use kintsu_wire::ambient::simulation::set_clock_wrong_by;
use turmoil::Sim;

use crate::history::{Fault, Host};
use crate::stage::{Machine, Stage};

/// The longest time that a message takes on a link without faults.
pub const MOST_LATENCY: Duration = Duration::from_millis(15);

/// Lets faults happen.
pub struct Adversary {
    stage: Arc<Stage>,
    /// The faults by time, the last one first.
    faults: Vec<(u64, Fault)>,
    /// When which fault ends.
    ends: Vec<(u64, End)>,
    /// Hosts that will lose power when their disk stops, each with the seed of what is left on the disk and
    /// the time for which it is down.
    doomed: Vec<(Host, u64, u64)>,
    wrong_by: i64,
    /// A copy of the coordinator's disk, and how much of its history an agent had recorded then.
    copy: Option<(SimDisk, u64)>,
}

#[derive(Debug, Clone, Copy)]
enum End {
    Start(Host),
    Repair(Host, Host),
    Release(Host, Host),
    Fast(Host, Host),
    Room(u32),
    /// Its own disk is back.
    Mount(Host),
    /// Its `node.json` is back.
    Name(u32),
}

impl Adversary {
    pub fn new(stage: Arc<Stage>, mut faults: Vec<(u64, Fault)>) -> Self {
        faults.reverse();
        Self { stage, faults, ends: Vec::new(), doomed: Vec::new(), wrong_by: 0, copy: None }
    }

    /// Begins and ends the faults that are due.
    pub fn act(&mut self, sim: &mut Sim<'_>) {
        let now = sim.elapsed().as_millis() as u64;
        self.lose_power(sim, now);
        while let Some(end) = self.ends.iter().position(|(at, _)| *at <= now) {
            let (_, end) = self.ends.remove(end);
            self.end(sim, now, end);
        }
        if self.stage.done.load(Ordering::Relaxed) {
            if !self.stage.healed.load(Ordering::Relaxed) {
                self.heal(sim, now);
            }
            return;
        }
        while let Some((_, fault)) = self.faults.pop_if(|(at, _)| *at <= now) {
            self.begin(sim, now, fault);
        }
    }

    fn say(&self, sim: &Sim<'_>, what: impl std::fmt::Display) {
        self.stage.trace.say_at(sim.elapsed().as_millis(), what);
    }

    fn begin(&mut self, sim: &mut Sim<'_>, now: u64, fault: Fault) {
        self.say(sim, format!("! {fault:?}"));
        match fault {
            Fault::Kill { host, down_ms } => self.crash(sim, host, None, now + down_ms),
            Fault::Power { host, operations, seed, down_ms } => {
                let Some(machine) = self.stage.machine(host) else { return };
                if sim.is_host_running(host.to_string()) {
                    machine.disk.disk().fail(Some(Failure::Dead(operations)));
                    self.doomed.push((host, seed, down_ms));
                }
            }
            Fault::Partition { a, b, one_way, ms } => {
                match one_way {
                    true => sim.partition_oneway(a.to_string(), b.to_string()),
                    false => sim.partition(a.to_string(), b.to_string()),
                }
                self.ends.push((now + ms, End::Repair(a, b)));
            }
            Fault::Hold { a, b, ms } => {
                sim.hold(a.to_string(), b.to_string());
                self.ends.push((now + ms, End::Release(a, b)));
            }
            Fault::Slow { a, b, latency_ms, ms } => {
                sim.set_link_latency(a.to_string(), b.to_string(), Duration::from_millis(latency_ms));
                self.ends.push((now + ms, End::Fast(a, b)));
            }
            Fault::RotLog { node, pick, down_ms } => {
                self.crash(sim, Host::Node(node), None, now + down_ms);
                self.rot_log(sim, node, pick);
            }
            Fault::Rot { node, pick } => self.on_block(sim, node, pick, |machine, path| {
                machine.disk.disk().tamper(path, |bytes| {
                    let at = (pick >> 20) as usize % bytes.len().max(1);
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << (pick % 8);
                    }
                });
            }),
            Fault::Unreadable { node, pick } => {
                self.on_block(sim, node, pick, |machine, path| machine.disk.disk().make_unreadable(path));
            }
            Fault::DiskError { host, operations } => {
                let doomed = self.doomed.iter().any(|(other, ..)| *other == host);
                if let Some(machine) = self.stage.machine(host).filter(|_| !doomed) {
                    machine.disk.disk().fail(Some(Failure::Once(operations, ErrorKind::Other)));
                }
            }
            Fault::Full { node, ms } => {
                if let Some(machine) = self.stage.machine(Host::Node(node)) {
                    let disk = machine.disk.disk();
                    disk.limit(Some(disk.used()));
                    self.ends.push((now + ms, End::Room(node)));
                }
            }
            Fault::Clock { seconds } => {
                self.wrong_by += seconds;
                set_clock_wrong_by(self.wrong_by);
            }
            Fault::LoseDisk { node, down_ms } => {
                // A new folder would become a member of the other cluster.
                if self.stage.machines[0].is_away() {
                    return;
                }
                self.crash(sim, Host::Node(node), None, now + down_ms);
                if let Some(machine) = self.stage.machine(Host::Node(node)) {
                    machine.renew();
                }
            }
            // A folder that has not joined yet would become a member of the other cluster, or of this one.
            Fault::WrongFolder { .. } | Fault::LoseName { .. }
                if self.stage.machines.iter().any(|machine| machine.is_new()) => {}
            Fault::WrongFolder { host, ms } => {
                self.crash(sim, host, None, now);
                let Some(machine) = self.stage.machine(host).filter(|machine| !machine.is_away()) else {
                    return;
                };
                machine.unmount();
                if host == Host::Coordinator {
                    self.stage.model().muddle(true);
                }
                self.ends.push((now + ms, End::Mount(host)));
            }
            Fault::LoseName { node, ms } => {
                self.crash(sim, Host::Node(node), None, now);
                if let Some(machine) =
                    self.stage.machine(Host::Node(node)).filter(|machine| !machine.is_away())
                {
                    machine.name(false);
                    self.ends.push((now + ms, End::Name(node)));
                }
            }
            Fault::CopyMetadata => {
                let coordinator = &self.stage.machines[0];
                let recorded = self.stage.machines.iter().map(|machine| machine.recorded()).max();
                self.copy = (!coordinator.is_away())
                    .then(|| (coordinator.disk.disk().copied(), recorded.unwrap_or(0)));
            }
            Fault::OlderMetadata { down_ms } => {
                let Some((copy, recorded)) = self.copy.take() else { return };
                // Nobody could tell that it is older.
                let know = self.stage.machines.iter().filter(|machine| machine.recorded() > recorded);
                if know.count() + 3 < self.stage.machines.len() {
                    return self.say(sim, "! too few agents know newer metadata");
                }
                self.crash(sim, Host::Coordinator, None, now + down_ms);
                self.stage.machines[0].disk.replace(copy);
                self.stage.model().grow_older();
            }
        }
    }

    /// Does something to a block of a node, if it has one.
    fn on_block(&self, sim: &Sim<'_>, node: u32, pick: u64, harm: impl FnOnce(&Machine, &std::path::Path)) {
        let Some(machine) = self.stage.machine(Host::Node(node)) else { return };
        let mut files = machine.disk.disk().files();
        files.retain(|path| path.extension().is_some_and(|e| e == "block"));
        if !files.is_empty() {
            let path = &files[pick as usize % files.len()];
            self.say(sim, format!("! {} of node{node}", path.display()));
            harm(machine, path);
        }
    }

    /// Changes a byte of the newest file of a node's log, or cuts it: within a record or, as these begin at multiples of 64 bytes, between two.
    fn rot_log(&self, sim: &Sim<'_>, node: u32, pick: u64) {
        let Some(machine) = self.stage.machine(Host::Node(node)) else { return };
        let disk = machine.disk.disk();
        let files = disk.files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "log"));
        let Some(path) = files.max() else { return };
        self.say(sim, format!("! {} of node{node}", path.display()));
        disk.tamper(&path, |bytes| {
            let (len, far) = (bytes.len(), (pick >> 20) as usize);
            let at =
                if pick.is_multiple_of(4) { far % len.max(1) } else { len.saturating_sub(1 + far % 600) };
            match bytes.get_mut(at) {
                Some(byte) if pick % 4 < 2 => *byte ^= 1 << (pick % 8),
                _ if pick % 4 == 2 => bytes.truncate(len.saturating_sub(1 + far % 63)),
                _ => bytes.truncate(len.saturating_sub(far % 3000).next_multiple_of(64).min(len)),
            }
        });
    }

    /// Ends a host's processes. With a seed it loses power: what was not synced may be gone.
    fn crash(&mut self, sim: &mut Sim<'_>, host: Host, power: Option<u64>, again: u64) {
        let Some(machine) = self.stage.machine(host) else { return };
        if !sim.is_host_running(host.to_string()) {
            return;
        }
        self.doomed.retain(|(other, ..)| *other != host);
        let disk = machine.disk.disk();
        // What the dying process still writes goes to the old disk.
        machine.disk.replace(match power {
            Some(seed) => disk.after_power_failure(seed),
            None => disk.copied(),
        });
        sim.crash(host.to_string());
        self.ends.push((again, End::Start(host)));
    }

    /// Cuts the power of hosts whose disk has stopped.
    fn lose_power(&mut self, sim: &mut Sim<'_>, now: u64) {
        let dead = |(host, ..): &(Host, u64, u64)| {
            self.stage.machine(*host).is_some_and(|machine| machine.disk.disk().is_dead())
        };
        if let Some((host, seed, down_ms)) = self.doomed.iter().copied().find(dead) {
            self.say(sim, format!("! {host} loses power"));
            self.crash(sim, host, Some(seed | 1), now + down_ms);
        }
    }

    fn end(&mut self, sim: &mut Sim<'_>, now: u64, end: End) {
        self.say(sim, format!("! over: {end:?}"));
        match end {
            End::Start(host) => {
                if !sim.is_host_running(host.to_string()) {
                    sim.bounce(host.to_string());
                }
            }
            End::Repair(a, b) => sim.repair(a.to_string(), b.to_string()),
            End::Release(a, b) => sim.release(a.to_string(), b.to_string()),
            End::Fast(a, b) => sim.set_link_latency(a.to_string(), b.to_string(), MOST_LATENCY),
            End::Room(node) => {
                if let Some(machine) = self.stage.machine(Host::Node(node)) {
                    machine.disk.disk().limit(None);
                }
            }
            End::Mount(host) => {
                self.crash(sim, host, None, now);
                if let Some(machine) = self.stage.machine(host) {
                    machine.mount();
                }
                if host == Host::Coordinator {
                    let mut model = self.stage.model();
                    let older = model.is_older();
                    model.muddle(older);
                }
            }
            End::Name(node) => {
                self.crash(sim, Host::Node(node), None, now);
                if let Some(machine) = self.stage.machine(Host::Node(node)) {
                    machine.name(true);
                }
            }
        }
    }

    /// Ends all faults.
    fn heal(&mut self, sim: &mut Sim<'_>, now: u64) {
        while !self.ends.is_empty() {
            let (_, end) = self.ends.remove(0);
            self.end(sim, now, end);
        }
        self.doomed.clear();
        for machine in &self.stage.machines {
            machine.disk.disk().fail(None);
            machine.disk.disk().limit(None);
        }
        if self.stage.model().is_older() {
            // An operator completes the metadata from the blocks.
            self.stage.rebuild.store(true, Ordering::Relaxed);
            self.crash(sim, Host::Coordinator, None, now);
            self.end(sim, now, End::Start(Host::Coordinator));
        }
        self.stage.healed.store(true, Ordering::Relaxed);
        self.say(sim, "all faults are over");
    }
}
