//! Packs: small objects that share a stripe, as they are written.
//!
//! A pack is written like an object of one stripe whose bytes are those of its members, one after the other. It has no name;
//! its members have. [`PutTicket`](super::PutTicket), [`MoveStripe`](super::MoveStripe) and the lease are those of any put.

use serde::{Deserialize, Serialize};

use super::{Attributes, Checksum, Ending, ObjectInfo, RefusedStripe, WrittenStripe};

/// Most members of a pack.
pub const MOST_MEMBERS: usize = 256;

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
