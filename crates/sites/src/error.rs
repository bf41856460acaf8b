//! Why there is no site.

/// What a user can do about an error depends on its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The spec makes no sense. Exit code 2.
    Usage,
    /// Nothing of this name. Exit code 1.
    NotFound,
    /// The name stands for several files.
    Ambiguous,
    /// The file has no symbols that the name could be looked up in.
    Stripped,
    /// The file has no USDT probes, or none of this provider.
    NoProvider,
    /// The offset lies outside of the function, or not at the start of an instruction.
    Offset,
    /// A probe there would never fire, or would break the program.
    Refused,
    /// More places than [`crate::Options::limit`].
    TooMany,
    /// This kernel or this CPU cannot do it. Exit code 4.
    Unsupported,
    /// This process may not look. Exit code 4.
    Permission,
    /// A file is not what it should be, or reading failed.
    Io,
}

/// Why there is no site: one line that names the thing and the next step.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: Kind,
    message: String,
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }

    /// What kind of error it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The exit code of a program that ends because of it: 2 wrong usage, 4 not possible here, 1 anything else.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Usage => 2,
            Kind::Unsupported | Kind::Permission => 4,
            _ => 1,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Error {
        Error::new(Kind::Usage, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Error {
        Error::new(Kind::NotFound, message)
    }

    /// Opening or reading `what` failed.
    pub(crate) fn io(what: impl std::fmt::Display, error: &std::io::Error) -> Error {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => Kind::NotFound,
            std::io::ErrorKind::PermissionDenied => Kind::Permission,
            _ => Kind::Io,
        };
        let next = if kind == Kind::Permission { "; run as root" } else { "" };
        Error::new(kind, format!("{what}: {}{next}", said(error)))
    }
}

/// The system's word for an error, without the number that Rust adds.
fn said(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_lowercase(),
        None => text,
    }
}
