//! `kintsu ls`.

use std::process::ExitCode;

use kintsu_wire::message::{List, ListPage, ObjectInfo};
use serde_json::json;

use super::Context;
use crate::units::{human, moment};
use crate::{cli, output};

/// Names of one call.
const PAGE: u64 = 1000;

/// One line of the list.
enum Line {
    Object(ObjectInfo),
    Prefix(String),
}

impl Line {
    fn name(&self) -> &str {
        match self {
            Self::Object(object) => &object.name,
            Self::Prefix(prefix) => prefix,
        }
    }
}

/// See the head of this file.
pub async fn ls(args: cli::Ls, context: &Context) -> anyhow::Result<ExitCode> {
    let mut after = args.after;
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut printed = false;
    loop {
        let list = List {
            prefix: args.prefix.clone(),
            after: after.clone(),
            limit: left.min(PAGE) as u32,
            delimiter: args.delimiter.clone().unwrap_or_default(),
        };
        let page = if left > 0 { context.client.list_page(list).await? } else { empty() };
        let (more, last) = (page.more, page.last().map(str::to_owned));
        for line in lines(page) {
            left -= 1;
            let text = match context.json {
                true => format!("{}{}", if printed { "," } else { "[" }, as_json(&line)?),
                false => {
                    if !printed {
                        output::line(heading(args.long))?;
                    }
                    as_text(&line, args.long)
                }
            };
            output::line(&text)?;
            printed = true;
        }
        if !output::is_read() {
            return Ok(ExitCode::SUCCESS);
        }
        match last {
            Some(last) if more && left > 0 => after = Some(last),
            last => {
                if context.json {
                    output::line(if printed { "]" } else { "[]" })?;
                } else if let (true, Some(last)) = (more, last) {
                    eprintln!("kintsu: there are more: --after {last:?} continues");
                }
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

fn empty() -> ListPage {
    ListPage { objects: Vec::new(), prefixes: Vec::new(), more: false }
}

/// Objects and prefixes of a page, in order.
fn lines(page: ListPage) -> Vec<Line> {
    let prefixes = page.prefixes.into_iter().map(Line::Prefix);
    let mut lines: Vec<_> = page.objects.into_iter().map(Line::Object).chain(prefixes).collect();
    lines.sort_by(|a, b| a.name().cmp(b.name()));
    lines
}

fn as_json(line: &Line) -> anyhow::Result<String> {
    Ok(match line {
        Line::Object(object) => serde_json::to_string(object)?,
        Line::Prefix(prefix) => json!({ "prefix": prefix }).to_string(),
    })
}

fn heading(long: bool) -> &'static str {
    if long {
        "      SIZE  CHANGED                  CODE                              CHECKSUM                    TYPE                      NAME"
    } else {
        "      SIZE  CHANGED                  CODE                              NAME"
    }
}

fn as_text(line: &Line, long: bool) -> String {
    let row = |size: &str, changed: &str, code: &str, sum: &str, kind: &str, name: &str| match long {
        true => format!("{size:>10}  {changed:23}  {code:32}  {sum:26}  {kind:24}  {name}"),
        false => format!("{size:>10}  {changed:23}  {code:32}  {name}"),
    };
    match line {
        Line::Prefix(prefix) => row("-", "", "", "", "", &printable(prefix)),
        Line::Object(object) => {
            let sum = object.checksum.map_or("-".into(), |sum| sum.to_string());
            let kind = object.attributes.content_type.as_deref().unwrap_or("-");
            row(
                &human(object.size),
                &moment(object.created),
                &object.code,
                &sum,
                kind,
                &printable(&object.name),
            )
        }
    }
}

/// A name that came from S3 may have control characters, which a terminal would obey.
fn printable(name: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    name.chars().map(shown).collect()
}
