//! `--budget` and `--mem`: what is promised is kept, by doing less and saying so.

use lightfoot_tests::{Lightfoot, Report, Workload, assert_share, privileged, programs_dir, workspace};
use serde_json::Value;
use std::process::Command;

const FUNCTIONS: [&str; 3] = ["work_70", "work_20", "work_10"];

fn budget(report: &Report) -> &Value {
    &report.json["cost"]["budget"]
}

fn rates(report: &Report) -> Vec<f64> {
    let rates = budget(report)["rates"].as_array().expect("rates");
    rates.iter().map(|rate| rate["rate_hz"].as_f64().expect("rate")).collect()
}

/// Time by function, not samples: each sample stands for another time.
fn weight_through(report: &Report, name: &str) -> u64 {
    report.stacks.iter().filter(|stack| stack.through(name)).map(|stack| stack.weight_ns).sum()
}

/// A rate that the budget cannot pay for: it is lowered, moves, and what was not taken is counted.
#[test]
fn a_rate_that_moves_shifts_no_share() {
    let Some(_turn) = privileged("a_rate_that_moves_shifts_no_share") else { return };
    let (report, run) = Lightfoot::new("profile -F 4999 --budget 2%")
        .command("split", "--threads 1 --seconds 8")
        .report_and_run(0);
    let truth = run.truth();
    let weights: Vec<u64> = FUNCTIONS.iter().map(|name| weight_through(&report, name)).collect();
    let all: u64 = weights.iter().sum();
    let samples: u64 = FUNCTIONS.iter().map(|name| report.through(name)).sum();
    assert!(samples > 300, "{samples} samples");
    for (name, weight) in FUNCTIONS.iter().zip(&weights) {
        let share = truth["functions"][name]["share"].as_f64().expect("share");
        // Samples of different weight count as fewer: half of them.
        assert_share(name, *weight as f64 / all as f64, share, samples / 2);
    }
    let rates = rates(&report);
    assert!(
        rates.len() > 1 && rates.iter().all(|&hz| hz < 4999.0),
        "the rate was lowered and moved: {rates:?}"
    );
    let a = &report.accounting;
    assert!(
        a.throttled > 0 && a.throttled == budget(&report)["samples_not_taken"].as_u64().unwrap_or(0),
        "{a:?}"
    );
    assert_eq!(a.fired, a.recorded + a.filtered + a.throttled + a.lost + a.failed, "{a:?}");
    assert!(report.cost("interrupts") <= a.fired - a.throttled, "what did not fire was no interrupt");
    let cpu_ns = truth["process_cpu_ns"].as_u64().expect("cpu");
    let total: u64 = report.stacks.iter().map(|stack| stack.weight_ns).sum();
    let ratio = total as f64 / cpu_ns as f64;
    assert!(
        (ratio - 1.0).abs() < 0.1 + 3.0 / (samples as f64).sqrt(),
        "the weights are CPU time: {ratio:.3}"
    );
    let held = budget(&report)["held_back"].as_array().expect("held back");
    assert!(held.iter().any(|h| h["what"] == "rate"), "{held:?}");
    assert!(run.stderr.contains("rate 4999 -> "), "it is said: {}", run.stderr);
}

/// The asked rate fits: nothing is held back, and the weights are those of a run without a budget.
#[test]
fn a_budget_that_suffices_changes_nothing() {
    let Some(_turn) = privileged("a_budget_that_suffices_changes_nothing") else { return };
    let report = Lightfoot::new("profile -F 49 --budget 100%").command("split", "--seconds 2").report(0);
    assert_eq!(rates(&report), [49.0]);
    assert_eq!(report.accounting.throttled, 0);
    assert!(
        budget(&report)["held_back"].as_array().is_some_and(|held| held.iter().all(|h| h["what"] == "work"))
    );
}

/// Windows of ten seconds are in the profile, and none cost more.
#[test]
fn windows_are_kept_and_reported() {
    let Some(_turn) = privileged("windows_are_kept_and_reported") else { return };
    let _load = Workload::start("split", "--threads 1 --seconds 20");
    let report = Lightfoot::new("profile -a -d 13s -F 999 --budget 3%").report(0);
    let windows = report.json["cost"]["windows"].as_array().expect("windows");
    assert_eq!(windows.len(), 4, "one begins each second");
    let over = windows.iter().filter(|w| w["cost_ns"].as_u64().is_none_or(|ns| ns > 300_000_000)).count();
    assert_eq!(over, 0, "{windows:?}");
    assert_eq!(budget(&report)["windows_over"], 0);
    assert!(rates(&report).iter().all(|&hz| hz >= 1.0));
}

/// Without a budget there are windows, too, and nothing is held back.
#[test]
fn without_a_budget_nothing_is_held_back() {
    let Some(_turn) = privileged("without_a_budget_nothing_is_held_back") else { return };
    let report = Lightfoot::new("profile -a -d 10500ms").report(0);
    assert_eq!(report.json["cost"]["windows"].as_array().map(Vec::len), Some(1));
    assert!(budget(&report).is_null());
    assert_eq!(report.accounting.throttled, 0);
}

