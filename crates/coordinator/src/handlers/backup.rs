//! Sends a copy of the metadata in pieces: either a new copy, or the copy that agents are to keep.
//!
//! A reader that takes no piece for a while is dropped, because the store cannot reuse pages while a snapshot is
//! being read.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kintsu_wire::message::{Backup, CopyChunk};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};

/// Most pieces in the channel to the reader.
pub const PIECES: usize = 4;
/// Bytes per piece.
const PIECE_BYTES: usize = 512 << 10;
/// How long a reader may take for one piece.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the head of this file. `Conflict` for a new copy of metadata that are older than what agents hold, or half rebuilt.
pub async fn handle(
    cluster: &Arc<Cluster>,
    request: Backup,
    reader: mpsc::Sender<Result<CopyChunk, Status>>,
) -> Result<()> {
    let permit = cluster.copies.serving.clone().acquire_owned().await;
    let offer = match request.number {
        Some(number) => {
            let missing = || CoordinatorError::NotFound { what: "copy", name: number.to_string() };
            cluster.copies.offered(number).ok_or_else(missing)?
        }
        None => {
            // It would take the place of a better copy where users keep one file.
            cluster.gate().check_trusted("a copy of the metadata")?;
            let (worker, now) = (cluster.clone(), cluster.unix_seconds());
            Arc::new(cluster.meta.off(move |meta| worker.copies.take(meta, now)).await?)
        }
    };
    let worker = cluster.clone();
    #[allow(clippy::disallowed_methods, reason = "a simulation does without copies of metadata")]
    cluster.tasks.spawn_blocking(move || {
        let _permit = permit;
        let done = std::cell::Cell::new(0);
        let stop = worker.stop.clone();
        let mut pieces = Pieces {
            reader: reader.clone(),
            stop,
            runtime: Handle::current(),
            gathered: Vec::new(),
            done: &done,
        };
        let dumped = offer.snapshot.dump(&offer.header, &mut pieces, &mut |stripes| done.set(stripes));
        if let Err(error) = dumped {
            tracing::info!("a copy of the metadata ended early: {error}");
            // If the reader is gone, nobody needs the reason.
            let _ = reader.try_send(Err(worker.meta.failure().explain(error).into()));
        }
    });
    Ok(())
}

/// A writer that sends its bytes as pieces; blocking.
struct Pieces<'a> {
    reader: mpsc::Sender<Result<CopyChunk, Status>>,
    stop: CancellationToken,
    runtime: Handle,
    gathered: Vec<u8>,
    done: &'a std::cell::Cell<u64>,
}

impl Pieces<'_> {
    fn send(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let bytes = Bytes::from(std::mem::replace(&mut self.gathered, Vec::with_capacity(PIECE_BYTES)));
        let sent = self.reader.send_timeout(Ok(CopyChunk { bytes, done: self.done.get() }), PATIENCE);
        let sent = async {
            tokio::select! {
                () = self.stop.cancelled() => Err("the coordinator ends"),
                sent = sent => sent.map_err(|_| "its reader went away or takes nothing"),
            }
        };
        self.runtime.block_on(sent).map_err(|why| io::Error::new(io::ErrorKind::BrokenPipe, why))
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PIECE_BYTES - self.gathered.len();
        let taken = bytes.len().min(room);
        self.gathered.extend_from_slice(&bytes[..taken]);
        if self.gathered.len() == PIECE_BYTES {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{cluster, put};
    use crate::meta::{Meta, restore};

    #[tokio::test]
    async fn the_pieces_are_a_copy() {
        let (_dir, cluster) = cluster(4, 4).await;
        put(&cluster, "a", 48).await;
        let (reader, mut pieces) = mpsc::channel(PIECES);
        handle(&cluster, Backup::default(), reader).await.unwrap();
        let mut copy = Vec::new();
        while let Some(piece) = pieces.recv().await {
            copy.extend(piece.unwrap().bytes);
        }
        let dir = tempfile::tempdir().unwrap();
        let header = restore(dir.path(), 1 << 20, copy.as_slice(), &mut |_| {}).unwrap();
        assert_eq!((header.objects, header.stripes), (1, 2));
        let meta = Meta::open(dir.path(), 1 << 20).unwrap();
        let (expected, got) = (cluster.meta.snapshot().unwrap(), meta.snapshot().unwrap());
        assert_eq!(got.totals().unwrap(), expected.totals().unwrap());
        assert_eq!(got.tallies().unwrap(), expected.tallies().unwrap());
    }

    #[tokio::test]
    async fn metadata_that_lack_something_are_not_copied() {
        let (_dir, cluster) = cluster(1, 1).await;
        cluster.gate().fall_behind("the metadata are older".into());
        let (reader, mut pieces) = mpsc::channel(PIECES);
        let error = handle(&cluster, Backup::default(), reader).await.unwrap_err();
        assert!(error.to_string().contains("the metadata are older"), "{error}");
        assert!(pieces.recv().await.is_none());
        cluster.gate().catch_up();
        handle(&cluster, Backup::default(), mpsc::channel(PIECES).0).await.unwrap();
    }

    #[tokio::test]
    async fn only_what_is_on_offer_has_a_number() {
        let (_dir, cluster) = cluster(1, 1).await;
        let (reader, _pieces) = mpsc::channel(PIECES);
        let error = handle(&cluster, Backup { number: Some(9) }, reader).await.unwrap_err();
        assert!(matches!(error, CoordinatorError::NotFound { .. }), "{error}");
    }
}
