//! The lines of the audit log for what users of S3 change. To the cluster all of it comes from this gateway.

use http::Extensions;
use kintsu_wire::audit;
use s3s::access::S3AccessContext;
use s3s::{S3Error, S3Result};

use crate::access::{Caller, Origin};

/// What the names of operations begin with that change nothing.
const READS: [&str; 3] = ["Get", "Head", "List"];

/// An operation on many objects, which notes each of them down by itself.
const OF_MANY: &str = "DeleteObjects";

/// A request that is to change something. It is kept among the extensions of the request.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// Who makes it, and from where.
    who: String,
    operation: String,
    /// The bucket, and the key in it.
    about: String,
}

impl Attempt {
    /// What a request is to change; `None` if that is nothing, or nobody wants to know.
    pub(crate) fn of(cx: &mut S3AccessContext<'_>, caller: &Caller) -> Option<Self> {
        let operation = cx.s3_op().name().to_owned();
        if READS.iter().any(|read| operation.starts_with(read)) {
            return None;
        }
        let bucket = cx.s3_path().get_bucket_name()?;
        let about = audit::about(|| match cx.s3_path().get_object_key() {
            Some(key) => format!("{bucket}/{key}"),
            None => bucket.to_owned(),
        })?;
        let user = caller.user().map(|user| format!("S3 user {user}"));
        let user = user.unwrap_or_else(|| "somebody without a key".to_owned());
        let who = match cx.extensions_mut().get::<Origin>() {
            Some(origin) => format!("{user} from {}", origin.peer),
            None => user,
        };
        Some(Self { who, operation, about })
    }

    /// The same for one key of its bucket.
    pub(crate) fn on(&self, key: &str) -> Self {
        Self { about: format!("{}/{key}", self.about), ..self.clone() }
    }

    /// Keeps it with its request, which may go on, or notes down that it was refused.
    pub(crate) fn checked(self, checked: &S3Result<()>, request: &mut Extensions) {
        match checked {
            Ok(()) => drop(request.insert(self)),
            Err(error) => self.ended(Some(error)),
        }
    }

    /// Notes down how the request ended.
    pub(crate) fn ended(&self, error: Option<&S3Error>) {
        match error {
            None if self.operation == OF_MANY => {}
            None => self.note(None),
            Some(error) => self.note(Some(error.message().unwrap_or_else(|| error.code().as_str()))),
        }
    }

    /// Notes down that the change was made, or why not.
    pub(crate) fn note(&self, refused: Option<&str>) {
        audit::note(&self.who, &self.operation, Some(self.about.clone()), refused);
    }
}
