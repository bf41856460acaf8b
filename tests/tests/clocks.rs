//! The scheduler's tick as a clock, against the timer and against programs that know.

use lightfoot_tests::{Lightfoot, Report, assert_share, out_of_reach, privileged};

const FUNCTIONS: [&str; 3] = ["work_70", "work_20", "work_10"];

/// A run of `split` by one clock; `None` if the clock is not possible here.
fn split(name: &str, clock: &str, seconds: u32) -> Option<(Report, serde_json::Value)> {
    if clock == "tick" && std::fs::metadata("/sys/kernel/btf/vmlinux").is_err() {
        out_of_reach(name, "no kernel types");
        return None;
    }
    let arguments = format!("--seconds {seconds}");
    let (report, run) = Lightfoot::new(&format!("profile -F 10000 --clock {clock}"))
        .command("split", &arguments)
        .report_and_run(0);
    Some((report, run.truth()))
}

#[test]
fn ticks_have_no_bias() {
    let Some(_turn) = privileged("ticks_have_no_bias") else { return };
    let Some((report, truth)) = split("ticks_have_no_bias", "tick", 12) else { return };
    let n = FUNCTIONS.iter().map(|name| report.through(name)).sum();
    for name in FUNCTIONS {
        let share = truth["functions"][name]["share"].as_f64().expect("share");
        assert_share(name, report.share(name, &FUNCTIONS), share, n);
    }
    assert_eq!(report.json["meta"]["clock"], "tick");
    assert_eq!(report.cost("interrupts"), 0, "no interrupt of our own");
}

#[test]
fn each_tick_stands_for_its_time() {
    let Some(_turn) = privileged("each_tick_stands_for_its_time") else { return };
    let (report, run) =
        Lightfoot::new("profile -F 97 --clock tick").command("split", "--seconds 10").report_and_run(0);
    let cpu_ns = run.truth()["process_cpu_ns"].as_f64().expect("cpu");
    let weight_ns: u64 = report.stacks.iter().map(|stack| stack.weight_ns).sum();
    let differs = weight_ns as f64 / cpu_ns - 1.0;
    let allowed = 0.03 + 4.0 / (report.accounting.recorded as f64).sqrt();
    assert!(differs.abs() < allowed, "{weight_ns} ns of {cpu_ns}: {differs:+.4}");
    assert!(
        report.accounting.recorded < 1_400,
        "one of so many ticks is kept: {}",
        report.accounting.recorded
    );
}

#[test]
fn auto_says_what_it_chose_and_why() {
    let Some(_turn) = privileged("auto_says_what_it_chose_and_why") else { return };
    let report = Lightfoot::new("profile -F 50 --clock auto").command("split", "--seconds 2").report(0);
    let notes = report.json["meta"]["notes"].to_string();
    assert!(notes.contains("clock: tick") || notes.contains("clock: timer"), "{notes}");
    let report = Lightfoot::new("profile -F 5000 --clock auto").command("split", "--seconds 2").report(0);
    assert_eq!(report.json["meta"]["clock"].as_str().map(|clock| clock == "tick"), Some(false));
}
