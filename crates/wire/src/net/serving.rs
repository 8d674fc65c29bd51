//! The connections of a server: accepted up to a number, counted, and ended in order. What is said on them, the server knows.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// A pause after an error of the listener, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Something that accepts connections.
pub trait Accept: Send + Sync + 'static {
    /// A connection.
    type Connection: Send + 'static;

    /// The next connection.
    ///
    /// # Errors
    /// Those of the operating system; the next call may succeed.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Connection>> + Send;
}

impl Accept for tokio::net::TcpListener {
    type Connection = (tokio::net::TcpStream, SocketAddr);

    async fn accept(&self) -> io::Result<Self::Connection> {
        tokio::net::TcpListener::accept(self).await
    }
}

/// The places of a server's connections.
#[derive(Debug, Clone)]
pub struct Places {
    most: usize,
    free: Arc<Semaphore>,
    refused: Arc<AtomicU64>,
}

impl Places {
    fn new(most: usize) -> Self {
        Self { most, free: Arc::new(Semaphore::new(most)), refused: Arc::default() }
    }

    /// Connections at this moment.
    pub fn taken(&self) -> usize {
        self.most.saturating_sub(self.free.available_permits())
    }

    /// Connections that were refused because there was no place.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}

/// A server's connections. Dropping it ends them at once; [`Serving::shutdown`] ends them in order.
#[derive(Debug)]
pub struct Serving {
    ending: CancellationToken,
    places: Places,
    accepting: Option<JoinHandle<()>>,
}

impl Serving {
    /// Serves each connection of a listener by `serve`, at most `most` at a time; further ones are closed at once. `ending`
    /// tells the connections, and whoever else has it, that the server ends. `name` is for the log.
    pub fn start<L, F>(
        listener: L,
        name: String,
        most: usize,
        ending: CancellationToken,
        serve: impl Fn(L::Connection) -> F + Send + 'static,
    ) -> Self
    where
        L: Accept,
        F: Future<Output = ()> + Send + 'static,
    {
        let places = Places::new(most);
        let accepting = tokio::spawn(accept(listener, name, places.clone(), ending.clone(), serve));
        Self { ending, places, accepting: Some(accepting) }
    }

    /// Connections at this moment.
    pub fn connections(&self) -> usize {
        self.places.taken()
    }

    /// The places of its connections, to look at.
    pub fn places(&self) -> Places {
        self.places.clone()
    }

    /// Takes no more connections and waits until those that there are have ended. After `wait` they are dropped. Returns
    /// whether all had ended.
    pub async fn shutdown(mut self, wait: Duration) -> bool {
        self.ending.cancel();
        let Some(mut accepting) = self.accepting.take() else { return true };
        let ended = timeout(wait, &mut accepting).await.is_ok();
        if !ended {
            accepting.abort();
            // Its socket is gone when this returns.
            let _ = accepting.await;
        }
        ended
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

/// Accepts connections until the server ends, then waits for them.
async fn accept<L, F>(
    listener: L,
    name: String,
    places: Places,
    ending: CancellationToken,
    serve: impl Fn(L::Connection) -> F + Send + 'static,
) where
    L: Accept,
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ending.cancelled() => break,
        };
        // What has ended is forgotten.
        while connections.try_join_next().is_some() {}
        match (accepted, places.free.clone().try_acquire_owned()) {
            (Ok(connection), Ok(place)) => {
                let serving = serve(connection);
                connections.spawn(async move {
                    serving.await;
                    drop(place);
                });
            }
            (Ok(_), Err(_)) => {
                places.refused.fetch_add(1, Relaxed);
                tracing::warn!("refused a connection to {name}: expected at most {} at a time", places.most);
            }
            (Err(error), _) => {
                tracing::warn!("cannot accept connections to {name}: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    // New clients are told at once that nobody is here.
    drop(listener);
    while connections.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn connections_are_counted_refused_and_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let ending = CancellationToken::new();
        let serving = Serving::start(listener, "a test".into(), 1, ending.clone(), move |(mut stream, _)| {
            let ending = ending.clone();
            async move {
                stream.write_all(b"hello").await.unwrap();
                ending.cancelled().await;
                stream.write_all(b" bye").await.unwrap();
            }
        });
        let mut first = TcpStream::connect(addr).await.unwrap();
        let mut hello = [0; 5];
        first.read_exact(&mut hello).await.unwrap();
        assert_eq!((&hello, serving.connections()), (b"hello", 1));
        let mut second = TcpStream::connect(addr).await.unwrap();
        assert!(matches!(second.read(&mut hello).await, Ok(0) | Err(_)), "there is one place only");
        assert_eq!((serving.places().taken(), serving.places().refused()), (1, 1));
        assert!(serving.shutdown(Duration::from_secs(10)).await);
        let mut rest = Vec::new();
        first.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b" bye");
        assert!(TcpStream::connect(addr).await.is_err());
    }
}
