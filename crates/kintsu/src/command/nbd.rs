//! `kintsu nbd`: a volume as a disk for programs that speak NBD.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kintsu_client::{ClientError, Volume, VolumeAccess};
use kintsu_nbd::{Device, DeviceError, Extent, Limits, Listen, NbdError, Server};
use kintsu_wire::Tls;
use serde_json::json;

use super::interrupted;
use super::serve::{finish, ready};
use crate::cli::{Endpoint, Nbd};
use crate::units::human;

/// What clients of libnbd say in TLS: where their certificate is.
const CERTIFICATES: &str = "?tls-certificates=DIR";
/// How often it is asked whether this is still the writer.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Serves a volume until Ctrl-C or SIGTERM, or until another writer takes it.
pub async fn run(mut args: Nbd, endpoint: Endpoint, json: bool) -> anyhow::Result<ExitCode> {
    let (token, tls) = (endpoint.token.clone(), endpoint.tls.clone().filter(|_| !args.plain));
    let client = endpoint.client().await?;
    // Nobody writes to a snapshot.
    args.read_only |= tokio::select! {
        info = client.volume_info(&args.volume) => info?.snapshot_of.is_some(),
        code = interrupted() => return code,
    };
    let access = match (args.read_only, args.take) {
        (true, _) => VolumeAccess::Read,
        (false, true) => VolumeAccess::TakeOver,
        (false, false) => VolumeAccess::Write,
    };
    let opened = tokio::select! {
        opened = client.open_volume(&args.volume, access) => opened?,
        code = interrupted() => return code,
    };
    let served = serve(&args, (token, tls), &opened, json).await;
    // The lease is given back however it ended.
    let closed = opened.close().await;
    client.close().await;
    let code = served?;
    closed?;
    Ok(code)
}

async fn serve(
    args: &Nbd,
    (token, tls): (Option<String>, Option<Tls>),
    volume: &Volume,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let listen = match &args.unix {
        Some(path) => Listen::Unix(path.clone()),
        None => Listen::Tcp { addr: args.listen, tls, token, trusted: args.trusted_network },
    };
    let limits = Limits { connections: args.connections.into(), ..Limits::default() };
    let device = Arc::new(Disk { volume: volume.clone(), read_only: args.read_only });
    let server = match Server::start(device, &args.volume, listen, limits).await {
        Err(NbdError::Listen { on, source }) if source.kind() == std::io::ErrorKind::AddrInUse => {
            anyhow::bail!(
                "cannot listen on {on}: {source}; choose another one with --listen (port 0: any free one)"
            )
        }
        other => other?,
    };
    let (uri, info) = (server.uri().to_owned(), volume.info());
    let certificates = if uri.starts_with("nbds:") { CERTIFICATES } else { "" };
    let about = json!({
        "volume": args.volume, "uri": uri, "size": volume.size(), "read_only": args.read_only, "listen": server.addr(),
    });
    let mode = if args.read_only { "to read only" } else { "to read and write" };
    let text = format!(
        "volume {} ({}, {}), {mode}: {uri}\n  nbdinfo '{uri}{certificates}'\n  nbdcopy --flush IMAGE '{uri}{certificates}'\n\
         Ctrl-C ends it; what was written stays.",
        args.volume,
        human(volume.size()),
        info.code
    );
    ready(json, about, &text)?;
    let ended = tokio::select! {
        code = interrupted() => code.map(|_| ()),
        lost = lost(volume) => Err(lost.into()),
    };
    let late = finish(server.connections(), args.wait, server.shutdown(args.wait)).await?;
    ended?;
    if let Some(code) = late {
        return Ok(code);
    }
    volume.flush().await?;
    Ok(ExitCode::SUCCESS)
}

/// Waits until another writer has taken the volume.
async fn lost(volume: &Volume) -> ClientError {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Err(lost @ ClientError::Interrupted(_)) = volume.flush().await {
            return lost;
        }
    }
}

/// A volume as a disk. Each write is durable when it is answered, so flushes and FUA have nothing to add.
struct Disk {
    volume: Volume,
    read_only: bool,
}

impl Device for Disk {
    fn size(&self) -> u64 {
        self.volume.size()
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    async fn read(&self, offset: u64, len: u32) -> Result<Bytes, DeviceError> {
        self.volume.read(offset, len.into()).await.map_err(refused)
    }

    async fn write(&self, offset: u64, bytes: Bytes, _fua: bool) -> Result<(), DeviceError> {
        self.volume.write(offset, bytes).await.map_err(refused)
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.volume.flush().await.map_err(refused)
    }

    async fn trim(&self, offset: u64, len: u32, _fua: bool) -> Result<(), DeviceError> {
        self.volume.trim(offset, len.into()).await.map_err(refused)
    }

    async fn write_zeroes(
        &self,
        offset: u64,
        len: u32,
        _may_punch: bool,
        _fua: bool,
    ) -> Result<(), DeviceError> {
        self.volume.write_zeroes(offset, len.into()).await.map_err(refused)
    }

    async fn allocated(&self, offset: u64, len: u32) -> Result<Vec<Extent>, DeviceError> {
        let extents = self.volume.allocated(offset, len.into()).await.map_err(refused)?;
        let told =
            |e: kintsu_client::Extent| Extent { len: e.len, allocated: e.allocated, zero: !e.allocated };
        Ok(extents.into_iter().map(told).collect())
    }
}

fn refused(error: ClientError) -> DeviceError {
    let text = error.to_string();
    match error {
        ClientError::Invalid(_) => DeviceError::Invalid(text),
        ClientError::Full(_) => DeviceError::Full(text),
        ClientError::Interrupted(_) | ClientError::Refused(_) => DeviceError::Forbidden(text),
        _ => DeviceError::Io(text),
    }
}
