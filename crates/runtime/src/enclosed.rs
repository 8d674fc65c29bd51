//! Slice streams that are enclosed in calls.
//!
//! A connection for a few kilobytes costs more than the bytes. If a client's programs wait for nobody and send
//! little, they run first, and what they send is collected here: the same frames that a connection would carry,
//! from the first slice to `End`. The conductor puts them into the `run` calls of their receivers, whose executors
//! read them as if they had come over connections. The other way round, if the nodes' programs wait for nobody and send little,
//! to the client alone, they run first, their nodes answer with what they send, and the client's programs run last.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use kintsu_dag::{NodeId, Task};
use kintsu_plan::Program;
use kintsu_wire::frame::{FrameVersion, HEADER_BYTES, Header, Kind, bare};
use kintsu_wire::message::{EnclosedStream, Fault};

use crate::fault::invalid;
use crate::script::part_bytes;
use crate::slice::Slice;

/// Most bytes of the frames that one call encloses: they fit into the first window of an HTTP/2 stream (64 KiB), so
/// the call does not wait for its receiver.
const MOST_BYTES: u64 = 48 << 10;

/// The streams of a run that need no connection.
#[derive(Debug, Clone, Default)]
pub struct Enclosed {
    /// Those that came with the call.
    came: Vec<EnclosedStream>,
    /// Where all streams that leave are collected.
    leaving: Option<Leaving>,
}

impl Enclosed {
    /// These came with the call that starts the run.
    pub fn with(came: Vec<EnclosedStream>) -> Self {
        Self { came, leaving: None }
    }

    /// What these programs of a node send is collected, for the answer to their caller.
    ///
    /// # Errors
    /// In words, if they wait for somebody, or send much, or to others.
    pub fn answering(programs: &[Program]) -> Result<Self, &'static str> {
        match fits(programs) && to_the_client_alone(programs) {
            true => Ok(Self::collected_by(Leaving::default())),
            false => Err("programs that wait for nobody and send little, to their caller alone"),
        }
    }

    /// What a node's programs have sent to their caller, if it was collected.
    pub fn answer(&self, from: NodeId) -> Vec<EnclosedStream> {
        self.leaving.as_ref().map_or_else(Vec::new, |leaving| leaving.take(NodeId::CLIENT, from))
    }

    /// Whatever the run sends is collected by `leaving`.
    pub(crate) fn collected_by(leaving: Leaving) -> Self {
        Self { came: Vec::new(), leaving: Some(leaving) }
    }

    /// The frames of a stream that came with the call.
    pub(crate) fn frames(&self, lane: u16, from: NodeId) -> Option<Bytes> {
        self.came.iter().find(|stream| (stream.lane, stream.from) == (lane, from)).map(|s| s.frames.clone())
    }

    pub(crate) fn leaving(&self) -> Option<Leaving> {
        self.leaving.clone()
    }

    /// A stream that none of the programs fetches, or that came twice.
    pub(crate) fn stray(&self, programs: &[Program]) -> Option<(u16, NodeId)> {
        let fetched = |stream: &EnclosedStream| {
            let fetches = |task: &Task| matches!(task, Task::Fetch { from, .. } if *from == stream.from);
            programs.iter().any(|program| program.lane == stream.lane && program.tasks.iter().any(fetches))
        };
        let names: Vec<_> = self.came.iter().map(|stream| (stream.lane, stream.from)).collect();
        let twice = (1..names.len()).find(|at| names[..*at].contains(&names[*at])).map(|at| names[at]);
        twice.or_else(|| self.came.iter().find(|s| !fetched(s)).map(|s| (s.lane, s.from)))
    }
}

/// Collects the streams that a run sends. Clones collect into the same place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leaving(Arc<Mutex<BTreeMap<(NodeId, u16), BytesMut>>>);

impl Leaving {
    /// Adds a slice to a stream.
    pub fn add(&self, to: NodeId, version: FrameVersion, header: &Header, slice: &Slice) {
        let mut streams = self.streams();
        let frames = streams.entry((to, header.lane)).or_default();
        frames.extend_from_slice(&header.encode(version));
        if header.payload_bytes() > 0 {
            frames.extend_from_slice(slice.as_ref());
        }
    }

    /// Ends a stream.
    pub fn end(&self, to: NodeId, version: FrameVersion, lane: u16) {
        let end = bare(version, Kind::End, lane);
        self.streams().entry((to, lane)).or_default().extend_from_slice(&end);
    }

