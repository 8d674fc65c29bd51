//! Conditions of policies: what a request says (headers, query, address, tags) compared with what a statement wants.
//!
//! Operators and keys that are not in the tables here are refused when a policy is set: to leave a condition out would
//! allow more than was meant.

use std::net::IpAddr;

use http::HeaderMap;
use kintsu_wire::TrustedNetwork;
use serde_json::Value;

use crate::keys::matches;

/// What a request says that conditions may ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances<'a> {
    pub headers: &'a HeaderMap,
    pub query: &'a str,
    /// Where the connection comes from.
    pub peer: Option<IpAddr>,
    /// Whether the connection is encrypted.
    pub tls: bool,
    pub user: Option<&'a str>,
    /// The version that the operation is about.
    pub version: Option<&'a str>,
    /// The tags of the object that there is.
    pub tags: &'a [(String, String)],
    /// What counts as the prefix of a listing, if the query does not say it.
    pub prefix: Option<&'a str>,
}

/// Keys that stand for one of the tags; what follows is the tag's key.
const EXISTING_TAG: &str = "s3:existingobjecttag/";
const REQUEST_TAG: &str = "s3:requestobjecttag/";

/// What policies call headers that do not begin with `x-amz-`, and parameters of the query.
const HEADERS: [(&str, &str); 2] = [("aws:referer", "referer"), ("aws:useragent", "user-agent")];
const PARAMETERS: [(&str, &str); 3] =
    [("s3:prefix", "prefix"), ("s3:delimiter", "delimiter"), ("s3:max-keys", "max-keys")];
const OTHERS: [&str; 5] =
    ["aws:sourceip", "aws:securetransport", "aws:username", "aws:userid", "s3:versionid"];

fn is_known(key: &str) -> bool {
    let tag = |prefix: &str| key.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix));
    let lower = key.to_lowercase();
    let named = |table: &[(&str, &str)]| table.iter().any(|(name, _)| *name == lower);
    tag(EXISTING_TAG)
        || tag(REQUEST_TAG)
        || lower.starts_with("s3:x-amz-")
        || named(&HEADERS)
        || named(&PARAMETERS)
        || OTHERS.contains(&lower.as_str())
}

impl Circumstances<'_> {
    /// The value of a key, if the request has one.
    fn value(&self, key: &str) -> Option<String> {
        let lower = key.to_lowercase();
        let of_tag = |tags: &[(String, String)], prefix: &str| {
            let wanted = &key[prefix.len()..];
            tags.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.clone())
        };
        if lower.starts_with(EXISTING_TAG) {
            return of_tag(self.tags, EXISTING_TAG);
        }
        if lower.starts_with(REQUEST_TAG) {
            let sent = self.header("x-amz-tagging")?;
            return of_tag(&crate::tags::parse(&sent).ok()?, REQUEST_TAG);
        }
        if let Some((_, header)) = HEADERS.iter().find(|(name, _)| *name == lower) {
            return self.header(header);
        }
        if let Some((name, parameter)) = PARAMETERS.iter().find(|(name, _)| *name == lower) {
            let otherwise = || self.prefix.filter(|_| *name == "s3:prefix").map(str::to_owned);
            return self.parameter(parameter).or_else(otherwise);
        }
        match lower.as_str() {
            "aws:sourceip" => self.peer.map(|peer| peer.to_string()),
            "aws:securetransport" => Some(self.tls.to_string()),
            "aws:username" | "aws:userid" => self.user.map(str::to_owned),
            // Copies and lists of objects to delete name versions elsewhere than in the query.
            "s3:versionid" => self.version.map(str::to_owned),
            "s3:x-amz-copy-source" => {
                let source = self.header("x-amz-copy-source")?;
                let source = crate::tags::decoded(&source.replace('+', "%2B")).ok()?;
                Some(source.strip_prefix('/').unwrap_or(&source).to_owned())
            }
            other => self.header(other.strip_prefix("s3:")?),
        }
    }

    fn header(&self, name: &str) -> Option<String> {
        // What is no text is compared too: a denial must not be passed by with it.
        Some(String::from_utf8_lossy(self.headers.get(name)?.as_bytes()).into_owned())
    }

    fn parameter(&self, name: &str) -> Option<String> {
        let form = crate::tags::parse(self.query).ok()?;
        form.into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

/// How a value is compared with one of those that a condition names.
type Compare = fn(&str, &str) -> bool;

fn numbers(compare: fn(f64, f64) -> bool, has: &str, wanted: &str) -> bool {
    matches!((has.parse(), wanted.parse()), (Ok(has), Ok(wanted)) if compare(has, wanted))
}

fn network(text: &str) -> Option<TrustedNetwork> {
    let whole = if text.contains(':') { "/128" } else { "/32" };
    let text = if text.contains('/') { text.to_owned() } else { format!("{text}{whole}") };
    text.parse().ok()
}

fn is_within(has: &str, wanted: &str) -> bool {
    has.parse().ok().zip(network(wanted)).is_some_and(|(addr, network)| network.contains(addr))
}

/// The operators: name, comparison, and whether the condition holds if no comparison does.
const OPERATORS: [(&str, Compare, bool); 16] = [
    ("StringEquals", |has, wanted| has == wanted, false),
    ("StringNotEquals", |has, wanted| has == wanted, true),
    ("StringEqualsIgnoreCase", |has, wanted| has.eq_ignore_ascii_case(wanted), false),
    ("StringNotEqualsIgnoreCase", |has, wanted| has.eq_ignore_ascii_case(wanted), true),
    ("StringLike", |has, wanted| matches(wanted, has), false),
    ("StringNotLike", |has, wanted| matches(wanted, has), true),
    ("NumericEquals", |has, wanted| numbers(|a, b| a == b, has, wanted), false),
    ("NumericNotEquals", |has, wanted| numbers(|a, b| a == b, has, wanted), true),
    ("NumericLessThan", |has, wanted| numbers(|a, b| a < b, has, wanted), false),
    ("NumericLessThanEquals", |has, wanted| numbers(|a, b| a <= b, has, wanted), false),
    ("NumericGreaterThan", |has, wanted| numbers(|a, b| a > b, has, wanted), false),
    ("NumericGreaterThanEquals", |has, wanted| numbers(|a, b| a >= b, has, wanted), false),
    ("Bool", |has, wanted| has.eq_ignore_ascii_case(wanted), false),
    ("IpAddress", is_within, false),
    ("NotIpAddress", is_within, true),
    (NULL, |_, _| false, false),
];
/// Asks whether the request has a value.
const NULL: &str = "Null";
/// At the end of an operator: it holds if the request has no value.
const IF_EXISTS: &str = "IfExists";

/// One condition of a statement.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    /// Its row of [`OPERATORS`].
    operator: usize,
    if_exists: bool,
    key: String,
    wanted: Vec<String>,
}

