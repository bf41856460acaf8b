//! Bounds, and what happened at them.

/// Bounds of [`crate::Processes`]. Beyond a bound something is dropped and counted in [`Counters`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Executable mappings kept per process. Beyond it the mappings at the highest addresses are not kept.
    pub mappings_per_process: usize,
    /// Memory for the mappings of all processes, in bytes. Beyond it first the processes that exited longest ago are
    /// forgotten (and programs that were replaced by `exec`); if that does not help, new mappings are not kept.
    pub mapping_bytes: usize,
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
    /// Look-ups in `/proc` for addresses that no known mapping covers, per process and second of event time.
    pub lookups_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            mappings_per_process: 20_000,
            mapping_bytes: 6 << 20,
            objects: 16_384,
            open_files: 512,
            jit_addresses_per_process: 16_384,
            jit_processes: 1_024,
            perf_map_bytes: 64 << 20,
            lookups_per_second: 16,
        }
    }
}

/// What happened so far; all are counts of events unless the name says otherwise.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Events applied.
    pub events: u64,
    /// Events that were lost before they came here (sum of [`crate::Event::Lost`]).
    pub events_lost: u64,
    /// Whole tables of mappings read from `/proc`.
    pub tables_read: u64,
    /// Tables that could not be read: the process was gone, or reading is not allowed.
    pub tables_unreadable: u64,
    /// Single addresses looked up in `/proc` after a miss.
    pub addresses_queried: u64,
    /// Misses that were not looked up because of [`Limits::lookups_per_second`].
    pub lookups_held_back: u64,
    /// Mappings not kept: [`Limits::mappings_per_process`] or [`Limits::mapping_bytes`].
    pub mappings_dropped: u64,
    /// Lines of `/proc/PID/maps` that could not be understood.
    pub maps_lines_malformed: u64,
    /// Images (tables of exited or replaced programs) forgotten: [`Limits::mapping_bytes`].
    pub exited_forgotten: u64,
    /// Processes not kept: [`Limits::mapping_bytes`].
    pub processes_dropped: u64,
    /// Process ids found to belong to another process than the events said.
    pub pids_reused: u64,
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
}
