//! The programs of `tests/programs`: built once, started, stopped, and asked for their truth.

use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

/// The folder of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace")
}

/// The folder with the built workloads: `LIGHTFOOT_PROGRAMS`, or `target/test-programs`, built on the first call.
///
/// # Panics
/// If the programs cannot be built.
pub fn programs_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        if let Some(dir) = std::env::var_os("LIGHTFOOT_PROGRAMS") {
            return dir.into();
        }
        let dir = target_dir().join("test-programs");
        std::fs::create_dir_all(&dir).expect("target folder");
        // Several test processes may come here at once: one makes, the others wait and find it made.
        let lock = File::create(dir.join(".make")).expect("lock file");
        lock.lock().expect("lock");
        let made = Command::new("make")
            .args(["--silent", "--jobs=2", "--directory"])
            .arg(workspace().join("tests/programs"))
            .arg(format!("OUT={}", dir.display()))
            .output()
            .expect("make");
        assert!(made.status.success(), "tests/programs: {}", String::from_utf8_lossy(&made.stderr));
        dir
    })
}

/// Cargo's target folder.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => workspace().join(dir),
        None => workspace().join("target"),
    }
}

/// Path of one built workload.
pub fn program(name: &str) -> PathBuf {
    programs_dir().join(name)
}

/// Builds the C extension of an interpreter, `source` of `tests/programs`, into the file `to`; `includes` are folders of headers.
///
/// # Panics
/// If it cannot be built.
pub fn extension(source: &str, includes: &[PathBuf], to: &Path) {
    let folders = includes.iter().map(|folder| format!("-I{}", folder.display()));
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-g", "-fno-optimize-sibling-calls", "-o"])
        .arg(to)
        .arg(workspace().join("tests/programs").join(source))
        .args(folders)
        .output()
        .expect("cc");
    assert!(made.status.success(), "{source}: {}", String::from_utf8_lossy(&made.stderr));
}

/// A running workload; killed and waited for when dropped.
pub struct Workload {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Workload {
    /// Starts a workload with arguments separated by blanks.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(name: &str, arguments: &str) -> Workload {
        Self::spawn(Command::new(program(name)).args(arguments.split_whitespace()))
    }

    /// Starts any command as a workload; its stdout is read for JSON lines.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn spawn(command: &mut Command) -> Workload {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("workload");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Workload { child, stdout }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next JSON line: `ready`, or the truth at the end.
    ///
    /// # Panics
    /// If the workload ends without another line.
    pub fn next_line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("workload's stdout");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("workload printed {line:?}: {e}"))
    }

    /// Waits for the end and returns the last line: the truth.
    ///
    /// # Panics
    /// If the workload failed.
    pub fn truth(mut self) -> Value {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("workload's stdout");
        let status = self.child.wait().expect("wait");
        assert!(status.success(), "workload: {status}");
        truth_in(&text)
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last JSON line of a workload's stdout.
pub(crate) fn truth_in(text: &str) -> Value {
    let line = text.lines().rfind(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|e| panic!("workload printed {text:?}: {e}"))
}
