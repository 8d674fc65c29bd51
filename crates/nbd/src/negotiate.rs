//! The handshake of one connection: fixed newstyle.

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::device::{BlockSizes, Device};
use crate::error::NbdError;
use crate::numbers::*;
use crate::option::{Asked, Refused, parse};

/// Longer data of an option are skipped and refused. Two names and a few queries need less.
const MAX_OPTION_BYTES: u32 = 32 << 10;

/// What a client was told of the export, and what it chose. Its requests are checked against this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    pub size: u64,
    pub read_only: bool,
    pub sizes: BlockSizes,
    /// The most data in one request.
    pub max_data_bytes: u32,
    /// The client takes structured replies.
    pub structured: bool,
    /// The client selected `base:allocation`.
    pub allocation: bool,
}

impl Session {
    pub fn new(device: &impl Device, max_data_bytes: u32) -> Self {
        Self {
            size: device.size(),
            read_only: device.read_only(),
            sizes: device.block_sizes(),
            max_data_bytes,
            structured: false,
            allocation: false,
        }
    }

    /// The transmission flags.
    fn flags(&self) -> u16 {
        let offers = match self.read_only {
            true => READ_ONLY,
            false => SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES,
        };
        let whole = if self.structured { SEND_DF } else { 0 };
        HAS_FLAGS | SEND_FLUSH | CAN_MULTI_CONN | offers | whole
    }

    /// Size and flags, as each kind of answer carries them.
    fn export(&self) -> Vec<u8> {
        let mut data = self.size.to_be_bytes().to_vec();
        data.put_u16(self.flags());
        data
    }
}

/// How a client and the server speak during a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Secrecy {
    /// In plain text; there is no TLS.
    Plain,
    /// In plain text, until the client asks for TLS. Nothing is said before.
    Wanted,
    /// In TLS.
    Tls,
}

/// What a client said to the greeting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Greeted {
    /// The old answer to a name is without zeroes.
    no_zeroes: bool,
}

/// How a handshake, or its part in plain text, ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Agreed {
    /// The client goes on with requests.
    Session(Session),
    /// It begins TLS now.
    Tls,
    /// It left.
    Nothing,
}

/// Greets a client; `None` if it leaves.
///
/// # Errors
/// `Protocol`, `Io`: the connection must be closed.
pub(crate) async fn greet(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
) -> Result<Option<Greeted>, NbdError> {
    let mut hello = Vec::with_capacity(18);
    hello.put_u64(INIT);
    hello.put_u64(HAVE_OPTION);
    hello.put_u16(FIXED_NEWSTYLE | NO_ZEROES);
    writer.write_all(&hello).await?;
    let flags = match reader.read_u32().await {
        Ok(flags) => flags,
        // Somebody looked whether we are there.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(NbdError::Protocol {
            what: "client flags",
            expected: "none but 1 and 2".into(),
            got: format!("{flags:#x}"),
        });
    }
    Ok(Some(Greeted { no_zeroes: flags & u32::from(NO_ZEROES) != 0 }))
}

/// Answers a client's options until it enters transmission, begins TLS, or leaves.
///
/// # Errors
/// `Protocol`, `Io`: the connection must be closed.
pub(crate) async fn haggle(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    name: &str,
    session: Session,
    greeted: Greeted,
    secrecy: Secrecy,
) -> Result<Agreed, NbdError> {
    let mut haggling = Haggling { name, session, no_zeroes: greeted.no_zeroes, secrecy };
    loop {
        let Some((option, data)) = next_option(reader).await? else { return Ok(Agreed::Nothing) };
        let asked = match data {
            Some(data) => parse(option, &data),
            None => Err(Refused::new(
                REP_ERR_TOO_BIG,
                format!("expected at most {MAX_OPTION_BYTES} bytes of data"),
            )),
        };
        let mut out = Vec::new();
        let next = haggling.answer(option, asked, &mut out);
        writer.write_all(&out).await?;
        writer.flush().await?;
        match next? {
            Next::Option => {}
            Next::Transmission => return Ok(Agreed::Session(haggling.session)),
            Next::Tls => return Ok(Agreed::Tls),
            Next::End => return Ok(Agreed::Nothing),
        }
    }
}

