//! What can go wrong before or during a run.

use lightfoot_kernel::Kind;

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The target does not exist (any more) or cannot be started.
    #[error("{what}")]
    Target {
        /// One line for people.
        what: String,
        /// The cause, if there is a deeper one.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// This machine or this user cannot profile.
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
    /// The target is the problem.
    pub(crate) fn target(what: impl Into<String>) -> Error {
        Error::Target { what: what.into(), source: None }
    }

    /// The target is the problem, because of `source`.
    pub(crate) fn target_because(
        what: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::Target { what: what.into(), source: Some(source.into()) }
    }

    /// No thread can be started.
    pub(crate) fn no_thread(source: std::io::Error) -> Error {
        Error::target_because("cannot start a thread", source)
    }

    /// Loading or opening events failed: says which capability or feature is missing, if that is why.
    pub(crate) fn from_set_up(source: lightfoot_kernel::Error) -> Error {
        let missing = lightfoot_kernel::os::missing_capabilities();
        let what = match source.kind() {
            Kind::Privilege if !missing.is_empty() => {
                format!(
                    "profiling needs {}: run as root, or grant {}",
                    missing.join(" and "),
                    if missing.len() == 1 { "it" } else { "them" }
                )
            }
            Kind::Privilege => {
                format!("{source}: the kernel forbids it (lockdown, seccomp or a security module)")
            }
            Kind::Unsupported => format!("{source}: this kernel cannot do it"),
            Kind::Other if source.to_string().contains("refused the sampling program") => {
                format!(
                    "{source}: lightfoot needs Linux 5.15 or later with BTF (`lightfoot system-info` says what is missing)"
                )
            }
            _ => return Error::Kernel(source),
        };
        Error::NotPossible { what, source }
    }
}
