//! The one seam to the file system.

use crate::mapping::{Device, Mapping};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

/// Which file it is, and in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileIdentity {
    /// Device of the file system (`st_dev`).
    pub device: Device,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Last change of the content, ns since the Unix epoch.
    pub modified_ns: i128,
    /// User id of the owner.
    pub uid: u32,
}

/// An open regular file.
#[derive(Debug)]
pub struct Opened {
    /// The file, open for reading.
    pub file: File,
    /// Which file it is.
    pub identity: FileIdentity,
}

/// Whose process it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Process id in the innermost pid namespace of the process (last number of `NSpid`).
    pub ns_pid: u32,
    /// Effective user id.
    pub uid: u32,
}

/// What makes code at run time in a process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Runtime {
    /// Anything else.
    #[default]
    Other,
    /// A Java virtual machine (HotSpot).
    Java,
    /// Node.js.
    Node,
}

/// A perf map that was written because it was asked for; it goes away with this value.
pub type Written = Box<dyn std::any::Any>;

/// What is asked of the machine. [`crate::Host`] asks the real one.
pub trait System {
    /// Calls `visit` for each executable mapping of `pid`, by rising address, until it breaks. Returns the number of
    /// lines that were not understood.
    ///
    /// # Errors
    /// The process is gone, or reading is not allowed.
    fn executable_mappings(
        &self,
        pid: u32,
        visit: &mut dyn FnMut(Mapping<'_>) -> ControlFlow<()>,
    ) -> io::Result<u64>;

    /// The executable mapping of `pid` that covers `address`.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where the kernel cannot answer this alone; otherwise as above.
    fn mapping_at(&self, pid: u32, address: u64) -> io::Result<Option<Mapping<'static>>>;

    /// When the process started, in clock ticks since boot: with `pid` its identity.
    ///
    /// # Errors
    /// The process is gone.
    fn start_ticks(&self, pid: u32) -> io::Result<u64>;

    /// Whose process it is.
    ///
    /// # Errors
    /// The process is gone.
    fn owner(&self, pid: u32) -> io::Result<Owner>;

    /// Opens a regular file, without waiting and without following a link in the last part of `path`.
    ///
    /// # Errors
    /// As `open(2)`; [`io::ErrorKind::InvalidInput`] if it is not a regular file.
    fn open(&self, path: &Path) -> io::Result<Opened>;

    /// Opens the file that `pid` has mapped at exactly `start` to `end`, even if it was deleted.
    ///
    /// # Errors
    /// No such mapping, or not allowed.
    fn open_mapped(&self, pid: u32, start: u64, end: u64) -> io::Result<Opened>;

    /// What makes code in `pid`, as far as it matters for names. Never waits.
    fn runtime(&self, _pid: u32) -> Runtime {
        Runtime::Other
    }

    /// Has the Java virtual machine `pid` write its perf map; `same` says whether it is still the process that was meant.
    ///
    /// # Errors
    /// A short phrase that says why there are no names.
    fn ask_jvm(&self, _pid: u32, _owner: Owner, _same: &dyn Fn() -> bool) -> Result<Written, &'static str> {
        Err("no perf map")
    }
}
