//! Converts puts under way that version 2 of the layout recorded in another way.

use std::collections::BTreeMap;

use kintsu_wire::message::{Attributes, Encoding};
use redb::ReadableTable;
use serde::{Deserialize, Serialize};

use super::record::{self, Fence, PendingPut, PendingStripe};
use super::write::Tables;
use crate::error::Result;

/// A put as version 2 kept it: one row with all its stripes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Put {
    /// As in [`PendingPut`].
    name: String,
    /// As in [`PendingPut`].
    size: u64,
    /// As in [`PendingPut`].
    code: u16,
    /// As in [`PendingPut`].
    encoding: Encoding,
    /// As in [`PendingPut`].
    replace: bool,
    /// Its stripes, in order.
    stripes: Vec<PendingStripe>,
}

/// Converts the puts of version 2: each stripe gets a row of its own.
pub(super) fn take_over(t: &mut Tables<'_>) -> Result<()> {
    let mut old = Vec::new();
    for row in t.puts.iter()? {
        let (id, row) = row?;
        // A row of the present version has no field `stripes`, so it does not decode as a row of version 2.
        if let Ok(put) = record::unpack::<Put>("put", row.value()) {
            old.push((id.value(), put));
        }
    }
    for (id, old) in old {
        let Put { name, size, code, encoding, replace, stripes } = old;
        let (runs, mut fences) = (Vec::new(), BTreeMap::new());
        fences.extend(
            stripes.iter().flat_map(|s| s.homes.iter().flatten()).map(|&node| (node, Fence::UNKNOWN)),
        );
        let (size, attributes) = (Some(size), Attributes::default());
        let (streamed, division) = (false, None);
        let mut put = PendingPut {
            name,
            size,
            code,
            encoding,
            replace,
            streamed,
            volume: None,
            attributes,
            division,
            runs,
            members: Vec::new(),
            fences,
        };
        for stripe in stripes {
            put.push(stripe.id);
            t.set_pending(&PendingStripe { put: id, ..stripe })?;
        }
        t.set_put(id, &put)?;
    }
    Ok(())
}
