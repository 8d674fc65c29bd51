//! How long somebody is waited for who sends or takes bytes: a body that comes in, and a connection that is written to.
//!
//! Only time in which the other side is waited for counts, not what the cluster needs or other requests take. In each span of
//! such time at least [`LEAST_RATE`] must pass, so that nobody holds a turn or memory with a byte a minute; and [`BUSY_RATE`] of
//! whoever holds memory for which others wait.

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

use crate::memory::Line;

/// Bytes a second that somebody must send or take while we wait for it. As between nodes: far below any real link.
pub(crate) const LEAST_RATE: u64 = 1 << 10;

/// The same for somebody who holds what others wait for ([`Line::is_wanted`]).
pub(crate) const BUSY_RATE: u64 = 256 << 10;

/// It is looked this often in a span of [`Terms::busy`] whether others wait.
const LOOKS: u32 = 5;

/// How long clients are waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// In a span of this length [`LEAST_RATE`] must be reached.
    pub idle: Duration,
    /// And in one of this length [`BUSY_RATE`], if others wait.
    pub busy: Duration,
}

/// A span of waiting in which a rate must be reached.
struct Span {
    whole: Duration,
    rate: u64,
    left: Duration,
    passed: u64,
}

impl Span {
    fn new(whole: Duration, rate: u64) -> Self {
        Self { whole, rate, left: whole, passed: 0 }
    }

    fn renew(&mut self) {
        (self.left, self.passed) = (self.whole, 0);
    }

    fn waited(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }

    fn passed(&mut self, bytes: u64) {
        self.passed = self.passed.saturating_add(bytes);
        if self.passed >= self.whole.as_millis() as u64 * self.rate / 1000 {
            self.renew();
        }
    }
}

/// What is left of the patience with somebody.
struct Patience {
    line: Arc<Line>,
    idle: Span,
    busy: Span,
    /// Since when it is waited for, and until when before it is looked again.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Patience {
    fn new(terms: Terms, line: Arc<Line>) -> Self {
        let Terms { idle, busy } = terms;
        Self { line, idle: Span::new(idle, LEAST_RATE), busy: Span::new(busy, BUSY_RATE), waiting: None }
    }

    /// Nothing has passed yet: ready when the patience is at its end.
    fn ends(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.over().is_some() {
                return Poll::Ready(());
            }
            let next = self.idle.left.min(self.busy.whole / LOOKS);
            let (_, look) = self.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(next))));
            ready!(look.as_mut().poll(cx));
            self.waited();
        }
    }

    fn waited(&mut self) {
        let Some((since, _)) = self.waiting.take() else { return };
        let time = since.elapsed();
        self.idle.waited(time);
        match self.line.is_wanted() {
            true => self.busy.waited(time),
            false => self.busy.renew(),
        }
    }

    fn over(&self) -> Option<&Span> {
        [&self.idle, &self.busy].into_iter().find(|span| span.left.is_zero())
    }

    /// So many bytes have passed; `None`: all that there were.
    fn passed(&mut self, bytes: Option<u64>) {
        self.waited();
        let bytes = bytes.unwrap_or(u64::MAX);
        self.idle.passed(bytes);
        self.busy.passed(bytes);
    }

    fn error(&self) -> io::Error {
        let Span { whole, rate, passed, .. } = self.over().unwrap_or(&self.idle);
        let text = format!("{passed} bytes passed in {whole:?}, expected {rate} a second");
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
    pub(crate) fn new(body: B, terms: Terms, line: Arc<Line>, late: Arc<AtomicBool>) -> Self {
        Self { body, patience: Patience::new(terms, line), late }
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
    pub(crate) fn new(stream: S, terms: Terms, line: Arc<Line>) -> Self {
        Self { stream, patience: Patience::new(terms, line) }
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
    use crate::memory::{Memory, Taker};
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

    const TERMS: Terms = Terms { idle: Duration::from_secs(10), busy: Duration::from_secs(5) };

    fn line() -> Arc<Line> {
        Line::new([10, 0, 0, 1].into())
    }

    /// For how long somebody is waited for who sends so many bytes every so many milliseconds; `None`: for longer than a hundred seconds.
    async fn waited_for(every: u64, bytes: usize, line: Arc<Line>) -> Option<Duration> {
        let late = Arc::new(AtomicBool::new(false));
        let slow = Slow::new(Duration::from_millis(every), bytes);
        let mut body = Sent::new(slow, TERMS, line, late.clone());
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(100) {
            match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                Some(Ok(_)) => assert!(!late.load(Relaxed)),
                other => {
                    assert_eq!(other.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
                    assert!(late.load(Relaxed));
                    return Some(begun.elapsed());
                }
            }
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_waited_for_as_long_as_it_sends_at_the_least_rate() {
        for (every, bytes, good) in
            [(1, 1200, true), (6, 10 << 10, true), (1, 1000, false), (11, 1 << 20, false)]
        {
            let waited = waited_for(every * 1000, bytes, line()).await;
            assert_eq!(waited.is_none(), good, "{bytes} bytes every {every} s: {waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_memory_for_which_others_wait_must_make_haste() {
        let memory = Memory::new(128 << 20);
        let taker = Taker { line: Some(line()), user: None };
        let held = memory.take(&taker, 112 << 20).await.unwrap();
        let line = taker.line.unwrap();
        assert_eq!(waited_for(1000, 200 << 10, line.clone()).await, None, "nobody waits");
        let waits = tokio::spawn(async move { memory.take(&Taker::default(), 1).await.map(drop) });
        assert_eq!(waited_for(1000, 300 << 10, line.clone()).await, None);
        let waited = waited_for(1000, 200 << 10, line.clone()).await.unwrap();
        assert!(waited <= TERMS.busy + TERMS.busy / LOOKS, "{waited:?}");
        drop(held);
        waits.await.unwrap().unwrap();
        assert_eq!(waited_for(1000, 200 << 10, line).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_waits_for_the_client_does_not_count() {
        let late = Arc::new(AtomicBool::new(false));
        let mut body = Sent::new(Slow::new(Duration::from_secs(6), 1), TERMS, line(), late.clone());
        let mut next = async || poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap();
        next().await.unwrap();
        sleep(Duration::from_secs(100)).await;
        next().await.unwrap();
        next().await.unwrap_err();
    }
}
