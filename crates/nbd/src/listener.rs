//! Where a server listens: a TCP address that the project's rule allows, or a Unix socket that is its own.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kintsu_wire::net::Accept;
use kintsu_wire::{Credentials, Tls, TrustedNetwork, check_listen};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::error::NbdError;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// A server that takes a connection does so within this time.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// Where to listen.
#[derive(Debug, Clone)]
pub enum Listen {
    /// On a TCP address (port 0: any free port): anywhere with TLS, else on loopback, or on a trusted network if the cluster has
    /// a token. The protocol has no passwords, so without TLS everybody who reaches the address may read and write.
    Tcp {
        /// The address.
        addr: SocketAddr,
        /// Clients must begin TLS, and show a certificate of a client or an operator of this cluster.
        tls: Option<Tls>,
        /// The cluster's token.
        token: Option<String>,
        /// A network that is the owner's alone.
        trusted: Option<TrustedNetwork>,
    },
    /// On a Unix socket at this path, which only the owner of this process may use. A socket that a server left there is
    /// replaced; the socket is removed when the server ends.
    Unix(PathBuf),
}

impl Listen {
    /// The TLS that clients must speak.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        match self {
            Self::Tcp { tls, .. } => tls.as_ref(),
            Self::Unix(_) => None,
        }
    }
}

/// A bound listener.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, OwnSocket),
}

/// What a client says.
pub(crate) type Input = Box<dyn AsyncRead + Send + Unpin>;
/// What it is told.
pub(crate) type Output = Box<dyn AsyncWrite + Send + Unpin>;
/// The two halves of a connection.
pub(crate) type Halves = (Input, Output);

impl Listener {
    /// Binds it.
    ///
    /// # Errors
    /// `Exposed`, `InUse`, `NotASocket`, `Listen`.
    pub async fn bind(listen: Listen) -> Result<Self, NbdError> {
        match listen {
            Listen::Tcp { addr, tls, token, trusted } => {
                check_listen(addr, &Credentials::of(token.as_deref(), tls.as_ref())?, trusted)?;
                let failed = |source| NbdError::Listen { on: addr.to_string(), source };
                Ok(Self::Tcp(TcpListener::bind(addr).await.map_err(failed)?))
            }
            Listen::Unix(path) => {
                make_way(&path).await?;
                let failed = |source| NbdError::Listen { on: path.display().to_string(), source };
                let listener = bind_unix(&path).map_err(failed)?;
                let own = OwnSocket::at(&path).map_err(failed)?;
                Ok(Self::Unix(UnixListener::from_std(listener).map_err(failed)?, own))
            }
        }
    }

    /// What clients call this server's export (the NBD project's `uri.md`).
    pub fn uri(&self, export: &str, tls: bool) -> io::Result<String> {
        let (scheme, export) = (if tls { "nbds" } else { "nbd" }, escaped(export, b"/"));
        Ok(match self {
            Self::Tcp(listener) => format!("{scheme}://{}/{export}", listener.local_addr()?),
            Self::Unix(_, own) => {
                format!("nbd+unix:///{export}?socket={}", escaped(&own.path.to_string_lossy(), b"/"))
            }
        })
    }

    /// The TCP address.
    pub fn addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }
}

impl Accept for Listener {
    /// Where it comes from, if that is an address; and what is said.
    type Connection = (Option<SocketAddr>, Halves);

    async fn accept(&self) -> io::Result<Self::Connection> {
        match self {
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                // Answers are batched already; waiting for more only costs time.
                stream.set_nodelay(true)?;
                // A peer that vanished does not keep its place for ever.
                let alive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(60));
                socket2::SockRef::from(&stream).set_tcp_keepalive(&alive)?;
                let (reader, writer) = stream.into_split();
                Ok((Some(from), (Box::new(reader), Box::new(writer))))
            }
            Self::Unix(listener, _) => {
                let (reader, writer) = listener.accept().await?.0.into_split();
                Ok((None, (Box::new(reader), Box::new(writer))))
            }
        }
    }
}

