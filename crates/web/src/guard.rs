//! Who may ask, and what a browser may do with the answers.
//!
//! The page has no passwords, so another site must not be able to read it through its visitors' browsers. A name that
//! another site controls may be made to point to this machine (DNS rebinding); then the browser asks with that name in
//! `Host`, and is refused here. Other sites cannot read answers without that, because no answer allows it (no CORS), and
//! they cannot make this machine work: what their pages ask for is refused by `Sec-Fetch-Site`.

use axum::extract::Request;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Everything comes from here, scripts and styles only as files; nobody may put the page into a frame.
const POLICY: &str =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Refuses what other sites ask for, and adds the rules for the browser to every answer.
pub async fn guard(request: Request, next: Next) -> Response {
    let refused = refusal(request.headers(), request.uri());
    let mut response = match refused {
        Some(why) => (StatusCode::FORBIDDEN, why).into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Why a request is refused; `None` if it is not.
fn refusal(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // HTTP/2 and absolute requests name the host in the address.
    let host = uri.authority().map(|authority| authority.as_str()).or(text(&header::HOST));
    let host = host.unwrap_or_default();
    if !is_here(host) {
        return Some(format!(
            "Host: expected localhost or an address on loopback, got {host:?}; ask by the address\n"
        ));
    }
    let site = text(&HeaderName::from_static("sec-fetch-site")).unwrap_or("none");
    let navigates = text(&HeaderName::from_static("sec-fetch-mode")) == Some("navigate");
    if matches!(site, "cross-site" | "same-site") && !(navigates && uri.path() == "/") {
        return Some("Sec-Fetch-Site: expected a request of this page, got one of another site\n".into());
    }
    None
}

/// Whether a `Host` names this machine as one that nobody else can claim.
fn is_here(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, _)) => name,
            None => return false,
        },
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let address = name.parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// The answer for what there is not; `hint` says where something is.
pub fn nothing_here(uri: &Uri, hint: &str) -> Response {
    (StatusCode::NOT_FOUND, format!("{}: there is nothing here; {hint}\n", uri.path())).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_nobody_else_can_claim_are_this_machine() {
        for here in ["localhost", "LOCALHOST:7480", "127.0.0.1:7480", "127.9.9.9", "[::1]:7480", "[::1]"] {
            assert!(is_here(here), "{here}");
        }
        for other in [
            "",
            "evil.example:7480",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "[::2]:1",
            "[",
        ] {
            assert!(!is_here(other), "{other}");
        }
    }

    #[test]
    fn another_site_may_lead_here_but_not_ask() {
        let asks = |site: &'static str, mode: &'static str, path: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("host", HeaderValue::from_static("127.0.0.1:7480"));
            headers.insert("sec-fetch-site", HeaderValue::from_static(site));
            headers.insert("sec-fetch-mode", HeaderValue::from_static(mode));
            refusal(&headers, &path.parse().unwrap()).is_none()
        };
        assert!(asks("same-origin", "cors", "/api/cluster") && asks("none", "navigate", "/metrics"));
        assert!(asks("cross-site", "navigate", "/"));
        assert!(!asks("cross-site", "no-cors", "/api/code?name=x") && !asks("same-site", "cors", "/"));
        assert!(!asks("cross-site", "navigate", "/api/cluster"));
    }
}
