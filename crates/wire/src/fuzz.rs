//! The ways in for a fuzzer (`fuzz/`): what a peer says in a message, in its certificate, and in a copy of the metadata.

use rustls::pki_types::CertificateDer;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::copy::{CheckedCopy, CopyCheck, CopyError, CopySeal};
use crate::message::*;
use crate::tls::Badge;

/// Reads a message, and what it is written as.
fn read<T: Serialize + DeserializeOwned>(data: &[u8]) {
    if let Ok(message) = rmp_serde::from_slice::<T>(data) {
        let written = rmp_serde::to_vec_named(&message).expect("a message can be written");
        let again: T = rmp_serde::from_slice(&written).expect("what was written can be read");
        assert_eq!(written, rmp_serde::to_vec_named(&again).expect("again"));
    }
}

/// Reads the message of the type that the first byte chooses.
macro_rules! choose {
    ($data:expr; $($message:ty),* $(,)?) => {{
        const READERS: &[fn(&[u8])] = &[$(read::<$message>),*];
        if let Some((first, rest)) = $data.split_first() {
            READERS[usize::from(*first) % READERS.len()](rest);
        }
    }};
}

/// Bytes from a peer are a message or an error, and a message that was read is written and read the same.
pub fn message(data: &[u8]) {
    choose!(data;
        Register, BlockPage, Heartbeat, HeartbeatReply, BadBlock, BeginPut, BeginPack, PutTicket, MoreStripes, CommitPut,
        CommitPack, Lookup, ObjectView, List, ListPage, Remove, Change, CreateVolume, OpenVolume, MapVolume, VolumeMap,
        NodeCommand, Repair, Scrub, JobEvent, RegisterCode, ChangeSetting, RunPrograms, RunEvent, DeleteBlocks, ScrubBlocks,
        ScrubEvent, SetAside, AppendUpdates, FreezeUpdates, ReadUpdates, PromoteBlocks, Label, Registered, Done, Backup,
        CopyChunk, StripeGrants, PutRef, MoveStripe, CommitReply, PackReply, ObjectInfo, Changed, CodeName, Definition, Nothing,
        Rates, Felt, VolumeInfo, VolumeList, VolumeName, ResizeVolume, OpenedVolume, VolumeWriter, VolumeLease, CommitVolume,
        CommittedVolume, AbandonLogs, AbandonedLogs, SnapshotVolume, TakenSnapshot, ClusterStatus, AskHealth, Health, AskSpace,
        Space, NodeList, JobList, Counts, AskRepairs, RunningRepairs, JobId, JobInfo, NodeRef, Encode, Quarantine,
        QuarantineList, RestoreBlock, HeldBlock, RegisteredCode, CodeList, KnownRates, Settings, RebuildStatus, AgentsBeside,
        JobRef, Deleted, BlockRef, Verified, RemovedObjects, LookBlocks, FoundBlocks, Counted, AsideList, TakeBack, Purge,
        KeepCopy, KeptCopy, CopyList, ReadCopy, Appended, FenceVolume, FencedVolume, PendingUpdates, FrozenUpdates,
        ReleaseUpdates, UpdatedBytes, PromotedBlocks,
        FindLoose, LooseStripes, CrowdsBeside,
    );
}

/// A certificate that begins with a zero byte, or lines with the URIs of one: what it says of its owner is said again in URIs.
pub fn badge(data: &[u8]) {
    let read = match data.split_first() {
        Some((0, certificate)) => Badge::read(&CertificateDer::from(certificate)),
        _ => Badge::of_uris(String::from_utf8_lossy(data).lines()),
    };
    let Ok(badge) = read else { return };
    let uris = badge.uris();
    assert!(!badge.roles().is_empty() && uris.len() == badge.roles().len());
    let again = Badge::of_uris(uris.iter().map(String::as_str));
    assert_eq!(again.expect("the URIs of a badge are one"), badge);
}

/// A copy of the metadata in pieces, whose size the first byte says; and the same with the right sum behind it.
pub fn copy(data: &[u8]) {
    let Some((piece, bytes)) = data.split_first() else { return };
    let piece = usize::from(*piece) + 1;
    assert_eq!(checked(bytes, piece).ok(), checked(bytes, bytes.len().max(1)).ok());
    let mut seal = CopySeal::default();
    seal.push(bytes);
    let sealed = [bytes, &seal.sum().0].concat();
    // Where the head is that of a copy, the sum alone decides.
    if let Ok(copy) = checked(&sealed, piece) {
        assert_eq!((copy.bytes, copy.sum), (sealed.len() as u64, seal.sum()));
        assert!(checked(&sealed[..sealed.len() - 1], piece).is_err());
    }
}

fn checked(bytes: &[u8], piece: usize) -> Result<CheckedCopy, CopyError> {
    let mut check = CopyCheck::default();
    bytes.chunks(piece).try_for_each(|piece| check.push(piece))?;
    check.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Plays what fuzzers have found of a target.
    fn play(target: &str, read: fn(&[u8])) -> Vec<Vec<u8>> {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let files = std::fs::read_dir(corpus).unwrap();
        let inputs: Vec<Vec<u8>> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
        inputs.iter().for_each(|input| read(input));
        inputs
    }

    #[test]
    fn every_message_of_a_service_can_be_chosen() {
        let here: BTreeSet<&str> = include_str!("fuzz.rs").split(|c: char| !c.is_alphanumeric()).collect();
        // ("call", "Question", "Answer", whether it is a stream)
        let calls =
            include_str!("../build.rs").split("(\"").skip(1).map(|call| call.split('"').collect::<Vec<_>>());
        let messages: BTreeSet<&str> =
            calls.flat_map(|call| [2, 4].into_iter().filter_map(move |at| call.get(at).copied())).collect();
        let messages: BTreeSet<&str> =
            messages.into_iter().filter(|name| name.starts_with(char::is_uppercase)).collect();
        assert!(messages.len() > 90, "{messages:?}");
        assert_eq!(messages.difference(&here).collect::<Vec<_>>(), Vec::<&&str>::new());
    }

    #[test]
    fn what_fuzzers_have_found_is_read() {
        let messages = play("messages", message);
        let loose =
            messages.iter().filter_map(|input| rmp_serde::from_slice::<LooseStripes>(input.get(1..)?).ok());
        assert!(loose.count() > 0);
        let badges = play("badges", badge);
        let certificates = badges.iter().filter(|input| input.first() == Some(&0));
        let good = certificates.filter(|input| Badge::read(&CertificateDer::from(&input[1..])).is_ok());
        assert!(good.count() > 0);
        let copies = play("copies", copy);
        assert!(copies.iter().any(|input| input.len() > 1 && checked(&input[1..], 7).is_ok()));
    }
}
