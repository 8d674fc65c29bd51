//! A linear code of Kintsu as a codec of HDFS: what a policy says of it, and what the codec jar is built from.
//!
//! HDFS tells a codec only its name and the numbers of blocks, so each code is a codec of its own. Its policy carries the
//! coefficients as options of the schema. The NameNode keeps them and sends them with each file, so that Kintsu knows the code
//! of a group from the group alone.
//!
//! The order of the blocks is HDFS's: its own readers take the first k blocks that they can have. So parities over many data
//! blocks come first, and local parities, which help only in their group, come last.
//!
//! Source: `ECPolicyLoader`, `CodecRegistry` and `StripeReader` of Hadoop 3.4.3.

use std::fmt::Write as _;
use std::sync::Arc;

use kintsu_code::{Code, CodeError, Definition, USER};
use kintsu_dag::{BlockIndex, Elements};

use crate::HdfsError;
use crate::group::MAX_BLOCKS;
use crate::policy::CELL_BYTES;
use crate::proto::names::{Schema, SchemaOption};

/// Options of a schema: the coefficients of the parity blocks, row after row in hex; the local repair groups; the distance.
const PARITY: &str = "parity";
const GROUPS: &str = "groups";
const DISTANCE: &str = "distance";

/// Where Hadoop finds the factories of coders, as a file of a jar.
pub const SERVICES: &str =
    "META-INF/services/org.apache.hadoop.io.erasurecode.rawcoder.RawErasureCoderFactory";

/// A code as HDFS knows it.
#[derive(Debug, Clone)]
pub struct Codec {
    /// The name of the codec: `azure-lrc-n16-k12-r6`.
    pub name: String,
    /// The code, with its blocks in HDFS's order.
    pub code: Arc<dyn Code>,
}

impl Codec {
    /// The codec of a code. Its local repairs stay; repair graphs of its own do not.
    ///
    /// # Errors
    /// `Unsupported` for codes with sub-blocks or too many blocks; `Code` for names that HDFS cannot have.
    pub fn of(code: &dyn Code) -> Result<Self, HdfsError> {
        let (n, k) = (code.n(), code.k());
        let unsupported = |expected: &str, got: String| {
            let (what, expected) = (code.name().to_owned(), expected.into());
            Err(HdfsError::Unsupported { what, expected, got })
        };
        if code.w() != 1 {
            return unsupported("a code without sub-blocks", format!("{} in each block", code.w()));
        }
        if n > MAX_BLOCKS || n == k {
            return unsupported("k + 1 to 16 blocks, as many as a block group has", n.to_string());
        }
        let generator = code.generator();
        let mut order: Vec<usize> = (0..n).collect();
        order[k..].sort_by_key(|i| std::cmp::Reverse(generator.row(*i).iter().filter(|c| **c != 0).count()));
        let place = |block: BlockIndex| order.iter().position(|i| *i == usize::from(block.0)).unwrap_or(0);
        let mut groups = code.groups();
        for block in groups.iter_mut().flatten() {
            *block = BlockIndex(place(*block) as u8);
        }
        let plain = code.name().strip_prefix(USER).unwrap_or(code.name());
        let name = plain.replace('=', "").replace([':', ','], "-");
        let rows = order.iter().map(|i| Elements(generator.row(*i).to_vec())).collect();
        let code = proved(&name, (n, k), rows, groups, code.distance())?;
        Ok(Self { name, code })
    }

    /// The code of a policy whose schema has the options of a codec; `None` for another schema.
    ///
    /// # Errors
    /// `Code` for options that do not hold, `Unsupported` for such that cannot be read.
    pub(crate) fn in_schema(schema: &Schema) -> Result<Option<Self>, HdfsError> {
        let option = |key: &str| schema.options.iter().find(|option| option.key == key).map(|o| &o.value[..]);
        let (Some(parity), Some(distance)) = (option(PARITY), option(DISTANCE)) else { return Ok(None) };
        let strange = |key: &str, expected: &str, got: &str| HdfsError::Unsupported {
            what: format!("option {key} of codec {:?}", schema.codec),
            expected: expected.into(),
            got: format!("{got:?}"),
        };
        let (k, m) = (schema.data as usize, schema.parity as usize);
        let n = k.saturating_add(m);
        if n > MAX_BLOCKS || parity.len() != 2 * k * m || !parity.is_ascii() {
            return Err(strange(
                PARITY,
                &format!("{k} x {m} coefficients in hex, at most 16 blocks"),
                parity,
            ));
        }
        let coefficient = |at: usize| u8::from_str_radix(&parity[2 * at..2 * at + 2], 16);
        let coefficients: Result<Vec<u8>, _> = (0..k * m).map(coefficient).collect();
        let coefficients = coefficients.map_err(|_| strange(PARITY, "hex digits", parity))?;
        let unit = |i: usize| Elements((0..k).map(|j| u8::from(i == j)).collect());
        let rows = coefficients.chunks(k.max(1)).map(|row| Elements(row.to_vec()));
        let rows = (0..k).map(unit).chain(rows).collect();
        let text = option(GROUPS).unwrap_or_default();
        let group = |text: &str| text.split(',').map(|i| i.parse().map(BlockIndex)).collect();
        let groups: Result<Vec<Vec<BlockIndex>>, _> = text.split_whitespace().map(group).collect();
        let groups = groups.map_err(|_| strange(GROUPS, "lists of block indices", text))?;
        let distance = distance.parse().map_err(|_| strange(DISTANCE, "a number", distance))?;
        let code = proved(&schema.codec, (n, k), rows, groups, distance)?;
        Ok(Some(Self { name: schema.codec.clone(), code }))
    }

