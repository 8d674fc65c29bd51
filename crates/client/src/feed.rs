//! The pieces of a stream: one for each stripe, kept in memory until the stripe is written, because a stripe may have
//! to be written again on other nodes and the stream cannot be read again.
//!
//! Invariants: the number of buffers, each as long as a stripe, does not depend on the length of the stream. A piece is
//! handed on only when it is known whether it is the last one.

use std::io;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::mpsc;

use crate::ClientError;
use crate::write_stripe::StripeSource;

/// Bytes of the pieces in memory, unless even three are longer. While some become durable on their nodes, others must
/// be written.
const KEPT_BYTES: usize = 144 << 20;

/// Bytes that are read to see whether a stream goes on.
const AHEAD_BYTES: usize = 64 << 10;

/// A stream that is cut into pieces.
pub(crate) struct Feed<'s> {
    stream: &'s mut (dyn AsyncRead + Unpin + Send),
    piece_bytes: usize,
    /// Most buffers.
    buffers: usize,
    /// Bytes of the pieces until now.
    offset: u64,
    /// What follows the last piece.
    ahead: Vec<u8>,
    /// Buffers that were made.
    made: usize,
    free: (mpsc::Sender<Vec<u8>>, mpsc::Receiver<Vec<u8>>),
}

impl<'s> Feed<'s> {
    pub(crate) fn new(stream: &'s mut (dyn AsyncRead + Unpin + Send), piece_bytes: usize) -> Self {
        let buffers = (KEPT_BYTES / piece_bytes.max(1)).clamp(3, 9);
        let free = mpsc::channel(buffers);
        Self { stream, piece_bytes, buffers, offset: 0, ahead: Vec::new(), made: 0, free }
    }

    /// How many pieces may be written at the same time, while another is filled.
    pub(crate) fn at_once(&self) -> usize {
        self.buffers - 1
    }

    /// The next piece, once there is a free buffer; with the length of the whole stream if it is the last one.
    pub(crate) async fn next(&mut self) -> Result<StripeSource, ClientError> {
        let mut bytes = self.buffer().await;
        bytes.append(&mut self.ahead);
        fill(self.stream, &mut bytes, self.piece_bytes).await?;
        if bytes.len() == self.piece_bytes {
            let wanted = AHEAD_BYTES.min(self.piece_bytes);
            self.ahead.reserve_exact(wanted);
            fill_some(self.stream, &mut self.ahead, wanted).await?;
        }
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        let size = self.ahead.is_empty().then_some(self.offset);
        let bytes = Arc::new(Bytes::from_owner(Filled { bytes, home: self.free.0.clone() }));
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
        if let Ok(free) = self.free.1.try_recv() {
            return free;
        }
        if self.made < self.buffers {
            self.made += 1;
            return Vec::with_capacity(self.piece_bytes);
        }
        // This end of the channel has a sender too, so there is always an answer.
        self.free.1.recv().await.unwrap_or_default()
    }
}

/// Reads until there are `upto` bytes in the buffer, or to the end of the stream.
async fn fill(
    stream: &mut (dyn AsyncRead + Unpin + Send),
    buffer: &mut Vec<u8>,
    upto: usize,
) -> io::Result<()> {
    while buffer.len() < upto {
        if fill_some(stream, buffer, upto).await? == 0 {
            break;
        }
    }
    Ok(())
}

async fn fill_some(
    stream: &mut (dyn AsyncRead + Unpin + Send),
    buffer: &mut Vec<u8>,
    upto: usize,
) -> io::Result<usize> {
    let room = upto.saturating_sub(buffer.len());
    stream.read_buf(&mut buffer.limit(room)).await
}

/// A buffer in use. It is used again when nobody holds any of its bytes any more.
struct Filled {
    bytes: Vec<u8>,
    home: mpsc::Sender<Vec<u8>>,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        // The feed may be gone.
        let _ = self.home.try_send(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a stream: their bytes, and the size that the last one tells.
    async fn pieces(stream: &[u8], piece_bytes: usize) -> (Vec<Vec<u8>>, Vec<Option<u64>>) {
        let mut stream = stream;
        let mut feed = Feed::new(&mut stream, piece_bytes);
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

    #[tokio::test]
    async fn the_last_piece_is_known_to_be_the_last() {
        let bytes: Vec<u8> = (0..200u8).collect();
        for len in [0, 1, 9, 10, 11, 19, 20, 21, 200] {
            let (pieces, sizes) = pieces(&bytes[..len], 10).await;
            assert_eq!(pieces.concat(), bytes[..len]);
            assert_eq!(pieces.len(), len.div_ceil(10).max(1), "{len}");
            let (last, before) = sizes.split_last().unwrap();
            assert_eq!(*last, Some(len as u64));
            assert!(before.iter().all(Option::is_none));
        }
    }
}
