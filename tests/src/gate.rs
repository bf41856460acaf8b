//! Who may run what: privileged tests run only when asked to, and one at a time.

use std::fs::File;
use std::io::Write;

/// Right to run a privileged test: held for the length of the test, one test on the machine at a time, since the tests
/// measure CPU time on few CPUs.
pub struct Privileged {
    _lock: File,
}

/// `Some` if the test may run. Otherwise prints `SKIPPED name: reason` and the test should return.
///
/// Privileged tests run as root with `LIGHTFOOT_ROOT_TESTS=1`. With `CI=true` or `LIGHTFOOT_REQUIRE_ALL=1` besides, a skip is a failure.
///
/// # Panics
/// If the test would be skipped where nothing may be skipped.
#[track_caller]
pub fn privileged(name: &str) -> Option<Privileged> {
    if std::env::var("LIGHTFOOT_ROOT_TESTS").as_deref() != Ok("1") {
        skipped(name, "LIGHTFOOT_ROOT_TESTS is not 1");
        return None;
    }
    if !crate::sys::is_root() {
        out_of_reach(name, "not root");
        return None;
    }
    let path = crate::programs_dir().join(".one-at-a-time");
    let lock = File::create(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    lock.lock().expect("lock");
    Some(Privileged { _lock: lock })
}

/// Says that a privileged test cannot run on this machine, and why. Fails where nothing may be skipped.
///
/// # Panics
/// With `CI=true` or `LIGHTFOOT_REQUIRE_ALL=1`.
#[track_caller]
pub fn out_of_reach(name: &str, reason: &str) {
    let set = |name: &str, value: &str| std::env::var(name).as_deref() == Ok(value);
    let strict = set("CI", "true") || set("LIGHTFOOT_REQUIRE_ALL", "1");
    assert!(!strict, "{name} was skipped where nothing may be skipped: {reason}");
    skipped(name, reason);
}

/// Written past the test harness's capture, so that a skip is seen.
fn skipped(name: &str, reason: &str) {
    let _ = writeln!(std::io::stderr().lock(), "SKIPPED {name}: {reason}");
}
