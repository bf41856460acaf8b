//! Mappings: what of a file, or of no file, is where in a process.

use std::borrow::Cow;

/// A device number as the kernel shows it in mappings. For btrfs and overlayfs it may differ from `stat`'s `st_dev`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Device {
    /// Major number, for example 8.
    pub major: u32,
    /// Minor number, for example 1.
    pub minor: u32,
}

/// One executable mapping of a process: the bytes of a file, or anonymous memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mapping<'a> {
    /// First address, for example `0x7f0c3f028000`.
    pub start: u64,
    /// First address behind the mapping.
    pub end: u64,
    /// Offset in the file of the byte at `start`, in bytes (perf's `pgoff`). Meaningless without a file.
    pub file_offset: u64,
    /// Device of the file; 0:0 without a file.
    pub device: Device,
    /// Inode number of the file; 0 without a file.
    pub inode: u64,
    /// Path as the process sees it, without escapes, with the kernel's suffix ` (deleted)` if it is there; or one of
    /// the kernel's names such as `[vdso]`, `//anon`, `[heap]`, `/memfd:name (deleted)`; or empty.
    pub path: Cow<'a, [u8]>,
}

/// A process image: what runs between two `exec`s. A process id alone is used again and again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Start of the process in ns since boot.
    pub start_ns: u64,
    /// Counts the programs that the process has executed.
    pub exec_id: u64,
}

/// A file as the kernel identifies it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct FileKey {
    /// Device.
    pub device: Device,
    /// Inode number.
    pub inode: u64,
    /// Tells apart files that had the same number one after the other, and contents of one file. 0 where nobody knows.
    pub generation: u32,
}

/// The mapping of code that an address was found in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// What is mapped.
    pub content: Content,
}

/// What a mapping of code holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// A file.
    File {
        /// Which.
        key: FileKey,
        /// Offset in it of the byte at the mapping's start, in bytes.
        offset: u64,
    },
    /// The vDSO.
    Vdso,
    /// Code made at run time.
    Anonymous,
}
