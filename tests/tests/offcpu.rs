//! Time off the CPU, against a program that measures how long it waits.

use lightfoot_tests::{Lightfoot, Report, privileged};

/// Sums may differ from the truth by this share, and by what chance does to `samples` of them: waits shorter than a sample's time
/// are sampled in proportion.
#[track_caller]
fn assert_sum(report: &Report, name: &str, truth_ns: f64) {
    let stacks = report.stacks.iter().filter(|stack| stack.through(name));
    let (mut weight_ns, mut samples) = (0, 0);
    for stack in stacks {
        weight_ns += stack.weight_ns;
        samples += stack.count;
    }
    assert!(samples > 0, "{name}: no samples");
    let allowed = 0.02 + 4.0 / (samples as f64).sqrt();
    let differs = weight_ns as f64 / truth_ns - 1.0;
    // One wait as long as the run is one sample, and exact.
    let allowed = if name == "wait_long" { 0.02 } else { allowed };
    assert!(
        differs.abs() < allowed,
        "{name}: {weight_ns} ns of {truth_ns}, {differs:+.4}, {samples} samples"
    );
}

#[test]
fn waits_in_known_functions_add_up() {
    let Some(_turn) = privileged("waits_in_known_functions_add_up") else { return };
    let (report, run) =
        Lightfoot::new("profile --off-cpu -F 499").command("waits", "--seconds 6").report_and_run(0);
    let truth = run.truth();
    for name in ["wait_timer", "wait_futex", "wait_pipe", "wait_long", "wait_disk", "hog"] {
        assert_sum(&report, name, truth[name].as_f64().expect(name));
    }
    let sampled: u64 = report.stacks.iter().map(|stack| stack.weight_ns).sum();
    let off_cpu = &report.json["meta"]["off_cpu"];
    let all: u64 =
        off_cpu["blocked_ns"].as_array().expect("reasons").iter().filter_map(|ns| ns.as_u64()).sum();
    let differs = sampled as f64 / all as f64 - 1.0;
    assert!(differs.abs() < 0.002, "samples stand for {sampled} ns of {all}");
    assert_eq!(report.cost("interrupts"), 0, "nothing interrupts");
}

#[test]
fn runnable_time_is_the_kernels() {
    let Some(_turn) = privileged("runnable_time_is_the_kernels") else { return };
    let (report, run) =
        Lightfoot::new("profile --off-cpu -F 499").command("waits", "--seconds 4").report_and_run(0);
    let truth = run.truth()["run_delay"].as_f64().expect("run_delay");
    let all = report.json["meta"]["off_cpu"]["blocked_ns"][1].as_f64().expect("runnable");
    // By the same clock. Only one of them knows what is waited before the run begins, or behind a thread's last look at itself.
    let differs = all / truth - 1.0;
    assert!(differs.abs() < 0.01, "runnable: {all} ns, the kernel: {truth} ns, {differs:+.5}");
    // Which part of the sampled time is runnable is chance: both parts of a wait lie on the same line.
    let samples =
        report.stacks.iter().filter(|stack| stack.frames.last().is_some_and(|leaf| leaf == "[runnable]"));
    let (weight_ns, count) = samples.fold((0, 0), |(ns, n), stack| (ns + stack.weight_ns, n + stack.count));
    let differs = weight_ns as f64 / all - 1.0;
    let allowed = 4.0 / (count as f64).sqrt();
    assert!(differs.abs() < allowed, "samples: {weight_ns} ns of {all}, {differs:+.4}, {count} samples");
}

#[test]
fn the_leaf_says_why() {
    let Some(_turn) = privileged("the_leaf_says_why") else { return };
    let report = Lightfoot::new("profile --off-cpu -F 499").command("waits", "--seconds 3").report(0);
    let heaviest_leaf = |name: &str| {
        let stacks = report.stacks.iter().filter(|stack| stack.through(name));
        stacks.max_by_key(|stack| stack.weight_ns).and_then(|stack| stack.frames.last().cloned())
    };
    assert_eq!(heaviest_leaf("hog").as_deref(), Some("[runnable]"), "it waits for the other hog");
    assert_eq!(heaviest_leaf("wait_timer").as_deref(), Some("[sleeping]"));
    assert_eq!(heaviest_leaf("wait_long").as_deref(), Some("[sleeping]"));
}

