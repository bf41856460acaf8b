//! `lightfoot weigh`, the ladder: every kind of probe is a row, what is missing says why, nothing stays attached. Nothing is asserted on times but signs and
//! gaps that are enormous.

use lightfoot_tests::{Lightfoot, Sink, privileged};
use serde_json::Value;
use std::fs::OpenOptions;
use std::time::Duration;

/// Every mechanism, as in `model::Mechanism`.
const MECHANISMS: [&str; 16] = [
    "kprobe",
    "kretprobe",
    "kprobe_multi",
    "kretprobe_multi",
    "kprobe_session",
    "fentry",
    "fexit",
    "tracepoint",
    "raw_tracepoint",
    "tp_btf",
    "uprobe",
    "uretprobe",
    "uprobe_multi",
    "uretprobe_multi",
    "uprobe_session",
    "perf_event",
];

/// A machine with much other work takes its time.
const LIMIT: Duration = Duration::from_secs(240);

fn parse(stdout: &[u8]) -> Value {
    let json: Value = serde_json::from_slice(stdout).expect("JSON");
    assert_eq!(json["schema"], "lightfoot.weigh/1");
    for field in ["kernel", "arch", "cpu", "cpus", "virtual"] {
        assert!(!json["machine"][field].is_null(), "machine.{field}");
    }
    assert!(json["noise"]["trustworthy"].is_boolean());
    json
}

fn rows(json: &Value) -> &[Value] {
    json["rows"].as_array().expect("rows")
}

/// Every row has every field; what is available has figures that fit together, what is not says why.
fn check_rows(json: &Value) {
    for row in rows(json) {
        for field in [
            "probe",
            "site",
            "program",
            "threads",
            "base_ns",
            "probed_ns",
            "overhead_ns",
            "overhead_percent",
            "ci95_ns",
        ] {
            assert!(row.get(field).is_some(), "{field}: {row}");
        }
        for field in ["kernel_stats_ns", "predicted_ns", "available", "why", "doubt", "visits", "blocks"] {
            assert!(row.get(field).is_some(), "{field}: {row}");
        }
        if row["available"] == false {
            assert!(row["why"].as_str().is_some_and(|why| why.len() > 5), "no reason: {row}");
            assert!(row["overhead_ns"].is_null() && row["predicted_ns"].is_null(), "{row}");
            continue;
        }
        if row["overhead_ns"].is_null() {
            let why = row["why"].as_str().unwrap_or_default();
            assert!(why.contains("never ran at the same time"), "available, but no figure: {row}");
            continue;
        }
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        let (base, probed, overhead) = (number("base_ns"), number("probed_ns"), number("overhead_ns"));
        assert!(base > 0.0 && probed > 0.0, "{row}");
        // Both are rounded to hundredths of a nanosecond; calls take one.
        let percent = number("overhead_percent");
        assert!((overhead / base * 100.0 - percent).abs() <= 2.0 + 0.02 * percent.abs(), "{row}");
        if let Some(interval) = row["ci95_ns"].as_array() {
            let [low, high] = [0, 1].map(|n| interval[n].as_f64().expect("number"));
            assert!(low <= high, "{row}");
        }
        // The program ran once for each operation, or twice in a session, or the row would be doubtful for that reason.
        let doubt = row["doubt"].as_str().unwrap_or_default();
        assert!(!doubt.contains("its program ran"), "{row}");
        assert!(row["visits"].as_u64() > Some(0) && row["blocks"].as_u64() > Some(0), "{row}");
    }
}

#[test]
fn wrong_usage() {
    for (arguments, words) in [
        ("weigh --probe nonsense", &["nonsense", "uprobe_multi"][..]),
        ("weigh --program everything", &["everything", "per_cpu_counter"]),
        ("weigh --threads 0", &["--threads"]),
        ("weigh --threads 4096", &["4096"]),
        ("weigh --threads two", &["two"]),
        ("weigh --time 10ms", &["--time", "1s"]),
        ("weigh --time 2h", &["--time", "1h"]),
        ("weigh --time 5s --quick", &["--quick"]),
        ("weigh -f html", &["html", "markdown"]),
        ("weigh -o prices.bin", &["prices.bin", ".svg"]),
        ("weigh --app nonsense", &["nonsense"]),
        ("weigh --app tls --threads 2", &["--threads"]),
        ("weigh tracepoint:syscalls:sys_enter_getppid --quick", &["--quick"]),
    ] {
        let run = Lightfoot::new(arguments).run();
        run.assert_fails(2, words);
        assert!(run.objects.is_empty(), "{arguments}: nothing was loaded");
    }
}

#[test]
fn without_privileges() {
    let Some(_turn) = privileged("without_privileges") else { return };
    let run = Lightfoot::as_nobody("weigh --quick").run();
    run.assert_fails(4, &["CAP_BPF", "root"]);
}

