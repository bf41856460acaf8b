//! Wrong input and bad days: one clear line, the right exit code, nothing left behind.

use lightfoot_tests::{Lightfoot, Sink, Workload, out_of_reach, privileged};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Wrong usage is found before anything else: it needs no privilege and takes no time.
#[test]
fn wrong_usage() {
    for (arguments, words) in [
        ("profile -F 0 -d 1s -a", &["0", "perf_event_max_sample_rate"][..]),
        ("profile -F 10000001 -d 1s -a", &["10000001", "perf_event_max_sample_rate"]),
        ("profile -F 99999999999999999999999 -a", &["99999999999999999999999"]),
    ] {
        let run = Lightfoot::new(arguments).run();
        run.assert_fails(2, words);
    }
    // clap's own messages have more than one line: usage and a hint.
    for arguments in [
        "profile -F -5 -a",
        "profile -F many -a",
        "profile -d soon -a",
        "profile -d -3s -a",
        "profile -d 0s -a",
        "profile -f nonsense -a",
        "profile -p abc",
        "profile -p 0",
        "profile -p -1",
        "profile -p 1,,2",
        "profile -p 99999999999",
        "profile --transfer pigeon -a",
        "profile --ring-bytes none -a",
        "profile --ring-bytes 0 --transfer ring -a",
        "profile --no-such-option",
        "profile -a -p 2",
        "profile -a -- true",
        "no-such-command",
    ] {
        let run = Lightfoot::new(arguments).limit(Duration::from_secs(10)).run();
        assert_eq!(run.code, Some(2), "{arguments}; stderr: {}", run.stderr);
        assert!(!run.stderr.trim().is_empty(), "{arguments}: says nothing");
        assert!(run.stdout.is_empty(), "{arguments}: errors go to stderr");
        assert!(run.objects.is_empty(), "{arguments}: nothing was loaded");
    }
}

/// A rate above what the kernel allows today.
#[test]
fn a_rate_above_the_kernels_limit() {
    let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").expect("sysctl");
    let limit: u64 = limit.trim().parse().expect("number");
    let rate = limit.max(10_000) + 1;
    let run = Lightfoot::new(&format!("profile -a -d 1s -F {rate}")).run();
    run.assert_fails(2, &[&rate.to_string(), "perf_event_max_sample_rate"]);
}

#[test]
fn no_such_process() {
    let Some(_turn) = privileged("no_such_process") else { return };
    // Above the largest possible pid, and a pid that has just ended.
    let gone = Workload::start("exiter", "").pid();
    for pid in [4_194_305, gone] {
        let run = Lightfoot::new(&format!("profile -d 2s -p {pid}")).run();
        run.assert_fails(1, &[&pid.to_string()]);
        assert!(run.wall < Duration::from_secs(2), "found at once, not at the end: {:?}", run.wall);
    }
}

/// One of two processes does not exist: nothing is profiled half.
#[test]
fn one_of_two_processes_does_not_exist() {
    let Some(_turn) = privileged("one_of_two_processes_does_not_exist") else { return };
    let there = Workload::start("exiter", "--after-ms 3000");
    let run = Lightfoot::new(&format!("profile -d 1s -p {},4194305", there.pid())).run();
    run.assert_fails(1, &["4194305"]);
}

/// A process that ends while lightfoot starts: either it was there in time or it was not; both are said, none hangs.
#[test]
fn a_process_that_dies_at_once() {
    let Some(_turn) = privileged("a_process_that_dies_at_once") else { return };
    for ms in [1, 5, 20, 60, 150, 300] {
        let target = Workload::start("exiter", &format!("--after-ms {ms}"));
        // The zombie stays until the workload is dropped: to the kernel it is still there.
        let run = Lightfoot::new(&format!("profile -d 2s -f json -p {}", target.pid())).run();
        match run.code {
            Some(0) => drop(lightfoot_tests::Report::parse(&run.stdout)),
            Some(1) => run.assert_fails(1, &[&target.pid().to_string()]),
            other => panic!("after {ms} ms: exit code {other:?}, {}", run.stderr),
        }
        assert!(run.wall < Duration::from_secs(6));
    }
}

