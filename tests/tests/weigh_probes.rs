//! `lightfoot weigh PROBE...`: counts are exact, wrong input is one line, a budget is kept and said, nothing is left.

use lightfoot_tests::{
    BpfKind, Lightfoot, Run, Workload, lightfoot_binary, out_of_reach, privileged, program,
};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Calls of each test that counts.
const CALLS: u64 = 10_007;

/// `uprobe:.../caller:caller_NAME`.
fn in_caller(kind: &str, name: &str) -> String {
    format!("{kind}:{}:caller_{name}", program("caller").display())
}

const GETPPID: &str = "tracepoint:syscalls:sys_enter_getppid";

/// The JSON of a run that ended with `code`; the identity must hold for each probe.
#[track_caller]
fn report(run: &Run, bytes: &[u8], code: i32) -> Value {
    assert_eq!(run.code, Some(code), "exit code; stderr: {}", run.stderr);
    let report = parsed(bytes, &run.stderr);
    run.assert_was_watched();
    report
}

#[track_caller]
fn parsed(bytes: &[u8], stderr: &str) -> Value {
    let report: Value = serde_json::from_slice(bytes).unwrap_or_else(|e| panic!("{e}; stderr: {stderr}"));
    assert_eq!(report["schema"], "lightfoot.weigh-probes/1");
    for probe in probes(&report) {
        let sum: u64 =
            ["recorded", "filtered", "throttled", "lost"].iter().map(|part| number(probe, part)).sum();
        assert_eq!(number(probe, "fired"), sum, "the identity: {probe}");
        assert!(number(probe, "cut") <= number(probe, "throttled"), "{probe}");
    }
    report
}

fn probes(report: &Value) -> &[Value] {
    report["probes"].as_array().expect("probes")
}

#[track_caller]
fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("no {field} in {value}"))
}

/// `weigh ARGUMENTS -f json -o FILE -- caller WHAT`, and what it reports.
#[track_caller]
fn weigh_command(arguments: &[&str], what: &str, code: i32) -> Value {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("weigh.json");
    let run = Lightfoot::new("weigh")
        .args(arguments)
        .args(&["-f", "json", "-o"])
        .arg(&path)
        .command("caller", what)
        .run();
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{e}; stderr: {}", run.stderr));
    report(&run, &bytes, code)
}

#[test]
fn every_firing_of_a_command_is_counted() {
    let Some(_turn) = privileged("every_firing_of_a_command_is_counted") else { return };
    for (spec, what, more) in [
        (in_caller("uprobe", "push"), "push", &[][..]),
        (in_caller("uprobe", "nop5"), "nop5", &[]),
        (in_caller("uretprobe", "push"), "push", &[]),
        (in_caller("uprobe", "sub"), "sub", &["--naive"]),
        (GETPPID.into(), "getppid", &[]),
        (GETPPID.into(), "getppid", &["--naive"]),
        (in_caller("uprobe", "nop"), "nop", &["--body", "event"]),
        (in_caller("uprobe", "nop"), "nop", &["--budget", "100%"]),
    ] {
        let mut arguments = vec![spec.as_str()];
        arguments.extend(more);
        let report = weigh_command(&arguments, &format!("--what {what} --exactly {CALLS} --at-once"), 0);
        let probe = &probes(&report)[0];
        let own = number(probe, "recorded") + number(probe, "throttled");
        assert_eq!(own, CALLS, "{arguments:?}: {probe}");
        assert!(probe["predicted"]["total_ns"].as_f64() > Some(0.0), "{arguments:?}: {probe}");
        assert!(probe["live_ns"].as_f64() > Some(0.0), "{arguments:?}: {probe}");
        assert!(report["cost"]["probes_ns"].as_f64() > Some(0.0), "{arguments:?}: {}", report["cost"]);
    }
}

