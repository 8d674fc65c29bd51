//! What the coordinator's lines in the audit log say of each change.

use kintsu_wire::audit;
use kintsu_wire::message::*;

/// A request that changes something.
pub trait Change {
    /// What it is about, for people.
    fn about(&self) -> String;
}

/// What `request` is about, if anybody wants to know.
pub fn about(request: &impl Change) -> Option<String> {
    audit::about(|| request.about())
}

/// The steps of a change of names: what becomes of each of the first few.
fn steps(change: &kintsu_wire::message::Change) -> String {
    let shown = |step: &Step| match step {
        Step::Remove { name } => format!("without {name:?}"),
        Step::Rename { from, to, .. } => format!("{from:?} is {to:?}"),
        Step::Mark { name, .. } => format!("{name:?} without bytes"),
        Step::Describe { name, .. } => format!("facts of {name:?}"),
        Step::Join { name, parts, .. } => format!("{name:?} of {} parts", parts.len()),
    };
    let mut text: Vec<_> = change.steps.iter().take(SHOWN_STEPS).map(shown).collect();
    if change.steps.len() > SHOWN_STEPS {
        text.push(format!("{} steps in all", change.steps.len()));
    }
    text.join(", ")
}

/// The objects that a pack has brought, and how many of it did not appear.
pub fn members(members: &[MemberReply]) -> String {
    let visible = |member: &MemberReply| match member {
        MemberReply::Visible(object) => Some(format!("{:?}", object.name)),
        MemberReply::Unmet(_) | MemberReply::Refused { .. } => None,
    };
    let names: Vec<_> = members.iter().filter_map(visible).collect();
    let refused = members.len() - names.len();
    let others = if refused > 0 { format!("; {refused} refused") } else { String::new() };
    format!("objects {}{others}", names.join(", "))
}

/// Steps of one change that a line shows.
const SHOWN_STEPS: usize = 4;

macro_rules! changes {
    ($($request:ty: |$it:ident| $about:expr;)*) => {$(
        impl Change for $request {
            fn about(&self) -> String {
                let $it = self;
                $about
            }
        }
    )*};
}

changes! {
    Nothing: |_it| String::new();
    Register: |it| match it.node {
        Some(node) => format!("{node} in {} at {}", it.dir, it.control),
        None => format!("a new node in {} at {}", it.dir, it.control),
    };
    CommitPut: |it| format!("put {}", it.put);
    CommitPack: |it| format!("put {}", it.put);
    PutRef: |it| format!("put {}", it.put);
    Remove: |it| format!("object {:?}", it.name);
    kintsu_wire::message::Change: |it| steps(it);
    BadBlock: |it| format!("{} on {}", it.id, it.node);
    CreateVolume: |it| format!("volume {:?} of {} bytes", it.name, it.size);
    ResizeVolume: |it| format!("volume {:?} to {} bytes", it.name, it.size);
    VolumeName: |it| format!("volume {:?}", it.name);
    AbandonLogs: |it| format!("volume {:?}{}", it.name, if it.abandon { "" } else { ", asked only" });
    SnapshotVolume: |it| format!("volume {:?} as {:?}", it.name, it.snapshot);
    OpenVolume: |it| format!("volume {:?}", it.name);
    VolumeWriter: |it| format!("volume {}", it.volume);
    CommitVolume: |it| match &it.blocks {
        Some(blocks) => format!("volume {:?}, stripe {}", it.name, blocks.index),
        None => format!("volume {:?}", it.name),
    };
    JobId: |it| format!("job {}", it.id);
    NodeCommand: |it| format!("{} {}{}", it.action, it.node, if it.force { ", by force" } else { "" });
    NodeRef: |it| it.node.to_string();
    Encode: |it| format!("object {:?}", it.name);
    Repair: |it| it.target.to_string();
    Scrub: |it| it.node.map_or_else(|| "all nodes".to_owned(), |node| node.to_string());
    RestoreBlock: |it| format!("{:?} on {}", it.name, it.node);
    RegisterCode: |it| format!("code {:?}", it.definition.name);
    CodeName: |it| format!("code {:?}", it.name);
    ChangeSetting: |it| it.to_string();
    Rates: |_it| "rates of links".to_owned();
    Backup: |_it| "all metadata".to_owned();
}
