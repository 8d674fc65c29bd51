//! Names of files in a store's directory: `blocks/0c/s12.b3.block` holds block 3 of stripe 12.
//!
//! The directory in the middle (`0c`) is the stripe's lowest byte in hex, so that no directory grows too long.
//! Beside a block there may be a `.tmp` file, which is an unfinished write, a `.next` file, which is its next version
//! (see `next`), and a `.bad` file, which is a block
//! that an earlier version set aside. This version sets blocks aside in `quarantine`, under other names
//! (`QuarantinedName`). Files with other names are not ours and are never touched.

use std::path::{Path, PathBuf};

use kintsu_dag::{BlockId, BlockIndex, StripeId};

/// What a file in a store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole block.
    Block,
    /// A write that is not finished, or was cut off by a crash.
    Temp,
    /// A whole next version of a block, which nobody has asked for yet.
    Next,
    /// A second name of a next version on its way to the block's place.
    Promoted,
    /// A rotten block that an earlier version set aside here; opening moves it into the quarantine.
    Bad,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Block, Self::Temp, Self::Next, Self::Promoted, Self::Bad];

    fn suffix(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Temp => "tmp",
            Self::Next => "next",
            Self::Promoted => "promoted",
            Self::Bad => "bad",
        }
    }
}

/// The file that marks a store's directory as in use.
pub(crate) fn lock(root: &Path) -> PathBuf {
    root.join("LOCK")
}

/// The directory that holds the directories of blocks.
pub(crate) fn blocks(root: &Path) -> PathBuf {
    root.join("blocks")
}

/// The directory of blocks that were set aside.
pub(crate) fn quarantine(root: &Path) -> PathBuf {
    root.join("quarantine")
}

/// The directory of the log of updates.
pub(crate) fn log(root: &Path) -> PathBuf {
    root.join("log")
}

/// Which of the 256 directories a block is in.
pub(crate) fn shelf(id: BlockId) -> u8 {
    id.stripe.0 as u8
}

/// That directory.
pub(crate) fn shelf_dir(root: &Path, shelf: u8) -> PathBuf {
    blocks(root).join(format!("{shelf:02x}"))
}

/// Which of the 256 directories has this name.
pub(crate) fn parse_shelf(name: &str) -> Option<u8> {
    let shelf = u8::from_str_radix(name, 16).ok()?;
    (format!("{shelf:02x}") == name).then_some(shelf)
}

/// The file of a block.
pub(crate) fn file(root: &Path, id: BlockId, kind: Kind) -> PathBuf {
    shelf_dir(root, shelf(id)).join(format!("{id}.{}", kind.suffix()))
}

/// What the file of this name in this directory is, if it is one of ours.
pub(crate) fn parse(in_shelf: u8, name: &str) -> Option<(BlockId, Kind)> {
    let (stem, suffix) = name.rsplit_once('.')?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.suffix() == suffix)?;
    let (stripe, index) = stem.strip_prefix('s')?.split_once(".b")?;
    let id = BlockId { stripe: StripeId(stripe.parse().ok()?), index: BlockIndex(index.parse().ok()?) };
    (id.to_string() == stem && shelf(id) == in_shelf).then_some((id, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_strangers_are_not() {
        let id = BlockId { stripe: StripeId(0x1_000c), index: BlockIndex(3) };
        assert_eq!(file(Path::new("/d"), id, Kind::Block), Path::new("/d/blocks/0c/s65548.b3.block"));
        for kind in Kind::ALL {
            let path = file(Path::new("/d"), id, kind);
            let name = path.file_name().and_then(|name| name.to_str()).unwrap();
            assert_eq!(parse(0x0c, name), Some((id, kind)));
            assert_eq!(parse(0x0d, name), None, "a block in the wrong directory");
        }
        for stranger in ["", "s1.b2", "s01.b2.block", "s1.b+2.block", "s1.b256.block", "s1.b2.block.orig"] {
            assert_eq!(parse(1, stranger), None, "{stranger}");
        }
        assert_eq!(parse_shelf("0c"), Some(0x0c));
        assert_eq!([parse_shelf("C"), parse_shelf("0C"), parse_shelf("+c"), parse_shelf("100")], [None; 4]);
    }
}
