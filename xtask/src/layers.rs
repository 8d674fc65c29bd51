//! The layering check: a crate depends on crates of earlier layers only, and the pure layers
//! touch neither clock nor disk nor network. The engine of the coordinator is such a layer within a crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The layers, from the algebra at the top to the user interfaces. A crate may depend only on crates further up;
/// crates of the same layer do not depend on each other.
const LAYERS: &[&[&str]] = &[
    &["kintsu-algebra"],
    &["kintsu-kernel"],
    &["kintsu-dag"],
    &["kintsu-code"],
    &["kintsu-analysis"],
    &["kintsu-plan"],
    &["kintsu-sim"],
    &["kintsu-store"],
    &["kintsu-wire"],
    &["kintsu-runtime"],
    &["kintsu-agent", "kintsu-coordinator", "kintsu-client", "kintsu-hdfs", "kintsu-nbd"],
    &["kintsu-s3"],
    &["kintsu-cluster", "kintsu-lab", "kintsu-torture", "kintsu-web"],
    &["kintsu-experiments"],
    &["kintsu", "kintsu-python"],
];

/// The pure layers: values in, values out.
const PURE: &[&str] = &[
    "kintsu-algebra",
    "kintsu-kernel",
    "kintsu-dag",
    "kintsu-code",
    "kintsu-analysis",
    "kintsu-plan",
    "kintsu-sim",
];

/// What the sources of pure layers must not name.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::io",
    "std::net::Tcp",
    "std::net::Udp",
    "std::thread",
    "std::process",
    "Instant::now",
    "SystemTime",
    "tokio::",
    "rand::",
    "getrandom",
];

/// The part of a crate that decides, where the rest of the crate does I/O: a folder or a file, and the only things of
/// this workspace's impure crates that it may name. All else comes as arguments.
struct Engine {
    package: &'static str,
    path: &'static str,
    /// A prefix of paths, and what may follow it.
    may_name: &'static [(&'static str, &'static [&'static str])],
}

/// The engine, and the values that it shares with the store of the metadata.
const ENGINES: &[Engine] = &[
    Engine {
        package: "kintsu-coordinator",
        path: "src/engine",
        may_name: &[
            ("crate::", &["engine::", "meta::record", "meta::change"]),
            (
                "kintsu_wire::",
                &[
                    "message::",
                    "FolderId",
                    "ClusterId",
                    "PROTOCOL_VERSION",
                    "version::older",
                    "version::SCRUBS_RANGES",
                ],
            ),
            ("kintsu_runtime::", &["Observed", "SAMPLED_EVERY"]),
            ("kintsu_store::", &[]),
            // Two steps up may leave the folder.
            ("super::super", &[]),
        ],
    },
    Engine { package: "kintsu-coordinator", path: "src/meta/record.rs", may_name: &[] },
    Engine { package: "kintsu-coordinator", path: "src/meta/change.rs", may_name: &[] },
];

/// Beyond [`IMPURE`]: what an engine must not name, because it waits, does I/O, or differs from run to run.
const FORBIDDEN_IN_ENGINES: &[&str] = &[
    "std::{",
    "std::time",
    "std::env",
    "std::os",
    "std::sync::Mutex",
    "std::sync::RwLock",
    "std::sync::atomic",
    "Instant",
    "HashMap",
    "HashSet",
    "RandomState",
    "::random",
    "use rand",
    "redb",
    "tonic",
    "tracing",
    "tokio",
    "futures",
    "async ",
    "println!",
];

/// One crate: its name, the workspace crates it depends on, its folder.
struct Package {
    name: String,
    dependencies: Vec<String>,
    folder: String,
}

/// Checks the workspace that the current directory belongs to.
pub fn check_workspace() -> Result<()> {
    let packages = packages()?;
    let mut wrong = wrong_dependencies(&packages);
    for package in packages.iter().filter(|p| PURE.contains(&p.name.as_str())) {
        let src = Path::new(&package.folder).join("src");
        for (path, source) in sources(&src)? {
            wrong.extend(impure_lines(&source).map(|l| format!("{}: {l}", path.display())));
        }
    }
    for engine in ENGINES {
        let Some(package) = packages.iter().find(|p| p.name == engine.package) else {
            bail!("layering: no crate {}", engine.package);
        };
        let found = sources(&Path::new(&package.folder).join(engine.path))?;
        if found.is_empty() {
            wrong.push(format!("{}: no sources in {}", engine.package, engine.path));
        }
        for (path, source) in found {
            let leaves =
                path.ends_with("engine/mod.rs") && code_lines(&source).any(|(_, l)| l.contains("super::"));
            if leaves {
                wrong.push(format!("{}: super:: leaves the engine", path.display()));
            }
            wrong.extend(forbidden_lines(engine, &source).map(|l| format!("{}: {l}", path.display())));
        }
    }
    if !wrong.is_empty() {
        bail!("layering:\n  {}", wrong.join("\n  "));
    }
    println!("layering: {} crates, every dependency points up", packages.len());
    Ok(())
}

