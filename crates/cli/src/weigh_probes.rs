//! `lightfoot weigh PROBE...`: probes that the user names, predicted before and weighed while they run.

use crate::args::{WeighArguments, budget, duration};
use crate::exit::{DONE, FAILED, Failure, INCOMPLETE, NOT_POSSIBLE, USAGE};
use crate::output::Output;
use crate::progress::Line;
use crate::signals::Ending;
use crate::weigh_text as text;
use clap::{ArgAction, Args};
use lightfoot_cost::Budget;
use lightfoot_model::Body;
use lightfoot_sites::Spec;
use lightfoot_tracer::{Outcome, Request, Run, Target};
use lightfoot_weigh::Format;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// Length of a run without `-d` and without a command.
const DEFAULT_DURATION: Duration = Duration::from_secs(10);
/// Longest sleep: how late a signal that arrives just before the sleep is noticed.
const NAP: Duration = Duration::from_millis(250);
/// How long a command that is asked to end may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most places without `--max-probes`.
const MAX_PROBES: usize = 10_000;

/// Options that go with probes.
#[derive(Args)]
pub struct ProbingArguments {
    /// Count firings of this process only, with its threads.
    #[arg(short, long, value_name = "PID", requires = "probes", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// How long, for example 500ms, 10s, 2m. Default: 10s; with a command until it ends (if it has not ended after the given time, it is
    /// terminated).
    #[arg(short, long, value_name = "TIME", requires = "probes", value_parser = duration)]
    pub duration: Option<Duration>,
    /// The most that the probes and lightfoot may cost in any second while they are attached: 0.5% (of one CPU) or 0.1%machine (of all CPUs
    /// together). To keep it, work is done for one in N firings, then the dearest probe is detached, which the result tells.
    /// Default: no limit.
    #[arg(long, value_name = "SHARE", requires = "probes", value_parser = budget)]
    pub budget: Option<Budget>,
    /// End after so many firings in all.
    #[arg(long, value_name = "N", requires = "probes", value_parser = clap::value_parser!(u64).range(1..))]
    pub events: Option<u64>,
    /// What each firing does: empty, per_cpu_counter, shared_counter, simple (counts by process), complex (counts by process, time and
    /// command name), event (64 bytes through a ring buffer), user_stack, kernel_stack. Default: simple.
    #[arg(long, value_name = "BODY", requires = "probes", value_parser = body)]
    pub body: Option<Body>,
    /// Say for each probe where it is attached and why there.
    #[arg(long, requires = "probes")]
    pub explain: bool,
    /// List what there is of these names, globs or parts of names, and attach nothing; with --explain where each would be attached.
    #[arg(short, long, requires = "probes", conflicts_with_all = ["dry_run", "budget", "events", "duration"])]
    pub list: bool,
    /// Attach for 100 ms only, and say how often each probe would fire and what it would cost.
    #[arg(long, requires = "probes", conflicts_with_all = ["events", "duration"])]
    pub dry_run: bool,
    /// Most places that the probes may stand for. Default: 10000.
    #[arg(long, alias = "limit", value_name = "N", requires = "probes", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_probes: Option<u32>,
    /// Take each probe literally: the first byte of the function, the mechanism that it names, one link each. To see what choosing saves.
    #[arg(long, requires = "probes")]
    pub naive: bool,
    /// A command to start once the probes are attached; its firings are counted, not those of its children.
    #[arg(last = true, value_name = "CMD", requires = "probes", conflicts_with_all = ["pid", "list"], action = ArgAction::Append)]
    pub argv: Vec<OsString>,
}

fn body(text: &str) -> Result<Body, String> {
    let all = || Body::ALL.into_iter().filter(|body| *body != Body::Filter);
    all()
        .find(|body| body.name() == text)
        .ok_or_else(|| format!("choose from {}", all().map(Body::name).collect::<Vec<_>>().join(", ")))
}

impl From<lightfoot_tracer::Error> for Failure {
    fn from(error: lightfoot_tracer::Error) -> Failure {
        let code = match &error {
            lightfoot_tracer::Error::Site(site) => site.exit_code(),
            lightfoot_tracer::Error::NotPossible { .. } => NOT_POSSIBLE,
            lightfoot_tracer::Error::Target { .. } | lightfoot_tracer::Error::Kernel(_) => FAILED,
        };
        Failure::because(code, error.to_string(), error)
    }
}

