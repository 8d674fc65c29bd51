//! Checksums of objects that came in parts: which kind they get, and how that of the whole follows from those of the parts.

use std::collections::BTreeMap;

use kintsu_client::joined_checksum;
use kintsu_wire::message::ObjectInfo;
use s3s::crypto::{Checksum as _, Sha1, Sha256};
use s3s::dto::{Checksum, ChecksumType};
use s3s::{S3ErrorCode, S3Result};

use crate::body::{base64, to_base64};
use crate::entry::{Entry, algorithms, sum_facts, values};
use crate::error::because;

/// Compares what a client says of the whole with what was found.
///
/// # Errors
/// `BadDigest`.
pub(crate) fn check(claimed: &Checksum, facts: &BTreeMap<String, String>) -> S3Result<()> {
    for (claim, name) in values(claimed).into_iter().zip(sum_facts()) {
        let found = facts.get(name);
        if let Some(claim) = claim.filter(|claim| found != Some(claim)) {
            let found = found.map_or("none", String::as_str);
            let text =
                format!("checksum {name} of the whole: the client says {claim}, the parts give {found}");
            return Err(because(S3ErrorCode::BadDigest, text));
        }
    }
    Ok(())
}

/// Longest text of the checksums of parts that is kept.
const PART_SUMS_BYTES: usize = 16 << 10;

/// The checksums of parts, as the object keeps them: none if that would be too long.
pub(crate) fn of_parts(algorithm: &str, parts: &[&ObjectInfo]) -> Option<String> {
    let place = algorithms().iter().position(|name| *name == algorithm)?;
    let sums = parts.iter().map(|part| values(&Entry(part).sums())[place].cloned());
    let text = format!("{} {}", sum_facts()[place], sums.collect::<Option<Vec<_>>>()?.join(","));
    (text.len() <= PART_SUMS_BYTES).then_some(text)
}

/// The checksum of a part of an object, from 1.
pub(crate) fn of_part(entry: Entry<'_>, part: usize) -> Checksum {
    let Some((place, sum)) = entry.part_sum(part) else { return Checksum::default() };
    Checksum { checksum_type: entry.sums().checksum_type, ..named(algorithms()[place], sum) }
}

/// A checksum as that of its algorithm.
pub(crate) fn named(algorithm: &str, sum: String) -> Checksum {
    let mut sums = Checksum::default();
    match algorithm {
        "CRC32" => sums.checksum_crc32 = Some(sum),
        "CRC32C" => sums.checksum_crc32c = Some(sum),
        "CRC64NVME" => sums.checksum_crc64nvme = Some(sum),
        "SHA1" => sums.checksum_sha1 = Some(sum),
        _ => sums.checksum_sha256 = Some(sum),
    }
    sums
}

/// What kind of checksum an object of parts gets.
///
/// # Errors
/// `InvalidRequest`: one that cannot be computed.
pub(crate) fn sum_type(algorithm: Option<&str>, wanted: Option<&str>) -> S3Result<Option<&'static str>> {
    let bad = |text: String| Err(because(S3ErrorCode::InvalidRequest, text));
    let Some(algorithm) = algorithm else {
        return match wanted {
            Some(_) => bad("x-amz-checksum-type: expected an algorithm with it".to_owned()),
            None => Ok(None),
        };
    };
    if !algorithms().contains(&algorithm) {
        return bad(format!("expected a checksum of {}, got {algorithm}", algorithms().join(", ")));
    }
    match (algorithm, wanted) {
        ("CRC64NVME", None | Some(ChecksumType::FULL_OBJECT))
        | ("CRC32" | "CRC32C", Some(ChecksumType::FULL_OBJECT)) => Ok(Some(ChecksumType::FULL_OBJECT)),
        ("CRC32" | "CRC32C" | "SHA1" | "SHA256", None | Some(ChecksumType::COMPOSITE)) => {
            Ok(Some(ChecksumType::COMPOSITE))
        }
        (_, other) => bad(format!("{algorithm} has no checksum of type {}", other.unwrap_or_default())),
    }
}

