//! What a run is asked to do.

use lightfoot_cost::{Budget, MemoryPlan};
use lightfoot_kernel::sampler::{SaveWalks, Transfer};
use std::path::PathBuf;
use std::process::Command;

/// What to profile.
#[derive(Debug)]
pub enum Target {
    /// Running processes with all their threads, and what they create later.
    Processes(Vec<u32>),
    /// A command that is started for the run, and what it creates.
    Command(Command),
    /// All that runs below a cgroup (v2).
    Cgroup(PathBuf),
    /// Everything.
    Machine,
}

/// What makes samples of CPU time fire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClockChoice {
    /// A timer of our own on each CPU.
    #[default]
    Timer,
    /// The scheduler's tick: no interrupt of our own, and no more samples than ticks.
    Tick,
    /// The cheaper of both that can deliver the rate, measured at the start.
    Auto,
}

/// Which samples are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kinds {
    /// Where CPU time goes.
    #[default]
    OnCpu,
    /// Where threads wait.
    OffCpu,
    /// Both.
    Wall,
}

/// Walks that are saved as files, one for each place where walks ended and each way how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Save {
    /// Folder; it is made if it does not exist.
    pub folder: PathBuf,
    /// Which walks.
    pub which: SaveWalks,
}

/// A run.
#[derive(Debug)]
pub struct Request {
    /// What to profile.
    pub target: Target,
    /// Samples per second of CPU time, 1 to 10,000.
    pub rate_hz: u64,
    /// What makes samples of CPU time fire.
    pub clock: ClockChoice,
    /// Which samples are taken.
    pub kinds: Kinds,
    /// Whether who woke a thread that waited is told, too: its stack behind that of the thread. Not with [`Kinds::OnCpu`].
    pub wakers: bool,
    /// Whether kernel frames are wanted.
    pub kernel_frames: bool,
    /// How samples come to user space.
    pub transfer: Transfer,
    /// Size of the ring, in bytes: a power of two, at least one page. `None`: as the plan of memory says.
    pub ring_bytes: Option<u32>,
    /// What lightfoot may cost while it samples; `None`: as much as it takes.
    pub budget: Option<Budget>,
    /// Bounds of everything that grows.
    pub memory: MemoryPlan,
    /// The limit that the plan was made for, in bytes; `None`: no limit was asked for.
    pub memory_bytes: Option<u64>,
    /// Whether running Java virtual machines may be asked for the names of their code.
    pub jvm_attach: bool,
    /// Walks to be saved.
    pub save: Option<Save>,
    /// Walk stacks in plain loops even where the kernel has `bpf_loop`.
    pub plain_loops: bool,
    /// lightfoot's command line, for the record.
    pub command_line: String,
    /// Version of lightfoot, for the record.
    pub version: &'static str,
}