fn packages() -> Result<Vec<Package>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let out = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .output()
        .context("cargo metadata")?;
    if !out.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&out.stderr));
    }
    let metadata: Value = serde_json::from_slice(&out.stdout)?;
    let text = |v: &Value, key: &str| v[key].as_str().unwrap_or_default().to_owned();
    let package = |p: &Value| Package {
        name: text(p, "name"),
        // Tests may use crates further down the list; the crate itself may not.
        dependencies: (p["dependencies"].as_array().into_iter().flatten())
            .filter(|d| d["kind"].as_str() != Some("dev"))
            .map(|d| text(d, "name"))
            .filter(|name| name.starts_with("kintsu"))
            .collect(),
        folder: text(p, "manifest_path").trim_end_matches("Cargo.toml").to_owned(),
    };
    Ok(metadata["packages"].as_array().into_iter().flatten().map(package).collect())
}

fn wrong_dependencies(packages: &[Package]) -> Vec<String> {
    let rank: BTreeMap<&str, usize> =
        LAYERS.iter().enumerate().flat_map(|(i, layer)| layer.iter().map(move |c| (*c, i))).collect();
    let mut wrong = Vec::new();
    for package in packages.iter().filter(|p| p.name != "xtask") {
        let Some(&own) = rank.get(package.name.as_str()) else {
            wrong.push(format!("{} has no layer: add it to xtask/src/layers.rs", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            if rank.get(dependency.as_str()).is_none_or(|&theirs| theirs >= own) {
                wrong.push(format!("{} depends on {dependency}, which is not above it", package.name));
            }
        }
    }
    wrong
}

/// A source, or all sources in a folder, with their paths.
fn sources(path: &Path) -> Result<Vec<(PathBuf, String)>> {
    let (mut todo, mut out) = (vec![path.to_owned()], Vec::new());
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            for entry in std::fs::read_dir(&path).with_context(|| path.display().to_string())? {
                todo.push(entry?.path());
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            let source = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            out.push((path, source));
        }
    }
    out.sort();
    Ok(out)
}

/// Lines outside tests and comments, with their numbers.
fn code_lines(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut lines = source.lines().enumerate();
    std::iter::from_fn(move || {
        loop {
            let (i, line) = lines.next()?;
            if line.trim() != "#[cfg(test)]" {
                return Some((i + 1, line.split("//").next().unwrap_or_default()));
            }
            // The attribute covers the next line, or a module of tests up to the end of the file.
            let (_, next) = lines.next()?;
            if next.trim_start().starts_with("mod ") && next.trim_end().ends_with('{') {
                return None;
            }
        }
    })
}

/// Lines outside tests and comments that name something impure.
fn impure_lines(source: &str) -> impl Iterator<Item = String> + '_ {
    code_lines(source).filter_map(|(number, line)| {
        let found = IMPURE.iter().find(|word| line.contains(**word))?;
        Some(format!("line {number}: {found} in a pure layer"))
    })
}

