//! Which processes start, execute, map code and exit: perf's sideband records of the whole machine.
//!
//! One dummy perf event per CPU carries them; they cost nothing while no process starts, maps executable memory or ends.
//! Record layouts: include/uapi/linux/perf_event.h, `enum perf_event_type`.

use crate::mmap::Shared;
use crate::perf::{Attr, PerfEvent, Scope, flag};
use crate::{Result, os};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

/// Data pages of one CPU's buffer: 128 KiB hold about 1,000 mapping records, what 60 to 100 program starts make.
const DATA_PAGES: usize = 32;

const PERF_SAMPLE_TID: u64 = 1 << 1;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
/// `struct sample_id` with TID and TIME: u32 pid, u32 tid, u64 time.
const TRAILER_BYTES: usize = 16;

/// Offsets in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// What happened to a process. Ids are those of lightfoot's own pid namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A process (not a thread) was created by `parent`.
    Fork {
        /// The creating process.
        parent: u32,
    },
    /// The process executed another program: its mappings are gone.
    Exec,
    /// Executable memory was mapped.
    Map(Box<Mapping>),
    /// The process's main thread ended.
    Exit,
    /// So many records did not fit in the buffer: what is known of processes may be out of date.
    Lost(u64),
}

/// One executable mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Offset in the file, in bytes.
    pub file_offset: u64,
    /// Device number of the file's file system, major and minor; 0, 0 for anonymous memory.
    pub device: (u32, u32),
    /// Inode number; 0 for anonymous memory.
    pub inode: u64,
    /// Path as the process sees it, `[vdso]`, `//anon`.
    pub path: Vec<u8>,
}

/// One event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// CLOCK_MONOTONIC, ns.
    pub time_ns: u64,
    /// The process.
    pub pid: u32,
    /// What happened.
    pub kind: Kind,
}

/// The open buffers of all CPUs.
#[derive(Debug)]
pub struct Sideband {
    buffers: Vec<Buffer>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Buffer {
    event: PerfEvent,
    pages: Shared,
}

impl Sideband {
    /// Opens and starts one buffer per online CPU.
    ///
    /// # Errors
    /// As [`PerfEvent::open`]; the mapping's errno when locked memory is refused.
    pub fn open() -> Result<Sideband> {
        let page = os::page_bytes();
        let mut attr = Attr::dummy();
        attr.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME;
        attr.flags = flag::MMAP
            | flag::MMAP2
            | flag::COMM
            | flag::COMM_EXEC
            | flag::TASK
            | flag::SAMPLE_ID_ALL
            | flag::USE_CLOCKID
            | flag::WATERMARK;
        attr.clockid = libc::CLOCK_MONOTONIC;
        attr.wakeup_events_or_watermark = (DATA_PAGES * page / 2) as u32;
        let mut buffers = Vec::new();
        for cpu in os::online_cpus()? {
            let event = PerfEvent::open(attr, Scope::Cpu(cpu))?;
            let pages =
                Shared::map(event.as_fd(), (1 + DATA_PAGES) * page, true, "a buffer of process events")?;
            buffers.push(Buffer { event, pages });
        }
        Ok(Sideband { buffers, bytes: Vec::new() })
    }

    /// Descriptors that become readable when a buffer is half full.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.buffers.iter().map(|b| b.event.as_fd())
    }

    /// Memory of all buffers, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.buffers.iter().map(|b| b.pages.len() as u64).sum()
    }

    /// Takes all waiting events of processes that `wanted` says yes to, in order of time. `wanted` sees the process and, for a
    /// fork, the parent.
    pub fn drain(&mut self, mut wanted: impl FnMut(u32, Option<u32>) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        for buffer in &self.buffers {
            buffer.take(&mut self.bytes);
            let mut rest = self.bytes.as_slice();
            while let Some((record, tail)) = split_record(rest) {
                rest = tail;
                if let Some(event) = parse(record) {
                    let parent = if let Kind::Fork { parent } = event.kind { Some(parent) } else { None };
                    if matches!(event.kind, Kind::Lost(_)) || wanted(event.pid, parent) {
                        events.push(event);
                    }
                }
            }
        }
        events.sort_by_key(|event| event.time_ns);
        events
    }
}

