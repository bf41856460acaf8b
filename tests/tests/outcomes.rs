//! Nothing disappears: the identity, also where there is too little room, and how each walk ended.
//! ([`Report::parse`] checks the identity in every test; here it is put under pressure.)

use lightfoot_tests::{Lightfoot, Report, privileged};
use std::time::Duration;

/// A ring of one page and a reader that is stopped for a second: what found no room is counted, one by one, and the run says so.
#[test]
fn a_tiny_ring_overflows() {
    let Some(_turn) = privileged("a_tiny_ring_overflows") else { return };
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("p.json");
    let mut running = Lightfoot::new("profile -F 999 --transfer ring --ring-bytes 4096 -o")
        .arg(&path)
        .command("split", "--seconds 3 --threads 2")
        .spawn();
    running.attached();
    running.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(1));
    running.signal(libc::SIGCONT);
    let run = running.wait();
    run.assert_was_watched();
    assert_eq!(run.code, Some(3), "done but incomplete; stderr: {}", run.stderr);
    assert!(run.stderr.contains("lost"), "says what: {}", run.stderr);
    let report = Report::parse(&std::fs::read(&path).expect("profile"));
    let a = &report.accounting;
    // One of three seconds without a reader: a third of the samples, less the few that fit.
    let ours = a.fired - a.filtered;
    assert!(a.lost > ours / 6 && a.recorded > ours / 4, "{a:?}");
    // Losing is not missing: the command's whole CPU time is recorded or lost.
    let cpu_s = run.truth()["process_cpu_ns"].as_f64().expect("ns") / 1e9;
    let ratio = ours as f64 / (cpu_s * 999.0);
    assert!((0.85..1.1).contains(&ratio), "{ours} firings in {cpu_s:.2} s of CPU time: {ratio:.3}");
}

/// More distinct stacks than any table holds.
fn many_stacks(name: &str, options: &str) {
    let Some(_turn) = privileged(name) else { return };
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("p.json");
    let run = Lightfoot::new(&format!("profile -F 4999 {options} -f json -o"))
        .arg(&path)
        .command("manystacks", "--bits 30 --seconds 4")
        .run();
    run.assert_was_watched();
    let report = Report::parse(&std::fs::read(&path).expect("profile"));
    let a = &report.accounting;
    assert_eq!(run.code, Some(if a.lost == 0 { 0 } else { 3 }), "{a:?}");
    let distinct = report.stacks.iter().filter(|stack| stack.through("branch_leaf")).count();
    assert!(distinct as u64 > a.recorded / 4, "{distinct} distinct stacks of {} samples", a.recorded);
    assert!(a.recorded + a.lost > 1000, "{a:?}");
    // 31 levels, then the leaf. In the leaf's prologue its caller is missing: known, and rare.
    let n = report.through("branch_leaf");
    let whole = report.count(|stack| {
        let branches =
            stack.frames.iter().filter(|frame| frame.starts_with("branch_") && *frame != "branch_leaf");
        stack.through("branch_leaf") && stack.outcome == "complete" && branches.count() == 31
    });
    assert!(whole * 100 > n * 97, "{whole} of {n} stacks are whole");
}

#[test]
fn many_stacks_counted() {
    many_stacks("many_stacks_counted", "--transfer counted");
}

#[test]
fn many_stacks_ring() {
    many_stacks("many_stacks_ring", "--transfer ring");
}

/// A known chain, frame by frame.
#[test]
fn a_whole_stack_is_complete() {
    let Some(_turn) = privileged("a_whole_stack_is_complete") else { return };
    for transfer in ["counted", "ring"] {
        let report = Lightfoot::new(&format!("profile -F 499 --no-kernel --transfer {transfer}"))
            .command("deep", "30 --seconds 2")
            .report(0);
        let mut wanted = vec!["root_of_stack", "enter"];
        wanted.extend(["descend"; 30]);
        wanted.push("deep_leaf");
        let whole = report.count(|stack| {
            let frames: Vec<&str> = stack.frames.iter().map(String::as_str).collect();
            let at = frames.iter().position(|frame| *frame == "root_of_stack").unwrap_or(0);
            // Before it the way from the program's entry; below the leaf `spin`, inlined, or a clock read in the vDSO.
            stack.outcome == "complete" && frames[0] == "_start" && frames[at..].starts_with(&wanted)
        });
        let n = report.through("deep_leaf");
        assert!(n > 100, "{n} samples");
        assert!(whole * 100 >= n * 98, "{transfer}: {whole} of {n} are whole: {}", report.heaviest(|_| true));
    }
}

