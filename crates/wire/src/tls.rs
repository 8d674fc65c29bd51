//! Mutual TLS from a folder of files: who we are, and whom we accept.
//!
//! The folder has `ca.pem` (the certificates of the authorities), `cert.pem` (ours, then intermediate ones) and `key.pem`.
//! Both ends of each connection show a certificate; what it says about its owner is its [`Badge`]. Host names are not compared:
//! the badge says whether this is the coordinator, or the agent of the node that was wanted. Only TLS 1.3 is
//! spoken. Sessions are not resumed: a resumed one would not look at the certificate again.
//!
//! Invariant: whatever the files in the folder become, the configuration in force was complete and consistent.

mod authority;
mod badge;
mod files;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::WireError;
use crate::net::{Stream, TcpStream};

pub use authority::{Authority, Issue};
pub(crate) use badge::Roles;
pub use badge::{Badge, Role, Wanted};
pub use files::{CA_FILE, CERT_FILE, KEY_FILE};

use files::{Configs, Stamp};

/// How often the files are looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The TLS of one process. Clones share it.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    look_every: Duration,
    state: Mutex<State>,
}

struct State {
    looked: Instant,
    stamp: Stamp,
    configs: Configs,
}

impl Tls {
    /// Reads the folder. Blocking, for a moment. Later changes of the files are noticed within ten seconds, at the next
    /// connection.
    ///
    /// # Errors
    /// `Invalid`: a file is missing or no PEM, the key does not fit the certificate, the certificate does not say who
    /// its owner is.
    pub fn open(dir: &Path) -> Result<Self, WireError> {
        Self::open_looking(dir, LOOK_EVERY)
    }

    /// The same, but looks at the files this often.
    ///
    /// # Errors
    /// As [`Tls::open`].
    pub fn open_looking(dir: &Path, look_every: Duration) -> Result<Self, WireError> {
        let (stamp, configs) = (Stamp::of(dir), Configs::read(dir)?);
        let state = Mutex::new(State { looked: Instant::now(), stamp, configs });
        Ok(Self(Arc::new(Inner { dir: dir.to_owned(), look_every, state })))
    }

    /// What our own certificate says.
    pub fn badge(&self) -> Arc<Badge> {
        self.current().badge
    }

    /// Answers the handshake of a peer that has connected to us.
    ///
    /// # Errors
    /// The peer shows no certificate, one that is not in force or not from our authority, or one that does not say who its
    /// owner is.
    pub async fn accept(&self, tcp: TcpStream) -> io::Result<Stream> {
        let stream = TlsAcceptor::from(self.current().server).accept(tcp).await?;
        let badge = badge_of(stream.get_ref().1.peer_certificates())?;
        Ok(Stream::Secure(Box::new(TlsStream::Server(stream)), badge))
    }

    /// Answers the handshake of a client from outside of the cluster, which shows no certificate and compares the names of
    /// our host with ours. Who it is must be asked in another way.
    ///
    /// # Errors
    /// The handshake fails.
    pub async fn accept_anybody<S>(
        &self,
        stream: S,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<S>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        TlsAcceptor::from(self.current().open).accept(stream).await
    }

    /// Answers the handshake of a user in a program from outside of the cluster, which shows a certificate of the cluster's and
    /// compares the names of our host with ours. Returns who it is too.
    ///
    /// # Errors
    /// As [`Tls::accept`], and if the peer belongs to another cluster or is neither client nor operator.
    pub async fn accept_user<S>(
        &self,
        stream: S,
    ) -> io::Result<(impl AsyncRead + AsyncWrite + Send + Unpin + use<S>, Arc<Badge>)>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let Configs { server, badge: own, .. } = self.current();
        let stream = TlsAcceptor::from(server).accept(stream).await?;
        let badge = badge_of(stream.get_ref().1.peer_certificates())?;
        admit(&own, &badge, Wanted::User)?;
        Ok((stream, badge))
    }

    /// Shakes hands with the peer that we have connected to.
    ///
    /// # Errors
    /// As [`Tls::accept`], and if the peer belongs to another cluster or is not what was `wanted`.
    pub async fn connect(&self, tcp: TcpStream, wanted: Wanted) -> io::Result<Stream> {
        let Configs { client, badge: own, .. } = self.current();
        // The library wants a name. It is neither sent nor compared: the badge is.
        let name = ServerName::try_from("kintsu").map_err(io::Error::other)?;
        let stream = TlsConnector::from(client).connect(name, tcp).await?;
        let badge = badge_of(stream.get_ref().1.peer_certificates())?;
        admit(&own, &badge, wanted)?;
        Ok(Stream::Secure(Box::new(TlsStream::Client(stream)), badge))
    }

    /// The same authority, but no certificate of our own.
    #[cfg(test)]
    fn without_certificate(&self) -> Self {
        let client = Arc::new(files::anonymous(&self.0.dir).unwrap());
        let configs = Configs { client, ..self.current() };
        let state = Mutex::new(State { looked: Instant::now(), stamp: Stamp::of(&self.0.dir), configs });
        Self(Arc::new(Inner { dir: self.0.dir.clone(), look_every: LOOK_EVERY, state }))
    }

    /// What is in force; reads changed files.
    fn current(&self) -> Configs {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() >= self.0.look_every {
            state.looked = Instant::now();
            self.look(&mut state);
        }
        state.configs.clone()
    }

    fn look(&self, state: &mut State) {
        let (dir, stamp) = (&self.0.dir, Stamp::of(&self.0.dir));
        if stamp == state.stamp {
            return;
        }
        let own = state.configs.badge.cluster();
        match Configs::read(dir) {
            Ok(new) if new.badge.cluster() != own => tracing::error!(
                "the certificate in {} was not taken over: expected one of cluster {own}, got {}; the former one stays in force",
                dir.display(),
                new.badge
            ),
            Ok(configs) => {
                tracing::info!("read {} again: new connections use the new files", dir.display());
                (state.stamp, state.configs) = (stamp, configs);
            }
            // Perhaps half of them are written; the next look will see.
            Err(error) => tracing::error!("{error}; the former files stay in force"),
        }
    }
}

/// Checks that a peer is who is wanted, in our cluster.
fn admit(own: &Badge, peer: &Badge, wanted: Wanted) -> io::Result<()> {
    if peer.cluster() == own.cluster() && peer.is(wanted) {
        return Ok(());
    }
    let expected = format!("{wanted} of cluster {}", own.cluster());
    Err(io::Error::other(format!("wrong peer: expected {expected}, got {peer}")))
}

fn badge_of(certificates: Option<&[rustls::pki_types::CertificateDer<'_>]>) -> io::Result<Arc<Badge>> {
    let first = certificates.and_then(<[_]>::first);
    let first = first.ok_or_else(|| io::Error::other("expected a certificate of the peer, got none"))?;
    Badge::read(first).map(Arc::new).map_err(io::Error::other)
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tls({})", self.0.dir.display())
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tls {}
