//! One connection after its handshake: requests are read one after the other, carried out at the same time, and
//! answered as they end.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::device::Device;
use crate::error::NbdError;
use crate::execute::execute;
use crate::negotiate::{Session, skip};
use crate::numbers::EIO;
use crate::reply::Answer;
use crate::request::{Command, HEADER_BYTES, Header, Refusal, check};
use crate::server::Limits;

/// Answers that are written in one go, if as many are there.
const BATCH: usize = 32;

/// Serves a client until it leaves, breaks the protocol, or `ending`; then ends what is under way.
///
/// # Errors
/// `Protocol`, `Io`.
pub(crate) async fn serve<D: Device>(
    mut reader: impl AsyncBufRead + Unpin,
    writer: impl AsyncWrite + Unpin + Send + 'static,
    device: Arc<D>,
    session: Session,
    limits: &Limits,
    ending: &CancellationToken,
) -> Result<(), NbdError> {
    // One answer for each request under way, so there is always a place for it.
    let (answers, waiting) = mpsc::channel(limits.requests);
    // A client that takes no more answers gets no more requests served either.
    let gone = CancellationToken::new();
    // Ends with this function, even if that is ended from outside.
    let mut writing = JoinSet::new();
    writing.spawn(write_answers(waiting, writer, session.structured, gone.clone()));
    let mut requests = Requests {
        device,
        session,
        answers,
        places: Arc::new(Semaphore::new(limits.requests)),
        room: Arc::new(Semaphore::new(limits.data_bytes as usize)),
        under_way: JoinSet::new(),
    };
    let read = tokio::select! {
        read = requests.read(&mut reader) => read,
        () = ending.cancelled() => Ok(()),
        () = gone.cancelled() => Ok(()),
    };
    let Requests { answers, mut under_way, .. } = requests;
    drop(answers);
    while under_way.join_next().await.is_some() {}
    match writing.join_next().await {
        Some(Ok(written)) => read.and(written.map_err(NbdError::from)),
        Some(Err(error)) => Err(std::io::Error::other(error).into()),
        None => read,
    }
}

/// The requests of one connection.
struct Requests<D> {
    device: Arc<D>,
    session: Session,
    answers: mpsc::Sender<Ready>,
    /// One for each request under way.
    places: Arc<Semaphore>,
    /// One for each byte of data that requests and answers hold.
    room: Arc<Semaphore>,
    under_way: JoinSet<()>,
}

impl<D: Device> Requests<D> {
    /// Reads requests and starts them until the client leaves.
    async fn read(&mut self, reader: &mut (impl AsyncBufRead + Unpin)) -> Result<(), NbdError> {
        loop {
            let place = hold(&self.places, 1).await;
            let Some(header) = next_header(reader).await? else { return Ok(()) };
            let unanswered = Unanswered {
                cookie: header.cookie,
                answers: self.answers.clone(),
                held: Some(Held { place, room: None }),
            };
            match check(header, &self.session) {
                Ok(Command::Disconnect) => {
                    unanswered.leave();
                    return Ok(());
                }
                Ok(command) => self.start(command, reader, unanswered).await?,
                Err(refusal) => {
                    tracing::debug!("refused {header:?}: {}", refusal.why);
                    skip(reader, header.data_bytes().into()).await?;
                    unanswered.answer(Answer::Refused(refusal));
                }
            }
            // What has ended is forgotten.
            while self.under_way.try_join_next().is_some() {}
        }
    }

    /// Reads the data of a request once there is room for them, and starts it.
    async fn start(
        &mut self,
        command: Command,
        reader: &mut (impl AsyncRead + Unpin),
        mut unanswered: Unanswered,
    ) -> Result<(), NbdError> {
        let room = hold(&self.room, command.held_bytes()).await;
        if let Some(held) = &mut unanswered.held {
            held.room = room;
        }
        let data = match command {
            Command::Write { len, .. } => match data(reader, len).await {
                Ok(data) => data,
                Err(error) => {
                    unanswered.leave();
                    return Err(error.into());
                }
            },
            _ => Bytes::new(),
        };
        let device = self.device.clone();
        self.under_way.spawn(async move {
            let answer = execute(&*device, command, data).await;
            unanswered.answer(answer);
        });
        Ok(())
    }
}

/// Waits for `count` permits. The semaphores are never closed; without permits the memory would not be counted, but
/// nothing else would be wrong.
async fn hold(of: &Arc<Semaphore>, count: u32) -> Option<OwnedSemaphorePermit> {
    of.clone().acquire_many_owned(count).await.ok()
}

/// The next request's header; `None` if the client left between two requests.
async fn next_header(reader: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Header>, NbdError> {
    use tokio::io::AsyncBufReadExt;
    if reader.fill_buf().await?.is_empty() {
        return Ok(None);
    }
    let mut bytes = [0; HEADER_BYTES];
    reader.read_exact(&mut bytes).await?;
    Header::parse(&bytes).map(Some)
}

/// The data of a write.
async fn data(reader: &mut (impl AsyncRead + Unpin), len: u32) -> std::io::Result<Bytes> {
    let mut data = BytesMut::with_capacity(len as usize);
    let mut rest = reader.take(len.into());
    while data.len() < len as usize {
        if rest.read_buf(&mut data).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(data.freeze())
}

/// What a request holds until its answer is written.
#[derive(Default)]
struct Held {
    #[expect(dead_code, reason = "given back when dropped")]
    place: Option<OwnedSemaphorePermit>,
    room: Option<OwnedSemaphorePermit>,
}

/// An answer to be written.
struct Ready {
    cookie: u64,
    answer: Answer,
    _held: Held,
}

/// A request that has no answer yet. If it is dropped without one, because what should answer panicked or the server
/// ends while the request's data come, the client gets an error instead of waiting for ever.
struct Unanswered {
    cookie: u64,
    answers: mpsc::Sender<Ready>,
    held: Option<Held>,
}

impl Unanswered {
    fn answer(mut self, answer: Answer) {
        self.send(answer);
    }

    /// The client has left and wants no answer.
    fn leave(mut self) {
        self.held = None;
    }

    fn send(&mut self, answer: Answer) {
        if let Some(held) = self.held.take() {
            // There is a place for it, unless nobody writes answers any more.
            let _ = self.answers.try_send(Ready { cookie: self.cookie, answer, _held: held });
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.send(Answer::Refused(Refusal::new(
            EIO,
            "the server ended this request without an answer; its log may say why",
        )));
    }
}

/// Writes answers as they come, until nobody can send more.
async fn write_answers(
    mut waiting: mpsc::Receiver<Ready>,
    mut writer: impl AsyncWrite + Unpin,
    structured: bool,
    gone: CancellationToken,
) -> std::io::Result<()> {
    let _leaving = gone.drop_guard();
    let (mut batch, mut out) = (Vec::with_capacity(BATCH), BytesMut::new());
    // What is in the batch holds its places until all of it is written.
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        for ready in &mut batch {
            let answer = std::mem::replace(&mut ready.answer, Answer::Done);
            if let Some(long) = answer.encode(ready.cookie, structured, &mut out) {
                writer.write_all(&out).await?;
                out.clear();
                writer.write_all(&long).await?;
            }
        }
        writer.write_all(&out).await?;
        writer.flush().await?;
        out.clear();
        batch.clear();
    }
    writer.shutdown().await
}