/// Deeper than the limit: the frames nearest the leaf are kept, the outcome says that callers are missing.
#[test]
fn a_very_deep_stack_is_truncated() {
    let Some(_turn) = privileged("a_very_deep_stack_is_truncated") else { return };
    for transfer in ["counted", "ring"] {
        let report = Lightfoot::new(&format!("profile -F 499 --no-kernel --transfer {transfer}"))
            .command("deep", "2000 --seconds 2")
            .report(0);
        let n = report.through("deep_leaf");
        assert!(n > 100, "{n} samples");
        let truncated = report.count(|stack| {
            stack.through("deep_leaf")
                && stack.outcome == "truncated"
                && !stack.through("enter")
                && stack.frames.iter().filter(|frame| *frame == "descend").count() >= 60
        });
        assert!(truncated * 100 >= n * 98, "{transfer}: {truncated} of {n}");
    }
}

/// Code without frame pointers, whose register holds something else: whole all the same, and no caller is invented.
#[test]
fn without_frame_pointers_a_stack_is_whole() {
    let Some(_turn) = privileged("without_frame_pointers_a_stack_is_whole") else { return };
    let report = Lightfoot::new("profile -F 499 --no-kernel").command("nofp", "--seconds 2").report(0);
    let n = report.through("nofp_hot");
    assert!(n > 100, "{n} samples");
    let whole = report.count(|stack| stack.outcome == "complete" && stack.through("nofp_hot"));
    assert!(whole * 100 >= n * 99, "{whole} of {n}: {}", report.heaviest(|_| true));
    for stack in report.stacks.iter().filter(|stack| stack.through("nofp_hot")) {
        let known =
            ["_start", "__libc_start_main", "__libc_start_call_main", "main", "nofp_outer", "nofp_hot"];
        let frames = stack.frames.iter().map(String::as_str);
        // A libc without symbols names its functions by their places.
        let ours: Vec<&str> = frames.filter(|frame| !frame.starts_with("[libc")).collect();
        let wanted: Vec<&str> = known.into_iter().filter(|name| ours.contains(name)).collect();
        assert_eq!(ours, wanted, "an invented caller");
        assert_eq!(ours.last(), Some(&"nofp_hot"));
    }
}

/// The ledger charges every phase, and one interrupt for each firing at least.
#[test]
fn the_ledger_is_complete() {
    let Some(_turn) = privileged("the_ledger_is_complete") else { return };
    let report = Lightfoot::new("profile -F 999").command("split", "--seconds 2 --threads 2").report(0);
    let cost = &report.json["cost"];
    let phases = cost["phases"].as_array().expect("phases");
    let names: Vec<&str> = phases.iter().filter_map(|phase| phase["phase"].as_str()).collect();
    // `write` is not there: the JSON cannot say what writing itself took. It is in the ledger on stderr.
    for wanted in ["start", "collect", "symbolize"] {
        assert!(names.contains(&wanted), "{wanted} is missing: {names:?}");
    }
    let sum: u64 = phases.iter().map(|phase| phase["cpu_ns"].as_u64().expect("ns")).sum();
    assert_eq!(sum, report.cost("user_ns"), "phases add up");
    assert!(report.cost("bpf_ns") > 0, "BPF run time is known");
    assert!(report.cost("interrupts") >= report.accounting.fired, "each firing is an interrupt");
    let duration = report.json["meta"]["duration_ns"].as_f64().expect("duration");
    let percent = cost["percent_of_one_cpu"].as_f64().expect("percent");
    assert!((percent - report.cost("total_ns") as f64 / duration * 100.0).abs() < 0.01, "{percent}");
    // A sample costs more than nothing and less than a tenth of its period.
    let each = cost["ns_per_sample"].as_f64().expect("ns");
    assert!((500.0..5_000_000.0).contains(&each), "{each} ns per sample");
}
