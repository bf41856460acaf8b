//! One error with a kind and a chain of context.

use std::fmt;
use std::io;

/// What a user can do about an error depends on its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The process may not do this: a capability is missing.
    Privilege,
    /// The kernel cannot do this, and said so.
    Unsupported,
    /// The process, thread or file does not exist (any more).
    NotFound,
    /// A limit was reached (descriptors, memory).
    Limit,
    /// The request makes no sense.
    Usage,
    /// Anything else.
    Other,
}

/// A failed call with what was being done.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    kind: Kind,
    what: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error that has no deeper cause.
    pub fn new(kind: Kind, what: impl Into<String>) -> Error {
        Error { kind, what: what.into(), source: None }
    }

    /// `what` failed because of `source`; the kind follows from the errno.
    pub fn io(what: impl Into<String>, source: io::Error) -> Error {
        Error { kind: kind_of(&source), what: what.into(), source: Some(Box::new(source)) }
    }

    /// `what` failed with the errno of the last system call of this thread.
    pub fn last_os(what: impl Into<String>) -> Error {
        Error::io(what, io::Error::last_os_error())
    }

    /// A libbpf call failed; `detail` is what libbpf printed about it.
    pub(crate) fn libbpf(what: impl Into<String>, source: libbpf_rs::Error, detail: String) -> Error {
        let kind = match source.kind() {
            // The verifier refuses with EACCES, too. It says why; privileges are looked at before it starts.
            libbpf_rs::ErrorKind::PermissionDenied if detail.contains("PROG LOAD LOG") => Kind::Other,
            libbpf_rs::ErrorKind::PermissionDenied => Kind::Privilege,
            libbpf_rs::ErrorKind::NotFound => Kind::NotFound,
            _ => Kind::Other,
        };
        let source: Box<dyn std::error::Error + Send + Sync> =
            if detail.is_empty() { Box::new(source) } else { format!("{source}: {detail}").into() };
        Error { kind, what: what.into(), source: Some(source) }
    }

    /// The same error with another kind, where the caller knows better than the errno.
    pub fn with_kind(self, kind: Kind) -> Error {
        Error { kind, ..self }
    }

    /// What a user can do about it.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

fn kind_of(error: &io::Error) -> Kind {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Kind::Privilege,
        Some(libc::ESRCH | libc::ENOENT) => Kind::NotFound,
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => Kind::Unsupported,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOSPC) => Kind::Limit,
        _ => Kind::Other,
    }
}
