//! The options of the handshake, parsed. Nothing here waits or answers.

use bytes::Buf;

use crate::numbers::*;

/// What a client wants to know or to change before it reads and writes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Go on with this export; without an answer that could say no.
    ExportName(String),
    /// End the connection.
    Abort,
    /// Go on in TLS.
    StartTls,
    /// Name the exports.
    List,
    /// Describe this export, and with `go` go on with it.
    Info { go: bool, name: String, wants: Vec<u16> },
    /// Use structured replies.
    StructuredReply,
    /// Name the metadata contexts of this export that match a query, and with `set` use them.
    MetaContext { set: bool, name: String, queries: Vec<String> },
}

/// Why an option is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The kind of the answer.
    pub reply: u32,
    /// For people.
    pub why: String,
}

impl Refused {
    pub fn new(reply: u32, why: impl Into<String>) -> Self {
        Self { reply, why: why.into() }
    }
}

/// Parses the data of an option.
///
/// # Errors
/// The refusal to send.
pub(crate) fn parse(option: u32, data: &[u8]) -> Result<Asked, Refused> {
    let mut rest = data;
    match option {
        OPT_EXPORT_NAME => Ok(Asked::ExportName(string(&mut rest, data.len())?)),
        // Whatever comes with it is ignored.
        OPT_ABORT => Ok(Asked::Abort),
        OPT_LIST => none(rest).map(|()| Asked::List),
        OPT_STRUCTURED_REPLY => none(rest).map(|()| Asked::StructuredReply),
        OPT_INFO | OPT_GO => {
            let name = named(&mut rest)?;
            let count = rest.try_get_u16().map_err(|_| cut("the number of information requests"))?;
            if rest.len() != 2 * usize::from(count) {
                let got = format!("{count} requests in {} bytes", rest.len());
                return Err(invalid(format!("expected 2 bytes for each information request, got {got}")));
            }
            let wants = rest.chunks_exact(2).map(|two| u16::from_be_bytes([two[0], two[1]])).collect();
            Ok(Asked::Info { go: option == OPT_GO, name, wants })
        }
        OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => {
            let name = named(&mut rest)?;
            let count = rest.try_get_u32().map_err(|_| cut("the number of queries"))?;
            let mut queries = Vec::new();
            for _ in 0..count {
                queries.push(named(&mut rest)?);
            }
            none(rest)?;
            Ok(Asked::MetaContext { set: option == OPT_SET_META_CONTEXT, name, queries })
        }
        OPT_STARTTLS => none(rest).map(|()| Asked::StartTls),
        other => Err(Refused::new(REP_ERR_UNSUP, format!("this server does not know option {other}"))),
    }
}

/// A string after its length.
fn named(rest: &mut &[u8]) -> Result<String, Refused> {
    let len = rest.try_get_u32().map_err(|_| cut("the length of a string"))?;
    string(rest, usize::try_from(len).unwrap_or(usize::MAX))
}

/// A string of this length.
fn string(rest: &mut &[u8], len: usize) -> Result<String, Refused> {
    if len > MAX_STRING_BYTES {
        let why = format!("expected a string of at most {MAX_STRING_BYTES} bytes, got {len}");
        return Err(Refused::new(REP_ERR_TOO_BIG, why));
    }
    let Some((bytes, after)) = rest.split_at_checked(len) else {
        return Err(invalid(format!("expected a string of {len} bytes, got {}", rest.len())));
    };
    *rest = after;
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(invalid("expected a string in UTF-8 without NUL".into())),
    }
}

fn none(rest: &[u8]) -> Result<(), Refused> {
    match rest.len() {
        0 => Ok(()),
        len => Err(invalid(format!("expected no further data, got {len} bytes"))),
    }
}

fn cut(what: &str) -> Refused {
    invalid(format!("expected {what}, got the end of the data"))
}

fn invalid(why: String) -> Refused {
    Refused::new(REP_ERR_INVALID, why)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn info(name: &str, wants: &[u16]) -> Vec<u8> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend((wants.len() as u16).to_be_bytes());
        wants.iter().for_each(|w| data.extend(w.to_be_bytes()));
        data
    }

    fn meta(name: &str, queries: &[&str]) -> Vec<u8> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend((queries.len() as u32).to_be_bytes());
        for query in queries {
            data.extend((query.len() as u32).to_be_bytes());
            data.extend(query.as_bytes());
        }
        data
    }

    #[test]
    fn whole_options_are_understood() {
        let wants = vec![INFO_NAME, INFO_BLOCK_SIZE, 77];
        assert_eq!(
            parse(OPT_GO, &info("disk", &wants)),
            Ok(Asked::Info { go: true, name: "disk".into(), wants })
        );
        let queries = vec!["base:".to_owned(), "x-more:".to_owned()];
        assert_eq!(
            parse(OPT_LIST_META_CONTEXT, &meta("", &["base:", "x-more:"])),
            Ok(Asked::MetaContext { set: false, name: String::new(), queries })
        );
        assert_eq!(parse(OPT_EXPORT_NAME, b"disk"), Ok(Asked::ExportName("disk".into())));
        assert_eq!(parse(OPT_ABORT, b"good bye"), Ok(Asked::Abort));
    }

    #[test]
    fn what_is_wrong_is_named_and_refused() {
        let reply = |option, data: &[u8]| parse(option, data).unwrap_err().reply;
        assert_eq!(reply(OPT_LIST, b"x"), REP_ERR_INVALID);
        assert_eq!(reply(OPT_GO, &info("disk", &[1])[..9]), REP_ERR_INVALID);
        assert_eq!(reply(OPT_GO, &u32::MAX.to_be_bytes()), REP_ERR_TOO_BIG);
        assert_eq!(reply(OPT_GO, &100u32.to_be_bytes()), REP_ERR_INVALID);
        assert_eq!(reply(OPT_EXPORT_NAME, &[b'a'; 4097]), REP_ERR_TOO_BIG);
        assert_eq!(reply(OPT_EXPORT_NAME, b"a\0b"), REP_ERR_INVALID);
        assert_eq!(reply(OPT_EXPORT_NAME, b"a\xff"), REP_ERR_INVALID);
        assert_eq!(reply(OPT_STARTTLS, b"x"), REP_ERR_INVALID);
        assert_eq!(reply(4711, b"anything"), REP_ERR_UNSUP);
        // A count that promises more than there is.
        let mut many = meta("disk", &[]);
        many.splice(8.., u32::MAX.to_be_bytes());
        assert_eq!(reply(OPT_SET_META_CONTEXT, &many), REP_ERR_INVALID);
        let said = parse(OPT_GO, &info("disk", &[1])[..9]).unwrap_err().why;
        assert!(said.contains("number of information requests"), "{said}");
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(option in 0u32..13, data in prop::collection::vec(any::<u8>(), 0..200)) {
            // What is understood is never longer than what came.
            if let Ok(Asked::MetaContext { queries, .. }) = parse(option, &data) {
                prop_assert!(queries.len() * 4 <= data.len());
            }
        }

        #[test]
        fn a_cut_option_is_refused(wants in prop::collection::vec(any::<u16>(), 0..4), cut in 1usize..20) {
            let whole = info("disk", &wants);
            let kept = whole.len().saturating_sub(cut);
            prop_assert!(parse(OPT_INFO, &whole).is_ok());
            prop_assert!(parse(OPT_INFO, &whole[..kept]).is_err());
        }
    }
}
