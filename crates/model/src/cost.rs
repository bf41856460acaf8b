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
    /// BPF run time of a recorded sample of CPU time: half of them cost at most this, in ns (to 10 %). 0 without samples.
    pub bpf_sample_p50_ns: u64,
    /// The same for 99 of 100 of them.
    pub bpf_sample_p99_ns: u64,
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
    /// What each ten seconds of the run cost, one entry per second; empty for runs shorter than that. At most the last 3,600.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<CostWindow>,
    /// The budget and how it was kept; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetAccount>,
}

/// How many samples cost how much: bucket `[n][q]` counts run times from 256 ns * 2^n * (1 + q / 4) on, up to the next bucket; the first
/// one what is less, too, and the last one what is more.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct RunTimes(pub [[u64; 4]; 16]);

impl RunTimes {
    /// The run time in ns that this share of the samples does not exceed, interpolated within a bucket; 0 without samples.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let all: u64 = self.0.iter().flatten().sum();
        let wanted = share * all as f64;
        let mut below = 0.0;
        for (power, quarters) in self.0.iter().enumerate() {
            for (quarter, &count) in quarters.iter().enumerate().filter(|(_, count)| **count > 0) {
                let width = f64::from(1u32 << power) * 64.0;
                let start = width * (4 + quarter) as f64;
                if below + count as f64 >= wanted {
                    return (start + width * (wanted - below) / count as f64) as u64;
                }
                below += count as f64;
            }
        }
        0
    }
}

/// Ten seconds of a run. `cost_ns` counts interrupts, BPF programs and user space while sampling, not the phases `start`, `symbolize`,
/// `calibrate` at the end and `write`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct CostWindow {
    /// Begin, in ns since sampling started.
    pub start_ns: u64,
    /// Length, in ns: ten seconds.
    pub length_ns: u64,
    /// Cost in it, in ns of CPU time.
    pub cost_ns: u64,
}

/// How a budget was kept.
#[derive(Clone, Default, PartialEq, Debug, Serialize)]
pub struct BudgetAccount {
    /// CPU time allowed, in ns per second of wall time.
    pub ns_per_s: u64,
    /// Ten-second windows in the run, one beginning each second.
    pub windows: u64,
    /// Windows that cost more than allowed.
    pub windows_over: u64,
    /// Cost of the dearest window, in ns.
    pub dearest_window_ns: u64,
    /// Samples that the asked rate would have taken and the lowered one did not.
    pub samples_not_taken: u64,
    /// What was held back to keep the budget.
    pub held_back: Vec<HeldBack>,
    /// The rate and its changes, the first entry when sampling started. At most 1,024: later changes of a long run are left out.
    pub rates: Vec<RateChange>,
}

/// From here on this rate.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct RateChange {
    /// Time since sampling started, in ns.
    pub at_ns: u64,
    /// Samples per second and CPU.
    pub rate_hz: f64,
}

/// Something that was held back to keep the budget.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
pub struct HeldBack {
    /// A name for programs, for example `rate`, `depth`, `work`.
    pub what: &'static str,
    /// For people, for example `rate 999 -> 420 Hz for 3.1 s`: what was asked, the least that was given, how long in all.
    pub sentence: String,
    /// Time that less than asked was given, in ns.
    pub total_ns: u64,
    /// Number of times that it began.
    pub episodes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_in_their_buckets() {
        assert_eq!(RunTimes::default().quantile_ns(0.5), 0);
        let mut times = RunTimes::default();
        times.0[3][1] = 99; // 2,560 to 3,072 ns
        times.0[5][0] = 1; // 8,192 to 10,240 ns
        assert!((2_800..2_832).contains(&times.quantile_ns(0.5)), "{}", times.quantile_ns(0.5));
        assert_eq!(times.quantile_ns(0.99), 3_072);
        assert_eq!(times.quantile_ns(1.0), 10_240);
    }
}
