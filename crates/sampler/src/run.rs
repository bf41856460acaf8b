//! One run, from the first event to the finished profile.

use crate::debt::{debt, interpreter_debt};
use crate::deferred::Deferred;
use crate::error::{Error, Result};
use crate::interpreted::Interpreters;
use crate::library::{Library, Room};
use crate::naming::{Names, sentences};
use crate::request::{Request, Target};
use crate::saving::Saving;
use crate::stacks::{Stacks, file_key};
use crate::steering::{Spent, Steering, TICK_ENTRY_NS};
use crate::timing::Timing;
use crate::workshop::AT_WORK_NICENESS;
use lightfoot_cost::governor::{Observed, Setup};
use lightfoot_cost::{Measured, MemoryPlan, Phase, PhaseClock, ledger};
use lightfoot_kernel::abi::{self, Counters, Live, ObjectSeen, Record, entry};
use lightfoot_kernel::calibrate::Calibration;
use lightfoot_kernel::os::{self, Hurry, MappedCode};
use lightfoot_kernel::sampler::{Config, Sampler, SaveWalks, Target as KernelTarget, Transfer, Walk};
use lightfoot_kernel::spawn::Held;
use lightfoot_model::{Accounting, FailureReason, Meta, OffCpu, Profile, RunTimes, StackTable};
use lightfoot_process::{Limits, Mapping, ObjectId, Processes};
use lightfoot_symbolize::Options;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Processes followed at a time: those asked for and what they create.
const FOLLOWED_PROCESSES: u32 = 16_384;

/// Time that is waited for objects that are being prepared. Samples wait in the ring meanwhile, so it is short: a process that ends cannot
/// be asked any more.
const WORK: Duration = Duration::from_millis(3);
/// Longest sleep while an object is being prepared.
const NAP_AT_WORK: Duration = Duration::from_millis(10);
/// Time for what is being prepared when the run is over: walks wait for it.
const WORK_AT_END: Duration = Duration::from_secs(2);
/// The same where there is a budget: a short run has had no time to make tables.
const WORK_AT_END_GOVERNED: Duration = Duration::from_millis(200);
/// The same before sampling starts.
const WORK_AT_START: Duration = Duration::from_millis(100);
/// The same where a command or processes are named: what they need is needed at once.
const WORK_FOR_NAMED: Duration = Duration::from_millis(500);
/// `lf_live::prompt`: names of the code of a process are read at least each time that it has got older by this part of its age.
const PROMPT: u32 = 32;
/// The same with a budget.
const PROMPT_IN_BUDGET: u32 = 4;
/// Processes whose files are prepared before sampling starts.
const PREPARED_PROCESSES: usize = 64;
/// When running JVMs are asked for the names of their code the first time, and then each time twice as late: one that exits
/// cannot be asked any more.
const FIRST_NAMES: Duration = Duration::from_secs(1);
/// Processes that wait to be asked for their mappings; of more, their files are announced one by one.
const UNASKED_MAX: usize = 1_024;
/// Between two times that memory is given back: it takes some milliseconds.
const BETWEEN_EVICTIONS: Duration = Duration::from_secs(1);
/// Measurements before sampling starts where there is a budget.
const CALIBRATION_BURSTS_AT_START: usize = 4;
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
    timing: Timing,
    live: Live,
    processes: Processes,
    library: Library,
    interpreters: Interpreters,
    stacks: Stacks,
    deferred: Deferred,
    steering: Steering,
    /// Walks that are saved, if that was asked for.
    saving: Option<Saving>,
    clock: PhaseClock,
    child: Option<Command>,
    /// Become readable when what is profiled ends.
    ends: Vec<OwnedFd>,
    target_pids: Vec<u32>,
    /// One of `ends` was readable.
    end_seen: bool,
    /// While sampling.
    hurry: Option<Hurry>,
    started: Instant,
    started_unix_ns: u64,
    cpu_at_start_ns: u64,
    /// What unwind tables had cost by then.
    objects_at_start_ns: u64,
    /// What an interrupt costs; `None` if it cannot be measured.
    calibration: Option<Calibration>,
    calibrated: Instant,
    /// Processes whose mappings are to be asked for: one with an unknown file has others, most likely.
    unasked: BTreeSet<u32>,
    /// When JVMs are asked next, since the start.
    next_names: Duration,
    /// Memory is not given back sooner than this, since the start.
    next_eviction: Duration,
    notes: Vec<String>,
}

