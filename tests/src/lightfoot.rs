//! The real binary, run and watched from outside.

use crate::sys::{BpfKind, BpfObject, bpf_exists, is_root, wait_for};
use crate::{Report, Workload, workload};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The binary under test: `LIGHTFOOT_BIN`, or the one of the same build profile as the tests, which `cargo build -p lightfoot`
/// makes up to date on the first call.
///
/// # Panics
/// If it cannot be built.
pub fn lightfoot_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(binary) = std::env::var_os("LIGHTFOOT_BIN") {
            return binary.into();
        }
        let release =
            std::env::current_exe().is_ok_and(|exe| exe.components().any(|c| c.as_os_str() == "release"));
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.args(["build", "--quiet", "--package", "lightfoot"]).current_dir(workload::workspace());
        if release {
            build.arg("--release");
        }
        let built = build.output().expect("cargo");
        assert!(built.status.success(), "cargo build: {}", String::from_utf8_lossy(&built.stderr));
        workload::target_dir().join(if release { "release" } else { "debug" }).join("lightfoot")
    })
}

/// Where a run's stdout goes.
pub enum Sink {
    /// Collected in [`Run::stdout`].
    Collect,
    /// A file or device.
    File(File),
    /// A pipe whose reader has gone.
    ClosedPipe,
    /// No descriptor 1 at all.
    None,
}

/// A run to be.
pub struct Lightfoot {
    command: Command,
    sink: Sink,
    limit: Duration,
    binary_copy: Option<tempfile::TempDir>,
}

impl Lightfoot {
    /// `lightfoot ARGUMENTS`, separated by blanks; more with [`Lightfoot::arg`].
    pub fn new(arguments: &str) -> Lightfoot {
        let mut command = Command::new(lightfoot_binary());
        command.args(arguments.split_whitespace());
        Lightfoot { command, sink: Sink::Collect, limit: Duration::from_secs(60), binary_copy: None }
    }

    /// The same under another program, for example `setpriv ... lightfoot ARGUMENTS`.
    pub fn under(wrapper: &[&str], arguments: &str) -> Lightfoot {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(lightfoot_binary()).args(arguments.split_whitespace());
        Lightfoot { command, sink: Sink::Collect, limit: Duration::from_secs(60), binary_copy: None }
    }

