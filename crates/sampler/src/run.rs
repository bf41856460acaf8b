//! One run, from the first event to the finished profile.

use crate::error::{Error, Result};
use crate::naming::{Names, sentences};
use crate::request::{Request, Target};
use crate::stacks::Stacks;
use lightfoot_cost::{Measured, Phase, PhaseClock, ledger};
use lightfoot_kernel::abi::{Counters, Record};
use lightfoot_kernel::calibrate::Calibration;
use lightfoot_kernel::os;
use lightfoot_kernel::perf::{Attr, PerfEvent, Scope, Source};
use lightfoot_kernel::sampler::{Config, Sampler, Target as KernelTarget, Transfer};
use lightfoot_kernel::sideband::{self, Sideband};
use lightfoot_kernel::spawn::Held;
use lightfoot_model::{Accounting, Clock, FailureReason, Meta, Profile, StackTable};
use lightfoot_process::{Device, Event, Limits, Mapping, Processes};
use lightfoot_symbolize::Options;
use std::borrow::Cow;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Distinct stacks counted in the kernel: 1.3 MiB of map. What does not fit goes through the ring.
const STACK_SLOTS: u32 = 16_384;
/// Processes followed at a time: those asked for and what they create.
const FOLLOWED_PROCESSES: u32 = 16_384;

/// Between two measurements of the interrupt's price.
const CALIBRATION_PAUSE: Duration = Duration::from_secs(5);
/// Measurements when the run is over, so that a short one has enough of them.
const CALIBRATION_BURSTS_AT_END: usize = 5;

/// What is known while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since sampling started.
    pub elapsed: Duration,
    /// Samples recorded.
    pub recorded: u64,
    /// Samples lost.
    pub lost: u64,
    /// Cost so far in percent of one CPU: interrupts, BPF, and our own CPU time since sampling started.
    pub percent_of_one_cpu: f64,
}

/// A run in progress. Dropping it removes everything from the kernel; a command that was started is killed.
#[derive(Debug)]
pub struct Run {
    request: Summary,
    sampler: Sampler,
    source: Source,
    processes: Processes,
    /// Processes whose events matter; `None`: all.
    followed: Option<HashSet<u32>>,
    stacks: Stacks,
    clock: PhaseClock,
    child: Option<Command>,
    /// Become readable when what is profiled ends.
    ends: Vec<OwnedFd>,
    target_pids: Vec<u32>,
    /// One of `ends` was readable.
    end_seen: bool,
    started: Instant,
    started_unix_ns: u64,
    cpu_at_start_ns: u64,
    /// What an interrupt costs; `None` if it cannot be measured.
    calibration: Option<Calibration>,
    calibrated: Instant,
    notes: Vec<String>,
    events_lost: u64,
}

/// What the profile says about the request.
#[derive(Debug)]
struct Summary {
    target: String,
    rate_hz: u64,
    kernel_frames: bool,
    transfer: Transfer,
    command_line: String,
    version: &'static str,
}

/// A command of ours; killed if it is dropped before it has ended.
#[derive(Debug)]
struct Command {
    child: Child,
    status: Option<ExitStatus>,
}

