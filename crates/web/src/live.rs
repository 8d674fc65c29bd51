//! The facts that change, as a stream of server-sent events.
//!
//! One task asks the coordinator once a second while somebody looks; everybody who looks gets the same text. If nothing
//! has changed, nothing is sent.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::{Stream, StreamExt};
use kintsu_client::Client;
use serde::Serialize;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

use crate::api::{Overview, overview};
use crate::error::ApiError;
use crate::page::Shared;

/// How often the coordinator is asked.
const EVERY: Duration = Duration::from_secs(1);
/// Browsers that may look at the same time.
const MOST: usize = 64;

/// The facts, or why there are none.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Now {
    Cluster(Box<Overview>),
    Away(String),
}

/// What is sent to everybody who looks.
pub struct Live {
    text: watch::Sender<Arc<str>>,
    looking: Arc<AtomicUsize>,
    stop: CancellationToken,
}

impl Live {
    /// The facts of a client's cluster, until `stop`.
    pub fn new(client: Client, stop: CancellationToken) -> Self {
        let text = watch::Sender::new(Arc::from(""));
        tokio::spawn(keep(client, text.clone(), stop.clone()));
        Self { text, looking: Arc::default(), stop }
    }

    /// The texts from now on, the present one first.
    fn texts(&self) -> Option<impl Stream<Item = Arc<str>> + Send + use<>> {
        let looking = Looking(self.looking.clone());
        if self.looking.fetch_add(1, Ordering::Relaxed) >= MOST {
            return None;
        }
        let texts = WatchStream::new(self.text.subscribe()).filter(|text| {
            let known = !text.is_empty();
            async move { known }
        });
        let ended = self.stop.clone().cancelled_owned();
        Some(Box::pin(texts.take_until(ended).map(move |text| {
            let _ = &looking;
            text
        })))
    }
}

/// Somebody who looks.
struct Looking(Arc<AtomicUsize>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Asks while somebody looks.
async fn keep(client: Client, text: watch::Sender<Arc<str>>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if text.receiver_count() == 0 {
            // Whoever comes next is not shown what was true long ago.
            text.send_replace(Arc::from(""));
            continue;
        }
        let now = match overview(&client).await {
            Ok(overview) => Now::Cluster(Box::new(overview)),
            Err(error) => Now::Away(error.message().to_owned()),
        };
        match serde_json::to_string(&now) {
            Ok(now) => text.send_if_modified(|text| {
                let changed = **text != *now;
                if changed {
                    *text = Arc::from(now);
                }
                changed
            }),
            Err(error) => {
                tracing::error!("the facts of the page cannot be written: {error}");
                false
            }
        };
    }
}

/// The stream.
pub async fn handle(
    State(shared): State<Arc<Shared>>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let texts = shared.live.texts().ok_or_else(|| {
        ApiError::busy(format!(
            "the page: expected at most {MOST} open at one time, got one more; close some"
        ))
    })?;
    let events = texts.map(|text| Ok(Event::default().event("now").data(&*text)));
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
