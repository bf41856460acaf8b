//! Nothing is left behind: the check itself, and the runs where it is hardest to keep.
//! (Every run of every test is checked: see `Running::wait`.)

use lightfoot_tests::{BpfKind, Lightfoot, Workload, bpf_exists, bpf_ids, privileged, wait_for};
use std::time::Duration;

/// The check sees what is there while it is there: otherwise "nothing was left" says nothing.
#[test]
fn the_check_sees_live_objects() {
    let Some(_turn) = privileged("the_check_sees_live_objects") else { return };
    let target = Workload::start("split", "--seconds 10");
    let mut running = Lightfoot::new(&format!("profile -d 2s -f json -p {}", target.pid())).spawn();
    running.attached();
    let objects = running.objects();
    assert!(objects.iter().any(|object| object.kind == BpfKind::Program));
    assert!(objects.iter().any(|object| object.kind == BpfKind::Map));
    let mut alive = 0;
    for &object in &objects {
        let (listed, exists) = (bpf_ids(object.kind).contains(&object.id), bpf_exists(object));
        // What was only tried, or replaced, may be gone already; then it is held no more, either.
        if running.held().contains(&object) {
            assert!(exists, "{object:?} is alive");
            assert!(listed, "{object:?} is listed");
            alive += 1;
        }
    }
    assert!(alive > 20, "{alive} of {} objects", objects.len());
    let run = running.wait();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    for &object in &objects {
        assert!(
            wait_for(Duration::from_secs(5), || !bpf_ids(object.kind).contains(&object.id)),
            "{object:?} is left"
        );
    }
}

/// Nothing is pinned: after the run no file of ours is in a BPF file system.
#[test]
fn nothing_is_pinned() {
    let Some(_turn) = privileged("nothing_is_pinned") else { return };
    let mounted = || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        mounts.lines().filter(|line| line.split(' ').nth(2) == Some("bpf")).count()
    };
    let before = mounted();
    let run = Lightfoot::new("profile -f json -o /dev/null").command("split", "--seconds 1").run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(mounted(), before, "no file system was mounted");
}

/// Settings of the machine are as they were.
#[test]
fn settings_are_as_before() {
    let Some(_turn) = privileged("settings_are_as_before") else { return };
    let read = || {
        [
            "bpf_stats_enabled",
            "perf_event_paranoid",
            "perf_event_max_sample_rate",
            "perf_event_mlock_kb",
            "kptr_restrict",
        ]
        .map(|name| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default())
    };
    let before = read();
    let run = Lightfoot::new("profile -f json -o /dev/null").command("split", "--seconds 1").run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let after = read();
    // The kernel lowers perf_event_max_sample_rate by itself when interrupts take long; nobody else touches the others.
    assert_eq!((&before[..2], &before[3..]), (&after[..2], &after[3..]));
}

/// Many short runs, one after the other: nothing adds up.
#[test]
fn many_short_runs() {
    let Some(_turn) = privileged("many_short_runs") else { return };
    for _ in 0..10 {
        let run = Lightfoot::new("profile -F 999 -f json -o /dev/null")
            .command("exiter", "--after-ms 50 --burn")
            .run();
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.assert_was_watched();
    }
}
