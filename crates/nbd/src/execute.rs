//! One command carried out by the device.

use bytes::Bytes;

use crate::device::{Device, DeviceError, Extent};
use crate::numbers::*;
use crate::reply::Answer;
use crate::request::{Command, Refusal};

/// The most extents in one answer; a client asks on where an answer ends.
const MAX_EXTENTS: usize = 4096;

/// Carries a command out; `data` are those of a write.
pub(crate) async fn execute(device: &impl Device, command: Command, data: Bytes) -> Answer {
    let done = |result: Result<(), DeviceError>| result.map(|()| Answer::Done);
    let answer = match command {
        Command::Read { offset, len } => {
            device.read(offset, len).await.and_then(|bytes| whole(offset, len, bytes))
        }
        Command::Write { offset, fua, .. } => done(device.write(offset, data, fua).await),
        Command::Flush => done(device.flush().await),
        Command::Trim { offset, len, fua } => done(device.trim(offset, len, fua).await),
        Command::WriteZeroes { offset, len, may_punch, fua } => {
            done(device.write_zeroes(offset, len, may_punch, fua).await)
        }
        Command::Status { offset, len, one } => {
            device.allocated(offset, len).await.map(|extents| status(&extents, len, one))
        }
        // It ends the connection, and has no answer.
        Command::Disconnect => Ok(Answer::Done),
    };
    answer.unwrap_or_else(|error| {
        tracing::warn!("{command:?}: {error}");
        Answer::Refused(refusal(&error))
    })
}

/// The bytes of a read, if they are as many as were asked for.
fn whole(offset: u64, len: u32, bytes: Bytes) -> Result<Answer, DeviceError> {
    if bytes.len() != len as usize {
        return Err(DeviceError::Io(format!("expected {len} bytes from the device, got {}", bytes.len())));
    }
    Ok(Answer::Data { offset, bytes })
}

fn refusal(error: &DeviceError) -> Refusal {
    let number = match error {
        DeviceError::Invalid(_) => EINVAL,
        DeviceError::Full(_) => ENOSPC,
        DeviceError::Forbidden(_) => EPERM,
        DeviceError::Io(_) => EIO,
    };
    Refusal::new(number, error.to_string())
}

/// The extents of a range of `len` bytes: none empty, neighbours of one kind as one, none beyond the range. What the
/// device does not know is told as allocated bytes.
fn status(extents: &[Extent], len: u32, one: bool) -> Answer {
    let mut told: Vec<(u32, u32)> = Vec::new();
    let mut left = len;
    for extent in extents.iter().filter(|extent| extent.len > 0) {
        let part = u32::try_from(extent.len).unwrap_or(u32::MAX).min(left);
        let hole = if extent.allocated { 0 } else { STATE_HOLE };
        let flags = hole | if extent.zero { STATE_ZERO } else { 0 };
        let full = one || told.len() == MAX_EXTENTS;
        match told.last_mut() {
            Some((last, same)) if *same == flags => *last += part,
            Some(_) if full => break,
            _ => told.push((part, flags)),
        }
        left -= part;
        if left == 0 {
            break;
        }
    }
    if told.is_empty() {
        told.push((len, 0));
    }
    Answer::Status(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: Extent = Extent { len: 100, allocated: true, zero: false };
    const HOLE: Extent = Extent { len: 50, allocated: false, zero: true };

    #[test]
    fn extents_are_merged_cut_and_never_none() {
        let told = |extents: &[Extent], len, one| match status(extents, len, one) {
            Answer::Status(told) => told,
            other => panic!("{other:?}"),
        };
        assert_eq!(told(&[DATA, DATA, HOLE], 1000, false), [(200, 0), (50, 3)]);
        assert_eq!(told(&[DATA, HOLE, HOLE], 170, false), [(100, 0), (70, 3)]);
        assert_eq!(told(&[DATA, DATA, HOLE], 1000, true), [(200, 0)]);
        assert_eq!(told(&[], 1000, false), [(1000, 0)]);
        assert_eq!(told(&[Extent { len: 0, ..HOLE }, DATA], 10, false), [(10, 0)]);
        assert_eq!(told(&[Extent { len: u64::MAX, ..HOLE }], u32::MAX, false), [(u32::MAX, 3)]);
        let many: Vec<Extent> = [DATA, HOLE].into_iter().cycle().take(9000).collect();
        assert_eq!(told(&many, u32::MAX, false).len(), MAX_EXTENTS);
    }
}
