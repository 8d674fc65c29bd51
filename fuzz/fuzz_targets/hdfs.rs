//! What stands beside an HDFS reads: answers of NameNodes with policies and places of blocks, packets of DataNodes, `.meta` files, and
//! records of objects. Each is taken or refused.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use kintsu_hdfs::fuzz;
use libfuzzer_sys::fuzz_target;

/// Where blocks of DataNodes are put.
static FOLDER: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("kintsu-fuzz-{}", std::process::id())));

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    match first % 4 {
        0 => fuzz::namenode(rest),
        1 => fuzz::datanode(rest),
        2 => {
            // A block of some units, and the head and checksums of its `.meta` file.
            let (meta, bytes) = rest.split_at(rest.len().min(7 + rest.len().div_ceil(516) * 4));
            fuzz::disk(&FOLDER, meta, bytes);
        }
        _ => fuzz::record(rest),
    }
});
