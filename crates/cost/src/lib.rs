//! The ledger: what a run cost, from what was measured. Decides, never acts; opens no file, makes no system call.
//!
//! Not here: the measuring (crates `kernel` and `sampler`), and doing what the governor says (crate `sampler`).
#![forbid(unsafe_code)]

mod budget;
pub mod governor;
pub mod memory;
pub mod probes;
mod windows;

pub use budget::{Base, Budget, WINDOW_NS};
pub use governor::Governor;
pub use memory::{MemoryPlan, TooSmall};
pub use windows::WindowLog;

use lightfoot_model::{Cost, PhaseCost, RunTimes};

/// Phases of a run, in their order. `collect` and nothing else falls in the run itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Load and attach.
    Start,
    /// While samples are taken.
    Collect,
    /// Find names.
    Symbolize,
    /// Measure what an interrupt costs.
    Calibrate,
    /// Write the result.
    Write,
}

impl Phase {
    /// The name used in every format.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Start => "start",
            Phase::Collect => "collect",
            Phase::Symbolize => "symbolize",
            Phase::Calibrate => "calibrate",
            Phase::Write => "write",
        }
    }
}

/// Splits the CPU time of this process into phases: whoever enters a phase says what the process's CPU clock shows.
#[derive(Clone, Debug, Default)]
pub struct PhaseClock {
    done: Vec<(Phase, u64)>,
    current: Option<(Phase, u64)>,
}

impl PhaseClock {
    /// Enters `phase` at `cpu_ns` on the process's CPU clock, which ends the phase before. CPU time before the first phase belongs to it.
    pub fn enter(&mut self, phase: Phase, cpu_ns: u64) {
        let started_at = if self.current.is_none() && self.done.is_empty() { 0 } else { cpu_ns };
        self.leave(cpu_ns);
        self.current = Some((phase, started_at));
    }

    /// Ends the current phase.
    pub fn leave(&mut self, cpu_ns: u64) {
        if let Some((phase, started_at)) = self.current.take() {
            let spent = cpu_ns.saturating_sub(started_at);
            match self.done.iter_mut().find(|(p, _)| *p == phase) {
                Some((_, total)) => *total += spent,
                None => self.done.push((phase, spent)),
            }
        }
    }

    /// CPU time of a phase that has ended, in ns.
    pub fn spent_ns(&self, phase: Phase) -> u64 {
        self.done.iter().find(|(p, _)| *p == phase).map_or(0, |&(_, ns)| ns)
    }

    fn costs(&self) -> Vec<PhaseCost> {
        self.done.iter().map(|&(phase, cpu_ns)| PhaseCost { phase: phase.name(), cpu_ns }).collect()
    }
}

/// What was measured in a run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Timer interrupts that ran the program.
    pub interrupts: u64,
    /// Price of one, in ns; `None` if it could not be calibrated.
    pub interrupt_each_ns: Option<u64>,
    /// Run time of the BPF programs, in ns.
    pub bpf_ns: u64,
    /// What single samples cost of it.
    pub run_times: RunTimes,
    /// CPU time by phase.
    pub phases: PhaseClock,
    /// Length of the run, wall time in ns.
    pub duration_ns: u64,
    /// Samples recorded.
    pub recorded: u64,
    /// Peak resident memory, in bytes.
    pub peak_rss_bytes: u64,
    /// BPF maps and event buffers, in bytes.
    pub bpf_map_bytes: u64,
    /// Bytes of stacks that came from the kernel.
    pub transfer_bytes: u64,
    /// See [`Cost::first_sample_wall_ns`].
    pub first_sample_wall_ns: u64,
    /// See [`Cost::first_sample_cpu_ns`].
    pub first_sample_cpu_ns: u64,
}

