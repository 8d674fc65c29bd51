//! Internal blocks as files on the disks of DataNodes, and how they are spoilt.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use kintsu_dag::BlockIndex;

use crate::daemons::Hdfs;

/// The file of internal block `index` of the first group of `path`, and its number of DataNode.
pub fn stored(hdfs: &Hdfs, path: &str, index: u8) -> (PathBuf, u32, i64) {
    let group = hdfs.groups(path).remove(0);
    let index = BlockIndex(index);
    let node = hdfs.number(&group.holders[&index][0].datanode);
    (hdfs.block_file(node, group.block(index).id).unwrap(), node, group.id as i64)
}

pub fn flip(file: &Path, at: u64) {
    let file = std::fs::File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
}

/// The file with the checksums of a block file.
pub fn meta_of(file: &Path) -> PathBuf {
    let name = format!("{}_", file.file_name().unwrap().to_str().unwrap());
    let entries = std::fs::read_dir(file.parent().unwrap()).unwrap().flatten().map(|entry| entry.path());
    entries.into_iter().find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&name)).unwrap()
}

/// Makes the checksum valid for the bytes around `at`; returns the old checksums. A `.meta` file has 7 bytes, then a
/// checksum of 4 bytes for each 512 bytes.
pub fn sign_again(file: &Path, at: u64) -> Vec<u8> {
    let (meta, bytes) = (meta_of(file), std::fs::read(file).unwrap());
    let old = std::fs::read(&meta).unwrap();
    let unit = (at / 512) as usize;
    let sum = crc32c(&bytes[unit * 512..(unit + 1) * 512]);
    let mut new = old.clone();
    new[7 + unit * 4..][..4].copy_from_slice(&sum.to_be_bytes());
    assert_ne!(new, old);
    std::fs::write(&meta, new).unwrap();
    old
}

/// CRC-32C bit by bit, so that the test does not share the code under test.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}
