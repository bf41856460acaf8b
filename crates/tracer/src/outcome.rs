//! What came out of a run. Serialised, it is the JSON `lightfoot.weigh-probes/1`.

use lightfoot_model::{Body, Instruction, Mechanism};
use serde::Serialize;

/// Name and version of the format.
pub const SCHEMA: &str = "lightfoot.weigh-probes/1";

/// A run of probes.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of lightfoot.
    pub version: &'static str,
    /// Its command line.
    pub command_line: String,
    /// Kernel release.
    pub kernel: String,
    /// The process whose firings count; `null`: everybody's.
    pub pid: Option<u32>,
    /// What a firing did.
    pub body: Body,
    /// Whether this was the trial alone.
    pub dry_run: bool,
    /// When all probes were attached, on CLOCK_MONOTONIC, in ns.
    pub begun_ns: u64,
    /// From then until they were detached, in ns of wall time.
    pub duration_ns: u64,
    /// One entry for each place, in the order asked for.
    pub probes: Vec<Probe>,
    /// Firings by process, most first; empty unless the body counts by process.
    pub processes: Vec<Process>,
    /// What all of it cost.
    pub cost: Cost,
    /// What the budget did, if there was one.
    pub budget: Option<BudgetReport>,
    /// What else is to be known, one sentence each.
    pub notes: Vec<String>,
}

/// One probe.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// As it was asked for, globs resolved.
    pub name: String,
    /// How it was attached.
    pub mechanism: Mechanism,
    /// What stood under it, in programs.
    pub instruction: Option<Instruction>,
    /// Where, in words.
    pub place: String,
    /// Why there.
    pub choices: Vec<String>,
    /// What is to be known about it.
    pub warnings: Vec<String>,
    /// Firings: `recorded + filtered + throttled + lost`.
    pub fired: u64,
    /// Ran the body.
    pub recorded: u64,
    /// Were another process's.
    pub filtered: u64,
    /// Held back for the budget, by 1-in-N or by the breaker.
    pub throttled: u64,
    /// Of these, by the breaker: no weight stands for them.
    pub cut: u64,
    /// Found no room.
    pub lost: u64,
    /// How many would have been recorded without 1-in-N: the sum of weights.
    pub estimate: u64,
    /// Its standard error.
    pub estimate_error: f64,
    /// What a firing was predicted to cost, in ns.
    pub predicted: Option<Prediction>,
    /// What a firing cost, in ns: trigger, checks and body as it was measured while it ran, over all firings.
    pub live_ns: Option<f64>,
    /// What a body cost, in ns, by the kernel's statistics without their bias.
    pub live_body_ns: Option<f64>,
    /// Bodies that this was measured on. 0: it is the predicted price.
    pub bodies_measured: u64,
    /// What it cost in all, in ns of CPU time.
    pub total_ns: Option<f64>,
    /// The same in percent of one CPU over the run.
    pub percent_of_one_cpu: Option<f64>,
    /// Why there is no price.
    pub no_price: Option<String>,
    /// Firings per second in the trial.
    pub trial_per_s: f64,
    /// Highest N of 1-in-N.
    pub one_in_max: u32,
    /// When it was detached for the budget, in ns since it was attached.
    pub detached_ns: Option<u64>,
}

/// What a firing was predicted to cost, in ns.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Prediction {
    /// Until the program runs, and back, and counting.
    pub trigger_ns: f64,
    /// The budget's gate, the comparison of the process.
    pub checks_ns: f64,
    /// The body.
    pub body_ns: f64,
    /// All of it.
    pub total_ns: f64,
}

/// Firings in one process.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name at the end of the run; `null` if it had gone.
    pub name: Option<String>,
    /// Firings by probe: index into `probes` and sum of weights.
    pub firings: Vec<(usize, u64)>,
    /// What they cost, in ns.
    pub total_ns: f64,
}

/// What a run cost.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cost {
    /// Firings of the probes, in ns of CPU time.
    pub probes_ns: f64,
    /// System calls that nobody asked for and that a dispatcher saw.
    pub passed: u64,
    /// What they cost, in ns.
    pub passed_ns: f64,
    /// Traps that led nowhere while probes in programs were detached for the budget, in ns: from the rate before and the time it took.
    pub detaching_ns: f64,
    /// lightfoot itself while the probes were attached, in ns.
    pub own_ns: u64,
    /// All of that, in ns.
    pub total_ns: f64,
    /// The same in percent of one CPU over the run.
    pub percent_of_one_cpu: f64,
    /// lightfoot before: choosing places, measuring prices, attaching; in ns of CPU time.
    pub start_ns: u64,
}

/// What a budget did.
#[derive(Clone, Debug, Serialize)]
pub struct BudgetReport {
    /// Allowed in each second, in ns.
    pub ns_per_s: u64,
    /// Most that was spent in a second that began after the first, in ns, by the account; `null` for runs of less than two seconds.
    pub dearest_window_ns: Option<u64>,
    /// Most that was spent in any second, in ns.
    pub dearest_ns: u64,
    /// Time in which some probe's bodies were held back, in ns.
    pub throttled_ns: u64,
    /// Probes that were detached.
    pub detached: usize,
    /// Times that the breaker opened.
    pub alarms: u64,
    /// Looks that were taken.
    pub looks: u64,
}

impl Outcome {
    /// Whether something is missing from the counts: firings without room, or probes that were detached for the budget.
    pub fn incomplete(&self) -> bool {
        self.probes.iter().any(|probe| probe.lost > 0 || probe.detached_ns.is_some())
    }
}
