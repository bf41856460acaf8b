//! One run: probes attached, watched, weighed, detached.

use crate::calibrate::Calibration;
use crate::error::{Error, Result};
use crate::measuring::Measuring;
use crate::outcome::Outcome;
use crate::plan::{self, Common, Planned, Priced};
use crate::report::{self, Ends};
use crate::request::{Request, TRIAL, Target};
use crate::target::Traced;
use lightfoot_cost::probes::governor::{Observed, Orders, Seen, Setup};
use lightfoot_cost::probes::{Account, Checks, Counts, Governor, Verdict, WARN_NS_PER_S, judge};
use lightfoot_kernel::Kind;
use lightfoot_kernel::os::{self, Urgent};
use lightfoot_kernel::probes::tracefs::Tracefs;
use lightfoot_kernel::probes::{capabilities, support};
use lightfoot_model::{Body, Mechanism};
use lightfoot_sites::{Capabilities, Options, Site, System, list_on, resolve_on};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Between two looks where there is no budget.
const LOOK: Duration = Duration::from_millis(250);
/// The same while events come through a ring that has to be emptied.
const LOOK_AT_EVENTS: Duration = Duration::from_millis(20);

/// What is known while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since the probes were attached.
    pub elapsed: Duration,
    /// Firings.
    pub fired: u64,
    /// Firings without room.
    pub lost: u64,
    /// Cost so far in percent of one CPU.
    pub percent_of_one_cpu: f64,
}

/// A run in progress. Dropping it detaches everything; a command that was started is killed.
pub struct Run {
    request: Summary,
    sites: Vec<Site>,
    groups: Vec<Planned>,
    priced: Priced,
    account: Account,
    governor: Option<Governor>,
    governed: usize,
    orders: Orders,
    target: Traced,
    measuring: Measuring,
    /// Sites that were detached for the budget, and what that cost the probed programs, in ns.
    detached: BTreeSet<usize>,
    detaching_ns: f64,
    /// While a budget is kept: a flood on all CPUs must not keep us from seeing it.
    urgent: Option<Urgent>,
    started: Instant,
    next_look: Instant,
    cpu_at_start_ns: u64,
    start_ns: u64,
    begun_ns: u64,
    trial: Option<Vec<Verdict>>,
    warnings: Vec<String>,
    notes: Vec<String>,
    end_seen: bool,
}

/// What is remembered of the request.
pub(crate) struct Summary {
    pub body: Body,
    pub budget_ns_per_s: Option<u64>,
    pub dry_run: bool,
    pub command_line: String,
    pub version: &'static str,
}

/// Why this process may attach nothing at all, if that is so.
fn forbidden() -> Option<lightfoot_kernel::Error> {
    let every_kernel_has = Mechanism::RawTracepoint;
    support::check(every_kernel_has).err().filter(|error| error.kind() == Kind::Privilege)
}

/// The places that probes stand for, chosen for this kernel.
///
/// # Errors
/// As [`lightfoot_sites::resolve`].
pub fn sites(request: &Request) -> Result<Vec<Site>> {
    let pid = match request.target {
        Target::Process(pid) => Some(pid),
        Target::Machine | Target::Command(_) => None,
    };
    let (system, _tracefs) = machine();
    Ok(resolve_on(&system, &request.specs, &options(pid, request.limit, request.naive))?)
}

/// Calls `each` with the name of every probe of this machine that matches the pattern, as [`lightfoot_sites::list`].
///
/// # Errors
/// As [`lightfoot_sites::list`].
pub fn list(
    pattern: &str,
    verbose: bool,
    options: &Options,
    each: &mut dyn FnMut(&str) -> bool,
) -> Result<()> {
    let (system, _tracefs) = machine();
    Ok(list_on(&system, pattern, verbose, options, each)?)
}

/// This machine. Where tracefs is not mounted, it has one of its own as long as the second part lives.
fn machine() -> (System, Option<Tracefs>) {
    match Tracefs::open() {
        Ok(tracefs) => (System::new().with_tracefs(tracefs.path()), Some(tracefs)),
        Err(_) => (System::new(), None),
    }
}

/// How places are chosen on this kernel, for a process or for all, at most `limit` of them.
pub fn options(pid: Option<u32>, limit: usize, naive: bool) -> Options {
    // Who may not attach may still look. No body reads arguments.
    let capabilities = if forbidden().is_some() { Capabilities::all() } else { capabilities() };
    Options { limit, pid, naive, arguments: false, ..Options::new(capabilities) }
}