/// Lines of an engine outside tests and comments that name what it must not name.
fn forbidden_lines<'a>(engine: &'a Engine, source: &'a str) -> impl Iterator<Item = String> + 'a {
    let Engine { package, path, .. } = engine;
    code_lines(source).filter_map(move |(number, line)| {
        let wrong = |found: String, rule: String| {
            Some(format!("line {number}: {found} in {path} of {package}: {rule}"))
        };
        if let Some(word) = IMPURE.iter().chain(FORBIDDEN_IN_ENGINES).find(|word| line.contains(**word)) {
            let rule =
                "it decides by its arguments alone, without clock, randomness, I/O, locks or log".into();
            return wrong((*word).into(), rule);
        }
        engine.may_name.iter().find_map(|(start, may)| {
            let other = |rest: &&str| !may.iter().any(|may| rest.starts_with(may));
            let rest = line.split(start).skip(1).find(other)?;
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let rule = match may.len() {
                0 => format!("it may name nothing of {start}"),
                _ => format!("of {start} it may name only {}, which are values", may.join(", ")),
            };
            wrong(format!("{start}{name}"), rule)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependencies = dependencies.iter().map(|d| d.to_string()).collect();
        Package { name: name.into(), dependencies, folder: String::new() }
    }

    #[test]
    fn a_dependency_that_points_down_or_sideways_is_found() {
        assert!(wrong_dependencies(&[package("kintsu-plan", &["kintsu-dag", "kintsu-code"])]).is_empty());
        for wrong in [
            package("kintsu-dag", &["kintsu-code"]),
            package("kintsu-agent", &["kintsu-client"]),
            package("kintsu-dag", &["kintsu-dag"]),
            package("kintsu-new", &[]),
        ] {
            assert_eq!(wrong_dependencies(&[wrong]).len(), 1);
        }
    }

    #[test]
    fn impurity_is_found_outside_comments_and_tests_only() {
        let source = "use std::fs;\n// std::net::TcpStream\nlet a = 1;\n#[cfg(test)]\nuse std::fs;\n";
        assert_eq!(impure_lines(source).collect::<Vec<_>>(), ["line 1: std::fs in a pure layer"]);
    }

    #[test]
    fn what_follows_an_item_for_tests_is_looked_at() {
        let source = "#[cfg(test)]\nfn a() {}\nuse std::fs;\n#[cfg(test)]\nmod tests;\nuse rand::b;\n";
        assert_eq!(impure_lines(source).count(), 2);
    }

    #[test]
    fn an_engine_that_learns_a_clock_randomness_or_io_is_found() {
        let engine = &ENGINES[0];
        let wrong = |line: &str| forbidden_lines(engine, line).count();
        for line in [
            "let now = Instant::now();",
            "let now = SystemTime::now();",
            "use std::time::Duration;",
            "let id = ClusterId::random()?;",
            "let seed = getrandom::u64()?;",
            "use rand;",
            "use std::os::fd::AsFd;",
            "let load: HashMap<NodeId, u32> = a;",
            "let text = std::fs::read_to_string(path)?;",
            "use std::net::TcpStream;",
            "use std::{fs, io};",
            "tokio::spawn(work);",
            "async fn wait() {}",
            "tracing::warn!(\"slow\");",
            "use redb::Database;",
            "use crate::cluster::Cluster;",
            "use crate::driver::ask;",
            "use crate::meta::Meta;",
            "use crate::meta::{Snapshot, StripeRecord};",
            "use crate::{cluster::Cluster, engine::gate::Gate};",
            "use super::super::cluster::Cluster;",
            "use kintsu_wire::AgentChannel;",
            "use kintsu_runtime::Conductor;",
            "use kintsu_store::block_path;",
        ] {
            assert_eq!(wrong(line), 1, "{line}");
        }
        for line in [
            "use std::collections::{BTreeMap, BTreeSet};",
            "use std::net::SocketAddr;",
            "use crate::engine::repair::Tally;",
            "use crate::meta::record::{BlockRecord, StripeRecord};",
            "use crate::meta::change::Landing;",
            "use kintsu_wire::message::Fault;",
            "use kintsu_runtime::Observed;",
            "use super::Order;",
            "// Instant::now() is for the driver.",
        ] {
            assert_eq!(wrong(line), 0, "{line}");
        }
    }

    #[test]
    fn messages_about_an_engine_name_the_line_and_the_rule() {
        let found: Vec<_> = forbidden_lines(&ENGINES[0], "\nlet now = Instant::now();").collect();
        let expected = "line 2: Instant::now in src/engine of kintsu-coordinator: it decides by its arguments alone, \
                        without clock, randomness, I/O, locks or log";
        assert_eq!(found, [expected]);
        let found: Vec<_> = forbidden_lines(&ENGINES[0], "use crate::meta::Meta;").collect();
        let expected = "line 1: crate::meta in src/engine of kintsu-coordinator: of crate:: it may name only engine::, \
                        meta::record, meta::change, which are values";
        assert_eq!(found, [expected]);
    }
}