    /// The same as user `nobody`, from a copy of the binary that `nobody` can read.
    pub fn as_nobody(arguments: &str) -> Lightfoot {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("temporary folder");
        let copy = dir.path().join("lightfoot");
        std::fs::copy(lightfoot_binary(), &copy).expect("copy");
        for path in [dir.path(), &copy] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        }
        let mut command = Command::new(&copy);
        command.args(arguments.split_whitespace()).uid(65534).gid(65534).current_dir("/");
        Lightfoot { command, sink: Sink::Collect, limit: Duration::from_secs(60), binary_copy: Some(dir) }
    }

    /// One more argument, blanks and all.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Lightfoot {
        self.command.arg(argument);
        self
    }

    /// Several more.
    pub fn args(mut self, arguments: &[&str]) -> Lightfoot {
        self.command.args(arguments);
        self
    }

    /// `-- PROGRAM ARGUMENTS`: a workload as the command to run.
    pub fn command(self, program: &str, arguments: &str) -> Lightfoot {
        let mut this = self.arg("--").arg(workload::program(program));
        this.command.args(arguments.split_whitespace());
        this
    }

    /// An environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Lightfoot {
        self.command.env(name, value);
        self
    }

    /// Where stdout goes.
    pub fn stdout(mut self, sink: Sink) -> Lightfoot {
        self.sink = sink;
        self
    }

    /// How long the run may take (default a minute); longer is a failure.
    pub fn limit(mut self, limit: Duration) -> Lightfoot {
        self.limit = limit;
        self
    }

    /// Starts the run.
    ///
    /// # Panics
    /// If the binary cannot be executed.
    pub fn spawn(mut self) -> Running {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mark = format!("{}.{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        self.command.env("LIGHTFOOT_TEST_RUN", &mark).stdin(Stdio::null()).stderr(Stdio::piped());
        match self.sink {
            Sink::Collect => self.command.stdout(Stdio::piped()),
            Sink::File(file) => self.command.stdout(file),
            Sink::ClosedPipe => {
                let (reader, writer) = std::io::pipe().expect("pipe");
                drop(reader);
                self.command.stdout(writer)
            }
            Sink::None => {
                // The shell closes descriptor 1 and becomes lightfoot.
                let mut shell = Command::new("sh");
                shell.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(self.command.get_program());
                shell.args(self.command.get_args());
                shell.env("LIGHTFOOT_TEST_RUN", &mark).stdin(Stdio::null()).stderr(Stdio::piped());
                self.command = shell;
                self.command.stdout(Stdio::null())
            }
        };
        let before = pids();
        let started = Instant::now();
        let mut child = self.command.spawn().unwrap_or_else(|e| panic!("{:?}: {e}", self.command));
        let collect = |pipe: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(mut pipe) = pipe {
                    let _ = pipe.read_to_end(&mut bytes);
                }
                bytes
            })
        };
        let stdout = collect(child.stdout.take().map(|p| Box::new(p) as _));
        let stderr = collect(child.stderr.take().map(|p| Box::new(p) as _));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let ended = Arc::new(AtomicBool::new(false));
        let watcher = std::thread::spawn({
            let (seen, ended, pid) = (Arc::clone(&seen), Arc::clone(&ended), child.id());
            move || {
                while !ended.load(Ordering::Relaxed) {
                    watch(pid, &mut seen.lock().expect("watcher"));
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
        drop(self.command); // closes our ends of what the child got
        Running {
            child: Some(child),
            started,
            limit: self.limit,
            stdout: Some(stdout),
            stderr: Some(stderr),
            watcher: Some(watcher),
            seen,
            ended,
            before,
            mark,
            _binary_copy: self.binary_copy,
        }
    }

    /// Starts the run and waits for its end.
    #[track_caller]
    pub fn run(self) -> Run {
        self.spawn().wait()
    }

    /// `-f json -o FILE`, then the run, which must end with `code`; the report.
    #[track_caller]
    pub fn report(self, code: i32) -> Report {
        self.report_and_run(code).0
    }

    /// The same, with the run.
    #[track_caller]
    pub fn report_and_run(mut self, code: i32) -> (Report, Run) {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("profile.json");
        self.command = with_output(&self.command, &path);
        let run = self.run();
        assert_eq!(run.code, Some(code), "exit code; stderr: {}", run.stderr);
        run.assert_was_watched();
        let report =
            Report::parse(&std::fs::read(&path).unwrap_or_else(|e| panic!("{e}; stderr: {}", run.stderr)));
        (report, run)
    }
}

/// The same command with `-f json -o PATH` before a `--`.
fn with_output(command: &Command, path: &Path) -> Command {
    let mut new = Command::new(command.get_program());
    let arguments: Vec<&OsStr> = command.get_args().collect();
    let end = arguments.iter().position(|argument| *argument == "--").unwrap_or(arguments.len());
    new.args(&arguments[..end]).args(["-f", "json", "-o"]).arg(path).args(&arguments[end..]);
    for (name, value) in command.get_envs() {
        new.env(name, value.unwrap_or_default());
    }
    new
}

/// What a process was seen to hold.
#[derive(Default)]
struct Seen {
    objects: BTreeSet<BpfObject>,
    perf_events: usize,
}

/// Notes the BPF objects and perf events behind the descriptors of a process. Source: `/proc/PID/fdinfo`.
fn watch(pid: u32, seen: &mut Seen) {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return };
    let mut perf_events = 0;
    for entry in entries.flatten() {
        let Ok(link) = std::fs::read_link(entry.path()) else { continue };
        let link = link.to_string_lossy();
        if link.contains("perf_event") {
            perf_events += 1;
        }
        if !link.contains("bpf") {
            continue;
        }
        let number = entry.file_name();
        let Ok(info) = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", number.to_string_lossy()))
        else {
            continue;
        };
        for line in info.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let kind = match key {
                "prog_id" => BpfKind::Program,
                "map_id" => BpfKind::Map,
                "link_id" => BpfKind::Link,
                _ => continue,
            };
            if let Ok(id) = value.trim().parse() {
                seen.objects.insert(BpfObject { kind, id });
            }
        }
    }
    seen.perf_events = seen.perf_events.max(perf_events);
}

/// Every process id there is.
fn pids() -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A run under way; killed when dropped before its end.
pub struct Running {
    child: Option<Child>,
    started: Instant,
    limit: Duration,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    watcher: Option<JoinHandle<()>>,
    seen: Arc<Mutex<Seen>>,
    ended: Arc<AtomicBool>,
    before: BTreeSet<u32>,
    mark: String,
    _binary_copy: Option<tempfile::TempDir>,
}

