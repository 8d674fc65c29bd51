//! Frames of the slice streams: a fixed header, then a payload, each under its own CRC32C.
//!
//! Byte layout in `docs/format.md`, "Slice frames". This module makes and reads bytes and does no I/O. Invariants:
//! no length is used before the header's checksum was verified and the length is within [`MAX_PAYLOAD_BYTES`]; cut
//! or changed bytes are refused, never misread.

use bytes::{Buf, BufMut};
use kintsu_dag::{NodeId, Vertex};
use kintsu_plan::RunId;
use serde::{Deserialize, Serialize};

use crate::message::Fault;
use crate::{ClusterId, WireError};

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 36;

/// The largest payload; larger ones are refused before anything is allocated.
pub const MAX_PAYLOAD_BYTES: usize = 64 << 20;

const MAGIC: [u8; 4] = *b"KNTS";
const ZERO: u8 = 1;

/// The version of the layout of frames. It is not that of the protocol, and changes only when their bytes do; but releases
/// before 11 gave it the same number, and accept no other. The layout is the same since version 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameVersion(u16);

impl FrameVersion {
    /// What this release writes.
    pub const NEWEST: Self = Self(10);

    /// The oldest version of the same layout.
    pub const OLDEST: Self = Self(8);

    /// What all peers of a run can read that is spoken in this version of the protocol.
    pub fn of_protocol(version: u32) -> Self {
        Self(version.try_into().unwrap_or(u16::MAX)).clamp(Self::OLDEST, Self::NEWEST)
    }

    /// That of a frame, if it is known.
    pub fn of_frame(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        Self::known(u16::from_le_bytes([header[4], header[5]]))
    }

    fn known(number: u16) -> Option<Self> {
        Some(Self(number)).filter(|version| (Self::OLDEST..=Self::NEWEST).contains(version))
    }

    /// The number.
    pub fn number(self) -> u16 {
        self.0
    }
}

impl Default for FrameVersion {
    fn default() -> Self {
        Self::NEWEST
    }
}

/// What a frame is, without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// First frame of a connection; the payload is a [`Hello`].
    Hello,
    /// Bytes of a vertex.
    Slice {
        /// Which vertex.
        vertex: Vertex,
        /// Offset in the block where the step of these bytes begins.
        offset: u64,
        /// All bytes are zero and left out: the payload is empty.
        zero: bool,
    },
    /// Nothing to send yet.
    KeepAlive {
        /// The node that the sender waits for; the sender itself when its own disk is slow.
        waiting_on: NodeId,
    },
    /// The sender gives up; the payload is a [`Fault`].
    Abort,
    /// Everything has been sent. A connection that ends without it was cut.
    End,
}

/// The fixed part of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// The lane of the plan.
    pub lane: u16,
    /// For a slice (also a zero one), bytes of the vertex; for other frames, bytes of payload.
    pub len: u32,
    /// CRC32C of the payload; 0 when there is none.
    pub payload_crc: u32,
}

/// Introduces a connection: which stream it carries, and the sender's credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The attempt.
    pub job: RunId,
    /// The lane.
    pub lane: u16,
    /// Who sends slices.
    pub from: NodeId,
    /// Who receives them.
    pub to: NodeId,
    /// The cluster's token.
    pub token: Option<String>,
    /// The cluster, as soon as the sender knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
}

impl Header {
    /// The header of a frame with this payload; for a slice of zeros see [`Header::zero`].
    pub fn new(kind: Kind, lane: u16, payload: &[u8]) -> Self {
        let payload_crc = if payload.is_empty() { 0 } else { crc_fast::crc32_iscsi(payload) };
        Self { kind, lane, len: payload.len() as u32, payload_crc }
    }

    /// The header of a slice of `len` zeros, which are not sent.
    pub fn zero(lane: u16, vertex: Vertex, offset: u64, len: u32) -> Self {
        Self { kind: Kind::Slice { vertex, offset, zero: true }, lane, len, payload_crc: 0 }
    }

    /// Bytes that follow the header.
    pub fn payload_bytes(&self) -> usize {
        match self.kind {
            Kind::Slice { zero: true, .. } => 0,
            _ => self.len as usize,
        }
    }

