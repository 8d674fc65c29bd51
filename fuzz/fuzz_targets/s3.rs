//! Parts of S3 requests that this server reads itself, and the file of keys.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some((which, rest)) = data.split_first() {
        kintsu_s3::fuzz::read(*which, rest);
    }
});
