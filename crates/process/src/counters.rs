//! Bounds, and what happened at them.

/// Bounds of [`crate::Processes`]. Beyond a bound something is dropped and counted in [`Counters`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Objects (distinct executable files). Beyond it addresses in new files have no object.
    pub objects: usize,
    /// Open files held for objects. Beyond it files are closed after the first look and opened again by path.
    pub open_files: usize,
    /// JIT addresses remembered per process, to be named when it exits.
    pub jit_addresses_per_process: usize,
    /// Processes with JIT code.
    pub jit_processes: usize,
    /// Bytes read of one perf map; the rest is ignored.
    pub perf_map_bytes: u64,
    /// Look-ups in `/proc` for addresses that came without a mapping, per second of event time.
    pub lookups_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            objects: 16_384,
            open_files: 512,
            jit_addresses_per_process: 16_384,
            jit_processes: 1_024,
            perf_map_bytes: 64 << 20,
            lookups_per_second: 64,
        }
    }
}

/// What happened so far; all are counts of events unless the name says otherwise.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Single addresses looked up in `/proc`.
    pub addresses_queried: u64,
    /// Addresses that were not looked up because of [`Limits::lookups_per_second`].
    pub lookups_held_back: u64,
    /// Objects not kept: [`Limits::objects`].
    pub objects_dropped: u64,
    /// Files that could not be opened, or that were not the mapped file any more.
    pub files_unopened: u64,
    /// Files closed early: [`Limits::open_files`].
    pub files_closed_early: u64,
    /// Files taken although the device number differs, because the inode number is the same (btrfs, overlayfs).
    pub devices_differing: u64,
    /// JIT addresses not remembered: [`Limits::jit_addresses_per_process`] or [`Limits::jit_processes`].
    pub jit_addresses_dropped: u64,
    /// Perf maps refused: not a regular file, or of another owner.
    pub perf_maps_refused: u64,
    /// Perf maps longer than [`Limits::perf_map_bytes`].
    pub perf_maps_cut: u64,
    /// Times a Java virtual machine was asked for its perf map.
    pub jvms_asked: u64,
}
