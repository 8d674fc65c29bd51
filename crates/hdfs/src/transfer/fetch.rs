//! Having a DataNode fetch a block from another one, as HDFS's balancer does.

use std::net::SocketAddr;
use std::time::Duration;

use super::{Link, REPLACE, status_name};
use crate::HdfsError;
use crate::proto::names::{DatanodeInfo, ExtendedBlock, Token};
use crate::proto::transfer::{Answer, BaseHeader, ReplaceBlock};

/// The DataNode is at it: a sign of life, every 30 s by default.
const IN_PROGRESS: i32 = 12;

/// How long it may be silent.
const SILENCE: Duration = Duration::from_secs(90);

/// Has `datanode` fetch a block from `source`. When it is there, the NameNode is told to drop the replica of `source`. The token must permit
/// copying and replacing. This call blocks.
///
/// # Errors
/// `Unreachable`; `Datanode` if it refuses or fails.
pub(crate) fn fetch(
    datanode: SocketAddr,
    block: &ExtendedBlock,
    token: Option<&Token>,
    source: &DatanodeInfo,
) -> Result<(), HdfsError> {
    let ask = ReplaceBlock {
        header: BaseHeader { block: block.clone(), token: token.cloned() },
        dropped: source.id.uuid.clone(),
        source: source.clone(),
    };
    let mut link = Link::connect(datanode, block, SILENCE)?;
    link.ask(REPLACE, &ask)?;
    loop {
        let answer: Answer = link.message()?;
        match answer.status {
            0 => return Ok(()),
            IN_PROGRESS => {}
            status => {
                let said = answer.message.unwrap_or_default();
                return Err(link.error(format!("{}: {said}", status_name(status))));
            }
        }
    }
}
