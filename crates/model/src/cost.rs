//! What the looking cost.

use serde::Serialize;

/// CPU time of lightfoot's own user space in one phase of a run, in nanoseconds of CPU time (not wall time).
#[derive(Clone, Default, PartialEq, Debug, Serialize)]
pub struct PhaseCost {
    /// `start` (load and attach), `collect`, `symbolize`, `write`, `calibrate`.
    pub phase: &'static str,
    /// CPU time, all threads, user and system. Source: `CLOCK_PROCESS_CPUTIME_ID`.
    pub cpu_ns: u64,
}

/// The price of one run. Every number is measured on this machine in this run.
///
/// `total_ns = interrupt_ns + bpf_ns + user_ns`.
#[derive(Clone, Default, PartialEq, Debug, Serialize)]
pub struct Cost {
    /// CPU time in the timer interrupts that fired the samples, without the BPF program's own run time, in ns:
    /// number of interrupts x the calibrated price of one ([`Cost::interrupt_each_ns`]).
    pub interrupt_ns: u64,
    /// Run time of lightfoot's BPF programs, in ns. Source: `run_time_ns` of the kernel's BPF statistics, or
    /// lightfoot's own clock reads where statistics are refused.
    pub bpf_ns: u64,
    /// CPU time of lightfoot's own process, all phases, in ns.
    pub user_ns: u64,
    /// Sum of the three, in ns.
    pub total_ns: u64,
    /// `total_ns` in percent of one CPU over the run (`Meta::duration_ns`).
    pub percent_of_one_cpu: f64,
    /// `total_ns` / recorded samples, in ns; 0 without samples.
    pub ns_per_sample: f64,
    /// Peak resident memory of lightfoot's process, in bytes. Source: `VmHWM`.
    pub peak_rss_bytes: u64,
    /// Memory of lightfoot's BPF maps and event buffers, in bytes. Source: `memlock` in the maps' fdinfo.
    pub bpf_map_bytes: u64,
    /// Bytes of stacks that came from the kernel to user space during the run.
    pub transfer_bytes: u64,
    /// Calibrated price of one timer interrupt on this machine, in ns, without the BPF program.
    pub interrupt_each_ns: u64,
    /// Number of interrupts charged.
    pub interrupts: u64,
    /// Whether the interrupt price was calibrated in this run; if not, `interrupt_ns` is unknown and counts as 0.
    pub interrupt_calibrated: bool,
    /// Wall time from the start of lightfoot's process to the first sample, in ns; 0 without samples.
    pub first_sample_wall_ns: u64,
    /// CPU time of lightfoot's process until sampling started, in ns.
    pub first_sample_cpu_ns: u64,
    /// `user_ns` by phase, in the order of the run.
    pub phases: Vec<PhaseCost>,
    /// Part of the cost that falls in the run itself (interrupts, BPF and the phase `collect`), in percent of one CPU.
    pub running_percent_of_one_cpu: f64,
}
