//! What commands print: JSON for programs, tables for people.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use comfy_table::{Table, presets};
use serde::Serialize;

/// Whoever read standard output has closed it.
static UNREAD: AtomicBool = AtomicBool::new(false);

/// JSON was asked for.
static JSON: AtomicBool = AtomicBool::new(false);

/// Prints a value as one line of JSON on standard output.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// Prints an error on standard error: text for people, or one line of JSON.
pub fn complain(json: bool, kind: &str, message: &str) {
    match json {
        true => eprintln!("{}", serde_json::json!({"error": {"kind": kind, "message": message}})),
        false => eprintln!("kintsu: {message}"),
    }
}

/// JSON was asked for, or not: for what is said wherever the program is.
pub fn ask_for_json(asked: bool) {
    JSON.store(asked, Relaxed);
}

/// Says on standard error that the user has ended the command.
pub fn interrupted() {
    complain(JSON.load(Relaxed), "interrupted", "interrupted");
}

/// Prints a line on standard output. If its reader has closed it (`| head`), the line is dropped and the command goes on: what it
/// does, and its exit code, do not depend on who looks.
pub fn line(text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    crate::inherited::check_output()?;
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {
            UNREAD.store(true, Relaxed);
            Ok(())
        }
        other => Ok(other?),
    }
}

/// Whether standard output still has a reader, as far as is known: a list need not go on without one.
pub fn is_read() -> bool {
    !UNREAD.load(Relaxed)
}

/// An empty table with these headings.
pub fn table<const N: usize>(headings: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(headings);
    table
}

/// An error and its causes in one line. Many errors name their cause in their own text; a cause that was named already
/// is left out.
pub fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::causes;

    #[test]
    fn every_cause_is_said_once() {
        let source = std::io::Error::other("no space left");
        let disk = kintsu_lab::LabError::Io { what: "node-3".into(), source };
        let error = Err::<(), _>(disk).context("cannot start").unwrap_err();
        assert_eq!(format!("{error:#}"), "cannot start: node-3: no space left: no space left");
        assert_eq!(causes(&error), "cannot start: node-3: no space left");
        assert_eq!(causes(&anyhow::anyhow!("alone")), "alone");
    }
}
