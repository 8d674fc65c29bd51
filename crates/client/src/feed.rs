//! The pieces of a stream: one for each stripe, kept in memory until the stripe is written, because a stripe may have
//! to be written again on other nodes and the stream cannot be read again.
//!
//! Bytes that the system delivers (a pipe) are read on a thread that may block. The kernel wakes that thread when there
//! are bytes. A task would wait until one of the few threads for tasks asks for news, and a pipe that holds 1 MiB
//! needs to be emptied hundreds of times a second.
//!
//! Invariants: the number of buffers, each as long as a stripe, does not depend on the length of the stream. A piece is
//! handed on only when it is known whether it is the last one. Of a buffer that served another stream nobody sees more than was
//! filled by this one.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use kintsu_wire::ambient::{blocking, rest};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::ClientError;
use crate::write_stripe::StripeSource;

/// Bytes of the pieces in memory, unless even three are longer. While some become durable on their nodes, others must
/// be written.
pub(crate) const KEPT_BYTES: usize = 144 << 20;

/// A read that brought fewer bytes has overtaken the producer, whose every write would wake the reader,
const FEW_BYTES: usize = 128 << 10;
/// so it rests for this long. A pipe has room for what comes meanwhile.
const REST: Duration = Duration::from_micros(500);
/// After this many rests in a row that did not help, a piece is read without them.
const MOST_USELESS: u32 = 3;

/// Most bytes of spare buffers, and how long they are kept.
const SPARE_BYTES: usize = 72 << 20;
const SPARE_FOR: Duration = Duration::from_secs(10);

/// Bytes that are read to see whether a stream goes on.
const AHEAD_BYTES: usize = 64 << 10;

/// Where the bytes of a stream come from.
pub(crate) enum Stream<'s> {
    /// Read by the task that puts.
    Here(&'s mut (dyn AsyncRead + Unpin + Send)),
    /// Read on a thread that may block.
    Blocking(Box<dyn Read + Send>),
}

/// Buffers of streams that have ended, for those that follow soon: the system clears fresh memory, page by page, which costs as much as
/// receiving the bytes.
#[derive(Default)]
pub(crate) struct Spares(Mutex<Vec<Vec<u8>>>);

impl Spares {
    fn buffers(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: usize) -> Option<Vec<u8>> {
        let mut buffers = self.buffers();
        let at = buffers.iter().position(|buffer| buffer.len() == bytes)?;
        Some(buffers.swap_remove(at))
    }

    fn give(self: &Arc<Self>, buffer: Vec<u8>) {
        // Somebody must let go of them.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut buffers = self.buffers();
        if buffers.iter().map(Vec::len).sum::<usize>() + buffer.len() > SPARE_BYTES {
            return;
        }
        buffers.push(buffer);
        if buffers.len() == 1 {
            let spares = self.clone();
            runtime.spawn(async move {
                tokio::time::sleep(SPARE_FOR).await;
                spares.buffers().clear();
            });
        }
    }
}

/// A stream that is cut into pieces.
pub(crate) struct Feed<'s> {
    /// `None` while a thread reads from it.
    stream: Option<Stream<'s>>,
    piece_bytes: usize,
    /// Most buffers.
    buffers: usize,
    /// Bytes of the pieces until now.
    offset: u64,
    /// What follows the last piece.
    ahead: Buffer,
    /// Buffers that were made.
    made: usize,
    home: Home,
    free: mpsc::Receiver<Vec<u8>>,
}

/// Where a buffer goes when nobody holds any of its bytes any more: to its stream, or, when that has ended, to the spare ones.
#[derive(Clone)]
struct Home {
    free: mpsc::Sender<Vec<u8>>,
    spares: Arc<Spares>,
}

impl Drop for Feed<'_> {
    fn drop(&mut self) {
        self.free.close();
        while let Ok(free) = self.free.try_recv() {
            self.home.spares.give(free);
        }
    }
}

impl<'s> Feed<'s> {
    /// Keeps at most `kept_bytes` in memory, but at least three pieces.
    pub(crate) fn new(
        stream: Stream<'s>,
        piece_bytes: usize,
        kept_bytes: usize,
        spares: &Arc<Spares>,
    ) -> Self {
        let buffers = (kept_bytes / piece_bytes.max(1)).clamp(3, 9);
        let (sender, free) = mpsc::channel(buffers);
        let home = Home { free: sender, spares: spares.clone() };
        let ahead = Buffer::new(vec![0; AHEAD_BYTES.min(piece_bytes)]);
        Self { stream: Some(stream), piece_bytes, buffers, offset: 0, ahead, made: 0, home, free }
    }

    /// How many pieces may be written at the same time, while another is filled.
    pub(crate) fn at_once(&self) -> usize {
        self.buffers - 1
    }

