//! Java: asks a running JVM to write its perf map, by the JVM's own attach protocol (what `jcmd PID Compiler.perfmap` does).
//!
//! Nothing of the target's is executed: a `jcmd` beside its `java` would be a program of the target's user, run by root.
//! The JVM is told by SIGQUIT to open a socket, which kills or prints in a process that does not expect it: only one that
//! catches SIGQUIT, has libjvm.so mapped and does not forbid attaching is told so.
//!
//! Source of the protocol: `src/hotspot/os/posix/attachListener_posix.cpp` and
//! `src/jdk.attach/linux/classes/sun/tools/attach/VirtualMachineImpl.java` in OpenJDK; `Compiler.perfmap` came with JDK 17
//! (JDK-8254723) and writes `/tmp/perf-PID.map`, PID and `/tmp` being those of the JVM's namespaces.

use crate::lines::for_each_line;
use crate::system::Owner;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::fs::File;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a JVM may take to open its socket, and to answer each read or write.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Between two looks for the socket.
const NAP: Duration = Duration::from_millis(10);
/// Longest answer read, in bytes: it is one number and a message.
const ANSWER_BYTES: u64 = 16 << 10;
/// Version 1, command `jcmd`, its argument, two empty arguments; each ends with a zero.
const COMMAND: &[u8] = b"1\0jcmd\0Compiler.perfmap\0\0\0";

/// Has the JVM `pid` write its perf map. `start_ticks` is asked right before the JVM is told, and says whether it is still the same
/// process. Waits at most some five seconds for a JVM that hangs, 10 to 100 ms for one that works.
///
/// # Errors
/// A short phrase that says why there are no names.
pub(crate) fn write_perf_map(
    pid: u32,
    owner: Owner,
    same: &dyn Fn() -> bool,
) -> Result<WrittenMap, &'static str> {
    const GONE: &str = "the JVM has exited (java -XX:+DumpPerfMapAtExit keeps the names)";
    let held = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(GONE)?;
    let process = rustix::process::pidfd_open(held, PidfdFlags::empty()).map_err(|_| GONE)?;
    if !same() {
        return Err(GONE);
    }
    let tmp = tmp_of(pid).ok_or("the /tmp of the JVM cannot be opened")?;
    let socket_name = format!(".java_pid{}", owner.ns_pid);
    if !is_socket(&tmp, &socket_name, owner.uid) {
        may_be_told(pid)?;
        let _trigger = Trigger::new(&tmp, owner.ns_pid)?;
        rustix::process::pidfd_send_signal(&process, Signal::QUIT)
            .map_err(|_| "no right to signal the JVM (root or its user has it)")?;
        let end = Instant::now() + PATIENCE;
        while !is_socket(&tmp, &socket_name, owner.uid) {
            if Instant::now() >= end {
                return Err("the JVM did not answer");
            }
            std::thread::sleep(NAP);
        }
    }
    let answer = talk(&tmp, &socket_name).map_err(|_| "the JVM did not answer")?;
    match understood(&answer) {
        Ok(()) => Ok(WrittenMap { tmp, name: format!("perf-{}.map", owner.ns_pid) }),
        Err(reason) => Err(reason),
    }
}

/// A perf map that exists because we asked for it; removed when dropped, after it was opened.
#[derive(Debug)]
pub(crate) struct WrittenMap {
    tmp: OwnedFd,
    name: String,
}

impl Drop for WrittenMap {
    fn drop(&mut self) {
        // Gone already, or not allowed: then it stays, as after jcmd.
        rustix::fs::unlinkat(&self.tmp, &self.name, AtFlags::empty()).ok();
    }
}

/// What the JVM's answer means: the first line is the result, 0 or an error.
fn understood(answer: &[u8]) -> Result<(), &'static str> {
    let text = String::from_utf8_lossy(answer);
    let (result, message) = text.split_once('\n').unwrap_or((&text, ""));
    // A JVM without the command says so in the message; the result has been 0 and 1 in different versions.
    let unknown = ["Unknown diagnostic command", "IllegalArgumentException"];
    if unknown.iter().any(|word| message.contains(word)) {
        return Err("the JVM cannot name its code (JDK 17 or later can)");
    }
    if result.trim() == "0" { Ok(()) } else { Err("the JVM refused to name its code") }
}

/// The JVM's `/tmp`, in its own root: with every link resolved inside that root, whoever made it.
fn tmp_of(pid: u32) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, format!("/proc/{pid}/root"), flags, Mode::empty()).ok()?;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(&root, "tmp", flags, Mode::empty(), inside).ok()
}

/// Whether the JVM's socket is there, and is its own.
fn is_socket(tmp: &OwnedFd, name: &str, uid: u32) -> bool {
    rustix::fs::statat(tmp, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::Socket
            && (found.st_uid == uid || found.st_uid == 0)
    })
}

