//! Certificates and the URIs in them: they say who somebody is, or are refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| kintsu_wire::fuzz::badge(data));
