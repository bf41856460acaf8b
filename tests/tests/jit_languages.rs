//! Java and Node: code made at run time is named, and reaches its root by frame pointers.

use lightfoot_tests::{Lightfoot, Report, Workload, assert_share, out_of_reach, privileged, workspace};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options that keep the functions of `Hot` apart, and frame pointers.
const KEEP: [&str; 3] =
    ["-XX:+PreserveFramePointer", "-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Hot::*"];

/// A folder with `Hot.class` that every user can read; `None` if there is no Java.
fn java(test: &str) -> Option<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    // "javac 17.0.15"
    let version = Command::new("javac").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let number = |text: &str| text.split([' ', '.', '-']).nth(1)?.trim().parse::<u32>().ok();
    if let Ok(version) = &version
        && number(version).is_none_or(|major| major < 17)
    {
        out_of_reach(test, &format!("JDK 17 or later is needed, this is {}", version.trim()));
        return None;
    }
    let dir = tempfile::tempdir().expect("folder");
    let source = workspace().join("tests/programs/jit/Hot.java");
    match Command::new("javac").arg("-d").arg(dir.path()).arg(source).output() {
        Ok(made) => assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr)),
        Err(error) => {
            out_of_reach(test, &format!("javac: {error}"));
            return None;
        }
    }
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("chmod");
    Some(dir)
}

/// `WRAPPER java OPTIONS Hot MS`.
fn hot(wrapper: &[&str], options: &[&str], classes: &Path, ms: u32) -> Command {
    let words: Vec<&str> = wrapper.iter().chain(&["java"]).chain(options).copied().collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg("-cp").arg(classes).arg("Hot").arg(ms.to_string());
    command
}

/// Waits until the functions are compiled.
fn ready(command: &mut Command) -> Workload {
    let mut workload = Workload::spawn(command);
    assert_eq!(workload.next_line()["event"], "ready");
    workload
}

/// The parts of a method's name in different versions: `long Hot.leafA(long)`.
fn is(frame: &str, method: &str) -> bool {
    frame.contains(method) && frame[frame.find(method).unwrap_or(0) + method.len()..].starts_with(['(', ' '])
}

/// How many samples have `names` next to each other in their stack, and how many have the last one in it.
fn in_a_row(report: &Report, names: &[&str]) -> (u64, u64) {
    let row = report.count(|stack| {
        stack.frames.windows(names.len()).any(|w| w.iter().zip(names).all(|(frame, name)| is(frame, name)))
    });
    let through = report.count(|stack| stack.frames.iter().any(|frame| is(frame, names[names.len() - 1])));
    (row, through)
}

fn notes(report: &Report) -> String {
    let notes = report.json["meta"]["notes"].as_array().map_or(&[][..], Vec::as_slice);
    notes.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
}

/// Nothing that we had the JVM write stays in the `/tmp` of process `pid`.
#[track_caller]
fn left_nothing(pid: u32) {
    for name in [format!("perf-{pid}.map"), format!(".attach_pid{pid}")] {
        assert!(!Path::new("/tmp").join(&name).exists(), "{name} was left behind");
    }
}

/// The chain of `Hot`, its split, and its root, which is a function of the JVM's own.
#[track_caller]
fn check_java(report: &Report, whole_percent: u64) {
    let (a, through_a) = in_a_row(report, &["Hot.outer", "Hot.middle", "Hot.leafA"]);
    let (b, through_b) = in_a_row(report, &["Hot.outer", "Hot.leafB"]);
    assert!(through_a > 200 && through_b > 60, "{}\n{}", notes(report), report.heaviest(|_| true));
    let (row, through) = (a + b, through_a + through_b);
    assert!(row * 100 >= through * whole_percent, "{row} of {through}: {}", report.heaviest(|_| true));
    assert_share("leafA", a as f64 / row as f64, 0.7, row);
    let rooted = report.count(|stack| {
        stack.outcome == "complete"
            && stack.frames.iter().any(|frame| frame.contains("JavaMain"))
            && stack.frames.iter().any(|frame| is(frame, "Hot.outer"))
    });
    assert!(rooted * 100 >= through * whole_percent, "{rooted} of {through}: {}", report.heaviest(|_| true));
}

/// A JVM that runs is asked, and both files that this needs are gone afterwards.
#[test]
fn java_is_named_and_whole() {
    let test = "java_is_named_and_whole";
    let Some(_turn) = privileged(test) else { return };
    let Some(classes) = java(test) else { return };
    let target = ready(&mut hot(&[], &KEEP, classes.path(), 8000));
    let report = Lightfoot::new(&format!("profile -F 499 --no-kernel -d 2s -p {}", target.pid())).report(0);
    check_java(&report, 98);
    let frame = report.frame("long Hot.leafA(long)").or(report.frame("Hot.leafA(long)"));
    assert!(frame.is_none_or(|frame| frame["kind"] == "jit"), "{frame:?}");
    left_nothing(target.pid());
}

