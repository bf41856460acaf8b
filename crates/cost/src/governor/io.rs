//! What the governor is told and what it answers.

/// What was asked for: the governor never gives more than this.
#[derive(Clone, Debug)]
pub struct Setup {
    /// CPU time allowed, in ns per second of wall time: [`crate::Budget::ns_per_s`].
    pub budget_ns_per_s: u64,
    /// CPUs whose timers fire.
    pub cpus: u32,
    /// Samples per second and CPU; 0 if no timer fires.
    pub rate_hz: u64,
    /// User frames kept of one stack.
    pub max_user_frames: u32,
    /// Off-CPU: blocked time that one sample stands for, in ns; `None`: off-CPU is not wanted.
    pub off_cpu_interval_ns: Option<u64>,
    /// Whether there are programs on fork, exec and exit.
    pub follow: bool,
    /// Whether frames of interpreters are wanted.
    pub interpreters: bool,
    /// Whether kernel frames are wanted.
    pub kernel_frames: bool,
    /// Memory allowed (resident memory of the process and BPF maps), in bytes; `None`: no limit.
    pub memory_bytes: Option<u64>,
}

/// What happened since the run began. All are sums that only grow, in ns of CPU time or events, unless said.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Now, in ns on a monotonic clock.
    pub now_ns: u64,
    /// Timer interrupts (or kept scheduler ticks) that ran the sampling program, on all CPUs.
    pub interrupts: u64,
    /// Price of one without the program, in ns, as last calibrated (not a sum); `None`: not known yet.
    pub interrupt_each_ns: Option<u64>,
    /// Run time of the sampling program.
    pub bpf_sample_ns: u64,
    /// User frames walked by it.
    pub user_frames: u64,
    /// Samples whose user stack was cut at the limit on frames.
    pub truncated: u64,
    /// Run time of the programs on fork, exec and exit.
    pub bpf_follow_ns: u64,
    /// Times that they ran.
    pub follow_events: u64,
    /// Run time of the programs on context switches, as they measure it themselves.
    pub bpf_switch_ns: u64,
    /// Times that they ran.
    pub switch_events: u64,
    /// Off-CPU stacks taken by them.
    pub switch_samples: u64,
    /// CPU time of user space that cannot be put off: reading buffers, the control itself.
    pub collect_ns: u64,
    /// CPU time of user space for calibration and the like: single pieces at times that are known, from which nothing follows for later.
    pub calibrate_ns: u64,
    /// CPU time of user space for processes and objects: mappings, unwind tables.
    pub objects_ns: u64,
    /// CPU time of user space for names that must be found while the process lives.
    pub names_ns: u64,
    /// Whether process, object or name work waits (not a sum).
    pub work_waits: bool,
    /// Context switches of the machine by another count (`ctxt` in /proc/stat, or the scheduler's own), which goes on while the
    /// programs are detached; `None`: there is no such count, and the programs must be attached to find out.
    pub switches_outside: Option<u64>,
    /// Forks of the machine by another count (`processes` in /proc/stat); see [`Observed::switches_outside`].
    pub forks_outside: Option<u64>,
    /// Resident memory of the process now, in bytes (not a sum).
    pub rss_bytes: u64,
    /// BPF maps and event buffers now, in bytes (not a sum).
    pub map_bytes: u64,
}

impl Observed {
    /// All of it together, in ns. Interrupts without a price count as 0.
    pub fn cost_ns(&self) -> u64 {
        let interrupts_ns = self.interrupts.saturating_mul(self.interrupt_each_ns.unwrap_or(0));
        interrupts_ns.saturating_add(self.other_ns())
    }

    /// All but the interrupts, in ns.
    pub fn other_ns(&self) -> u64 {
        let entries = self.follow_events.saturating_add(self.switch_events);
        [
            entries.saturating_mul(super::TRACEPOINT_NS as u64),
            self.bpf_sample_ns,
            self.bpf_follow_ns,
            self.bpf_switch_ns,
            self.collect_ns,
            self.calibrate_ns,
            self.objects_ns,
            self.names_ns,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

/// What holds until the next step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Controls {
    /// Period of each CPU's timer, in ns: from that of the asked rate to one second.
    pub period_ns: u64,
    /// User frames to keep of one stack.
    pub max_user_frames: u32,
    /// Whether to take frames of interpreters.
    pub interpreters: bool,
    /// Whether to take kernel frames.
    pub kernel_frames: bool,
    /// CPU time that process, object and name work may use until the next step, in ns; 0 or at least one piece. What is used beyond it
    /// is charged like all else, and makes everything smaller afterwards.
    pub work_ns: u64,
    /// Work should be done in pieces of at most this, in ns, with a look at what is left between them.
    pub work_piece_ns: u64,
    /// Off-CPU: blocked time that one sample stands for, in ns; 0 if off-CPU is not wanted.
    pub off_cpu_interval_ns: u64,
    /// Off-CPU: stacks that one CPU may take until the next step; further ones are throttled, and counted so. A brake that a storm meets before
    /// the next step does.
    pub off_cpu_samples_max: u32,
    /// Whether the programs on context switches are attached. Their fixed price per event cannot be sampled away.
    pub switch_attached: bool,
    /// Whether the programs on fork, exec and exit are attached.
    pub follow_attached: bool,
    /// Memory to give back, in bytes: least used rows, names and processes first.
    pub evict_bytes: u64,
    /// Pause between two calibrations of the interrupt's price, in ns.
    pub calibration_pause_ns: u64,
    /// When the next step is due, in ns from this one.
    pub next_step_ns: u64,
    /// Run time of BPF programs on one CPU since this step, in ns, after which waking user space early is worth it.
    pub alarm_bpf_ns: u64,
}

impl Controls {
    /// Samples per second and CPU that the period means.
    pub fn rate_hz(&self) -> f64 {
        1e9 / self.period_ns.max(1) as f64
    }
}