    /// What was collected for a node.
    pub fn take(&self, to: NodeId, from: NodeId) -> Vec<EnclosedStream> {
        let of_node = |(node, _): &(NodeId, u16), _: &mut BytesMut| *node == to;
        let taken: Vec<_> = self.streams().extract_if(.., of_node).collect();
        taken
            .into_iter()
            .map(|((_, lane), frames)| EnclosedStream { lane, from, frames: frames.freeze() })
            .collect()
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<(NodeId, u16), BytesMut>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether what these programs of one node send can be enclosed: they wait for nobody, and send little to each node.
pub(crate) fn fits(programs: &[Program]) -> bool {
    let mut bytes: BTreeMap<NodeId, u64> = BTreeMap::new();
    for program in programs {
        let window = &program.window;
        let waits = program.tasks.iter().any(|task| matches!(task, Task::Fetch { .. }));
        let long = window.end.saturating_sub(window.start) > MOST_BYTES * u64::from(window.w.max(1));
        if waits || long || program.serial || program.rate.is_some() {
            return false;
        }
        let frame = |step: Range<u64>| (part_bytes(window, step.end - step.start) + HEADER_BYTES) as u64;
        let mut stream = 0;
        for step in window.steps().take_while(|_| !program.sends.is_empty()) {
            stream += frame(step);
            if stream > MOST_BYTES {
                return false;
            }
        }
        for (_, to) in &program.sends {
            *bytes.entry(*to).or_insert(0) += stream;
        }
    }
    bytes.values().all(|bytes| *bytes <= MOST_BYTES) && !bytes.is_empty()
}

fn to_the_client_alone(programs: &[Program]) -> bool {
    programs.iter().flat_map(|program| &program.sends).all(|(_, to)| to.is_client())
}

/// Whether the nodes' programs can all run before the client's, because what they send can be enclosed in their answers.
pub(crate) fn fits_answers(by_node: &BTreeMap<NodeId, Vec<Program>>) -> bool {
    let sends = |programs: &Vec<Program>| programs.iter().any(|program| !program.sends.is_empty());
    by_node.len() > 1
        && by_node.get(&NodeId::CLIENT).is_some_and(|here| !sends(here))
        && by_node
            .iter()
            .filter(|(node, _)| !node.is_client())
            .all(|(_, there)| fits(there) && to_the_client_alone(there))
}

/// What the nodes' answers have enclosed. Clones collect into the same place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers(Arc<Mutex<Vec<EnclosedStream>>>);

impl Answers {
    /// Adds what a node has enclosed; says how many bytes, or what was expected if it is not that node's.
    pub fn add(&self, node: NodeId, streams: Vec<EnclosedStream>) -> Result<u64, Fault> {
        if let Some(other) = streams.iter().find(|stream| stream.from != node) {
            return Err(invalid(node, "enclosed streams", format!("some from {node}"), other.from));
        }
        let bytes = streams.iter().map(|stream| stream.frames.len() as u64).sum();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(streams);
        Ok(bytes)
    }

    /// All of them.
    pub fn take(&self) -> Enclosed {
        Enclosed::with(std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[cfg(test)]
mod tests {
    use kintsu_dag::Vertex;
    use kintsu_plan::{RunId, Window};

    use super::*;

    fn program(bytes: u64, sends: u32) -> Program {
        Program {
            job: RunId(1),
            lane: 0,
            node: NodeId::CLIENT,
            window: Window::whole(0, bytes, 4096, 1),
            tasks: vec![Task::Load { vertex: Vertex(0) }],
            sends: (0..sends).map(|to| (Vertex(0), NodeId(to))).collect(),
            blocks: Vec::new(),
            peers: Vec::new(),
            resume_key: 0,
            serial: false,
            rate: None,
        }
    }

    #[test]
    fn only_short_streams_of_those_who_wait_for_nobody_are_enclosed() {
        assert!(fits(&[program(4096, 4)]) && fits(&[program(40_000, 14)]));
        assert!(!fits(&[program(MOST_BYTES, 1)]) && !fits(&[program(u64::MAX / 8, 1)]));
        assert!(!fits(&[program(40_000, 1), program(40_000, 1)]), "two lanes to one node");
        let mut tiny = program(MOST_BYTES * u64::from(u16::MAX), 1);
        (tiny.window.w, tiny.window.step_bytes) = (u16::MAX, 1);
        assert!(!fits(&[tiny]), "known without a look at each step");
        assert!(!fits(&[program(4096, 0)]) && !fits(&[]));
        assert!(!fits(&[Program { serial: true, ..program(4096, 1) }]));
        let fetch = Task::Fetch { vertex: Vertex(1), from: NodeId(1) };
        assert!(!fits(&[Program { tasks: vec![fetch], ..program(4096, 1) }]));
    }
}