impl Buffer {
    /// Moves all complete records into `out`.
    fn take(&self, out: &mut Vec<u8>) {
        let page = os::page_bytes();
        let size = self.pages.len() - page;
        let head = self.pages.word(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.pages.relaxed(DATA_TAIL);
        let waiting = (head.wrapping_sub(tail) as usize).min(size);
        out.resize(waiting, 0);
        let at = (tail % size as u64) as usize;
        let first = waiting.min(size - at);
        // Between tail and head the kernel writes nothing until we move the tail.
        self.pages.copy(page + at, &mut out[..first]);
        self.pages.copy(page, &mut out[first..]);
        self.pages.word(DATA_TAIL).store(head, Ordering::Release);
    }
}

/// One record and what follows it; `None` at the end or where a size makes no sense.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let size = u16_at(bytes, 6)? as usize;
    (size >= 8).then(|| bytes.split_at_checked(size)).flatten()
}

fn parse(record: &[u8]) -> Option<Event> {
    let (kind, misc) = (u32_at(record, 0)?, u16_at(record, 4)?);
    let body = record.get(8..record.len().checked_sub(TRAILER_BYTES)?)?;
    let time_ns = u64_at(record, record.len() - 8)?;
    const LOST: u32 = 2;
    const COMM: u32 = 3;
    const EXIT: u32 = 4;
    const FORK: u32 = 7;
    const MMAP2: u32 = 10;
    const MISC_COMM_EXEC: u16 = 1 << 13;
    let (pid, second) = (u32_at(body, 0)?, u32_at(body, 4)?);
    let kind = match kind {
        LOST => Kind::Lost(u64_at(body, 8)?),
        COMM if misc & MISC_COMM_EXEC != 0 => Kind::Exec,
        // pid, ppid, tid, ptid: a thread has the pid of its creator's process.
        FORK if pid != second => Kind::Fork { parent: second },
        EXIT if pid == u32_at(body, 8)? => Kind::Exit,
        MMAP2 => {
            let path = body.get(64..)?;
            let end = path.iter().position(|&b| b == 0).unwrap_or(path.len());
            Kind::Map(Box::new(Mapping {
                start: u64_at(body, 8)?,
                len: u64_at(body, 16)?,
                file_offset: u64_at(body, 24)?,
                device: (u32_at(body, 32)?, u32_at(body, 36)?),
                inode: u64_at(body, 40)?,
                path: path[..end].to_vec(),
            }))
        }
        _ => return None,
    };
    Some(Event { time_ns, pid, kind })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(((8 + body.len() + TRAILER_BYTES) as u16).to_ne_bytes());
        bytes.extend(body);
        bytes.extend(5u32.to_ne_bytes());
        bytes.extend(5u32.to_ne_bytes());
        bytes.extend(77u64.to_ne_bytes());
        bytes
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn a_new_thread_is_not_a_new_process() {
        let thread = record(7, 0, &words(&[5, 5, 6, 5, 0, 0]));
        let process = record(7, 0, &words(&[6, 5, 6, 5, 0, 0]));
        assert_eq!(parse(&thread), None);
        assert_eq!(parse(&process), Some(Event { time_ns: 77, pid: 6, kind: Kind::Fork { parent: 5 } }));
    }

    #[test]
    fn only_the_main_thread_ends_a_process() {
        assert_eq!(parse(&record(4, 0, &words(&[5, 1, 6, 1, 0, 0]))), None);
        assert_eq!(parse(&record(4, 0, &words(&[5, 1, 5, 1, 0, 0]))).map(|e| e.kind), Some(Kind::Exit));
    }

    #[test]
    fn reads_a_mapping() {
        let mut body = words(&[5, 5]);
        for word in [0x1000u64, 0x2000, 0x3000] {
            body.extend(word.to_ne_bytes());
        }
        body.extend(words(&[8, 1]));
        body.extend(42u64.to_ne_bytes());
        body.extend([0; 16]);
        body.extend(b"/bin/true\0\0\0\0\0\0\0");
        let Some(Event { kind: Kind::Map(mapping), .. }) = parse(&record(10, 0, &body)) else {
            panic!("no mapping")
        };
        assert_eq!((mapping.start, mapping.len, mapping.file_offset), (0x1000, 0x2000, 0x3000));
        assert_eq!((mapping.device, mapping.inode), ((8, 1), 42));
        assert_eq!(mapping.path, b"/bin/true");
    }

    #[test]
    fn damaged_records_are_no_events() {
        let whole = record(10, 0, &words(&[5, 5]));
        for len in 0..whole.len() {
            if let Some((record, _)) = split_record(&whole[..len]) {
                parse(record);
            }
        }
        assert_eq!(parse(&whole), None, "a mapping without its fields");
        assert!(split_record(&[0; 8]).is_none(), "size 0 would never end");
    }
}