/// A JVM that has exited cannot be asked: it was asked while it ran.
#[test]
fn java_as_a_command_that_ends_by_itself() {
    let test = "java_as_a_command_that_ends_by_itself";
    let Some(_turn) = privileged(test) else { return };
    let Some(classes) = java(test) else { return };
    let command = hot(&[], &KEEP, classes.path(), 4500);
    let mut run = Lightfoot::new("profile -F 499 --no-kernel --").arg(command.get_program());
    for argument in command.get_args() {
        run = run.arg(argument);
    }
    let report = run.report(0);
    // From the start: what ran in the interpreter and in the first versions of the code is in it, too.
    check_java(&report, 90);
}

/// The same when lightfoot ends the command.
#[test]
fn java_as_a_command_that_is_ended() {
    let test = "java_as_a_command_that_is_ended";
    let Some(_turn) = privileged(test) else { return };
    let Some(classes) = java(test) else { return };
    let command = hot(&[], &KEEP, classes.path(), 60_000);
    let mut run = Lightfoot::new("profile -F 499 --no-kernel -d 3500ms --").arg(command.get_program());
    for argument in command.get_args() {
        run = run.arg(argument);
    }
    check_java(&run.report(0), 90);
}

/// In namespaces of its own the JVM has another process id and another /tmp.
#[test]
fn java_in_a_container() {
    let test = "java_in_a_container";
    let Some(_turn) = privileged(test) else { return };
    let Some(classes) = java(test) else { return };
    let own_tmp = "mount -t tmpfs tmpfs /tmp && exec \"$@\"";
    let script = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", own_tmp, "sh"];
    // Its class has to be somewhere else than in the /tmp that is hidden.
    let home = PathBuf::from("/var/tmp").join(format!("lightfoot-java-{}", std::process::id()));
    std::fs::create_dir_all(&home).expect("folder");
    std::fs::copy(classes.path().join("Hot.class"), home.join("Hot.class")).expect("copy");
    let target = ready(&mut hot(&script, &KEEP, &home, 8000));
    // The child of unshare is the JVM, by its exec.
    let children = format!("/proc/{0}/task/{0}/children", target.pid());
    let jvm: u32 = std::fs::read_to_string(children).expect("children").trim().parse().expect("one child");
    let report = Lightfoot::new(&format!("profile -F 499 --no-kernel -d 2s -p {jvm}")).report(0);
    let own_tmp = PathBuf::from(format!("/proc/{jvm}/root/tmp"));
    let left: Vec<_> = std::fs::read_dir(own_tmp).expect("/tmp").flatten().map(|e| e.file_name()).collect();
    std::fs::remove_dir_all(&home).ok();
    check_java(&report, 98);
    left_nothing(jvm);
    assert!(
        !left.iter().any(|n| n.to_string_lossy().contains("perf-") && n.to_string_lossy().ends_with(".map")),
        "{left:?}"
    );
}

/// Root asks the JVM of another user.
#[test]
fn java_of_another_user() {
    let test = "java_of_another_user";
    let Some(_turn) = privileged(test) else { return };
    let Some(classes) = java(test) else { return };
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let target = ready(&mut hot(&nobody, &KEEP, classes.path(), 8000));
    let report = Lightfoot::new(&format!("profile -F 499 --no-kernel -d 2s -p {}", target.pid())).report(0);
    check_java(&report, 98);
    left_nothing(target.pid());
}

/// A JVM that may not or does not want to be asked is not, keeps running, and the profile says what is missing.
#[test]
fn java_that_is_not_asked_lives_on() {
    let test = "java_that_is_not_asked_lives_on";
    let Some(_turn) = privileged(test) else { return };
    let Some(classes) = java(test) else { return };
    for (option, jvm_option, says) in [
        ("--no-jvm-attach", "-XX:+PreserveFramePointer", "--no-jvm-attach"),
        ("", "-XX:+DisableAttachMechanism", "DisableAttachMechanism"),
    ] {
        let mut options = KEEP.to_vec();
        options.push(jvm_option);
        let target = ready(&mut hot(&[], &options, classes.path(), 5000));
        let pid = target.pid();
        let report = Lightfoot::new(&format!("profile -F 499 --no-kernel -d 1s -p {pid} {option}")).report(0);
        assert_eq!(in_a_row(&report, &["Hot.leafA"]).0, 0, "{says}");
        assert!(notes(&report).contains(says), "{says}: {}", notes(&report));
        assert!(!Path::new(&format!("/tmp/.java_pid{pid}")).exists(), "{says}: it was asked");
        left_nothing(pid);
        // Frames without names, but all of them: the walk needs no names.
        let deep = report.count(|stack| stack.outcome == "complete" && stack.frames.len() > 8);
        assert!(deep * 100 > report.accounting.recorded * 95, "{says}: {}", report.heaviest(|_| true));
        // Its line of truth, after five seconds, is the next thing it prints: no thread dump, no death.
        assert_eq!(target.truth()["program"], "Hot");
    }
}

