//! One request: parsed, and checked against what the client was told. Nothing here waits or answers.

use crate::error::NbdError;
use crate::negotiate::Session;
use crate::numbers::*;

/// Length of a request without its data.
pub(crate) const HEADER_BYTES: usize = 28;

/// A request as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub flags: u16,
    pub kind: u16,
    /// The client's own number, sent back with the answer.
    pub cookie: u64,
    pub offset: u64,
    pub len: u32,
}

impl Header {
    /// Parses the header of a request.
    ///
    /// # Errors
    /// `Protocol`: these bytes begin no request, so where the next one begins is not known.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, NbdError> {
        let [m0, m1, m2, m3, f0, f1, k0, k1, rest @ ..] = *bytes;
        let [c0, c1, c2, c3, c4, c5, c6, c7, rest @ ..] = rest;
        let [o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3] = rest;
        let magic = u32::from_be_bytes([m0, m1, m2, m3]);
        if magic != REQUEST {
            return Err(NbdError::Protocol {
                what: "start of a request",
                expected: format!("{REQUEST:#x}"),
                got: format!("{magic:#x}"),
            });
        }
        Ok(Self {
            flags: u16::from_be_bytes([f0, f1]),
            kind: u16::from_be_bytes([k0, k1]),
            cookie: u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
            offset: u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            len: u32::from_be_bytes([l0, l1, l2, l3]),
        })
    }

    /// How many bytes of data follow this header, whether or not the request is granted.
    pub fn data_bytes(&self) -> u32 {
        if self.kind == CMD_WRITE { self.len } else { 0 }
    }
}

/// A request that may be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Read { offset: u64, len: u32 },
    Write { offset: u64, len: u32, fua: bool },
    Flush,
    Trim { offset: u64, len: u32, fua: bool },
    WriteZeroes { offset: u64, len: u32, may_punch: bool, fua: bool },
    Status { offset: u64, len: u32, one: bool },
    Disconnect,
}

impl Command {
    /// Bytes of memory that its data need, in the request or in the answer.
    pub fn held_bytes(&self) -> u32 {
        match *self {
            Self::Read { len, .. } | Self::Write { len, .. } => len,
            _ => 0,
        }
    }
}

/// Why a request is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The protocol's number.
    pub error: u32,
    /// For people; sent if the client takes structured replies.
    pub why: String,
}

impl Refusal {
    pub fn new(error: u32, why: impl Into<String>) -> Self {
        Self { error, why: why.into() }
    }
}

/// Holds a request against what the client was told.
///
/// # Errors
/// The refusal to send.
pub(crate) fn check(header: Header, session: &Session) -> Result<Command, Refusal> {
    let Header { flags, kind, offset, len, .. } = header;
    let fua = flags & FLAG_FUA != 0;
    let (known, command) = match kind {
        CMD_READ => (FLAG_DF, Command::Read { offset, len }),
        CMD_WRITE => (0, Command::Write { offset, len, fua }),
        CMD_DISC => return Ok(Command::Disconnect),
        CMD_FLUSH => (0, Command::Flush),
        CMD_TRIM => (0, Command::Trim { offset, len, fua }),
        CMD_WRITE_ZEROES => {
            let may_punch = flags & FLAG_NO_HOLE == 0;
            (FLAG_NO_HOLE, Command::WriteZeroes { offset, len, may_punch, fua })
        }
        CMD_BLOCK_STATUS => (FLAG_REQ_ONE, Command::Status { offset, len, one: flags & FLAG_REQ_ONE != 0 }),
        other => return Err(Refusal::new(EINVAL, format!("this server does not know command {other}"))),
    };
    let unknown = flags & !(known | FLAG_FUA);
    if unknown != 0 {
        let why = format!("command {kind}: expected flags {:#x}, got {flags:#x}", known | FLAG_FUA);
        return Err(Refusal::new(EINVAL, why));
    }
    if flags & FLAG_DF != 0 && !session.structured {
        return Err(Refusal::new(EINVAL, "flag DF: expected structured replies, got a client without them"));
    }
    let writes =
        matches!(command, Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. });
    if writes && session.read_only {
        return Err(Refusal::new(EPERM, "expected no writes to a read-only export, got one"));
    }
    if command == Command::Flush {
        return match (offset, len) {
            (0, 0) => Ok(command),
            _ => {
                Err(Refusal::new(EINVAL, format!("flush: expected offset and length 0, got {offset}, {len}")))
            }
        };
    }
    if kind == CMD_BLOCK_STATUS && !session.allocation {
        return Err(Refusal::new(EINVAL, format!("expected {BASE_ALLOCATION} to be selected first")));
    }
    in_range(kind, offset, len, session)?;
    Ok(command)
}

/// Checks that a range is within the export, aligned as the client was told, and not too long for its data.
fn in_range(kind: u16, offset: u64, len: u32, session: &Session) -> Result<(), Refusal> {
    let range = || format!("{len} bytes at {offset}");
    if len == 0 {
        return Err(Refusal::new(EINVAL, format!("expected a length above 0, got {}", range())));
    }
    if offset.checked_add(len.into()).is_none_or(|end| end > session.size) {
        let error = if matches!(kind, CMD_WRITE | CMD_WRITE_ZEROES) { ENOSPC } else { EINVAL };
        let why = format!("expected a range within {} bytes, got {}", session.size, range());
        return Err(Refusal::new(error, why));
    }
    let minimum = session.sizes.minimum;
    if !(offset.is_multiple_of(minimum.into()) && len.is_multiple_of(minimum)) {
        let why = format!("expected multiples of {minimum} bytes, got {}", range());
        return Err(Refusal::new(EINVAL, why));
    }
    if matches!(kind, CMD_READ | CMD_WRITE) && len > session.max_data_bytes {
        let why = format!("expected at most {} bytes in one request, got {len}", session.max_data_bytes);
        return Err(Refusal::new(EINVAL, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