    /// What a schema says of the code besides its name and numbers.
    pub(crate) fn options(&self) -> Vec<SchemaOption> {
        let list = |group: &Vec<BlockIndex>| {
            group.iter().map(|block| block.0.to_string()).collect::<Vec<_>>().join(",")
        };
        let groups: Vec<String> = self.code.groups().iter().map(list).collect();
        let values = [
            (PARITY, self.coefficients()),
            (GROUPS, groups.join(" ")),
            (DISTANCE, self.code.distance().to_string()),
        ];
        let some = values.into_iter().filter(|(_, value)| !value.is_empty());
        some.map(|(key, value)| SchemaOption { key: key.into(), value }).collect()
    }

    /// The coefficients of the parity blocks, row after row in hex.
    fn coefficients(&self) -> String {
        let (n, k) = (self.code.n(), self.code.k());
        let rows = (k..n).flat_map(|i| self.code.generator().row(i));
        rows.fold(String::new(), |mut text, c| {
            let _ = write!(text, "{c:02x}");
            text
        })
    }

    /// The name that HDFS gives to the policy.
    pub fn policy(&self) -> String {
        let (n, k) = (self.code.n(), self.code.k());
        format!("{}-{k}-{}-{}k", self.name.to_uppercase(), n - k, CELL_BYTES / 1024)
    }

    /// How many of the sets of `lost` blocks HDFS's own readers can read around, how many the code can, and how many there are.
    pub fn survives(&self, lost: usize) -> (usize, usize, usize) {
        let (n, k) = (self.code.n(), self.code.k());
        let sets = (0u32..1 << n).filter(|set| set.count_ones() as usize == lost);
        sets.fold((0, 0, 0), |(stock, code, all), set| {
            let (gone, there): (Vec<usize>, Vec<usize>) = (0..n).partition(|i| set >> i & 1 == 1);
            let without = |blocks: &[usize]| {
                self.code.recoverable(&blocks.iter().map(|i| BlockIndex(*i as u8)).collect::<Vec<_>>())
            };
            let unread = [&gone[..], there.get(k..).unwrap_or_default()].concat();
            (stock + usize::from(without(&unread)), code + usize::from(without(&gone)), all + 1)
        })
    }

    /// The Java class of the codec, the `number`th of a jar: its full name, and its source.
    pub fn java(&self, number: usize) -> (String, String) {
        let (n, k) = (self.code.n(), self.code.k());
        let source = format!(
            "package kintsu.hdfs.codec;\n\n/** {name}. */\npublic final class Code{number} extends kintsu.hdfs.CodecFactory {{\n  \
             public Code{number}() {{\n    super(\"{name}\", {k}, {m}, \"{coefficients}\");\n  }}\n}}\n",
            name = self.name,
            m = n - k,
            coefficients = self.coefficients(),
        );
        (format!("kintsu.hdfs.codec.Code{number}"), source)
    }
}

/// The file that `hdfs ec -addPolicies` takes, with a policy for each codec.
pub fn policies_xml(codecs: &[Codec]) -> String {
    let (mut schemas, mut policies) = (String::new(), String::new());
    for codec in codecs {
        let (name, n, k) = (&codec.name, codec.code.n(), codec.code.k());
        let options = codec.options().into_iter();
        let options: String = options.map(|o| format!("      <{0}>{1}</{0}>\n", o.key, o.value)).collect();
        let _ = write!(
            schemas,
            "    <schema id=\"{name}\">\n      <codec>{name}</codec>\n      <k>{k}</k>\n      <m>{}</m>\n{options}    </schema>\n",
            n - k
        );
        let _ = writeln!(
            policies,
            "    <policy><schema>{name}</schema><cellsize>{CELL_BYTES}</cellsize></policy>"
        );
    }
    format!(
        "<?xml version=\"1.0\"?>\n<configuration>\n  <layoutversion>1</layoutversion>\n  <schemas>\n{schemas}  </schemas>\n  \
         <policies>\n{policies}  </policies>\n</configuration>\n"
    )
}

