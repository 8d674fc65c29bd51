//! Tags of objects and buckets. They are kept as a form: `key=value&key=value`, percent-encoded.

use s3s::dto::{Tag, TagSet};
use s3s::{S3ErrorCode, S3Result};

use crate::error::because;

/// Most tags of an object.
pub(crate) const OF_OBJECT: usize = 10;
/// Most tags of a bucket.
pub(crate) const OF_BUCKET: usize = 50;
/// Longest key of a tag, in UTF-16 units as S3 counts.
const KEY_UNITS: usize = 128;
/// Longest value of a tag.
const VALUE_UNITS: usize = 256;

/// The tags in a form.
///
/// # Errors
/// `InvalidArgument`: it is not percent-encoded text.
pub(crate) fn parse(form: &str) -> S3Result<Vec<(String, String)>> {
    let pairs = form.split('&').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decoded(key)?, decoded(value)?))
    };
    pairs.map(pair).collect()
}

/// The form of tags, if they are valid, in the order of their keys.
///
/// # Errors
/// `InvalidTag`: too many; a key twice, too long, or empty; a value too long.
pub(crate) fn form(tags: &[(String, String)], most: usize) -> S3Result<String> {
    if tags.len() > most {
        let text = format!("expected at most {most} tags, got {}", tags.len());
        return Err(because(S3ErrorCode::InvalidTag, text));
    }
    for (i, (key, value)) in tags.iter().enumerate() {
        let units = |text: &str| text.encode_utf16().count();
        if key.is_empty() || units(key) > KEY_UNITS || units(value) > VALUE_UNITS {
            let text = format!(
                "expected keys of 1 to {KEY_UNITS} and values of at most {VALUE_UNITS} characters, got {} and {}",
                units(key),
                units(value)
            );
            return Err(because(S3ErrorCode::InvalidTag, text));
        }
        if tags[..i].iter().any(|(other, _)| other == key) {
            return Err(because(
                S3ErrorCode::InvalidTag,
                format!("expected each key once, got {key:?} twice"),
            ));
        }
    }
    let mut sorted: Vec<_> = tags.iter().collect();
    sorted.sort();
    let pairs = sorted.into_iter().map(|(key, value)| format!("{}={}", encoded(key), encoded(value)));
    Ok(pairs.collect::<Vec<_>>().join("&"))
}

/// Tags from the form that came in a header.
pub(crate) fn from_header(header: Option<&str>) -> S3Result<Option<String>> {
    let Some(header) = header.filter(|header| !header.is_empty()) else { return Ok(None) };
    form(&parse(header)?, OF_OBJECT).map(Some)
}

/// Tags from the body of a request.
pub(crate) fn from_set(set: TagSet, most: usize) -> S3Result<String> {
    let tags: Vec<_> =
        set.into_iter().map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())).collect();
    form(&tags, most)
}

/// Tags for the body of an answer.
pub(crate) fn to_set(form: Option<&str>) -> S3Result<TagSet> {
    let tags = parse(form.unwrap_or_default())?;
    Ok(tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect())
}

/// The text of a percent-encoded form.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn decoded(text: &str) -> S3Result<String> {
    let wrong =
        || because(S3ErrorCode::InvalidArgument, format!("expected percent-encoded text, got {text:?}"));
    let (mut out, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next()), digit(rest.next()));
                let (Some(high), Some(low)) = (high, low) else { return Err(wrong()) };
                (high * 16 + low) as u8
            }
            other => other,
        });
    }
    String::from_utf8(out).map_err(|_| wrong())
}

/// Percent-encodes all but letters, digits and `-._~`.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_back_as_they_were() {
        let tags = [("%", "/"), ("a b", "1+1=2&c"), ("日本", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(parse(&form(&tags, 3).unwrap()).unwrap(), tags);
        assert_eq!(parse("a+b=c%2bd").unwrap(), [("a b".to_owned(), "c+d".to_owned())]);
    }

    #[test]
    fn wrong_tags_are_refused() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        for wrong in [
            vec![pair("", "v")],
            vec![pair(&"k".repeat(129), "")],
            vec![pair("k", &"v".repeat(257))],
            vec![pair("k", "1"), pair("k", "2")],
            vec![pair("a", ""), pair("b", ""), pair("c", ""), pair("d", "")],
        ] {
            assert!(form(&wrong, 3).is_err(), "{wrong:?}");
        }
        assert!(parse("a=%2").is_err() && parse("a=%ff").is_err());
    }
}
