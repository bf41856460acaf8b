//! What can be profiled: commands and what they start, processes that come and go, cgroups, the whole machine, other namespaces.

use lightfoot_tests::{Lightfoot, Report, Workload, out_of_reach, privileged};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A command's exit status is lightfoot's own.
#[test]
fn the_exit_status_of_a_command_is_passed_on() {
    let Some(_turn) = privileged("the_exit_status_of_a_command_is_passed_on") else { return };
    for (arguments, code) in [
        ("--after-ms 300 --burn --code 0", 0),
        ("--after-ms 300 --burn --code 7", 7),
        ("--code 255", 255),
        ("--after-ms 100 --signal 15", 128 + 15),
        ("--signal 9", 128 + 9),
    ] {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join("p.json");
        let run = Lightfoot::new("profile -f json -o").arg(&path).command("exiter", arguments).run();
        assert_eq!(run.code, Some(code), "exiter {arguments}; stderr: {}", run.stderr);
        let report =
            Report::parse(&std::fs::read(&path).expect("the profile is delivered whatever the status"));
        if arguments.contains("--burn") {
            assert!(report.through("exiter_hot") > 5, "exiter {arguments}");
        }
    }
}

/// A command with no arguments of lightfoot's: its options are its own.
#[test]
fn options_after_the_command_belong_to_it() {
    let Some(_turn) = privileged("options_after_the_command_belong_to_it") else { return };
    let dir = tempfile::tempdir().expect("folder");
    let run = Lightfoot::new("profile -o")
        .arg(dir.path().join("p.json"))
        .arg("--")
        .arg("echo")
        .arg("-p")
        .arg("--help")
        .run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(String::from_utf8_lossy(&run.stdout), "-p --help\n");
}

/// A command that closes every descriptor it inherits has not ended.
#[test]
fn a_command_that_closes_its_descriptors() {
    let Some(_turn) = privileged("a_command_that_closes_its_descriptors") else { return };
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("p.json");
    let run = Lightfoot::new("profile -F 499 -o").arg(&path).command("closer", "--ms 800 --code 5").run();
    assert_eq!(run.code, Some(5), "{}", run.stderr);
    let report = Report::parse(&std::fs::read(&path).expect("profile"));
    assert!(report.through("closer_hot") > 40, "{}", report.heaviest(|_| true));
}

/// Descriptors of lightfoot's (maps, links, perf events) are not handed down to the command, where they would outlive the run.
#[test]
fn a_command_inherits_only_standard_descriptors() {
    let Some(_turn) = privileged("a_command_inherits_only_standard_descriptors") else { return };
    let dir = tempfile::tempdir().expect("folder");
    let list = "for fd in /proc/$$/fd/*; do echo ${fd##*/} $(readlink $fd); done";
    let run =
        Lightfoot::new("profile -o").arg(dir.path().join("p.json")).arg("--").args(&["sh", "-c", list]).run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let text = String::from_utf8_lossy(&run.stdout);
    for line in text.lines() {
        assert!(!line.contains("bpf") && !line.contains("perf_event"), "handed down: {text}");
    }
}

/// Children of a target that are born after the start are targets too, by pid and by command.
#[test]
fn children_that_appear_later() {
    let Some(_turn) = privileged("children_that_appear_later") else { return };
    let (report, run) = Lightfoot::new("profile -F 999")
        .command("forker", "--rate 50 --burn-ms 20 --seconds 3")
        .report_and_run(0);
    let truth = run.truth();
    let cpu = truth["children_cpu_ns"].as_f64().expect("ns") / 1e9;
    let samples = report.through("forked_hot");
    let ratio = samples as f64 / (cpu * 999.0);
    assert!((0.88..1.12).contains(&ratio), "{samples} samples in children that used {cpu:.2} s: {ratio:.3}");
    let distinct: std::collections::BTreeSet<u32> =
        report.stacks.iter().filter(|stack| stack.through("forked_hot")).map(|stack| stack.pid).collect();
    let children = truth["children"].as_u64().expect("children") as usize;
    assert!(distinct.len() * 10 > children * 8, "{} of {children} children told apart", distinct.len());
    assert!(
        report.count(|stack| stack.through("forked_hot") && stack.comm == "forked") * 100 > samples * 97,
        "children are named"
    );

    let target = Workload::start("forker", "--rate 50 --burn-ms 20 --seconds 5");
    std::thread::sleep(Duration::from_millis(300));
    let report = Lightfoot::new(&format!("profile -F 499 -d 2s -p {}", target.pid())).report(0);
    assert!(report.through("forked_hot") > 60, "{}", report.heaviest(|_| true));
    drop(target.truth());
}

