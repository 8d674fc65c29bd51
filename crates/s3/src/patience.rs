//! How long somebody is waited for who sends or takes bytes: a body that comes in, and a connection that is written to.
//!
//! Only time in which the other side is waited for counts, not what the cluster needs or other requests take. In each span of
//! such time at least [`LEAST_RATE`] must pass, so that nobody holds a turn or memory with a byte a minute.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Bytes a second that somebody must send or take while we wait for it. As between nodes: far below any real link.
const LEAST_RATE: u64 = 1 << 10;

/// What is left of the patience with somebody.
struct Patience {
    /// The longest wait for as many bytes as come at [`LEAST_RATE`] in this time.
    whole: Duration,
    left: Duration,
    passed: u64,
    /// Since when it is waited for, and until when.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Patience {
    fn new(whole: Duration) -> Self {
        Self { whole, left: whole, passed: 0, waiting: None }
    }

    /// Nothing has passed yet: ready when the patience is at its end.
    fn ends(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let left = self.left;
        let (_, end) = self.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(left))));
        end.as_mut().poll(cx)
    }

    /// So many bytes have passed; `None`: all that there were.
    fn passed(&mut self, bytes: Option<u64>) {
        if let Some((since, _)) = self.waiting.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        self.passed = self.passed.saturating_add(bytes.unwrap_or(u64::MAX));
        if self.passed >= self.whole.as_millis() as u64 * LEAST_RATE / 1000 {
            (self.left, self.passed) = (self.whole, 0);
        }
    }

    fn error(&self) -> io::Error {
        let text = format!("{} bytes passed in {} s, which is too slow", self.passed, self.whole.as_secs());
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}

/// A body that a client sends. It ends with an error if the client is too slow.
pub(crate) struct Sent<B> {
    body: B,
    patience: Patience,
    /// Set when it has ended so.
    late: Arc<AtomicBool>,
}

impl<B> Sent<B> {
    pub(crate) fn new(body: B, idle: Duration, late: Arc<AtomicBool>) -> Self {
        Self { body, patience: Patience::new(idle), late }
    }
}

impl<B> Body for Sent<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            ready!(this.patience.ends(cx));
            this.late.store(true, Relaxed);
            return Poll::Ready(Some(Err(this.patience.error())));
        };
        if let Some(Ok(frame)) = &frame {
            this.patience.passed(frame.data_ref().map(|bytes| bytes.len() as u64));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection. Writing to it fails if the client takes too little.
pub(crate) struct Taken<S> {
    stream: S,
    patience: Patience,
}

impl<S> Taken<S> {
    pub(crate) fn new(stream: S, idle: Duration) -> Self {
        Self { stream, patience: Patience::new(idle) }
    }

    /// What a write has done; `bytes` tells how many of them it took.
    fn judged<T>(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<io::Result<T>>,
        bytes: impl FnOnce(&T) -> Option<u64>,
    ) -> Poll<io::Result<T>> {
        match done {
            Poll::Ready(done) => {
                if let Ok(done) = &done {
                    self.patience.passed(bytes(done));
                }
                Poll::Ready(done)
            }
            Poll::Pending => {
                ready!(self.patience.ends(cx));
                Poll::Ready(Err(self.patience.error()))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Taken<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, room)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Taken<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judged(cx, done, |len| Some(*len as u64))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.judged(cx, done, |len| Some(*len as u64))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(cx);
        self.judged(cx, done, |()| None)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.judged(cx, done, |()| None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// Who sends so many bytes after each wait.
    struct Slow {
        every: Duration,
        bytes: usize,
        wait: Pin<Box<Sleep>>,
    }

    impl Slow {
        fn new(every: Duration, bytes: usize) -> Self {
            Self { every, bytes, wait: Box::pin(sleep(every)) }
        }
    }

    impl Body for Slow {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            ready!(self.wait.as_mut().poll(cx));
            let every = self.every;
            self.wait.as_mut().reset(Instant::now() + every);
            Poll::Ready(Some(Ok(Frame::data(vec![0; self.bytes].into()))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_waited_for_as_long_as_it_sends_at_the_least_rate() {
        let idle = Duration::from_secs(10);
        for (every, bytes, good) in
            [(1, 1200, true), (6, 10 << 10, true), (1, 1000, false), (11, 1 << 20, false)]
        {
            let late = Arc::new(AtomicBool::new(false));
            let slow = Slow::new(Duration::from_secs(every), bytes);
            let mut body = Sent::new(slow, idle, late.clone());
            let begun = Instant::now();
            let mut came = 0;
            while begun.elapsed() < 10 * idle {
                match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                    Some(Ok(_)) => came += 1,
                    other => {
                        assert_eq!(other.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
                        break;
                    }
                }
            }
            assert_eq!(late.load(Relaxed), !good, "{bytes} bytes every {every} s, {came} times");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_waits_for_the_client_does_not_count() {
        let late = Arc::new(AtomicBool::new(false));
        let mut body = Sent::new(Slow::new(Duration::from_secs(6), 1), Duration::from_secs(10), late.clone());
        let mut next = async || poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap();
        next().await.unwrap();
        sleep(Duration::from_secs(100)).await;
        next().await.unwrap();
        next().await.unwrap_err();
    }
}
