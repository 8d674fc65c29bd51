//! Generates the gRPC clients and servers from the method tables below; the messages are the
//! Rust types of `src/message`, carried by the codec of `src/codec.rs`.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    // The coordinator's services, by who calls them. A method that two of them have is the same.
    let membership = [
        ("register", "Register", "Registered", false),
        ("report_blocks", "BlockPage", "Done", false),
        ("heartbeat", "Heartbeat", "HeartbeatReply", false),
        ("report_bad", "BadBlock", "Done", false),
        ("backup", "Backup", "CopyChunk", true),
    ];
    let objects = [
        ("begin_put", "BeginPut", "PutTicket", false),
        ("more_stripes", "MoreStripes", "StripeGrants", false),
        ("renew_put", "PutRef", "Done", false),
        ("move_stripe", "MoveStripe", "StripeGrants", false),
        ("commit_put", "CommitPut", "CommitReply", false),
        ("begin_pack", "BeginPack", "PutTicket", false),
        ("commit_pack", "CommitPack", "PackReply", false),
        ("find_loose", "FindLoose", "LooseStripes", false),
        ("abort_put", "PutRef", "Done", false),
        ("lookup", "Lookup", "ObjectView", false),
        ("list", "List", "ListPage", false),
        ("remove", "Remove", "ObjectInfo", false),
        ("change", "Change", "Changed", false),
        ("report_bad", "BadBlock", "Done", false),
        ("find_code", "CodeName", "Definition", false),
        ("rates", "Nothing", "Rates", false),
        ("felt", "Felt", "Done", false),
    ];
    let volumes = [
        ("create_volume", "CreateVolume", "VolumeInfo", false),
        ("list_volumes", "Nothing", "VolumeList", false),
        ("volume_info", "VolumeName", "VolumeInfo", false),
        ("resize_volume", "ResizeVolume", "VolumeInfo", false),
        ("remove_volume", "VolumeName", "VolumeInfo", false),
        ("open_volume", "OpenVolume", "OpenedVolume", false),
        ("renew_volume", "VolumeWriter", "VolumeLease", false),
        ("close_volume", "VolumeWriter", "Done", false),
        ("map_volume", "MapVolume", "VolumeMap", false),
        ("commit_volume", "CommitVolume", "CommittedVolume", false),
        ("abandon_logs", "AbandonLogs", "AbandonedLogs", false),
        ("snapshot_volume", "SnapshotVolume", "TakenSnapshot", false),
    ];
    let operation = [
        ("status", "Nothing", "ClusterStatus", false),
        ("health", "AskHealth", "Health", false),
        ("space", "AskSpace", "Space", false),
        ("nodes", "Nothing", "NodeList", false),
        ("jobs", "Nothing", "JobList", false),
        ("counts", "Nothing", "Counts", false),
        ("running_repairs", "AskRepairs", "RunningRepairs", false),
        ("cancel_job", "JobId", "JobInfo", false),
        ("pause_job", "JobId", "JobInfo", false),
        ("resume_job", "JobId", "JobInfo", false),
        ("follow_job", "JobId", "JobEvent", true),
        ("command_node", "NodeCommand", "JobEvent", true),
        ("forget_node", "NodeRef", "Done", false),
        ("encode", "Encode", "JobEvent", true),
        ("repair", "Repair", "JobEvent", true),
        ("scrub", "Scrub", "JobEvent", true),
        ("rebalance", "Nothing", "JobEvent", true),
        ("quarantine", "Quarantine", "QuarantineList", false),
        ("restore_block", "RestoreBlock", "HeldBlock", false),
        ("confirm_quarantine", "NodeRef", "Done", false),
        ("register_code", "RegisterCode", "RegisteredCode", false),
        ("remove_code", "CodeName", "Done", false),
        ("codes", "Nothing", "CodeList", false),
        ("set_rates", "Rates", "Done", false),
        ("known_rates", "Nothing", "KnownRates", false),
        ("measure_rates", "Nothing", "KnownRates", false),
        ("settings", "Nothing", "Settings", false),
        ("change_setting", "ChangeSetting", "Settings", false),
        ("backup", "Backup", "CopyChunk", true),
        ("rebuild", "Nothing", "RebuildStatus", false),
        ("finish_rebuild", "Nothing", "RebuildStatus", false),
    ];
    let beside = [("agents", "Nothing", "AgentsBeside", false), ("crowds", "CrowdsBeside", "Done", false)];
    let agent = [
        ("run", "RunPrograms", "RunEvent", true),
        ("abort", "JobRef", "Done", false),
        ("delete", "DeleteBlocks", "Deleted", false),
        ("verify", "BlockRef", "Verified", false),
        ("removed", "Nothing", "RemovedObjects", false),
        ("look", "LookBlocks", "FoundBlocks", false),
        ("scrub", "ScrubBlocks", "ScrubEvent", true),
        ("set_aside", "SetAside", "Counted", false),
        ("aside", "Nothing", "AsideList", false),
        ("take_back", "TakeBack", "HeldBlock", false),
        ("purge", "Purge", "Counted", false),
        ("wipe", "Nothing", "Done", false),
        ("shutdown", "Nothing", "Done", false),
        ("keep_copy", "KeepCopy", "KeptCopy", false),
        ("copies", "Nothing", "CopyList", false),
        ("read_copy", "ReadCopy", "CopyChunk", true),
        ("append_updates", "AppendUpdates", "Appended", false),
        ("fence_volume", "FenceVolume", "FencedVolume", false),
        ("pending_updates", "Nothing", "PendingUpdates", false),
        ("freeze_updates", "FreezeUpdates", "FrozenUpdates", false),
        ("release_updates", "ReleaseUpdates", "Done", false),
        ("read_updates", "ReadUpdates", "UpdatedBytes", false),
        ("promote_blocks", "PromoteBlocks", "PromotedBlocks", false),
    ];
    Builder::new().compile(&[
        service("Membership", &membership),
        service("Objects", &objects),
        service("Volumes", &volumes),
        service("Operation", &operation),
        service("Beside", &beside),
        service("Agent", &agent),
    ]);
}

fn service(name: &str, methods: &[(&str, &str, &str, bool)]) -> Service {
    let mut service = Service::builder().name(name).package("kintsu");
    for (method, input, output, stream) in methods {
        let route: String = method.split('_').map(|part| part[..1].to_uppercase() + &part[1..]).collect();
        let mut builder = Method::builder()
            .name(*method)
            .route_name(route)
            .input_type(format!("crate::message::{input}"))
            .output_type(format!("crate::message::{output}"))
            .codec_path("crate::codec::MessagePack");
        if *stream {
            builder = builder.server_streaming();
        }
        service = service.method(builder.build());
    }
    service.build()
}
