//! Forms that browsers post: `${filename}` in the key of the object stands for the name of the file (AWS, Browser-Based Uploads Using POST). The
//! library takes the key as it stands, so the name is put there before.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, header};
use memchr::memmem::find;
use s3s::S3Result;

use crate::names;

const VARIABLE: &str = "${filename}";

/// A form with the name of its file in its key.
///
/// # Errors
/// `KeyTooLongError`, before anything is made of it: a short form could ask for a very long key.
pub(crate) fn named(headers: &HeaderMap, form: Bytes) -> S3Result<Bytes> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| str::from_utf8(kind.as_bytes()).ok());
    let kind = kind.unwrap_or_default();
    let Some((_, boundary)) = kind.split_once("boundary=") else { return Ok(form) };
    let boundary = boundary.split(';').next().unwrap_or_default().trim().trim_matches('"');
    let Some((at, key, file)) = key_and_file(boundary, &form) else { return Ok(form) };
    let uses = key.matches(VARIABLE).count();
    if uses == 0 {
        return Ok(form);
    }
    let len = (key.len() - uses * VARIABLE.len()).saturating_add(uses.saturating_mul(file.len()));
    if len > names::KEY_BYTES {
        return Err(names::too_long(len));
    }
    let key = key.replace(VARIABLE, file);
    Ok([&form[..at.start], key.as_bytes(), &form[at.end..]].concat().into())
}

/// The key of a form, where it stands, and the name of its file without the folders that some browsers tell. Of several keys it is the last one, as for
/// the library. What stands behind the file is none; `None` if there is no key or no name.
fn key_and_file<'f>(boundary: &str, form: &'f [u8]) -> Option<(Range<usize>, &'f str, &'f str)> {
    let delimiter = format!("\r\n--{boundary}");
    // The first one stands at the beginning of the form, or behind a preamble.
    let first = &delimiter[2..];
    let mut at = find(form, first.as_bytes())? + first.len();
    let mut key = None;
    loop {
        let body = at + find(&form[at..], b"\r\n\r\n")? + 4;
        let head = str::from_utf8(&form[at..body]).ok()?;
        let name = parameter(head, "name")?;
        if name.eq_ignore_ascii_case("file") {
            let file = parameter(head, "filename")?.rsplit(['/', '\\']).next()?;
            let key: Range<usize> = key?;
            return Some((key.clone(), str::from_utf8(&form[key]).ok()?, file));
        }
        let end = body + find(&form[body..], delimiter.as_bytes())?;
        if name.eq_ignore_ascii_case("key") {
            key = Some(body..end);
        }
        at = end + delimiter.len();
    }
}

/// A parameter in quotes of the header `Content-Disposition`.
fn parameter<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let line = head.lines().find(|line| {
        line.split_once(':').is_some_and(|(header, _)| header.eq_ignore_ascii_case("content-disposition"))
    })?;
    let (_, after) = line.split_once(&format!("; {name}=\""))?;
    after.split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(key: &str, file: &str) -> String {
        let part = |disposition: &str, body: &str| {
            format!(
                "--x\r\nContent-Disposition: form-data; {disposition}\r\nContent-Type: text/plain\r\n\r\n{body}\r\n"
            )
        };
        let fields = part("name=\"acl\"", "${filename}") + &part("name=\"Key\"", key);
        fields
            + &part(&format!("name=\"file\"; filename=\"{file}\""), "${filename} name=\"key\"")
            + "--x--\r\n"
    }

    fn after(form: &str, kind: &'static str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
        let named = named(&headers, Bytes::copy_from_slice(form.as_bytes()));
        named.map_or_else(
            |error| error.code().as_str().to_owned(),
            |form| String::from_utf8(form.to_vec()).unwrap(),
        )
    }

    #[test]
    fn the_name_of_the_file_stands_in_the_key_and_nowhere_else() {
        for (key, file, becomes) in [
            ("photos/${filename}", "lake.jpg", "photos/lake.jpg"),
            ("${filename}", "C:\\photos\\lake.jpg", "lake.jpg"),
            ("${filename}/${filename}", "a;b \u{fc}", "a;b \u{fc}/a;b \u{fc}"),
            ("${filename}", "", ""),
            ("$filename", "lake.jpg", "$filename"),
        ] {
            for kind in
                ["multipart/form-data; boundary=x", "multipart/form-data; boundary=\"x\"; charset=utf-8"]
            {
                assert_eq!(after(&posted(key, file), kind), posted(becomes, file));
            }
        }
    }

    #[test]
    fn a_short_form_makes_no_long_key() {
        let form = |uses: usize, len: usize| posted(&VARIABLE.repeat(uses), &"f".repeat(len));
        let kind = "multipart/form-data; boundary=x";
        assert_eq!(after(&form(4, 256), kind), posted(&"f".repeat(1024), &"f".repeat(256)));
        assert_eq!(after(&form(5, 205), kind), "KeyTooLongError");
        assert_eq!(after(&form(100_000, 100_000), kind), "KeyTooLongError");
    }

    #[test]
    fn of_several_keys_the_last_one_counts() {
        let form = |key: &str| posted("${filename}", "lake.jpg") + &posted(key, "lake.jpg");
        let form = |key: &str| form(key).replacen("name=\"file\"", "name=\"other\"", 1);
        assert_eq!(after(&form("${filename}"), "multipart/form-data; boundary=x"), form("lake.jpg"));
        assert_eq!(after(&form("k"), "multipart/form-data; boundary=x"), form("k"));
    }

    #[test]
    fn what_is_no_such_form_stays_as_it_is() {
        let form = posted("${filename}", "lake.jpg");
        assert_eq!(after(&form, "multipart/form-data"), form);
        assert_eq!(after(&form, "multipart/form-data; boundary=y"), form);
        for end in 0..form.find("\r\n\r\n${filename} name").unwrap() + 4 {
            assert_eq!(after(&form[..end], "multipart/form-data; boundary=x"), form[..end], "{end}");
        }
    }
}
