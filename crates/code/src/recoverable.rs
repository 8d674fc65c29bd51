//! Coefficients of three to six global parities with which an Azure-LRC is maximally recoverable: it decodes every
//! loss that any coefficients could decode, that is, one block of each local group and as many more blocks as
//! there are globals.
//!
//! A search found them. It chose the column of one data block after the other: every loss that the new block
//! completes excludes the columns on one affine hyperplane, and a column on none of these was drawn. For many
//! wider shapes the search found none within some seconds; this does not show that there are none. A table also
//! serves smaller shapes: omitted data blocks count as zero blocks that are never lost, and omitted globals as
//! always lost.

/// The rows of `globals` parities with which an Azure-LRC+1 has the largest distance that its groups allow, for
/// shapes where other coefficients do not reach it.
pub(crate) fn summed(k: usize, r: usize, globals: usize) -> Option<Vec<Vec<u8>>> {
    let all = |table: &&Table| table.rows.len() == globals && table.serves(k, r, globals);
    Some(SUMMED.iter().find(all)?.rows_for(k, r, globals))
}

/// Columns for `groups` groups of `r` data blocks each; the last group has the rest of `k`.
struct Table {
    groups: usize,
    r: usize,
    k: usize,
    /// One row for each global parity, k coefficients each.
    rows: &'static [&'static [u8]],
}

/// The rows of `globals` parities for k data blocks in groups of r, if a table has them.
pub(crate) fn globals(k: usize, r: usize, globals: usize) -> Option<Vec<Vec<u8>>> {
    Some(TABLES.iter().find(|table| table.serves(k, r, globals))?.rows_for(k, r, globals))
}

impl Table {
    fn serves(&self, k: usize, r: usize, globals: usize) -> bool {
        let groups = k.div_ceil(r);
        let last = |k: usize, r: usize| k - (groups - 1) * r;
        let fits = groups < self.groups || groups == self.groups && last(k, r) <= last(self.k, self.r);
        globals <= self.rows.len() && r <= self.r && fits
    }

    fn rows_for(&self, k: usize, r: usize, globals: usize) -> Vec<Vec<u8>> {
        let column = |j: usize| j / r * self.r + j % r;
        self.rows[..globals].iter().map(|row| (0..k).map(|j| row[column(j)]).collect()).collect()
    }
}

