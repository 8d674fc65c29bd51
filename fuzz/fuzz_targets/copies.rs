//! Copies of the metadata: a copy is sound or refused, however it comes in pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| kintsu_wire::fuzz::copy(data));
