//! The file that describes a lab, in TOML; `docs/examples/lab-*.toml` show every key.

use std::collections::BTreeMap;

use kintsu_dag::RackId;
use serde::Deserialize;

use crate::error::{LabError, Result};
use crate::quantity::{Rate, bits_of, duration, quoted, size};
use crate::spec::{Change, NodeSpec, Rated, Shape, Spec};

const UNLIMITED: &str = "unlimited";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    nodes: u32,
    #[serde(default)]
    racks: Racks,
    #[serde(default)]
    links: LinkSection,
    pairs: Option<Pairs>,
    #[serde(default)]
    change: Vec<ChangeEntry>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "racks: expected a number of racks, or the rack of each node")]
enum Racks {
    Count(u32),
    OfNodes(Vec<u32>),
}

impl Default for Racks {
    fn default() -> Self {
        Self::Count(1)
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct LinkSection {
    node: Option<LinkEntry>,
    rack: Option<LinkEntry>,
    #[serde(default)]
    nodes: BTreeMap<String, LinkEntry>,
    #[serde(default)]
    racks: BTreeMap<String, LinkEntry>,
    burst: Option<String>,
    latency: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "link: expected a rate such as \"500Mb/s\", or { up = ..., down = ... }")]
enum LinkEntry {
    Both(String),
    Each(Directions),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Directions {
    up: Option<String>,
    down: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pairs {
    groups: Option<Vec<usize>>,
    by: Option<String>,
    unit: Option<String>,
    rates: Vec<Vec<Cell>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "rates of pairs: expected numbers of `unit`, or rates such as \"50Mb/s\"")]
enum Cell {
    Number(f64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeEntry {
    at: String,
    link: String,
    rate: String,
}

/// The lab that a file describes, checked.
pub fn parse(text: &str) -> Result<Spec> {
    let file: File = toml::from_str(text)
        .map_err(|e| LabError::invalid("topology file", "a file like docs/examples/lab-racks.toml", e))?;
    let racks = match file.racks {
        Racks::Count(count) if !(1..=file.nodes.max(1)).contains(&count) => {
            return Err(LabError::invalid("racks", "1 or more, every rack with a node", count));
        }
        Racks::Count(count) => (0..file.nodes).map(|node| node % count).collect(),
        Racks::OfNodes(racks) if racks.len() == file.nodes as usize => racks,
        Racks::OfNodes(racks) => {
            let expected = format!("{} racks, one for each node", file.nodes);
            return Err(LabError::invalid("racks", expected, racks.len()));
        }
    };
    let mut spec = Spec::in_racks(&racks, None);
    links(&mut spec, &file.links)?;
    if let Some(pairs) = &file.pairs {
        spec = pair_rates(spec, pairs)?;
    }
    for entry in &file.change {
        spec.changes.push(Change {
            at: duration("time of a change", &entry.at)?,
            link: entry.link.parse()?,
            rate: rate(&entry.rate)?,
        });
    }
    spec.check()?;
    Ok(spec)
}

fn links(spec: &mut Spec, links: &LinkSection) -> Result<()> {
    for NodeSpec { link, .. } in &mut spec.nodes {
        apply(link, links.node.as_ref())?;
    }
    for link in &mut spec.racks {
        apply(link, links.rack.as_ref())?;
    }
    for (key, entry) in &links.nodes {
        let nodes = spec.nodes.len();
        let node = key.parse().ok().and_then(|id: usize| spec.nodes.get_mut(id));
        let node = node.ok_or_else(|| no_such("links.nodes", nodes, key))?;
        apply(&mut node.link, Some(entry))?;
    }
    for (key, entry) in &links.racks {
        let racks = spec.racks.len();
        let link = key.parse().ok().and_then(|id: usize| spec.racks.get_mut(id));
        apply(link.ok_or_else(|| no_such("links.racks", racks, key))?, Some(entry))?;
    }
    let given = Shape::default();
    spec.shape = Shape {
        burst: links.burst.as_deref().map(|text| size("burst", text)).transpose()?,
        latency: links.latency.as_deref().map_or(Ok(given.latency), |text| duration("latency", text))?,
    };
    Ok(())
}

fn no_such(what: &str, count: usize, key: &str) -> LabError {
    LabError::invalid(what, format!("a number below {count}"), quoted(key))
}

/// An entry replaces the rate of each direction that it names.
fn apply(link: &mut Rated, entry: Option<&LinkEntry>) -> Result<()> {
    let (up, down) = match entry {
        None => return Ok(()),
        Some(LinkEntry::Both(both)) => (Some(both), Some(both)),
        Some(LinkEntry::Each(each)) => (each.up.as_ref(), each.down.as_ref()),
    };
    if let Some(up) = up {
        link.up = rate(up)?;
    }
    if let Some(down) = down {
        link.down = rate(down)?;
    }
    Ok(())
}

fn rate(text: &str) -> Result<Option<Rate>> {
    if text == UNLIMITED { Ok(None) } else { text.parse().map(Some) }
}

fn pair_rates(spec: Spec, pairs: &Pairs) -> Result<Spec> {
    let groups: Vec<usize> = match (&pairs.groups, pairs.by.as_deref()) {
        (Some(groups), None) => groups.clone(),
        (None, None | Some("rack")) => spec.nodes.iter().map(|node| rack_index(node.rack)).collect(),
        (None, Some("node")) => (0..spec.nodes.len()).collect(),
        (Some(_), Some(_)) => {
            return Err(LabError::invalid("pairs", "either `groups` or `by`", "both"));
        }
        (None, Some(by)) => {
            return Err(LabError::invalid("pairs.by", "\"rack\" or \"node\"", quoted(by)));
        }
    };
    let unit = pairs.unit.as_deref().unwrap_or("Mb/s");
    let unit = bits_of(unit).ok_or_else(|| LabError::invalid("pairs.unit", "\"Mb/s\"", quoted(unit)))?;
    let cell = |cell: &Cell| match cell {
        Cell::Number(number) => Rate::bits(number * unit).map(Some),
        Cell::Text(text) => rate(text),
    };
    let rows = pairs.rates.iter().map(|row| row.iter().map(cell).collect());
    let rates: Vec<Vec<Option<Rate>>> = rows.collect::<Result<_>>()?;
    spec.with_pair_rates(&groups, &rates)
}

fn rack_index(rack: RackId) -> usize {
    rack.0 as usize
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kintsu_dag::NodeId;

    use kintsu_plan::Link;

    use super::*;

    #[test]
    fn a_file_says_what_each_link_carries() {
        let spec = parse(
            r#"
            nodes = 4
            racks = [0, 0, 1, 1]
            [links]
            node = "500Mb/s"
            rack = { up = "1Gb/s", down = "unlimited" }
            nodes.3 = { up = "50Mb/s" }
            racks.1 = "2Gb/s"
            burst = "128KiB"
            latency = "50ms"
            [pairs]
            unit = "Mb/s"
            rates = [["unlimited", 50.2], [100, "1Gb/s"]]
            [[change]]
            at = "1500ms"
            link = "node 3 up"
            rate = "unlimited"
            "#,
        )
        .unwrap();
        let mbps = |n| Some(Rate::mbps(n).unwrap());
        assert_eq!(spec.nodes[0], NodeSpec { rack: RackId(0), link: mbps(500.0).into() });
        assert_eq!(spec.nodes[3].link, Rated { up: mbps(50.0), down: mbps(500.0) });
        assert_eq!(spec.racks, [Rated { up: mbps(1000.0), down: None }, mbps(2000.0).into()]);
        assert_eq!(spec.pairs.get(&(NodeId(0), NodeId(1))), None);
        assert_eq!(spec.pairs.get(&(NodeId(1), NodeId(2))).copied(), mbps(50.2));
        assert_eq!(spec.pairs.get(&(NodeId(2), NodeId(3))).copied(), mbps(1000.0));
        assert_eq!(spec.shape, Shape { burst: Some(131072), latency: Duration::from_millis(50) });
        let change = Change { at: Duration::from_millis(1500), link: Link::NodeUp(NodeId(3)), rate: None };
        assert_eq!(spec.changes, [change]);
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (text, expected) in [
            ("", "missing field `nodes`"),
            ("nodes = 2\nfrobs = 1", "unknown field `frobs`"),
            ("nodes = 0", "1 to 1000"),
            ("nodes = 2\nracks = 0", "1 or more"),
            ("nodes = 2\nracks = 3", "every rack with a node"),
            ("nodes = 2\nracks = [0]", "one for each node"),
            ("nodes = 2\nracks = 'two'", "expected a number of racks"),
            ("nodes = 2\nlinks.node = '5'", "a number and b/s"),
            ("nodes = 2\nlinks.node = 5", "expected a rate such as"),
            ("nodes = 2\nlinks.nodes.2 = '5Mb/s'", "a number below 2"),
            ("nodes = 2\nlinks.racks.x = '5Mb/s'", "a number below 1"),
            ("nodes = 2\nlinks.burst = '5 parsecs'", "a size such as"),
            ("nodes = 2\npairs.rates = [[1, 2], [3, 4]]\npairs.by = 'moon'", "\"rack\" or \"node\""),
            ("nodes = 2\npairs.rates = [[1]]\npairs.by = 'node'", "square matrix"),
            ("nodes = 2\npairs.rates = [[1]]\npairs.by = 'node'\npairs.groups = [0, 0]", "either"),
            ("nodes = 2\npairs.rates = [[1]]\npairs.unit = 'm'", "Mb/s"),
            ("nodes = 2\n[[change]]\nat = '3s'\nlink = 'node 5 up'\nrate = '1Mb/s'", "below 2"),
            ("nodes = 2\n[[change]]\nat = 'soon'\nlink = 'node 0 up'\nrate = '1Mb/s'", "a duration"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_examples_are_sound() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with("lab-") && name.ends_with(".toml") {
                let spec = parse(&std::fs::read_to_string(&path).unwrap());
                spec.unwrap_or_else(|e| panic!("{name}: {e}"));
                seen += 1;
            }
        }
        assert!(seen >= 4, "{seen} examples");
    }
}