/// The whole ladder, roughly: all that this kernel has, and why it has not the rest.
#[test]
fn every_mechanism_is_a_row() {
    let Some(_turn) = privileged("every_mechanism_is_a_row") else { return };
    let run = Lightfoot::new("weigh --quick --program empty -f json").limit(LIMIT).run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let json = parse(&run.stdout);
    check_rows(&json);
    for mechanism in MECHANISMS {
        assert!(rows(&json).iter().any(|row| row["probe"] == mechanism), "{mechanism}");
    }
    let cost = |probe: &str, site: &str| {
        let row = rows(&json).iter().find(|row| row["probe"] == probe && row["site"] == site);
        row.expect("row")["overhead_ns"].as_f64()
    };
    for probe in ["uprobe", "uprobe_multi"] {
        // Two traps against a call: thirty times and more.
        if let (Some(cheap), Some(dear)) = (cost(probe, "nop5"), cost(probe, "single_stepped")) {
            assert!(dear > 3.0 * cheap, "{probe}: single-stepped {dear} ns, nop5 {cheap} ns");
        }
    }
    assert!(!run.objects.is_empty(), "programs were loaded, and are gone now");
    // The kernel's statistics leave out the trap, so they claim less than was measured.
    let row =
        rows(&json).iter().find(|row| row["probe"] == "uprobe_multi" && row["site"] == "single_stepped");
    let row = row.expect("row");
    if let (Some(claim), Some(measured)) = (row["kernel_stats_ns"].as_f64(), row["overhead_ns"].as_f64()) {
        assert!(claim * 3.0 < measured, "{row}");
    }
}

/// All programs, on one kind in the kernel and one in a program.
#[test]
fn every_program_runs() {
    let Some(_turn) = privileged("every_program_runs") else { return };
    let programs = "empty,filter,per_cpu_counter,shared_counter,simple,complex,event,user_stack,kernel_stack";
    let run =
        Lightfoot::new(&format!("weigh --quick --probe tp_btf,uprobe_session --program {programs} -f json"))
            .limit(LIMIT)
            .run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let json = parse(&run.stdout);
    check_rows(&json);
    for program in programs.split(',') {
        for probe in ["tp_btf", "uprobe_session"] {
            assert!(
                rows(&json).iter().any(|row| row["probe"] == probe && row["program"] == program),
                "{probe} {program}"
            );
        }
    }
}

/// Two threads that run into one counter.
#[test]
fn threads() {
    let Some(_turn) = privileged("threads") else { return };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return lightfoot_tests::out_of_reach("threads", "one CPU only");
    }
    let run =
        Lightfoot::new("weigh --quick --probe raw_tracepoint --program shared_counter --threads 1,2 -f json")
            .limit(LIMIT)
            .run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let json = parse(&run.stdout);
    check_rows(&json);
    let threads: Vec<u64> = rows(&json).iter().filter_map(|row| row["threads"].as_u64()).collect();
    assert_eq!(threads, [1, 2]);
}

/// The ending of the output's name chooses the format; each comes out whole.
#[test]
fn formats() {
    let Some(_turn) = privileged("formats") else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    for (name, begins, has) in [
        ("a.txt", "Linux ", "tp_btf sys_enter"),
        ("a.md", "Linux ", "| tp_btf | sys_enter | empty | 1 |"),
        ("a.svg", "<svg ", "</svg>"),
        ("a.json", "{", "\"lightfoot.weigh/1\""),
    ] {
        let path = dir.path().join(name);
        let run =
            Lightfoot::new("weigh --quick --probe tp_btf --program empty -o").arg(&path).limit(LIMIT).run();
        assert_eq!(run.code, Some(0), "{name}: {}", run.stderr);
        let text = std::fs::read_to_string(&path).expect("written");
        assert!(text.starts_with(begins) && text.contains(has), "{name}: {text}");
        assert!(run.stderr.contains(name), "it is said where: {}", run.stderr);
        assert!(run.stdout.is_empty(), "{name}");
    }
}

/// A kind that this kernel has not is a row that says so, and there is nothing to show beside it.
#[test]
fn only_what_is_not_here() {
    let Some(_turn) = privileged("only_what_is_not_here") else { return };
    let run = Lightfoot::new("weigh --quick --probe kprobe,fentry -f json").limit(LIMIT).run();
    let json = parse(&run.stdout);
    check_rows(&json);
    let here = rows(&json).iter().any(|row| row["available"] == true);
    assert_eq!(run.code, Some(if here { 0 } else { 4 }), "{}", run.stderr);
}

/// Ctrl-C: what was measured until then, marked as incomplete, and nothing stays attached.
#[test]
fn ended_early() {
    let Some(_turn) = privileged("ended_early") else { return };
    let mut running =
        Lightfoot::new("weigh --probe uprobe_multi,tp_btf --time 10m -f json").limit(LIMIT).spawn();
    running.attached();
    running.signal(2);
    let run = running.wait();
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    check_early(&parse(&run.stdout));
}

fn check_early(json: &Value) {
    for row in rows(json).iter().filter(|row| row["overhead_ns"].is_null()) {
        assert!(row["why"].is_string(), "{row}");
    }
}

/// An output that fails is one line and exit code 1; a reader that goes away is none.
#[test]
fn outputs_that_fail() {
    let Some(_turn) = privileged("outputs_that_fail") else { return };
    let full = || OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let small = "weigh --quick --probe tp_btf --program empty";
    let run = Lightfoot::new(small).stdout(Sink::File(full())).limit(LIMIT).run();
    run.assert_fails(1, &["standard output"]);
    let run = Lightfoot::new(small).stdout(Sink::ClosedPipe).limit(LIMIT).run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let run = Lightfoot::new("weigh -o /no/such/folder/a.svg").run();
    run.assert_fails(1, &["/no/such/folder/a.svg"]);
}