impl Run {
    /// Chooses places, finds their prices, attaches.
    ///
    /// # Errors
    /// See [`Error`]. Nothing is left attached.
    pub fn start(request: Request) -> Result<Run> {
        let cpu_before_ns = os::process_cpu_ns();
        if let Some(error) = forbidden() {
            return Err(Error::from_set_up(error));
        }
        os::raise_descriptor_limit();
        if let Target::Process(pid) = request.target {
            Traced::find(Target::Process(pid))?;
        }
        let sites = sites(&request)?;
        let budget_ns_per_s = request.budget.map(|b| b.ns_per_s(cpus()));
        let gate = budget_ns_per_s.is_some();
        let checks = Checks { gate, process: !matches!(request.target, Target::Machine) };
        // What is not possible is said before anything is measured.
        for (mechanism, _) in plan::grouped(&sites) {
            support::check(mechanism).map_err(Error::from_set_up)?;
        }
        let mut calibration = Calibration::open();
        let priced = plan::price(&sites, request.body, checks, &mut calibration);
        let mut target = Traced::find(request.target)?;
        let mut groups = plan::load(&sites, &Common { body: request.body, pid: target.pid, gate })?;
        let governed = plan::governed(&sites, &priced, &groups);
        let count = governed.len();
        let governor = budget_ns_per_s
            .map(|budget| Governor::new(Setup { budget_ns_per_s: budget, cpus: cpus(), probes: governed }));
        let orders = governor.as_ref().map(Governor::first).unwrap_or_default();
        fill(&groups, &orders)?;
        for group in &mut groups {
            if let Err(error) = group.attach(&sites) {
                return Err(if target.ended() { gone(&target) } else { error });
            }
        }
        if target.ended() {
            return Err(gone(&target));
        }
        let now = Instant::now();
        let mut run = Run {
            request: Summary {
                body: request.body,
                budget_ns_per_s,
                dry_run: request.dry_run,
                command_line: request.command_line,
                version: request.version,
            },
            account: Account::new(priced.lines.clone()),
            sites,
            groups,
            priced,
            governor,
            governed: count,
            orders,
            target,
            measuring: Measuring::new(),
            detached: BTreeSet::new(),
            detaching_ns: 0.0,
            urgent: None,
            started: now,
            next_look: now,
            cpu_at_start_ns: os::process_cpu_ns(),
            start_ns: os::process_cpu_ns().saturating_sub(cpu_before_ns),
            begun_ns: os::monotonic_ns(),
            trial: None,
            warnings: Vec::new(),
            notes: Vec::new(),
            end_seen: false,
        };
        if run.governor.is_some() {
            run.urgent = Urgent::new();
        }
        run.look(Vec::new())?;
        run.target.release()?;
        Ok(run)
    }

    /// Waits for whatever comes next, at most so long, and does what is due.
    ///
    /// # Errors
    /// If counters cannot be read or a probe cannot be detached.
    pub fn step(&mut self, at_most: Duration) -> Result<()> {
        let now = Instant::now();
        let mut until = self.next_look.min(self.measuring.due()).min(now + at_most);
        if self.trial.is_none() {
            until = until.min(self.started + TRIAL);
        }
        let alarms = self.wait(until.saturating_duration_since(now));
        let now = Instant::now();
        let trial_over = self.trial.is_none() && now >= self.started + TRIAL;
        if !alarms.is_empty() || now >= self.next_look || trial_over {
            self.look(alarms)?;
        }
        if trial_over {
            self.judge(now - self.started)?;
        }
        if now >= self.measuring.due() {
            self.measure(now)?;
        }
        Ok(())
    }

    /// Sleeps; the groups whose breaker has opened.
    fn wait(&mut self, time: Duration) -> Vec<usize> {
        let watched: Vec<usize> = (0..self.groups.len()).filter(|&g| self.groups[g].attached).collect();
        let mut readable = Vec::new();
        let mut ended = false;
        {
            let mut fds = Vec::with_capacity(watched.len() + 1);
            let mut of = Vec::with_capacity(watched.len());
            for &group in &watched {
                if let Some(fd) = self.groups[group].group.alarm_fd() {
                    fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                    of.push(group);
                }
            }
            let end = self.target.end.as_ref().filter(|_| !self.end_seen);
            if let Some(end) = end {
                fds.push(PollFd::new(end, PollFlags::IN));
            }
            let seconds = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
            // A signal ends the wait: whoever called wants to look.
            if poll(&mut fds, Some(&seconds)).is_ok_and(|ready| ready > 0) {
                ended = end.is_some() && fds.last().is_some_and(|fd| !fd.revents().is_empty());
                let ready = fds.iter().zip(&of).filter(|(fd, _)| fd.revents().contains(PollFlags::IN));
                readable.extend(ready.map(|(_, &group)| group));
            }
        }
        self.end_seen |= ended;
        let groups = &mut self.groups;
        readable.retain(|&group| groups[group].group.alarm(Duration::ZERO).unwrap_or(false));
        readable
    }

