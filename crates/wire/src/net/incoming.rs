//! The connections of a gRPC server. With TLS they come out only after the handshake, so that calls come from peers that are
//! known; many handshakes run at once.

use std::io::Result;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio_stream::Stream as Items;

use super::{Accepted, Strangers, Stream, TcpListener, TcpStream, accepted};
use crate::Tls;

/// Connections whose handshake is done and that the server has not taken yet.
const READY: usize = 16;

/// The connections that a listener accepts.
pub struct Incoming {
    accepted: Accepted,
    secure: Option<Secure>,
}

struct Secure {
    tls: Tls,
    strangers: Strangers,
    /// Kept, so that `ready` does not end.
    done: mpsc::Sender<Stream>,
    ready: mpsc::Receiver<Stream>,
}

impl Incoming {
    /// Those of this listener; all of them in TLS if there is one.
    pub(crate) fn new(listener: TcpListener, tls: Option<Tls>) -> Self {
        let secure = tls.map(|tls| {
            let (done, ready) = mpsc::channel(READY);
            Secure { tls, strangers: Strangers::default(), done, ready }
        });
        Self { accepted: accepted(listener), secure }
    }
}

impl Items for Incoming {
    type Item = Result<Stream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Stream>>> {
        let Self { accepted, secure } = &mut *self;
        let mut accepted = Pin::new(accepted);
        let Some(secure) = secure else {
            return accepted.poll_next(cx).map(|next| next.map(|tcp| tcp.map(Stream::Bare)));
        };
        loop {
            if let Poll::Ready(Some(stream)) = secure.ready.poll_recv(cx) {
                return Poll::Ready(Some(Ok(stream)));
            }
            match accepted.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(tcp))) => secure.shake(tcp),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Secure {
    /// Lets a peer shake hands.
    fn shake(&self, tcp: TcpStream) {
        let from = tcp.peer_addr().ok();
        let name = from.map_or_else(|| "somewhere".to_owned(), |from| from.to_string());
        let (tls, done) = (self.tls.clone(), self.done.clone());
        self.strangers.introduce(from.map(|from| from.ip()), |introducing| async move {
            let shaken = tokio::select! {
                biased;
                shaken = tls.accept(tcp) => shaken,
                () = done.closed() => return,
            };
            drop(introducing);
            match shaken {
                Ok(stream) => {
                    // The server may have ended.
                    let _ = done.send(stream).await;
                }
                Err(error) => tracing::warn!(target: "audit", from = name, "refused a connection: {error}"),
            }
        });
    }
}
