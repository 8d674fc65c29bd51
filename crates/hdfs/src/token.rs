//! Block tokens for writing and moving, signed with the NameNode's keys as the Balancer does.
//!
//! A token's identifier is in Java's `Writable` form: expiry (ms) as a variable-length integer, key id, user, pool,
//! block id, modes, storage types, storage ids; its password is the HMAC-SHA-1 of that under the key.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, Mac};
use sha1::Sha1;

use crate::HdfsError;
use crate::proto::names::{BlockKey, ExtendedBlock, Token};

/// How long a token is good for. A hand-over takes seconds.
const GOOD_FOR: Duration = Duration::from_secs(600);

/// What permits writing a block.
const WRITE: &[&str] = &["WRITE"];

/// What permits reading a block.
pub(crate) const READ: &[&str] = &["READ"];

/// What permits having a DataNode fetch a block from another one.
pub(crate) const MOVE: &[&str] = &["COPY", "REPLACE"];

/// A token that permits `user` to write this block to a disk of any DataNode.
///
/// # Errors
/// `Unsupported` for a key without bytes.
pub(crate) fn write_token(key: &BlockKey, user: &str, block: &ExtendedBlock) -> Result<Token, HdfsError> {
    token(key, user, block, WRITE)
}

/// A token that permits `user` this with the block on any DataNode.
///
/// # Errors
/// `Unsupported` for a key without bytes.
pub(crate) fn token(
    key: &BlockKey,
    user: &str,
    block: &ExtendedBlock,
    modes: &[&str],
) -> Result<Token, HdfsError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let identifier = identifier((now + GOOD_FOR).as_millis() as i64, key.id, user, block, modes);
    let secret = key.bytes.as_deref().filter(|bytes| !bytes.is_empty());
    let unsigned = || HdfsError::Unsupported {
        what: "keys of block tokens".into(),
        expected: "a secret".into(),
        got: "none".into(),
    };
    let mut mac = secret.and_then(|s| Hmac::<Sha1>::new_from_slice(s).ok()).ok_or_else(unsigned)?;
    mac.update(&identifier);
    let password = mac.finalize().into_bytes().to_vec();
    Ok(Token { identifier, password, kind: "HDFS_BLOCK_TOKEN".into(), service: String::new() })
}

fn identifier(expires_ms: i64, key: u32, user: &str, block: &ExtendedBlock, modes: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    integer(&mut bytes, expires_ms);
    // A Java int, which may be negative.
    integer(&mut bytes, (key as i32).into());
    text(&mut bytes, user);
    text(&mut bytes, &block.pool);
    integer(&mut bytes, block.id as i64);
    integer(&mut bytes, modes.len() as i64);
    modes.iter().for_each(|mode| word(&mut bytes, mode));
    integer(&mut bytes, 1);
    word(&mut bytes, "DISK");
    // Storage ids: none, which means any.
    integer(&mut bytes, 0);
    bytes
}

/// Java's variable-length long: one byte from -112 to 127; otherwise a byte that tells sign and length, then the
/// magnitude (of a negative number its complement) big-endian without leading zeros.
fn integer(bytes: &mut Vec<u8>, value: i64) {
    if (-112..=127).contains(&value) {
        bytes.push(value as u8);
        return;
    }
    let magnitude = if value < 0 { !value } else { value };
    let len = (8 - magnitude.leading_zeros() as usize / 8).max(1);
    let marker = if value < 0 { -120 } else { -112 } - len as i64;
    bytes.push(marker as u8);
    bytes.extend(&magnitude.to_be_bytes()[8 - len..]);
}

/// A string after its length in four bytes.
fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u32).to_be_bytes());
    bytes.extend(text.as_bytes());
}

/// The name of a constant after its length as a variable-length integer.
fn word(bytes: &mut Vec<u8>, word: &str) {
    integer(bytes, word.len() as i64);
    bytes.extend(word.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_as_short_as_in_java() {
        let coded = |value| {
            let mut bytes = Vec::new();
            integer(&mut bytes, value);
            bytes
        };
        assert_eq!(coded(0), [0]);
        assert_eq!(coded(127), [127]);
        assert_eq!(coded(-112), [0x90]);
        assert_eq!(coded(128), [0x8f, 128]);
        assert_eq!(coded(-113), [0x87, 112]);
        assert_eq!(coded(0x1234), [0x8e, 0x12, 0x34]);
        assert_eq!(coded(i64::MIN), [0x80, 0x7f, 255, 255, 255, 255, 255, 255, 255]);
    }

    #[test]
    fn an_identifier_has_the_bytes_of_hadoops_own() {
        // Printed by Hadoop 3.4.3's `BlockTokenIdentifier` with these values.
        let hadoops = "8a018bcfe568008d12d68700000004726f6f740000000442502d31807fffffffffffffef\
                       0105575249544501044449534b00";
        let id = -9_223_372_036_854_775_792i64 as u64;
        let block = ExtendedBlock { pool: "BP-1".into(), id, generation: 1001, bytes: None };
        let ours = identifier(1_700_000_000_000, 1_234_567, "root", &block, WRITE);
        assert_eq!(ours.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), hadoops);
    }
}
