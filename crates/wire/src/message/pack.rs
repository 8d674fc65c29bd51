//! Packs: small objects that share a stripe, as they are written.
//!
//! A pack is written like an object of one stripe whose bytes are those of its members, one after the other. It has no name;
//! its members have. [`PutTicket`](super::PutTicket), [`MoveStripe`](super::MoveStripe) and the lease are those of any put.
//! The members are new objects, or all of them are objects that exist and move into the pack ([`Moving`]).

use kintsu_dag::StripeId;
use serde::{Deserialize, Serialize};

use super::{Attributes, Checksum, Ending, ObjectInfo, RefusedStripe, WrittenStripe};

/// Most members of a pack.
pub const MOST_MEMBERS: usize = 256;

/// Objects up to this many bytes are small.
pub const SMALL_BYTES: u64 = 64 << 10;

/// Most bytes of a pack; when its members are removed, the bytes of all but the last may stay for so long.
pub const PACK_BYTES: u64 = 1 << 20;

/// Most bytes of a pack with blocks of at most this many bytes: it has one stripe.
pub fn pack_bytes(block_bytes: u64) -> u64 {
    block_bytes.min(PACK_BYTES)
}

/// A client wants to write a pack. It is encoded online, and has one stripe.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BeginPack {
    /// Name of the code.
    pub code: String,
    /// As in [`BeginPut`](super::BeginPut).
    pub block_bytes: Option<u64>,
    /// As in [`BeginPut`](super::BeginPut).
    pub cell_bytes: Option<u32>,
    /// The objects, in the order of their bytes; at least one, at most [`MOST_MEMBERS`].
    pub members: Vec<NewMember>,
}

/// An object that is to share a stripe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewMember {
    /// Its name.
    pub name: String,
    /// Its length in bytes, at least 1.
    pub size: u64,
    /// Whether an object of this name may be replaced.
    #[serde(default)]
    pub replace: bool,
    /// What its user says about it.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub attributes: Attributes,
    /// It is an object that exists, and moves. Then the coordinator knows its name and attributes. Since
    /// [`MOVES`](crate::version::MOVES).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<Moving>,
}

/// An object that moves into a pack. All of it but the place of its bytes stays what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// Its id.
    pub id: u64,
    /// The stripe in which its bytes were read: it moves only if they are still there.
    pub stripe: StripeId,
    /// Seconds since 1970 when it became visible. The coordinator fills it in.
    #[serde(default)]
    pub created: u64,
}

/// All blocks of a pack are durable: make its members visible, each for itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommitPack {
    /// The number of the put.
    pub put: u64,
    /// As in [`CommitPut`](super::CommitPut).
    pub stripes: Vec<WrittenStripe>,
    /// How each member ends, in their order.
    pub members: Vec<MemberEnd>,
}

/// How a member of a pack ends.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MemberEnd {
    /// The checksum of all its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// What else happens in the same transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// Nobody wants it any more: it does not appear.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
}

/// The answer to [`CommitPack`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum PackReply {
    /// What became of each member, in their order.
    Done(Vec<MemberReply>),
    /// Nothing is visible: as [`CommitReply::Refused`](super::CommitReply::Refused).
    Refused(Vec<RefusedStripe>),
}

/// What became of a member of a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberReply {
    /// It is visible.
    Visible(ObjectInfo),
    /// It is not: this check of its [`Ending`], counted from 0, does not hold.
    Unmet(u32),
    /// It is not, for another reason: the code of a gRPC status, and words.
    Refused {
        /// Such as 6, already exists.
        code: i32,
        /// For people.
        words: String,
    },
}

/// A client wants to know which stripes are loose: those of small objects that waste most of what a stripe costs. Since
/// [`MOVES`](crate::version::MOVES).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FindLoose {
    /// Only those after this one: 0, or [`LooseStripes::next`].
    pub after: u64,
    /// Most stripes in the answer.
    pub limit: u32,
    /// Only those that were written this many seconds ago, or earlier.
    pub older_than_s: u64,
}

/// The answer to [`FindLoose`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LooseStripes {
    /// The oldest first.
    pub stripes: Vec<LooseStripe>,
    /// Where to go on, if there may be more.
    pub next: Option<u64>,
}

/// A stripe with few small objects, or a pack of which most bytes are of objects that are gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LooseStripe {
    /// Which stripe.
    pub stripe: StripeId,
    /// Its code.
    pub code: String,
    /// Its largest block in bytes.
    pub block_bytes: u64,
    /// Its cell in bytes.
    pub cell_bytes: u32,
    /// Bytes of objects in it, also of those that are gone.
    pub size: u64,
    /// The objects that are there.
    pub members: Vec<LooseMember>,
}

/// A small object in a [`LooseStripe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LooseMember {
    /// Its id.
    pub id: u64,
    /// Its length in bytes.
    pub size: u64,
    /// About how many bytes the labels of a pack say of it.
    pub said: u32,
}