/// As many children as the machine can make, each gone at once.
#[test]
fn a_target_that_forks_all_the_time() {
    let Some(_turn) = privileged("a_target_that_forks_all_the_time") else { return };
    for transfer in ["counted", "ring"] {
        let (report, run) = Lightfoot::new(&format!("profile -F 999 --transfer {transfer}"))
            .command("forker", "--rate 0 --burn-ms 1 --seconds 4")
            .report_and_run(0);
        let truth = run.truth();
        assert!(truth["children"].as_u64() > Some(500), "{truth}");
        assert_eq!(truth["children"], truth["ended"]);
        let cpu = truth["children_cpu_ns"].as_f64().expect("ns") / 1e9;
        let samples = report.through("forked_hot") as f64;
        assert!(samples > cpu * 999.0 * 0.5, "{samples} samples of forked_hot in {cpu:.2} s of children");
        assert!(report.cost("peak_rss_bytes") < 200 << 20, "memory stays bounded");
    }
}

/// Threads born after the start.
#[test]
fn threads_that_appear_later() {
    let Some(_turn) = privileged("threads_that_appear_later") else { return };
    let report = Lightfoot::new("profile -F 499").command("threads", "6 --hot 2 --seconds 2").report(0);
    for name in ["hot-0", "hot-1"] {
        assert!(
            report.count(|stack| stack.comm == name && stack.through("thread_hot")) > 40,
            "{}",
            report.heaviest(|_| true)
        );
    }
    assert!(report.count(|stack| stack.comm == "sleeper") < 20);
}

/// 10,000 threads, two of them at work.
#[test]
fn a_process_with_10_000_threads() {
    let Some(_turn) = privileged("a_process_with_10_000_threads") else { return };
    let target = Workload::ready("threads", "10000 --hot 2 --seconds 6");
    let (report, run) =
        Lightfoot::new(&format!("profile -F 499 -d 2s -p {}", target.pid())).report_and_run(0);
    let n = report.through("thread_hot");
    assert!(n > 100, "{n}: {}", report.heaviest(|_| true));
    assert_eq!(
        report.count(|stack| stack.comm == "hot-0" || stack.comm == "hot-1"),
        report.accounting.recorded
    );
    assert!(run.wall < Duration::from_secs(10), "{:?}", run.wall);
    assert!(report.cost("peak_rss_bytes") < 100 << 20);
}

/// A process that has exited long before the end is still named, frame by frame.
#[test]
fn a_process_that_has_exited_is_named() {
    let Some(_turn) = privileged("a_process_that_has_exited_is_named") else { return };
    for transfer in ["counted", "ring"] {
        let (report, run) = Lightfoot::new(&format!("profile -F 999 --transfer {transfer}"))
            .command("execer", "--cpu-ms 500 --seconds 1")
            .report_and_run(0);
        let child = run.truth()["child"].as_u64().expect("pid") as u32;
        let all = report.count(|stack| stack.pid == child);
        let named = report.count(|stack| {
            stack.pid == child && stack.through("execer_hot") && stack.through("root_of_stack")
        });
        assert!(all > 100, "{transfer}: {all}");
        assert!(
            named * 100 > all * 95,
            "{transfer}: {named} of {all}: {}",
            report.heaviest(|stack| stack.pid == child)
        );
        assert!(report.count(|stack| stack.pid == child && stack.comm == "execed") * 100 > all * 95);
    }
}

/// A target that ends during the run ends the run, or the run waits: either way the profile is whole.
#[test]
fn a_target_that_ends_early() {
    let Some(_turn) = privileged("a_target_that_ends_early") else { return };
    let target = Workload::start("exiter", "--after-ms 1500 --burn");
    let report = Lightfoot::new(&format!("profile -F 499 -d 4s -p {}", target.pid())).report(0);
    assert!(report.through("exiter_hot") > 30, "{}", report.heaviest(|_| true));
}

/// The version 2 hierarchy: where it is mounted, or mounted privately by the test and taken away again.
struct Cgroup {
    path: PathBuf,
    mounted: Option<tempfile::TempDir>,
}

impl Cgroup {
    fn new(name: &str) -> Option<Cgroup> {
        let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
        let found = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ');
            let (_, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(point))
        });
        let (root, mounted) = match found {
            Some(root) => (root, None),
            None => {
                let dir = tempfile::tempdir().expect("folder");
                let ok = Command::new("mount")
                    .args(["-t", "cgroup2", "none"])
                    .arg(dir.path())
                    .status()
                    .ok()?
                    .success();
                if !ok {
                    return None;
                }
                (dir.path().to_path_buf(), Some(dir))
            }
        };
        let path = root.join(format!("lightfoot-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        Some(Cgroup { path, mounted })
    }

    fn add(&self, pid: u32) {
        std::fs::write(self.path.join("cgroup.procs"), pid.to_string()).expect("cgroup.procs");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its processes are killed by now; their leaving takes a moment.
        lightfoot_tests::wait_for(Duration::from_secs(2), || std::fs::remove_dir(&self.path).is_ok());
        if let Some(dir) = &self.mounted {
            let _ = Command::new("umount").arg(dir.path()).status();
        }
    }
}