#[test]
fn stacks_of_sleeping_threads_are_whole() {
    let Some(_turn) = privileged("stacks_of_sleeping_threads_are_whole") else { return };
    let report = Lightfoot::new("profile --off-cpu -F 499").command("waits", "--seconds 3").report(0);
    let weight = |whole: bool| -> u64 {
        let stacks = report.stacks.iter().filter(|stack| !whole || stack.outcome == "complete");
        stacks.map(|stack| stack.weight_ns).sum()
    };
    let share = weight(true) as f64 / weight(false) as f64;
    assert!(share > 0.98, "{share:.4} of the time is in whole stacks");
}

#[test]
fn wall_time_is_both() {
    let Some(_turn) = privileged("wall_time_is_both") else { return };
    let (report, run) =
        Lightfoot::new("profile --wall -F 499").command("waits", "--seconds 4").report_and_run(0);
    let truth = run.truth();
    assert_sum(&report, "wait_long", truth["wait_long"].as_f64().expect("wait_long"));
    // Two hogs on one CPU: one of them runs, the other waits, all the time.
    let hogs = report.stacks.iter().filter(|stack| stack.through("hog"));
    let (mut on, mut off) = (0u64, 0u64);
    for stack in hogs {
        match stack.frames.last().is_some_and(|leaf| leaf.starts_with('[')) {
            true => off += stack.weight_ns,
            false => on += stack.weight_ns,
        }
    }
    let both = (on + off) as f64 / 1e9;
    assert!((both / 8.0 - 1.0).abs() < 0.08, "two threads for 4 s: {both:.3} s, {on} ns on the CPU");
}

#[test]
fn wakers_are_told() {
    let Some(_turn) = privileged("wakers_are_told") else { return };
    let (report, run) =
        Lightfoot::new("profile --off-cpu --wakers -F 499").command("waits", "--seconds 4").report_and_run(0);
    let truth = run.truth();
    for name in ["wait_timer", "wait_pipe", "wait_long"] {
        assert_sum(&report, name, truth[name].as_f64().expect(name));
    }
    // Of the time that threads slept in a function: the share that ended as `who` says.
    let share = |name: &str, who: &dyn Fn(&[String]) -> bool| {
        let (mut all, mut so) = (0, 0);
        for stack in &report.stacks {
            let sleeps = stack.frames.iter().position(|frame| frame == "[sleeping]");
            let Some(at) = sleeps.filter(|_| stack.through(name)) else { continue };
            all += stack.weight_ns;
            so += if who(&stack.frames[at + 1..]) { stack.weight_ns } else { 0 };
        }
        so as f64 / all as f64
    };
    let mut all_frames = report.stacks.iter().flat_map(|stack| &stack.frames);
    assert!(all_frames.all(|frame| !frame.starts_with("bpf_trace_run")), "our own frames are left out");
    let by = |frames: &[String], who: &str| frames.first().is_some_and(|first| first == who);
    let written = share("wait_pipe", &|frames| {
        by(frames, "[woken by] waits") && frames.iter().any(|frame| frame == "writer_thread")
    });
    assert!(written > 0.9, "wait_pipe was woken by writer_thread in {written} of its time");
    let timed = share("wait_timer", &|frames| by(frames, "[woken by an interrupt]"));
    assert!(timed > 0.9, "wait_timer was woken by an interrupt in {timed} of its time");
    let handed = share("wait_futex", &|frames| frames.iter().any(|frame| frame == "hand_over"));
    assert!(handed > 0.5, "wait_futex was woken by hand_over in {handed} of its time");
}

#[test]
fn wakers_need_waits() {
    let Some(_turn) = privileged("wakers_need_waits") else { return };
    Lightfoot::new("profile --wakers -d 1s -a").run().assert_fails(2, &["--wakers", "--off-cpu"]);
}
