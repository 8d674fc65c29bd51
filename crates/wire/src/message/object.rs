//! Objects: how clients write, find and list them.

use std::net::SocketAddr;

use kintsu_code::Definition;
use kintsu_dag::{BlockId, NodeId, RackId, StripeId};
use kintsu_plan::{Layout, Rates};
use serde::{Deserialize, Serialize};

use super::{Attributes, Checksum, DigestBytes, Ending, ObjectLabel, StripeOfVolume};
use crate::ClusterId;
use crate::ticket::Ticket;

/// When parity is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// The client encodes while it writes; striped layout.
    Online,
    /// The nodes encode later; contiguous layout.
    Offline,
}

/// A client wants to write an object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BeginPut {
    /// Its name.
    pub name: String,
    /// Its length in bytes; `None` for a stream, whose client tells it at the end (see [`MoreStripes::size`]).
    pub size: Option<u64>,
    /// Name of the code.
    pub code: String,
    /// When to encode.
    pub encoding: Encoding,
    /// Largest block in bytes; `None` for a size that fits the code.
    pub block_bytes: Option<u64>,
    /// Cell in bytes; `None` for a size that fits the code.
    pub cell_bytes: Option<u32>,
    /// Whether an object of this name may be replaced.
    pub replace: bool,
    /// It is a stripe of a volume, which its writer makes by its first write to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<StripeOfVolume>,
    /// What its user says about it.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub attributes: Attributes,
}

/// Permission to write one stripe.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StripeGrant {
    /// Its identity.
    pub id: StripeId,
    /// The generation of its blocks.
    pub generation: u32,
    /// How object bytes lie in it.
    pub layout: Layout,
    /// The node for each of the n blocks; `None` for blocks that are empty.
    pub homes: Vec<Option<NodeId>>,
    /// For each block a ticket to write it, if certificates say who may do what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tickets: Vec<Ticket>,
}

/// Where a node listens; sent with every message that names nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddress {
    /// Which node.
    pub id: NodeId,
    /// Its rack.
    pub rack: RackId,
    /// Its gRPC listener.
    pub control: SocketAddr,
    /// Its slice listener.
    pub data: SocketAddr,
    /// Whether the coordinator believes that it can be read now.
    pub alive: bool,
    /// The version of the protocol that its agent speaks, if that is older than the coordinator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older: Option<u32>,
}

/// Permission to write an object: its first stripes, in order. A large object has more: see [`MoreStripes`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PutTicket {
    /// Identifies the put in later calls.
    pub put: u64,
    /// The lease must be renewed within this time, or the put is undone.
    pub lease_ms: u64,
    /// The first stripes.
    pub stripes: Vec<StripeGrant>,
    /// The definition of a registered code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Definition>,
    /// All nodes.
    pub nodes: Vec<NodeAddress>,
    /// The cluster, which agents want to be shown, and for the labels of the blocks.
    pub cluster: ClusterId,
    /// The object's part of the blocks' labels.
    pub label: ObjectLabel,
    /// The coordinator wants to know how long the put takes ([`Felt`]). An older one does only while there is a target for repairs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed: bool,
}

/// How long a client's last operations took, each in microseconds from its call to its end, without the time in which
/// the client's own input or output made it wait.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Felt {
    /// One number for each operation.
    pub micros: Vec<u32>,
}

/// A client needs the next stripes of its put, and reports those that it has written. Repeating this call is
/// harmless.
///
/// The stripes of a stream are granted in full length, and a few ahead of the bytes. When the client has seen the
/// end of the stream, it asks for the last stripe with the `size` of the object: the answer has the last stripe in
/// its true length, and stripes that were granted beyond it are undone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MoreStripes {
    /// From [`PutTicket`].
    pub put: u64,
    /// The position of the first stripe wanted, counted in object order.
    pub from: u64,
    /// Stripes whose blocks are durable; the commit need not name them again.
    pub written: Vec<WrittenStripe>,
    /// The object's length in bytes, once the client of a stream knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// The answer to [`MoreStripes`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StripeGrants {
    /// The next stripes, in order; empty after the last stripe.
    pub stripes: Vec<StripeGrant>,
    /// All nodes.
    pub nodes: Vec<NodeAddress>,
}

/// A put under way.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct PutRef {
    /// From [`PutTicket`].
    pub put: u64,
}

/// A stripe of a put could not be written: place it again without these nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MoveStripe {
    /// From [`PutTicket`].
    pub put: u64,
    /// The stripe that failed; its blocks become garbage, the new grant has another id.
    pub stripe: StripeId,
    /// Nodes not to be used.
    pub avoid: Vec<NodeId>,
}

/// All blocks are durable: make the object visible.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommitPut {
    /// From [`PutTicket`].
    pub put: u64,
    /// Each stripe that no [`MoreStripes`] reported: its id and the digest of each block that was written.
    pub stripes: Vec<WrittenStripe>,
    /// The checksum of all bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// What else happens in the same transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
}

