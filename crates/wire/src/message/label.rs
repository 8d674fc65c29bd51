//! What a block's header says besides its identity, so that metadata can be rebuilt from blocks alone.
//!
//! For the store a label is opaque bytes. It says how things were when its block was written. So blocks of a stripe that are
//! written later, by a repair for example, may differ in `created`, `homes`, `size` and `members`, and after a rename or a join
//! in all that is said of the object (except its code) and in `offset`.

use kintsu_code::{Code, Definition};
use kintsu_dag::NodeId;
use kintsu_plan::Layout;
use serde::{Deserialize, Serialize};

use super::{Attributes, DigestBytes, Encoding};
use crate::ClusterId;

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// The cluster that the block belongs to.
    pub cluster: ClusterId,
    /// The object that the stripe is part of.
    pub object: ObjectLabel,
    /// First byte of the stripe in the object.
    pub offset: u64,
    /// How object bytes lie in the stripe.
    pub layout: Layout,
    /// The node of each of the n blocks when the stripe was written; `None` for blocks that are empty.
    pub homes: Vec<Option<NodeId>>,
}

/// The part of a label that is about the object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectLabel {
    /// Its id, which is also its version: of two objects of one name the one with the larger id is newer.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its length in bytes; `None` in a stripe of a stream that was written before its end was known. The last
    /// stripe of a stream tells it.
    pub size: Option<u64>,
    /// Seconds since 1970 when it began to be written.
    pub created: u64,
    /// Whether it is encoded online or offline.
    pub encoding: Encoding,
    /// Its code.
    pub code: CodeLabel,
    /// What its user says about it.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub attributes: Attributes,
    /// The objects that share its bytes, if it is a pack, which has no name of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberLabel>,
}

/// What the label of a pack says of an object whose bytes are in it. Code and encoding are those of the pack. The ids of objects that
/// were written with the pack follow its own; those of objects that moved into it are smaller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberLabel {
    /// Its id, which is also its version.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its first byte in the pack.
    pub at: u64,
    /// Its length in bytes.
    pub size: u64,
    /// What its user says about it.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub attributes: Attributes,
    /// Seconds since 1970 when it became visible, if that is not the time of the pack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<u64>,
}

/// A code as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeLabel {
    /// Its name.
    pub name: String,
    /// Blocks of a stripe.
    pub n: u16,
    /// Data blocks of a stripe.
    pub k: u16,
    /// Sub-blocks of a block.
    pub w: u16,
    /// XXH3-128 of the generator, row by row: the name must still mean this matrix.
    pub generator: DigestBytes,
    /// The code's definition, if it is a registered code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Definition>,
}

impl CodeLabel {
    /// The label of a code; with `definition` if it is a registered one.
    pub fn of(code: &dyn Code, definition: Option<Definition>) -> Self {
        Self {
            name: code.name().to_owned(),
            n: code.n() as u16,
            k: code.k() as u16,
            w: code.w() as u16,
            generator: xxhash_rust::xxh3::xxh3_128(code.generator().as_slice()).to_be_bytes(),
            definition,
        }
    }
}

impl Label {
    /// The label as the store keeps it.
    pub fn pack(&self) -> Vec<u8> {
        // Plain data in memory always serializes.
        rmp_serde::to_vec_named(self).unwrap_or_default()
    }

    /// A label from a block's header.
    ///
    /// # Errors
    /// For bytes that are not a label: the reason, for people.
    pub fn unpack(bytes: &[u8]) -> Result<Self, String> {
        rmp_serde::from_slice(bytes)
            .map_err(|error| format!("expected a label, got {} bytes: {error}", bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_plan::LayoutKind;

    #[test]
    fn a_label_comes_back_and_fits_a_page() {
        let code = kintsu_code::parse("rs:n=14,k=10").unwrap();
        let label = Label {
            cluster: ClusterId([7; 16]),
            object: ObjectLabel {
                id: 1 << 40,
                name: "x".repeat(1024),
                size: Some(1 << 40),
                created: 1 << 31,
                encoding: Encoding::Online,
                code: CodeLabel::of(code.as_ref(), None),
                attributes: Attributes::default(),
                members: Vec::new(),
            },
            offset: 1 << 39,
            layout: Layout {
                kind: LayoutKind::Striped,
                block_bytes: 1 << 26,
                cell_bytes: 1 << 17,
                w: 1,
                data_bytes: 10 << 26,
            },
            homes: (0..14).map(|i| Some(NodeId(1000 + i))).collect(),
        };
        let bytes = label.pack();
        assert!(bytes.len() < 3000, "{}", bytes.len());
        assert_eq!(Label::unpack(&bytes).unwrap(), label);
        assert!(Label::unpack(&bytes[1..]).is_err() && Label::unpack(b"").is_err());
    }
}
