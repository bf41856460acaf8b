//! Runs a tool and takes its bill from outside: CPU time and memory as the kernel accounts them to its parent.
#![allow(unsafe_code)]

use anyhow::{Context, Result, ensure};
use lightfoot_tests::{Report, lightfoot_binary};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The bill of one process and the children it waited for. Source: `wait4`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bill {
    /// User and system time, in ns. The kernel scales tick counts to the exact run time: the sum is exact, the split is not.
    pub cpu_ns: u64,
    /// Largest resident set of the process or of one child, in bytes.
    pub peak_rss_bytes: u64,
    /// Exit code; 128 + signal if killed.
    pub code: i32,
}

/// A tool at work; killed when dropped.
pub struct Tool {
    child: Option<Child>,
}

impl Tool {
    /// Starts a command with stdout and stderr going nowhere, unless the command says otherwise.
    pub fn start(command: &mut Command) -> Result<Tool> {
        command.stdin(Stdio::null());
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        Ok(Tool { child: Some(child) })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Waits for its end and returns the bill.
    pub fn wait(mut self) -> Result<Bill> {
        let child = self.child.take().context("running")?;
        let mut status = 0;
        // SAFETY: an all-zero rusage is a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: status and usage are valid and writable; the pid is a child of ours that nobody else waits for.
        let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
        ensure!(waited == child.id() as i32, "wait4: {}", std::io::Error::last_os_error());
        let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
        Ok(Bill {
            cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
            peak_rss_bytes: usage.ru_maxrss as u64 * 1024,
            code: if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                128 + libc::WTERMSIG(status)
            },
        })
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// CPU time of all threads of a running process, in ns. Source: `/proc/PID/task/TID/schedstat`. Threads that have ended are missing.
pub fn running_cpu_ns(pid: u32) -> Option<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let text = std::fs::read_to_string(entry.path().join("schedstat")).ok()?;
        sum += text.split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(sum)
}

/// `run_time_ns` and `run_cnt` of the programs that a process holds. Source: `/proc/PID/fdinfo`, counted while BPF statistics are on.
pub fn bpf_run_time(pid: u32) -> Option<(u64, u64)> {
    let (mut ns, mut count) = (0, 0);
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()?.flatten() {
        let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
        if !text.contains("\nprog_type:") {
            continue;
        }
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.split_once(':')?.1.trim().parse::<u64>().ok()
        };
        ns += field("run_time_ns:").unwrap_or(0);
        count += field("run_cnt:").unwrap_or(0);
    }
    Some((ns, count))
}

/// Keeps the kernel's BPF statistics on as long as it lives.
pub struct BpfStatistics(i32);

impl BpfStatistics {
    /// Switches statistics on for run times; off again when dropped, if nobody else wants them.
    pub fn on() -> Result<BpfStatistics> {
        // `union bpf_attr` for BPF_ENABLE_STATS (32): its type, BPF_STATS_RUN_TIME = 0, in the first four bytes.
        let attr = [0u32; 4];
        // SAFETY: attr is an initialised buffer of the size given; the command only reads it.
        let fd = unsafe { libc::syscall(libc::SYS_bpf, 32, attr.as_ptr(), size_of_val(&attr)) };
        ensure!(fd >= 0, "BPF_ENABLE_STATS: {}", std::io::Error::last_os_error());
        Ok(BpfStatistics(fd as i32))
    }
}

impl Drop for BpfStatistics {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and open.
        unsafe { libc::close(self.0) };
    }
}

/// `lightfoot ARGUMENTS`, separated by blanks, silent.
pub fn lightfoot(arguments: &str) -> Command {
    let mut command = Command::new(lightfoot_binary());
    command.args(arguments.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs `lightfoot ARGUMENTS -f json -o FILE`; the report and the bill.
pub fn profile(arguments: &str) -> Result<(Report, Bill)> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("profile.json");
    let bill = Tool::start(lightfoot(arguments).args(["-f", "json", "-o"]).arg(&path))?.wait()?;
    ensure!(bill.code == 0 || bill.code == 3, "lightfoot {arguments}: exit code {}", bill.code);
    Ok((read_report(&path)?, bill))
}

/// Reads a profile in JSON.
pub fn read_report(path: &Path) -> Result<Report> {
    Ok(Report::parse(&std::fs::read(path).with_context(|| path.display().to_string())?))
}

/// Sleeps.
pub fn sleep(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds));
}

/// CPU time of one phase in the report, in ns.
pub fn phase(report: &Report, name: &str) -> u64 {
    let phases = report.json["cost"]["phases"].as_array().map_or(&[][..], Vec::as_slice);
    phases.iter().find(|p| p["phase"] == name).and_then(|p| p["cpu_ns"].as_u64()).unwrap_or(0)
}