impl Condition {
    /// The conditions of a statement.
    ///
    /// # Errors
    /// What was expected, and what came.
    pub(crate) fn parse(block: &Value) -> Result<Vec<Self>, (String, String)> {
        let object =
            |value: &Value| value.as_object().cloned().ok_or(("an object".to_owned(), value.to_string()));
        let mut out = Vec::new();
        for (operator, keys) in object(block)? {
            let (name, if_exists) =
                operator.strip_suffix(IF_EXISTS).map_or((operator.as_str(), false), |name| (name, true));
            let row = OPERATORS.iter().position(|(known, ..)| *known == name);
            let row = row.filter(|_| !(name == NULL && if_exists)).ok_or_else(|| {
                let known: Vec<_> = OPERATORS.iter().map(|(name, ..)| *name).collect();
                (format!("an operator of {}", known.join(", ")), operator.clone())
            })?;
            for (key, wanted) in object(&keys)? {
                if !is_known(&key) {
                    return Err(("a key of a condition that this server knows".to_owned(), key));
                }
                let one = |value: &Value| match value {
                    Value::String(text) => Ok(text.clone()),
                    Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
                    other => Err(("a text, a number or a truth value".to_owned(), other.to_string())),
                };
                let wanted = match &wanted {
                    Value::Array(values) => values.iter().map(one).collect::<Result<_, _>>()?,
                    value => vec![one(value)?],
                };
                let bad_network = |text: &&String| name.ends_with("IpAddress") && network(text).is_none();
                if let Some(bad) = wanted.iter().find(bad_network) {
                    return Err(("an address or a network such as 10.77.0.0/16".to_owned(), bad.clone()));
                }
                out.push(Self { operator: row, if_exists, key, wanted });
            }
        }
        Ok(out)
    }

