//! Options of the commands on objects.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::repair;
use crate::units::{ByteRange, Bytes, Slice};

/// `kintsu put`.
#[derive(Debug, Args)]
pub struct Put {
    /// The file to store; `-`, a pipe or a FIFO for a stream, of which about 150 MiB are kept in memory; or a folder, whose
    /// files become one object each. Links to files are followed.
    pub file: PathBuf,
    /// The object's name; for a folder, what the names of its objects begin with, before a slash.
    pub name: String,
    /// Its code, `family:key=value,...` (see `kintsu code list`), or `user:NAME` for a registered code [default:
    /// rs:n=9,k=6; with --replace that of the object which is replaced].
    #[arg(long)]
    pub code: Option<String>,
    /// Compute the parity while writing, or later with `kintsu encode`.
    #[arg(long, value_enum, default_value_t = EncodeWhen::Online)]
    pub encode: EncodeWhen,
    /// Largest block [default: 64 MiB, or somewhat more if the code's sub-blocks need it; for a stream so much that a stripe
    /// has 24 MiB].
    #[arg(long, value_name = "BYTES")]
    pub block: Option<Bytes>,
    /// Cell: the unit coded together [default: 128 KiB, or more if the code's sub-blocks need it].
    #[arg(long, value_name = "BYTES")]
    pub cell: Option<Bytes>,
    /// Replace an object of this name, atomically.
    #[arg(long)]
    pub replace: bool,
    /// What kind of content it is, kept with the object: `text/plain`.
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// An attribute of your own, kept with the object and shown by `stat`; may be given several times, 2048 bytes in all.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_meta)]
    pub meta: Vec<(String, String)>,
}

/// `KEY=VALUE`.
fn parse_meta(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or_else(|| format!("expected KEY=VALUE, got {text:?}"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// When parity is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EncodeWhen {
    /// While writing; the data is striped in cells.
    Online,
    /// Later, on the nodes; the data is contiguous in blocks.
    Offline,
}

/// A command on one object.
#[derive(Debug, Args)]
pub struct Name {
    /// The object's name.
    pub name: String,
}

/// `kintsu get`.
#[derive(Debug, Args)]
pub struct Get {
    /// The object's name; or, if no object has it, what the names of several objects begin with,
    /// before a slash: each becomes a file in the folder OUT.
    pub name: String,
    /// The file to write, or the folder to write it into; `-` for standard output. An existing file is replaced
    /// after the whole object was read, by a new file with the same mode; if the read fails, the old file stays.
    /// Other hard links keep the old bytes, and extended attributes are not kept. FIFOs and devices are written to
    /// directly.
    pub out: PathBuf,
    /// Bytes A to B, both included, as in HTTP; `A-` to the end.
    #[arg(long, value_name = "A-B")]
    pub range: Option<ByteRange>,
    /// Slice: the unit in which it is streamed; `auto` for a size that fits the plan.
    #[arg(long, default_value = "auto", value_name = "BYTES")]
    pub slice: Slice,
    /// How lost blocks are decoded [default: the method that is predicted to be fastest].
    #[arg(long, value_parser = repair::method())]
    pub method: Option<kintsu_plan::Method>,
}

/// `kintsu ls`.
#[derive(Debug, Args)]
pub struct Ls {
    /// Only names with this prefix.
    #[arg(default_value = "")]
    pub prefix: String,
    /// Show names that are alike up to the first of these after the prefix as one line, such as `/` for folders.
    #[arg(long, value_name = "TEXT")]
    pub delimiter: Option<String>,
    /// Show checksums and content types too.
    #[arg(long)]
    pub long: bool,
    /// Only names after this one.
    #[arg(long)]
    pub after: Option<String>,
    /// At most this many names.
    #[arg(long)]
    pub limit: Option<u64>,
}

/// `kintsu rm`.
#[derive(Debug, Args)]
pub struct Rm {
    /// The objects' names.
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Remove several without asking.
    #[arg(long)]
    pub yes: bool,
}
