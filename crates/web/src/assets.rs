//! The files of the page. npm builds them from `page/` (`scripts/page.sh build`); they are kept in `dist/`, so that
//! nobody needs npm to build Kintsu, and a test compares them with what npm builds.

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::routing::get;

use crate::page::Shared;

/// Path, type, content.
const ASSETS: [(&str, &str, &[u8]); 4] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../dist/index.html")),
    ("/page.js", "text/javascript; charset=utf-8", include_bytes!("../dist/page.js")),
    ("/page.css", "text/css; charset=utf-8", include_bytes!("../dist/page.css")),
    ("/icon.svg", "image/svg+xml", include_bytes!("../dist/icon.svg")),
];

/// Serves them.
pub fn router() -> Router<Arc<Shared>> {
    ASSETS.iter().fold(Router::new(), |router, (path, kind, content)| {
        router.route(path, get(|| async { ([(header::CONTENT_TYPE, *kind)], *content) }))
    })
}
