//! The real machine.

use crate::jit_jvm;
use crate::lines::for_each_line;
use crate::mapping::{Device, Mapping};
use crate::maps;
use crate::procmap_query::{Which, query};
use crate::system::{FileIdentity, Opened, Owner, Runtime, System, Written};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Asks `/proc` and the file system.
#[derive(Debug)]
pub struct Host {
    /// Whether `PROCMAP_QUERY` may work: until the kernel says that it does not know it.
    query: Cell<bool>,
    name: RefCell<Vec<u8>>,
}

impl Default for Host {
    fn default() -> Self {
        Host { query: Cell::new(true), name: RefCell::default() }
    }
}

impl Host {
    /// A host that reads the text of `/proc/PID/maps` even where the kernel offers `PROCMAP_QUERY`.
    pub fn text_only() -> Self {
        Host { query: Cell::new(false), ..Host::default() }
    }

    fn text(
        &self,
        maps: &mut File,
        visit: &mut dyn FnMut(Mapping<'_>) -> ControlFlow<()>,
    ) -> io::Result<u64> {
        let mut malformed = 0;
        let (skipped, _) = for_each_line(maps, u64::MAX, &mut |line| match maps::parse_line(line) {
            Ok(Some(mapping)) => visit(mapping),
            Ok(None) => ControlFlow::Continue(()),
            Err(()) => {
                malformed += 1;
                ControlFlow::Continue(())
            }
        })?;
        Ok(malformed + skipped)
    }
}

impl System for Host {
    fn executable_mappings(
        &self,
        pid: u32,
        visit: &mut dyn FnMut(Mapping<'_>) -> ControlFlow<()>,
    ) -> io::Result<u64> {
        let mut maps = File::open(format!("/proc/{pid}/maps"))?;
        if !self.query.get() {
            return self.text(&mut maps, visit);
        }
        let mut address = 0;
        let mut name = self.name.borrow_mut();
        loop {
            match query(&maps, address, Which::CoveringOrNext, &mut name) {
                Ok(Some(mapping)) => {
                    // A mapping always ends behind the address asked for; anything else would never end.
                    let end = mapping.end;
                    if visit(mapping).is_break() || end <= address {
                        return Ok(0);
                    }
                    address = end;
                }
                Ok(None) => return Ok(0),
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    self.query.set(false);
                    return self.text(&mut maps, visit);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn mapping_at(&self, pid: u32, address: u64) -> io::Result<Option<Mapping<'static>>> {
        if !self.query.get() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let maps = File::open(format!("/proc/{pid}/maps"))?;
        let mut name = self.name.borrow_mut();
        let found = query(&maps, address, Which::Covering, &mut name);
        if found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Unsupported) {
            self.query.set(false);
        }
        Ok(found?.map(|mapping| Mapping { path: Cow::Owned(mapping.path.to_vec()), ..mapping }))
    }

    fn start_ticks(&self, pid: u32) -> io::Result<u64> {
        // The thread's file, not the process's: the latter sums up all threads, which takes long where there are many.
        let mut stat = Vec::with_capacity(512);
        File::open(format!("/proc/{pid}/task/{pid}/stat"))?.take(4096).read_to_end(&mut stat)?;
        // Field 2 is the name in parentheses and may hold any byte; field 22 is the start.
        let behind_name = stat.iter().rposition(|&byte| byte == b')').map_or(&[][..], |at| &stat[at + 1..]);
        let field = behind_name.split(|&byte| byte == b' ').filter(|field| !field.is_empty()).nth(22 - 3);
        field.and_then(maps::decimal).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn owner(&self, pid: u32) -> io::Result<Owner> {
        let (mut ns_pid, mut uid) = (None, None);
        let number = |field: Option<&[u8]>| field.and_then(maps::decimal).and_then(|n| u32::try_from(n).ok());
        for_each_line(&mut File::open(format!("/proc/{pid}/status"))?, 64 << 10, &mut |line| {
            if let Some(values) = line.strip_prefix(b"NSpid:") {
                ns_pid = number(words(values).last());
            } else if let Some(values) = line.strip_prefix(b"Uid:") {
                // Real, effective, saved, file system.
                uid = number(words(values).nth(1));
            }
            ControlFlow::Continue(())
        })?;
        let uid = uid.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Owner { ns_pid: ns_pid.unwrap_or(pid), uid })
    }

    fn open(&self, path: &Path) -> io::Result<Opened> {
        open_regular(path, libc::O_NOFOLLOW)
    }

    fn open_mapped(&self, pid: u32, start: u64, end: u64) -> io::Result<Opened> {
        open_regular(Path::new(&format!("/proc/{pid}/map_files/{start:x}-{end:x}")), 0)
    }

    fn runtime(&self, pid: u32) -> Runtime {
        let mut found = Runtime::Other;
        let look = &mut |mapping: Mapping<'_>| {
            let path = mapping.path.strip_suffix(b" (deleted)").unwrap_or(&mapping.path);
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
            found = match name {
                b"libjvm.so" => Runtime::Java,
                b"node" | b"nodejs" => Runtime::Node,
                name if name.starts_with(b"libnode.so") => Runtime::Node,
                _ => return ControlFlow::Continue(()),
            };
            ControlFlow::Break(())
        };
        // Unreadable: then there are no names either.
        self.executable_mappings(pid, look).ok();
        found
    }

    fn ask_jvm(&self, pid: u32, owner: Owner, same: &dyn Fn() -> bool) -> Result<Written, &'static str> {
        Ok(Box::new(jit_jvm::write_perf_map(pid, owner, same)?))
    }
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Opens a regular file. The first open takes hold of the file without opening it (`O_PATH`), so that a device or a
/// FIFO under a hostile path is recognised before it can wait or act.
fn open_regular(path: &Path, flags: i32) -> io::Result<Opened> {
    let held = OpenOptions::new().read(true).custom_flags(libc::O_PATH | flags).open(path)?;
    if !held.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(format!("/proc/self/fd/{}", held.as_raw_fd()))?;
    let identity = identity(&file)?;
    Ok(Opened { file, identity })
}

/// Which file it is, as `fstat` says.
pub(crate) fn identity(file: &File) -> io::Result<FileIdentity> {
    let metadata = file.metadata()?;
    Ok(FileIdentity {
        device: Device { major: libc::major(metadata.dev()), minor: libc::minor(metadata.dev()) },
        inode: metadata.ino(),
        size: metadata.size(),
        modified_ns: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
        uid: metadata.uid(),
    })
}
