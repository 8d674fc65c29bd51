//! Bucket policies: what statements say to a request.
//!
//! Of the policy language the gateway understands effects, principals, actions, resources, `Not` forms of the latter two, and
//! the conditions of [`crate::condition`]. What it does not understand is refused when a policy is set.

use s3s::{S3ErrorCode, S3Result};
use serde_json::Value;

use crate::condition::{Circumstances, Condition};
use crate::error::because;
use crate::keys::matches;

/// Longest policy in bytes.
const POLICY_BYTES: usize = 20 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Allow,
    Deny,
}

#[derive(Debug)]
struct Statement {
    effect: Effect,
    principals: Vec<String>,
    actions: Patterns,
    resources: Patterns,
    conditions: Vec<Condition>,
}

/// Patterns, one of which fits, or none of which does.
#[derive(Debug)]
struct Patterns {
    of: Vec<String>,
    none: bool,
}

impl Patterns {
    fn fit(&self, text: &str) -> bool {
        self.of.iter().any(|pattern| matches(pattern, text)) != self.none
    }
}

/// A policy of a bucket.
#[derive(Debug)]
pub(crate) struct Policy(Vec<Statement>);

impl Policy {
    /// Reads a policy for a bucket.
    ///
    /// # Errors
    /// `MalformedPolicy`.
    pub(crate) fn parse(text: &str, bucket: &str) -> S3Result<Self> {
        let bad = |expected: &str, got: &dyn std::fmt::Display| {
            because(S3ErrorCode::MalformedPolicy, format!("policy: expected {expected}, got {got}"))
        };
        if text.len() > POLICY_BYTES {
            return Err(bad(&format!("at most {POLICY_BYTES} bytes"), &text.len()));
        }
        let document: Value = serde_json::from_str(text).map_err(|e| bad("JSON", &e))?;
        let rows = match &document["Statement"] {
            Value::Array(rows) if !rows.is_empty() => rows.clone(),
            row @ Value::Object(_) => vec![row.clone()],
            other => return Err(bad("statements", other)),
        };
        let statement = |row: &Value| {
            let effect = match row["Effect"].as_str() {
                Some("Allow") => Effect::Allow,
                Some("Deny") => Effect::Deny,
                _ => return Err(bad("the effect Allow or Deny", &row["Effect"])),
            };
            let known =
                ["Sid", "Effect", "Principal", "Action", "NotAction", "Resource", "NotResource", "Condition"];
            let other = row.as_object().and_then(|row| row.keys().find(|key| !known.contains(&key.as_str())));
            if let Some(other) = other {
                return Err(bad(&known.join(", "), other));
            }
            let principals = match &row["Principal"] {
                Value::Object(kinds) if kinds.len() == 1 && kinds.contains_key("AWS") => texts(&kinds["AWS"]),
                Value::String(all) if all == "*" => Some(vec![all.clone()]),
                _ => None,
            };
            let principals =
                principals.ok_or_else(|| bad("a principal \"*\" or {\"AWS\": ...}", &row["Principal"]))?;
            let patterns = |name: &str, not: &str| {
                let none = row.get(name).is_none();
                let of = texts(&row[if none { not } else { name }]);
                of.map(|of| Patterns { of, none }).ok_or_else(|| bad(&format!("{name} or {not}"), row))
            };
            let resources = patterns("Resource", "NotResource")?;
            let of_bucket = |arn: &String| {
                let name =
                    arn.strip_prefix("arn:aws:s3:::").map(|rest| rest.split('/').next().unwrap_or(rest));
                arn == "*" || name.is_some_and(|name| matches(name, bucket))
            };
            if let Some(other) = resources.of.iter().find(|arn| !of_bucket(arn)) {
                return Err(bad(&format!("resources of arn:aws:s3:::{bucket}"), other));
            }
            let conditions = row.get("Condition").map_or(Ok(Vec::new()), Condition::parse);
            let conditions = conditions.map_err(|(expected, got)| bad(&expected, &got))?;
            Ok(Statement {
                effect,
                principals,
                actions: patterns("Action", "NotAction")?,
                resources,
                conditions,
            })
        };
        rows.iter().map(statement).collect::<S3Result<_>>().map(Self)
    }

    /// What it says to an action of a caller on a resource.
    pub(crate) fn judge(&self, action: &str, resource: &str, request: &Circumstances<'_>) -> Option<Effect> {
        let speaks = |statement: &&Statement| {
            statement.principals.iter().any(|principal| is_user(principal, request.user))
                && statement.actions.fit(action)
                && statement.resources.fit(resource)
                && statement.conditions.iter().all(|condition| condition.holds(request))
        };
        let effects = || self.0.iter().filter(speaks).map(|statement| statement.effect);
        effects().find(|effect| *effect == Effect::Deny).or_else(|| effects().next())
    }