/// The checksum of the whole from those of its parts.
pub(crate) fn whole_sum(algorithm: &str, full: bool, parts: &[&ObjectInfo]) -> S3Result<String> {
    let index = algorithms().iter().position(|name| *name == algorithm);
    let sum = |part: &ObjectInfo| {
        let sums = Entry(part).sums();
        let value = index.and_then(|index| values(&sums)[index].cloned());
        value.and_then(|text| base64(text.as_bytes()))
    };
    let missing = || because(S3ErrorCode::InvalidRequest, format!("a part has no checksum of {algorithm}"));
    let sums = parts.iter().map(|part| sum(part)).collect::<Option<Vec<_>>>().ok_or_else(missing)?;
    if !full {
        let all = sums.concat();
        let whole = match algorithm {
            "CRC32" => s3s::crypto::Crc32::checksum(&all).to_vec(),
            "CRC32C" => s3s::crypto::Crc32c::checksum(&all).to_vec(),
            "SHA1" => Sha1::checksum(&all).to_vec(),
            _ => Sha256::checksum(&all).to_vec(),
        };
        return Ok(format!("{}-{}", to_base64(&whole), parts.len()));
    }
    let number = |bytes: &Vec<u8>| bytes.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    let numbers = sums.iter().map(number).zip(parts.iter().map(|part| part.size));
    Ok(match algorithm {
        "CRC64NVME" => {
            let whole = joined_checksum(numbers.map(|(sum, len)| (kintsu_wire::message::Checksum(sum), len)));
            to_base64(&whole.0.to_be_bytes())
        }
        _ => {
            let polynomial = if algorithm == "CRC32" { 0xedb8_8320 } else { 0x82f6_3b78 };
            let join = |whole: u32, (sum, len): (u64, u64)| shifted(whole, len, polynomial) ^ sum as u32;
            to_base64(&numbers.fold(0, join).to_be_bytes())
        }
    })
}

/// `value` x^(8 bytes) mod P, where the highest bit is the coefficient of x^0 and P is given without x^32: what a CRC
/// becomes when this many zero bytes follow.
fn shifted(value: u32, bytes: u64, polynomial: u32) -> u32 {
    let multiply = |a: u32, mut b: u32| {
        let (mut product, mut bit) = (0, 1u32 << 31);
        while bit != 0 {
            if a & bit != 0 {
                product ^= b;
            }
            b = if b & 1 != 0 { (b >> 1) ^ polynomial } else { b >> 1 };
            bit >>= 1;
        }
        product
    };
    // x^8.
    let (mut value, mut power, mut rest) = (value, 1u32 << 23, bytes);
    while rest != 0 {
        if rest & 1 != 0 {
            value = multiply(value, power);
        }
        power = multiply(power, power);
        rest >>= 1;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::note_sums;
    use s3s::crypto::{Crc32, Crc32c};

    fn part(number: i32, bytes: &[u8]) -> ObjectInfo {
        let mut facts = BTreeMap::new();
        let sums = Checksum {
            checksum_crc32: Some(to_base64(&Crc32::checksum(bytes))),
            checksum_crc32c: Some(to_base64(&Crc32c::checksum(bytes))),
            ..Default::default()
        };
        note_sums(&mut facts, &sums);
        crate::entry::fixture::stored(format!(".s3/part/u/{number:05}"), bytes.len() as u64, facts)
    }

    #[test]
    fn the_checksum_of_the_whole_is_that_of_all_bytes() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        let parts: Vec<_> =
            bytes.chunks(300).enumerate().map(|(i, bytes)| part(i as i32 + 1, bytes)).collect();
        let parts: Vec<_> = parts.iter().collect();
        assert_eq!(whole_sum("CRC32", true, &parts).unwrap(), to_base64(&Crc32::checksum(&bytes)));
        assert_eq!(whole_sum("CRC32C", true, &parts).unwrap(), to_base64(&Crc32c::checksum(&bytes)));
        assert!(whole_sum("CRC32", false, &parts).unwrap().ends_with("-4"));
        assert!(whole_sum("SHA1", false, &parts).is_err(), "the parts have none");
    }
}
