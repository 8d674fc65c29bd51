//! Traces of block storage in their published formats: a line is a request or an error that names it.
#![no_main]

#[path = "../../crates/experiments/src/trace/mod.rs"]
#[allow(dead_code, reason = "only the reader is tried")]
mod trace;

/// What the reader needs of the crate that it is part of.
mod error {
    pub type Result<T, E = ExperimentError> = std::result::Result<T, E>;

    #[derive(Debug)]
    pub struct ExperimentError;

    impl ExperimentError {
        pub fn io(_: String) -> impl Fn(std::io::Error) -> Self {
            |_| Self
        }

        pub fn invalid(_: impl Into<String>, _: impl Into<String>, _: impl std::fmt::Display) -> Self {
            Self
        }
    }
}

use libfuzzer_sys::fuzz_target;
use trace::{Format, Trace};

const FORMATS: [Option<Format>; 6] = [
    None,
    Some(Format::Msr),
    Some(Format::CloudPhysics),
    Some(Format::SsdSim),
    Some(Format::Tencent),
    Some(Format::CacheLib),
];

fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    let format = FORMATS[usize::from(*which) % FORMATS.len()];
    let Ok(requests) = Trace::read(std::io::Cursor::new(rest.to_vec()), "trace", format) else { return };
    for request in requests.map_while(Result::ok) {
        assert!(request.bytes > 0 && request.offset.checked_add(request.bytes).is_some());
    }
});
