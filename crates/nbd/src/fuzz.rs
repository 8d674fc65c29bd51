//! The way in for a fuzzer (`fuzz/`).

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::connection::serve;
use crate::device::Device;
use crate::negotiate::{Session, negotiate};
use crate::server::Limits;

/// Serves a client that says these bytes and takes every answer.
pub async fn client(bytes: Vec<u8>, device: impl Device) {
    let (device, limits) = (Arc::new(device), Limits::default());
    let mut said = bytes.as_slice();
    let session = Session::new(&*device, limits.data_bytes);
    let Ok(Some(session)) = negotiate(&mut said, &mut tokio::io::sink(), "disk", session).await else {
        return;
    };
    // What breaks the protocol ends the connection with an error.
    let _ = serve(said, tokio::io::sink(), device, session, &limits, &CancellationToken::new()).await;
}
