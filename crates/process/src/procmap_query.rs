//! `PROCMAP_QUERY` (kernel 6.11 and newer): one mapping at a time, without the text of all others.
#![allow(unsafe_code)]

use crate::mapping::{Device, Mapping};
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `struct procmap_query` of the kernel's `include/uapi/linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}
const _: () = assert!(size_of::<Query>() == 104);

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::Ioctl =
    (3 << 30 | (size_of::<Query>() as u32) << 16 | (b'f' as u32) << 8 | 17) as libc::Ioctl;
const EXECUTABLE: u64 = 0x04;
const COVERING_OR_NEXT: u64 = 0x10;
/// Longest name the kernel writes, with its final zero.
const NAME_BYTES: usize = 4096;

/// Which mapping is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    Covering,
    CoveringOrNext,
}

/// The executable mapping at `address` (or the next one) of the process whose `/proc/PID/maps` is `maps`; `None` if
/// there is none. `name` is scratch memory.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] on kernels without the query; `ESRCH` if the process has no memory any more.
pub(crate) fn query<'a>(
    maps: &File,
    address: u64,
    which: Which,
    name: &'a mut Vec<u8>,
) -> io::Result<Option<Mapping<'a>>> {
    name.resize(NAME_BYTES, 0);
    let mut query = Query {
        size: size_of::<Query>() as u64,
        query_flags: EXECUTABLE | if which == Which::CoveringOrNext { COVERING_OR_NEXT } else { 0 },
        query_addr: address,
        vma_name_size: NAME_BYTES as u32,
        vma_name_addr: name.as_mut_ptr() as u64,
        ..Query::default()
    };
    // SAFETY: the kernel reads and writes `size` bytes at the third argument, which is a whole `Query` that lives
    // across the call, and writes at most `vma_name_size` bytes at `vma_name_addr`, which is `name`'s memory of exactly
    // that size; `name` is borrowed mutably, so nothing else refers to it meanwhile.
    let result = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
    if result != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOENT) => Ok(None),
            Some(libc::ENOTTY) => Err(io::ErrorKind::Unsupported.into()),
            _ => Err(error),
        };
    }
    // The size includes the final zero; 0 means no name.
    let length = (query.vma_name_size as usize).min(NAME_BYTES).saturating_sub(1);
    Ok(Some(Mapping {
        start: query.vma_start,
        end: query.vma_end,
        file_offset: query.vma_offset,
        device: Device { major: query.dev_major, minor: query.dev_minor },
        inode: query.inode,
        path: Cow::Borrowed(&name[..length]),
    }))
}
