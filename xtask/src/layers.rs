//! The layering check: dependencies point up the list of layers only, and the pure layers
//! touch neither clock nor disk nor network.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The layers from the bottom of the stack of ideas to the doors. A crate may depend on crates of
/// earlier layers only; crates of one layer do not know each other.
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
    &["kintsu-agent", "kintsu-coordinator", "kintsu-client"],
    &["kintsu-lab", "kintsu-torture"],
    &["kintsu", "kintsu-python"],
];

/// Values in, values out: what is forbidden in the sources of every layer down to `plan`.
const PURE: &[&str] = &[
    "kintsu-algebra",
    "kintsu-kernel",
    "kintsu-dag",
    "kintsu-code",
    "kintsu-analysis",
    "kintsu-plan",
    "kintsu-sim",
];
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
        impure_sources(Path::new(&package.folder), &mut wrong)?;
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
        // Tests may look down the list; what is built into a crate may not.
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

fn impure_sources(folder: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let mut folders = vec![folder.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let source = std::fs::read_to_string(&path)?;
                wrong.extend(impure_lines(&source).map(|l| format!("{}: {l}", path.display())));
            }
        }
    }
    Ok(())
}

/// Lines outside tests and comments that name something impure.
fn impure_lines(source: &str) -> impl Iterator<Item = String> + '_ {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines().enumerate().filter_map(|(i, line)| {
        let line = line.split("//").next().unwrap_or_default();
        let found = IMPURE.iter().find(|word| line.contains(**word))?;
        Some(format!("line {}: {found} in a pure layer", i + 1))
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
}