/// A JVM that leaves SIGQUIT alone would be killed by it; it listens from the start instead, and is not signalled.
#[test]
fn java_without_signal_handlers() {
    let test = "java_without_signal_handlers";
    let Some(_turn) = privileged(test) else { return };
    let Some(classes) = java(test) else { return };
    let target = ready(&mut hot(&[], &[&KEEP[..], &["-Xrs"]].concat(), classes.path(), 5000));
    let report = Lightfoot::new(&format!("profile -F 499 --no-kernel -d 2s -p {}", target.pid())).report(0);
    check_java(&report, 98);
    assert_eq!(target.truth()["program"], "Hot");
}

/// A JVM that is stopped does not stop lightfoot.
#[test]
fn java_that_hangs_is_left() {
    let test = "java_that_hangs_is_left";
    let Some(_turn) = privileged(test) else { return };
    let Some(classes) = java(test) else { return };
    let target = ready(&mut hot(&[], &KEEP, classes.path(), 30_000));
    let mut running = Lightfoot::new(&format!("profile -F 499 -d 900ms -p {}", target.pid())).spawn();
    running.attached();
    std::thread::sleep(std::time::Duration::from_millis(300));
    lightfoot_tests::signal(target.pid(), libc::SIGSTOP);
    let run = running.wait();
    lightfoot_tests::signal(target.pid(), libc::SIGCONT);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.wall.as_secs() < 10, "{:?}", run.wall);
    left_nothing(target.pid());
}

/// `node OPTIONS hot.js MS`, its functions kept apart.
fn node(test: &str, options: &[&str]) -> Option<Workload> {
    if Command::new("node").arg("--version").output().is_err() {
        out_of_reach(test, "there is no node");
        return None;
    }
    let mut command = Command::new("node");
    command.arg("--max-inlined-bytecode-size=0").args(options);
    Some(ready(command.arg(workspace().join("tests/programs/jit/hot.js")).arg("6000")))
}

/// Node's perf map, and the way from `main` through V8 to a JavaScript function.
#[test]
fn node_is_named_and_whole() {
    let test = "node_is_named_and_whole";
    let Some(_turn) = privileged(test) else { return };
    let Some(target) = node(test, &["--perf-basic-prof"]) else { return };
    let map = PathBuf::from(format!("/tmp/perf-{}.map", target.pid()));
    let report = Lightfoot::new(&format!("profile -F 499 --no-kernel -d 2s -p {}", target.pid())).report(0);
    drop(target);
    std::fs::remove_file(map).expect("node's own map is still there");
    let (a, through_a) = in_a_row(&report, &["*outer", "*middle", "*leafA"]);
    let (b, through_b) = in_a_row(&report, &["*outer", "*leafB"]);
    assert!(through_a > 200 && through_b > 60, "{}", report.heaviest(|_| true));
    assert!((a + b) * 100 >= (through_a + through_b) * 98, "{}", report.heaviest(|_| true));
    assert_share("leafA", a as f64 / (a + b) as f64, 0.7, a + b);
    let rooted = report.count(|stack| {
        let position = |name: &str| stack.frames.iter().position(|frame| frame.contains(name));
        let (start, script) = (position("node::Start"), position("*outer"));
        stack.outcome == "complete" && start.is_some() && start < script
    });
    assert!(rooted * 100 >= (a + b) * 98, "{rooted} of {}: {}", a + b, report.heaviest(|_| true));
}

/// Without a perf map the profile says how to get one.
#[test]
fn node_without_a_map_says_what_is_missing() {
    let test = "node_without_a_map_says_what_is_missing";
    let Some(_turn) = privileged(test) else { return };
    let Some(target) = node(test, &[]) else { return };
    let report = Lightfoot::new(&format!("profile -F 499 --no-kernel -d 1s -p {}", target.pid())).report(0);
    assert_eq!(in_a_row(&report, &["*leafA"]).1, 0);
    assert!(notes(&report).contains("--perf-basic-prof"), "{}", notes(&report));
}