    /// Takes the counters in; with a budget, does what it orders.
    fn look(&mut self, alarms: Vec<usize>) -> Result<()> {
        let now = Instant::now();
        let seen = self.observe()?;
        let mut next = if self.request.body == Body::Event { LOOK_AT_EVENTS } else { LOOK };
        if let Some(governor) = &mut self.governor {
            let observed = Observed {
                now_ns: os::monotonic_ns(),
                own_ns: os::process_cpu_ns(),
                measuring_ns: (self.measuring.cost_ns() + self.detaching_ns) as u64,
                probes: seen,
                body_ns: self.account.lines().iter().map(|line| line.body_ns()).collect(),
                alarms,
            };
            let orders = governor.look(&observed);
            next = next.min(Duration::from_nanos(orders.next_ns));
            self.carry_out(orders)?;
        }
        self.next_look = now + next;
        Ok(())
    }

    fn carry_out(&mut self, orders: Orders) -> Result<()> {
        for group in &mut self.groups {
            for (slot, &site) in group.sites.iter().enumerate() {
                if orders.one_in.get(site) != self.orders.one_in.get(site) {
                    group.group.set_one_in(slot as u32, orders.one_in[site])?;
                    self.account.set_one_in(site, orders.one_in[site]);
                }
            }
        }
        // Floods first: what is to be detached goes before the breaker is filled again.
        if !orders.detach.is_empty() {
            self.detach()?;
        }
        fill(&self.groups, &orders)?;
        self.orders = orders;
        Ok(())
    }

    /// Detaches what the governor has given up.
    fn detach(&mut self) -> Result<()> {
        let Some(governor) = &self.governor else { return Ok(()) };
        let gone = |site: usize| governor.report().detached_ns.get(site).copied().flatten().is_some();
        // While the kernel takes a breakpoint away, its traps go on, and no program of ours counts them.
        let trapping = |site: usize| {
            let user = self.sites[site].mechanism.is_user() && !self.detached.contains(&site) && gone(site);
            let price = self.priced.predicted[site].as_ref().map_or(0.0, |p| p.trigger_ns);
            if user { governor.firings_per_s(site) * price } else { 0.0 }
        };
        let trapping_per_s: f64 = (0..self.sites.len()).map(trapping).sum();
        let began = Instant::now();
        for group in self.groups.iter_mut().filter(|group| group.attached) {
            if group.sites.iter().all(|&site| gone(site)) {
                group.group.detach()?;
                group.attached = false;
                continue;
            }
            for (slot, &site) in group.sites.iter().enumerate() {
                if gone(site) && !self.detached.contains(&site) {
                    group.group.detach_slot(slot as u32)?;
                }
            }
        }
        self.detaching_ns += trapping_per_s * began.elapsed().as_secs_f64();
        self.detached.extend((0..self.sites.len()).filter(|&site| gone(site)));
        Ok(())
    }

    /// Takes the counters into the account; what the governor has to see of them.
    fn observe(&mut self) -> Result<Vec<Seen>> {
        let mut seen = vec![Seen::default(); self.governed];
        let mut extra = self.sites.len();
        for group in &mut self.groups {
            group.group.events(|_| {});
            for (counts, &site) in group.group.counts()?.iter().zip(&group.sites) {
                let counts = Counts {
                    fired: counts.fired,
                    recorded: counts.recorded,
                    weighed: counts.weighed,
                    filtered: counts.filtered,
                    throttled: counts.throttled,
                    lost: counts.lost,
                };
                self.account.observe(site, counts);
                seen[site] = Seen { fired: counts.fired, bodies: counts.bodies(), filtered: counts.filtered };
            }
            if group.dispatches {
                seen[extra].fired = group.group.passed();
                extra += 1;
            }
        }
        Ok(seen)
    }

