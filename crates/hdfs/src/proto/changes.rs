//! Calls that change files: their arguments and answers.

use super::names::{DatanodeInfo, ExtendedBlock, FileStatus, LocatedBlock};

/// `mode`: the nine bits of read, write and execute.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Mode {
    #[prost(uint32, required, tag = "1")]
    pub bits: u32,
}

/// `flags`: 1 create, 2 overwrite, 0x80 replicated also where a folder has an erasure-coding policy.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Create {
    #[prost(string, required, tag = "1")]
    pub path: String,
    #[prost(message, required, tag = "2")]
    pub mode: Mode,
    #[prost(string, required, tag = "3")]
    pub client: String,
    #[prost(uint32, required, tag = "4")]
    pub flags: u32,
    #[prost(bool, required, tag = "5")]
    pub with_parents: bool,
    #[prost(uint32, required, tag = "6")]
    pub replication: u32,
    #[prost(uint64, required, tag = "7")]
    pub block_bytes: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Created {
    #[prost(message, optional, tag = "1")]
    pub status: Option<FileStatus>,
}

/// `previous`: the file's last block so far, with its length. `favored`: `ip:port` of DataNodes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AddBlock {
    #[prost(string, required, tag = "1")]
    pub path: String,
    #[prost(string, required, tag = "2")]
    pub client: String,
    #[prost(message, optional, tag = "3")]
    pub previous: Option<ExtendedBlock>,
    #[prost(message, repeated, tag = "4")]
    pub excluded: Vec<DatanodeInfo>,
    #[prost(uint64, optional, tag = "5")]
    pub file_id: Option<u64>,
    #[prost(string, repeated, tag = "6")]
    pub favored: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AddedBlock {
    #[prost(message, required, tag = "1")]
    pub block: LocatedBlock,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AbandonBlock {
    #[prost(message, required, tag = "1")]
    pub block: ExtendedBlock,
    #[prost(string, required, tag = "2")]
    pub path: String,
    #[prost(string, required, tag = "3")]
    pub client: String,
    #[prost(uint64, optional, tag = "4")]
    pub file_id: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Complete {
    #[prost(string, required, tag = "1")]
    pub path: String,
    #[prost(string, required, tag = "2")]
    pub client: String,
    #[prost(message, optional, tag = "3")]
    pub last: Option<ExtendedBlock>,
    #[prost(uint64, optional, tag = "4")]
    pub file_id: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Rename {
    #[prost(string, required, tag = "1")]
    pub from: String,
    #[prost(string, required, tag = "2")]
    pub to: String,
    #[prost(bool, required, tag = "3")]
    pub overwrite: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetReplication {
    #[prost(string, required, tag = "1")]
    pub path: String,
    #[prost(uint32, required, tag = "2")]
    pub replication: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetOwner {
    #[prost(string, required, tag = "1")]
    pub path: String,
    #[prost(string, optional, tag = "2")]
    pub owner: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub group: Option<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MakeFolder {
    #[prost(string, required, tag = "1")]
    pub path: String,
    #[prost(message, required, tag = "2")]
    pub mode: Mode,
    #[prost(bool, required, tag = "3")]
    pub with_parents: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Delete {
    #[prost(string, required, tag = "1")]
    pub path: String,
    #[prost(bool, required, tag = "2")]
    pub recursive: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RenewLease {
    #[prost(string, required, tag = "1")]
    pub client: String,
}

/// What several of these calls answer.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Done {
    #[prost(bool, required, tag = "1")]
    pub done: bool,
}