/// Our socket in the file system; removed when dropped, if it is still ours.
pub(crate) struct OwnSocket {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl OwnSocket {
    fn at(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let about = std::fs::symlink_metadata(&path)?;
        Ok(Self { path, identity: (about.dev(), about.ino()) })
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        let same = |about: &std::fs::Metadata| (about.dev(), about.ino()) == self.identity;
        if std::fs::symlink_metadata(&self.path).is_ok_and(|about| same(&about)) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket on which nobody listens any more.
///
/// # Errors
/// `InUse` if somebody listens, `NotASocket` if it is something else, `Listen`.
async fn make_way(path: &Path) -> Result<(), NbdError> {
    let got = match std::fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(about) if about.file_type().is_socket() => None,
        Ok(about) if about.is_dir() => Some("a folder"),
        Ok(about) if about.is_symlink() => Some("a symbolic link"),
        Ok(_) => Some("a file"),
    };
    if let Some(got) = got {
        return Err(NbdError::NotASocket { path: path.to_owned(), got });
    }
    match tokio::time::timeout(ANSWERS_WITHIN, UnixStream::connect(path)).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)
            .map_err(|source| NbdError::Listen { on: path.display().to_string(), source }),
        // One that may not be asked, or has no time to answer, is in use too.
        _ => Err(NbdError::InUse { path: path.to_owned() }),
    }
}

/// Listens on a new socket. Its owner alone may use it: until that is so, it takes no connections.
fn bind_unix(path: &Path) -> io::Result<StdUnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A text as a part of a URI: letters, digits, `-._~` and `also` as they are, everything else as `%XX`.
fn escaped(text: &str, also: &[u8]) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || also.contains(&byte) {
            out.push(byte.into());
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &Path) -> Listen {
        Listen::Unix(path.to_owned())
    }

    #[tokio::test]
    async fn a_socket_that_was_left_is_replaced_and_one_in_use_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.sock");
        drop(StdUnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let first = Listener::bind(unix(&path)).await.unwrap();
        let about = std::fs::metadata(&path).unwrap();
        assert_eq!(about.permissions().mode() & 0o777, 0o600);
        assert!(matches!(Listener::bind(unix(&path)).await, Err(NbdError::InUse { .. })));
        drop(first);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_is_not_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.sock");
        std::fs::write(&path, "precious").unwrap();
        let refused = Listener::bind(unix(&path)).await.err().unwrap();
        assert!(refused.to_string().contains("got a file"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert!(matches!(Listener::bind(unix(dir.path())).await, Err(NbdError::NotASocket { .. })));
        // A socket that somebody put in place of ours.
        std::fs::remove_file(&path).unwrap();
        let ours = Listener::bind(unix(&path)).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        let _theirs = StdUnixListener::bind(&path).unwrap();
        drop(ours);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_or_in_no_folder_is_refused() {
        for path in ["/tmp/".to_owned() + &"x".repeat(120), "/nowhere/at/all/disk.sock".into()] {
            let refused = Listener::bind(unix(Path::new(&path))).await.err().unwrap();
            assert!(matches!(refused, NbdError::Listen { .. }), "{refused}");
            assert!(refused.to_string().contains(&path), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_connection_says_where_it_comes_from() {
        let addr = "127.0.0.1:0".parse().unwrap();
        let listen = Listen::Tcp { addr, tls: None, token: None, trusted: None };
        let ours = Listener::bind(listen).await.unwrap();
        let client = tokio::net::TcpStream::connect(ours.addr().unwrap()).await.unwrap();
        let (from, _halves) = ours.accept().await.unwrap();
        assert_eq!(from, Some(client.local_addr().unwrap()));
    }

    #[tokio::test]
    async fn beyond_loopback_the_rule_for_listeners_holds() {
        let tcp = |addr: &str| {
            let (addr, tls, token, trusted) = (addr.parse().unwrap(), None, None, None);
            Listen::Tcp { addr, tls, token, trusted }
        };
        assert!(matches!(Listener::bind(tcp("0.0.0.0:0")).await, Err(NbdError::Exposed(_))));
        let ours = Listener::bind(tcp("127.0.0.1:0")).await.unwrap();
        for (tls, scheme) in [(false, "nbd"), (true, "nbds")] {
            let uri = ours.uri("my disk/1", tls).unwrap();
            assert_eq!(uri, format!("{scheme}://{}/my%20disk/1", ours.addr().unwrap()));
        }
    }
}
