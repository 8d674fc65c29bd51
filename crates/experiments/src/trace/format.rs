//! The published formats. A new one is a variant, a name and a function that reads a line.

use std::collections::HashMap;
use std::str::FromStr;

use super::Request;

const SECTOR_BYTES: u64 = 512;

/// Blocks of Meta's block storage, as CacheLib's traces of it say.
const CACHELIB_BLOCK_BYTES: u64 = 40 << 20;

/// How the lines of a trace are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Microsoft Cambridge: timestamp,host,disk,Read|Write,offset,bytes,response time.
    Msr,
    /// CloudPhysics, as in libCacheSim's sample: version,time,SCSI operation code,bytes,first sector.
    CloudPhysics,
    /// SSDSim: time device first-sector sectors type, where type 0 is a write.
    SsdSim,
    /// Tencent: time,first sector,sectors,type,volume, where type 1 is a write.
    Tencent,
    /// CacheLib's traces of block storage: columns by name, in any order; putChunk is a write.
    CacheLib,
}

const NAMES: [(&str, Format); 5] = [
    ("msr", Format::Msr),
    ("cloudphysics", Format::CloudPhysics),
    ("ssdsim", Format::SsdSim),
    ("tencent", Format::Tencent),
    ("cachelib", Format::CacheLib),
];

impl Format {
    pub(super) fn names() -> String {
        NAMES.map(|(name, _)| name).join(", ")
    }

    /// The format that the first line looks like.
    pub(super) fn of_line(line: &str) -> Option<Self> {
        let line = line.trim();
        let commas = line.split(',').count();
        let numbers = |separator: char, count: usize| {
            let mut fields = line.split(separator).filter(|field| !field.is_empty());
            fields.clone().count() == count && fields.all(|field| field.trim().parse::<f64>().is_ok())
        };
        match commas {
            _ if line.contains("block_id") && line.contains("op_name") => Some(Self::CacheLib),
            5 if line.starts_with("version") => Some(Self::CloudPhysics),
            7 => Some(Self::Msr),
            5 if numbers(',', 5) => Some(Self::Tencent),
            1 if numbers(' ', 5) => Some(Self::SsdSim),
            _ => None,
        }
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text).map(|(_, format)| *format);
        found.ok_or_else(|| format!("expected one of {}, got {text:?}", Self::names()))
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(NAMES.iter().find(|(_, format)| format == self).map_or("", |(name, _)| name))
    }
}

/// What was expected, and what came.
type Wrong = (String, String);

/// Reads lines of one format, and numbers what they name.
pub(super) struct Parser {
    pub format: Format,
    /// Volumes, or blocks of CacheLib, in order of appearance.
    numbers: HashMap<String, u32>,
    /// Which column is block_id, io_offset, io_size, op_name.
    columns: Option<[usize; 4]>,
}

impl Parser {
    pub fn new(format: Format) -> Self {
        Self { format, numbers: HashMap::new(), columns: None }
    }

    /// The request of a line; none for headings, empty lines and requests without bytes.
    pub fn line(&mut self, line: &str) -> Result<Option<Request>, Wrong> {
        if line.trim().is_empty() {
            return Ok(None);
        }
        let request = match self.format {
            Format::Msr => Some(self.msr(line)?),
            Format::CloudPhysics if line.starts_with("version") => None,
            Format::CloudPhysics => Some(cloud_physics(line)?),
            Format::SsdSim => Some(self.ssdsim(line)?),
            Format::Tencent => Some(self.tencent(line)?),
            Format::CacheLib => self.cachelib(line)?,
        };
        if let Some(Request { offset, bytes, .. }) = request
            && offset.checked_add(bytes).is_none()
        {
            return Err(("an end below 2^64".into(), format!("{bytes} bytes from {offset}")));
        }
        Ok(request.filter(|request| request.bytes > 0))
    }

