//! Block-level traces: who wrote where, read line by line from the formats in which they are published.
//!
//! A line that cannot be read is an error with its number and the reason; nothing is skipped silently. Files that end
//! in `.xz`, `.gz` or `.zst` are unpacked by the system's command of that name while they are read.

mod format;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub use format::Format;
use format::Parser;

use crate::error::{ExperimentError, Result};

/// One request of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The virtual disk, numbered in order of appearance.
    pub volume: u32,
    /// Whether it writes.
    pub write: bool,
    /// First byte.
    pub offset: u64,
    /// How many bytes; never 0.
    pub bytes: u64,
}

/// The requests of a trace, in order.
pub struct Trace {
    lines: Box<dyn BufRead>,
    /// The command that unpacks it.
    unpacking: Option<(Child, &'static str)>,
    name: String,
    parser: Parser,
    line: u64,
    text: String,
    ended: bool,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace").field("name", &self.name).field("line", &self.line).finish_non_exhaustive()
    }
}

/// Endings of packed files, and the commands that unpack them to standard output.
const PACKED: [(&str, &str); 3] = [("xz", "xz"), ("gz", "gzip"), ("zst", "zstd")];

impl Trace {
    /// Opens a file; without a format, the first line decides.
    ///
    /// # Errors
    /// `Io` if it cannot be opened or unpacked; `Invalid` if no format fits the first line.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self> {
        let name = path.display().to_string();
        let ending = path.extension().and_then(|ending| ending.to_str());
        let packed = PACKED.iter().find(|(packed, _)| Some(*packed) == ending);
        // Opened here as well, so that a missing file is named in an error of ours.
        let file = File::open(path).map_err(ExperimentError::io(format!("cannot open {name}")))?;
        let Some(&(_, command)) = packed else {
            return Self::read(BufReader::new(file), &name, format);
        };
        let what = format!("cannot run {command} to unpack {name}");
        let mut unpacks = Command::new(command);
        unpacks.arg("-dc").stdin(file).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = unpacks.spawn().map_err(ExperimentError::io(what))?;
        let bytes: Box<dyn Read> = match child.stdout.take() {
            Some(stdout) => Box::new(stdout),
            None => Box::new(std::io::empty()),
        };
        let mut trace = Self::read(BufReader::new(bytes), &name, format)?;
        trace.unpacking = Some((child, command));
        Ok(trace)
    }

    /// Reads lines; `name` is for errors.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn read(lines: impl BufRead + 'static, name: &str, format: Option<Format>) -> Result<Self> {
        let mut lines: Box<dyn BufRead> = Box::new(lines);
        let mut text = String::new();
        lines.read_line(&mut text).map_err(ExperimentError::io(format!("{name}, line 1")))?;
        let format = match format.or_else(|| Format::of_line(&text)) {
            Some(format) => format,
            None => {
                let expected = format!("a line of {}", Format::names());
                return Err(ExperimentError::invalid(
                    format!("{name}, line 1"),
                    expected,
                    format!("{:?}", text.trim_end()),
                ));
            }
        };
        let (name, parser) = (name.to_owned(), Parser::new(format));
        Ok(Self { lines, unpacking: None, name, parser, line: 1, text, ended: false })
    }

    /// The format that is read.
    pub fn format(&self) -> Format {
        self.parser.format
    }

    fn advance(&mut self) -> Result<Option<Request>> {
        loop {
            if self.text.is_empty() {
                self.finish()?;
                return Ok(None);
            }
            let line = self.text.trim_end_matches(['\n', '\r']);
            let found = self.parser.line(line).map_err(|(expected, got)| {
                ExperimentError::invalid(format!("{}, line {}", self.name, self.line), expected, got)
            })?;
            self.text.clear();
            self.line += 1;
            let what = format!("{}, line {}", self.name, self.line);
            self.lines.read_line(&mut self.text).map_err(ExperimentError::io(what))?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// A packed file that is damaged ends early: the command says so.
    fn finish(&mut self) -> Result<()> {
        let Some((mut child, command)) = self.unpacking.take() else { return Ok(()) };
        let status = child.wait().map_err(ExperimentError::io(format!("unpacking {}", self.name)))?;
        if !status.success() {
            let what = format!("{} unpacked by {command}", self.name);
            return Err(ExperimentError::invalid(what, "success", status));
        }
        Ok(())
    }
}

impl Iterator for Trace {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.advance().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.unpacking {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn all(text: &'static str, format: Option<Format>) -> Result<Vec<Request>> {
        Trace::read(Cursor::new(text), "some.csv", format)?.collect()
    }

    fn said(text: &'static str) -> String {
        all(text, None).unwrap_err().to_string()
    }

    fn write(offset: u64, bytes: u64) -> Request {
        Request { volume: 0, write: true, offset, bytes }
    }

    #[test]
    fn each_format_is_recognised_and_read() {
        let msr = "128166410318060999,wdev,1,Write,3165323264,4096,1189\n128166410318061000,wdev,2,Read,512,1,0\r\n";
        assert_eq!(
            all(msr, None).unwrap(),
            [write(3_165_323_264, 4096), Request { volume: 1, write: false, offset: 512, bytes: 1 }]
        );
        let cloud = "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,4096,8\n";
        assert_eq!(
            all(cloud, None).unwrap(),
            [write(42_932_745 * 512, 512), Request { volume: 0, write: false, offset: 4096, bytes: 4096 }]
        );
        let ssdsim = "1000 0 264 8 0\n2000 0 16 1 1\n";
        assert_eq!(
            all(ssdsim, None).unwrap(),
            [write(264 * 512, 4096), Request { volume: 0, write: false, offset: 8192, bytes: 512 }]
        );
        let tencent = "1538323199,8,16,1,1283\n1538323200,0,1,0,1360\n1538323200,0,1,1,1283\n";
        assert_eq!(
            all(tencent, None).unwrap(),
            [write(4096, 8192), Request { volume: 1, write: false, offset: 0, bytes: 512 }, write(0, 512)]
        );
        let cachelib = "op_time,block_id,block_id_size,io_offset,io_size,op_name\n\
            1,777,40,0,4096,putChunk.Permanent\n2,778,40,8192,1,putChunk.NotInitialized\n3,777,40,0,9,getChunkData.Permanent\n";
        assert_eq!(
            all(cachelib, None).unwrap(),
            [
                write(0, 4096),
                write((40 << 20) + 8192, 1),
                Request { volume: 0, write: false, offset: 0, bytes: 9 }
            ]
        );
    }

    #[test]
    fn requests_without_bytes_are_left_out() {
        assert_eq!(all("1 0 264 0 0\n2 0 264 1 0\n", None).unwrap(), [write(264 * 512, 512)]);
    }

    #[test]
    fn a_wrong_line_is_named_with_its_number_and_the_reason() {
        let flipped = said("1000 0 264 8 0\n2000 0 x 1 1\n");
        assert!(
            flipped.contains("some.csv, line 2")
                && flipped.contains("first sector")
                && flipped.contains("\"x\""),
            "{flipped}"
        );
        let cut = said("1,wdev,1,Write,0,4096,1\n1,wdev,1,Write\n");
        assert!(cut.contains("line 2") && cut.contains("7 fields") && cut.contains("got 4"), "{cut}");
        let verb = said("1,wdev,1,Write,0,4096,1\n1,wdev,1,Trim,0,4096,1\n");
        assert!(verb.contains("Read or Write") && verb.contains("Trim"), "{verb}");
        let far = said("1000 0 18446744073709551615 8 0\n");
        assert!(far.contains("line 1") && far.contains("2^64"), "{far}");
        let columns = said("op_time,block_id,io_size,op_name\n1,2,3,putChunk.Temp\n");
        assert!(columns.contains("line 1") && columns.contains("io_offset"), "{columns}");
        assert!(said("what is this").contains("a line of msr, cloudphysics, ssdsim, tencent, cachelib"));
        assert!(said("").contains("line 1"));
        assert!("zip".parse::<Format>().unwrap_err().contains("msr, cloudphysics"));
    }

    #[test]
    fn the_format_that_was_asked_for_counts() {
        let wrong = all("1000 0 264 8 0\n", Some(Format::Msr)).unwrap_err().to_string();
        assert!(wrong.contains("7 fields"), "{wrong}");
    }

    #[test]
    fn packed_files_are_unpacked_and_damage_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("t.txt");
        std::fs::write(&plain, "1000 0 264 8 0\n".repeat(20_000)).unwrap();
        let packed = Command::new("gzip").arg("-k").arg(&plain).status().unwrap();
        assert!(packed.success());
        let packed = dir.path().join("t.txt.gz");
        assert_eq!(Trace::open(&packed, None).unwrap().filter(Result::is_ok).count(), 20_000);
        let bytes = std::fs::read(&packed).unwrap();
        std::fs::write(&packed, &bytes[..bytes.len() - 9]).unwrap();
        let outcome: Result<Vec<Request>> = Trace::open(&packed, None).unwrap().collect();
        assert!(outcome.is_err(), "a line is cut, or gzip says that the file is");
        assert!(Trace::open(&dir.path().join("none"), None).unwrap_err().to_string().contains("cannot open"));
    }
}
