//! The way in for a fuzzer (`fuzz/`).

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::connection::serve;
use crate::device::Device;
use crate::negotiate::{Agreed, Secrecy, Session, greet, haggle};
use crate::server::Limits;

/// Serves a client that says these bytes and takes every answer.
pub async fn client(bytes: Vec<u8>, device: impl Device) {
    let (device, limits) = (Arc::new(device), Limits::default());
    let mut said = bytes.as_slice();
    let session = Session::new(&*device, limits.data_bytes);
    let mut heard = tokio::io::sink();
    let Ok(Some(greeted)) = greet(&mut said, &mut heard).await else { return };
    // A server that speaks TLS alone tells nothing before that.
    let (mut same, wanted) = (said, Secrecy::Wanted);
    let told = haggle(&mut same, &mut heard, "disk", session.clone(), greeted, wanted).await;
    assert!(!matches!(told, Ok(Agreed::Session(_))));
    let agreed = haggle(&mut said, &mut heard, "disk", session, greeted, Secrecy::Plain).await;
    let Ok(Agreed::Session(session)) = agreed else { return };
    // What breaks the protocol ends the connection with an error.
    let _ = serve(said, tokio::io::sink(), device, session, &limits, &CancellationToken::new()).await;
}
