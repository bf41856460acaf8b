//! Maps that are read by system calls.

use crate::abi::Count;
use crate::{Error, Result};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Entries of a hash map read in one system call: more than any bucket holds, or the kernel answers ENOSPC.
const BATCH: usize = 8192;

/// What a map's key or value is: words of which every bit pattern is one.
pub(crate) trait Words: Copy {
    /// All bits 0.
    const ZERO: Self;
}
impl Words for u64 {
    const ZERO: u64 = 0;
}
impl<const N: usize> Words for [u32; N] {
    const ZERO: [u32; N] = [0; N];
}
impl Words for Count {
    const ZERO: Count = Count { samples: 0, weight_ns: 0 };
}

/// Values of key 0 of a map of u64, one or one for each CPU.
pub(crate) fn read_first(map: BorrowedFd<'_>, values: usize) -> Result<Vec<u64>> {
    let (key, mut words) = (0u32, vec![0u64; values]);
    // SAFETY: the key has 4 bytes; the kernel writes 8 for each value, of which there is one for each possible CPU at most.
    let result = unsafe {
        libbpf_sys::bpf_map_lookup_elem(map.as_raw_fd(), (&raw const key).cast(), words.as_mut_ptr().cast())
    };
    if result < 0 {
        return Err(Error::io("cannot read a counter", io::Error::from_raw_os_error(-result)));
    }
    Ok(words)
}

/// Each entry of a hash map, read in batches. `K` and `V` have the sizes of its keys and values; `what` it holds, for the error.
///
/// # Errors
/// The errno of reading.
pub(crate) fn read_hash<K: Words, V: Words>(
    map: BorrowedFd<'_>,
    what: &str,
    mut take: impl FnMut(K, V),
) -> Result<()> {
    let (mut keys, mut values) = (vec![K::ZERO; BATCH], vec![V::ZERO; BATCH]);
    // Where the next batch starts: the kernel's business, a bucket number for hash maps.
    let (mut position, mut next, mut first) = (0u64, 0u64, true);
    loop {
        let mut count = BATCH as u32;
        let start = if first { std::ptr::null_mut() } else { (&raw mut position).cast() };
        // SAFETY: `keys` and `values` have room for `count` entries of the map's sizes; `position` and `next` for a bucket's number.
        let result = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_raw_fd(),
                start,
                (&raw mut next).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                std::ptr::null(),
            )
        };
        // ENOENT: that was the last batch; it may still have entries.
        if result < 0 && result != -libc::ENOENT {
            return Err(Error::io(format!("cannot read {what}"), io::Error::from_raw_os_error(-result)));
        }
        for (&key, &value) in keys.iter().zip(&values).take(count as usize) {
            take(key, value);
        }
        if result < 0 {
            return Ok(());
        }
        (position, first) = (next, false);
    }
}
