//! Quantities as descriptions write them: rates, durations, sizes. Prefixes of rates are decimal; `b` is a bit and
//! `B` a byte.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{LabError, Result};

/// The longest IP packet on a link: jumbo frames, as networks of data centres have (9001 on EC2). The kernel sends at least two
/// packets at a time, and what receives from a slow link wakes up for every such pair: with packets of 1500 bytes that takes twice the
/// processor time, which all hosts share.
pub const MTU: u32 = 9000;

/// Bytes on a link for each byte of a TCP stream: a full frame (14 bytes of Ethernet and the packet) by its payload (IP takes 20
/// bytes, TCP with timestamps 32).
pub const WIRE: f64 = (MTU + 14) as f64 / (MTU - 52) as f64;

const LEAST: f64 = 8e3;
const MOST: f64 = 1e12;

/// The rate of a link in bits a second; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(NonZeroU64);

impl Rate {
    /// A rate in bits a second.
    ///
    /// # Errors
    /// `Invalid` for less than 8 kb/s or more than 1 Tb/s.
    pub fn bits(bits_per_second: f64) -> Result<Self> {
        let sound = bits_per_second.is_finite() && (LEAST..=MOST).contains(&bits_per_second);
        let rate = sound.then_some(bits_per_second.round() as u64).and_then(NonZeroU64::new);
        rate.map(Self).ok_or_else(|| {
            LabError::invalid("rate", "8kb/s to 1000Gb/s", format_args!("{bits_per_second} b/s"))
        })
    }

    /// A rate in megabits a second (10^6), the unit of published tables.
    ///
    /// # Errors
    /// As [`Rate::bits`].
    pub fn mbps(megabits_per_second: f64) -> Result<Self> {
        Self::bits(megabits_per_second * 1e6)
    }

    /// Bits a second.
    pub fn as_bits(self) -> u64 {
        self.0.get()
    }

    /// Bytes a second, as planners count; headers included, see [`Rate::payload`].
    pub fn bytes(self) -> NonZeroU64 {
        NonZeroU64::new(self.0.get() / 8).unwrap_or(NonZeroU64::MIN)
    }

    /// Bytes of payload that one TCP stream moves a second at this rate, see [`WIRE`].
    pub fn payload(self) -> f64 {
        self.0.get() as f64 / 8.0 / WIRE
    }

    /// This rate times a factor.
    ///
    /// # Errors
    /// As [`Rate::bits`].
    pub fn scaled(self, factor: f64) -> Result<Self> {
        Self::bits(self.0.get() as f64 * factor)
    }
}

impl FromStr for Rate {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || LabError::invalid("rate", "a number and b/s, kb/s, Mb/s, Gb/s or MB/s", quoted(text));
        let (number, unit) = split(text).ok_or_else(wrong)?;
        Self::bits(number * bits_of(unit).ok_or_else(wrong)?)
    }
}

/// How many bits a second a unit of rate is.
pub(crate) fn bits_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "b/s" => 1.0,
        "kb/s" => 1e3,
        "Mb/s" => 1e6,
        "Gb/s" => 1e9,
        "B/s" => 8.0,
        "kB/s" => 8e3,
        "MB/s" => 8e6,
        "GB/s" => 8e9,
        _ => return None,
    })
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.get() as f64;
        let (value, unit) = match bits {
            b if b >= 1e9 => (b / 1e9, "Gb/s"),
            b if b >= 1e6 => (b / 1e6, "Mb/s"),
            b => (b / 1e3, "kb/s"),
        };
        write!(f, "{value}{unit}")
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// `500ms`, `3s`, `1.5s`, `2m`.
pub(crate) fn duration(what: &str, text: &str) -> Result<Duration> {
    let wrong = || LabError::invalid(what, "a duration such as 500ms, 3s or 2m", quoted(text));
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "s" => number,
        "m" => number * 60.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// `65536`, `64KiB`, `1MiB`.
pub(crate) fn size(what: &str, text: &str) -> Result<u64> {
    let wrong = || LabError::invalid(what, "a size such as 65536, 64KiB or 1MiB", quoted(text));
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let bytes = match unit {
        "" | "B" => number,
        "KiB" => number * 1024.0,
        "MiB" => number * 1048576.0,
        _ => return Err(wrong()),
    };
    if bytes.fract() == 0.0 && bytes < 1e15 { Ok(bytes as u64) } else { Err(wrong()) }
}

/// A number that is not negative, and what follows it.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

pub(crate) fn quoted(text: &str) -> String {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bits_with_decimal_prefixes() {
        for (text, bits) in [
            ("500Mb/s", 500_000_000),
            ("1 Gb/s", 1_000_000_000),
            ("62.5MB/s", 500_000_000),
            ("297.8Mb/s", 297_800_000),
            ("64kb/s", 64_000),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.as_bits(), bits, "{text}");
            assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate, "{rate}");
        }
        assert_eq!("8kb/s".parse::<Rate>().unwrap().bytes().get(), 1000);
        for bad in
            ["", "500", "500mb/s", "Mb/s", "-1Mb/s", "0b/s", "1kb/s", "2000Gb/s", "1.2.3Mb/s", "1 Mb/h"]
        {
            assert!(bad.parse::<Rate>().unwrap_err().to_string().contains("expected"), "{bad}");
        }
        assert!(Rate::mbps(f64::NAN).is_err());
    }

    #[test]
    fn durations_and_sizes() {
        assert_eq!(duration("at", "1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(duration("at", "250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(size("burst", "64KiB").unwrap(), 65536);
        for bad in ["", "3", "s", "-1s", "3h"] {
            assert!(duration("at", bad).is_err(), "{bad}");
        }
        for bad in ["", "KiB", "0.3B", "1MB"] {
            assert!(size("burst", bad).is_err(), "{bad}");
        }
    }
}
