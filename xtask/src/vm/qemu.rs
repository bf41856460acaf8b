//! Boot, watch, stop.
use super::{NotHere, which};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const QEMU: &str = "qemu-system-x86_64";

/// What to boot; `folder` receives `console.log` and `results.log`.
pub struct Machine<'a> {
    pub kernel: &'a Path,
    pub initrd: &'a Path,
    pub folder: &'a Path,
}

/// How a guest ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum How {
    /// QEMU ended by itself: the guest switched off or restarted.
    SwitchedOff,
    /// The guest's kernel panicked.
    Panicked,
    /// Stopped from here after the time was up.
    TimedOut(Duration),
    /// QEMU itself failed.
    Qemu(String),
}

impl std::fmt::Display for How {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            How::SwitchedOff => f.write_str("the guest switched off"),
            How::Panicked => f.write_str("the guest's kernel panicked"),
            How::TimedOut(limit) => write!(f, "the guest was stopped after {} s", limit.as_secs()),
            How::Qemu(why) => write!(f, "{QEMU} failed: {why}"),
        }
    }
}

pub struct Ended {
    pub how: How,
    /// First serial port: the kernel's messages and what the tests print.
    pub console: String,
    pub console_path: PathBuf,
    /// Second serial port: lines for [`super::report::parse`].
    pub results: String,
}

pub fn require() -> Result<()> {
    match which(QEMU) {
        Some(_) => Ok(()),
        None => Err(NotHere(format!("{QEMU} is missing: install the package qemu-system-x86")).into()),
    }
}

impl Machine<'_> {
    /// Boots, waits for the end, and never leaves a QEMU behind.
    pub fn boot(&self, limit: Duration) -> Result<Ended> {
        let console_path = self.folder.join("console.log");
        let results_path = self.folder.join("results.log");
        for path in [&console_path, &results_path] {
            std::fs::write(path, "").with_context(|| format!("cannot write {}", path.display()))?;
        }
        let qemu = which(QEMU).context("QEMU is gone")?;
        let mut command = Command::new(qemu);
        command
            // Not KVM: nested virtualisation is rare in CI, and a guest that behaves the same everywhere is worth more than speed.
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024"])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args([
                "-chardev",
                &format!("file,id=console,path={}", escape(&console_path)),
                "-serial",
                "chardev:console",
            ])
            .args([
                "-chardev",
                &format!("file,id=results,path={}", escape(&results_path)),
                "-serial",
                "chardev:results",
            ])
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.initrd)
            // oops=panic: a guest that goes on after an oops hides it.
            .args(["-append", "console=ttyS0 loglevel=5 panic=-1 oops=panic rdinit=/init"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot start {QEMU}"))?;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if started.elapsed() >= limit {
                child.kill()?;
                child.wait()?;
                break None;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let read =
            |path: &Path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let console = read(&console_path)?;
        let how = match status {
            None => How::TimedOut(limit),
            Some(_) if console.contains("Kernel panic") => How::Panicked,
            Some(status) if status.success() => How::SwitchedOff,
            Some(status) => {
                let mut message = String::new();
                if let Some(mut stderr) = child.stderr.take() {
                    std::io::Read::read_to_string(&mut stderr, &mut message)?;
                }
                How::Qemu(format!("{status}: {}", message.trim()))
            }
        };
        Ok(Ended { how, console, console_path, results: read(&results_path)? })
    }
}

/// A path inside a QEMU option: a comma is doubled.
fn escape(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}
