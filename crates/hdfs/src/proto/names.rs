//! Files, block groups, DataNodes, and the calls about them.

use super::changes::Mode;

/// A block or block group. Ids are Java longs: those of groups are negative, and here two's complement.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct ExtendedBlock {
    #[prost(string, required, tag = "1")]
    pub pool: String,
    #[prost(uint64, required, tag = "2")]
    pub id: u64,
    #[prost(uint64, required, tag = "3")]
    pub generation: u64,
    #[prost(uint64, optional, tag = "4")]
    pub bytes: Option<u64>,
}

/// A block token: what proves to a DataNode that its holder may read or write a block.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Token {
    #[prost(bytes = "vec", required, tag = "1")]
    pub identifier: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "2")]
    pub password: Vec<u8>,
    #[prost(string, required, tag = "3")]
    pub kind: String,
    #[prost(string, required, tag = "4")]
    pub service: String,
}

impl Token {
    /// `None` where tokens are off: messages have an empty one then.
    pub(crate) fn given(&self) -> Option<&Self> {
        Some(self).filter(|token| !token.identifier.is_empty())
    }
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct DatanodeId {
    #[prost(string, required, tag = "1")]
    pub ip: String,
    #[prost(string, required, tag = "2")]
    pub host: String,
    #[prost(string, required, tag = "3")]
    pub uuid: String,
    #[prost(uint32, required, tag = "4")]
    pub transfer_port: u32,
    #[prost(uint32, required, tag = "5")]
    pub info_port: u32,
    #[prost(uint32, required, tag = "6")]
    pub ipc_port: u32,
}

/// `admin_state`: 0 normal, 1 decommissioning, 2 decommissioned, 3 and 4 maintenance. Times in milliseconds.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct DatanodeInfo {
    #[prost(message, required, tag = "1")]
    pub id: DatanodeId,
    #[prost(uint64, optional, tag = "4")]
    pub remaining: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub last_update: Option<u64>,
    #[prost(string, optional, tag = "8")]
    pub location: Option<String>,
    #[prost(int32, optional, tag = "10")]
    pub admin_state: Option<i32>,
    #[prost(uint64, optional, tag = "13")]
    pub last_update_monotonic: Option<u64>,
}

impl DatanodeInfo {
    /// Whether it may get new blocks: it is not being decommissioned, nor going into maintenance.
    pub(crate) fn in_service(&self) -> bool {
        self.admin_state.unwrap_or(0) == 0
    }

    /// Whether it is in maintenance, or on its way there.
    pub(crate) fn in_maintenance(&self) -> bool {
        matches!(self.admin_state, Some(3 | 4))
    }
}

/// A block or group. For a group there is one index (a byte) and one token for each location.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LocatedBlock {
    #[prost(message, required, tag = "1")]
    pub block: ExtendedBlock,
    #[prost(uint64, required, tag = "2")]
    pub offset: u64,
    #[prost(message, repeated, tag = "3")]
    pub locations: Vec<DatanodeInfo>,
    #[prost(bool, required, tag = "4")]
    pub corrupt: bool,
    #[prost(message, required, tag = "5")]
    pub token: Token,
    #[prost(bytes = "vec", optional, tag = "9")]
    pub indices: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "10")]
    pub tokens: Vec<Token>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LocatedBlocks {
    #[prost(uint64, required, tag = "1")]
    pub file_bytes: u64,
    #[prost(message, repeated, tag = "2")]
    pub blocks: Vec<LocatedBlock>,
    #[prost(bool, required, tag = "3")]
    pub under_construction: bool,
    /// The last block of the file, also where only some were asked for.
    #[prost(message, optional, tag = "4")]
    pub last: Option<LocatedBlock>,
    #[prost(bool, required, tag = "5")]
    pub last_complete: bool,
    /// Present if the file is encrypted; only that matters here.
    #[prost(message, optional, tag = "6")]
    pub encryption: Option<super::Empty>,
    #[prost(message, optional, tag = "7")]
    pub policy: Option<Policy>,
}

