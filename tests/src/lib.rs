//! End to end tests: what they share.
//!
//! A test starts workloads ([`Workload`]) whose truth is known, runs the real binary on them ([`Lightfoot`]), and reads the JSON
//! ([`Report`]). Each run is watched from outside: BPF programs, maps and links that the process held are noted while it runs, and must be
//! gone afterwards, as must every process that it started.
//!
//! Not here: tests of one crate (beside its code), other kernels (`tests/vm`).

pub mod corpus;
mod gate;
mod lightfoot;
mod report;
mod sys;
mod workload;

pub use gate::{Privileged, out_of_reach, privileged};
pub use lightfoot::{Lightfoot, Run, Running, Sink, lightfoot_binary};
pub use report::{Accounting, Report, Stack};
pub use sys::{BpfKind, BpfObject, bpf_exists, bpf_ids, children_reaped, signal, wait_for};
pub use workload::{Workload, extension, program, programs_dir, workspace};

/// How far the share `p` of `n` samples may be off: 4.5 standard deviations of a binomial, plus one point for what the
/// workload does besides its work (a call, a clock read).
pub fn tolerance(p: f64, n: u64) -> f64 {
    4.5 * (p * (1.0 - p) / n.max(1) as f64).sqrt() + 0.01
}

/// Checks that `measured` of `n` samples fits the true share.
///
/// # Panics
/// If it does not.
#[track_caller]
pub fn assert_share(what: &str, measured: f64, truth: f64, n: u64) {
    let allowed = tolerance(truth, n);
    assert!(
        (measured - truth).abs() <= allowed,
        "{what}: {:.2} % measured, {:.2} % true, {:.2} points allowed with {n} samples",
        measured * 100.0,
        truth * 100.0,
        allowed * 100.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerance_shrinks_with_samples_down_to_one_point() {
        assert!(tolerance(0.5, 100) > tolerance(0.5, 10_000));
        assert!(tolerance(0.5, 1_000_000) < 0.013);
        assert!((tolerance(0.7, 1000) - 0.075).abs() < 0.001);
    }
}
