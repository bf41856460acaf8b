//! `lightfoot profile`.

use crate::args::ProfileArguments;
use crate::exit::{DONE, FAILED, Failure, INCOMPLETE, USAGE};
use crate::output::Output;
use crate::progress::Line;
use crate::signals::Ending;
use crate::terminal::text_options;
use lightfoot_cost::{MemoryPlan, Phase, add_phase};
use lightfoot_export::Format;
use lightfoot_kernel::os;
use lightfoot_model::Profile;
use lightfoot_sampler::{Kinds, Request, Run, Save, SaveWalks, Target};
use std::io::{IsTerminal, stderr, stdout};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// Length of a run without `-d` and without a command.
const DEFAULT_DURATION: Duration = Duration::from_secs(10);
/// Longest sleep: how late a signal that arrives just before the sleep is noticed.
const NAP: Duration = Duration::from_millis(250);
/// How long a command that is asked to end may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Functions in the table that goes beside another format, and in the text itself.
const SUMMARY_ROWS: usize = 12;
const TEXT_ROWS: usize = 30;

/// Profiles and delivers. Returns the exit code.
pub fn run(arguments: &ProfileArguments, verbose: bool) -> Result<u8, Failure> {
    let format = format(arguments)?;
    let output = Output::open(arguments.output.as_deref())?;
    if output.is_stdout() && format.is_binary() && stdout().is_terminal() {
        return Err(Failure::new(USAGE, format!("{format} is not for a terminal: name a file with -o")));
    }
    if arguments.wakers && kinds(arguments) == Kinds::OnCpu {
        return Err(Failure::new(USAGE, "--wakers is about waits: it needs --off-cpu or --wall".to_string()));
    }
    let ending = Ending::listen()?;
    let (target, duration) = target(arguments)?;
    let mut line = Line::new();
    let mut run = Run::start(Request {
        target,
        rate_hz: arguments.frequency,
        clock: arguments.clock.unwrap_or_default(),
        kinds: kinds(arguments),
        wakers: arguments.wakers,
        kernel_frames: !arguments.no_kernel,
        transfer: arguments.transfer.unwrap_or_default(),
        ring_bytes: arguments.ring_bytes,
        budget: arguments.budget,
        memory: plan(arguments)?,
        memory_bytes: arguments.mem,
        jvm_attach: !arguments.no_jvm_attach,
        save: save(arguments),
        plain_loops: arguments.plain_loops,
        command_line: std::env::args().collect::<Vec<_>>().join(" "),
        version: env!("CARGO_PKG_VERSION"),
    })?;
    let ended_by_us = watch(&mut run, duration, &ending, &mut line)?;
    if ended_by_us {
        run.end_command(PATIENCE);
    }
    let status = run.command_status().filter(|_| !ended_by_us);
    line.say("finding names ...");
    let mut profile = run.finish()?;
    line.clear();

    let cpu_before_ns = os::process_cpu_ns();
    let options = text_options(&stdout(), TEXT_ROWS);
    let place = if output.is_stdout() { None } else { arguments.output.as_deref() };
    output.deliver(|out| lightfoot_export::write(&profile, format, out, &options))?;
    let write_ns = os::process_cpu_ns().saturating_sub(cpu_before_ns);
    add_phase(
        &mut profile.cost,
        Phase::Write,
        write_ns,
        profile.meta.duration_ns,
        profile.accounting.recorded,
    );
    beside(&profile, format, place);
    if verbose {
        say!(
            "first sample after {:.0} ms, {:.0} ms of CPU until sampling started",
            profile.cost.first_sample_wall_ns as f64 / 1e6,
            profile.cost.first_sample_cpu_ns as f64 / 1e6
        );
    }
    if profile.accounting.lost > 0 {
        say!(
            "lightfoot: incomplete: {} of {} samples were lost for lack of room; a larger --ring-bytes helps",
            profile.accounting.lost,
            profile.accounting.fired
        );
    }
    Ok(code(status, &profile))
}

fn kinds(arguments: &ProfileArguments) -> Kinds {
    match (arguments.wall, arguments.off_cpu) {
        (true, _) => Kinds::Wall,
        (false, true) => Kinds::OffCpu,
        (false, false) => Kinds::OnCpu,
    }
}

/// Bounds of everything that grows.
fn plan(arguments: &ProfileArguments) -> Result<MemoryPlan, Failure> {
    let cpus = os::possible_cpus().unwrap_or(1) as u32;
    match arguments.mem {
        None => Ok(MemoryPlan::standard(cpus)),
        Some(bytes) => {
            MemoryPlan::for_limit(bytes, cpus).map_err(|e| Failure::new(USAGE, format!("--mem: {e}")))
        }
    }
}

