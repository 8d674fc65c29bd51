//! Bounds the bytes of calls that users have under way at a server, from the first byte of a message to its answer. Each message may be
//! large, and a connection carries many: without this, one client could take all the memory of a host before a call is looked at.
//!
//! Others are not counted: the coordinator limits itself, and an agent passes on what users sent to it. Nor is anybody
//! without TLS: nobody knows then who calls.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

use crate::Peer;
use crate::tls::Wanted;

/// Most bytes of all calls of users together.
const MOST_BYTES: u64 = 1 << 30;

/// Wraps a server's service.
#[derive(Debug, Clone)]
pub struct Inflow<S> {
    inner: S,
    all: Arc<AtomicU64>,
}

impl<S> Inflow<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, all: Arc::default() }
    }
}

/// What one call has brought; it counts until the call is answered.
struct Brought {
    all: Arc<AtomicU64>,
    own: AtomicU64,
}

impl Brought {
    /// Some more bytes have come.
    fn add(&self, bytes: u64) -> Result<(), Status> {
        self.own.fetch_add(bytes, Ordering::Relaxed);
        let before = self.all.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= MOST_BYTES {
            return Ok(());
        }
        Err(Status::unavailable(format!(
            "busy: expected calls of users with at most {MOST_BYTES} bytes together, got more than that; try again"
        )))
    }
}

impl Drop for Brought {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// A message on its way in.
struct Counted {
    body: Body,
    brought: Arc<Brought>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let next = ready!(Pin::new(&mut self.body).poll_frame(context));
        let Some(Ok(frame)) = next else { return Poll::Ready(next) };
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        Poll::Ready(Some(self.brought.add(bytes).map(|()| frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether the bytes of this caller count.
fn counts(peer: Option<&Peer>) -> bool {
    let badge = peer.and_then(|peer| peer.badge.as_ref());
    badge.is_some_and(|badge| badge.is(Wanted::User) && !badge.is(Wanted::Coordinator))
}

impl<S> Service<http::Request<Body>> for Inflow<S>
where
    S: Service<http::Request<Body>>,
    S::Response: Send,
    S::Error: Send,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<S::Response, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if !counts(request.extensions().get()) {
            return Box::pin(self.inner.call(request));
        }
        let brought = Arc::new(Brought { all: self.all.clone(), own: AtomicU64::new(0) });
        let counted = |body| Body::new(Counted { body, brought: brought.clone() });
        let answer = self.inner.call(request.map(counted));
        Box::pin(async move {
            let answer = answer.await;
            drop(brought);
            answer
        })
    }
}

impl<S: NamedService> NamedService for Inflow<S> {
    const NAME: &'static str = S::NAME;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body::Body as _;
    use tokio::sync::oneshot;

    use super::*;
    use crate::ClusterId;
    use crate::tls::Badge;

    /// Slices of this many bytes, without end.
    struct Endless(Bytes);

    impl http_body::Body for Endless {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(Some(Ok(Frame::data(self.0.clone()))))
        }
    }

    /// Reads this many slices, says how that ended, and answers when it is told to.
    #[derive(Clone)]
    struct Reader(usize, Arc<std::sync::Mutex<Option<oneshot::Receiver<()>>>>);

    impl Service<http::Request<Body>> for Reader {
        type Response = Result<(), Status>;
        type Error = Infallible;
        type Future = BoxFuture<Self::Response, Infallible>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            let (slices, wait) = (self.0, self.1.lock().unwrap().take());
            Box::pin(async move {
                let mut body = request.into_body();
                for _ in 0..slices {
                    let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
                    if let Err(refused) = frame.unwrap() {
                        return Ok(Err(refused));
                    }
                }
                if let Some(wait) = wait {
                    let _ = wait.await;
                }
                Ok(Ok(()))
            })
        }
    }

    #[tokio::test]
    async fn calls_of_users_share_a_limit_until_they_are_answered() {
        let slice = Bytes::from(vec![0; 1 << 20]);
        let call = |service: &Inflow<Reader>, reads, wait, role: Option<&str>| {
            let roles = role.map(|role| vec![role.parse().unwrap()]);
            let badge = roles.map(|roles| Arc::new(Badge::new(ClusterId([1; 16]), roles).unwrap()));
            let mut request = http::Request::new(Body::new(Endless(slice.clone())));
            request.extensions_mut().insert(Peer { addr: None, badge });
            service_of(service, reads, wait).call(request)
        };
        fn service_of(
            service: &Inflow<Reader>,
            reads: usize,
            wait: Option<oneshot::Receiver<()>>,
        ) -> Inflow<Reader> {
            Inflow { inner: Reader(reads, Arc::new(std::sync::Mutex::new(wait))), all: service.all.clone() }
        }
        let service = Inflow::new(Reader(0, Arc::default()));
        let (answer, waits) = oneshot::channel();
        let first = tokio::spawn(call(&service, 1000, Some(waits), Some("client/a")));
        while service.all.load(Ordering::Relaxed) < 1000 << 20 {
            tokio::task::yield_now().await;
        }
        call(&service, 24, None, Some("client/b")).await.unwrap().unwrap();
        let refused = call(&service, 25, None, Some("operator")).await.unwrap().unwrap_err();
        assert!(refused.message().contains("busy: expected calls of users with at most"), "{refused:?}");
        for role in [Some("coordinator"), Some("agent/1"), None] {
            call(&service, 2000, None, role).await.unwrap().unwrap();
        }
        answer.send(()).unwrap();
        first.await.unwrap().unwrap().unwrap();
        assert_eq!(service.all.load(Ordering::Relaxed), 0, "all is given back");
        call(&service, 1024, None, Some("client/b")).await.unwrap().unwrap();
    }
}