/// The code of these data, proved once in a process.
fn proved(
    codec: &str,
    (n, k): (usize, usize),
    generator: Vec<Elements>,
    groups: Vec<Vec<BlockIndex>>,
    distance: usize,
) -> Result<Arc<dyn Code>, CodeError> {
    let name = format!("{USER}{codec}");
    let (place, encode, repairs) = (None, None, Vec::new());
    Definition { name, n, k, w: 1, generator, distance, groups, place, encode, repairs }.prove()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codec(name: &str) -> Codec {
        Codec::of(&*kintsu_code::parse(name).unwrap()).unwrap()
    }

    fn schema(codec: &Codec) -> Schema {
        let (n, k) = (codec.code.n() as u32, codec.code.k() as u32);
        Schema { codec: codec.name.clone(), data: k, parity: n - k, options: codec.options() }
    }

    #[test]
    fn a_policy_says_all_of_a_code() {
        for name in [
            "azure-lrc:n=16,k=12,r=6",
            "azure-lrc-plus1:n=11,k=6,r=3",
            "xorbas:n=16,k=10,r=5",
            "optimal-lrc:n=12,k=6,r=3",
            "rs:n=14,k=10",
        ] {
            let made = codec(name);
            let read = Codec::in_schema(&schema(&made)).unwrap().unwrap();
            assert_eq!(read.code.generator(), made.code.generator(), "{name}");
            assert_eq!((read.name, read.code.groups()), (made.name, made.code.groups()), "{name}");
            assert_eq!(read.code.distance(), kintsu_code::parse(name).unwrap().distance(), "{name}");
        }
    }

    #[test]
    fn global_parities_come_first_so_that_stock_readers_survive_more() {
        let lrc = codec("azure-lrc:n=16,k=12,r=6");
        assert_eq!(
            (lrc.name.as_str(), lrc.policy().as_str()),
            ("azure-lrc-n16-k12-r6", "AZURE-LRC-N16-K12-R6-12-4-1024k")
        );
        let local = |group: [u8; 7]| group.map(BlockIndex).to_vec();
        assert_eq!(lrc.code.groups(), [local([0, 1, 2, 3, 4, 5, 14]), local([6, 7, 8, 9, 10, 11, 15])]);
        assert_eq!((lrc.survives(1), lrc.survives(2)), ((16, 16, 16), (120, 120, 120)));
        let (stock, code, all) = lrc.survives(3);
        assert!(stock < code && code == all, "{stock} {code} {all}");
        let one = lrc.code.decode(&(1..16).map(BlockIndex).collect::<Vec<_>>(), &[BlockIndex(0)]).unwrap();
        assert_eq!(one.leaves().len(), 6);
    }

    #[test]
    fn what_hdfs_cannot_have_is_refused_in_words() {
        let refused = |name: &str| Codec::of(&*kintsu_code::parse(name).unwrap()).unwrap_err().to_string();
        assert!(refused("clay:n=14,k=10,d=13").contains("without sub-blocks"));
        assert!(refused("azure-lrc:n=18,k=12,r=6").contains("k + 1 to 16 blocks"));
        let good = schema(&codec("azure-lrc:n=8,k=4,r=2"));
        let with = |key: &str, value: &str| {
            let mut schema = good.clone();
            schema.options.iter_mut().find(|option| option.key == key).unwrap().value = value.into();
            Codec::in_schema(&schema).unwrap_err().to_string()
        };
        assert!(with(PARITY, "01").contains("option parity"));
        assert!(with(PARITY, &"é".repeat(16)).contains("option parity"));
        assert!(with(PARITY, &"0x".repeat(16)).contains("hex digits"));
        assert!(with(GROUPS, "0,1,x").contains("lists of block indices"));
        assert!(with(GROUPS, "0,1").contains("local repair group"));
        assert!(with(DISTANCE, "9").contains("distance"));
        assert!(Codec::in_schema(&Schema { options: Vec::new(), ..good }).unwrap().is_none());
    }

    #[test]
    fn policy_and_class_have_the_coefficients() {
        let codec = codec("azure-lrc:n=8,k=4,r=2");
        let (xml, (class, java)) = (policies_xml(std::slice::from_ref(&codec)), codec.java(3));
        assert!(xml.contains("<parity>0198022d014e04250101000000000101</parity>"), "{xml}");
        assert!(xml.contains("<groups>0,1,6 2,3,7</groups>"), "{xml}");
        assert_eq!(class, "kintsu.hdfs.codec.Code3");
        assert!(
            java.contains("super(\"azure-lrc-n8-k4-r2\", 4, 4, \"0198022d014e04250101000000000101\")"),
            "{java}"
        );
    }
}
