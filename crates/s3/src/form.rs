//! Forms that browsers post: `${filename}` in the key of the object stands for the name of the file (AWS, Browser-Based Uploads Using POST). The
//! library takes the key as it stands, so the name is put there before.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, header};
use memchr::memmem::find;

const VARIABLE: &str = "${filename}";

/// A form with the name of its file in its key.
pub(crate) fn named(headers: &HeaderMap, form: Bytes) -> Bytes {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let Some((_, boundary)) = kind.split_once("boundary=") else { return form };
    let boundary = boundary.split(';').next().unwrap_or_default().trim().trim_matches('"');
    let Some((keys, file)) = fields(boundary, &form) else { return form };
    let mut out = Vec::with_capacity(form.len() + keys.len() * file.len());
    let mut at = 0;
    for key in keys {
        let Ok(text) = str::from_utf8(&form[key.clone()]) else { continue };
        out.extend_from_slice(&form[at..key.start]);
        out.extend_from_slice(text.replace(VARIABLE, file).as_bytes());
        at = key.end;
    }
    out.extend_from_slice(&form[at..]);
    out.into()
}

/// Where the keys are that want a name, and the name, without the folders that some browsers tell. What stands behind the file is none of
/// them; `None` if there is no such key or name.
fn fields<'f>(boundary: &str, form: &'f [u8]) -> Option<(Vec<Range<usize>>, &'f str)> {
    let delimiter = format!("\r\n--{boundary}");
    // The first one stands at the beginning of the form, or behind a preamble.
    let first = &delimiter[2..];
    let mut at = find(form, first.as_bytes())? + first.len();
    let mut keys = Vec::new();
    loop {
        let body = at + find(form.get(at..)?, b"\r\n\r\n")? + 4;
        let head = str::from_utf8(&form[at..body]).ok()?;
        let name = parameter(head, "name")?;
        if name.eq_ignore_ascii_case("file") {
            let file = parameter(head, "filename")?.rsplit(['/', '\\']).next()?;
            return (!keys.is_empty()).then_some((keys, file));
        }
        let end = body + find(&form[body..], delimiter.as_bytes())?;
        if name.eq_ignore_ascii_case("key") && find(&form[body..end], VARIABLE.as_bytes()).is_some() {
            keys.push(body..end);
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
        String::from_utf8(named(&headers, Bytes::copy_from_slice(form.as_bytes())).to_vec()).unwrap()
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
    fn what_is_no_such_form_stays_as_it_is() {
        let form = posted("${filename}", "lake.jpg");
        assert_eq!(after(&form, "multipart/form-data"), form);
        assert_eq!(after(&form, "multipart/form-data; boundary=y"), form);
        for end in 0..form.find("\r\n\r\n${filename} name").unwrap() + 4 {
            assert_eq!(after(&form[..end], "multipart/form-data; boundary=x"), form[..end], "{end}");
        }
    }
}
