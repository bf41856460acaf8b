//! `lightfoot weigh PROBE...`: probes that the user names, predicted before and weighed while they run.

use crate::args::WeighArguments;
use crate::exit::{Failure, NOT_POSSIBLE};
use clap::Args;

/// Options that go with probes.
#[derive(Args)]
pub struct ProbingArguments {}

/// Attaches, weighs and delivers. Returns the exit code.
pub fn run(arguments: &WeighArguments, _verbose: bool) -> Result<u8, Failure> {
    Err(Failure::new(
        NOT_POSSIBLE,
        format!("{} cannot be weighed in this version", arguments.probes.join(" ")),
    ))
}
