//! Whether this process was given a standard input and output. Rust's runtime opens `/dev/null` in place of those that are
//! closed (`>&-`) before `main`, and others give a process `/dev/null` on purpose. So this looks earlier: the C library
//! calls the functions that are named in the section `.init_array` before it calls `main`.
#![allow(unsafe_code)] // places a pointer in that section

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static INPUT_CLOSED: AtomicBool = AtomicBool::new(false);
static OUTPUT_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section is an array of pointers to functions of C that take no arguments which they need, as this one is.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Needs nothing that the runtime prepares: two system calls.
extern "C" fn look() {
    INPUT_CLOSED.store(is_closed(rustix::stdio::stdin()), Relaxed);
    OUTPUT_CLOSED.store(is_closed(rustix::stdio::stdout()), Relaxed);
}

fn is_closed(stream: impl AsFd) -> bool {
    rustix::io::fcntl_getfd(stream).is_err()
}

/// # Errors
/// Standard input was closed when this process started: there is nothing to read, which is not the same as no bytes.
pub fn check_input() -> io::Result<()> {
    check("input", &INPUT_CLOSED)
}

/// # Errors
/// Standard output was closed when this process started, so nobody would get what is written there.
pub fn check_output() -> io::Result<()> {
    check("output", &OUTPUT_CLOSED)
}

fn check(which: &str, closed: &AtomicBool) -> io::Result<()> {
    match closed.load(Relaxed) {
        true => Err(io::Error::other(format!("standard {which} is closed"))),
        false => Ok(()),
    }
}
