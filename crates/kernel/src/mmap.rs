//! Memory shared with the kernel.

use crate::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A shared mapping of a descriptor; unmapped on drop. The kernel writes it while we read, so it is only ever read through
/// volatile or atomic loads of single words or copied out where the protocol says that the kernel is done with a part.
#[derive(Debug)]
pub(crate) struct Shared {
    start: NonNull<u8>,
    len: usize,
}

impl Shared {
    /// Maps `len` bytes of `fd` from offset 0.
    pub fn map(fd: BorrowedFd<'_>, len: usize, writable: bool, what: &str) -> Result<Shared> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os(format!("cannot map {what}")));
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| Error::last_os(format!("cannot map {what}")))?;
        Ok(Shared { start, len })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The word at byte offset `at`.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len, "offset {at} in a mapping of {} bytes", self.len);
        // SAFETY: in bounds and aligned (mappings start on a page); AtomicU64 may be shared with the kernel's writes.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// Copies `out.len()` bytes from byte offset `at`. The caller knows that the kernel does not write them now.
    pub fn copy(&self, at: usize, out: &mut [u8]) {
        assert!(at + out.len() <= self.len, "{} bytes at {at} in a mapping of {}", out.len(), self.len);
        // SAFETY: in bounds, and `out` is ours alone, so the ranges do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(at), out.as_mut_ptr(), out.len()) }
    }

    /// A word that only one CPU writes, read without order.
    pub fn relaxed(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: this mapping was made in `map` and no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
