//! How the program ends: the exit codes are a contract.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::process::ExitCode;

/// Done.
pub const DONE: u8 = 0;
/// Failed.
pub const FAILED: u8 = 1;
/// Wrong usage.
pub const USAGE: u8 = 2;
/// Done, but incomplete: something was lost.
pub const INCOMPLETE: u8 = 3;
/// Not possible here: a privilege or kernel feature is missing.
pub const NOT_POSSIBLE: u8 = 4;

/// Why the program ends early: one line for people, an exit code, and the chain of causes for `-v`.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    what: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Failure {
    /// A failure without a deeper cause.
    pub fn new(code: u8, what: impl Into<String>) -> Failure {
        Failure { code, what: what.into(), source: None }
    }

    /// A failure with its cause.
    pub fn because(
        code: u8,
        what: impl Into<String>,
        source: impl StdError + Send + Sync + 'static,
    ) -> Failure {
        Failure { code, what: what.into(), source: Some(Box::new(source)) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<lightfoot_sampler::Error> for Failure {
    fn from(error: lightfoot_sampler::Error) -> Failure {
        let code = match error {
            lightfoot_sampler::Error::NotPossible { .. } => NOT_POSSIBLE,
            lightfoot_sampler::Error::Target { .. } | lightfoot_sampler::Error::Kernel(_) => FAILED,
        };
        Failure::because(code, error.to_string(), error)
    }
}

/// Ends the program after a subcommand: prints the one line of a failure.
pub fn report(result: Result<u8, Failure>, verbose: bool) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            say!("lightfoot: {}", failure.what.trim_end().replace('\n', "; "));
            if verbose {
                let mut cause = failure.source.as_deref().map(|s| s as &dyn StdError);
                let mut said = failure.what.clone();
                while let Some(error) = cause {
                    let text = error.to_string();
                    if text != said {
                        say!("  because: {text}");
                    }
                    said = text;
                    cause = error.source();
                }
            }
            ExitCode::from(failure.code)
        }
    }
}

/// Ends the program after clap: help and version are results, everything else is wrong usage in one line.
pub fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe is success.
            let printed = error.print();
            match printed {
                Err(e) if e.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(FAILED),
                _ => ExitCode::from(DONE),
            }
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            say!("{}", error.to_string().trim_end());
            ExitCode::from(USAGE)
        }
        _ => {
            say!("lightfoot: {} (see lightfoot --help)", one_line(error));
            ExitCode::from(USAGE)
        }
    }
}

/// clap's message without its headings and blank lines.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .collect();
    let joined = lines.join(" ");
    joined.strip_prefix("error: ").unwrap_or(&joined).to_string()
}