/// Whether SIGQUIT means "attach" to this process, and it wants that.
fn may_be_told(pid: u32) -> Result<(), &'static str> {
    const SIGQUIT: u32 = 3;
    let mut caught = 0u64;
    if let Ok(mut status) = File::open(format!("/proc/{pid}/status")) {
        for_each_line(&mut status, 64 << 10, &mut |line| {
            if let Some(mask) = line.strip_prefix(b"SigCgt:") {
                let mask = std::str::from_utf8(mask).unwrap_or("").trim();
                caught = u64::from_str_radix(mask, 16).unwrap_or(0);
            }
            ControlFlow::Continue(())
        })
        .ok();
    }
    if caught >> (SIGQUIT - 1) & 1 == 0 {
        return Err("the JVM does not listen yet");
    }
    let mut words = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/cmdline")) {
        file.take(1 << 20).read_to_end(&mut words).ok();
    }
    if words.split(|&byte| byte == 0).any(|word| word == b"-XX:+DisableAttachMechanism") {
        return Err("the JVM does not let itself be asked (-XX:+DisableAttachMechanism)");
    }
    Ok(())
}

/// The file that tells the JVM to attach and not to print its threads; removed when dropped.
struct Trigger<'a> {
    tmp: &'a OwnedFd,
    name: String,
}

impl<'a> Trigger<'a> {
    fn new(tmp: &'a OwnedFd, ns_pid: u32) -> Result<Trigger<'a>, &'static str> {
        let name = format!(".attach_pid{ns_pid}");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::openat(tmp, &name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(_) => Ok(Trigger { tmp, name }),
            Err(rustix::io::Errno::EXIST) => Err("somebody else is attaching to the JVM"),
            Err(_) => Err("no right to write to the JVM's /tmp"),
        }
    }
}

impl Drop for Trigger<'_> {
    fn drop(&mut self) {
        rustix::fs::unlinkat(self.tmp, &self.name, AtFlags::empty()).ok();
    }
}

/// Sends the command and returns the answer.
fn talk(tmp: &OwnedFd, name: &str) -> std::io::Result<Vec<u8>> {
    // Without waiting: a full queue of connections is a JVM that hangs.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Through the folder that is held open: the path of a socket has at most 107 bytes.
    let path = format!("/proc/self/fd/{}/{name}", tmp.as_raw_fd());
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let mut stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(COMMAND)?;
    let mut answer = Vec::new();
    let end = Instant::now() + 2 * PATIENCE;
    let mut limited = stream.take(ANSWER_BYTES);
    let mut piece = [0; 1024];
    // One read at a time, so that a byte now and then does not go on for ever.
    while Instant::now() < end {
        match limited.read(&mut piece) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(std::io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn answers_have_a_result_and_a_message() {
        assert_eq!(understood(b"0\n"), Ok(()));
        assert_eq!(understood(b"0\nCommand executed successfully\n"), Ok(()));
        for answer in [
            &b"1\njava.lang.IllegalArgumentException: Unknown diagnostic command\n"[..],
            b"0\nUnknown diagnostic command",
        ] {
            assert_eq!(understood(answer), Err("the JVM cannot name its code (JDK 17 or later can)"));
        }
        for answer in [&b""[..], b"100\nno", b"\xff\xfe", b"zero\n"] {
            assert!(understood(answer).is_err(), "{answer:?}");
        }
    }

    fn folder() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let held = OwnedFd::from(File::open(dir.path()).unwrap());
        (dir, held)
    }

    #[test]
    fn a_socket_is_spoken_to_and_its_answer_is_bounded() {
        let (dir, held) = folder();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert!(is_socket(&held, "s", uid) && !is_socket(&held, "t", uid));
        assert_eq!(is_socket(&held, "s", uid + 1), uid == 0, "somebody else's");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = vec![0; COMMAND.len()];
            stream.read_exact(&mut asked).unwrap();
            // Endless; the reader hangs up.
            while stream.write_all(&[b'0'; 4096]).is_ok() {}
            asked
        });
        assert_eq!(talk(&held, "s").unwrap().len() as u64, ANSWER_BYTES);
        assert_eq!(server.join().unwrap(), COMMAND);
    }

    #[test]
    fn one_that_does_not_answer_is_left() {
        let (dir, held) = folder();
        let _listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let began = Instant::now();
        assert!(talk(&held, "s").is_err());
        assert!(began.elapsed() < 3 * PATIENCE);
    }

    #[test]
    fn the_trigger_never_follows_a_link_and_leaves_nothing() {
        let (dir, held) = folder();
        let victim = dir.path().join("victim");
        std::os::unix::fs::symlink(&victim, dir.path().join(".attach_pid7")).unwrap();
        assert!(Trigger::new(&held, 7).is_err());
        assert!(!victim.exists());
        drop(Trigger::new(&held, 8).unwrap());
        assert!(!dir.path().join(".attach_pid8").exists());
    }

    #[test]
    fn a_process_that_does_not_expect_it_is_not_told() {
        // The test harness does not catch SIGQUIT: being told would end it.
        let owner = Owner { ns_pid: std::process::id(), uid: rustix::process::geteuid().as_raw() };
        assert!(write_perf_map(std::process::id(), owner, &|| true).is_err());
        assert_eq!(
            write_perf_map(std::process::id(), owner, &|| false).map(drop),
            Err("the JVM has exited (java -XX:+DumpPerfMapAtExit keeps the names)")
        );
    }
}
