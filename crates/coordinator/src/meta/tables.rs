//! The tables of the metadata store: names, keys and values.
//!
//! The byte layout is described in `docs/format.md`, "Metadata". Keys are ordered numbers and names, so that every
//! listing is a range scan. Counts come from `len()` and from the two small tables of counters, never from a scan.

use redb::{Key, TableDefinition, Value};

use crate::error::Result;

/// Object name -> [`ObjectRecord`](super::ObjectRecord).
pub const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");
/// Object id -> its name.
pub const NAMES: TableDefinition<u64, &str> = TableDefinition::new("names");
/// Pack id -> [`PackRecord`](super::PackRecord).
pub const PACKS: TableDefinition<u64, &[u8]> = TableDefinition::new("packs");
/// Object or pack whose stripe is loose (`loose.rs`).
pub const LOOSE: TableDefinition<u64, ()> = TableDefinition::new("loose");
/// Stripe id -> [`StripeRecord`](super::StripeRecord).
pub const STRIPES: TableDefinition<u64, &[u8]> = TableDefinition::new("stripes");
/// (node, stripe) -> the index of the block of the stripe whose home is the node. There is at most one.
pub const BY_NODE: TableDefinition<(u32, u64), u8> = TableDefinition::new("by_node");
/// (stripe, index) of a block that cannot be read at its home -> the reason, one byte.
pub const LOST: TableDefinition<(u64, u8), u8> = TableDefinition::new("lost");
/// Put id -> [`PendingPut`](super::PendingPut).
pub const PUTS: TableDefinition<u64, &[u8]> = TableDefinition::new("puts");
/// Stripe id -> [`PendingStripe`](super::PendingStripe) of a put under way.
pub const PUT_STRIPES: TableDefinition<u64, &[u8]> = TableDefinition::new("put_stripes");
/// (node, stripe, index, generation) of a block file that nobody needs.
pub const GARBAGE: TableDefinition<(u32, u64, u8, u32), ()> = TableDefinition::new("garbage");
/// Number -> id of an object that is gone for good.
pub const TOMBSTONES: TableDefinition<u64, u64> = TableDefinition::new("graves");
/// Node id -> [`NodeRecord`](super::NodeRecord).
pub const NODES: TableDefinition<u32, &[u8]> = TableDefinition::new("nodes");
/// Node id -> (blocks placed on it, those of them that are lost).
pub const TALLY: TableDefinition<u32, (u64, u64)> = TableDefinition::new("tally");
/// Code key -> [`CodeRecord`](super::CodeRecord).
pub const CODES: TableDefinition<u16, &[u8]> = TableDefinition::new("codes");
/// Code name -> code key.
pub const CODE_KEYS: TableDefinition<&str, u16> = TableDefinition::new("code_keys");
/// Code key of a registered code -> [`Definition`](kintsu_code::Definition).
pub const DEFINITIONS: TableDefinition<u16, &[u8]> = TableDefinition::new("definitions");
/// What the cluster was told about itself, by name: `rates` -> [`Rates`](kintsu_plan::Rates).
pub const SETTINGS: TableDefinition<&str, &[u8]> = TableDefinition::new("settings");
/// Start of the coordinator -> (a random number, transactions committed before it).
pub const BOOTS: TableDefinition<u64, (u64, u64)> = TableDefinition::new("boots");
/// (object, stripe) -> the found blocks of a stripe that the metadata do not know, while they are rebuilt from
/// blocks.
pub const FOUND: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("found");
/// Volume name -> [`VolumeRecord`](super::VolumeRecord).
pub const VOLUMES: TableDefinition<&str, &[u8]> = TableDefinition::new("volumes");
/// Volume id -> its name; empty if it was removed.
pub const VOLUME_NAMES: TableDefinition<u64, &str> = TableDefinition::new("volume_names");
/// (volume, position of a stripe in it) -> [`StripeLogs`](super::StripeLogs).
pub const VOLUME_STRIPES: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("volume_stripes");
/// Stripe that was dropped with the snapshots that had it, though their volume is there: what nodes logged for it is not needed.
pub const DROPPED: TableDefinition<u64, ()> = TableDefinition::new("dropped_stripes");
/// Counters by name: see the constants below.
pub const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");

/// An operation on each table.
pub trait Visit {
    /// Handles one table.
    ///
    /// # Errors
    /// Those of the operation.
    fn table<K, V>(&mut self, table: TableDefinition<'static, K, V>) -> Result<()>
    where
        K: Key + 'static,
        V: Value + 'static;
}

/// Visits the tables that a copy of the metadata contains: all except `by_node` and `tally`, which are derived
/// from the stripes, and `found`, which is cleared at each start. A test checks that every table is either copied
/// or excluded.
///
/// # Errors
/// Those of the visit.
pub fn copied(visit: &mut impl Visit) -> Result<()> {
    // Codes come before the rows that use them, for people who read a copy.
    visit.table(COUNTERS)?;
    visit.table(SETTINGS)?;
    visit.table(NODES)?;
    visit.table(CODES)?;
    visit.table(CODE_KEYS)?;
    visit.table(DEFINITIONS)?;
    visit.table(OBJECTS)?;
    visit.table(NAMES)?;
    visit.table(PACKS)?;
    visit.table(LOOSE)?;
    visit.table(STRIPES)?;
    visit.table(LOST)?;
    visit.table(PUTS)?;
    visit.table(PUT_STRIPES)?;
    visit.table(GARBAGE)?;
    visit.table(TOMBSTONES)?;
    visit.table(VOLUMES)?;
    visit.table(VOLUME_NAMES)?;
    visit.table(VOLUME_STRIPES)?;
    visit.table(DROPPED)?;
    visit.table(BOOTS)
}

/// Version of this layout. Rows of older versions are valid in it, except puts under way and packs, which are converted when
/// the store is opened.
pub const VERSION: u64 = 7;
/// The oldest version that can be read.
pub const OLDEST_VERSION: u64 = 1;
/// Counter: the layout's version.
pub const COUNT_VERSION: &str = "version";
/// Counter: next put and object id.
pub const COUNT_PUT: &str = "next_put";
/// Counter: next stripe id.
pub const COUNT_STRIPE: &str = "next_stripe";
/// Counter: next node id.
pub const COUNT_NODE: &str = "next_node";
/// Counter: next code key. In stores from before this counter existed it may be less than the keys in use.
pub const COUNT_CODE: &str = "next_code";
/// Counter: next number of an object that is gone.
pub const COUNT_TOMBSTONE: &str = "next_grave";
/// Counter: number of the last object that went and left its bytes in a pack.
pub const COUNT_LEFT_BEHIND: &str = "left_behind";
/// Counter: starts of the coordinator.
pub const COUNT_BOOT: &str = "boots";
/// Counter: number of the last copy of the metadata that an agent took.
pub const COUNT_COPY: &str = "copy";
/// Counter: when that copy was taken, in seconds since 1970.
pub const COUNT_COPY_TIME: &str = "copy_time";
/// Counter: bytes of all visible objects.
pub const COUNT_BYTES: &str = "object_bytes";
/// Counter: stripes of visible objects that have no parity yet.
pub const COUNT_PLAIN: &str = "plain_stripes";
/// Counter: transactions committed.
pub const COUNT_HISTORY: &str = "history";