fn save(arguments: &ProfileArguments) -> Option<Save> {
    let which = if arguments.save_all { SaveWalks::All } else { SaveWalks::Failed };
    arguments.save_failed.clone().map(|folder| Save { folder, which })
}

/// Waits until the run is over: the time, the target or the user's patience. Returns whether the command, if there is one, still has to
/// be ended.
fn watch(
    run: &mut Run,
    duration: Option<Duration>,
    ending: &Ending,
    line: &mut Line,
) -> Result<bool, Failure> {
    loop {
        let progress = run.progress();
        if run.target_ended() {
            return Ok(false);
        }
        let left = duration.map(|d| d.saturating_sub(progress.elapsed));
        if ending.asked() || left == Some(Duration::ZERO) {
            return Ok(true);
        }
        line.update(&progress, duration);
        run.step(left.map_or(NAP, |left| left.min(NAP)))?;
    }
}

fn format(arguments: &ProfileArguments) -> Result<Format, Failure> {
    match (arguments.format, &arguments.output) {
        (Some(format), _) => Ok(format),
        (None, Some(path)) if path.as_os_str() != "-" => Format::from_path(path).ok_or_else(|| {
            Failure::new(
                USAGE,
                format!(
                    "{} does not say the format: use -f, or one of the endings {}",
                    path.display(),
                    lightfoot_export::extensions_for_people()
                ),
            )
        }),
        (None, _) => Ok(Format::Text),
    }
}

/// The target, and how long unless it ends by itself.
fn target(arguments: &ProfileArguments) -> Result<(Target, Option<Duration>), Failure> {
    let duration = Some(arguments.duration.unwrap_or(DEFAULT_DURATION));
    Ok(if let Some((program, rest)) = arguments.argv.split_first() {
        let mut command = Command::new(program);
        command.args(rest);
        (Target::Command(command), arguments.duration)
    } else if let Some(cgroup) = &arguments.cgroup {
        (Target::Cgroup(cgroup_folder(cgroup)?), duration)
    } else if arguments.all {
        (Target::Machine, duration)
    } else {
        let mut pids = arguments.pids.clone();
        pids.sort_unstable();
        pids.dedup();
        (Target::Processes(pids), duration)
    })
}

/// A cgroup by path, or by name below the mount of cgroup v2.
fn cgroup_folder(given: &Path) -> Result<PathBuf, Failure> {
    if given.is_absolute() && given.exists() {
        return Ok(given.to_path_buf());
    }
    let below = os::cgroup2_mount().map(|mount| mount.join(given.strip_prefix("/").unwrap_or(given)));
    match below {
        Some(folder) if folder.exists() => Ok(folder),
        Some(folder) => Err(Failure::new(
            FAILED,
            format!("no cgroup {}: neither it nor {} exists", given.display(), folder.display()),
        )),
        None => {
            Err(Failure::new(FAILED, format!("no cgroup {}, and cgroup v2 is not mounted", given.display())))
        }
    }
}

/// What goes to standard error beside the result: where it was written, a short table, and always the ledger.
fn beside(profile: &Profile, format: Format, place: Option<&Path>) {
    let mut out = stderr();
    let mut options = text_options(&out, SUMMARY_ROWS);
    // Nobody is to be told if standard error has gone away.
    match (format, place) {
        (Format::Text, None) => {}
        (Format::Text, Some(path)) => {
            say!("wrote {}", path.display());
            lightfoot_export::ledger(profile, &mut out, &options).ok();
        }
        (_, Some(path)) => {
            lightfoot_export::write(profile, Format::Text, &mut out, &options).ok();
            say!("wrote {}", path.display());
        }
        (_, None) => {
            options.rows = 0;
            lightfoot_export::ledger(profile, &mut out, &options).ok();
        }
    }
}

/// The exit code: the command's own if it is not 0, else whether anything was lost.
fn code(status: Option<ExitStatus>, profile: &Profile) -> u8 {
    let own = if profile.accounting.lost > 0 { INCOMPLETE } else { DONE };
    match status {
        Some(status) if !status.success() => match (status.code(), status.signal()) {
            (Some(code), _) => u8::try_from(code).unwrap_or(FAILED),
            (None, Some(signal)) => u8::try_from(128 + signal).unwrap_or(FAILED),
            (None, None) => FAILED,
        },
        _ => own,
    }
}
