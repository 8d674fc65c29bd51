//! Headers of calls, and what a connection begins with.

/// Precedes every call. `rpc_kind` 2 means Protocol Buffers, `rpc_op` 0 a whole call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RequestHeader {
    #[prost(int32, optional, tag = "1")]
    pub rpc_kind: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub rpc_op: Option<i32>,
    #[prost(sint32, required, tag = "3")]
    pub call_id: i32,
    #[prost(bytes = "vec", required, tag = "4")]
    pub client_id: Vec<u8>,
    #[prost(sint32, optional, tag = "5")]
    pub retry_count: Option<i32>,
}

/// Precedes every answer. `status`: 0 success, 1 error, 2 error that ends the connection.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResponseHeader {
    #[prost(uint32, required, tag = "1")]
    pub call_id: u32,
    #[prost(int32, required, tag = "2")]
    pub status: i32,
    #[prost(uint32, optional, tag = "3")]
    pub server_ipc_version: Option<u32>,
    #[prost(string, optional, tag = "4")]
    pub exception: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub message: Option<String>,
}

/// Who calls, and which protocol.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConnectionContext {
    #[prost(message, optional, tag = "2")]
    pub user: Option<UserInformation>,
    #[prost(string, optional, tag = "3")]
    pub protocol: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UserInformation {
    #[prost(string, optional, tag = "1")]
    pub effective_user: Option<String>,
}

/// Names the method.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MethodHeader {
    #[prost(string, required, tag = "1")]
    pub method: String,
    #[prost(string, required, tag = "2")]
    pub protocol: String,
    #[prost(uint64, required, tag = "3")]
    pub version: u64,
}
