//! Operations on DataNodes.

use super::names::{DatanodeInfo, ExtendedBlock, Token};

#[derive(Clone, PartialEq, prost::Message)]
pub struct OperationHeader {
    #[prost(message, required, tag = "1")]
    pub base: BaseHeader,
    #[prost(string, required, tag = "2")]
    pub client: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct BaseHeader {
    #[prost(message, required, tag = "1")]
    pub block: ExtendedBlock,
    #[prost(message, optional, tag = "2")]
    pub token: Option<Token>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadBlock {
    #[prost(message, required, tag = "1")]
    pub header: OperationHeader,
    #[prost(uint64, required, tag = "2")]
    pub offset: u64,
    #[prost(uint64, required, tag = "3")]
    pub len: u64,
    #[prost(bool, optional, tag = "4")]
    pub with_checksums: Option<bool>,
}

/// `kind`: 0 none, 1 CRC32, 2 CRC32C.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Checksum {
    #[prost(int32, required, tag = "1")]
    pub kind: i32,
    #[prost(uint32, required, tag = "2")]
    pub unit_bytes: u32,
}

/// `targets`: DataNodes that get the block from the one before. `stage` 6: a new block. `storage` 1: a disk. `pinned`: not to be
/// moved by HDFS's balancer, where DataNodes are set to heed that.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WriteBlock {
    #[prost(message, required, tag = "1")]
    pub header: OperationHeader,
    #[prost(message, repeated, tag = "2")]
    pub targets: Vec<DatanodeInfo>,
    #[prost(int32, required, tag = "4")]
    pub stage: i32,
    #[prost(uint32, required, tag = "5")]
    pub pipeline: u32,
    #[prost(uint64, required, tag = "6")]
    pub least_received: u64,
    #[prost(uint64, required, tag = "7")]
    pub most_received: u64,
    #[prost(uint64, required, tag = "8")]
    pub latest_generation: u64,
    #[prost(message, required, tag = "9")]
    pub checksum: Checksum,
    #[prost(int32, optional, tag = "11")]
    pub storage: Option<i32>,
    #[prost(bool, optional, tag = "14")]
    pub pinned: Option<bool>,
}

/// `dropped`: the UUID of the DataNode whose replica is to go then.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReplaceBlock {
    #[prost(message, required, tag = "1")]
    pub header: BaseHeader,
    #[prost(string, required, tag = "2")]
    pub dropped: String,
    #[prost(message, required, tag = "3")]
    pub source: DatanodeInfo,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Answer {
    #[prost(int32, required, tag = "1")]
    pub status: i32,
    #[prost(message, optional, tag = "4")]
    pub read: Option<ReadInfo>,
    #[prost(string, optional, tag = "5")]
    pub message: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadInfo {
    #[prost(message, required, tag = "1")]
    pub checksum: Checksum,
    #[prost(uint64, required, tag = "2")]
    pub first_byte: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PacketHeader {
    #[prost(sfixed64, required, tag = "1")]
    pub offset: i64,
    #[prost(sfixed64, required, tag = "2")]
    pub number: i64,
    #[prost(bool, required, tag = "3")]
    pub last: bool,
    #[prost(sfixed32, required, tag = "4")]
    pub data_bytes: i32,
    /// The block is to be on the disk before this packet is acknowledged.
    #[prost(bool, optional, tag = "5")]
    pub durable: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Ack {
    #[prost(sint64, required, tag = "1")]
    pub number: i64,
    #[prost(int32, repeated, packed = "false", tag = "2")]
    pub replies: Vec<i32>,
}

/// What a reader tells the DataNode at the end: 6, the checksums were right.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadStatus {
    #[prost(int32, required, tag = "1")]
    pub status: i32,
}
