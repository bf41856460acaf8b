//! What a run is asked to do.

use lightfoot_cost::Budget;
use lightfoot_model::Body;
use lightfoot_sites::Spec;
use std::process::Command;
use std::time::Duration;

/// Whose firings count.
#[derive(Debug)]
pub enum Target {
    /// Everybody's.
    Machine,
    /// Those of a running process with all its threads.
    Process(u32),
    /// Those of a command that is started for the run, with all its threads; not of its children.
    Command(Command),
}

/// A run.
#[derive(Debug)]
pub struct Request {
    /// The probes.
    pub specs: Vec<Spec>,
    /// Whose firings count.
    pub target: Target,
    /// What a firing does.
    pub body: Body,
    /// What all of it may cost while it runs; `None`: as much as it takes.
    pub budget: Option<Budget>,
    /// Most places that the probes may stand for.
    pub limit: usize,
    /// Take each spec literally: no cheaper place or mechanism.
    pub naive: bool,
    /// Only the trial of [`TRIAL`].
    pub dry_run: bool,
    /// lightfoot's command line, for the record.
    pub command_line: String,
    /// Version of lightfoot, for the record.
    pub version: &'static str,
}

/// How long probes are tried before what they would cost is judged.
pub const TRIAL: Duration = Duration::from_millis(100);
