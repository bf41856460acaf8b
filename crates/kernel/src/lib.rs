//! The only crate that speaks bpf(2), perf_event_open and libbpf: load, attach, maps, rings, features, statistics.
