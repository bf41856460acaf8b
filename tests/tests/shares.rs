//! Where the CPU time went, against programs that know.

use lightfoot_tests::{Lightfoot, Report, Workload, assert_share, privileged, tolerance};
use serde_json::Value;
use std::time::Duration;

const FUNCTIONS: [&str; 3] = ["work_70", "work_20", "work_10"];

/// Each function's share of the samples in the three, against the iterations that the program counted.
#[track_caller]
fn check_shares(report: &Report, truth: &Value) {
    let n = FUNCTIONS.iter().map(|name| report.through(name)).sum();
    for name in FUNCTIONS {
        let share = truth["functions"][name]["share"].as_f64().expect("share");
        assert_share(name, report.share(name, &FUNCTIONS), share, n);
    }
}

/// Samples of one process for each second of its CPU time and Hz: 1 where nothing is lost.
#[track_caller]
fn check_ratio(samples: u64, cpu_ns: u64, rate_hz: u64) {
    let expected = cpu_ns as f64 / 1e9 * rate_hz as f64;
    let ratio = samples as f64 / expected;
    // Timers belong to CPUs, not to threads: where a thread shares its CPU, its number of samples is random.
    let allowed = 0.05 + 3.0 / expected.sqrt();
    assert!((ratio - 1.0).abs() < allowed, "{samples} samples, {expected:.0} expected, ratio {ratio:.3}");
}

fn command(name: &str, options: &str, program: &str) {
    let Some(_turn) = privileged(name) else { return };
    let (report, run) =
        Lightfoot::new(&format!("profile {options}")).command("split", program).report_and_run(0);
    let truth = run.truth();
    check_shares(&report, &truth);
    let pid = truth["pid"].as_u64().expect("pid") as u32;
    let samples = report.count(|stack| stack.pid == pid);
    assert_eq!(
        samples,
        report.accounting.recorded,
        "only the command: {}",
        report.heaviest(|stack| stack.pid == pid)
    );
    let rate = report.json["meta"]["rate_hz"].as_u64().expect("rate");
    check_ratio(samples, truth["process_cpu_ns"].as_u64().expect("cpu"), rate);
}

#[test]
fn a_70_20_10_split_at_99_hz() {
    command("a_70_20_10_split_at_99_hz", "-F 99", "--seconds 5");
}

#[test]
fn a_70_20_10_split_at_999_hz_counted() {
    command("a_70_20_10_split_at_999_hz_counted", "-F 999 --transfer counted", "--seconds 4");
}

#[test]
fn a_70_20_10_split_at_999_hz_ring() {
    command("a_70_20_10_split_at_999_hz_ring", "-F 999 --transfer ring", "--seconds 4");
}

#[test]
fn another_split() {
    command("another_split", "-F 999", "--seconds 3 --shares 5,90,5");
}

#[test]
fn four_threads_on_fewer_cpus() {
    let name = "four_threads_on_fewer_cpus";
    let Some(_turn) = privileged(name) else { return };
    let (report, run) =
        Lightfoot::new("profile -F 999").command("split", "--seconds 4 --threads 4").report_and_run(0);
    let truth = run.truth();
    check_shares(&report, &truth);
    let all = truth["cpu_ns"].as_f64().expect("cpu");
    for thread in truth["threads"].as_array().expect("threads") {
        let tid = thread["tid"].as_u64().expect("tid") as u32;
        let comm = thread["comm"].as_str().expect("comm");
        let n = report.count(|stack| stack.tid == tid && stack.through("rotate"));
        assert!(
            report
                .stacks
                .iter()
                .filter(|stack| stack.tid == tid && stack.through("rotate"))
                .all(|s| s.comm == comm),
            "thread {tid} is {comm}"
        );
        let share = thread["cpu_ns"].as_f64().expect("cpu") / all;
        assert_share(comm, n as f64 / report.through("rotate") as f64, share, report.through("rotate"));
    }
}

/// Attaching to a process sees the same as starting it, and only while attached.
#[test]
fn attached_by_pid() {
    let name = "attached_by_pid";
    let Some(_turn) = privileged(name) else { return };
    let mut target = Workload::start("split", "--seconds 5 --threads 2");
    std::thread::sleep(Duration::from_millis(200));
    let mut other = Workload::start("deep", "10 --seconds 4");
    let report = Lightfoot::new(&format!("profile -F 499 -d 2s -p {}", target.pid())).report(0);
    assert_eq!(report.count(|stack| stack.pid != target.pid()), 0, "no other process");
    assert_eq!(report.through("deep_leaf"), 0);
    let duration = report.json["meta"]["duration_ns"].as_u64().expect("duration") as f64 / 1e9;
    assert!((1.8..3.0).contains(&duration), "{duration} s");
    drop(other.next_line());
    check_shares(&report, &target.next_line());
}

/// Two processes at once, both in the profile, told apart.
#[test]
fn two_processes() {
    let Some(_turn) = privileged("two_processes") else { return };
    let a = Workload::start("split", "--seconds 4");
    let b = Workload::start("deep", "10 --seconds 4");
    let report = Lightfoot::new(&format!("profile -F 499 -d 2s -p {},{}", a.pid(), b.pid())).report(0);
    assert!(report.count(|stack| stack.pid == a.pid() && stack.through("rotate")) > 100);
    assert!(report.count(|stack| stack.pid == b.pid() && stack.through("deep_leaf")) > 100);
    assert_eq!(report.count(|stack| stack.pid != a.pid() && stack.pid != b.pid()), 0);
}

