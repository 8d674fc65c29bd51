//! Forms that browsers post: `${filename}` in the key of the object stands for the name of the file (AWS, Browser-Based Uploads Using POST). The
//! library takes the key as it stands, so the name is put there before. It does not read the field `tagging` either, which is read here and
//! travels beside the form: the form's policy speaks of the field by its own name, so it cannot be renamed.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, header};
use memchr::memmem::find;
use s3s::dto::Tagging;
use s3s::xml::{Deserialize, Deserializer};
use s3s::{S3ErrorCode, S3Result};

use crate::error::because;
use crate::{names, tags};

const VARIABLE: &str = "${filename}";

/// The tags in the field `tagging` of a form, as `tags::form` writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FormTags(pub String);

/// A form with the name of its file in its key.
///
/// # Errors
/// `KeyTooLongError`, before anything is made of it: a short form could ask for a very long key.
pub(crate) fn named(headers: &HeaderMap, form: Bytes) -> S3Result<Bytes> {
    let Some(Fields { key: Some(at), file: Some(file), .. }) = fields(headers, &form) else {
        return Ok(form);
    };
    let Ok(key) = str::from_utf8(&form[at.clone()]) else { return Ok(form) };
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

/// The tags that a form asks for in its field `tagging`, in the XML of `PutObjectTagging`.
///
/// # Errors
/// `MalformedXML`; `InvalidTag`.
pub(crate) fn tagging(headers: &HeaderMap, form: &[u8]) -> S3Result<Option<FormTags>> {
    let Some(at) = fields(headers, form).and_then(|fields| fields.tagging) else { return Ok(None) };
    let mut xml = Deserializer::new(&form[at]);
    let read = Tagging::deserialize(&mut xml).and_then(|read| xml.expect_eof().map(|()| read));
    let read = read.map_err(|error| {
        because(S3ErrorCode::MalformedXML, format!("tagging: expected a document Tagging: {error}"))
    })?;
    tags::from_set(read.tag_set, tags::OF_OBJECT).map(|tags| Some(FormTags(tags)))
}

/// Fields of a form that stand before its file: where their values are. Of several with a name it is the last one, as for the library.
#[derive(Default)]
struct Fields<'f> {
    key: Option<Range<usize>>,
    tagging: Option<Range<usize>>,
    /// The name of the file, without the folders that some browsers tell.
    file: Option<&'f str>,
}

/// The fields of a form; `None` if it has no file. What stands behind the file is none.
fn fields<'f>(headers: &HeaderMap, form: &'f [u8]) -> Option<Fields<'f>> {
    let delimiter = format!("\r\n--{}", boundary(headers)?);
    // The first one stands at the beginning of the form, or behind a preamble.
    let first = &delimiter[2..];
    let mut at = find(form, first.as_bytes())? + first.len();
    let mut fields = Fields::default();
    loop {
        let body = at + find(&form[at..], b"\r\n\r\n")? + 4;
        let head = str::from_utf8(&form[at..body]).ok()?;
        let name = parameter(head, "name")?;
        if name.eq_ignore_ascii_case("file") {
            let file = parameter(head, "filename");
            fields.file = file.and_then(|file| file.rsplit(['/', '\\']).next());
            return Some(fields);
        }
        let end = body + find(&form[body..], delimiter.as_bytes())?;
        if name.eq_ignore_ascii_case("key") {
            fields.key = Some(body..end);
        } else if name.eq_ignore_ascii_case("tagging") {
            fields.tagging = Some(body..end);
        }
        at = end + delimiter.len();
    }
}

/// What stands between the parts of a form.
fn boundary(headers: &HeaderMap) -> Option<&str> {
    let kind = str::from_utf8(headers.get(header::CONTENT_TYPE)?.as_bytes()).ok()?;
    let (_, boundary) = kind.split_once("boundary=")?;
    Some(boundary.split(';').next()?.trim().trim_matches('"'))
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

    #[test]
    fn tags_are_read_from_their_field() {
        let mut headers = HeaderMap::new();
        headers
            .insert(header::CONTENT_TYPE, http::HeaderValue::from_static("multipart/form-data; boundary=x"));
        let asked = |name: &str, value: &str| {
            let field = format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
            let read = tagging(&headers, (field + &posted("k", "a.txt")).as_bytes());
            read.map(|tags| tags.map(|FormTags(text)| text)).map_err(|error| error.code().as_str().to_owned())
        };
        let tag = "<Tag><Key>a b</Key><Value>1&amp;2</Value></Tag>";
        let document = |tags: &str| format!("<Tagging><TagSet>{tags}</TagSet></Tagging>");
        assert_eq!(asked("Tagging", &document(tag)), Ok(Some("a%20b=1%262".to_owned())));
        assert_eq!(asked("tagging", &document("")), Ok(Some(String::new())));
        assert_eq!(asked("acl", &document(tag)), Ok(None));
        for wrong in ["", "a=b", "<Tagging>", "<Other/>", &(document(tag) + "<Tagging/>")] {
            assert_eq!(asked("tagging", wrong), Err("MalformedXML".to_owned()), "{wrong}");
        }
        assert_eq!(asked("tagging", &document(&tag.repeat(2))), Err("InvalidTag".to_owned()));
    }
}
