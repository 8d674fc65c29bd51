//! Generates the gRPC clients and servers from the method tables below; the messages are the
//! Rust types of `src/message`, carried by the codec of `src/codec.rs`.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let coordinator = [
        ("cluster", "Nothing", "ClusterInfo", false),
        ("register", "Register", "Registered", false),
        ("report_blocks", "BlockPage", "Done", false),
        ("heartbeat", "Heartbeat", "HeartbeatReply", false),
        ("quarantine", "Quarantine", "QuarantineList", false),
        ("restore_block", "RestoreBlock", "HeldBlock", false),
        ("confirm_quarantine", "NodeRef", "Done", false),
        ("rebuild", "Nothing", "RebuildStatus", false),
        ("finish_rebuild", "Nothing", "RebuildStatus", false),
        ("forget_node", "NodeRef", "Done", false),
        ("begin_put", "BeginPut", "PutTicket", false),
        ("more_stripes", "MoreStripes", "StripeGrants", false),
        ("renew_put", "PutRef", "Done", false),
        ("move_stripe", "MoveStripe", "StripeGrant", false),
        ("commit_put", "CommitPut", "CommitReply", false),
        ("abort_put", "PutRef", "Done", false),
        ("lookup", "Lookup", "ObjectView", false),
        ("list", "List", "ListPage", false),
        ("remove", "Remove", "ObjectInfo", false),
        ("report_bad", "BadBlock", "Done", false),
        ("register_code", "RegisterCode", "RegisteredCode", false),
        ("find_code", "CodeName", "Definition", false),
        ("remove_code", "CodeName", "Done", false),
        ("codes", "Nothing", "CodeList", false),
        ("set_rates", "Rates", "Done", false),
        ("rates", "Nothing", "Rates", false),
        ("nodes", "Nothing", "NodeList", false),
        ("status", "Nothing", "ClusterStatus", false),
        ("backup", "Backup", "CopyChunk", true),
        ("command_node", "NodeCommand", "JobEvent", true),
        ("encode", "Encode", "JobEvent", true),
        ("repair", "Repair", "JobEvent", true),
        ("scrub", "Scrub", "JobEvent", true),
    ];
    let agent = [
        ("run", "RunPrograms", "RunEvent", true),
        ("abort", "JobRef", "Done", false),
        ("delete", "DeleteBlocks", "Deleted", false),
        ("verify", "BlockRef", "Verified", false),
        ("removed", "Nothing", "RemovedObjects", false),
        ("look", "LookBlocks", "FoundBlocks", false),
        ("scrub", "Nothing", "ScrubEvent", true),
        ("set_aside", "SetAside", "Counted", false),
        ("aside", "Nothing", "AsideList", false),
        ("take_back", "TakeBack", "HeldBlock", false),
        ("purge", "Purge", "Counted", false),
        ("wipe", "Nothing", "Done", false),
        ("shutdown", "Nothing", "Done", false),
        ("keep_copy", "KeepCopy", "KeptCopy", false),
        ("copies", "Nothing", "CopyList", false),
        ("read_copy", "ReadCopy", "CopyChunk", true),
    ];
    Builder::new().compile(&[service("Coordinator", &coordinator), service("Agent", &agent)]);
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