    /// The trial is over: would these probes cost too much?
    fn judge(&mut self, trial: Duration) -> Result<()> {
        let limit = self.request.budget_ns_per_s.unwrap_or(WARN_NS_PER_S);
        let gone = |site: usize| self.governor.as_ref()?.report().detached_ns.get(site).copied().flatten();
        let mut verdicts = Vec::with_capacity(self.sites.len());
        for site in 0..self.sites.len() {
            let ns = gone(site).unwrap_or(trial.as_nanos() as u64);
            let predicted = self.priced.predicted[site].as_ref().ok().copied();
            verdicts.push(judge(ns, &self.account.lines()[site].counts, predicted, limit));
        }
        for warning in report::warnings(&self.sites, &verdicts, self.request.budget_ns_per_s) {
            self.warnings.push(warning.clone());
            self.notes.push(warning);
        }
        self.trial = Some(verdicts);
        Ok(())
    }

    fn measure(&mut self, now: Instant) -> Result<()> {
        let allowed = self.request.budget_ns_per_s;
        self.measuring.turn(now, &self.groups, &mut self.account, allowed)?;
        Ok(())
    }

    /// What the trial has found and nobody has been told yet, one line each.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// The places that were chosen.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// How it goes.
    pub fn progress(&self) -> Progress {
        let elapsed = self.started.elapsed();
        let all = self.account.lines().iter().map(|line| line.counts);
        let cost_ns = self.account.cost_ns() + self.own_ns() as f64;
        Progress {
            elapsed,
            fired: all.clone().map(|counts| counts.fired).sum(),
            lost: all.map(|counts| counts.lost).sum(),
            percent_of_one_cpu: cost_ns * 100.0 / elapsed.as_nanos().max(1) as f64,
        }
    }

    fn own_ns(&self) -> u64 {
        os::process_cpu_ns().saturating_sub(self.cpu_at_start_ns)
    }

    /// Whether it is over by itself: the target has ended, the trial is all that was asked for, or no probe is left.
    pub fn over(&mut self) -> bool {
        let tried = self.request.dry_run && self.trial.is_some();
        // A command goes on without its probes.
        let nothing_left = !self.target.is_command() && self.groups.iter().all(|group| !group.attached);
        tried || nothing_left || self.target.ended()
    }

    /// Asks the command, if there is one, to end, and ends it if it does not.
    pub fn end_command(&mut self, patience: Duration) {
        self.target.end_command(patience);
    }

    /// How the command ended, if one was started and has ended.
    pub fn command_status(&self) -> Option<ExitStatus> {
        self.target.command_status()
    }

    /// Detaches everything and settles the account.
    ///
    /// # Errors
    /// If counters cannot be read.
    pub fn finish(mut self) -> Result<Outcome> {
        for group in &mut self.groups {
            group.group.stop();
        }
        let duration = self.started.elapsed();
        self.measuring.end(&self.groups, &mut self.account)?;
        // What came after the last look is spent, too.
        self.look(Vec::new())?;
        if self.trial.is_none() {
            self.judge(duration)?;
        }
        self.urgent = None;
        let own_ns = self.own_ns();
        let hits =
            self.groups.iter().map(|group| group.group.hits()).collect::<lightfoot_kernel::Result<_>>()?;
        let passed: u64 = self.groups.iter().map(|group| group.group.passed()).sum();
        let missed = self.groups.iter().map(|group| group.group.missed().unwrap_or(0)).sum();
        let cut = self.cut()?;
        Ok(report::outcome(Ends {
            request: &self.request,
            pid: self.target.pid,
            sites: &self.sites,
            groups: &self.groups,
            priced: &self.priced,
            account: &self.account,
            governor: self.governor.as_ref(),
            trial: self.trial.as_deref().unwrap_or_default(),
            hits,
            passed,
            missed,
            cut,
            statistics: self.measuring.refused(),
            duration_ns: duration.as_nanos() as u64,
            own_ns,
            detaching_ns: self.detaching_ns,
            start_ns: self.start_ns,
            begun_ns: self.begun_ns,
            notes: std::mem::take(&mut self.notes),
        }))
    }

    /// Firings that the breaker cut, by site.
    fn cut(&self) -> Result<Vec<u64>> {
        let mut cut = vec![0; self.sites.len()];
        for group in &self.groups {
            for (counts, &site) in group.group.counts()?.iter().zip(&group.sites) {
                cut[site] = counts.cut;
            }
        }
        Ok(cut)
    }
}

fn gone(target: &Traced) -> Error {
    Error::target(format!("process {} ended while its probes were attached", target.pid.unwrap_or(0)))
}

fn fill(groups: &[Planned], orders: &Orders) -> Result<()> {
    for (group, &tokens) in groups.iter().zip(&orders.tokens) {
        if group.attached || group.group.alarm_fd().is_some() {
            group.group.set_tokens(tokens)?;
        }
    }
    Ok(())
}

fn cpus() -> u32 {
    os::online_cpus().map_or(1, |cpus| cpus.len() as u32)
}
