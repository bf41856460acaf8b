//! What happens to processes and their mappings.

use std::borrow::Cow;

/// A device number as the kernel shows it in mappings. For btrfs and overlayfs it may differ from `stat`'s `st_dev`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Device {
    /// Major number, for example 8.
    pub major: u32,
    /// Minor number, for example 1.
    pub minor: u32,
}

/// One executable mapping of a process: the bytes of a file, or anonymous memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mapping<'a> {
    /// First address, for example `0x7f0c3f028000`.
    pub start: u64,
    /// First address behind the mapping.
    pub end: u64,
    /// Offset in the file of the byte at `start`, in bytes (perf's `pgoff`). Meaningless without a file.
    pub file_offset: u64,
    /// Device of the file; 0:0 without a file.
    pub device: Device,
    /// Inode number of the file; 0 without a file.
    pub inode: u64,
    /// Path as the process sees it, without escapes, with the kernel's suffix ` (deleted)` if it is there; or one of
    /// the kernel's names such as `[vdso]`, `//anon`, `[heap]`, `/memfd:name (deleted)`; or empty.
    pub path: Cow<'a, [u8]>,
}

/// What happened, in the order of time. `pid` is the process (the kernel's tgid), `time_ns` is `CLOCK_MONOTONIC`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A process was made by another one (`PERF_RECORD_FORK`). An event with `pid == parent_pid` is a new thread and
    /// changes nothing.
    Fork {
        /// The new process.
        pid: u32,
        /// The process that made it; the new one starts with its mappings.
        parent_pid: u32,
        /// When.
        time_ns: u64,
    },
    /// A process replaced its program (`PERF_RECORD_COMM` with `PERF_RECORD_MISC_COMM_EXEC`): no mapping survives.
    Exec {
        /// The process.
        pid: u32,
        /// When.
        time_ns: u64,
    },
    /// An executable mapping appeared (`PERF_RECORD_MMAP2`). Older mappings give way where they overlap.
    Map {
        /// The process.
        pid: u32,
        /// When.
        time_ns: u64,
        /// The mapping.
        mapping: Mapping<'a>,
    },
    /// A process ended: its last thread, or the main one (`PERF_RECORD_EXIT`).
    Exit {
        /// The process.
        pid: u32,
        /// When.
        time_ns: u64,
    },
    /// Events were lost (`PERF_RECORD_LOST`): what is known may be out of date and is read again when it fails.
    Lost {
        /// Number of lost events.
        count: u64,
        /// When the loss was noticed.
        time_ns: u64,
    },
}