/// An erasure-coding policy. Without schema and cell only the id came, which names a built-in policy.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Policy {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub schema: Option<Schema>,
    #[prost(uint32, optional, tag = "3")]
    pub cell_bytes: Option<u32>,
    #[prost(uint32, required, tag = "4")]
    pub id: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Schema {
    #[prost(string, required, tag = "1")]
    pub codec: String,
    #[prost(uint32, required, tag = "2")]
    pub data: u32,
    #[prost(uint32, required, tag = "3")]
    pub parity: u32,
    #[prost(message, repeated, tag = "4")]
    pub options: Vec<SchemaOption>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SchemaOption {
    #[prost(string, required, tag = "1")]
    pub key: String,
    #[prost(string, required, tag = "2")]
    pub value: String,
}

/// `kind`: 1 folder, 2 file, 3 link. `modified_ms`: when a file was closed last.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FileStatus {
    #[prost(int32, required, tag = "1")]
    pub kind: i32,
    #[prost(bytes = "vec", required, tag = "2")]
    pub name: Vec<u8>,
    #[prost(uint64, required, tag = "3")]
    pub bytes: u64,
    #[prost(message, required, tag = "4")]
    pub mode: Mode,
    #[prost(string, required, tag = "5")]
    pub owner: String,
    #[prost(string, required, tag = "6")]
    pub group: String,
    #[prost(uint64, required, tag = "7")]
    pub modified_ms: u64,
    #[prost(uint32, optional, tag = "10")]
    pub replication: Option<u32>,
    #[prost(uint64, optional, tag = "11")]
    pub block_bytes: Option<u64>,
    #[prost(message, optional, tag = "12")]
    pub blocks: Option<LocatedBlocks>,
    #[prost(uint64, optional, tag = "13")]
    pub file_id: Option<u64>,
    #[prost(message, optional, tag = "17")]
    pub policy: Option<Policy>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OfPath {
    #[prost(string, required, tag = "1")]
    pub path: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct FileInfo {
    #[prost(message, optional, tag = "1")]
    pub status: Option<FileStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AskLocations {
    #[prost(string, required, tag = "1")]
    pub path: String,
    #[prost(uint64, required, tag = "2")]
    pub offset: u64,
    #[prost(uint64, required, tag = "3")]
    pub len: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Locations {
    #[prost(message, optional, tag = "1")]
    pub blocks: Option<LocatedBlocks>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AskListing {
    #[prost(string, required, tag = "1")]
    pub path: String,
    #[prost(bytes = "vec", required, tag = "2")]
    pub after: Vec<u8>,
    #[prost(bool, required, tag = "3")]
    pub with_locations: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Listing {
    #[prost(message, optional, tag = "1")]
    pub page: Option<ListingPage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListingPage {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<FileStatus>,
    #[prost(uint32, required, tag = "2")]
    pub remaining: u32,
}

/// `kind`: 1 all DataNodes, 2 live ones, 3 dead ones, 5 those that go into maintenance, 6 those in maintenance.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AskDatanodes {
    #[prost(int32, required, tag = "1")]
    pub kind: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Datanodes {
    #[prost(message, repeated, tag = "1")]
    pub datanodes: Vec<DatanodeInfo>,
}

/// `action` 3 asks, and changes nothing. `checked`: a NameNode in standby refuses to answer, as it does most calls.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AskSafeMode {
    #[prost(int32, required, tag = "1")]
    pub action: i32,
    #[prost(bool, optional, tag = "2")]
    pub checked: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SafeMode {
    #[prost(bool, required, tag = "1")]
    pub on: bool,
}

/// Each block with the DataNodes whose copies are bad.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BadBlocks {
    #[prost(message, repeated, tag = "1")]
    pub blocks: Vec<LocatedBlock>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ServerDefaults {
    #[prost(message, required, tag = "1")]
    pub defaults: Defaults,
}

/// `unit_bytes`: under one checksum, in what clients write that are set to nothing else.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Defaults {
    #[prost(uint32, optional, tag = "2")]
    pub unit_bytes: Option<u32>,
    #[prost(bool, optional, tag = "6")]
    pub encrypted_transfer: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct BlockKeys {
    #[prost(message, optional, tag = "1")]
    pub keys: Option<ExportedKeys>,
}

/// The keys that sign block tokens.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportedKeys {
    #[prost(bool, required, tag = "1")]
    pub enabled: bool,
    #[prost(message, required, tag = "4")]
    pub current: BlockKey,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct BlockKey {
    #[prost(uint32, required, tag = "1")]
    pub id: u32,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub bytes: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Version {
    #[prost(message, required, tag = "1")]
    pub info: NamespaceInfo,
}

/// `release`: of Hadoop, like `3.4.3` (`softwareVersion`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct NamespaceInfo {
    #[prost(string, required, tag = "3")]
    pub pool: String,
    #[prost(string, required, tag = "5")]
    pub release: String,
}