/// In the order in which they are searched; a test proves each.
static TABLES: &[Table] = &[
    Table {
        groups: 2,
        r: 8,
        k: 15,
        rows: &[
            b"\x01\xb6\xe4\x79\xcd\x2a\xc0\xbc\xcd\x24\x8f\x7a\xba\xbb\x36",
            b"\x01\xa3\xdb\x39\xa6\x67\xca\xc5\xcb\x40\x04\xff\x70\xd9\x2d",
            b"\x01\x02\x03\x05\x04\x2d\x1a\x20\x01\x02\x03\x04\x06\x21\x09",
        ],
    },
    Table {
        groups: 2,
        r: 7,
        k: 12,
        rows: &[
            b"\x01\x13\x18\x5e\xcc\xbd\x71\xe6\x32\xd9\x7d\x17",
            b"\x01\x7b\x94\xf6\x4a\xfd\xfe\x9c\xb7\xa2\xb8\x07",
            b"\x01\x34\x49\x4b\x82\xcd\x6a\xe0\x05\x4b\x55\x6c",
            b"\x01\x02\x03\x06\x60\xb1\x70\x01\x02\x04\x03\x4c",
        ],
    },
    Table {
        groups: 2,
        r: 6,
        k: 12,
        rows: &[
            b"\x01\x13\x18\x5e\xcc\xbd\xe6\x32\xd9\x7d\x17\xba",
            b"\x01\x7b\x94\xf6\x4a\xfd\x9c\xb7\xa2\xb8\x07\x0b",
            b"\x01\x34\x49\x4b\x82\xcd\xe0\x05\x4b\x55\x6c\x41",
            b"\x01\x02\x03\x06\x60\xb1\x01\x02\x04\x03\x4c\x86",
        ],
    },
    Table {
        groups: 2,
        r: 7,
        k: 10,
        rows: &[
            b"\x01\x27\xc3\x48\x92\x60\xae\x35\x50\x3f",
            b"\x01\x62\xb1\x16\x91\x78\x41\x9e\xef\xae",
            b"\x01\x1a\xcf\x61\xc1\xe5\x72\x2e\xa9\xb9",
            b"\x01\xcb\x28\xe4\x4c\x37\x74\x4f\x4c\x62",
            b"\x01\x02\x05\x0e\x4d\x40\xfb\x01\x03\x02",
        ],
    },
    Table {
        groups: 2,
        r: 5,
        k: 9,
        rows: &[
            b"\x01\x27\xc3\x48\xbe\x35\x50\x3f\x6b",
            b"\x01\x62\xb1\x16\xc4\x9e\xef\xae\x1a",
            b"\x01\x1a\xcf\x61\xd9\x2e\xa9\xb9\xe5",
            b"\x01\xcb\x28\xe4\xdd\x4f\x4c\x62\xc2",
            b"\x01\x02\x05\x0e\x3b\x01\x03\x02\x1f",
        ],
    },
    Table {
        groups: 2,
        r: 5,
        k: 8,
        rows: &[
            b"\x01\xbe\xae\x45\x7f\x1f\x67\x6c",
            b"\x01\x27\xce\x9b\x78\x69\x0a\xe8",
            b"\x01\x4e\x33\x87\xe3\xd9\xd8\x49",
            b"\x01\xb2\x10\x18\xdc\x86\x96\x4a",
            b"\x01\x07\x68\x19\xb5\x6e\xfe\xae",
            b"\x01\x02\x05\x0c\x6a\x01\x03\x05",
        ],
    },
    Table {
        groups: 2,
        r: 4,
        k: 8,
        rows: &[
            b"\x01\xbe\xae\x45\x1f\x67\x6c\x0f",
            b"\x01\x27\xce\x9b\x69\x0a\xe8\x9c",
            b"\x01\x4e\x33\x87\xd9\xd8\x49\x45",
            b"\x01\xb2\x10\x18\x86\x96\x4a\x90",
            b"\x01\x07\x68\x19\x6e\xfe\xae\x0a",
            b"\x01\x02\x05\x0c\x01\x03\x05\x5a",
        ],
    },
    Table {
        groups: 3,
        r: 6,
        k: 14,
        rows: &[
            b"\x01\x9c\x33\x92\xbd\xcd\xcd\x98\x20\xe0\xfe\x60\x35\x4e",
            b"\x01\xa1\xaf\xf0\xc0\xec\xcb\x5d\x54\x62\xef\xd2\x9e\xb7",
            b"\x01\x02\x03\x04\x09\x16\x01\x02\x03\x08\x1a\x80\x01\x02",
        ],
    },
    Table {
        groups: 3,
        r: 5,
        k: 14,
        rows: &[
            b"\x01\x9c\x33\x46\x18\xcd\x98\x20\x47\x3a\x35\x4e\xf6\x77",
            b"\x01\xa1\xaf\xc7\x21\xcb\x5d\x54\x25\x1b\x9e\xb7\xc6\x11",
            b"\x01\x02\x03\x07\x2a\x01\x02\x03\x15\x56\x01\x02\x04\x06",
        ],
    },
    Table {
        groups: 3,
        r: 5,
        k: 12,
        rows: &[
            b"\x01\x06\x27\x75\x81\xe6\xeb\x84\x2e\x5f\xa1\x5f",
            b"\x01\xc4\x66\x47\x05\x9c\x69\x03\x73\xe1\x65\x91",
            b"\x01\xf1\x3d\xea\x70\xe0\x14\x3f\x2d\x23\x7e\xe8",
            b"\x01\x02\x04\x18\x06\x01\x02\x14\x04\x85\x01\x03",
        ],
    },
    Table {
        groups: 3,
        r: 4,
        k: 12,
        rows: &[
            b"\x01\x06\x27\x4c\xe6\xeb\x84\x71\xa1\x5f\xd1\x82",
            b"\x01\xc4\x66\xe7\x9c\x69\x03\xc7\x65\x91\x61\x52",
            b"\x01\xf1\x3d\x03\xe0\x14\x3f\x63\x7e\xe8\x0a\x79",
            b"\x01\x02\x04\xab\x01\x02\x14\xb1\x01\x03\x45\xe6",
        ],
    },
    Table {
        groups: 3,
        r: 3,
        k: 9,
        rows: &[
            b"\x01\x8e\x5d\x35\x65\x3e\x08\x71\x1d",
            b"\x01\x74\x8d\x9e\xc5\xd2\xd3\x0e\x43",
            b"\x01\x87\x58\x2e\x0d\x3f\x22\x2f\xc5",
            b"\x01\xad\x23\x4f\xa4\x21\xb0\xf6\x01",
            b"\x01\x03\x0d\x01\x02\xa8\x01\x02\x61",
        ],
    },
    Table {
        groups: 4,
        r: 4,
        k: 13,
        rows: &[
            b"\x01\x6c\xcf\x0d\xcd\x17\xda\x1e\x35\x84\x99\xe6\x6f",
            b"\x01\x75\x6a\xc1\xcb\xed\xee\xb9\x9e\x22\x10\x44\xa6",
            b"\x01\x02\x03\x07\x01\x03\x02\x08\x01\x03\x02\x26\x01",
        ],
    },
    Table {
        groups: 4,
        r: 3,
        k: 12,
        rows: &[
            b"\x01\x28\xa4\xe6\x58\x82\xa1\x18\xf1\x27\x72\xfe",
            b"\x01\xbb\x2d\x9c\xfc\x67\x65\xab\xe5\x62\x86\x37",
            b"\x01\xcc\xaf\xe0\x3b\x4b\x7e\xfe\x02\x1a\x36\xec",
            b"\x01\x02\x12\x01\x04\x2c\x01\x05\x4f\x01\x02\x8b",
        ],
    },
    Table {
        groups: 5,
        r: 2,
        k: 10,
        rows: &[
            b"\x01\xc0\x35\x10\x08\x82\xb1\xc9\x2c\x9e",
            b"\x01\x0a\x9e\x65\xd3\x22\xec\x35\x61\xa9",
            b"\x01\xeb\x2e\x4c\x22\x03\xff\x68\x33\x6c",
            b"\x01\xb6\x4f\xc3\xb0\xbb\xb6\x52\x6c\xca",
            b"\x01\x02\x01\x06\x01\x02\x01\x9c\x01\x6d",
        ],
    },
    Table {
        groups: 6,
        r: 2,
        k: 11,
        rows: &[
            b"\x01\xc2\xcd\x88\x35\x05\x6f\xe0\x70\xc4\x9b",
            b"\x01\xeb\xcb\xa0\x9e\x06\xa6\x16\xcf\x1b\x62",
            b"\x01\x02\x01\x02\x01\x03\x01\x03\x01\x03\x02",
        ],
    },
];

