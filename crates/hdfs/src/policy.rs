//! Erasure-coding policies of HDFS as codes of Kintsu.

use std::sync::Arc;

use kintsu_code::Code;

use crate::HdfsError;
use crate::codec::Codec;
use crate::proto::names::Policy;

/// The policies that HDFS has built in, by id: they come over the wire without their schema.
/// Source: `SystemErasureCodingPolicies` of Hadoop 3; a test on a real NameNode compares them.
const BUILT_IN: [(u32, &str, &str, u32, u32); 5] = [
    (1, "RS-6-3-1024k", "rs", 6, 3),
    (2, "RS-3-2-1024k", "rs", 3, 2),
    (3, "RS-LEGACY-6-3-1024k", "rs-legacy", 6, 3),
    (4, "XOR-2-1-1024k", "xor", 2, 1),
    (5, "RS-10-4-1024k", "rs", 10, 4),
];

/// Cell of the built-in policies, and of those for Kintsu's codecs.
pub(crate) const CELL_BYTES: u32 = 1 << 20;

/// A policy whose code is known.
#[derive(Debug, Clone)]
pub struct EcPolicy {
    /// Its name in HDFS.
    pub name: String,
    /// The same code here.
    pub code: Arc<dyn Code>,
    /// Bytes that go to one block before the next one gets some.
    pub cell_bytes: u32,
}

impl EcPolicy {
    /// The code of a policy: `rs` is the Cauchy matrix, `xor` one parity with coefficients of one; Kintsu's codecs say it in
    /// the options of their schema.
    ///
    /// # Errors
    /// `Unsupported` for other codecs and unknown policies; `Code` for shapes that no code has, and for options that do not
    /// hold.
    pub fn of(policy: &Policy) -> Result<Self, HdfsError> {
        let built_in = BUILT_IN.iter().find(|row| row.0 == policy.id);
        let (name, codec, data, parity, cell_bytes) = match (&policy.schema, built_in) {
            (Some(s), _) => {
                let name = policy.name.clone().unwrap_or_else(|| format!("policy {}", policy.id));
                (name, s.codec.as_str(), s.data, s.parity, policy.cell_bytes.unwrap_or(CELL_BYTES))
            }
            (None, Some(&(_, name, codec, data, parity))) => {
                (name.to_owned(), codec, data, parity, CELL_BYTES)
            }
            (None, None) => return Err(unsupported(&format!("id {}", policy.id), "one without a schema")),
        };
        let n = data.saturating_add(parity);
        let own = policy.schema.as_ref().map_or(Ok(None), Codec::in_schema)?;
        let code = match (own, codec) {
            (Some(own), _) => own.code,
            (None, "rs") => kintsu_code::parse(&format!("rs:n={n},k={data}"))?,
            // Its rows are powers of 1, 2, 4, ...: the first has only ones.
            (None, "xor") if parity == 1 => kintsu_code::parse(&format!("rs:n={n},k={data},matrix=isal"))?,
            (None, other) => return Err(unsupported(&name, &format!("codec {other:?}"))),
        };
        if cell_bytes == 0 {
            return Err(unsupported(&name, "a cell of 0 bytes"));
        }
        Ok(Self { name, code, cell_bytes })
    }
}

fn unsupported(name: &str, got: &str) -> HdfsError {
    HdfsError::Unsupported {
        what: format!("erasure-coding policy {name}"),
        expected: "codec rs, xor or one of kintsu hdfs codec".into(),
        got: got.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::names::Schema;

    fn policy(id: u32, schema: Option<(&str, u32, u32)>) -> Policy {
        let options = Vec::new();
        let schema =
            schema.map(|(codec, data, parity)| Schema { codec: codec.into(), data, parity, options });
        Policy { name: None, schema, cell_bytes: Some(4096), id }
    }

    #[test]
    fn xor_adds_the_data_and_rs_is_cauchy() {
        let xor = EcPolicy::of(&policy(4, None)).unwrap();
        assert_eq!((xor.code.n(), xor.code.generator().row(2)), (3, &[1, 1][..]));
        let rs = EcPolicy::of(&policy(1, None)).unwrap();
        assert_eq!(rs.code.generator().row(6), [0x7a, 0xba, 0x47, 0xa7, 0x8e, 0xf4]);
        let own = EcPolicy::of(&policy(65, Some(("rs", 4, 2)))).unwrap();
        assert_eq!((own.code.name(), own.cell_bytes), ("rs:n=6,k=4", 4096));
    }

    #[test]
    fn what_is_not_known_is_named() {
        let legacy = EcPolicy::of(&policy(3, None)).unwrap_err().to_string();
        assert!(legacy.contains("RS-LEGACY-6-3-1024k") && legacy.contains("rs-legacy"), "{legacy}");
        assert!(EcPolicy::of(&policy(99, None)).unwrap_err().to_string().contains("id 99"));
        assert!(EcPolicy::of(&policy(70, Some(("clay", 4, 2)))).is_err());
        assert!(EcPolicy::of(&policy(70, Some(("rs", 0, 2)))).is_err());
        assert!(EcPolicy::of(&policy(70, Some(("rs", u32::MAX, 2)))).is_err());
    }
}
