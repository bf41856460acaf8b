//! Names of perf's software and hardware events. Source: include/uapi/linux/perf_event.h; names and usual counts as in bpftrace.

use crate::error::Error;

/// `PERF_TYPE_HARDWARE`.
pub(crate) const HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`.
pub(crate) const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_CPU_CLOCK`.
pub(crate) const CPU_CLOCK: u64 = 0;

/// An event: its name, another name, `PERF_COUNT_*`, and the count after which it fires unless another is given.
pub(crate) type Event = (&'static str, &'static str, u64, u64);

pub(crate) const SOFTWARE_EVENTS: [Event; 11] = [
    ("alignment-faults", "", 7, 1),
    ("bpf-output", "", 10, 1),
    ("context-switches", "cs", 3, 1_000),
    ("cpu-clock", "cpu", 0, 1_000_000),
    ("cpu-migrations", "", 4, 1),
    ("dummy", "", 9, 1),
    ("emulation-faults", "", 8, 1),
    ("major-faults", "", 6, 1),
    ("minor-faults", "", 5, 100),
    ("page-faults", "faults", 2, 100),
    ("task-clock", "", 1, 1_000_000),
];

pub(crate) const HARDWARE_EVENTS: [Event; 10] = [
    ("backend-stalls", "", 8, 1_000_000),
    ("branch-instructions", "branches", 4, 100_000),
    ("branch-misses", "", 5, 100_000),
    ("bus-cycles", "", 6, 100_000),
    ("cache-misses", "", 3, 1_000_000),
    ("cache-references", "", 2, 1_000_000),
    ("cpu-cycles", "cycles", 0, 1_000_000),
    ("frontend-stalls", "", 7, 1_000_000),
    ("instructions", "", 1, 1_000_000),
    ("ref-cycles", "", 9, 1_000_000),
];

fn events(hardware: bool) -> &'static [Event] {
    if hardware { &HARDWARE_EVENTS } else { &SOFTWARE_EVENTS }
}

/// `config` and the usual count of an event.
pub(crate) fn config(hardware: bool, name: &str) -> Option<(u64, u64)> {
    let found = events(hardware)
        .iter()
        .find(|(full, other, ..)| name == *full || (!other.is_empty() && name == *other));
    found.map(|(_, _, config, count)| (*config, *count))
}

/// An event that does not exist.
pub(crate) fn unknown(hardware: bool, name: &str, text: &str) -> Error {
    let names: Vec<&str> = events(hardware).iter().map(|event| event.0).collect();
    let near = crate::near::nearest(name, names.iter().copied(), 2);
    let next = if near.is_empty() {
        format!("; known are {}", names.join(", "))
    } else {
        crate::near::did_you_mean(&near)
    };
    Error::usage(format!("{text}: no event is called \"{name}\"{next}"))
}
