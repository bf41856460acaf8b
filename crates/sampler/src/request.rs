//! What a run is asked to do.

use lightfoot_kernel::sampler::Transfer;
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

/// A run.
#[derive(Debug)]
pub struct Request {
    /// What to profile.
    pub target: Target,
    /// Samples per second of CPU time, 1 to 10,000.
    pub rate_hz: u64,
    /// Whether kernel frames are wanted.
    pub kernel_frames: bool,
    /// How samples come to user space.
    pub transfer: Transfer,
    /// Size of the ring, in bytes: a power of two, at least one page.
    pub ring_bytes: u32,
    /// lightfoot's command line, for the record.
    pub command_line: String,
    /// Version of lightfoot, for the record.
    pub version: &'static str,
}