impl Running {
    /// lightfoot's process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("running").id()
    }

    /// Waits until the sampling program is attached (a link or perf event is held), and a moment longer.
    ///
    /// # Panics
    /// If that does not happen within 20 s.
    #[track_caller]
    pub fn attached(&mut self) {
        let seen = Arc::clone(&self.seen);
        let attached = wait_for(Duration::from_secs(20), || {
            let seen = seen.lock().expect("watcher");
            let programs = seen.objects.iter().any(|object| object.kind == BpfKind::Program);
            let links = seen.objects.iter().any(|object| object.kind == BpfKind::Link);
            programs && (links || seen.perf_events > 0)
        });
        assert!(attached, "lightfoot has attached nothing after {:?}", self.started.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }

    /// BPF objects that lightfoot was seen to hold so far.
    pub fn objects(&self) -> BTreeSet<BpfObject> {
        self.seen.lock().expect("watcher").objects.clone()
    }

    /// Sends lightfoot a signal.
    pub fn signal(&self, number: i32) {
        crate::signal(self.pid(), number);
    }

    /// BPF objects that lightfoot holds right now.
    pub fn held(&self) -> BTreeSet<BpfObject> {
        let mut now = Seen::default();
        watch(self.pid(), &mut now);
        now.objects
    }

    /// Waits for the end; fails if it takes too long, if BPF objects or processes of the run remain, or if it panicked.
    ///
    /// # Panics
    /// As said.
    #[track_caller]
    pub fn wait(mut self) -> Run {
        let mut child = self.child.take().expect("running");
        let mut status = None;
        let in_time = wait_for(self.limit.saturating_sub(self.started.elapsed()), || {
            status = child.try_wait().expect("wait");
            status.is_some()
        });
        if !in_time {
            let _ = child.kill();
            let _ = child.wait();
        }
        let wall = self.started.elapsed();
        self.ended.store(true, Ordering::Relaxed);
        self.watcher.take().expect("watcher").join().expect("watcher");
        let survivors = |limit| {
            let mut left = Vec::new();
            wait_for(limit, || {
                left = marked(&self.before, &self.mark);
                left.is_empty()
            });
            left
        };
        let survivors = survivors(Duration::from_millis(1500));
        for &(pid, _) in &survivors {
            crate::signal(pid, libc::SIGKILL);
        }
        let stderr = String::from_utf8_lossy(&self.stderr.take().expect("stderr").join().expect("stderr"))
            .into_owned();
        let stdout = self.stdout.take().expect("stdout").join().expect("stdout");
        assert!(in_time, "still running after {:?}; stderr: {stderr}", self.limit);
        assert!(survivors.is_empty(), "processes were left behind: {survivors:?}");
        let seen = std::mem::take(&mut *self.seen.lock().expect("watcher"));
        // Programs and maps are freed after grace periods.
        let mut left = Vec::new();
        if is_root() {
            wait_for(Duration::from_secs(10), || {
                left = seen.objects.iter().copied().filter(|&object| bpf_exists(object)).collect();
                left.is_empty()
            });
        }
        assert!(left.is_empty(), "BPF objects were left behind: {left:?}; stderr: {stderr}");
        assert!(!stderr.contains("panicked at"), "{stderr}");
        let status = status.expect("ended");
        Run {
            code: status.code(),
            signal: status.signal(),
            stdout,
            stderr,
            wall,
            objects: seen.objects,
            perf_events: seen.perf_events,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            for (pid, _) in marked(&self.before, &self.mark) {
                crate::signal(pid, libc::SIGKILL);
            }
        }
    }
}

/// Processes that began after `before` and carry the mark of a run in their environment: lightfoot and what it started.
fn marked(before: &BTreeSet<u32>, mark: &str) -> Vec<(u32, String)> {
    let wanted = format!("LIGHTFOOT_TEST_RUN={mark}");
    let is_marked = |pid: u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|entry| entry == wanted.as_bytes())
    };
    let new = pids().into_iter().filter(|pid| !before.contains(pid) && is_marked(*pid));
    new.map(|pid| (pid, std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default())).collect()
}

/// A run that has ended and left nothing behind.
#[derive(Debug)]
pub struct Run {
    /// Exit code, if it was not killed.
    pub code: Option<i32>,
    /// Signal that killed it.
    pub signal: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub stderr: String,
    /// Wall time.
    pub wall: Duration,
    /// BPF objects that it held at some time.
    pub objects: BTreeSet<BpfObject>,
    /// Perf events that it held at once, at most.
    pub perf_events: usize,
}

impl Run {
    /// The run has loaded programs, so that "nothing was left behind" says something.
    ///
    /// # Panics
    /// If no program was seen.
    #[track_caller]
    pub fn assert_was_watched(&self) {
        assert!(
            self.objects.iter().any(|object| object.kind == BpfKind::Program),
            "no BPF program was seen in this run; stderr: {}",
            self.stderr
        );
    }

    /// Failed with this code and one line on stderr that has all of `words` in it (any case).
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn assert_fails(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "exit code; stderr: {}", self.stderr);
        let line = self.stderr.trim_end();
        assert!(!line.is_empty(), "stderr says nothing");
        assert_eq!(line.lines().count(), 1, "one line: {line}");
        for word in words {
            assert!(line.to_lowercase().contains(&word.to_lowercase()), "{word:?} is not in: {line}");
        }
    }

    /// The truth that a workload run as the command has printed to the shared stdout.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn truth(&self) -> Value {
        workload::truth_in(&String::from_utf8_lossy(&self.stdout))
    }
}

impl Workload {
    /// Starts a workload and waits for its `ready` line.
    pub fn ready(name: &str, arguments: &str) -> Workload {
        let mut workload = Workload::start(name, arguments);
        assert_eq!(workload.next_line()["event"], "ready");
        workload
    }
}
