//! `lightfoot weigh`: the ladder, what each kind of probe costs on this machine.

use crate::args::{WeighArguments, duration};
use crate::exit::{Failure, NOT_POSSIBLE};
use clap::Args;
use lightfoot_model::{Body, Mechanism};
use std::time::Duration;

/// Options that go with the ladder.
#[derive(Args)]
pub struct LadderArguments {
    /// Only these kinds of probes, for example uprobe,tp_btf. Default: all.
    #[arg(long = "probe", value_name = "KIND,...", value_delimiter = ',', value_parser = mechanism, conflicts_with_all = ["probes", "app"])]
    pub mechanisms: Vec<Mechanism>,
    /// Only these programs: empty, filter, per_cpu_counter, shared_counter, simple, complex, event, user_stack, kernel_stack. Default: empty,
    /// simple and complex for every kind, the others for a few.
    #[arg(long = "program", value_name = "PROGRAM,...", value_delimiter = ',', value_parser = body, conflicts_with_all = ["probes", "app"])]
    pub programs: Vec<Body>,
    /// Numbers of threads that run into the probes at the same time, 1 to the number of CPUs. Default: 1, and 2 for the counters.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096), conflicts_with_all = ["probes", "app"])]
    pub threads: Vec<u32>,
    /// How long the measuring takes in all, 1s to 1h; more time gives narrower intervals. Default: 90s.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["probes", "app"])]
    pub time: Option<Duration>,
    /// Roughly, in seconds.
    #[arg(long, conflicts_with_all = ["time", "probes", "app"])]
    pub quick: bool,
}

fn mechanism(text: &str) -> Result<Mechanism, String> {
    Mechanism::ALL
        .into_iter()
        .find(|mechanism| mechanism.name() == text)
        .ok_or_else(|| format!("choose from {}", Mechanism::ALL.map(Mechanism::name).join(", ")))
}

fn body(text: &str) -> Result<Body, String> {
    Body::ALL
        .into_iter()
        .find(|body| body.name() == text)
        .ok_or_else(|| format!("choose from {}", Body::ALL.map(Body::name).join(", ")))
}

/// Measures and delivers. Returns the exit code.
pub fn run(_arguments: &WeighArguments, _verbose: bool) -> Result<u8, Failure> {
    Err(Failure::new(NOT_POSSIBLE, "the ladder is not measured in this version"))
}