#[test]
fn a_command_that_cannot_be_executed() {
    let Some(_turn) = privileged("a_command_that_cannot_be_executed") else { return };
    let dir = tempfile::tempdir().expect("folder");
    let file = |name: &str, text: &[u8], mode: u32| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
        path
    };
    let not_executable = file("not-executable", b"#!/bin/sh\n", 0o644);
    let no_interpreter = file("no-interpreter", b"#!/no/such/interpreter\n", 0o755);
    let output = dir.path().join("out.json");
    for command in [
        Path::new("no-such-command-anywhere"),
        Path::new("/no/such/path"),
        &not_executable,
        &no_interpreter,
        dir.path(),
    ] {
        let run = Lightfoot::new("profile -o").arg(&output).arg("--").arg(command).run();
        let name = command.file_name().expect("name").to_string_lossy().into_owned();
        run.assert_fails(1, &[&name]);
        assert!(!output.exists(), "{name}: no profile of nothing");
    }
}

/// Found before the run: the command is not even started.
#[test]
fn an_output_that_cannot_be_written() {
    let Some(_turn) = privileged("an_output_that_cannot_be_written") else { return };
    let dir = tempfile::tempdir().expect("folder");
    let witness = dir.path().join("witness");
    for output in
        [dir.path().join("no/such/folder/p.json"), dir.path().to_path_buf(), "/proc/p.json".into(), "".into()]
    {
        let run =
            Lightfoot::new("profile -f json -o").arg(&output).args(&["--", "touch"]).arg(&witness).run();
        let code = run.code.unwrap_or(-1);
        assert!(code == 1 || code == 2, "{}: {code}, {}", output.display(), run.stderr);
        run.assert_fails(code, &[&output.display().to_string()]);
        assert!(!witness.exists(), "{}: the command has run", output.display());
    }
    // A file whose name says no format.
    let run = Lightfoot::new("profile -o")
        .arg(dir.path().join("p.nonsense"))
        .args(&["--", "touch"])
        .arg(&witness)
        .run();
    assert!(matches!(run.code, Some(0..=2)), "{}", run.stderr);
    if run.code != Some(0) {
        run.assert_fails(run.code.unwrap_or(0), &["nonsense"]);
        assert!(!witness.exists());
    }
}

/// An older profile survives a run that fails, and is replaced by one that does not.
#[test]
fn an_existing_file() {
    let Some(_turn) = privileged("an_existing_file") else { return };
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("p.json");
    std::fs::write(&path, "old").expect("file");
    Lightfoot::new("profile -d 1s -p 4194305 -o").arg(&path).run().assert_fails(1, &["4194305"]);
    assert_eq!(std::fs::read_to_string(&path).expect("file"), "old");
    let run = Lightfoot::new("profile -o").arg(&path).command("split", "--seconds 1").run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    lightfoot_tests::Report::parse(&std::fs::read(&path).expect("file"));
    assert_eq!(entries(dir.path()), ["p.json"], "no temporary file stays");
}

fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .expect("folder")
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A small file system of our own, unmounted when dropped.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new(size: &str) -> Option<Tmpfs> {
        let dir = tempfile::tempdir().expect("folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(dir.path())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Tmpfs(dir))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// The disk is full while writing: an error that says so, and no half file under the final name.
#[test]
fn a_full_disk() {
    let name = "a_full_disk";
    let Some(_turn) = privileged(name) else { return };
    let Some(disk) = Tmpfs::new("64k") else { return out_of_reach(name, "tmpfs cannot be mounted") };
    for format in ["json", "html", "folded", "pprof", "speedscope", "firefox", "svg"] {
        let path = disk.0.path().join(format!("out.{format}"));
        // Some 60 kB are taken: no format fits into the rest.
        std::fs::write(disk.0.path().join("filler"), vec![0u8; 60 << 10]).expect("filler");
        let run = Lightfoot::new(&format!("profile -F 4999 -f {format} -o"))
            .arg(&path)
            .command("manystacks", "--bits 20 --seconds 1")
            .run();
        run.assert_fails(1, &[&path.display().to_string(), "space"]);
        assert_eq!(entries(disk.0.path()), ["filler"], "{format}: nothing half written stays");
    }
}

/// stdout is a full device.
#[test]
fn a_full_stdout() {
    let Some(_turn) = privileged("a_full_stdout") else { return };
    let target = Workload::start("split", "--seconds 4");
    let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let run =
        Lightfoot::new(&format!("profile -d 1s -f json -p {}", target.pid())).stdout(Sink::File(full)).run();
    run.assert_fails(1, &["space"]);
}

/// The reader of stdout has gone (`| head -0`): success, in silence, or an early end.
#[test]
fn a_closed_pipe() {
    let Some(_turn) = privileged("a_closed_pipe") else { return };
    for format in ["text", "json", "folded", "pprof"] {
        let target = Workload::start("split", "--seconds 4");
        let arguments = format!("profile -d 1s -f {format} -p {}", target.pid());
        let run = Lightfoot::new(&arguments).stdout(Sink::ClosedPipe).run();
        assert_eq!((run.code, run.signal), (Some(0), None), "{format}: {}", run.stderr);
        assert!(!run.stderr.to_lowercase().contains("broken pipe"), "{format}: {}", run.stderr);
    }
    for arguments in ["--help", "profile --help", "--version"] {
        let run = Lightfoot::new(arguments).stdout(Sink::ClosedPipe).run();
        assert_eq!(run.code, Some(0), "{arguments}: {}", run.stderr);
    }
}

/// No descriptor 1 at all: whatever file is opened next must not get the report.
#[test]
fn no_stdout_at_all() {
    let Some(_turn) = privileged("no_stdout_at_all") else { return };
    let target = Workload::start("split", "--seconds 4");
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("p.json");
    let run =
        Lightfoot::new(&format!("profile -d 1s -p {} -o", target.pid())).arg(&path).stdout(Sink::None).run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    lightfoot_tests::Report::parse(&std::fs::read(&path).expect("profile"));
}

/// Without root: which capability is missing, exit code 4.
#[test]
fn not_enough_privilege() {
    let name = "not_enough_privilege";
    let Some(_turn) = privileged(name) else { return };
    let target = Workload::start("split", "--seconds 10");
    for arguments in
        [format!("profile -d 1s -p {}", target.pid()), "profile -d 1s -a".into(), "profile -- true".into()]
    {
        let run = Lightfoot::as_nobody(&arguments).run();
        run.assert_fails(4, &["CAP_"]);
    }
    // Root without the one or the other.
    for (without, word) in [
        ("-bpf,-sys_admin", "CAP_BPF"),
        ("-perfmon,-sys_admin", "CAP_PERFMON"),
        ("-bpf,-perfmon,-sys_admin", "CAP_"),
    ] {
        let wrapper = ["setpriv", "--bounding-set", without, "--inh-caps", without];
        if !Command::new(wrapper[0])
            .args(&wrapper[1..])
            .arg("true")
            .output()
            .is_ok_and(|o| o.status.success())
        {
            return out_of_reach(name, "setpriv cannot drop capabilities");
        }
        let run = Lightfoot::under(&wrapper, "profile -d 1s -a").run();
        run.assert_fails(4, &[word]);
    }
}

/// The command is not started where it cannot be profiled.
#[test]
fn without_privilege_the_command_is_not_started() {
    let Some(_turn) = privileged("without_privilege_the_command_is_not_started") else { return };
    let dir = tempfile::tempdir().expect("folder");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).expect("chmod");
    let witness = dir.path().join("witness");
    let run = Lightfoot::as_nobody("profile -- touch").arg(&witness).run();
    run.assert_fails(4, &["CAP_"]);
    assert!(!witness.exists());
}

/// An output for which there is no permission.
#[test]
fn an_output_in_a_read_only_place() {
    let name = "an_output_in_a_read_only_place";
    let Some(_turn) = privileged(name) else { return };
    let dir = tempfile::tempdir().expect("folder");
    let status =
        Command::new("mount").args(["-t", "tmpfs", "-o", "ro,size=16k", "none"]).arg(dir.path()).status();
    if !status.is_ok_and(|status| status.success()) {
        return out_of_reach(name, "tmpfs cannot be mounted");
    }
    let disk = Tmpfs(dir);
    let path = disk.0.path().join("p.html");
    let run = Lightfoot::new("profile -o")
        .arg(&path)
        .args(&["--", "sleep", "20"])
        .limit(Duration::from_secs(15))
        .run();
    run.assert_fails(1, &[&path.display().to_string()]);
}

/// `-o` into a named pipe or a device is written to, not replaced.
#[test]
fn an_output_that_is_a_device() {
    let Some(_turn) = privileged("an_output_that_is_a_device") else { return };
    let before = std::fs::metadata("/dev/null").expect("null").file_type();
    let run = Lightfoot::new("profile -f json -o /dev/null").command("exiter", "--after-ms 200 --burn").run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let after = std::fs::metadata("/dev/null").expect("null").file_type();
    assert_eq!(before, after, "/dev/null is still a device");
    let run = Lightfoot::new("profile -f json -o /dev/full").command("exiter", "--after-ms 200 --burn").run();
    run.assert_fails(1, &["/dev/full"]);
    drop(File::open("/dev/full").expect("still there"));
}
