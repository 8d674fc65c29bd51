//! What an operator should know of an HDFS with which everything works: it is said once, and is no error.

use std::collections::BTreeSet;

use crate::proto::names::DatanodeInfo;
use crate::status::name;

/// The major release of Hadoop that Kintsu was written for and is tested with.
const MAJOR: &str = "3";

/// Where Hadoop puts DataNodes whose rack nobody tells it.
const DEFAULT_RACK: &str = "/default-rack";

/// That Kintsu was not tried with this release of Hadoop.
pub(crate) fn release(release: &str) -> Option<String> {
    let known = release.split('.').next() == Some(MAJOR);
    (!known).then(|| {
        format!(
            "the NameNode is of Hadoop {release:?}, and Kintsu was only tried with Hadoop {MAJOR}: try it on a test cluster of \
             this release before you rely on it"
        )
    })
}

/// That missing blocks may be on these DataNodes.
pub(crate) fn maintenance(nodes: &[DatanodeInfo]) -> Option<String> {
    let names = nodes.iter().map(name).collect::<Vec<_>>().join(", ");
    (!nodes.is_empty()).then(|| {
        format!(
            "{} DataNodes are in maintenance ({names}), of which HDFS lists no blocks: what is missing may be there, and is not lost then",
            nodes.len()
        )
    })
}

/// That racks do not count, because the NameNode knows none of any of these DataNodes. A DataNode may be listed several times.
pub(crate) fn racks<'a>(datanodes: impl IntoIterator<Item = &'a DatanodeInfo>) -> Option<String> {
    let mut all = BTreeSet::new();
    for datanode in datanodes {
        if datanode.location.as_deref() != Some(DEFAULT_RACK) {
            return None;
        }
        all.insert((&datanode.id.ip, datanode.id.transfer_port));
    }
    (all.len() > 1).then(|| {
        format!(
            "all {} DataNodes that were listed are in {DEFAULT_RACK}, so racks do not count: if there are several, HDFS needs a \
             rack script (net.topology.script.file.name)",
            all.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::names::DatanodeId;

    #[test]
    fn releases_of_hadoop_3_are_known_and_no_others() {
        for known in ["3.4.3", "3.5.0", "3.1.1.7.1.7.0-551", "3.3.6-amzn-0"] {
            assert_eq!(release(known), None, "{known}");
        }
        for other in ["2.10.2", "4.0.0-SNAPSHOT", "30.1", ""] {
            assert!(release(other).unwrap().contains(&format!("of Hadoop {other:?}")), "{other}");
        }
    }

    #[test]
    fn racks_do_not_count_where_all_datanodes_are_in_the_default_one() {
        let datanode = |port, location: Option<&str>| {
            let id = DatanodeId { ip: "10.0.0.1".into(), transfer_port: port, ..DatanodeId::default() };
            DatanodeInfo { id, location: location.map(str::to_owned), ..DatanodeInfo::default() }
        };
        let unknown = Some(DEFAULT_RACK);
        let note = racks(&[datanode(1, unknown), datanode(2, unknown), datanode(2, unknown)]).unwrap();
        assert!(note.contains("all 2 DataNodes") && note.contains("rack script"), "{note}");
        for known in [
            &[datanode(1, unknown), datanode(2, Some("/a"))][..],
            &[datanode(1, Some("/a")), datanode(2, Some("/a"))],
            &[datanode(1, unknown), datanode(1, unknown)],
            &[datanode(1, None), datanode(2, None)],
            &[],
        ] {
            assert_eq!(racks(known), None, "{known:?}");
        }
    }
}