/// Attaches, weighs and delivers. Returns the exit code.
pub fn run(arguments: &WeighArguments, verbose: bool) -> Result<u8, Failure> {
    let format = arguments.format()?;
    if !matches!(format, Format::Text | Format::Json) {
        return Err(Failure::new(USAGE, format!("probes are weighed in text or json, not in {format}")));
    }
    let output = Output::open(arguments.output.as_deref())?;
    if arguments.probing.list {
        return list(arguments, format, output, verbose);
    }
    let request = request(arguments)?;
    let ending = Ending::listen()?;
    let probing = &arguments.probing;
    let by_itself = !probing.argv.is_empty() || probing.events.is_some();
    let duration = probing.duration.or((!by_itself).then_some(DEFAULT_DURATION));
    let mut line = Line::new();
    line.say("attaching ...");
    let mut run = Run::start(request)?;
    line.clear();
    if probing.explain {
        text::explain(run.sites());
    }
    let ended_by_us = watch(&mut run, duration, probing.events, &ending, &mut line)?;
    if ended_by_us {
        run.end_command(PATIENCE);
    }
    let status = run.command_status().filter(|_| !ended_by_us);
    let outcome = run.finish()?;
    line.clear();
    let is_text = format == Format::Text;
    output.deliver(|out| if is_text { text::write(&outcome, out) } else { json(&outcome, out) })?;
    if !is_text || verbose {
        for note in outcome.notes.iter().filter(|_| !is_text) {
            say!("note: {note}");
        }
        say!("{}", text::cost_line(&outcome));
    }
    Ok(code(status, &outcome))
}

/// Lists what matches: by name, with `-v` and arguments; with `--explain` or in JSON the places that would be chosen.
fn list(arguments: &WeighArguments, format: Format, output: Output, verbose: bool) -> Result<u8, Failure> {
    let explain = arguments.probing.explain;
    if explain || format == Format::Json {
        let sites = lightfoot_tracer::sites(&request(arguments)?)?;
        output.deliver(|out| text::list(&sites, format, explain, out))?;
        return Ok(DONE);
    }
    let options = lightfoot_tracer::options(arguments.probing.pid, MAX_PROBES, false);
    let mut names: Vec<String> = Vec::new();
    for pattern in &arguments.probes {
        let mut each = |name: &str| {
            names.push(name.to_string());
            true
        };
        lightfoot_tracer::list(pattern, verbose, &options, &mut each)?;
    }
    if names.is_empty() {
        let what = arguments.probes.join(" ");
        return Err(Failure::new(FAILED, format!("nothing here is called {what}")));
    }
    output.deliver(|out| names.iter().try_for_each(|name| writeln!(out, "{name}")))?;
    Ok(DONE)
}

fn json(outcome: &Outcome, out: &mut dyn std::io::Write) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, outcome)?;
    writeln!(out)
}

fn request(arguments: &WeighArguments) -> Result<Request, Failure> {
    let mut specs = Vec::new();
    for text in &arguments.probes {
        specs.extend(Spec::parse_list(text).map_err(lightfoot_tracer::Error::from)?);
    }
    let probing = &arguments.probing;
    let target = match (probing.argv.split_first(), probing.pid) {
        (Some((program, rest)), _) => {
            let mut command = Command::new(program);
            command.args(rest);
            Target::Command(command)
        }
        (None, Some(pid)) => Target::Process(pid),
        (None, None) => Target::Machine,
    };
    Ok(Request {
        specs,
        target,
        body: probing.body.unwrap_or(Body::Simple),
        budget: probing.budget,
        limit: probing.max_probes.map_or(MAX_PROBES, |n| n as usize),
        naive: probing.naive,
        dry_run: probing.dry_run,
        command_line: std::env::args().collect::<Vec<_>>().join(" "),
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// Waits until the run is over: the time, the target, the number of events or the user's patience. Returns whether the command, if there is
/// one, still has to be ended.
fn watch(
    run: &mut Run,
    duration: Option<Duration>,
    events: Option<u64>,
    ending: &Ending,
    line: &mut Line,
) -> Result<bool, Failure> {
    loop {
        for warning in run.take_warnings() {
            line.clear();
            say!("lightfoot: warning: {warning}");
        }
        if run.over() {
            return Ok(run.command_status().is_none());
        }
        let progress = run.progress();
        let left = duration.map(|d| d.saturating_sub(progress.elapsed));
        let enough = events.is_some_and(|events| progress.fired >= events);
        if ending.asked() || enough || left == Some(Duration::ZERO) {
            return Ok(true);
        }
        line.step(&format!(
            "{:.1} s   {} firings   {} lost   cost {:.2} % of one CPU",
            progress.elapsed.as_secs_f64(),
            progress.fired,
            progress.lost,
            progress.percent_of_one_cpu
        ));
        run.step(left.map_or(NAP, |left| left.min(NAP)))?;
    }
}

/// The exit code: the command's own if it is not 0, else whether something is missing.
fn code(status: Option<ExitStatus>, outcome: &Outcome) -> u8 {
    let own = if outcome.incomplete() { INCOMPLETE } else { DONE };
    match status {
        Some(status) if !status.success() => match (status.code(), status.signal()) {
            (Some(code), _) => u8::try_from(code).unwrap_or(FAILED),
            (None, Some(signal)) => u8::try_from(128 + signal).unwrap_or(FAILED),
            (None, None) => FAILED,
        },
        _ => own,
    }
}
