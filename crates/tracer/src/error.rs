//! What can go wrong before or during a run.

use lightfoot_kernel::{Kind, os};

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for has no place, or makes no sense. [`lightfoot_sites::Error::exit_code`] says which.
    #[error(transparent)]
    Site(#[from] lightfoot_sites::Error),
    /// The target does not exist (any more) or cannot be started.
    #[error("{what}")]
    Target {
        /// One line for people.
        what: String,
        /// The cause, if there is a deeper one.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// This machine or this user cannot do it.
    #[error("{what}")]
    NotPossible {
        /// One line for people: what is missing and what to do.
        what: String,
        /// What the kernel said.
        #[source]
        source: lightfoot_kernel::Error,
    },
    /// A call failed.
    #[error(transparent)]
    Kernel(#[from] lightfoot_kernel::Error),
}

impl Error {
    pub(crate) fn target(what: impl Into<String>) -> Error {
        Error::Target { what: what.into(), source: None }
    }

    pub(crate) fn target_because(
        what: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::Target { what: what.into(), source: Some(source.into()) }
    }

    /// Loading or attaching failed: says which capability or feature is missing, if that is why.
    pub(crate) fn from_set_up(source: lightfoot_kernel::Error) -> Error {
        let missing = os::missing_capabilities();
        let what = match source.kind() {
            Kind::Privilege if !missing.is_empty() => {
                let grant = if missing.len() == 1 { "it" } else { "them" };
                format!("probes need {}: run as root, or grant {grant}", missing.join(" and "))
            }
            Kind::Privilege => {
                format!("{source}: the kernel forbids it (lockdown, seccomp or a security module)")
            }
            Kind::Unsupported => {
                format!("{source}: this kernel cannot do it (`lightfoot weigh` shows what it can)")
            }
            _ => return Error::Kernel(source),
        };
        Error::NotPossible { what, source }
    }
}