/// Tables for [`summed`]. A search drew the column of one data block after the other, so that no `distance - 1` columns
/// of the check matrix depend on each other. With coefficients from a large field, no distance was larger.
static SUMMED: &[Table] = &[
    Table {
        groups: 5,
        r: 2,
        k: 10,
        rows: &[b"\x2f\xcc\x8f\xd8\xa0\x2a\x05\x5d\x24\x9a", b"\xbf\x31\x26\xc1\xdb\x9a\x69\xdf\x18\x11"],
    },
    Table {
        groups: 2,
        r: 5,
        k: 10,
        rows: &[
            b"\xf3\x38\xa3\x05\x80\xe4\x06\x9e\x1c\x24",
            b"\x72\x42\xb8\x65\x77\xc3\x32\x71\x12\x4a",
            b"\x40\x1e\x0d\xa5\xb5\xa4\x82\xaf\x86\xf4",
            b"\x96\xe8\x2f\xb2\xa8\xb1\x6b\x6a\x63\xd5",
            b"\x8b\x5f\x33\x15\x95\x52\xf9\x84\xef\x76",
        ],
    },
    Table {
        groups: 3,
        r: 4,
        k: 10,
        rows: &[
            b"\xa3\xae\x26\x13\x5e\x37\x70\x92\x5b\x7e",
            b"\xba\x19\x08\x05\x8c\xcb\x14\x7d\x7b\xa0",
            b"\xd9\x3f\x5c\xb1\x33\x4e\xae\x8d\xdd\x1f",
            b"\x56\x9f\x5c\x60\x99\x16\xb5\x64\x0e\x35",
            b"\x26\x66\x86\x36\xa6\x7c\x40\xc4\x52\xf5",
        ],
    },
    Table {
        groups: 2,
        r: 6,
        k: 11,
        rows: &[
            b"\xcd\x3c\x96\x21\x0d\xdf\x7a\x50\x5d\x80\x0a",
            b"\x16\xc8\x2f\x31\x33\x44\xc0\x8e\xbf\xb1\x54",
            b"\x48\x75\x7d\xc7\x5b\xd2\x27\xbf\x0c\xa6\x40",
            b"\x90\xd5\x61\xa2\xc7\x17\x0d\xec\x6c\x59\xfc",
            b"\x97\x2a\xbf\xf5\x98\x59\x69\xe5\x40\x65\x51",
            b"\x60\x10\x86\x36\x7b\x95\xd9\x46\x8e\xf3\x57",
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::{TABLES, Table};
    use kintsu_algebra::{inv, mul};

    /// Reduces `column` by a basis whose vectors each have a one where the vectors before have zeros. Scales the
    /// rest so that its first nonzero element is one, and returns the position of that element.
    fn reduce(basis: &[(usize, Vec<u8>)], column: &mut [u8]) -> Option<usize> {
        for (pivot, vector) in basis {
            let factor = column[*pivot];
            column.iter_mut().zip(vector).for_each(|(c, &v)| *c ^= mul(factor, v));
        }
        let pivot = column.iter().position(|&c| c != 0)?;
        let scale = inv(column[pivot]).unwrap();
        column.iter_mut().for_each(|c| *c = mul(*c, scale));
        Some(pivot)
    }

    /// Tries every largest loss that extends a given one with blocks from `from` on: `left` more blocks beyond one
    /// for each group. Returns the number tried.
    fn losses(
        blocks: &[(Option<usize>, Vec<u8>)],
        from: usize,
        basis: &mut Vec<(usize, Vec<u8>)>,
        hit: &mut [bool],
        left: usize,
    ) -> usize {
        let mut tried = usize::from(left == 0 && hit.iter().all(|&hit| hit));
        for (i, (group, column)) in blocks.iter().enumerate().skip(from) {
            let first = group.filter(|&group| !hit[group]);
            if first.is_none() && left == 0 {
                continue;
            }
            let mut column = column.clone();
            let pivot = reduce(basis, &mut column).expect("the loss is decoded");
            basis.push((pivot, column));
            first.into_iter().for_each(|group| hit[group] = true);
            tried += losses(blocks, i + 1, basis, hit, left - usize::from(first.is_none()));
            first.into_iter().for_each(|group| hit[group] = false);
            basis.pop();
        }
        tried
    }

    /// Blocks with their group and their column of the parity check matrix.
    fn blocks(table: &Table) -> Vec<(Option<usize>, Vec<u8>)> {
        let unit = |at: usize| (0..table.groups + table.rows.len()).map(move |i| u8::from(i == at));
        let data = (0..table.k).map(|j| {
            let globals = table.rows.iter().map(|row| row[j]);
            (Some(j / table.r), unit(j / table.r).take(table.groups).chain(globals).collect())
        });
        let locals = (0..table.groups).map(|group| (Some(group), unit(group).collect()));
        let globals = (0..table.rows.len()).map(|i| (None, unit(table.groups + i).collect()));
        data.chain(locals).chain(globals).collect()
    }

    #[test]
    fn every_table_decodes_all_that_can_be_decoded() {
        let tried = |table: &Table| {
            assert!(table.rows.iter().all(|row| row.len() == table.k));
            losses(&blocks(table), 0, &mut Vec::new(), &mut vec![false; table.groups][..], table.rows.len())
        };
        let counts: Vec<usize> = TABLES.iter().map(tried).collect();
        // The C(20,5) = 15504 losses of the first table minus those with no block of one of the groups.
        assert_eq!(counts[0], 14_250);
        assert!(counts.iter().all(|&count| count > 10_000), "{counts:?}");
    }

    #[test]
    fn a_coefficient_that_is_wrong_is_found() {
        let rows: [&[u8]; 3] = [b"\x01\x01\x01\x01", b"\x01\x02\x03\x04", b"\x01\x04\x05\x10"];
        let table = Table { groups: 2, r: 2, k: 4, rows: rows.to_vec().leak() };
        let blocks = blocks(&table);
        let tried = std::panic::catch_unwind(|| losses(&blocks, 0, &mut Vec::new(), &mut [false; 2], 3));
        assert!(tried.is_err(), "both blocks of each group have equal sums in the first row");
    }
}