    /// Whether it holds.
    pub(crate) fn holds(&self, request: &Circumstances<'_>) -> bool {
        let (name, compare, negated) = OPERATORS[self.operator];
        let value = request.value(&self.key);
        if name == NULL {
            let wants_none = self.wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case("true"));
            return value.is_none() == wants_none;
        }
        match value {
            None => self.if_exists || negated,
            Some(value) => self.wanted.iter().any(|wanted| compare(&value, wanted)) != negated,
        }
    }

    /// Whether it asks for a tag of the object that there is.
    pub(crate) fn asks_for_tags(&self) -> bool {
        self.key.to_lowercase().starts_with(EXISTING_TAG)
    }

    /// Whether only callers from some addresses, or with some names, fulfil it.
    pub(crate) fn singles_out(&self) -> bool {
        let (_, _, negated) = OPERATORS[self.operator];
        let key = self.key.to_lowercase();
        !negated && !self.if_exists && ["aws:sourceip", "aws:username", "aws:userid"].contains(&key.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(block: &str, headers: &[(&'static str, &str)], query: &str) -> bool {
        let conditions = Condition::parse(&serde_json::from_str(block).unwrap()).unwrap();
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        let request = Circumstances {
            headers: &headers,
            query,
            peer: Some([10, 77, 3, 4].into()),
            tls: false,
            user: Some("bob"),
            version: Some("77"),
            tags: &[("security".to_owned(), "public".to_owned())],
            prefix: None,
        };
        conditions.iter().all(|condition| condition.holds(&request))
    }

    #[test]
    fn conditions_hold_as_they_say() {
        let acl = |value| [("x-amz-acl", value)];
        for (block, headers, query, expected) in [
            (r#"{"StringLike": {"s3:x-amz-acl": "public*"}}"#, &acl("public-read")[..], "", true),
            (r#"{"StringLike": {"s3:x-amz-acl": "public*"}}"#, &acl("private")[..], "", false),
            (r#"{"StringLike": {"s3:x-amz-acl": "public*"}}"#, &[], "", false),
            (r#"{"StringLikeIfExists": {"s3:x-amz-acl": "public*"}}"#, &[], "", true),
            (r#"{"StringNotEquals": {"s3:x-amz-acl": ["a", "b"]}}"#, &acl("c")[..], "", true),
            (r#"{"StringNotEquals": {"s3:x-amz-acl": ["a", "b"]}}"#, &acl("b")[..], "", false),
            (r#"{"StringNotEquals": {"s3:x-amz-acl": ["a", "b"]}}"#, &[], "", true),
            (r#"{"Null": {"s3:x-amz-acl": "true"}}"#, &[], "", true),
            (r#"{"Null": {"s3:x-amz-acl": true}}"#, &acl("a")[..], "", false),
            (r#"{"StringEquals": {"s3:ExistingObjectTag/security": "public"}}"#, &[], "", true),
            (r#"{"StringEquals": {"s3:ExistingObjectTag/Security": "public"}}"#, &[], "", false),
            (
                r#"{"StringEquals": {"s3:RequestObjectTag/a": "1"}}"#,
                &[("x-amz-tagging", "b=2&a=1")],
                "",
                true,
            ),
            (r#"{"StringEquals": {"s3:prefix": "a b/"}}"#, &[], "list-type=2&prefix=a%20b%2F", true),
            (r#"{"StringEquals": {"s3:VersionId": "77"}}"#, &[], "versionId=78", true),
            (r#"{"NumericLessThanEquals": {"s3:max-keys": 10}}"#, &[], "max-keys=11", false),
            (r#"{"IpAddress": {"aws:SourceIp": ["10.77.0.0/16"]}}"#, &[], "", true),
            (r#"{"NotIpAddress": {"aws:SourceIp": "10.77.3.4"}}"#, &[], "", false),
            (r#"{"Bool": {"aws:SecureTransport": "false"}}"#, &[], "", true),
            (
                r#"{"StringLike": {"s3:x-amz-copy-source": "b/public/*"}}"#,
                &[("x-amz-copy-source", "/b/public%2Fx")],
                "",
                true,
            ),
            (r#"{"StringEquals": {"aws:username": "bob", "aws:Referer": "x"}}"#, &[], "", false),
        ] {
            assert_eq!(holds(block, headers, query), expected, "{block} {headers:?} {query}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for wrong in [
            "3",
            r#"{"StringEqual": {"s3:prefix": "a"}}"#,
            r#"{"NullIfExists": {"s3:prefix": "a"}}"#,
            r#"{"StringEquals": {"aws:PrincipalTag/x": "a"}}"#,
            r#"{"StringEquals": {"s3:prefix": {}}}"#,
            r#"{"StringEquals": "s3:prefix"}"#,
            r#"{"IpAddress": {"aws:SourceIp": "10.0.0.0/33"}}"#,
        ] {
            assert!(Condition::parse(&serde_json::from_str(wrong).unwrap()).is_err(), "{wrong}");
        }
    }
}
