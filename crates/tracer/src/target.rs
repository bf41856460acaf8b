//! Whose firings count: a process that runs, or a command that waits for its probes.

use crate::error::{Error, Result};
use crate::request::Target;
use lightfoot_kernel::os;
use lightfoot_kernel::spawn::Held;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// The target of a run. A command that was started is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Traced {
    pub pid: Option<u32>,
    held: Option<Held>,
    program: String,
    child: Option<Child>,
    status: Option<ExitStatus>,
    /// Readable when the process has ended.
    pub end: Option<OwnedFd>,
    gone: bool,
}

impl Traced {
    /// Finds the process; starts a command, which waits for [`Traced::release`].
    pub fn find(target: Target) -> Result<Traced> {
        let mut traced = Traced {
            pid: None,
            held: None,
            program: String::new(),
            child: None,
            status: None,
            end: None,
            gone: false,
        };
        match target {
            Target::Machine => {}
            Target::Process(pid) => {
                traced.end = os::process_end(pid);
                // A thread has a folder there, too, but is no process.
                let is_process = std::fs::read_to_string(format!("/proc/{pid}/status"))
                    .is_ok_and(|status| status.lines().any(|line| line == format!("Tgid:\t{pid}")));
                if !is_process {
                    return Err(Error::target(format!("no process {pid}")));
                }
                traced.pid = Some(pid);
            }
            Target::Command(command) => traced.hold(command)?,
        }
        Ok(traced)
    }

    fn hold(&mut self, command: Command) -> Result<()> {
        self.program = command.get_program().to_string_lossy().into_owned();
        let held = Held::spawn(command).map_err(|e| {
            Error::target_because(format!("cannot start {}: {}", self.program, os::plain(&e)), e)
        })?;
        self.pid = Some(held.pid());
        self.end = os::process_end(held.pid());
        self.held = Some(held);
        Ok(())
    }

    /// Lets a command begin.
    pub fn release(&mut self) -> Result<()> {
        let Some(held) = self.held.take() else { return Ok(()) };
        let child = held.release().map_err(|e| {
            Error::target_because(format!("cannot start {}: {}", self.program, os::plain(&e)), e)
        })?;
        self.child = Some(child);
        Ok(())
    }

    /// Whether it was started for the run.
    pub fn is_command(&self) -> bool {
        self.child.is_some()
    }

    /// Whether the process has ended.
    pub fn ended(&mut self) -> bool {
        if let Some(child) = &mut self.child
            && self.status.is_none()
        {
            self.status = child.try_wait().ok().flatten();
            return self.status.is_some();
        }
        if let Some(pid) = self.pid
            && self.child.is_none()
            && !self.gone
        {
            self.gone = !Path::new("/proc").join(pid.to_string()).exists() || self.is_zombie(pid);
        }
        self.gone || self.status.is_some()
    }

    fn is_zombie(&self, pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
    }

    /// Asks a command to end, and ends it if it does not.
    pub fn end_command(&mut self, patience: Duration) {
        let Some(child) = &mut self.child else { return };
        let asked = Instant::now();
        if self.status.is_none() {
            os::signal(child.id(), libc::SIGTERM);
        }
        while self.status.is_none() && asked.elapsed() < patience {
            self.status = child.try_wait().ok().flatten();
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.status.is_none() {
            child.kill().ok();
            self.status = child.wait().ok();
        }
    }

    /// How the command ended, if one was started and has ended.
    pub fn command_status(&self) -> Option<ExitStatus> {
        self.status
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if let Some(child) = self.child.as_mut().filter(|_| self.status.is_none()) {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
