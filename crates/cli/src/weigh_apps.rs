//! `lightfoot weigh --app`: real servers under load, with and without probes.

use crate::args::WeighArguments;
use crate::exit::{Failure, NOT_POSSIBLE};
use clap::{Args, ValueEnum};

/// Which experiment.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum App {
    /// nginx with TLS under wrk, its encryption watched.
    Tls,
    /// A server under load while its system calls are counted.
    Syscount,
}

/// Options that go with servers.
#[derive(Args)]
pub struct AppArguments {
    /// Weigh a real server, with probes and without.
    #[arg(long, value_name = "APP", conflicts_with = "probes")]
    pub app: Option<App>,
}

/// Runs the experiment and delivers. Returns the exit code.
pub fn run(arguments: &WeighArguments, _verbose: bool) -> Result<u8, Failure> {
    let name = match arguments.apps.app {
        Some(App::Tls) => "tls",
        Some(App::Syscount) | None => "syscount",
    };
    Err(Failure::new(NOT_POSSIBLE, format!("--app {name} cannot run in this version")))
}