    /// The next piece, once there is a free buffer; with the length of the whole stream if it is the last one.
    pub(crate) async fn next(&mut self) -> Result<StripeSource, ClientError> {
        let piece = Buffer::new(self.buffer().await);
        let piece = self.read(piece).await?;
        let offset = self.offset;
        self.offset += piece.len as u64;
        let size = (self.ahead.len == 0).then_some(self.offset);
        let bytes = Arc::new(Bytes::from_owner(Filled { piece, home: self.home.clone() }));
        Ok(StripeSource { bytes, from: 0, offset, size })
    }

    /// Hands on all pieces after the first one.
    pub(crate) async fn run(mut self, queue: mpsc::Sender<StripeSource>) -> Result<(), ClientError> {
        loop {
            let piece = self.next().await?;
            let last = piece.size.is_some();
            // A writer that is gone says itself why.
            if queue.send(piece).await.is_err() || last {
                return Ok(());
            }
        }
    }

    async fn buffer(&mut self) -> Vec<u8> {
        if let Ok(free) = self.free.try_recv() {
            return free;
        }
        if self.made < self.buffers {
            self.made += 1;
            return self.home.spares.take(self.piece_bytes).unwrap_or_else(|| vec![0; self.piece_bytes]);
        }
        // This end of the channel has a sender too, so there is always an answer.
        self.free.recv().await.unwrap_or_default()
    }

    /// Fills a piece with what was read ahead and what follows, and reads ahead again.
    async fn read(&mut self, mut piece: Buffer) -> io::Result<Buffer> {
        piece.take(&mut self.ahead);
        match self.stream.take() {
            Some(Stream::Here(stream)) => {
                while !piece.is_full() && piece.more_from(stream).await? > 0 {}
                if piece.is_full() {
                    self.ahead.more_from(stream).await?;
                }
                self.stream = Some(Stream::Here(stream));
            }
            Some(Stream::Blocking(mut stream)) => {
                let mut ahead = std::mem::take(&mut self.ahead);
                let read = blocking(move || {
                    piece.fill(&mut stream, || rest(REST))?;
                    if piece.is_full() {
                        ahead.more(&mut stream)?;
                    }
                    io::Result::Ok((stream, piece, ahead))
                });
                let read = read.await.map_err(|e| io::Error::other(format!("a read ended early: {e}")))?;
                let (stream, filled, ahead) = read?;
                (piece, self.ahead, self.stream) = (filled, ahead, Some(Stream::Blocking(stream)));
            }
            None => return Err(io::Error::other("the stream failed before")),
        }
        Ok(piece)
    }
}

/// Room for bytes, of which the first `len` are there.
#[derive(Default)]
struct Buffer {
    room: Vec<u8>,
    len: usize,
}

impl Buffer {
    fn new(room: Vec<u8>) -> Self {
        Self { room, len: 0 }
    }

    fn is_full(&self) -> bool {
        self.len == self.room.len()
    }

    /// Takes all bytes of another buffer that is no longer.
    fn take(&mut self, other: &mut Self) {
        let len = std::mem::take(&mut other.len);
        self.room[self.len..][..len].copy_from_slice(&other.room[..len]);
        self.len += len;
    }

    /// Reads once; returns 0 at the end of the stream.
    fn more(&mut self, stream: &mut dyn Read) -> io::Result<usize> {
        loop {
            match stream.read(&mut self.room[self.len..]) {
                Err(again) if again.kind() == io::ErrorKind::Interrupted => {}
                read => return read.inspect(|bytes| self.len += bytes),
            }
        }
    }

    /// Reads until it is full, or to the end of the stream. Rests do not help if the producer is slow or its pipe is
    /// small: then reads bring no more after them.
    fn fill(&mut self, stream: &mut dyn Read, mut rest: impl FnMut()) -> io::Result<()> {
        let (mut useless, mut rested) = (0, None);
        while !self.is_full() {
            let bytes = self.more(stream)?;
            if bytes == 0 {
                break;
            }
            if let Some(before) = rested {
                useless = if bytes > before { 0 } else { useless + 1 };
            }
            let few = bytes < FEW_BYTES && !self.is_full();
            rested = (few && useless < MOST_USELESS).then_some(bytes);
            if rested.is_some() {
                rest();
            }
        }
        Ok(())
    }

    async fn more_from(&mut self, stream: &mut (dyn AsyncRead + Unpin + Send)) -> io::Result<usize> {
        stream.read(&mut self.room[self.len..]).await.inspect(|bytes| self.len += bytes)
    }
}

