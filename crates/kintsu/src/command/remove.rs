//! `kintsu rm`.

use std::process::ExitCode;

use kintsu_client::ClientError;
use serde_json::json;

use super::Context;
use super::confirm::confirm;
use crate::{cli, output};

/// Most names that the question lists.
const LISTED: usize = 5;

/// `kintsu rm`. A single object is removed at once; several need a confirmation.
pub async fn run(args: cli::Rm, context: &Context) -> anyhow::Result<ExitCode> {
    if let [name] = &args.names[..] {
        let object = context.client.remove(name).await?;
        if context.json {
            output::json(&object)?;
        } else {
            output::line(&format!("removed {}", object.name))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    confirm(question(&args.names), args.yes).await?;
    several(&args.names, context).await
}

fn question(names: &[String]) -> String {
    let listed = names.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match names.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("Remove {} objects: {listed}{more}?", names.len())
}

/// Removes them one after the other. A failure does not stop the others; for people failures are printed at the end.
async fn several(names: &[String], context: &Context) -> anyhow::Result<ExitCode> {
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    let mut gone = None;
    for name in names {
        let removed = match &gone {
            // The coordinator does not answer: do not try the rest.
            Some(reason) => Err(format!("not tried: {reason}")),
            None => match context.client.remove(name).await {
                Err(error @ ClientError::Unreachable(_)) => {
                    gone = Some(error.to_string());
                    Err(error.to_string())
                }
                other => other.map_err(|error| error.to_string()),
            },
        };
        match removed {
            Ok(object) if context.json => rows.push(json!({ "name": name, "removed": object })),
            Ok(object) => output::line(&format!("removed {}", object.name))?,
            Err(error) => {
                rows.push(json!({ "name": name, "error": error }));
                failed.push((name, error));
            }
        }
    }
    if context.json {
        output::json(&rows)?;
    } else {
        for (name, error) in &failed {
            eprintln!("kintsu: not removed: {}", about(name, error));
        }
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An error with the object's name, which many errors have already.
fn about(name: &str, error: &str) -> String {
    if error.contains(&format!("{name:?}")) { error.to_owned() } else { format!("{name}: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_object_once() {
        assert_eq!(
            about("a", "object \"a\": expected one that exists"),
            "object \"a\": expected one that exists"
        );
        assert_eq!(about("a", "not tried: no answer"), "a: not tried: no answer");
    }

    #[test]
    fn the_question_names_what_would_go() {
        let names = |count: usize| (1..=count).map(|i| format!("o{i}")).collect::<Vec<_>>();
        assert_eq!(question(&names(2)), "Remove 2 objects: o1, o2?");
        assert_eq!(question(&names(7)), "Remove 7 objects: o1, o2, o3, o4, o5 and 2 more?");
    }
}