/// What the profile says about the request.
#[derive(Debug)]
struct Summary {
    target: String,
    rate_hz: u64,
    kernel_frames: bool,
    transfer: Transfer,
    stack_slots: u32,
    /// BPF maps but for unwind rows, in bytes; 0 if no limit of memory was asked for.
    map_bytes: u64,
    memory_bytes: Option<u64>,
    /// For symbol tables, in bytes.
    symbol_bytes: u64,
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
        let Request {
            target,
            rate_hz,
            clock: clock_choice,
            kinds,
            wakers,
            kernel_frames,
            transfer,
            ring_bytes,
            budget,
            memory,
            memory_bytes,
            jvm_attach,
            save,
            plain_loops,
            command_line,
            version,
        } = request;
        let described = describe(&target)?;
        let saving = save.as_ref().map(Saving::new).transpose()?;
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
        let cgroup = match &target {
            Target::Cgroup(path) => std::fs::metadata(path).map_or(0, |folder| folder.ino()),
            _ => 0,
        };
        let mut timing = Timing::find(clock_choice, kinds, rate_hz, cgroup)?;
        if let Some(off_cpu) = &mut timing.off_cpu {
            off_cpu.wakers = wakers;
        }
        let mut live = Live {
            period_ns: 1_000_000_000 / rate_hz,
            block_ns: 0,
            user_frames_max: abi::MAX_USER_FRAMES as u32,
            interpreters: 1,
            tick_keep: 0,
            waits_max: 0,
            step: 0,
            deferred: 1,
            prompt: if budget.is_some() { PROMPT_IN_BUDGET } else { PROMPT },
        };
        let config = Config {
            target: kernel_target,
            kernel_frames,
            transfer,
            ring_bytes: ring_bytes.unwrap_or(memory.ring_bytes as u32),
            stack_slots: memory.stack_slots,
            object_slots: memory.objects,
            page_slots: memory.page_slots,
            rule_slots: memory.rule_slots,
            save: save.as_ref().map_or(SaveWalks::Nothing, |save| save.which),
            walk: if plain_loops { Walk::PlainLoops } else { Walk::Auto },
            rate_moves: budget.is_some(),
            live,
            tick: timing.tick,
            off_cpu: timing.off_cpu,
        };
        let mut sampler = Sampler::load(&config).map_err(Error::from_set_up)?;
        timing.attach(&mut sampler, &mut live)?;
        let mut notes = missing_privileges();
        notes.extend(timing.notes());
        let cpus = os::online_cpus()?.len() as u32;
        let steering = Steering::new(budget.map(|budget| Setup {
            budget_ns_per_s: budget.ns_per_s(cpus),
            cpus,
            rate_hz: timing.rate_hz(),
            max_user_frames: abi::MAX_USER_FRAMES as u32,
            off_cpu_interval_ns: timing.off_cpu.map(|_| live.block_ns),
            follow: matches!(target, Target::Processes(_) | Target::Command(_)),
            interpreters: true,
            // They cannot be left out of a program that is loaded already.
            kernel_frames: false,
            memory_bytes,
        }));
        let mut run = Run {
            request: Summary {
                target: described,
                rate_hz,
                kernel_frames,
                transfer,
                stack_slots: memory.stack_slots,
                map_bytes: memory_bytes.map_or(0, |_| sampler.memory_bytes()),
                memory_bytes,
                symbol_bytes: memory.symbol_bytes,
                command_line,
                version,
            },
            sampler,
            timing,
            live,
            processes: Processes::new(Limits::default()),
            library: Library::new(room(&memory, memory_bytes.is_some()))?,
            interpreters: Interpreters::default(),
            stacks: Stacks::default(),
            deferred: Deferred::new(memory.deferred_bytes as usize),
            steering,
            saving,
            clock,
            child: None,
            ends: Vec::new(),
            target_pids: Vec::new(),
            end_seen: false,
            hurry: None,
            started: Instant::now(),
            started_unix_ns: 0,
            cpu_at_start_ns: 0,
            objects_at_start_ns: 0,
            calibration: None,
            calibrated: Instant::now(),
            unasked: BTreeSet::new(),
            next_names: FIRST_NAMES,
            next_eviction: Duration::ZERO,
            notes,
        };
        if !jvm_attach {
            run.processes.ask_no_jvm();
        }
        match target {
            Target::Machine | Target::Cgroup(_) => {
                run.prepare(None, &[])?;
                run.go()?;
            }
            Target::Processes(pids) => {
                run.prepare(None, &pids)?;
                run.watch_ends(&pids);
                run.go()?;
            }
            Target::Command(command) => {
                run.prepare(Some(command.get_program()), &[])?;
                let name = command.get_program().to_string_lossy().into_owned();
                let failed = |e: std::io::Error| {
                    Error::target_because(format!("cannot execute {name}: {}", os::plain(&e)), e)
                };
                let held = Held::spawn(command).map_err(failed)?;
                let pid = held.pid();
                run.sampler.follow(pid)?;
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
        let mut timeout = timeout.min(self.steering.patience(self.started.elapsed()));
        if self.library.is_busy() && self.steering.controls().is_none() {
            timeout = timeout.min(NAP_AT_WORK);
        }
        self.end_seen |= self.sampler.wait(timeout, &self.ends)?;
        self.calibrate();
        self.drain()?;
        self.timing.tend(&mut self.sampler, &mut self.live, self.started.elapsed())?;
        let may_work = self.steering.controls().is_none_or(|controls| controls.work_ns > 0);
        if self.started.elapsed() >= self.next_names && may_work {
            self.next_names *= 2;
            let before_ns = os::thread_cpu_ns();
            self.processes.ask_jvms();
            self.steering.spent.names_ns += os::thread_cpu_ns() - before_ns;
        }
        self.steer()
    }

    /// Tells what was spent since the last time, and does what the budget asks for.
    fn steer(&mut self) -> Result<()> {
        if !self.steering.is_due(self.started.elapsed()) {
            return Ok(());
        }
        let seen = self.observed();
        let Some(controls) = self.steering.step(&seen) else { return Ok(()) };
        self.library.allow(controls.work_ns);
        self.timing.obey(controls, &mut self.sampler, &mut self.live)?;
        self.sampler.set_follow(controls.follow_attached)?;
        if controls.evict_bytes > 0 && self.started.elapsed() >= self.next_eviction {
            self.evict()?;
        }
        Ok(())
    }

    /// Gives memory back: what waits for tables is ended as far as it goes, the tables used longest ago are forgotten, and what was freed
    /// goes back to the kernel.
    fn evict(&mut self) -> Result<()> {
        self.next_eviction = self.started.elapsed() + BETWEEN_EVICTIONS;
        let before_ns = os::thread_cpu_ns();
        os::trim_memory();
        let used = os::rss_bytes() + self.request.map_bytes + self.sampler.tables().bank_bytes();
        if self.request.memory_bytes.is_some_and(|limit| used > limit / 100 * 95) {
            self.walk_deferred(true);
            self.library.shrink(&mut self.sampler.tables())?;
            os::trim_memory();
            self.stacks.keep_leaves();
        }
        self.steering.spent.objects_ns += os::thread_cpu_ns() - before_ns;
        Ok(())
    }

    /// What was spent since sampling began.
    fn observed(&mut self) -> Observed {
        let all = self.sampler.counters();
        let events = self.sampler.event_counters();
        let Spent { calibrate_ns, objects_ns, names_ns } = self.steering.spent;
        let objects_ns = objects_ns + self.library.spent_ns() - self.objects_at_start_ns;
        let user_ns = os::process_cpu_ns().saturating_sub(self.cpu_at_start_ns);
        let ticking = self.timing.is_ticking();
        // The events' own were read later, while they went on.
        let ridden = all.fired.saturating_sub(events.fired);
        let ridden_ns = all.run_ns.saturating_sub(events.run_ns);
        let (interrupts, interrupt_each_ns) = if ticking {
            (all.fired, Some(TICK_ENTRY_NS))
        } else {
            (events.fired, self.calibration.as_ref().and_then(Calibration::interrupt_ns))
        };
        let (rss_bytes, map_bytes) = match self.request.map_bytes {
            0 => (0, 0),
            bytes => (os::rss_bytes(), bytes + self.sampler.tables().bank_bytes()),
        };
        let detached = self.steering.controls().is_some_and(|controls| {
            !controls.switch_attached && self.timing.off_cpu.is_some()
                || !controls.follow_attached && self.sampler.follows()
        });
        let outside = detached.then(os::switches_and_forks).flatten();
        Observed {
            now_ns: self.started.elapsed().as_nanos() as u64,
            interrupts,
            interrupt_each_ns,
            bpf_sample_ns: events.run_ns + if ticking { ridden_ns } else { 0 },
            user_frames: all.user_frames,
            truncated: all.truncated,
            bpf_follow_ns: all.follow_ns,
            follow_events: all.follow_events,
            bpf_switch_ns: all.switch_ns + if ticking { 0 } else { ridden_ns },
            switch_events: all.switches,
            switch_samples: if ticking { 0 } else { ridden },
            collect_ns: user_ns.saturating_sub(calibrate_ns + objects_ns + names_ns),
            calibrate_ns,
            objects_ns,
            names_ns,
            work_waits: self.library.is_busy() || !self.unasked.is_empty(),
            switches_outside: outside.map(|(switches, _)| switches),
            forks_outside: outside.map(|(_, forks)| forks),
            rss_bytes,
            map_bytes,
        }
    }

    /// What is known now.
    pub fn progress(&self) -> Progress {
        let counters = self.sampler.counters();
        let interrupts = self.sampler.event_counters().fired;
        let elapsed = self.started.elapsed();
        let interrupt_ns = self.calibration.as_ref().and_then(Calibration::interrupt_ns).unwrap_or(0);
        let cost_ns = interrupts * interrupt_ns
            + counters.run_ns
            + counters.switch_ns
            + counters.follow_ns
            + os::process_cpu_ns()
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
        if self.child.is_some() && self.drain().is_ok() {
            self.processes.ask_jvms();
        }
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
        // What comes now can wait.
        self.hurry = None;
        let duration_ns = self.started.elapsed().as_nanos() as u64;
        self.drain()?;
        let seen = self.observed();
        self.steering.last(&seen);
        // No window holds what comes from here on.
        self.clock.enter(Phase::Symbolize, os::process_cpu_ns());
        self.finish_deferred()?;
        let counters = self.sampler.counters();
        let interrupts = self.sampler.event_counters().fired;
        let off_cpu = match self.timing.off_cpu {
            Some(_) => Some(self.sampler.off_cpu_sums()?),
            None => None,
        };
        self.notes.extend(self.timing.comparison(&self.sampler));
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
        let mut symbols = Options::default();
        if self.request.memory_bytes.is_some() {
            symbols.unpacked_limit_bytes = symbols.unpacked_limit_bytes.min(self.request.symbol_bytes);
            os::trim_memory();
        }
        let mut names = Names::find(&self.stacks, &mut self.processes, &symbols);
        let mut table = StackTable::default();
        let samples = names.samples(&self.stacks, &mut table);
        let debt = debt(&self.stacks, &self.library, &self.processes);
        if let Some(saving) = self.saving.take() {
            self.notes.extend(saving.write(&mut self.processes));
        }
        let accounting = accounting(&counters, self.stacks.malformed, self.steering.samples_not_taken());
        let mut notes = self.notes;
        notes.extend(sentences(&names.notes));
        notes.extend(self.processes.jit_remarks());
        if counters.uncounted > 0 {
            notes.push(format!(
                "more than {} distinct stacks: {} samples were sent one by one instead of counted in the kernel",
                self.request.stack_slots, counters.uncounted
            ));
        }
        if self.stacks.shortened > 0 {
            notes.push(format!(
                "no memory for more stacks (see --mem): {} samples kept their innermost frame only",
                self.stacks.shortened
            ));
        }
        if counters.unfollowed > 0 {
            notes.push(format!(
                "{} processes were not followed: more than {FOLLOWED_PROCESSES} at a time",
                counters.unfollowed
            ));
        }
        notes.extend(self.library.remarks().iter().cloned());
        notes.extend(self.interpreters.remarks());
        notes.extend(interpreter_debt(&self.stacks));
        if counters.objects_unannounced > 0 {
            notes.push(format!(
                "{} stacks ended in files that could not be announced: no room",
                counters.objects_unannounced
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
        let mut cost = ledger(&Measured {
            interrupts,
            interrupt_each_ns,
            bpf_ns: counters.run_ns + counters.switch_ns + counters.follow_ns,
            run_times: RunTimes(counters.run_times),
            phases: self.clock,
            duration_ns,
            recorded: accounting.recorded,
            peak_rss_bytes: os::peak_rss_bytes(),
            bpf_map_bytes,
            transfer_bytes: counters.sent_bytes,
            first_sample_wall_ns,
            first_sample_cpu_ns: self.cpu_at_start_ns,
        });
        self.steering.enter(&mut cost);
        Ok(Profile {
            meta: Meta {
                version: self.request.version.into(),
                target: self.request.target,
                command_line: self.request.command_line,
                started_unix_ns: self.started_unix_ns,
                duration_ns,
                rate_hz: self.request.rate_hz,
                period_ns: self.timing.period_ns(),
                clock: self.timing.clock(),
                cpus: os::online_cpus()?.len() as u32,
                kernel,
                machine,
                kernel_frames: self.request.kernel_frames,
                notes,
                off_cpu: off_cpu.map(|sums| OffCpu {
                    blocked_ns: sums.blocked_ns,
                    waits: sums.waits,
                    block_ns: self.live.block_ns,
                }),
            },
            strings: names.strings,
            frames: names.frames,
            stacks: table,
            threads,
            samples,
            accounting,
            debt,
            cost,
        })
    }

    /// Measures the price of an interrupt now and then: at once, then each five seconds or as seldom as the budget asks. 0.06 % of one CPU
    /// without a budget, in the phase `collect`.
    fn calibrate(&mut self) {
        let measured = self.calibration.as_ref().is_some_and(Calibration::has_measured);
        if self.timing.is_ticking()
            || measured && self.calibrated.elapsed() < self.steering.calibration_pause()
        {
            return;
        }
        self.calibrated = Instant::now();
        let before_ns = os::thread_cpu_ns();
        self.prepare_calibration();
        if let Some(calibration) = &mut self.calibration
            && calibration.measure().is_err()
        {
            self.calibration = None;
        }
        self.steering.spent.calibrate_ns += os::thread_cpu_ns() - before_ns;
    }

    /// Opens what measures the interrupt's price, unless that is done or not possible.
    fn prepare_calibration(&mut self) {
        if self.calibration.is_none() {
            self.calibration = self.sampler.empty_program().and_then(Calibration::new).ok();
        }
    }

    fn go(&mut self) -> Result<()> {
        if self.steering.controls().is_some() && !self.timing.is_ticking() {
            // A price that moves later moves the past, too: what was spent of the budget already.
            self.prepare_calibration();
            for _ in 0..CALIBRATION_BURSTS_AT_START {
                self.calibrated = Instant::now();
                if self.calibration.as_mut().is_some_and(|calibration| calibration.measure().is_err()) {
                    self.calibration = None;
                }
            }
        }
        self.cpu_at_start_ns = os::process_cpu_ns();
        self.clock.enter(Phase::Collect, self.cpu_at_start_ns);
        self.started = Instant::now();
        self.started_unix_ns =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        self.objects_at_start_ns = self.library.spent_ns();
        self.steering.spent = Spent::default();
        if let Some(controls) = self.steering.controls() {
            self.library.allow(controls.work_ns);
            self.timing.obey(controls, &mut self.sampler, &mut self.live)?;
        }
        self.timing.start(&mut self.sampler)?;
        self.sampler.start()?;
        self.hurry = Hurry::new(AT_WORK_NICENESS);
        Ok(())
    }

    /// Has [`Run::step`] wake up when one of these processes ends.
    fn watch_ends(&mut self, pids: &[u32]) {
        self.target_pids = pids.to_vec();
        self.ends = pids.iter().filter_map(|&pid| os::process_end(pid)).collect();
    }

    /// Takes everything that waits, and prepares files that are new.
    fn drain(&mut self) -> Result<()> {
        let told = self.take_all()?;
        if self.request.memory_bytes.is_some()
            && self.stacks.iter().len() >= self.request.stack_slots as usize
        {
            self.stacks.keep_leaves();
        }
        self.unasked.extend(told);
        self.unasked.extend(self.deferred.unknown_processes());
        let may_work = self.steering.controls().is_none_or(|controls| controls.work_ns > 0);
        // One by one: those of a process with thousands of mappings take milliseconds.
        while self.library.may_go_on()
            && let Some(pid) = self.unasked.pop_first()
        {
            let before_ns = os::thread_cpu_ns();
            self.announce([pid])?;
            let spent_ns = os::thread_cpu_ns() - before_ns;
            self.library.charge(spent_ns);
            self.steering.spent.objects_ns += spent_ns;
        }
        while self.unasked.len() > UNASKED_MAX {
            self.unasked.pop_first();
        }
        if self.library.is_busy() {
            let limit = match self.steering.controls() {
                Some(controls) if controls.work_ns == 0 => Duration::ZERO,
                _ => WORK,
            };
            let before_ns = os::thread_cpu_ns();
            self.library.work(&mut self.sampler.tables(), &mut self.processes, limit)?;
            self.steering.spent.objects_ns += os::thread_cpu_ns() - before_ns;
        }
        self.walk_deferred(false);
        let room = u32::from(may_work && self.deferred.has_room());
        if self.live.deferred != room {
            self.live.deferred = room;
            self.sampler.set_live(&self.live)?;
        }
        Ok(())
    }

    /// Ends the walks that waited for tables which are there now; `finally`: all, as far as they go.
    fn walk_deferred(&mut self, finally: bool) {
        if self.deferred.is_empty() || !finally && !self.library.may_go_on() {
            return;
        }
        let before_ns = os::thread_cpu_ns();
        let (stacks, library) = (&mut self.stacks, &self.library);
        let (processes, interpreters) = (&mut self.processes, &mut self.interpreters);
        let depth = self.live.user_frames_max as usize;
        self.deferred.walk(library, &self.sampler.tables(), depth, finally, |record| {
            stacks.add(record, processes, interpreters, library);
        });
        let spent_ns = os::thread_cpu_ns() - before_ns;
        self.library.charge(spent_ns);
        self.steering.spent.objects_ns += spent_ns;
    }

    /// Ends all walks that still wait, those of short runs above all.
    fn finish_deferred(&mut self) -> Result<()> {
        let mut limit = WORK_AT_END;
        if self.steering.controls().is_some() {
            limit = WORK_AT_END_GOVERNED;
            self.library.allow(limit.as_nanos() as u64);
        }
        let began = Instant::now();
        while !self.deferred.is_empty() && self.library.is_busy() && began.elapsed() < limit {
            let rest = limit.saturating_sub(began.elapsed());
            self.library.work(&mut self.sampler.tables(), &mut self.processes, rest.min(NAP_AT_WORK))?;
            self.walk_deferred(false);
        }
        self.walk_deferred(true);
        Ok(())
    }

    /// Asks for the mappings of these processes, which has their files announced: one with an unknown file has others, most likely, and
    /// each would cost a stack.
    fn announce(&mut self, pids: impl IntoIterator<Item = u32>) -> Result<()> {
        for pid in pids {
            let mappings = self.sampler.mappings(pid)?;
            self.deferred.learn(pid, mappings);
        }
        self.take_all().map(drop)
    }

    /// Moves everything that waits into our tables, in the kernel's order: a file is announced before the first stack through it. Returns
    /// the processes whose files were announced.
    fn take_all(&mut self) -> Result<BTreeSet<u32>> {
        self.sampler.collect()?;
        let (processes, stacks, library) = (&mut self.processes, &mut self.stacks, &mut self.library);
        let interpreters = &mut self.interpreters;
        let (saving, deferred) = (&mut self.saving, &mut self.deferred);
        let mut told = BTreeSet::new();
        interpreters.next_round();
        self.sampler.take(|bytes| match abi::entry_of(bytes) {
            Some(entry::STACK) => match Record::parse(bytes) {
                Some(record) if deferred.take(&record) => {}
                Some(record) => {
                    if let Some(saving) = saving.as_mut() {
                        saving.stack(&record, library);
                    }
                    stacks.add(&record, processes, interpreters, library);
                }
                None => stacks.malformed += 1,
            },
            Some(entry::FAILED) => {
                if let Some(began) = abi::Failed::parse(bytes) {
                    if let Some(saving) = saving.as_mut() {
                        saving.began(began.clone());
                    }
                    deferred.began(began);
                }
            }
            Some(entry::OBJECT) => {
                if let Some(seen) = ObjectSeen::parse(bytes) {
                    library.announced(seen.segment.key(), saw(&seen, processes));
                    told.insert(seen.pid);
                }
            }
            _ => stacks.malformed += 1,
        });
        Ok(told)
    }

    /// Prepares what will be needed at once: the libraries that we have ourselves, and what is profiled.
    fn prepare(&mut self, program: Option<&OsStr>, pids: &[u32]) -> Result<()> {
        let _code: Vec<MappedCode> = program.map(code_of).unwrap_or_default();
        self.announce(pids.iter().copied().take(PREPARED_PROCESSES).chain([std::process::id()]))?;
        self.library.smallest_first(&mut self.processes);
        let named = program.is_some() || !pids.is_empty();
        let limit = if named { WORK_FOR_NAMED } else { WORK_AT_START };
        self.library.work(&mut self.sampler.tables(), &mut self.processes, limit)?;
        Ok(())
    }
}

/// The files that executing `program` will map first, mapped here: only the kernel can tell how it will identify them.
fn code_of(program: &OsStr) -> Vec<MappedCode> {
    let found = if program.as_bytes().contains(&b'/') {
        Some(PathBuf::from(program))
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
    };
    let Some(mut file) = found.and_then(|path| File::open(path).ok()) else { return vec![] };
    let mut start = [0; 256];
    let read = file.read(&mut start).unwrap_or(0);
    let mut files = vec![file];
    if let Some(line) = start[..read].strip_prefix(b"#!") {
        let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        files = words.next().and_then(|word| File::open(OsStr::from_bytes(word)).ok()).into_iter().collect();
    }
    files.iter().filter_map(|file| MappedCode::map(file).ok()).collect()
}

/// Takes note of a file that was announced, while its process may still be there.
fn saw(seen: &ObjectSeen, processes: &mut Processes) -> Option<ObjectId> {
    let segment = &seen.segment;
    let key = file_key(&segment.key());
    let mapping = Mapping {
        start: segment.start,
        end: segment.end,
        file_offset: segment.file_offset,
        device: key.device,
        inode: key.inode,
        path: Cow::Borrowed(&seen.path),
    };
    (segment.inode != 0).then(|| processes.saw_file(seen.pid, &mapping, key.generation)).flatten()
}

/// What of the plan the unwind tables get.
fn room(memory: &MemoryPlan, limited: bool) -> Room {
    Room {
        banks: memory.row_banks,
        pages: memory.page_slots,
        rules: memory.rule_slots,
        objects: memory.objects,
        rows_of_one: limited.then(|| memory.table_rows()),
    }
}

/// `not_taken`: samples that the asked rate would have taken. They are held back before they fire, and count as both.
fn accounting(counters: &Counters, malformed: u64, not_taken: u64) -> Accounting {
    let mut accounting = Accounting {
        fired: counters.fired + not_taken,
        recorded: counters.recorded.saturating_sub(malformed),
        filtered: counters.filtered,
        throttled: counters.throttled + not_taken,
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