/// A buffer in use. It is used again when nobody holds any of its bytes any more.
struct Filled {
    piece: Buffer,
    home: Home,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.piece.room[..self.piece.len]
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let room = std::mem::take(&mut self.piece.room);
        if let Err(gone) = self.home.free.try_send(room) {
            self.home.spares.give(gone.into_inner());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a stream: their bytes, and the size that the last one tells.
    async fn pieces(stream: Stream<'_>, piece_bytes: usize) -> (Vec<Vec<u8>>, Vec<Option<u64>>) {
        let mut feed = Feed::new(stream, piece_bytes, KEPT_BYTES, &Arc::default());
        let (mut out, mut sizes) = (Vec::new(), Vec::new());
        loop {
            let piece = feed.next().await.unwrap();
            let mut bytes = vec![0; piece.bytes.len() as usize];
            piece.bytes.read_at(0, &mut bytes).unwrap();
            assert_eq!(piece.offset, out.iter().map(|piece: &Vec<u8>| piece.len() as u64).sum::<u64>());
            out.push(bytes);
            sizes.push(piece.size);
            if piece.size.is_some() {
                assert!(feed.made <= 1, "a free buffer is used again");
                return (out, sizes);
            }
        }
    }

    /// Gives few bytes at a time, and is interrupted between them.
    struct Halting(Vec<u8>, bool);

    impl Read for Halting {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let len = self.0.len().min(buffer.len()).min(4);
            buffer[..len].copy_from_slice(&self.0[..len]);
            self.0.drain(..len);
            Ok(len)
        }
    }

    #[tokio::test]
    async fn the_last_piece_is_known_to_be_the_last() {
        let bytes: Vec<u8> = (0..200u8).collect();
        for len in [0, 1, 9, 10, 11, 19, 20, 21, 200] {
            for here in [true, false] {
                let mut slice = &bytes[..len];
                let stream = match here {
                    true => Stream::Here(&mut slice),
                    false => Stream::Blocking(Box::new(Halting(bytes[..len].to_vec(), false))),
                };
                let (pieces, sizes) = pieces(stream, 10).await;
                assert_eq!(pieces.concat(), bytes[..len]);
                assert_eq!(pieces.len(), len.div_ceil(10).max(1), "{len}");
                let (last, before) = sizes.split_last().unwrap();
                assert_eq!(*last, Some(len as u64));
                assert!(before.iter().all(Option::is_none));
            }
        }
    }

    #[test]
    fn a_small_pipe_is_read_almost_without_rests() {
        let len = 32 << 10;
        let (mut piece, mut rests) = (Buffer::new(vec![0; len]), 0);
        piece.fill(&mut Halting(vec![1; len], false), || rests += 1).unwrap();
        assert!(piece.is_full());
        assert_eq!(rests, MOST_USELESS);
    }

    /// Fails after its bytes.
    struct Broken(usize);

    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let len = buffer.len().min(self.0);
            self.0 -= len;
            if len == 0 { Err(io::Error::other("the stream broke")) } else { Ok(len) }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_follows_soon_gets_the_buffers_of_the_last_one() {
        let spares = Arc::default();
        for (bytes, spare) in [(&[1u8; 25][..], 0), (&[2; 15], 3), (&[3; 7], 3)] {
            let mut stream = bytes;
            let mut feed = Feed::new(Stream::Here(&mut stream), 10, KEPT_BYTES, &spares);
            assert_eq!(spares.buffers().len(), spare);
            let (mut pieces, mut all) = (Vec::new(), Vec::new());
            loop {
                let piece = feed.next().await.unwrap();
                let mut read = vec![0; piece.bytes.len() as usize];
                piece.bytes.read_at(0, &mut read).unwrap();
                all.extend(read);
                let last = piece.size.is_some();
                pieces.push(piece);
                if last {
                    break;
                }
            }
            assert_eq!(all, bytes);
            // Some come home before their stream has ended, and some after.
            pieces.truncate(1);
            drop((feed, pieces));
        }
        tokio::time::sleep(2 * SPARE_FOR).await;
        assert!(spares.buffers().is_empty());
    }

    #[tokio::test]
    async fn a_stream_that_breaks_is_an_error_and_not_an_end() {
        for len in [0, 9, 10, 11, 25] {
            let mut feed =
                Feed::new(Stream::Blocking(Box::new(Broken(len))), 10, KEPT_BYTES, &Arc::default());
            let mut whole = 0;
            let error = loop {
                match feed.next().await {
                    Ok(piece) => whole += piece.bytes.len() as usize,
                    Err(error) => break error,
                }
            };
            assert!(error.to_string().contains("the stream broke"), "{error}");
            // The last whole piece is not handed on, if nobody knows whether it is the last one.
            assert_eq!(whole, len.saturating_sub(1) / 10 * 10);
            assert!(feed.next().await.is_err());
        }
    }
}