    fn number(&mut self, name: &str) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(name.to_owned()).or_insert(next)
    }

    fn msr(&mut self, line: &str) -> Result<Request, Wrong> {
        let [_, host, disk, verb, offset, bytes, _] = fields(line.split(','))?;
        let write = match verb.to_ascii_lowercase().as_str() {
            "write" => true,
            "read" => false,
            _ => return Err(("Read or Write".into(), verb.into())),
        };
        let volume = self.number(&format!("{host},{disk}"));
        Ok(Request { volume, write, offset: integer("offset", offset)?, bytes: integer("size", bytes)? })
    }

    fn ssdsim(&mut self, line: &str) -> Result<Request, Wrong> {
        let [_, device, first, sectors, kind] = fields(line.split_ascii_whitespace())?;
        let write = flag(kind, "0", "1")?;
        let volume = self.number(device);
        sectors_of(volume, write, first, sectors)
    }

    fn tencent(&mut self, line: &str) -> Result<Request, Wrong> {
        let [_, first, sectors, kind, volume] = fields(line.split(','))?;
        let write = flag(kind, "1", "0")?;
        let volume = self.number(volume);
        sectors_of(volume, write, first, sectors)
    }

    fn cachelib(&mut self, line: &str) -> Result<Option<Request>, Wrong> {
        let plain = line.trim_start_matches('#');
        let of_line: Vec<&str> = match plain.contains(',') {
            true => plain.split(',').map(str::trim).collect(),
            false => plain.split_ascii_whitespace().collect(),
        };
        let Some([block, offset, bytes, verb]) = self.columns else {
            let column = |name: &str| {
                let at = of_line.iter().position(|field| *field == name);
                at.ok_or_else(|| (format!("a heading with the column {name}"), line.to_owned()))
            };
            self.columns =
                Some([column("block_id")?, column("io_offset")?, column("io_size")?, column("op_name")?]);
            return Ok(None);
        };
        let field = |at: usize| {
            let found = of_line.get(at).copied();
            found.ok_or_else(|| (format!("{} fields or more", at + 1), of_line.len().to_string()))
        };
        let verb = field(verb)?;
        let write = verb.starts_with("putChunk");
        if !write && !verb.starts_with("getChunkData") {
            return Err(("putChunk... or getChunkData...".into(), verb.into()));
        }
        let (offset, bytes) = (integer("io_offset", field(offset)?)?, integer("io_size", field(bytes)?)?);
        if offset.checked_add(bytes).is_none_or(|end| end > CACHELIB_BLOCK_BYTES) {
            let expected = format!("an end within a block of {CACHELIB_BLOCK_BYTES} bytes");
            return Err((expected, format!("{bytes} bytes from {offset}")));
        }
        let base = u64::from(self.number(field(block)?)) * CACHELIB_BLOCK_BYTES;
        Ok(Some(Request { volume: 0, write, offset: base + offset, bytes }))
    }
}

/// SCSI operation codes that read and write, in their forms of 6, 10, 12 and 16 bytes, and write-and-verify.
const READS: [&str; 4] = ["8", "28", "a8", "88"];
const WRITES: [&str; 7] = ["a", "2a", "aa", "8a", "2e", "ae", "8e"];

fn cloud_physics(line: &str) -> Result<Request, Wrong> {
    let [_, _, verb, bytes, first] = fields(line.split(','))?;
    let code = verb.trim_start_matches('0').to_ascii_lowercase();
    let write = WRITES.contains(&code.as_str());
    if !write && !READS.contains(&code.as_str()) {
        return Err(("a SCSI code that reads (28) or writes (2a)".into(), verb.into()));
    }
    let offset = integer("first sector", first)?.checked_mul(SECTOR_BYTES);
    let offset = offset.ok_or_else(|| ("a first sector below 2^64 bytes".to_owned(), first.to_owned()))?;
    Ok(Request { volume: 0, write, offset, bytes: integer("size", bytes)? })
}

fn sectors_of(volume: u32, write: bool, first: &str, sectors: &str) -> Result<Request, Wrong> {
    let of = |what: &str, text: &str| {
        let bytes = integer(what, text)?.checked_mul(SECTOR_BYTES);
        bytes.ok_or_else(|| (format!("{what} below 2^64 bytes"), text.to_owned()))
    };
    Ok(Request { volume, write, offset: of("first sector", first)?, bytes: of("sectors", sectors)? })
}

fn fields<'l, const N: usize>(fields: impl Iterator<Item = &'l str>) -> Result<[&'l str; N], Wrong> {
    let fields: Vec<&str> = fields.map(str::trim).collect();
    let count = fields.len();
    fields.try_into().map_err(|_| (format!("{N} fields"), count.to_string()))
}

fn integer(what: &str, text: &str) -> Result<u64, Wrong> {
    text.parse().map_err(|_| (format!("{what}: an integer"), format!("{text:?}")))
}

fn flag(text: &str, yes: &str, no: &str) -> Result<bool, Wrong> {
    match text {
        _ if text == yes => Ok(true),
        _ if text == no => Ok(false),
        _ => Err((format!("type {yes} (write) or {no} (read)"), text.into())),
    }
}