impl Drop for Command {
    fn drop(&mut self) {
        if self.status.is_none() {
            // Fails only if it has ended meanwhile.
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

impl Run {
    /// Loads, attaches and starts sampling.
    ///
    /// # Errors
    /// [`Error::Target`] if the target does not exist or the command cannot be executed, [`Error::NotPossible`] if this machine or
    /// user cannot profile.
    pub fn start(request: Request) -> Result<Run> {
        let mut clock = PhaseClock::default();
        clock.enter(Phase::Start, os::process_cpu_ns());
        os::raise_descriptor_limit();
        let Request { target, rate_hz, kernel_frames, transfer, ring_bytes, command_line, version } = request;
        let described = describe(&target)?;
        let kernel_target = match &target {
            Target::Machine => KernelTarget::All,
            Target::Command(_) => KernelTarget::Processes { pids: vec![], room: FOLLOWED_PROCESSES },
            Target::Cgroup(path) => KernelTarget::Cgroup(open_cgroup(path)?),
            Target::Processes(pids) => {
                pids.iter().try_for_each(|&pid| must_live(pid))?;
                KernelTarget::Processes {
                    pids: pids.clone(),
                    room: FOLLOWED_PROCESSES.max(pids.len() as u32),
                }
            }
        };
        let config =
            Config { target: kernel_target, kernel_frames, transfer, ring_bytes, stack_slots: STACK_SLOTS };
        let mut sampler = Sampler::load(&config).map_err(Error::from_set_up)?;
        let source = best_source(rate_hz);
        for cpu in os::online_cpus()? {
            sampler.attach_cpu(cpu, source, rate_hz).map_err(Error::from_set_up)?;
        }
        let mut run = Run {
            request: Summary { target: described, rate_hz, kernel_frames, transfer, command_line, version },
            sampler,
            source,
            processes: Processes::new(Limits::default()),
            followed: None,
            stacks: Stacks::default(),
            clock,
            child: None,
            ends: Vec::new(),
            target_pids: Vec::new(),
            end_seen: false,
            started: Instant::now(),
            started_unix_ns: 0,
            cpu_at_start_ns: 0,
            calibration: None,
            calibrated: Instant::now(),
            notes: missing_privileges(),
            events_lost: 0,
        };
        match target {
            Target::Machine | Target::Cgroup(_) => run.go()?,
            Target::Processes(pids) => {
                run.watch_ends(&pids);
                run.followed = Some(pids.into_iter().collect());
                run.go()?;
            }
            Target::Command(command) => {
                let name = command.get_program().to_string_lossy().into_owned();
                let failed = |e: std::io::Error| {
                    Error::target_because(format!("cannot execute {name}: {}", os::plain(&e)), e)
                };
                let held = Held::spawn(command).map_err(failed)?;
                let pid = held.pid();
                run.sampler.follow(pid)?;
                run.followed = Some(HashSet::from([pid]));
                run.watch_ends(&[pid]);
                run.go()?;
                let child = held.release().map_err(failed)?;
                run.child = Some(Command { child, status: None });
            }
        }
        Ok(run)
    }

    /// Sleeps until there is something to do, at most `timeout`, and does it.
    ///
    /// # Errors
    /// If the buffers cannot be read.
    pub fn step(&mut self, timeout: Duration) -> Result<()> {
        self.end_seen |= self.sampler.wait(timeout, &self.ends)?;
        self.calibrate();
        self.drain()
    }

    /// What is known now.
    pub fn progress(&self) -> Progress {
        let counters = self.sampler.counters();
        let elapsed = self.started.elapsed();
        let interrupt_ns = self.calibration.as_ref().and_then(Calibration::interrupt_ns).unwrap_or(0);
        let cost_ns =
            counters.fired * interrupt_ns + counters.run_ns + counters.follow_ns + os::process_cpu_ns()
                - self.cpu_at_start_ns;
        Progress {
            elapsed,
            recorded: counters.recorded,
            lost: counters.lost,
            percent_of_one_cpu: cost_ns as f64 * 100.0 / elapsed.as_nanos().max(1) as f64,
        }
    }

    /// Whether nothing is left to profile: the command has ended, or all processes that were asked for have.
    pub fn target_ended(&mut self) -> bool {
        // Without a descriptor for each (kernels before 5.3) one has to look each time.
        let told = self.ends.len() == self.target_pids.len();
        if told && !std::mem::take(&mut self.end_seen) {
            return false;
        }
        if let Some(command) = &mut self.child {
            if command.status.is_none() {
                command.status = command.child.try_wait().ok().flatten();
            }
            return command.status.is_some();
        }
        let before = self.target_pids.len();
        self.target_pids.retain(|&pid| is_alive(pid));
        if self.target_pids.len() < before {
            // The descriptors of those that ended stay readable: waiting would not sleep any more.
            self.watch_ends(&self.target_pids.clone());
        }
        before > 0 && self.target_pids.is_empty()
    }

    /// Ends the command, if one was started and still runs: asks (SIGTERM), and after `patience` insists (SIGKILL).
    pub fn end_command(&mut self, patience: Duration) {
        let Some(command) = &mut self.child else { return };
        const SIGTERM: i32 = 15;
        let asked = Instant::now();
        os::signal(command.child.id(), SIGTERM);
        while command.status.is_none() && asked.elapsed() < patience {
            command.status = command.child.try_wait().ok().flatten();
            std::thread::sleep(Duration::from_millis(5));
        }
        if command.status.is_none() {
            command.child.kill().ok();
            command.status = command.child.wait().ok();
        }
    }

    /// How the command ended, if one was started and has ended.
    pub fn command_status(&self) -> Option<ExitStatus> {
        self.child.as_ref().and_then(|command| command.status)
    }

    /// Stops sampling, names what was seen and settles the account.
    ///
    /// # Errors
    /// If the buffers cannot be read.
    pub fn finish(mut self) -> Result<Profile> {
        self.sampler.stop()?;
        let duration_ns = self.started.elapsed().as_nanos() as u64;
        self.drain()?;
        let counters = self.sampler.counters();
        if self.request.transfer == Transfer::Counted {
            self.stacks.add_counts(&self.sampler.counts()?);
        }
        let bpf_map_bytes = self.sampler.memory_bytes();
        self.clock.enter(Phase::Calibrate, os::process_cpu_ns());
        self.prepare_calibration();
        let interrupt_each_ns = self.calibration.take().and_then(|mut calibration| {
            (0..CALIBRATION_BURSTS_AT_END).try_for_each(|_| calibration.measure()).ok()?;
            calibration.interrupt_ns()
        });
        self.clock.enter(Phase::Symbolize, os::process_cpu_ns());
        // From here on nothing of ours is needed in the kernel.
        drop(self.sampler);
        let names = Names::find(&self.stacks, &mut self.processes, &Options::default());
        let mut table = StackTable::default();
        let period_ns = 1_000_000_000 / self.request.rate_hz;
        let samples = names.samples(&self.stacks, period_ns, &mut table);
        let accounting = accounting(&counters, self.stacks.malformed);
        let mut notes = self.notes;
        notes.extend(sentences(&names.notes));
        if counters.uncounted > 0 {
            notes.push(format!(
                "more than {STACK_SLOTS} distinct stacks: {} samples were sent one by one instead of counted in the kernel",
                counters.uncounted
            ));
        }
        if counters.unfollowed > 0 {
            notes.push(format!(
                "{} processes were not followed: more than {FOLLOWED_PROCESSES} at a time",
                counters.unfollowed
            ));
        }
        if self.events_lost > 0 {
            notes.push(format!(
                "{} process events did not fit in their buffer: mappings were read again",
                self.events_lost
            ));
        }
        if interrupt_each_ns.is_none() {
            notes.push(
                "the price of an interrupt could not be calibrated: it is missing from the cost".into(),
            );
        }
        let (kernel, machine) = os::uname();
        let first_sample_wall_ns =
            self.stacks.first_time_ns.map_or(0, |t| t.saturating_sub(process_start_monotonic_ns()));
        let threads = self.stacks.into_threads();
        self.clock.leave(os::process_cpu_ns());
        let cost = ledger(&Measured {
            interrupts: counters.fired,
            interrupt_each_ns,
            bpf_ns: counters.run_ns + counters.follow_ns,
            phases: self.clock,
            duration_ns,
            recorded: accounting.recorded,
            peak_rss_bytes: os::peak_rss_bytes(),
            bpf_map_bytes,
            transfer_bytes: counters.sent_bytes,
            first_sample_wall_ns,
            first_sample_cpu_ns: self.cpu_at_start_ns,
        });
        Ok(Profile {
            meta: Meta {
                version: self.request.version.into(),
                target: self.request.target,
                command_line: self.request.command_line,
                started_unix_ns: self.started_unix_ns,
                duration_ns,
                rate_hz: self.request.rate_hz,
                period_ns,
                clock: match self.source {
                    Source::CpuClock => Clock::CpuClock,
                    Source::Cycles => Clock::Cycles,
                },
                cpus: os::online_cpus()?.len() as u32,
                kernel,
                machine,
                kernel_frames: self.request.kernel_frames,
                notes,
            },
            strings: names.strings,
            frames: names.frames,
            stacks: table,
            threads,
            samples,
            accounting,
            cost,
        })
    }

    /// Measures the price of an interrupt now and then: at once, then each five seconds. 0.06 % of one CPU, in the
    /// phase `collect`.
    fn calibrate(&mut self) {
        let measured = self.calibration.as_ref().is_some_and(Calibration::has_measured);
        if measured && self.calibrated.elapsed() < CALIBRATION_PAUSE {
            return;
        }
        self.calibrated = Instant::now();
        self.prepare_calibration();
        if let Some(calibration) = &mut self.calibration
            && calibration.measure().is_err()
        {
            self.calibration = None;
        }
    }

    /// Opens what measures the interrupt's price, unless that is done or not possible.
    fn prepare_calibration(&mut self) {
        if self.calibration.is_none() {
            self.calibration = self.sampler.empty_program().and_then(Calibration::new).ok();
        }
    }

    fn go(&mut self) -> Result<()> {
        self.cpu_at_start_ns = os::process_cpu_ns();
        self.clock.enter(Phase::Collect, self.cpu_at_start_ns);
        self.started = Instant::now();
        self.started_unix_ns =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        Ok(self.sampler.start()?)
    }

    /// Has [`Run::step`] wake up when one of these processes ends.
    fn watch_ends(&mut self, pids: &[u32]) {
        self.target_pids = pids.to_vec();
        self.ends = pids.iter().filter_map(|&pid| os::process_end(pid)).collect();
    }

    /// Takes everything that waits, in the order of time: an address means what was mapped when it was seen.
    fn drain(&mut self) -> Result<()> {
        // Stacks first: whatever happened before them is then in the sideband buffers.
        self.sampler.collect()?;
        let events = take_events(self.sampler.sideband(), &mut self.followed);
        let mut events = events.into_iter().peekable();
        let (processes, stacks) = (&mut self.processes, &mut self.stacks);
        let events_lost = &mut self.events_lost;
        self.sampler.take(|bytes| match Record::parse(bytes) {
            Some(record) => {
                while let Some(event) = events.next_if(|e| e.time_ns <= record.header.time_ns) {
                    apply(&event, processes, events_lost);
                }
                stacks.add(&record, processes);
            }
            None => stacks.malformed += 1,
        });
        for event in events {
            apply(&event, processes, events_lost);
        }
        Ok(())
    }
}

/// Waiting events of the processes that matter; learns their children.
fn take_events(sideband: &mut Sideband, followed: &mut Option<HashSet<u32>>) -> Vec<sideband::Event> {
    sideband.drain(|pid, parent| {
        let Some(followed) = followed else { return true };
        if parent.is_some_and(|parent| followed.contains(&parent)) {
            followed.insert(pid);
        }
        followed.contains(&pid)
    })
}

fn apply(event: &sideband::Event, processes: &mut Processes, lost: &mut u64) {
    let (pid, time_ns) = (event.pid, event.time_ns);
    processes.apply(match &event.kind {
        sideband::Kind::Fork { parent } => Event::Fork { pid, parent_pid: *parent, time_ns },
        sideband::Kind::Exec => Event::Exec { pid, time_ns },
        sideband::Kind::Exit => Event::Exit { pid, time_ns },
        sideband::Kind::Lost(count) => {
            *lost += count;
            Event::Lost { count: *count, time_ns }
        }
        sideband::Kind::Map(m) => Event::Map {
            pid,
            time_ns,
            mapping: Mapping {
                start: m.start,
                end: m.start.saturating_add(m.len),
                file_offset: m.file_offset,
                device: Device { major: m.device.0, minor: m.device.1 },
                inode: m.inode,
                path: Cow::Borrowed(&m.path),
            },
        },
    });
}

fn accounting(counters: &Counters, malformed: u64) -> Accounting {
    let mut accounting = Accounting {
        fired: counters.fired,
        recorded: counters.recorded.saturating_sub(malformed),
        filtered: counters.filtered,
        throttled: counters.throttled,
        lost: counters.lost,
        ..Accounting::default()
    };
    for (reason, count) in [
        (FailureReason::NoScratch, counters.no_scratch),
        (FailureReason::NoFrames, counters.no_frames),
        (FailureReason::Malformed, malformed),
    ] {
        if count > 0 {
            accounting.failed += count;
            accounting.reasons.insert(reason.name(), count);
        }
    }
    accounting
}

/// The hardware's cycle counter where there is one; virtual machines often have none.
fn best_source(rate_hz: u64) -> Source {
    let attr = Attr::sampling(Source::Cycles, rate_hz);
    match PerfEvent::open(attr, Scope::Caller) {
        Ok(_) => Source::Cycles,
        Err(_) => Source::CpuClock,
    }
}

fn describe(target: &Target) -> Result<String> {
    let named = |pid: u32| match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(comm) => format!("process {pid} ({})", comm.trim_end()),
        Err(_) => format!("process {pid}"),
    };
    Ok(match target {
        Target::Machine => "whole machine".into(),
        Target::Cgroup(path) => format!("cgroup {}", path.display()),
        Target::Command(command) => {
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            format!("command {}", words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" "))
        }
        Target::Processes(pids) => pids.iter().map(|&pid| named(pid)).collect::<Vec<_>>().join(", "),
    })
}

fn must_live(pid: u32) -> Result<()> {
    if is_alive(pid) {
        Ok(())
    } else if std::path::Path::new(&format!("/proc/{pid}")).exists() {
        Err(Error::target(format!("process {pid} has ended (its parent has not taken note yet)")))
    } else {
        Err(Error::target(format!("no process {pid}")))
    }
}

/// What is lost without privileges that profiling can do without.
fn missing_privileges() -> Vec<String> {
    let names_only = os::missing_capabilities() == ["CAP_SYS_PTRACE"];
    let note = "CAP_SYS_PTRACE is missing: programs of other users may have no names";
    names_only.then(|| note.to_string()).into_iter().collect()
}

fn open_cgroup(path: &std::path::Path) -> Result<OwnedFd> {
    let named = path.display();
    let folder = std::fs::File::open(path)
        .map_err(|e| Error::target_because(format!("cannot open cgroup {named}: {}", os::plain(&e)), e))?;
    if !path.join("cgroup.procs").exists() || !path.join("cgroup.controllers").exists() {
        return Err(Error::target(format!(
            "{named} is not a cgroup of version 2 (it has no cgroup.controllers)"
        )));
    }
    Ok(folder.into())
}

/// Whether the process exists and has a thread that runs: a process whose main thread has ended is not dead before the others have, too.
fn is_alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // State (field 3) and number of threads (field 20) follow the name, which is in parentheses and may contain anything.
    let mut fields = stat.rfind(") ").map_or("", |at| &stat[at + 2..]).split(' ');
    let (state, threads) = (fields.next(), fields.nth(16).and_then(|n| n.parse::<u32>().ok()));
    !matches!(state, None | Some("Z" | "X" | "")) || threads.is_some_and(|threads| threads > 1)
}

/// Start of this process on CLOCK_MONOTONIC, in ns, from the kernel's own record of it (to 10 ms).
fn process_start_monotonic_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    // Field 22, starttime in ticks of 1/100 s since boot; 20th behind the name.
    let ticks = stat.rfind(") ").and_then(|at| stat[at + 2..].split(' ').nth(19)?.parse::<u64>().ok());
    let uptime = uptime.split(' ').next().and_then(|s| s.parse::<f64>().ok());
    match (ticks, uptime) {
        (Some(ticks), Some(uptime)) => {
            let age_ns = ((uptime * 1e9) as u64).saturating_sub(ticks * 10_000_000);
            os::monotonic_ns().saturating_sub(age_ns)
        }
        _ => os::monotonic_ns(),
    }
}