    /// Whether it allows something to everybody.
    pub(crate) fn is_public(&self) -> bool {
        let public = |statement: &Statement| {
            statement.effect == Effect::Allow
                && statement.principals.iter().any(|principal| principal == "*")
                && !statement.conditions.iter().any(Condition::singles_out)
        };
        self.0.iter().any(public)
    }

    /// Whether a condition asks for the tags of the object that there is.
    pub(crate) fn asks_for_tags(&self) -> bool {
        self.0.iter().flat_map(|statement| &statement.conditions).any(Condition::asks_for_tags)
    }
}

/// One text or several.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(texts) if !texts.is_empty() => {
            texts.iter().map(|text| text.as_str().map(str::to_owned)).collect()
        }
        _ => None,
    }
}

/// Whether a principal is a user: `*`, its name, or an ARN of the user or of its account.
fn is_user(principal: &str, user: Option<&str>) -> bool {
    if principal == "*" {
        return true;
    }
    let Some(user) = user else { return false };
    let arn = principal.strip_prefix("arn:aws:iam::").and_then(|rest| rest.split_once(':'));
    match arn {
        Some((account, "root")) => account == user,
        Some((_, name)) => name.strip_prefix("user/") == Some(user),
        None => principal == user,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(statements: &str) -> S3Result<Policy> {
        Policy::parse(&format!(r#"{{"Version": "2012-10-17", "Statement": {statements}}}"#), "b")
    }

    #[test]
    fn a_denial_wins() {
        let policy = policy(
            r#"[{"Effect": "Allow", "Principal": "*", "Action": "s3:Get*", "Resource": "arn:aws:s3:::b/*"},
                {"Effect": "Deny", "Principal": {"AWS": ["arn:aws:iam:::user/eve", "arn:aws:iam::mallory:root"]},
                 "Action": ["s3:*"], "Resource": ["arn:aws:s3:::b/secret/*"]},
                {"Effect": "Allow", "Principal": {"AWS": "bob"}, "NotAction": "s3:Delete*", "Resource": "*"}]"#,
        )
        .unwrap();
        let headers = http::HeaderMap::new();
        let judge = |user, action, key: &str| {
            let request = Circumstances {
                headers: &headers,
                query: "",
                peer: None,
                tls: false,
                user,
                version: None,
                tags: &[],
                prefix: None,
            };
            policy.judge(action, &format!("arn:aws:s3:::b/{key}"), &request)
        };
        assert_eq!(judge(None, "s3:GetObject", "secret/x"), Some(Effect::Allow));
        assert_eq!(judge(None, "s3:PutObject", "x"), None);
        assert_eq!(judge(Some("eve"), "s3:GetObject", "secret/x"), Some(Effect::Deny));
        assert_eq!(judge(Some("mallory"), "s3:GetObject", "secret/x"), Some(Effect::Deny));
        assert_eq!(judge(Some("eve"), "s3:GetObject", "x"), Some(Effect::Allow));
        assert_eq!(judge(Some("bob"), "s3:PutObject", "x"), Some(Effect::Allow));
        assert_eq!(judge(Some("bob"), "s3:DeleteObject", "x"), None);
        assert!(policy.is_public());
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let row = |what: &str| format!(r#"{{"Effect": "Allow", "Principal": "*", {what}}}"#);
        let all = r#""Action": "s3:*", "Resource": "arn:aws:s3:::b/*""#;
        policy(&row(all)).unwrap();
        for wrong in [
            "[]".to_owned(),
            "3".to_owned(),
            row(r#""Action": "s3:*""#),
            row(r#""Action": "s3:*", "Resource": "arn:aws:s3:::other/*""#),
            row(r#""Action": "s3:*", "Resource": "arn:aws:s3:::b2""#),
            row(&format!(r#"{all}, "Condition": {{"Like": {{}}}}"#)),
            row(all).replace("Allow", "allow"),
            row(all).replace(r#""Principal": "*""#, r#""Principal": {"CanonicalUser": "x"}"#),
        ] {
            let error = policy(&wrong).unwrap_err();
            assert_eq!(error.code(), &S3ErrorCode::MalformedPolicy, "{wrong}");
        }
        assert!(Policy::parse("{", "b").is_err());
        assert!(Policy::parse(&" ".repeat(POLICY_BYTES + 1), "b").is_err());
    }
}
