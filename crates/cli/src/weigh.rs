//! `lightfoot weigh`: the ladder, what each kind of probe costs on this machine.

use crate::args::{WeighArguments, duration};
use crate::exit::{DONE, Failure, INCOMPLETE, NOT_POSSIBLE, USAGE};
use crate::output::Output;
use crate::progress::Line;
use crate::signals::Ending;
use crate::terminal::text_options;
use clap::Args;
use lightfoot_cost::probes::{Around, Checks};
use lightfoot_kernel::os;
use lightfoot_model::{Body, Mechanism};
use lightfoot_tracer::Calibration;
use lightfoot_weigh::ladder::{Pace, Progress, climb};
use lightfoot_weigh::noise::{Identity, Watch};
use lightfoot_weigh::report::{Circumstances, trigger};
use lightfoot_weigh::rung::{Rung, Selection, ladder};
use lightfoot_weigh::{Format, Machine, Report, markdown, svg, text};
use std::io::stdout;
use std::time::{Duration, Instant};

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
    /// How long the measuring takes in all, 1s to 1h; more time gives narrower intervals. Default: 90s; with --app: 4m for tls, 90s for
    /// syscount.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "probes")]
    pub time: Option<Duration>,
    /// Roughly, in seconds.
    #[arg(long, conflicts_with_all = ["time", "probes"])]
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

/// Length of a run without `--time`.
const DEFAULT_TIME: Duration = Duration::from_secs(90);
/// Shortest and longest `--time`.
const TIMES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));

/// Programs of the ladder do nothing but what their names say.
const NO_CHECKS: Checks = Checks { gate: false, process: false };

/// Measures and delivers. Returns the exit code.
pub fn run(arguments: &WeighArguments, _verbose: bool) -> Result<u8, Failure> {
    let options = &arguments.ladder;
    let format = arguments.format()?;
    let pace = pace(options)?;
    let selection = selection(options)?;
    let output = Output::open(arguments.output.as_deref())?;
    privileged()?;
    let ending = Ending::listen()?;

    let rungs = ladder(&selection);
    let mut line = Line::new();
    let mut machine = Machine::default();
    let calibration = calibrated(&rungs, &mut line, &ending);
    let without_statistics = machine.without_statistics().map(str::to_string);
    let watch = Watch::start();
    let start = Instant::now();
    let mut reached_end = true;
    let seed = u64::from(std::process::id());
    let measured = climb(&mut machine, &rungs, &pace, seed, |progress| {
        line.step(&words(progress, &pace));
        reached_end = !ending.asked();
        reached_end
    });
    line.clear();
    let circumstances = Circumstances {
        version: env!("CARGO_PKG_VERSION").into(),
        machine: Identity::here(),
        disturbance: watch.end(),
        seconds: start.elapsed().as_secs_f64(),
        pace,
        quick: options.quick,
        without_statistics,
    };
    let report = Report::new(&measured, circumstances, |trigger, body| {
        let predicted = calibration.prices().predict(trigger, Around::Bare, NO_CHECKS, body);
        predicted.map(|predicted| predicted.total_ns())
    });
    let width = text_options(&stdout(), 0).width;
    let place = if output.is_stdout() { None } else { arguments.output.as_deref() };
    output.deliver(|out| match format {
        Format::Text => text::write(&report, out, width),
        Format::Json => report.write_json(out),
        Format::Markdown => markdown::write(&report, out),
        Format::Svg => svg::write(&report, out),
    })?;
    if let Some(path) = place {
        say!("wrote {}", path.display());
    }
    if format != Format::Text {
        beside(&report);
    }
    if !reached_end {
        say!("lightfoot: ended early: figures rest on what was measured until then");
        return Ok(INCOMPLETE);
    }
    match report.measured().next() {
        Some(_) => Ok(DONE),
        None => Ok(NOT_POSSIBLE),
    }
}

/// Prices of everything on the ladder, as they were measured on this machine since it was started, or are now: the model that is to foretell what the
/// ladder will find.
fn calibrated(rungs: &[Rung], line: &mut Line, ending: &Ending) -> Calibration {
    let mut calibration = Calibration::open();
    for (n, rung) in rungs.iter().enumerate() {
        if ending.asked() {
            break;
        }
        line.step(&format!("calibrating the model   {} of {}", n + 1, rungs.len()));
        calibration.predict(trigger(rung), Around::Bare, NO_CHECKS, rung.body);
    }
    calibration.save();
    calibration
}

fn pace(options: &LadderArguments) -> Result<Pace, Failure> {
    if options.quick {
        return Ok(Pace::quick());
    }
    let time = options.time.unwrap_or(DEFAULT_TIME);
    if !(TIMES.0..=TIMES.1).contains(&time) {
        return Err(Failure::new(USAGE, "--time must be from 1s to 1h"));
    }
    Ok(Pace::figures(time))
}

fn selection(options: &LadderArguments) -> Result<Selection, Failure> {
    let cpus = os::online_cpus().map_or(1, |cpus| cpus.len());
    if let Some(threads) = options.threads.iter().find(|&&threads| threads as usize > cpus) {
        let what = format!(
            "--threads {threads}: {cpus} CPUs are online, and more threads would wait for each other"
        );
        return Err(Failure::new(USAGE, what));
    }
    Ok(Selection {
        mechanisms: options.mechanisms.clone(),
        programs: options.programs.clone(),
        threads: options.threads.clone(),
        quick: options.quick,
    })
}

/// Without these nothing can be attached, and each row would say so.
pub fn privileged() -> Result<(), Failure> {
    let missing: Vec<&str> =
        os::missing_capabilities().into_iter().filter(|name| *name != "CAP_SYS_PTRACE").collect();
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!("weighing probes needs {}: run it as root", missing.join(" and "));
    Err(Failure::new(NOT_POSSIBLE, what))
}

/// What goes on, in a few words.
fn words(progress: &Progress, pace: &Pace) -> String {
    let Progress { rounds, visits, of, elapsed } = progress;
    let round = rounds + 1;
    format!(
        "{:.0} s of {:.0} s   round {round}   probe {} of {of}",
        elapsed.as_secs_f64(),
        pace.limit.as_secs_f64(),
        visits + 1
    )
}

/// What goes to standard error beside another format than text.
fn beside(report: &Report) {
    let figures = report.measured().count();
    let missing = report.rows.iter().filter(|row| !row.available).count();
    say!(
        "{figures} of {} rows measured, {missing} not here; {} doubtful",
        report.rows.len(),
        report.noise.doubtful_rows
    );
    if let Some(why) = &report.noise.why {
        say!("this machine was too noisy for these figures to be trusted: {why}");
    }
}
