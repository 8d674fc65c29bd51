//! Control messages: bytes from a peer are a message or an error, and a message that was read is written and read the same.
#![no_main]

use kintsu_wire::message::*;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

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

fuzz_target!(|data: &[u8]| {
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
    );
});