/// Each process has its share of the firings.
#[test]
fn firings_are_told_apart_by_process() {
    let Some(_turn) = privileged("firings_are_told_apart_by_process") else { return };
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("weigh.json");
    // A copy of its own: no other test's process fires.
    let copy = dir.path().join("caller");
    std::fs::copy(program("caller"), &copy).expect("copy");
    let spec = format!("uprobe:{}:caller_push", copy.display());
    let mut weigh = Command::new(lightfoot_binary());
    weigh.args([
        "weigh",
        &spec,
        "--explain",
        "--events",
        &(3 * CALLS).to_string(),
        "-d",
        "60s",
        "-f",
        "json",
        "-o",
    ]);
    let mut weigh = weigh.arg(&path).stderr(Stdio::piped()).spawn().expect("lightfoot");
    let mut said = BufReader::new(weigh.stderr.take().expect("stderr"));
    let mut line = String::new();
    said.read_line(&mut line).expect("stderr");
    assert!(line.contains("caller_push"), "it explains once all is attached: {line}");
    let call = |calls: u64| {
        let mut command = Command::new(&copy);
        command.args(["--what", "push", "--at-once", "--exactly", &calls.to_string()]).stdout(Stdio::null());
        let mut child = command.spawn().expect("caller");
        child.wait().expect("wait");
        child.id()
    };
    let (one, two) = (call(CALLS), call(2 * CALLS));
    said.read_to_string(&mut line).expect("stderr");
    assert!(weigh.wait().expect("wait").success(), "{line}");
    let report = parsed(&std::fs::read(&path).expect("report"), &line);
    let firings = |pid: u32| {
        let all = report["processes"].as_array().expect("processes");
        let process = all.iter().find(|process| process["pid"] == pid).expect("process");
        (process["firings"][0][1].as_u64(), process["total_ns"].as_f64().expect("ns"))
    };
    let ((first, cheap), (second, dear)) = (firings(one), firings(two));
    assert_eq!((first, second), (Some(CALLS), Some(2 * CALLS)));
    assert!((dear / cheap - 2.0).abs() < 1e-6, "cost goes by firings: {cheap} and {dear}");
}

#[test]
fn wrong_input_is_one_line() {
    let Some(_turn) = privileged("wrong_input_is_one_line") else { return };
    let caller = program("caller").display().to_string();
    for (arguments, code, words) in [
        (vec![in_caller("uprobe", "pus")], 1, vec!["caller_pus", "caller_push"]),
        (vec![format!("uprobe:{caller}:no_such_thing_at_all")], 1, vec!["no_such_thing_at_all"]),
        (vec!["uprobe:/no/such/file:main".into()], 1, vec!["/no/such/file"]),
        (vec![format!("usdt:{caller}:nobody:nothing")], 1, vec!["usdt"]),
        (vec!["tracepoint:syscalls:sys_enter_getpppid".into()], 1, vec!["getppid"]),
        (vec!["uprobe".into()], 2, vec!["uprobe"]),
        (vec!["fprobe:x".into()], 2, vec!["fprobe"]),
        (
            vec![format!("uprobe:{caller}:caller_*"), "--max-probes".into(), "3".into()],
            1,
            vec!["5", "3", "--max-probes"],
        ),
        (vec![GETPPID.into(), "-p".into(), "4194303".into()], 1, vec!["4194303"]),
        (vec![GETPPID.into(), "-f".into(), "svg".into()], 2, vec!["svg", "json"]),
        (vec![GETPPID.into(), "--".into(), "/no/such/command".into()], 1, vec!["/no/such/command"]),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let run = Lightfoot::new("weigh").args(&arguments).run();
        run.assert_fails(code, &words);
    }
    for arguments in [
        "weigh -p 1",
        "weigh --budget 1%",
        "weigh x --budget 7",
        "weigh x --body filter",
        "weigh x -l -d 1s",
        "weigh -- true",
    ] {
        let run = Lightfoot::new(arguments).run();
        assert_eq!(run.code, Some(2), "{arguments}; stderr: {}", run.stderr);
        assert!(run.objects.is_empty(), "{arguments}: nothing was loaded");
    }
}

/// A kind that this kernel does not have is told as such.
#[test]
fn a_kind_that_is_not_here() {
    let Some(_turn) = privileged("a_kind_that_is_not_here") else { return };
    use lightfoot_kernel::probes::support;
    use lightfoot_model::Mechanism::*;
    if [Kprobe, KprobeMulti, Fentry].into_iter().any(|mechanism| support::check(mechanism).is_ok()) {
        eprintln!("a_kind_that_is_not_here: this kernel can probe its functions");
        return;
    }
    Lightfoot::new("weigh kprobe:vfs_read -d 1s").run().assert_fails(4, &["kprobe"]);
}

#[test]
fn missing_privilege_names_the_capability() {
    let name = "missing_privilege_names_the_capability";
    let Some(_turn) = privileged(name) else { return };
    let without = "-bpf,-perfmon,-sys_admin";
    let wrapper = ["setpriv", "--bounding-set", without, "--inh-caps", without];
    let works = Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").output();
    if !works.is_ok_and(|output| output.status.success()) {
        return out_of_reach(name, "setpriv cannot drop capabilities");
    }
    for spec in [GETPPID.to_string(), in_caller("uprobe", "push")] {
        let run = Lightfoot::under(&wrapper, "weigh -d 1s").arg(spec).run();
        run.assert_fails(4, &["CAP_BPF"]);
    }
}

