//! The options of `kintsu nbd`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kintsu_wire::TrustedNetwork;

use crate::units::parse_duration;

/// What its help ends with.
pub const EXAMPLES: &str = "\
Examples:
  kintsu volume create disk --size 10GiB --code rs:n=9,k=6
  kintsu nbd disk                                  # nbd://127.0.0.1:10809/disk, until Ctrl-C
  kintsu nbd disk --unix /run/disk.sock            # nbd+unix:///disk?socket=/run/disk.sock
  kintsu nbd disk --unix /run/backup.sock --read-only
  kintsu nbd disk --take                           # its former server is gone, or must stop writing

What clients do with it:
  nbdinfo nbd://127.0.0.1:10809/disk
  nbdcopy --flush image.raw nbd://127.0.0.1:10809/disk
  qemu-system-x86_64 -drive file=nbd://127.0.0.1:10809/disk,format=raw ...
  nbdfuse /mnt/disk nbd://127.0.0.1:10809/disk     # the file /mnt/disk/nbd
  nbd-client -N disk 127.0.0.1 10809 /dev/nbd0     # as root

With --tls, clients find ca-cert.pem, client-cert.pem and client-key.pem in a folder (links to ca.pem, cert.pem and key.pem of one
that `kintsu ca issue --role client/NAME` made); the server's certificate names its host (`kintsu ca issue --host`):
  nbdinfo 'nbds://127.0.0.1:10809/disk?tls-certificates=DIR'
  qemu-img info --object tls-creds-x509,id=tls,dir=DIR,endpoint=client \\
    --image-opts driver=nbd,host=127.0.0.1,port=10809,export=disk,tls-creds=tls";

/// `kintsu nbd`.
#[derive(Debug, Args)]
pub struct Nbd {
    /// The volume.
    pub volume: String,
    /// Where to listen (port 0: any free port). With --tls clients must speak TLS and show a certificate of a client or an operator;
    /// else the protocol has no passwords: whoever reaches this address can read and write the volume.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:10809", conflicts_with = "unix")]
    pub listen: SocketAddr,
    /// Listen on a Unix socket at this path instead; only your own user may use it.
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Speak plain text although there is --tls, which is then for the cluster only.
    #[arg(long)]
    pub plain: bool,
    /// Refuse writes; a snapshot is always served so. Any number of readers may serve a volume at the same time as its writer.
    #[arg(long)]
    pub read_only: bool,
    /// Become the writer although another one has not given up its lease; what that one writes from now on is refused.
    #[arg(long, conflicts_with = "read_only")]
    pub take: bool,
    /// A trusted network that is yours alone, such as 10.77.0.0/16, where it may listen in plain text. The cluster must have
    /// a token, but clients of NBD do not show it: everybody on that network can read and write the volume.
    #[arg(long, value_name = "CIDR", conflicts_with = "unix")]
    pub trusted_network: Option<TrustedNetwork>,
    /// Connections at one time; each may hold 32 MiB.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub connections: u16,
    /// Requests wait this long for nodes or a coordinator that are away; then they fail.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub patience: Duration,
    /// At the end, wait this long for requests under way.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub wait: Duration,
}