/// A sample stands for its period: weights are CPU time.
#[test]
fn weights_are_cpu_time() {
    let Some(_turn) = privileged("weights_are_cpu_time") else { return };
    let (report, run) = Lightfoot::new("profile -F 999").command("split", "--seconds 2").report_and_run(0);
    let weight: u64 = report.stacks.iter().map(|stack| stack.weight_ns).sum();
    let period = report.json["meta"]["period_ns"].as_u64().expect("period");
    assert!(
        weight.abs_diff(report.accounting.recorded * period) <= report.accounting.recorded,
        "count x period"
    );
    let cpu = run.truth()["process_cpu_ns"].as_u64().expect("cpu");
    let ratio = weight as f64 / cpu as f64;
    assert!((ratio - 1.0).abs() < 0.12, "weight / CPU time = {ratio:.3}");
}

/// CPU time in the kernel shows as kernel frames, in its true share, and `--no-kernel` leaves the frames out, not the time.
#[test]
fn kernel_share() {
    let Some(_turn) = privileged("kernel_share") else { return };
    let arguments = "--kernel-share 40 --seconds 3";
    let (report, run) = Lightfoot::new("profile -F 999").command("syscalls", arguments).report_and_run(0);
    let truth = run.truth();
    let (kernel_ns, user_ns) =
        (truth["kernel_ns"].as_f64().expect("ns"), truth["user_ns"].as_f64().expect("ns"));
    let n = report.through("mixed");
    let kernel = report.count(|stack| stack.through("read_zeros"));
    assert_share("read_zeros", kernel as f64 / n as f64, kernel_ns / (kernel_ns + user_ns), n);
    let in_kernel = report.count(|stack| {
        stack.through("read_zeros")
            && (0..stack.frames.len()).any(|position| report.kind(stack, position) == "kernel")
    });
    assert!(in_kernel * 100 > kernel * 95, "{in_kernel} of {kernel}: {}", report.heaviest(|_| true));

    let (report, run) =
        Lightfoot::new("profile -F 999 --no-kernel").command("syscalls", arguments).report_and_run(0);
    let truth = run.truth();
    let (kernel_ns, user_ns) =
        (truth["kernel_ns"].as_f64().expect("ns"), truth["user_ns"].as_f64().expect("ns"));
    let frames = report.json["frames"].as_array().expect("frames");
    assert!(frames.iter().all(|frame| frame["kind"] != "kernel"), "no kernel frames");
    let n = report.through("mixed");
    let share = report.through("read_zeros") as f64 / n as f64;
    assert!(
        (share - kernel_ns / (kernel_ns + user_ns)).abs() < tolerance(share, n) + 0.02,
        "the time stays: {share}"
    );
}

/// Context switches all the time: both sides are seen, under their names.
#[test]
fn context_switches() {
    let Some(_turn) = privileged("context_switches") else { return };
    let (report, run) =
        Lightfoot::new("profile -F 999").command("pingpong", "--seconds 3 --spin 5000").report_and_run(0);
    let truth = run.truth();
    let (pid, child) =
        (truth["pid"].as_u64().expect("pid") as u32, truth["child"].as_u64().expect("pid") as u32);
    let ping = report.count(|stack| stack.pid == pid && stack.through("ping_hot"));
    let pong = report.count(|stack| stack.pid == child && stack.through("pong_hot"));
    assert!(ping > 100 && pong > 100, "{ping} and {pong}");
    assert!(
        report
            .stacks
            .iter()
            .all(|s| s.pid != child || s.comm == "pong" || s.comm == "ping" || s.comm == "pingpong")
    );
    // Equal work is not equal time: one CPU may be slower than the other.
    let (all_ping, all_pong) =
        (report.count(|stack| stack.pid == pid), report.count(|stack| stack.pid == child));
    let ping_ns = truth["cpu_ns"].as_f64().expect("ns");
    let pong_ns = truth["child_cpu_us"].as_f64().expect("us") * 1e3;
    let (share, n) = (ping_ns / (ping_ns + pong_ns), all_ping + all_pong);
    let seen = all_ping as f64 / n as f64;
    // Samples may be missing, and all on one side. A hypervisor that takes a CPU away takes its timer, too, while the time is charged to who was
    // running; and a thread that was woken may wait until an interrupt, such as the timer's, makes a busy CPU look for it: then it runs just after each sample.
    let due = (ping_ns + pong_ns) / 1e9 * 999.0;
    let missing = (1.0 - n as f64 / due).max(0.0);
    assert!(
        (seen - share).abs() < tolerance(share, n) + 0.03 + missing,
        "{seen}, by CPU time {share}; {n} samples, {due:.0} due, {:?}",
        report.accounting
    );
}

/// Children that use less CPU time than one period each: a timer per process that starts anew with each child would never fire in them.
/// In the sum they get their share like everyone else.
fn short_lived(name: &str, attach: bool) {
    let Some(_turn) = privileged(name) else { return };
    let arguments = "--rate 120 --burn-ms 4 --seconds 5";
    let (report, truth) = if attach {
        let target = Workload::start("forker", arguments);
        let report = Lightfoot::new(&format!("profile -F 99 -d 15s -p {}", target.pid())).report(0);
        (report, target.truth())
    } else {
        let (report, run) = Lightfoot::new("profile -F 99").command("forker", arguments).report_and_run(0);
        (report, run.truth())
    };
    let expected = truth["children_cpu_ns"].as_f64().expect("ns") / 1e9 * 99.0;
    let samples = report.through("forked_hot") as f64;
    let allowed = 4.5 * expected.sqrt() + 0.1 * expected;
    assert!(
        (samples - expected).abs() < allowed,
        "{samples} samples, {expected:.0} +- {allowed:.0} expected"
    );
}

#[test]
fn short_lived_children_of_a_command() {
    short_lived("short_lived_children_of_a_command", false);
}

#[test]
fn short_lived_children_of_a_process() {
    short_lived("short_lived_children_of_a_process", true);
}