#[test]
fn a_target_that_ends_ends_the_run() {
    let Some(_turn) = privileged("a_target_that_ends_ends_the_run") else { return };
    let target = Workload::start("caller", "--what getppid --seconds 2 --deaf");
    let run = Lightfoot::new(&format!("weigh {GETPPID} -f json -d 50s -p {}", target.pid())).run();
    let report = report(&run, &run.stdout, 0);
    assert_eq!(number(&report, "pid"), u64::from(target.pid()));
    assert!(number(&probes(&report)[0], "fired") > 0);
}

/// A program that waits, and its calls counted from the moment that all is attached: what lightfoot said, and its report.
fn weigh_waiting(target: &mut Command, ready: impl FnOnce(), spec: &str) -> (String, Value) {
    let mut target = target.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("target");
    let mut line = String::new();
    let mut lines = BufReader::new(target.stdout.take().expect("stdout"));
    lines.read_line(&mut line).expect("ready");
    assert_eq!(line, "ready\n");
    ready();
    let mut weigh = Command::new(lightfoot_binary());
    weigh.args(["weigh", spec, "--explain", "-f", "json", "-d", "60s", "-p", &target.id().to_string()]);
    let mut weigh = weigh.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("lightfoot");
    let mut said = BufReader::new(weigh.stderr.take().expect("stderr"));
    let mut stderr = String::new();
    // It explains once all is attached.
    said.read_line(&mut stderr).expect("stderr");
    target.stdin.take().expect("stdin").write_all(b"go\n").expect("go");
    assert!(target.wait().expect("target").success());
    said.read_to_string(&mut stderr).expect("stderr");
    let output = weigh.wait_with_output().expect("lightfoot");
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let report = parsed(&output.stdout, &stderr);
    (stderr, report)
}

/// The file at the path is another one by now: what the process runs is probed.
#[test]
fn a_program_replaced_on_disk() {
    let Some(_turn) = privileged("a_program_replaced_on_disk") else { return };
    let dir = tempfile::tempdir().expect("folder");
    let (path, newer) = (dir.path().join("prog"), dir.path().join("prog.new"));
    std::fs::copy(program("caller"), &path).expect("copy");
    let replace = || {
        std::fs::copy(program("caller"), &newer).expect("copy");
        std::fs::rename(&newer, &path).expect("replace");
    };
    let mut target = Command::new(&path);
    target.args(["--what", "push", "--exactly", &CALLS.to_string()]);
    let spec = format!("uprobe:{}:caller_push", path.display());
    let (said, report) = weigh_waiting(&mut target, replace, &spec);
    assert!(said.contains("replaced"), "it says so: {said}");
    assert_eq!(number(&probes(&report)[0], "recorded"), CALLS, "{said}");
}

/// Another file stands at the path in the process's own mount namespace.
#[test]
fn a_program_in_another_mount_namespace() {
    let Some(_turn) = privileged("a_program_in_another_mount_namespace") else { return };
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("prog");
    std::fs::copy("/bin/true", &path).expect("copy");
    // Seen in there only, and gone with the process.
    let script = "mount -t tmpfs none \"$1\" && cp \"$2\" \"$1/prog\" && exec \"$1/prog\" --what push --exactly \"$3\"";
    let mut target = Command::new("unshare");
    target.args(["-m", "--propagation", "private", "sh", "-c", script, "sh"]);
    target.arg(dir.path()).arg(program("caller")).arg(CALLS.to_string());
    let spec = format!("uprobe:{}:caller_push", path.display());
    let (said, report) = weigh_waiting(&mut target, || {}, &spec);
    assert_eq!(number(&probes(&report)[0], "recorded"), CALLS, "{said}");
}

/// More firings than any budget allows: the probe goes, each firing until then has its outcome, and the command goes on.
#[test]
fn a_flood_under_a_budget() {
    let Some(_turn) = privileged("a_flood_under_a_budget") else { return };
    for (spec, what) in [(GETPPID.to_string(), "getppid"), (in_caller("uprobe", "push"), "push")] {
        let report = weigh_command(
            &[&spec, "--budget", "0.5%", "--body", "kernel_stack"],
            &format!("--flood --deaf --what {what} --seconds 2"),
            3,
        );
        let probe = &probes(&report)[0];
        assert!(probe["detached_ns"].as_u64().is_some(), "{probe}");
        assert!(number(probe, "fired") > 0, "{probe}");
        assert_eq!(report["budget"]["detached"], 1);
        let notes = report["notes"].to_string();
        assert!(notes.contains("was detached after"), "{notes}");
        assert!(number(&report, "duration_ns") > 1_900_000_000, "the command was not cut short");
    }
}

