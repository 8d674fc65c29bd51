//! Codes as data and codes by name, from operators: proved, or refused with an error. Small ones only: a proof takes time in
//! proportion to the definition.
#![no_main]

use kintsu_code::Definition;
use libfuzzer_sys::fuzz_target;

/// Larger input says nothing new.
const MOST_BYTES: usize = 2048;
/// The most blocks of a stripe that are tried.
const MOST_BLOCKS: usize = 8;
/// The largest number in a name that is tried.
const MOST_IN_A_NAME: &str = "16";

fuzz_target!(|data: &[u8]| {
    if data.len() > MOST_BYTES {
        return;
    }
    if let Ok(definition) = serde_json::from_slice::<Definition>(data)
        && usize::from(definition.n) <= MOST_BLOCKS
        && let Ok(code) = definition.prove()
    {
        assert_eq!(code.n(), usize::from(definition.n));
    }
    let _ = rmp_serde::from_slice::<Definition>(data);
    if let Ok(name) = std::str::from_utf8(data)
        && name.split(|c: char| !c.is_ascii_digit()).all(|number| number.len() < 2 || number.len() == 2 && number <= MOST_IN_A_NAME)
        && let Ok(code) = kintsu_code::parse(name)
    {
        assert!(code.k() > 0 && code.n() >= code.k());
    }
});