/// A cgroup and the cgroups below it, with processes that join later; nothing outside.
#[test]
fn a_cgroup() {
    let name = "a_cgroup";
    let Some(_turn) = privileged(name) else { return };
    let Some(group) = Cgroup::new(name) else { return out_of_reach(name, "cgroup v2 cannot be mounted") };
    let outside = Workload::start("deep", "10 --seconds 6");
    let inside = Workload::start("split", "--seconds 6");
    group.add(inside.pid());
    let running = {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join("p.json");
        let mut running = Lightfoot::new("profile -F 499 -d 3s -f json --cgroup")
            .arg(&group.path)
            .arg("-o")
            .arg(&path)
            .spawn();
        running.attached();
        let below = group.path.join("below");
        std::fs::create_dir(&below).expect("cgroup");
        let late = Workload::start("syscalls", "--seconds 6");
        std::fs::write(below.join("cgroup.procs"), late.pid().to_string()).expect("cgroup.procs");
        let run = running.wait();
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.assert_was_watched();
        let report = Report::parse(&std::fs::read(&path).expect("profile"));
        let late_pid = late.pid();
        drop(late);
        lightfoot_tests::wait_for(Duration::from_secs(2), || std::fs::remove_dir(&below).is_ok());
        (report, late_pid)
    };
    let (report, late) = running;
    let (inside_pid, outside_pid) = (inside.pid(), outside.pid());
    drop((inside, outside));
    assert!(report.count(|stack| stack.pid == inside_pid && stack.through("rotate")) > 40);
    assert!(
        report.count(|stack| stack.pid == late && stack.through("mixed")) > 100,
        "a process in a cgroup below"
    );
    assert_eq!(report.count(|stack| stack.pid == outside_pid), 0);
    assert_eq!(report.count(|stack| stack.pid != inside_pid && stack.pid != late), 0, "nothing from outside");
}

/// A path that is no version 2 cgroup.
#[test]
fn not_a_cgroup() {
    let Some(_turn) = privileged("not_a_cgroup") else { return };
    for path in ["/no/such/cgroup", "/tmp", "/proc/self/status"] {
        let run = Lightfoot::new("profile -d 1s --cgroup").arg(path).run();
        assert!(matches!(run.code, Some(1 | 2)), "{path}: {:?}", run.code);
        run.assert_fails(run.code.unwrap_or(0), &[path]);
    }
}

/// The whole machine: our own workload is in it with its true share of a CPU, idle CPUs are filtered and not lost.
/// (Stacks of other processes are counted, never printed.)
#[test]
fn the_whole_machine() {
    let Some(_turn) = privileged("the_whole_machine") else { return };
    let target = Workload::start("split", "--seconds 5");
    let report = Lightfoot::new("profile -a -F 199 -d 3s").report(0);
    let ours = report.count(|stack| stack.pid == target.pid() && stack.through("rotate"));
    assert!(ours > 30, "{ours} samples");
    let a = &report.accounting;
    let duration = report.json["meta"]["duration_ns"].as_f64().expect("duration") / 1e9;
    let cpus = report.json["meta"]["cpus"].as_f64().expect("cpus");
    let ratio = a.fired as f64 / (duration * 199.0 * cpus);
    assert!((0.4..1.05).contains(&ratio), "{} firings in {duration:.1} s on {cpus} CPUs", a.fired);
    assert!(report.count(|stack| stack.pid == 0) == 0 || a.filtered > 0, "idle time is no sample");
}

/// lightfoot and target in a pid namespace of their own; and lightfoot outside, target inside.
#[test]
fn another_pid_namespace() {
    let name = "another_pid_namespace";
    let Some(_turn) = privileged(name) else { return };
    if !Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "true"])
        .status()
        .is_ok_and(|s| s.success())
    {
        return out_of_reach(name, "unshare --pid --mount-proc is refused");
    }
    // Target inside: found by its pid outside, named.
    let wrapper = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let inner =
        Workload::spawn(Command::new("unshare").args(wrapper).arg(lightfoot_tests::program("jit")).args([
            "--seconds",
            "5",
            "--map",
            "none",
        ]));
    std::thread::sleep(Duration::from_millis(500));
    let unshare = inner.pid();
    let inner_pid = child_of(unshare).expect("the program in the namespace");
    let report = Lightfoot::new(&format!("profile -F 499 -d 1s -p {inner_pid}")).report(0);
    assert!(
        report.count(|stack| stack.pid == inner_pid && stack.through("jit_caller")) > 40,
        "{}",
        report.heaviest(|_| true)
    );
    drop(inner);

    // lightfoot inside, with a command.
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("p.json");
    let mut wrapped = vec!["unshare"];
    wrapped.extend(wrapper);
    let run =
        Lightfoot::under(&wrapped, "profile -F 499 -o").arg(&path).command("split", "--seconds 2").run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let report = Report::parse(&std::fs::read(&path).expect("profile"));
    assert!(report.through("rotate") > 100, "{}", report.heaviest(|_| true));
    let pid = run.truth()["pid"].as_u64().expect("pid") as u32;
    assert!(pid < 100, "a pid of the inner namespace");
    assert!(report.count(|stack| stack.pid == pid) > 100, "pids are those of lightfoot's own namespace");
}

/// The first child of a process. Source: the fourth field of every `/proc/PID/stat`.
fn child_of(parent: u32) -> Option<u32> {
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")) else {
            continue;
        };
        let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
        if after.split(' ').nth(1).and_then(|ppid| ppid.parse().ok()) == Some(parent) {
            return Some(pid);
        }
    }
    None
}