/// The answer to [`CommitPut`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum CommitReply {
    /// The object is visible.
    Visible(ObjectInfo),
    /// Nothing is visible: blocks of these stripes are gone or changed. Write the stripes again (see
    /// [`MoveStripe`]), then commit the put again.
    Refused(Vec<RefusedStripe>),
    /// Nothing is visible: this check of the [`Ending`], counted from 0, does not hold. The put is still under way; it
    /// can be committed with another ending.
    Unmet(u32),
}

/// A stripe of a put that cannot be committed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RefusedStripe {
    /// Its grant.
    pub grant: StripeGrant,
    /// Its first byte in the object.
    pub offset: u64,
    /// The first node that does not have its block.
    pub node: NodeId,
    /// What happened there, for people.
    pub detail: String,
}

/// See [`CommitPut`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WrittenStripe {
    /// Which stripe.
    pub id: StripeId,
    /// Digests by block index; `None` for empty blocks and for parity not yet made.
    pub digests: Vec<Option<DigestBytes>>,
}

/// A summary of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// Name of its code.
    pub code: String,
    /// When it is encoded.
    pub encoding: Encoding,
    /// Whether its parity exists.
    pub encoded: bool,
    /// Number of stripes.
    pub stripes: u64,
    /// Seconds since 1970 when it became visible.
    pub created: u64,
    /// The checksum of all its bytes; `None` if it was written by an earlier version, or if its metadata were
    /// rebuilt from blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// What its user said about it. See [`Attributes::for_listing`].
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub attributes: Attributes,
    /// Its id, which no other object ever has: another object of the same name has another one, and a larger one if it
    /// was written later.
    #[serde(default)]
    pub id: u64,
}

/// A client wants to read an object, or to know where its blocks are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lookup {
    /// Its name.
    pub name: String,
    /// First stripe wanted, by position.
    pub first: u64,
    /// Most stripes wanted.
    pub limit: u64,
    /// The first stripe wanted is the one that holds this byte of the object (the last one if that is none), in place
    /// of `first`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// The object is the one with this id, if its name begins with `name`. Since version 14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
}

/// One block of a stripe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockPlace {
    /// Which block.
    pub id: BlockId,
    /// Where it is, or should be.
    pub node: NodeId,
    /// Its length in bytes.
    pub len: u64,
    /// Its digest; `None` if the block does not exist yet.
    pub digest: Option<DigestBytes>,
    /// Whether it is known to be lost on that node (missing or rotten).
    pub lost: bool,
    /// Its generation if it was updated in place; `None` for that of the stripe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
}

/// One stripe of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeInfo {
    /// Its identity.
    pub id: StripeId,
    /// Generation of its blocks.
    pub generation: u32,
    /// Name of its code.
    pub code: String,
    /// How object bytes lie in it.
    pub layout: Layout,
    /// Its first byte in the object.
    pub offset: u64,
    /// How many bytes of other objects come before the object's first byte, in a stripe that several objects share.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before: u64,
    /// Whether its parity exists.
    pub encoded: bool,
    /// By block index; `None` for empty blocks.
    pub blocks: Vec<Option<BlockPlace>>,
    /// Tickets to read the blocks, if certificates say who may do what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tickets: Vec<Ticket>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl StripeInfo {
    /// The generations of the blocks, by index.
    pub fn generations(&self) -> Vec<u32> {
        let of = |place: &Option<BlockPlace>| place.as_ref().and_then(|place| place.generation);
        self.blocks.iter().map(|place| of(place).unwrap_or(self.generation)).collect()
    }
}

/// The answer to [`Lookup`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObjectView {
    /// The object.
    pub object: ObjectInfo,
    /// The requested stripes.
    pub stripes: Vec<StripeInfo>,
    /// The position of the first of them.
    #[serde(default)]
    pub first: u64,
    /// The definition of the object's code if that is a registered one; `None` if no stripes were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Definition>,
    /// All nodes.
    pub nodes: Vec<NodeAddress>,
    /// The cluster, which agents want to be shown.
    pub cluster: ClusterId,
    /// The rates of links that the cluster was told, if the client may need them: a block cannot be read, or none are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
    /// The coordinator wants to know how long the read takes ([`Felt`]). An older one does only while there is a target for repairs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed: bool,
}

/// A page of names.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct List {
    /// Only names with this prefix.
    pub prefix: String,
    /// Only names after this one; all names with this prefix are left out if it is one of [`ListPage::prefixes`].
    pub after: Option<String>,
    /// Most names and prefixes in the answer.
    pub limit: u32,
    /// Names that are alike up to the first of these after `prefix` are given as one prefix; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub delimiter: String,
}

/// The answer to [`List`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListPage {
    /// In order of name.
    pub objects: Vec<ObjectInfo>,
    /// The beginnings of other names, up to and including the delimiter, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<String>,
    /// Whether there are more.
    pub more: bool,
}

impl ListPage {
    /// The last name or prefix of the page, after which the next page begins.
    pub fn last(&self) -> Option<&str> {
        let object = self.objects.last().map(|object| object.name.as_str());
        object.max(self.prefixes.last().map(String::as_str))
    }
}

/// Remove an object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Remove {
    /// Its name.
    pub name: String,
}
