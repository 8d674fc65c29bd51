//! Links of the documents: every relative link, its anchor, and every path of this tree that a document names in a code span
//! must exist. Links to other sites are not followed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Folders that hold no documents of ours.
const SKIPPED: [&str; 7] =
    ["target", "node_modules", ".git", ".cargo", ".venv", ".pytest_cache", "artifacts"];

/// Whether a folder of this name may hold documents of ours.
fn is_ours(name: &OsStr) -> bool {
    !SKIPPED.iter().any(|skipped| name == *skipped)
}

/// Checks all documents of this workspace, and prints how many links were followed.
///
/// # Errors
/// One of them leads nowhere; a document cannot be read.
pub fn check_workspace() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is in the workspace")?;
    let checked = check(root)?;
    if !checked.broken.is_empty() {
        bail!("links that lead nowhere:\n  {}", checked.broken.join("\n  "));
    }
    println!("{} links of {} documents lead somewhere", checked.links, checked.documents);
    Ok(())
}

/// What was found in a tree.
#[derive(Debug, Default)]
struct Checked {
    documents: usize,
    links: usize,
    /// Each with document, line and reason.
    broken: Vec<String>,
}

/// Checks all documents (`*.md`) below a folder.
fn check(root: &Path) -> Result<Checked> {
    let mut texts = BTreeMap::new();
    read_documents(root, &mut texts)?;
    let tops: Vec<String> = std::fs::read_dir(root)?
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| root.join(name).is_dir() && is_ours(name))
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let mut checked = Checked { documents: texts.len(), ..Checked::default() };
    for (document, text) in &texts {
        for (number, line) in prose(text) {
            for target in links(line) {
                checked.links += 1;
                if let Err(why) = follow(root, document, target, &texts) {
                    checked.broken.push(format!("{}:{number}: {target}: {why}", shown(root, document)));
                }
            }
            for path in named_paths(line, &tops) {
                checked.links += 1;
                if !root.join(path).exists() {
                    checked
                        .broken
                        .push(format!("{}:{number}: `{path}`: no such file", shown(root, document)));
                }
            }
        }
    }
    Ok(checked)
}

fn read_documents(folder: &Path, texts: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            if is_ours(&entry.file_name()) && !path.join("CACHEDIR.TAG").exists() {
                read_documents(&path, texts)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            texts.insert(path, text);
        }
    }
    Ok(())
}

fn shown(root: &Path, document: &Path) -> String {
    document.strip_prefix(root).unwrap_or(document).display().to_string()
}

/// The lines that are not in fenced blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        (!inside && !fence).then_some((at + 1, line))
    })
}

/// The targets of inline links and pictures outside of code spans.
fn links(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for part in line.split('`').step_by(2) {
        let mut rest = part;
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let Some(end) = rest.find(')') else { break };
            // A title may follow the target.
            let target = rest[..end].split_whitespace().next().unwrap_or_default();
            found.push(target.trim_matches(['<', '>']));
            rest = &rest[end..];
        }
    }
    found
}

/// Code spans that are a path in this tree: they begin with one of its folders.
fn named_paths<'a>(line: &'a str, tops: &[String]) -> Vec<&'a str> {
    let is_path = |span: &&str| {
        let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
        plain && span.split_once('/').is_some_and(|(top, _)| tops.iter().any(|name| name == top))
    };
    line.split('`').skip(1).step_by(2).filter(is_path).collect()
}

/// Finds what a link leads to.
fn follow(
    root: &Path,
    document: &Path,
    target: &str,
    texts: &BTreeMap<PathBuf, String>,
) -> std::result::Result<(), String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let to = match path {
        "" => document.to_owned(),
        path => resolved(document, path).filter(|to| to.starts_with(root)).ok_or("it leaves the tree")?,
    };
    if !to.exists() {
        return Err("no such file".into());
    }
    let Some(anchor) = anchor else { return Ok(()) };
    let text = texts.get(&to).ok_or("an anchor in what is no document")?;
    let headings = headings(text);
    match headings.iter().any(|heading| heading == anchor) {
        true => Ok(()),
        false => Err(format!("no such heading; there are {}", headings.join(", "))),
    }
}

/// The path from a document's folder, without `.` and `..`.
fn resolved(document: &Path, path: &str) -> Option<PathBuf> {
    let mut to = document.parent()?.to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                to.pop();
            }
            Component::Normal(name) => to.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(to)
}

/// The anchors of a document's headings, as mdBook and hosting sites make them.
fn headings(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if !(1..=6).contains(&level) || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor = kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect::<String>();
        let same = anchors.iter().filter(|other| **other == anchor).count();
        anchors.push(if same == 0 { anchor } else { format!("{anchor}-{same}") });
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_of_the_documents_leads_somewhere() {
        check_workspace().unwrap();
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("docs/a.md", "# The `first` one, again\n\n## Two\n\n## Two\n");
        write("docs/picture.svg", "");
        write(
            "README.md",
            "[a](docs/a.md) [b](docs/a.md#the-first-one-again) [c](docs/a.md#two-1) ![p](docs/picture.svg \"title\")\n\
             [d](https://example.invalid/x) [e](#top) `docs/a.md` `docs/*.md` `other/thing` `[no](link.md)`\n\
             # Top\n```\n[code](nothing.md) # Not a heading\n```\n",
        );
        let good = check(dir.path()).unwrap();
        assert!(good.broken.is_empty(), "{:?}", good.broken);
        assert_eq!((good.documents, good.links), (2, 7));
        write(
            "docs/b.md",
            "# B\n[gone](c.md)\n[heading](a.md#three) [own](#a)\n`docs/gone.md`\n[out](../../x.md) [p](picture.svg#x)\n",
        );
        let broken = check(dir.path()).unwrap().broken;
        let expected = [
            "docs/b.md:2: c.md: no such file",
            "docs/b.md:3: a.md#three: no such heading; there are the-first-one-again, two, two-1",
            "docs/b.md:3: #a: no such heading; there are b",
            "docs/b.md:4: `docs/gone.md`: no such file",
            "docs/b.md:5: ../../x.md: it leaves the tree",
            "docs/b.md:5: picture.svg#x: an anchor in what is no document",
        ];
        assert_eq!(broken, expected);
    }
}
