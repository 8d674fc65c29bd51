//! Listings of objects, in the order of S3: the bytes of the keys.

use kintsu_wire::message::{List, ListPage};
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result};

use crate::bucket::Bucket;
use crate::entry::Entry;
use crate::error::{invalid, of};
use crate::gateway::{self, Gateway};
use crate::names;

/// Most keys and prefixes in one answer.
const MOST_KEYS: i32 = 1000;

/// How many keys and prefixes a request wants at most.
///
/// # Errors
/// `InvalidArgument`: less than none.
pub(crate) fn most(wanted: Option<i32>) -> S3Result<u32> {
    let wanted = wanted.unwrap_or(MOST_KEYS);
    u32::try_from(wanted.min(MOST_KEYS)).map_err(|_| invalid("max-keys", "0 or more", wanted))
}

/// How keys are written in an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    url: bool,
}

impl Shown {
    /// # Errors
    /// `InvalidArgument`: an encoding other than `url`.
    pub(crate) fn new(encoding: Option<&EncodingType>) -> S3Result<Self> {
        match encoding.map(EncodingType::as_str) {
            None => Ok(Self { url: false }),
            Some("url") => Ok(Self { url: true }),
            Some(other) => Err(invalid("encoding-type", "url", other)),
        }
    }

    pub(crate) fn text(self, text: &str) -> String {
        if !self.url {
            return text.to_owned();
        }
        let parts: Vec<_> = text.split('/').map(crate::tags::encoded).collect();
        parts.join("/")
    }
}

/// A page of a listing.
struct Page {
    contents: Vec<Object>,
    prefixes: Vec<CommonPrefix>,
    more: bool,
    /// The last key or prefix.
    last: Option<String>,
}

impl Gateway {
    async fn page(
        &self,
        bucket: &Bucket,
        (prefix, delimiter, after): (&str, &str, Option<&str>),
        most: u32,
        (show, owners): (Shown, bool),
    ) -> S3Result<Page> {
        let base = names::objects(&bucket.name);
        let list = List {
            prefix: format!("{base}{prefix}"),
            after: after.filter(|after| !after.is_empty()).map(|after| format!("{base}{after}")),
            limit: most,
            delimiter: delimiter.to_owned(),
        };
        let page = match most {
            0 => ListPage { objects: Vec::new(), prefixes: Vec::new(), more: false },
            _ => self.client.list_page(list).await.map_err(of)?,
        };
        let key = |name: &str| name.strip_prefix(base.as_str()).unwrap_or(name).to_owned();
        let object = |info: &kintsu_wire::message::ObjectInfo| {
            let entry = Entry(info);
            Object {
                e_tag: Some(entry.tag()),
                key: Some(show.text(&key(&info.name))),
                last_modified: Some(entry.modified()),
                owner: owners.then(|| entry.owner(bucket)),
                size: Some(info.size as i64),
                storage_class: Some(ObjectStorageClass::from(entry.class().to_owned())),
                ..Object::default()
            }
        };
        let prefix = |name: &String| CommonPrefix { prefix: Some(show.text(&key(name))) };
        Ok(Page {
            contents: page.objects.iter().map(object).collect(),
            prefixes: page.prefixes.iter().map(prefix).collect(),
            more: page.more,
            last: page.last().map(key),
        })
    }

    /// `ListObjects`.
    pub(crate) async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let input = request.input;
        let (most, show) = (most(input.max_keys)?, Shown::new(input.encoding_type.as_ref())?);
        let (prefix, delimiter) = (input.prefix.unwrap_or_default(), input.delimiter.unwrap_or_default());
        let marker = input.marker.unwrap_or_default();
        let page = self.page(&bucket, (&prefix, &delimiter, Some(&marker)), most, (show, true)).await?;
        Ok(S3Response::new(ListObjectsOutput {
            name: Some(bucket.name.clone()),
            // Clients decode keys and markers of this answer, but not the prefix.
            prefix: Some(prefix),
            marker: Some(show.text(&marker)),
            max_keys: Some(most as i32),
            is_truncated: Some(page.more),
            contents: Some(page.contents),
            common_prefixes: Some(page.prefixes),
            next_marker: page
                .last
                .filter(|_| page.more && !delimiter.is_empty())
                .map(|last| show.text(&last)),
            delimiter: (!delimiter.is_empty()).then(|| show.text(&delimiter)),
            encoding_type: input.encoding_type,
            ..ListObjectsOutput::default()
        }))
    }

    /// `ListObjectsV2`.
    pub(crate) async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let input = request.input;
        let (most, show) = (most(input.max_keys)?, Shown::new(input.encoding_type.as_ref())?);
        let (prefix, delimiter) = (input.prefix.unwrap_or_default(), input.delimiter.unwrap_or_default());
        let after = match input.continuation_token.as_ref().filter(|token| !token.is_empty()) {
            Some(token) => {
                let known = crate::body::unhex(token).and_then(|bytes| String::from_utf8(bytes).ok());
                let known = known.filter(|key| !key.is_empty());
                Some(known.ok_or_else(|| invalid("continuation-token", "one from an answer", token))?)
            }
            None => input.start_after.clone(),
        };
        let owners = input.fetch_owner.unwrap_or(false);
        let page = self.page(&bucket, (&prefix, &delimiter, after.as_deref()), most, (show, owners)).await?;
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(bucket.name.clone()),
            prefix: Some(show.text(&prefix)),
            max_keys: Some(most as i32),
            key_count: Some((page.contents.len() + page.prefixes.len()) as i32),
            continuation_token: input.continuation_token,
            is_truncated: Some(page.more),
            next_continuation_token: page
                .last
                .filter(|_| page.more)
                .map(|last| crate::body::hex(last.as_bytes())),
            contents: Some(page.contents),
            common_prefixes: Some(page.prefixes),
            delimiter: (!delimiter.is_empty()).then(|| show.text(&delimiter)),
            encoding_type: input.encoding_type,
            start_after: input.start_after.map(|text| show.text(&text)),
            ..ListObjectsV2Output::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_as_asked() {
        let url = Shown::new(Some(&EncodingType::from("url".to_owned()))).unwrap();
        assert_eq!(url.text("a b/c+d/é"), "a%20b/c%2Bd/%C3%A9");
        assert_eq!(Shown::new(None).unwrap().text("a b"), "a b");
        assert!(Shown::new(Some(&EncodingType::from("x".to_owned()))).is_err());
        assert_eq!((most(None).unwrap(), most(Some(5000)).unwrap(), most(Some(0)).unwrap()), (1000, 1000, 0));
        assert!(most(Some(-1)).is_err());
    }
}
