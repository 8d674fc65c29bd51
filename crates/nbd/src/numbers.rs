//! The numbers of the protocol (`doc/proto.md`, "Values"), named as there without their prefix. All are sent in
//! big-endian order.

/// First word of the handshake: "NBDMAGIC".
pub const INIT: u64 = 0x4e42_444d_4147_4943;
/// Second word of the handshake, and first word of each option: "IHAVEOPT".
pub const HAVE_OPTION: u64 = 0x4948_4156_454f_5054;
/// First word of each answer to an option.
pub const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// First word of a request.
pub const REQUEST: u32 = 0x2560_9513;
/// First word of a simple reply.
pub const SIMPLE_REPLY: u32 = 0x6744_6698;
/// First word of each chunk of a structured reply.
pub const STRUCTURED_REPLY: u32 = 0x668e_33ef;

/// Handshake flags of the server, and with the same values of the client.
pub const FIXED_NEWSTYLE: u16 = 1;
/// The answer to [`OPT_EXPORT_NAME`] ends without 124 zeroes.
pub const NO_ZEROES: u16 = 2;

/// Transmission flags: what the export offers.
pub const HAS_FLAGS: u16 = 1;
pub const READ_ONLY: u16 = 1 << 1;
pub const SEND_FLUSH: u16 = 1 << 2;
pub const SEND_FUA: u16 = 1 << 3;
pub const SEND_TRIM: u16 = 1 << 5;
pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
pub const SEND_DF: u16 = 1 << 7;
pub const CAN_MULTI_CONN: u16 = 1 << 8;

/// Options of the handshake.
pub const OPT_EXPORT_NAME: u32 = 1;
pub const OPT_ABORT: u32 = 2;
pub const OPT_LIST: u32 = 3;
pub const OPT_STARTTLS: u32 = 5;
pub const OPT_INFO: u32 = 6;
pub const OPT_GO: u32 = 7;
pub const OPT_STRUCTURED_REPLY: u32 = 8;
pub const OPT_LIST_META_CONTEXT: u32 = 9;
pub const OPT_SET_META_CONTEXT: u32 = 10;

/// Kinds of answers to options.
pub const REP_ACK: u32 = 1;
pub const REP_SERVER: u32 = 2;
pub const REP_INFO: u32 = 3;
pub const REP_META_CONTEXT: u32 = 4;
pub const REP_ERR_UNSUP: u32 = (1 << 31) + 1;
pub const REP_ERR_INVALID: u32 = (1 << 31) + 3;
pub const REP_ERR_TLS_REQD: u32 = (1 << 31) + 5;
pub const REP_ERR_UNKNOWN: u32 = (1 << 31) + 6;
pub const REP_ERR_TOO_BIG: u32 = (1 << 31) + 9;

/// What an answer of [`REP_INFO`] is about.
pub const INFO_EXPORT: u16 = 0;
pub const INFO_NAME: u16 = 1;
pub const INFO_BLOCK_SIZE: u16 = 3;

/// The one metadata context, and the id it gets.
pub const BASE_ALLOCATION: &str = "base:allocation";
pub const BASE_ALLOCATION_ID: u32 = 1;
/// The wildcard of its namespace.
pub const BASE: &str = "base:";
/// Status flags in that context.
pub const STATE_HOLE: u32 = 1;
pub const STATE_ZERO: u32 = 2;

/// Kinds of requests.
pub const CMD_READ: u16 = 0;
pub const CMD_WRITE: u16 = 1;
pub const CMD_DISC: u16 = 2;
pub const CMD_FLUSH: u16 = 3;
pub const CMD_TRIM: u16 = 4;
pub const CMD_WRITE_ZEROES: u16 = 6;
pub const CMD_BLOCK_STATUS: u16 = 7;

/// Flags of requests.
pub const FLAG_FUA: u16 = 1;
pub const FLAG_NO_HOLE: u16 = 1 << 1;
pub const FLAG_DF: u16 = 1 << 2;
pub const FLAG_REQ_ONE: u16 = 1 << 3;

/// Flag of the last chunk of a structured reply.
pub const REPLY_DONE: u16 = 1;
/// Kinds of chunks.
pub const CHUNK_NONE: u16 = 0;
pub const CHUNK_DATA: u16 = 1;
pub const CHUNK_HOLE: u16 = 2;
pub const CHUNK_STATUS: u16 = 5;
pub const CHUNK_ERROR: u16 = (1 << 15) + 1;

/// Errors of requests.
pub const EPERM: u32 = 1;
pub const EIO: u32 = 5;
pub const EINVAL: u32 = 22;
pub const ENOSPC: u32 = 28;

/// No string is longer.
pub const MAX_STRING_BYTES: usize = 4096;