/// The ledger of a run.
pub fn ledger(measured: &Measured) -> Cost {
    let interrupt_each_ns = measured.interrupt_each_ns.unwrap_or(0);
    let interrupt_ns = measured.interrupts * interrupt_each_ns;
    let phases = measured.phases.costs();
    let user_ns = phases.iter().map(|p| p.cpu_ns).sum();
    let total_ns = interrupt_ns + measured.bpf_ns + user_ns;
    let running_ns = interrupt_ns + measured.bpf_ns + measured.phases.spent_ns(Phase::Collect);
    Cost {
        interrupt_ns,
        bpf_ns: measured.bpf_ns,
        bpf_sample_p50_ns: measured.run_times.quantile_ns(0.5),
        bpf_sample_p99_ns: measured.run_times.quantile_ns(0.99),
        user_ns,
        total_ns,
        percent_of_one_cpu: percent(total_ns, measured.duration_ns),
        ns_per_sample: if measured.recorded == 0 { 0.0 } else { total_ns as f64 / measured.recorded as f64 },
        peak_rss_bytes: measured.peak_rss_bytes,
        bpf_map_bytes: measured.bpf_map_bytes,
        transfer_bytes: measured.transfer_bytes,
        interrupt_each_ns,
        interrupts: measured.interrupts,
        interrupt_calibrated: measured.interrupt_each_ns.is_some(),
        first_sample_wall_ns: measured.first_sample_wall_ns,
        first_sample_cpu_ns: measured.first_sample_cpu_ns,
        phases,
        running_percent_of_one_cpu: percent(running_ns, measured.duration_ns),
        // Who keeps a log of windows enters it: `WindowLog::enter`.
        windows: Vec::new(),
        budget: None,
    }
}

/// Enters a phase that ended after the ledger was made: writing the result, which cannot hold its own price.
pub fn add_phase(cost: &mut Cost, phase: Phase, cpu_ns: u64, duration_ns: u64, recorded: u64) {
    cost.phases.push(PhaseCost { phase: phase.name(), cpu_ns });
    cost.user_ns += cpu_ns;
    cost.total_ns += cpu_ns;
    cost.percent_of_one_cpu = percent(cost.total_ns, duration_ns);
    if recorded > 0 {
        cost.ns_per_sample = cost.total_ns as f64 / recorded as f64;
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_share_the_clock_without_gaps() {
        let mut clock = PhaseClock::default();
        clock.enter(Phase::Start, 5);
        clock.enter(Phase::Collect, 20);
        clock.enter(Phase::Symbolize, 50);
        clock.enter(Phase::Collect, 60);
        clock.leave(61);
        assert_eq!(clock.spent_ns(Phase::Start), 20, "what came before the first phase belongs to it");
        assert_eq!(clock.spent_ns(Phase::Collect), 31);
        assert_eq!(clock.spent_ns(Phase::Symbolize), 10);
        assert_eq!(clock.costs().iter().map(|p| p.cpu_ns).sum::<u64>(), 61, "all of the CPU time");
    }

    #[test]
    fn the_total_is_the_sum_of_its_parts() {
        let mut phases = PhaseClock::default();
        phases.enter(Phase::Start, 0);
        phases.enter(Phase::Collect, 100);
        phases.leave(300);
        let cost = ledger(&Measured {
            interrupts: 7,
            interrupt_each_ns: Some(10),
            bpf_ns: 30,
            phases,
            duration_ns: 10_000,
            recorded: 4,
            ..Measured::default()
        });
        assert_eq!((cost.interrupt_ns, cost.bpf_ns, cost.user_ns, cost.total_ns), (70, 30, 300, 400));
        assert_eq!(cost.percent_of_one_cpu, 4.0);
        assert_eq!(cost.running_percent_of_one_cpu, 3.0);
        assert_eq!(cost.ns_per_sample, 100.0);
    }

    #[test]
    fn unknown_is_not_zero() {
        let cost = ledger(&Measured { interrupts: 7, ..Measured::default() });
        assert!(!cost.interrupt_calibrated);
        assert_eq!((cost.interrupt_ns, cost.percent_of_one_cpu, cost.ns_per_sample), (0, 0.0, 0.0));
    }
}