/// Bodies that are too dear for the budget are run for one in N firings: the estimate fits what fired.
#[test]
fn one_in_n_estimates_what_fired() {
    let Some(_turn) = privileged("one_in_n_estimates_what_fired") else { return };
    // On a function of the program's own: other processes make the same system calls, but not this call.
    let spec = in_caller("uprobe", "nop");
    let target = Workload::start("caller", "--deaf --what nop --calls 50 --pause-us 2000 --seconds 40");
    let weigh = |more: &str| {
        let arguments = format!("weigh {spec} --body user_stack -f json -p {} {more}", target.pid());
        let run = Lightfoot::new(&arguments).run();
        report(&run, &run.stdout, 0)
    };
    // A budget for the triggers and half of the bodies, whatever they cost here.
    let tried = weigh("--dry-run");
    let ns = |what: &str| probes(&tried)[0]["predicted"][what].as_f64().expect("price");
    let per_s = probes(&tried)[0]["trial_per_s"].as_f64().expect("rate");
    let budget = per_s * (ns("trigger_ns") + 20.0 + ns("body_ns") / 2.0) / 0.8 / 1e7;
    let report = weigh(&format!("--budget {budget:.4}% -d 5s"));
    let probe = &probes(&report)[0];
    assert!(number(probe, "one_in_max") > 1 && number(probe, "throttled") > 0, "{budget} %: {probe}");
    let whole = number(probe, "fired") - number(probe, "filtered") - number(probe, "cut");
    let (estimate, error) = (number(probe, "estimate"), probe["estimate_error"].as_f64().expect("error"));
    let off = (estimate as f64 - whole as f64).abs();
    // N changes while firings go on: some of them are weighed by the N before.
    assert!(off <= 6.0 * error + 0.02 * whole as f64, "{estimate} +- {error} of {whole}: {probe}");
}

#[test]
fn a_dry_run_says_what_it_would_cost() {
    let Some(_turn) = privileged("a_dry_run_says_what_it_would_cost") else { return };
    let target = Workload::start("caller", "--flood --deaf --what getppid --seconds 20");
    let run = Lightfoot::new(&format!("weigh {GETPPID} --dry-run -f json -p {}", target.pid())).run();
    let report = report(&run, &run.stdout, 0);
    assert_eq!(report["dry_run"], true);
    assert!(probes(&report)[0]["trial_per_s"].as_f64() > Some(10_000.0), "{report}");
    assert!(run.stderr.contains("warning") && run.stderr.contains("times a second"), "{}", run.stderr);
}

#[test]
fn listing_attaches_nothing() {
    let Some(_turn) = privileged("listing_attaches_nothing") else { return };
    let run = Lightfoot::new("weigh -l").arg(in_caller("uprobe", "*")).run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let listed = String::from_utf8_lossy(&run.stdout);
    for name in ["nop5", "nop", "push", "jump", "sub"] {
        assert!(listed.lines().any(|line| line == in_caller("uprobe", name)), "{name}: {listed}");
    }
    assert!(!run.objects.iter().any(|object| object.kind == BpfKind::Link), "{:?}", run.objects);
    // Whether tracefs is mounted or not, and it is mounted for nobody else.
    let mounts = || std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let before = mounts();
    let run = Lightfoot::new("weigh -l tracepoint:sched:sched_switc*").run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(String::from_utf8_lossy(&run.stdout), "tracepoint:sched:sched_switch\n");
    assert_eq!(mounts(), before);
}

#[test]
fn ctrl_c_delivers() {
    let Some(_turn) = privileged("ctrl_c_delivers") else { return };
    let target = Workload::start("caller", "--deaf --what push --pause-us 1000 --seconds 40");
    let spec = in_caller("uprobe", "push");
    let mut running = Lightfoot::new(&format!("weigh {spec} -f json -d 60s -p {}", target.pid())).spawn();
    running.attached();
    std::thread::sleep(Duration::from_millis(2500));
    running.signal(libc::SIGINT);
    let run = running.wait();
    let report = report(&run, &run.stdout, 0);
    assert!(number(&probes(&report)[0], "fired") > 0, "{report}");
}

#[test]
fn killed_outright_it_leaves_nothing() {
    let Some(_turn) = privileged("killed_outright_it_leaves_nothing") else { return };
    let mut target = Command::new(program("caller"));
    target.args(["--what", "push", "--exactly", &CALLS.to_string()]);
    let mut target = target.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("target");
    let spec = in_caller("uprobe", "push");
    let arguments = format!("weigh {spec} {GETPPID} --budget 50% -d 60s -p {}", target.id());
    let mut running = Lightfoot::new(&arguments).spawn();
    running.attached();
    std::thread::sleep(Duration::from_millis(2500));
    running.signal(libc::SIGKILL);
    let run = running.wait(); // fails if a program, map or link is left
    run.assert_was_watched();
    assert_eq!(run.signal, Some(libc::SIGKILL));
    target.stdin.take().expect("stdin").write_all(b"go\n").expect("go");
    let output = target.wait_with_output().expect("target");
    assert!(output.status.success(), "the target is as it was");
}
