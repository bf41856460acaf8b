//! A run that is told to end delivers what it has.

use lightfoot_tests::{Lightfoot, Report, Workload, privileged, wait_for};
use std::path::Path;
use std::time::Duration;

fn delivers(name: &str, number: i32) {
    let Some(_turn) = privileged(name) else { return };
    let target = Workload::start("split", "--seconds 15");
    let mut running = Lightfoot::new(&format!("profile -F 499 -d 60s -f json -p {}", target.pid())).spawn();
    running.attached();
    std::thread::sleep(Duration::from_millis(1000));
    running.signal(number);
    let run = running.wait();
    run.assert_was_watched();
    assert_eq!((run.code, run.signal), (Some(0), None), "{}", run.stderr);
    assert!(run.wall < Duration::from_secs(8), "{:?}", run.wall);
    let report = Report::parse(&run.stdout);
    assert!(report.through("rotate") > 60, "{}", report.heaviest(|_| true));
    let duration = report.json["meta"]["duration_ns"].as_u64().expect("duration") as f64 / 1e9;
    assert!((0.9..5.0).contains(&duration), "the length is the true one: {duration} s");
}

#[test]
fn sigint_delivers() {
    delivers("sigint_delivers", libc::SIGINT);
}

#[test]
fn sigterm_delivers() {
    delivers("sigterm_delivers", libc::SIGTERM);
}

#[test]
fn sighup_delivers() {
    delivers("sighup_delivers", libc::SIGHUP);
}

/// A run whose command is still going: the profile is delivered, the command does not outlive the run.
#[test]
fn a_signal_ends_the_command_too() {
    let Some(_turn) = privileged("a_signal_ends_the_command_too") else { return };
    for number in [libc::SIGINT, libc::SIGTERM] {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join("p.json");
        let mut running =
            Lightfoot::new("profile -F 499 -o").arg(&path).command("split", "--seconds 20").spawn();
        running.attached();
        std::thread::sleep(Duration::from_millis(1000));
        running.signal(number);
        let run = running.wait(); // fails if the command is left behind
        assert!(run.wall < Duration::from_secs(8), "{:?}", run.wall);
        assert!(matches!(run.code, Some(0 | 130 | 143)), "{:?} {}", run.code, run.stderr);
        let report = Report::parse(&std::fs::read(&path).expect("profile"));
        assert!(report.through("rotate") > 60, "{}", report.heaviest(|_| true));
    }
}

/// Killed outright: nothing can be delivered, and still nothing stays. (The command gets no signal: it is the reader's then.)
#[test]
fn sigkill_leaves_nothing() {
    let Some(_turn) = privileged("sigkill_leaves_nothing") else { return };
    let target = Workload::start("split", "--seconds 10");
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("p.json");
    let mut running = Lightfoot::new(&format!("profile -d 60s -p {} -o", target.pid())).arg(&path).spawn();
    running.attached();
    running.signal(libc::SIGKILL);
    let run = running.wait();
    assert_eq!(run.signal, Some(libc::SIGKILL));
    assert!(!path.exists(), "no half file");
}

/// A second signal during the end does not spoil the file: whole or not there.
#[test]
fn impatient_signals() {
    let Some(_turn) = privileged("impatient_signals") else { return };
    let target = Workload::start("manystacks", "--bits 20 --seconds 15");
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("p.json");
    let mut running =
        Lightfoot::new(&format!("profile -F 4999 -d 60s -p {} -o", target.pid())).arg(&path).spawn();
    running.attached();
    std::thread::sleep(Duration::from_millis(1500));
    for _ in 0..5 {
        running.signal(libc::SIGINT);
        std::thread::sleep(Duration::from_millis(3));
    }
    let run = running.wait();
    assert!(run.wall < Duration::from_secs(20));
    if path.exists() {
        Report::parse(&std::fs::read(&path).expect("profile"));
    } else {
        assert_ne!(run.code, Some(0), "no file, no success");
    }
    assert_eq!(others(dir.path(), &path), 0, "no temporary file stays");
}

fn others(dir: &Path, path: &Path) -> usize {
    std::fs::read_dir(dir).expect("folder").flatten().filter(|entry| entry.path() != path).count()
}

/// Stopped and continued: the length of the run is wall time, and what was lost meanwhile is counted.
#[test]
fn stopped_and_continued() {
    let Some(_turn) = privileged("stopped_and_continued") else { return };
    let target = Workload::start("split", "--seconds 8");
    let mut running = Lightfoot::new(&format!("profile -F 199 -d 3s -f json -p {}", target.pid())).spawn();
    running.attached();
    running.signal(libc::SIGSTOP);
    assert!(wait_for(Duration::from_secs(2), || state(running.pid()) == Some('T')));
    std::thread::sleep(Duration::from_millis(800));
    running.signal(libc::SIGCONT);
    let run = running.wait();
    let report = Report::parse(&run.stdout);
    assert_eq!(run.code, Some(if report.accounting.lost > 0 { 3 } else { 0 }), "{}", run.stderr);
    assert!(report.through("rotate") > 40);
}

fn state(pid: u32) -> Option<char> {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?.rsplit_once(") ")?.1.chars().next()
}
