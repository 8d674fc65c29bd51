//! `kintsu code register`, `export`, `registered`, `unregister`: codes as data, to and from a cluster.

use std::io::Read;
use std::path::Path;

use anyhow::Context as _;
use kintsu_code::{Definition, USER};
use serde_json::json;

use super::resolve;
use crate::command::Context;
use crate::output;

/// Longest definition that is read, in bytes; the cluster's own limit is lower.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// `kintsu code register`.
pub async fn register(file: &Path, context: &Context) -> anyhow::Result<()> {
    let definition = read(file)?;
    let new = context.client.register_code(&definition).await?;
    if context.json {
        return output::json(&json!({ "name": definition.name, "new": new }));
    }
    let Definition { name, n, k, w, distance, .. } = &definition;
    let done = if new { "proved and registered" } else { "is registered already" };
    output::line(&format!("{name}: n={n}, k={k}, w={w}, distance {distance}; {done}"))
}

/// `kintsu code export`: the definition of any code on standard output.
pub async fn export(code: &str, name: Option<String>, context: &Context) -> anyhow::Result<()> {
    let name = name.unwrap_or_else(|| own_name(code));
    let definition = match code.starts_with(USER) {
        true => Definition { name, ..context.client.find_code(code).await? },
        false => Definition::of(&*resolve(code, context).await?, name)?,
    };
    kintsu_code::check_user_name(&definition.name)?;
    output::json(&definition)
}

/// `kintsu code registered`.
pub async fn registered(context: &Context) -> anyhow::Result<()> {
    let codes = context.client.codes().await?;
    if context.json {
        return output::json(&codes);
    }
    let mut table = output::table(["CODE", "N", "K", "W", "DISTANCE", "REPAIR GRAPHS"]);
    for code in codes {
        let numbers = [code.n, code.k, code.w, code.distance, code.repairs].map(|number| number.to_string());
        table.add_row([code.name].into_iter().chain(numbers));
    }
    output::line(&table.to_string())
}

/// `kintsu code unregister`.
pub async fn unregister(code: &str, context: &Context) -> anyhow::Result<()> {
    context.client.remove_code(code).await?;
    match context.json {
        true => output::json(&json!({ "name": code })),
        false => output::line(&format!("{code} is no longer registered")),
    }
}

/// The definition in a file, or from standard input for `-`.
fn read(file: &Path) -> anyhow::Result<Definition> {
    let name = file.display();
    let source: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(std::fs::File::open(file).with_context(|| format!("cannot read {name}"))?),
    };
    let mut text = String::new();
    source.take(MAX_FILE_BYTES).read_to_string(&mut text).with_context(|| format!("cannot read {name}"))?;
    serde_json::from_str(&text).with_context(|| format!("{name} is not the definition of a code"))
}

/// The name under which a code is exported unless told otherwise: `user:rs-n9-k6` of `rs:n=9,k=6`.
fn own_name(code: &str) -> String {
    let plain = code.strip_prefix(USER).unwrap_or(code).replace('=', "").replace([':', ','], "-");
    format!("{USER}{plain}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_exports_are_names_of_user_codes() {
        assert_eq!(own_name("rs:n=9,k=6"), "user:rs-n9-k6");
        assert_eq!(own_name("user:mine"), "user:mine");
        for family in kintsu_code::families() {
            kintsu_code::check_user_name(&own_name(family.example)).unwrap();
        }
    }

    #[test]
    fn files_that_are_no_definitions_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bad.json");
        let refused = |text: &str| {
            std::fs::write(&path, text).unwrap();
            format!("{:#}", read(&path).unwrap_err())
        };
        let whole = r#"{"name":"user:a","n":2,"k":1,"w":1,"distance":2,"generator":["01",ROW]}"#;
        for (text, words) in [
            ("{", "bad.json is not the definition"),
            ("{}", "missing field `name`"),
            (&whole.replace("ROW", "[256]"), "got 256"),
            (&whole.replace("ROW", "\"0x\""), "got 'x' at position 1"),
            (&whole.replace("ROW", "[-1]"), "got -1"),
        ] {
            let error = refused(text);
            assert!(error.contains(words), "{text}: {error}");
        }
        std::fs::write(&path, whole.replace("ROW", "[1]")).unwrap();
        assert_eq!(read(&path).unwrap().generator[1].0, [1]);
        assert!(format!("{:#}", read(Path::new("/does/not/exist")).unwrap_err()).contains("/does/not/exist"));
    }
}