    /// The header as bytes.
    pub fn encode(&self, version: FrameVersion) -> [u8; HEADER_BYTES] {
        let (kind, flags, vertex, offset) = match self.kind {
            Kind::Hello => (1, 0, 0, 0),
            Kind::Slice { vertex, offset, zero } => (2, if zero { ZERO } else { 0 }, vertex.0, offset),
            Kind::KeepAlive { waiting_on } => (3, 0, waiting_on.0, 0),
            Kind::Abort => (4, 0, 0, 0),
            Kind::End => (5, 0, 0, 0),
        };
        let mut bytes = [0; HEADER_BYTES];
        let mut out = &mut bytes[..];
        out.put_slice(&MAGIC);
        out.put_u16_le(version.0);
        out.put_u8(kind);
        out.put_u8(flags);
        out.put_u16_le(self.lane);
        out.put_u16_le(0);
        out.put_u32_le(vertex);
        out.put_u64_le(offset);
        out.put_u32_le(self.len);
        out.put_u32_le(self.payload_crc);
        let crc = crc_fast::crc32_iscsi(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header from the beginning of `bytes`.
    ///
    /// # Errors
    /// `Cut` for fewer than [`HEADER_BYTES`] bytes; `Version` for another version; `Garbled`;
    /// `Oversized`.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let Some(bytes) = bytes.get(..HEADER_BYTES) else {
            return Err(WireError::Cut { expected: HEADER_BYTES, got: bytes.len() });
        };
        let mut at = bytes;
        let mut magic = [0; 4];
        at.copy_to_slice(&mut magic);
        if magic != MAGIC {
            return Err(garbled("magic", format!("{MAGIC:02x?}"), format!("{magic:02x?}")));
        }
        // Checked before the checksum, whose position depends on the version.
        let version = at.get_u16_le();
        if FrameVersion::known(version).is_none() {
            return Err(WireError::Version { expected: FrameVersion::NEWEST.0.into(), got: version.into() });
        }
        let crc = crc_fast::crc32_iscsi(&bytes[..HEADER_BYTES - 4]);
        let stored = (&bytes[HEADER_BYTES - 4..]).get_u32_le();
        if crc != stored {
            return Err(garbled("checksum of the header", format!("{stored:08x}"), format!("{crc:08x}")));
        }
        Self::decode_fields(at)
    }

    /// The fields after the version, of a header whose checksum is right.
    fn decode_fields(mut at: &[u8]) -> Result<Self, WireError> {
        let (kind, flags, lane, reserved) = (at.get_u8(), at.get_u8(), at.get_u16_le(), at.get_u16_le());
        let (vertex, offset) = (at.get_u32_le(), at.get_u64_le());
        let (len, payload_crc) = (at.get_u32_le(), at.get_u32_le());
        if reserved != 0 || flags & !ZERO != 0 || (flags != 0 && kind != 2) {
            return Err(garbled("flags", "known ones".into(), format!("{flags:#x}, {reserved:#x}")));
        }
        let kind = match kind {
            1 => Kind::Hello,
            2 => Kind::Slice { vertex: Vertex(vertex), offset, zero: flags & ZERO != 0 },
            3 => Kind::KeepAlive { waiting_on: NodeId(vertex) },
            4 => Kind::Abort,
            5 => Kind::End,
            other => return Err(garbled("kind", "1 to 5".into(), other.to_string())),
        };
        if len as usize > MAX_PAYLOAD_BYTES {
            return Err(WireError::Oversized { expected: MAX_PAYLOAD_BYTES, got: len as usize });
        }
        Ok(Self { kind, lane, len, payload_crc })
    }

    /// Checks the bytes that followed this header.
    ///
    /// # Errors
    /// `Cut`; `Garbled` when the checksum does not match.
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), WireError> {
        if payload.len() != self.payload_bytes() {
            return Err(WireError::Cut { expected: self.payload_bytes(), got: payload.len() });
        }
        let crc = if payload.is_empty() { 0 } else { crc_fast::crc32_iscsi(payload) };
        if crc != self.payload_crc {
            let expected = format!("{:08x}", self.payload_crc);
            return Err(garbled("checksum of the payload", expected, format!("{crc:08x}")));
        }
        Ok(())
    }
}

/// A whole `Hello` frame.
///
/// # Errors
/// `Invalid` when it cannot be encoded.
pub fn hello(version: FrameVersion, hello: &Hello) -> Result<Vec<u8>, WireError> {
    packed(version, Kind::Hello, hello.lane, hello)
}

/// A whole `Abort` frame.
///
/// # Errors
/// `Invalid` when it cannot be encoded.
pub fn abort(version: FrameVersion, lane: u16, fault: &Fault) -> Result<Vec<u8>, WireError> {
    packed(version, Kind::Abort, lane, fault)
}

/// A whole frame without payload (`KeepAlive`, `End`).
pub fn bare(version: FrameVersion, kind: Kind, lane: u16) -> [u8; HEADER_BYTES] {
    Header::new(kind, lane, &[]).encode(version)
}

/// Reads the payload of a `Hello` or `Abort` frame.
///
/// # Errors
/// `Garbled` when it is not one.
pub fn unpack<T: serde::de::DeserializeOwned>(payload: &[u8]) -> Result<T, WireError> {
    rmp_serde::from_slice(payload)
        .map_err(|error| garbled("payload", std::any::type_name::<T>().into(), error.to_string()))
}

fn packed<T: Serialize>(
    version: FrameVersion,
    kind: Kind,
    lane: u16,
    value: &T,
) -> Result<Vec<u8>, WireError> {
    let invalid =
        |got: String| WireError::Invalid { what: "payload", expected: "encodable data".into(), got };
    let payload = rmp_serde::to_vec_named(value).map_err(|error| invalid(error.to_string()))?;
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(invalid(format!("{} bytes", payload.len())));
    }
    let mut frame = Header::new(kind, lane, &payload).encode(version).to_vec();
    frame.extend_from_slice(&payload);
    Ok(frame)
}

fn garbled(what: &'static str, expected: String, got: String) -> WireError {
    WireError::Garbled { what, expected, got }
}
