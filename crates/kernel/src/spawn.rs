//! A command held back before its first instruction, so that events can be attached to it first.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::JoinHandle;

/// A process that exists but waits to execute its program.
#[derive(Debug)]
pub struct Held {
    pid: u32,
    go: std::fs::File,
    spawner: JoinHandle<io::Result<Child>>,
}

impl Held {
    /// Creates the process of `command`. It waits for [`Held::release`]; if the `Held` is dropped instead, it ends without executing
    /// anything.
    ///
    /// # Errors
    /// If no process or pipe can be made.
    pub fn spawn(mut command: Command) -> io::Result<Held> {
        let (mut ready_read, ready_write) = pipe()?;
        let (go_read, go_write) = pipe()?;
        let (ready, go) = (ready_write.as_raw_fd(), go_read.as_raw_fd());
        let mut parent_end = go_write.as_raw_fd();
        // SAFETY: between fork and exec only async-signal-safe calls are made (getpid, write, close, read), on descriptors that
        // stay open in the parent until `spawn` has returned in the thread below.
        unsafe {
            command.pre_exec(move || {
                let pid = libc::getpid().to_ne_bytes();
                if libc::write(ready, pid.as_ptr().cast(), pid.len()) != pid.len() as isize {
                    return Err(io::Error::last_os_error());
                }
                // Our copy of the parent's end: with it open we would wait for ourselves if the parent ends.
                if parent_end >= 0 {
                    libc::close(parent_end);
                    parent_end = -1;
                }
                let mut byte = 0u8;
                loop {
                    match libc::read(go, (&raw mut byte).cast(), 1) {
                        1 => return Ok(()),
                        -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                        _ => return Err(io::Error::from_raw_os_error(libc::ECANCELED)),
                    }
                }
            });
        }
        // Command::spawn returns only when the program was executed or could not be: it waits in a thread of its own.
        let spawner = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let child = command.spawn();
            drop((ready_write, go_read));
            child
        })?;
        let mut pid = [0u8; 4];
        match ready_read.read_exact(&mut pid) {
            Ok(()) => Ok(Held { pid: u32::from_ne_bytes(pid), go: go_write, spawner }),
            Err(error) => match spawner.join() {
                Ok(Err(spawn_error)) => Err(spawn_error),
                _ => Err(error),
            },
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the process execute its program.
    ///
    /// # Errors
    /// The errno of `execve(2)`: no such file, no permission, not executable.
    pub fn release(mut self) -> io::Result<Child> {
        self.go.write_all(&[1])?;
        drop(self.go);
        self.spawner.join().unwrap_or_else(|_| Err(io::Error::other("the spawning thread panicked")))
    }
}

/// The process of `command` will be killed when the calling thread ends, however that comes. The thread that spawns it should be one that
/// lives as long as the program.
pub fn ends_with_us(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec only prctl(2) and getppid(2) are called, which are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // It ended before it could be asked for.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
}

/// The process of `command` will run on this CPU only.
pub fn runs_on(command: &mut Command, cpu: u32) {
    // SAFETY: between fork and exec only sched_setaffinity(2) is called, which is async-signal-safe, on a set of our own. CPU_SET checks the
    // number.
    unsafe {
        command.pre_exec(move || {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu as usize, &mut set);
            match libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
}

/// A pipe, read end first, closed on exec.
fn pipe() -> io::Result<(std::fs::File, std::fs::File)> {
    let mut ends = [0i32; 2];
    // SAFETY: `ends` has room for the two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us these descriptors and nobody else knows them.
    let [read, write] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    Ok((read.into(), write.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn nothing_runs_before_the_release() {
        let mut command = Command::new("/bin/echo");
        command.arg("hello").stdout(Stdio::piped());
        let held = Held::spawn(command).unwrap();
        let program = std::fs::read_link(format!("/proc/{}/exe", held.pid())).unwrap();
        assert_eq!(program, std::env::current_exe().unwrap(), "it is still us");
        let pid = held.pid();
        let child = held.release().unwrap();
        assert_eq!(child.id(), pid);
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.stdout, b"hello\n");
        assert!(out.status.success());
    }

    #[test]
    fn a_process_runs_where_it_is_put() {
        let cpu = *crate::os::online_cpus().unwrap().last().unwrap();
        let mut command = Command::new("/bin/grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]);
        runs_on(&mut command, cpu);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert_eq!(said.split_whitespace().last(), Some(cpu.to_string().as_str()));
    }

    #[test]
    fn a_process_ends_with_the_thread_that_started_it() {
        let start = || {
            let mut command = Command::new("/bin/sleep");
            command.arg("1000");
            ends_with_us(&mut command);
            command.spawn().unwrap()
        };
        let mut child = std::thread::spawn(start).join().unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_command_that_cannot_be_executed_is_an_error() {
        let held = Held::spawn(Command::new("/nonexistent/program")).unwrap();
        assert_eq!(held.release().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
