//! The `lightfoot` command. The only crate that prints or exits; one file per subcommand.

/// A line on standard error. As `eprintln!`, but nobody is to be told if standard error has gone away.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        writeln!(std::io::stderr(), $($text)*).ok();
    }};
}

mod args;
mod exit;
mod output;
mod profile;
mod progress;
mod signals;
mod system_info;
mod terminal;
mod weigh;
mod weigh_apps;
mod weigh_probes;
mod weigh_text;

use args::{Arguments, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return exit::usage(&error),
    };
    let result = match arguments.command {
        Command::Profile(profile) => profile::run(&profile, arguments.verbose),
        Command::Weigh(weigh) if !weigh.probes.is_empty() => weigh_probes::run(&weigh, arguments.verbose),
        Command::Weigh(weigh) if weigh.apps.app.is_some() => weigh_apps::run(&weigh, arguments.verbose),
        Command::Weigh(weigh) => weigh::run(&weigh, arguments.verbose),
        Command::SystemInfo(system_info) => system_info::run(&system_info),
    };
    exit::report(result, arguments.verbose)
}
