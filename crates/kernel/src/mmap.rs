//! Memory shared with the kernel.

use crate::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A shared mapping of a descriptor; unmapped on drop. The kernel writes it while we read, so it is only ever read through
/// atomic loads of single words, and written where the protocol says that the kernel does not look yet.
#[derive(Debug)]
pub(crate) struct Shared {
    start: NonNull<u8>,
    len: usize,
}

impl Shared {
    /// Maps `len` bytes of `fd` from offset 0.
    pub fn map(fd: BorrowedFd<'_>, len: usize, writable: bool, what: &str) -> Result<Shared> {
        Shared::map_from(fd, 0, len, writable, what)
    }

    /// Maps `len` bytes of `fd` from `offset`, a whole number of pages.
    pub fn map_from(
        fd: BorrowedFd<'_>,
        offset: usize,
        len: usize,
        writable: bool,
        what: &str,
    ) -> Result<Shared> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let (shared, fd) = (libc::MAP_SHARED, fd.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection, shared, fd, offset as libc::off_t) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os(format!("cannot map {what}")));
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| Error::last_os(format!("cannot map {what}")))?;
        Ok(Shared { start, len })
    }

    /// The word at byte offset `at`.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len, "offset {at} in a mapping of {} bytes", self.len);
        // SAFETY: in bounds and aligned (mappings start on a page); AtomicU64 may be shared with the kernel's writes.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// Writes 32-bit words from byte offset `at` on. The caller knows that the kernel does not read them yet.
    pub fn write_u32(&self, at: usize, words: &[u32]) {
        let bytes = size_of_val(words);
        assert!(
            at.is_multiple_of(4) && at + bytes <= self.len,
            "{bytes} bytes at {at} in a mapping of {}",
            self.len
        );
        // SAFETY: in bounds, and `words` is memory of ours, so the ranges do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr().cast(), self.start.as_ptr().add(at), bytes) }
    }

    /// The 32-bit word at byte offset `at`, read without order; `None` outside.
    pub fn u32(&self, at: usize) -> Option<u32> {
        let inside = at.is_multiple_of(4) && at.checked_add(4).is_some_and(|end| end <= self.len);
        inside.then(|| {
            // SAFETY: in bounds and aligned (mappings start on a page); AtomicU32 may be shared with the kernel's writes.
            unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at).cast()) }.load(Ordering::Relaxed)
        })
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
