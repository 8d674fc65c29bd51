//! Cross-origin requests of browsers: the rules of a bucket, the answer to a preflight, and the headers of other answers.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use s3s::dto::*;
use s3s::{Body, HttpResponse, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::bucket::{self, written};
use crate::error::because;
use crate::gateway::{self, Gateway};
use crate::keys::matches;

const METHODS: [&str; 5] = ["GET", "PUT", "HEAD", "POST", "DELETE"];

/// Most rules of a bucket.
const MOST_RULES: usize = 100;

/// What a browser asks for.
#[derive(Debug, Clone)]
pub(crate) struct Crossing {
    /// The bucket.
    bucket: String,
    origin: String,
    /// The method of the request, or of the one that shall follow.
    method: String,
    /// The headers that shall be sent.
    headers: Vec<String>,
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

impl Crossing {
    /// What a request asks for; `None`: it comes from no other origin, or is for no bucket.
    pub(crate) fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Self> {
        let origin = text(headers, ORIGIN)?;
        let bucket = uri.path().split('/').nth(1).filter(|bucket| !bucket.is_empty())?;
        let wanted = text(headers, ACCESS_CONTROL_REQUEST_METHOD);
        let sent = text(headers, ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default();
        let sent = sent.split(',').map(|name| name.trim().to_lowercase());
        Some(Self {
            bucket: crate::tags::decoded(bucket).ok()?,
            origin,
            method: wanted.unwrap_or_else(|| method.as_str().to_owned()),
            headers: sent.filter(|name| !name.is_empty()).collect(),
        })
    }

    fn fits(&self, rule: &CORSRule) -> bool {
        let allowed = rule.allowed_headers.as_deref().unwrap_or_default();
        let header = |name: &String| allowed.iter().any(|pattern| matches(&pattern.to_lowercase(), name));
        rule.allowed_origins.iter().any(|pattern| matches(pattern, &self.origin))
            && rule.allowed_methods.contains(&self.method)
            && self.headers.iter().all(header)
    }

    /// Adds what the rule that fits allows.
    fn add(&self, rule: &CORSRule, out: &mut HeaderMap) {
        let mut set = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::try_from(value) {
                out.insert(name, value);
            }
        };
        let everybody = rule.allowed_origins.iter().any(|origin| origin == "*");
        set(ACCESS_CONTROL_ALLOW_ORIGIN, if everybody { "*" } else { &self.origin });
        if !everybody {
            set(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
        }
        set(ACCESS_CONTROL_ALLOW_METHODS, &rule.allowed_methods.join(", "));
        if !self.headers.is_empty() {
            set(ACCESS_CONTROL_ALLOW_HEADERS, &self.headers.join(", "));
        }
        if let Some(exposed) = rule.expose_headers.as_ref().filter(|names| !names.is_empty()) {
            set(ACCESS_CONTROL_EXPOSE_HEADERS, &exposed.join(", "));
        }
        if let Some(seconds) = rule.max_age_seconds {
            set(ACCESS_CONTROL_MAX_AGE, &seconds.to_string());
        }
        set(VARY, "Origin, Access-Control-Request-Headers, Access-Control-Request-Method");
    }
}

fn check(rule: &CORSRule) -> S3Result<()> {
    let bad = |text: String| Err(because(S3ErrorCode::InvalidRequest, text));
    if rule.allowed_origins.is_empty() || rule.allowed_methods.is_empty() {
        return bad("expected an AllowedOrigin and an AllowedMethod in each CORSRule".to_owned());
    }
    if let Some(other) = rule.allowed_methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
        return bad(format!("AllowedMethod: expected one of {}, got {other:?}", METHODS.join(", ")));
    }
    let patterns = rule.allowed_origins.iter().chain(rule.allowed_headers.iter().flatten());
    match patterns.into_iter().find(|pattern| pattern.matches('*').count() > 1) {
        Some(other) => bad(format!("expected at most one * in an origin or a header, got {other:?}")),
        None => Ok(()),
    }
}

impl Gateway {
    /// The rule of a bucket that fits, if the bucket exists and has one.
    async fn crossing_rule(&self, crossing: &Crossing) -> S3Result<Option<CORSRule>> {
        let rules = self.bucket(&crossing.bucket).await?.document::<CORSConfiguration>(bucket::CORS);
        let rules = rules.map(|rules| rules.cors_rules).unwrap_or_default();
        Ok(rules.into_iter().find(|rule| crossing.fits(rule)))
    }

    /// The answer to a preflight.
    ///
    /// # Errors
    /// `InvalidRequest`: it does not say what shall follow; `AccessForbidden`: no rule allows it; `NoSuchBucket`.
    pub(crate) async fn preflight(&self, uri: &Uri, headers: &HeaderMap) -> S3Result<HttpResponse> {
        let asked = headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let Some(crossing) = Crossing::of(&Method::OPTIONS, uri, headers).filter(|_| asked) else {
            let text = "expected a bucket and the headers Origin and Access-Control-Request-Method";
            return Err(because(S3ErrorCode::InvalidRequest, text));
        };
        let Some(rule) = self.crossing_rule(&crossing).await? else {
            let text = format!("no CORS rule of {} allows this request", crossing.bucket);
            let mut error = because(S3ErrorCode::Custom("AccessForbidden".into()), text);
            error.set_status_code(http::StatusCode::FORBIDDEN);
            return Err(error);
        };
        let mut answer = HttpResponse::new(Body::empty());
        crossing.add(&rule, answer.headers_mut());
        Ok(answer)
    }

    /// Adds what the rules of the bucket say to an answer.
    pub(crate) async fn allow_crossing(&self, crossing: &Crossing, answer: &mut HttpResponse) {
        // Without a rule the browser keeps the answer to itself; why there is none does not matter.
        if let Ok(Some(rule)) = self.crossing_rule(crossing).await {
            crossing.add(&rule, answer.headers_mut());
        }
    }

    /// `GetBucketCors`.
    pub(crate) async fn get_bucket_cors(
        &self,
        request: S3Request<GetBucketCorsInput>,
    ) -> S3Result<S3Response<GetBucketCorsOutput>> {
        let rules = gateway::bucket(&request.extensions)?.document::<CORSConfiguration>(bucket::CORS);
        let none = || because(S3ErrorCode::NoSuchCORSConfiguration, "the bucket has no CORS rules");
        let cors_rules = Some(rules.ok_or_else(none)?.cors_rules);
        Ok(S3Response::new(GetBucketCorsOutput { cors_rules }))
    }

    /// `PutBucketCors`.
    pub(crate) async fn put_bucket_cors(
        &self,
        request: S3Request<PutBucketCorsInput>,
    ) -> S3Result<S3Response<PutBucketCorsOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let rules = request.input.cors_configuration;
        if rules.cors_rules.is_empty() || rules.cors_rules.len() > MOST_RULES {
            let text = format!("expected 1 to {MOST_RULES} rules, got {}", rules.cors_rules.len());
            return Err(because(S3ErrorCode::MalformedXML, text));
        }
        rules.cors_rules.iter().try_for_each(check)?;
        self.set_bucket(&bucket, [(bucket::CORS, written(&rules)?)]).await?;
        Ok(S3Response::new(PutBucketCorsOutput::default()))
    }

    /// `DeleteBucketCors`.
    pub(crate) async fn delete_bucket_cors(
        &self,
        request: S3Request<DeleteBucketCorsInput>,
    ) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        self.set_bucket(&bucket, [(bucket::CORS, None)]).await?;
        Ok(S3Response::with_status(DeleteBucketCorsOutput::default(), http::StatusCode::NO_CONTENT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(origins: &[&str], methods: &[&str], headers: &[&str]) -> CORSRule {
        let owned = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
        CORSRule {
            allowed_headers: Some(owned(headers)),
            allowed_methods: owned(methods),
            allowed_origins: owned(origins),
            ..CORSRule::default()
        }
    }

    fn crossing(origin: &str, method: &str, headers: &str) -> Crossing {
        let mut all = HeaderMap::new();
        all.insert(ORIGIN, origin.parse().unwrap());
        all.insert(ACCESS_CONTROL_REQUEST_HEADERS, headers.parse().unwrap());
        Crossing::of(&method.parse().unwrap(), &"/b/k".parse().unwrap(), &all).unwrap()
    }

    #[test]
    fn a_rule_fits_by_origin_method_and_headers() {
        let rule = rule(&["http://*.example.com"], &["GET", "PUT"], &["X-Amz-*"]);
        let fits = |origin, method, headers| crossing(origin, method, headers).fits(&rule);
        assert!(fits("http://a.example.com", "GET", ""));
        assert!(fits("http://a.example.com", "PUT", "x-amz-date, X-AMZ-ACL"));
        assert!(!fits("http://a.example.com", "DELETE", ""));
        assert!(!fits("http://a.example.com", "PUT", "x-amz-date, range"));
        assert!(!fits("http://example.org", "GET", ""));
    }

    #[test]
    fn wrong_rules_are_refused() {
        check(&rule(&["*"], &["GET"], &["*"])).unwrap();
        for wrong in [
            rule(&[], &["GET"], &[]),
            rule(&["*"], &[], &[]),
            rule(&["*"], &["get"], &[]),
            rule(&["*.*"], &["GET"], &[]),
            rule(&["*"], &["GET"], &["x-*-*"]),
        ] {
            assert!(check(&wrong).is_err(), "{wrong:?}");
        }
    }
}
