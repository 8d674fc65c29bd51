//! `kintsu rates`: the rates of links, from a file to the cluster and back.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::process::ExitCode;

use anyhow::Context as _;
use kintsu_dag::{NodeId, RackId};
use kintsu_lab::Rate;
use kintsu_plan::Rates;
use kintsu_wire::message::{KnownRates, LinkEnd, RateSource, Way};
use serde::Deserialize;
use serde_json::json;

use super::Context;
use crate::{cli, output, units};

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// For every node that is not named.
    default: Option<Rate>,
    #[serde(default)]
    nodes: BTreeMap<String, Ends>,
    #[serde(default)]
    racks: BTreeMap<String, Ends>,
    #[serde(default)]
    pairs: BTreeMap<String, Rate>,
}

/// One rate for both directions, or one for each.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "expected a rate such as \"1Gb/s\", or a table with `up`, `down` or both")]
enum Ends {
    Both(Rate),
    Each(Each),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Each {
    up: Option<Rate>,
    down: Option<Rate>,
}

impl Ends {
    fn split(self) -> (Option<NonZeroU64>, Option<NonZeroU64>) {
        let (up, down) = match self {
            Self::Both(rate) => (Some(rate), Some(rate)),
            Self::Each(Each { up, down }) => (up, down),
        };
        (up.map(Rate::bytes), down.map(Rate::bytes))
    }
}

/// `kintsu rates`.
pub async fn run(command: cli::RatesCommand, context: &Context) -> anyhow::Result<ExitCode> {
    match command {
        cli::RatesCommand::Set { file } => {
            let text =
                std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let nodes = context.client.nodes().await?.nodes;
            let rates = parse(&text, nodes.iter().map(|node| node.id))
                .with_context(|| format!("{}", file.display()))?;
            context.client.set_rates(&rates).await?;
            show(&context.client.known_rates().await?, context)
        }
        cli::RatesCommand::Show => show(&context.client.known_rates().await?, context),
        cli::RatesCommand::Measure => show(&context.client.measure_rates().await?, context),
    }
}

/// The rates of a file; those of the `nodes` give its default for nodes that it does not name.
pub(super) fn parse(text: &str, nodes: impl Iterator<Item = NodeId>) -> anyhow::Result<Rates> {
    let file: File = toml::from_str(text)?;
    let mut rates = match file.default {
        Some(rate) => Rates::even(nodes, rate.bytes()),
        None => Rates::default(),
    };
    for (name, ends) in file.nodes {
        let (node, (up, down)) = (NodeId(number(&name)?), ends.split());
        rates.up.extend(up.map(|rate| (node, rate)));
        rates.down.extend(down.map(|rate| (node, rate)));
    }
    for (name, ends) in file.racks {
        let (rack, (up, down)) = (RackId(number(&name)?), ends.split());
        rates.rack_up.extend(up.map(|rate| (rack, rate)));
        rates.rack_down.extend(down.map(|rate| (rack, rate)));
    }
    for (name, rate) in file.pairs {
        let (from, to) = name.split_once('-').with_context(|| format!("expected FROM-TO, got {name:?}"))?;
        rates.pairs.insert((NodeId(number(from)?), NodeId(number(to)?)), rate.bytes());
    }
    Ok(rates)
}

fn number(name: &str) -> anyhow::Result<u32> {
    name.trim().parse().with_context(|| format!("expected the number of a node or rack, got {name:?}"))
}

fn show(known: &KnownRates, context: &Context) -> anyhow::Result<ExitCode> {
    if context.json {
        let rows: Vec<_> = known
            .links
            .iter()
            .map(|link| {
                let (rate, source) = link.capacity.unzip();
                json!({
                    "what": end(link.end), "way": link.way.word(), "bytes_per_second": rate, "source": source,
                    "foreground_bytes_per_second": link.foreground,
                })
            })
            .collect();
        output::json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    if known.links.is_empty() {
        output::line(
            "no rates are known: `kintsu rates measure` measures links, `kintsu rates set FILE` sets them",
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let bits = |rate: u64| Rate::bits(rate as f64 * 8.0).map_or_else(|_| "0".into(), |rate| rate.to_string());
    let mut table = output::table(["link", "way", "rate", "known", "users take"]);
    for link in &known.links {
        let (rate, source) = link.capacity.unzip();
        let disk = matches!(link.way, Way::Read | Way::Write);
        let shown = |rate: u64| if disk { units::human(rate) + "/s" } else { bits(rate) };
        let source = source.map_or("", |source| match source {
            RateSource::Set => "set",
            RateSource::Measured => "measured",
            RateSource::Seen => "seen",
            RateSource::Hardware => "hardware",
        });
        let (rate, users) = (rate.map(shown), link.foreground.map(shown));
        let row = [
            end(link.end),
            link.way.word().into(),
            rate.unwrap_or_default(),
            source.into(),
            users.unwrap_or_default(),
        ];
        table.add_row(row);
    }
    output::line(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn end(end: LinkEnd) -> String {
    match end {
        LinkEnd::Node(node) => format!("node {}", node.0),
        LinkEnd::Rack(rack) => format!("rack {}", rack.0),
        LinkEnd::Pair(from, to) => format!("node {} to node {}", from.0, to.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "default = \"1Gb/s\"\n[nodes]\n1 = { up = \"80Mb/s\" }\n2 = \"8Mb/s\"\n\
                        [racks]\n0 = \"10Gb/s\"\n[pairs]\n\"0-2\" = \"800kb/s\"\n";

    #[test]
    fn a_file_says_what_each_link_carries() {
        let rates = parse(FILE, (0..3).map(NodeId)).unwrap();
        let get = |of: &BTreeMap<NodeId, NonZeroU64>| of.values().map(|r| r.get()).collect::<Vec<_>>();
        assert_eq!(get(&rates.up), [125_000_000, 10_000_000, 1_000_000]);
        assert_eq!(get(&rates.down), [125_000_000, 125_000_000, 1_000_000]);
        assert_eq!(rates.rack_up[&RackId(0)].get(), 1_250_000_000);
        assert_eq!(rates.pairs[&(NodeId(0), NodeId(2))].get(), 100_000);
        assert!(parse("", std::iter::empty()).unwrap().is_empty());
    }

    #[test]
    fn a_wrong_file_is_told() {
        for (wrong, word) in [
            ("[nodes]\nx = \"1Gb/s\"", "number of a node"),
            ("[pairs]\n\"1\" = \"1Gb/s\"", "FROM-TO"),
            ("speed = 3", "unknown field"),
            ("[nodes]\n1 = { upp = \"1Gb/s\" }", "`up`, `down` or both"),
            ("[racks]\n1 = { up = \"1Gb/s\", speed = 3 }", "`up`, `down` or both"),
        ] {
            let error = parse(wrong, std::iter::empty()).unwrap_err();
            assert!(format!("{error:#}").contains(word), "{error:#}");
        }
    }
}