/// Map memory follows the limit.
#[test]
fn memory_is_bounded() {
    let Some(_turn) = privileged("memory_is_bounded") else { return };
    let bytes = |mem: &str| {
        let report =
            Lightfoot::new(&format!("profile -F 199 {mem}")).command("split", "--seconds 1").report(0);
        assert!(report.accounting.recorded > 0);
        (report.cost("bpf_map_bytes"), report.cost("peak_rss_bytes"))
    };
    let (small, small_rss) = bytes("--mem 24M");
    let (standard, _) = bytes("");
    assert!(small < standard, "{small} of {standard}");
    assert!(small + small_rss <= 24 << 20, "{small} of maps, {small_rss} resident");
}

/// 118 MB that are built only when somebody needs them.
fn make_big() {
    let mut make = Command::new("make");
    make.args(["--silent", "big", "--directory"]).arg(workspace().join("tests/programs"));
    let status = make.arg(format!("OUT={}", programs_dir().display())).status().expect("make");
    assert!(status.success(), "make big: {status}");
}

/// A table of two million rows takes 40 MB to make, twice the limit: it gets as many rows as there is memory for, and that is said.
#[test]
fn a_table_larger_than_the_limit_is_cut_and_said() {
    let Some(_turn) = privileged("a_table_larger_than_the_limit_is_cut_and_said") else { return };
    make_big();
    let cache = tempfile::tempdir().expect("folder");
    let report = Lightfoot::new("profile -F 199 --mem 24M")
        .env("XDG_CACHE_HOME", cache.path().to_str().expect("UTF-8"))
        .command("big", "--cpu-ms 2000")
        .report(0);
    let (maps, resident) = (report.cost("bpf_map_bytes"), report.cost("peak_rss_bytes"));
    assert!(maps + resident <= 24 << 20, "{maps} of maps, {resident} resident");
    let notes = report.json["meta"]["notes"].as_array().expect("notes");
    let said =
        |note: &Value| note.as_str().is_some_and(|n| n.contains("functions of") && n.contains("--mem"));
    assert!(notes.iter().any(said), "{notes:?}");
    assert!(report.accounting.recorded > 0);
    let kept = std::fs::read_dir(cache.path().join("lightfoot/unwind")).expect("cache");
    let longest = kept.flatten().filter_map(|file| file.metadata().ok()).map(|m| m.len()).max();
    assert!(longest.is_some_and(|bytes| bytes < 2_000_000), "half a table is not kept: {longest:?}");
}

/// Thousands of distinct stacks, more than a small limit holds: further ones keep their innermost frame, which is said; none is lost for it.
#[test]
fn more_stacks_than_memory_keep_their_leaf() {
    let Some(_turn) = privileged("more_stacks_than_memory_keep_their_leaf") else { return };
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("p.json");
    let run = Lightfoot::new("profile -F 4999 --mem 18M -f json -o")
        .arg(&path)
        .command("manystacks", "--bits 30 --seconds 8")
        .run();
    let report = Report::parse(&std::fs::read(&path).expect("profile"));
    let a = &report.accounting;
    assert_eq!(run.code, Some(if a.lost == 0 { 0 } else { 3 }), "{a:?}");
    assert_eq!(report.count(|_| true), a.recorded, "each sample has a stack");
    assert!(a.recorded > 4_000, "{a:?}");
    assert!(report.stacks.len() < 3_500, "{} stacks of {} samples", report.stacks.len(), a.recorded);
    let notes = report.json["meta"]["notes"].as_array().expect("notes");
    let said = |note: &Value| note.as_str().is_some_and(|n| n.contains("no memory for more stacks"));
    assert!(notes.iter().any(said), "{notes:?}");
    let cut = report.count(|stack| stack.outcome == "truncated" && stack.frames.len() < 10);
    assert!(cut > a.recorded / 4, "{cut} of {}", a.recorded);
    let (maps, resident) = (report.cost("bpf_map_bytes"), report.cost("peak_rss_bytes"));
    assert!(maps + resident <= 18 << 20, "{maps} of maps, {resident} resident");
}

#[test]
fn wrong_budgets_and_limits() {
    for (arguments, words) in [
        ("profile -a -d 1s --budget 0", &["--budget", "0.5%"][..]),
        ("profile -a -d 1s --budget 0%", &["--budget", "above 0%"]),
        ("profile -a -d 1s --budget 101%", &["--budget", "100%"]),
        ("profile -a -d 1s --budget 0.5%cpu", &["--budget", "0.1%machine"]),
        ("profile -a -d 1s --mem 1M", &["--mem", "at least"]),
        ("profile -a -d 1s --mem 64", &["--mem", "64M"]),
    ] {
        let run = Lightfoot::new(arguments).run();
        run.assert_fails(2, words);
    }
}
