//! Quantities as people write them: bytes with units, byte ranges, durations.

use std::str::FromStr;
use std::time::Duration;

/// A number of bytes: `4096`, `32KiB`, `1MB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let expected = || format!("expected a number of bytes such as 4096, 32KiB or 1MB, got {s:?}");
        let digits = s.len() - s.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = s[..digits].parse().map_err(|_| expected())?;
        let unit: u64 = match s[digits..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(expected()),
        };
        number.checked_mul(unit).map(Self).ok_or_else(expected)
    }
}

impl Bytes {
    /// As a `u32`, for slices and cells.
    ///
    /// # Errors
    /// When it does not fit or is zero.
    pub fn as_u32(self, what: &str) -> anyhow::Result<u32> {
        u32::try_from(self.0)
            .ok()
            .filter(|&b| b > 0)
            .ok_or_else(|| anyhow::anyhow!("{what}: expected 1 to {} bytes, got {}", u32::MAX, self.0))
    }
}

/// The size of a slice: `auto`, or a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice(pub Option<u32>);

impl FromStr for Slice {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        if s == "auto" {
            return Ok(Self(None));
        }
        let bytes: Bytes = s.parse().map_err(|wrong| format!("{wrong}, or auto"))?;
        bytes.as_u32("slice").map(|bytes| Self(Some(bytes))).map_err(|wrong| wrong.to_string())
    }
}

/// `A-B` with both ends included, or `A-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub first: u64,
    /// Last byte; `None` for the end of the object.
    pub last: Option<u64>,
}

impl FromStr for ByteRange {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let expected = || format!("expected A-B with A <= B, or A-, got {s:?}");
        let (first, last) = s.split_once('-').ok_or_else(expected)?;
        let first = first.parse().map_err(|_| expected())?;
        let last = if last.is_empty() { None } else { Some(last.parse().map_err(|_| expected())?) };
        if last.is_some_and(|last| last < first || last == u64::MAX) {
            return Err(expected());
        }
        Ok(Self { first, last })
    }
}

/// `500ms`, `60s`, `10m`, `2h`, or a plain number of seconds.
pub fn parse_duration(s: &str) -> Result<Duration, String> {
    let expected = || format!("expected a duration such as 500ms, 60s, 10m, 2h or 7d, got {s:?}");
    let digits = s.len() - s.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = s[..digits].parse().map_err(|_| expected())?;
    let ms = match &s[digits..] {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(expected()),
    };
    number.checked_mul(ms).map(Duration::from_millis).ok_or_else(expected)
}

/// A moment for people, from seconds since 1970: `2026-03-01 12:34:56 UTC`.
pub fn moment(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March, in eras of 400 years; Howard Hinnant, "chrono-compatible low-level date algorithms".
    let from_march = days + 719_468;
    let (era, day) = (from_march / 146_097, from_march % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) =
        if month < 10 { (era * 400 + year, month + 3) } else { (era * 400 + year + 1, month - 9) };
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// A duration for people, in the largest unit that gives 2 or more.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Bytes for people, in binary units with three digits.
pub fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1000.0 || unit == "TiB" {
            let digits = if unit == "B" || value >= 100.0 {
                0
            } else if value >= 10.0 {
                1
            } else {
                2
            };
            return format!("{value:.digits$} {unit}");
        }
        value /= 1024.0;
    }
    unreachable!("the last unit returns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_with_units() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("32KiB", 32768), ("1 MiB", 1 << 20), ("1MB", 1_000_000)]
        {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "KiB", "-1", "1.5MiB", "3 parsecs", "99999999999TiB"] {
            assert!(text.parse::<Bytes>().unwrap_err().contains("expected"), "{text}");
        }
    }

    #[test]
    fn slices_are_given_or_chosen() {
        assert_eq!("auto".parse(), Ok(Slice(None)));
        assert_eq!("32KiB".parse(), Ok(Slice(Some(32768))));
        for text in ["", "0", "8GiB", "automatic"] {
            assert!(text.parse::<Slice>().unwrap_err().contains("expected"), "{text}");
        }
    }

    #[test]
    fn ranges_include_both_ends() {
        assert_eq!("0-9".parse(), Ok(ByteRange { first: 0, last: Some(9) }));
        assert_eq!("7-".parse(), Ok(ByteRange { first: 7, last: None }));
        for text in ["", "-", "5", "9-0", "a-b", "-5", "0-18446744073709551615"] {
            assert!(text.parse::<ByteRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn moments_and_spans_for_people() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_772_368_496, "2026-03-01 12:34:56 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(moment(seconds), text);
        }
        assert_eq!([span(9), span(180), span(7200), span(172_800)], ["9 s", "3 min", "2 h", "2 days"]);
    }

    #[test]
    fn durations_and_sizes_for_people() {
        assert_eq!(parse_duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("7d"), Ok(Duration::from_secs(604_800)));
        assert!(parse_duration("soon").is_err());
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1536), "1.50 KiB");
        assert_eq!(human(64 << 20), "64.0 MiB");
    }
}
