//! The ways in for a fuzzer (`fuzz/`): what NameNodes, DataNodes, their disks and records of objects may say.

use std::path::Path;

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use kintsu_store::{BlockRead as _, Generation};
use prost::Message;

use crate::objects::Known;
use crate::proto::names::{Datanodes, FileInfo, FileStatus, Listing, LocatedBlocks, Locations};
use crate::proto::transfer::Answer;
use crate::rpc::{Reply, reply};
use crate::status::Heard;
use crate::transfer::packets;
use crate::{Directories, Group, Replica};

/// A frame with the answer to call 7.
pub fn namenode(frame: &[u8]) {
    let Ok(Reply::Answer(answer)) = reply(frame, 7) else { return };
    if let Ok(found) = Datanodes::decode(&answer[..]) {
        let heard = Heard::of(found.datanodes.iter());
        found.datanodes.iter().for_each(|node| _ = heard.silence_ms(node));
    }
    if let Ok(FileInfo { status: Some(FileStatus { blocks: Some(blocks), .. }) }) =
        FileInfo::decode(&answer[..])
    {
        groups(&blocks, &FileStatus::default());
    }
    if let Ok(Locations { blocks: Some(blocks) }) = Locations::decode(&answer[..]) {
        groups(&blocks, &FileStatus { block_bytes: Some(blocks.file_bytes), ..FileStatus::default() });
    }
    if let Ok(Listing { page: Some(page) }) = Listing::decode(&answer[..]) {
        for file in &page.entries {
            file.blocks.iter().for_each(|blocks| groups(blocks, file));
        }
    }
}

/// Takes the groups of a file, and asks each what users ask.
fn groups(blocks: &LocatedBlocks, file: &FileStatus) {
    for group in Group::of("/f", file, blocks).unwrap_or_default() {
        assert!(group.expected().all(|index| group.block_bytes(index) <= group.layout.block_bytes));
        let (missing, there) = (group.missing().len(), group.view(NodeId(1), |_| true).available().len());
        assert!(missing + there <= group.policy.code.n() && group.spare() <= Some(group.policy.code.n()));
        let _ = group.to_string();
    }
}

/// The answer to a read, and packets.
pub fn datanode(bytes: &[u8]) {
    packets::<Answer>(bytes);
}

/// The `.meta` file and the bytes of a block, in this folder.
pub fn disk(folder: &Path, meta: &[u8], bytes: &[u8]) {
    let pool = folder.join("current/BP-1/current/finalized/subdir0/subdir0");
    let write = |name, bytes| std::fs::write(pool.join(name), bytes).expect("a folder that can be written");
    std::fs::create_dir_all(&pool).expect("a folder that can be written");
    write("blk_-9223372036854775789", bytes);
    write("blk_-9223372036854775789_1001.meta", meta);
    let id = BlockId { stripe: StripeId(-9_223_372_036_854_775_792i64 as u64), index: BlockIndex(3) };
    let directories = Directories::of(vec![folder.to_owned()], |_| true);
    let Ok(mut block) = Replica::open(&directories, id, Generation(1001)) else { return };
    assert_eq!(block.meta().len, bytes.len() as u64);
    let mut read = vec![0; bytes.len()];
    if block.read_at(0, &mut read).is_ok() {
        assert_eq!(read, bytes);
    }
}

/// The JSON of a record under the digest that it has.
pub fn record(json: &[u8]) {
    let _ = Known::in_file("/f", &crate::objects::record_of_json(json));
}
