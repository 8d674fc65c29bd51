//! Control messages: bytes from a peer are a message or an error, and a message that was read is written and read the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| kintsu_wire::fuzz::message(data));
