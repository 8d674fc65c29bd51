//! How many bytes must have come before a reader is woken.
//!
//! Over a link of 50 Mb/s each packet comes alone, and a reader that each of them wakes spends more time on waking than on
//! their bytes.

#![allow(unsafe_code)] // one option of sockets that no safe interface has

use std::io::Result;
use std::os::fd::{AsFd, AsRawFd};

/// Sets `SO_RCVLOWAT`: the socket counts as readable when `bytes` have come, or its peer has closed it. A read returns
/// what there is all the same.
#[cfg(target_os = "linux")]
pub fn wake_at(socket: &impl AsFd, bytes: u32) -> Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX).max(1);
    // SAFETY: the descriptor is open while it is borrowed, and the option is an int, whose address and size are given.
    let refused = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            std::ptr::from_ref(&value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if refused == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Every byte wakes the reader.
#[cfg(not(target_os = "linux"))]
pub fn wake_at(_: &impl AsFd, _: u32) -> Result<()> {
    Ok(())
}