/// The next option and its data, `None` in place of data that are too long; `None` if the client left.
async fn next_option(
    reader: &mut (impl AsyncRead + Unpin),
) -> Result<Option<(u32, Option<Vec<u8>>)>, NbdError> {
    let magic = match reader.read_u64().await {
        Ok(magic) => magic,
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if magic != HAVE_OPTION {
        return Err(NbdError::Protocol {
            what: "start of an option",
            expected: format!("{HAVE_OPTION:#x}"),
            got: format!("{magic:#x}"),
        });
    }
    let (option, len) = (reader.read_u32().await?, reader.read_u32().await?);
    if len > MAX_OPTION_BYTES {
        skip(reader, len.into()).await?;
        return Ok(Some((option, None)));
    }
    let mut data = vec![0; len as usize];
    reader.read_exact(&mut data).await?;
    Ok(Some((option, Some(data))))
}

/// Reads this many bytes and forgets them.
///
/// # Errors
/// `Io`, also if there are fewer.
pub(crate) async fn skip(reader: &mut (impl AsyncRead + Unpin), len: u64) -> std::io::Result<()> {
    match tokio::io::copy(&mut reader.take(len), &mut tokio::io::sink()).await? {
        skipped if skipped == len => Ok(()),
        _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

enum Next {
    Option,
    Transmission,
    Tls,
    End,
}

/// The state of a handshake.
struct Haggling<'a> {
    /// The export's name; the empty name means it too.
    name: &'a str,
    session: Session,
    no_zeroes: bool,
    secrecy: Secrecy,
}

impl Haggling<'_> {
    /// Appends the answer to an option.
    fn answer(
        &mut self,
        option: u32,
        asked: Result<Asked, Refused>,
        out: &mut Vec<u8>,
    ) -> Result<Next, NbdError> {
        let answered = match self.permitted(option, asked) {
            Ok(Asked::ExportName(name)) => return self.export_name(&name, out),
            // This option has no answer that could say no.
            Err(refused) if option == OPT_EXPORT_NAME => return Err(no_such_export(refused.why)),
            Ok(Asked::Abort) => {
                reply(out, option, REP_ACK, &[]);
                return Ok(Next::End);
            }
            Ok(Asked::StartTls) => Ok(Next::Tls),
            Ok(Asked::List) => {
                reply(out, option, REP_SERVER, &prefixed(self.name));
                Ok(Next::Option)
            }
            Ok(Asked::StructuredReply) => {
                self.session.structured = true;
                Ok(Next::Option)
            }
            Ok(Asked::Info { go, name, wants }) => self.known(&name).map(|()| {
                self.describe(option, &wants, out);
                if go { Next::Transmission } else { Next::Option }
            }),
            Ok(Asked::MetaContext { set, name, queries }) => {
                self.contexts(option, set, &name, &queries, out).map(|()| Next::Option)
            }
            Err(refused) => {
                // A failed choice replaces the former one, as a successful one does.
                self.session.allocation &= option != OPT_SET_META_CONTEXT;
                Err(refused)
            }
        };
        Ok(match answered {
            Ok(next) => {
                reply(out, option, REP_ACK, &[]);
                next
            }
            Err(refused) => {
                reply(out, option, refused.reply, refused.why.as_bytes());
                Next::Option
            }
        })
    }

    /// What may be asked before there is TLS, and about TLS itself.
    fn permitted(&self, option: u32, asked: Result<Asked, Refused>) -> Result<Asked, Refused> {
        match (self.secrecy, &asked) {
            (Secrecy::Wanted, Ok(Asked::StartTls | Asked::Abort)) => asked,
            (Secrecy::Wanted, Err(_)) if option == OPT_STARTTLS => asked,
            (Secrecy::Wanted, _) => {
                Err(Refused::new(REP_ERR_TLS_REQD, "this server speaks TLS alone (nbds://)"))
            }
            (Secrecy::Plain, Ok(Asked::StartTls)) => {
                Err(Refused::new(REP_ERR_UNSUP, "this server has no TLS"))
            }
            (Secrecy::Tls, Ok(Asked::StartTls)) => Err(Refused::new(REP_ERR_INVALID, "this is TLS already")),
            _ => asked,
        }
    }

    fn export_name(&self, name: &str, out: &mut Vec<u8>) -> Result<Next, NbdError> {
        self.known(name).map_err(|refused| no_such_export(refused.why))?;
        out.extend(self.session.export());
        if !self.no_zeroes {
            out.extend([0; 124]);
        }
        Ok(Next::Transmission)
    }

    fn known(&self, name: &str) -> Result<(), Refused> {
        if name.is_empty() || name == self.name {
            return Ok(());
        }
        let why = format!("expected the export {:?} or none, got {name:?}", self.name);
        Err(Refused::new(REP_ERR_UNKNOWN, why))
    }

    /// Appends what is known of the export, and what else the client wants to know.
    fn describe(&self, option: u32, wants: &[u16], out: &mut Vec<u8>) {
        let mut info = |kind: u16, data: &[u8]| {
            reply(out, option, REP_INFO, &[&kind.to_be_bytes(), data].concat());
        };
        info(INFO_EXPORT, &self.session.export());
        if wants.contains(&INFO_NAME) {
            info(INFO_NAME, self.name.as_bytes());
        }
        if wants.contains(&INFO_BLOCK_SIZE) {
            let BlockSizes { minimum, preferred } = self.session.sizes;
            let sizes = [minimum, preferred, self.session.max_data_bytes];
            info(INFO_BLOCK_SIZE, &sizes.map(u32::to_be_bytes).concat());
        }
    }

    /// Appends the contexts that match; there is one.
    fn contexts(
        &mut self,
        option: u32,
        set: bool,
        name: &str,
        queries: &[String],
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        if set {
            self.session.allocation = false;
        }
        if !self.session.structured {
            return Err(Refused::new(REP_ERR_INVALID, "expected structured replies to be agreed on first"));
        }
        self.known(name)?;
        let named = |query: &String| query == BASE_ALLOCATION || (!set && query == BASE);
        if queries.iter().any(named) || (!set && queries.is_empty()) {
            let id = if set { BASE_ALLOCATION_ID } else { 0 };
            reply(out, option, REP_META_CONTEXT, &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()].concat());
            self.session.allocation |= set;
        }
        Ok(())
    }
}

fn no_such_export(why: String) -> NbdError {
    NbdError::Protocol { what: "export", expected: "the name of this server's export".into(), got: why }
}

/// A string after its length.
fn prefixed(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// Appends one answer to an option.
fn reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.put_u64(OPTION_REPLY);
    out.put_u32(option);
    out.put_u32(kind);
    out.put_u32(data.len() as u32);
    out.put_slice(data);
}
