//! tracefs, whether it is mounted or not: its own detached mount is visible to nobody else and ends with its descriptor.

use crate::{Error, Kind, Result};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `FSOPEN_CLOEXEC`, `FSMOUNT_CLOEXEC`, `FSCONFIG_CMD_CREATE`, include/uapi/linux/mount.h.
const CLOEXEC: libc::c_uint = 1;
const CREATE: libc::c_uint = 6;

/// The root of tracefs.
#[derive(Debug)]
pub struct Tracefs(OwnedFd);

impl Tracefs {
    /// Opens the file system where it is mounted, or mounts it for this process alone.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if the kernel has none; [`Kind::Privilege`] without CAP_SYS_ADMIN where it is not mounted.
    pub fn open() -> Result<Tracefs> {
        for path in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            if let Ok(root) = File::open(path)
                && open_at(root.as_fd(), "events").is_ok()
            {
                return Ok(Tracefs(root.into()));
            }
        }
        let failed = |error: io::Error| {
            let kind = match error.raw_os_error() {
                Some(libc::ENODEV | libc::ENOSYS) => Kind::Unsupported,
                Some(libc::EPERM | libc::EACCES) => Kind::Privilege,
                _ => Kind::Other,
            };
            Error::io("tracefs is not mounted, and cannot be", error).with_kind(kind)
        };
        let filesystem = |result: libc::c_long| {
            if result < 0 {
                return Err(failed(io::Error::last_os_error()));
            }
            // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
            Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
        };
        // SAFETY: the name is NUL-terminated.
        let context = filesystem(unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), CLOEXEC) })?;
        let none = std::ptr::null::<libc::c_char>();
        // SAFETY: this command takes no key and no value.
        let created =
            unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), CREATE, none, none, 0) };
        if created < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        // SAFETY: takes a descriptor that is open and two numbers.
        let mount = filesystem(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOEXEC, 0) })?;
        Ok(Tracefs(mount))
    }

    /// Reads a file, given by its path from the root: `events/sched/sched_switch/format`.
    ///
    /// # Errors
    /// The errno of opening or reading it.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        open_at(self.0.as_fd(), path)?.read_to_string(&mut text)?;
        Ok(text)
    }

    /// The number of a tracepoint's perf event.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is no such tracepoint.
    pub fn id(&self, category: &str, name: &str) -> Result<u64> {
        let failed = |error| Error::io(format!("there is no tracepoint {category}:{name}"), error);
        let text = self.read(&format!("events/{category}/{name}/id")).map_err(failed)?;
        text.trim()
            .parse()
            .map_err(|_| Error::new(Kind::Other, format!("tracepoint {category}:{name} has number {text:?}")))
    }

    /// A folder of this file system for `std::fs`, as long as `self` lives: `/proc/self/fd/N`.
    pub fn path(&self) -> std::path::PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

fn open_at(folder: BorrowedFd<'_>, path: &str) -> io::Result<File> {
    let path = std::ffi::CString::new(path)?;
    // SAFETY: the path is NUL-terminated and the descriptor open.
    let fd = unsafe { libc::openat(folder.as_raw_fd(), path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}
