//! Who sends and receives how much through OpenSSL in one process: the programs of `bpf/tls.bpf.c`, which take lengths and times, never
//! content. The same programs run wherever they are put, so that places can be compared with all else equal.

use crate::sampler::{find_program, keep_line, map, take_lines};
use crate::{Error, Kind, Result, os};
use libbpf_rs::{
    Link, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel, RingBuffer, RingBufferBuilder,
    UprobeMultiOpts, UprobeOpts,
};
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tls.bpf.o"));

/// `LF_TLS_WRITE`, `LF_TLS_EX`.
const WRITE: u64 = 1;
const EX: u64 = 2;
/// Bytes of `struct lf_tls_event`, and where its length and cookie are.
const EVENT_BYTES: usize = 48;
const LENGTH_AT: usize = 24;
const COOKIE_AT: usize = 40;

/// The functions that are watched, by their names in libssl.
pub const FUNCTIONS: [&str; 4] = ["SSL_read", "SSL_write", "SSL_read_ex", "SSL_write_ex"];

/// How the programs are attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// A perf event for each entry and each return.
    One,
    /// One link for all entries, one for all returns (Linux 6.6).
    Multi,
    /// One link for both (Linux 6.13).
    Session,
}

/// Where a call is seen to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// The kernel puts its own return address in the place of the caller's, at the instruction of the entry. The stack pointer must point
    /// at the return address there.
    Return,
    /// Each call passes exactly one of these instructions, after its value has been put into its register. File offsets.
    Instructions(Vec<u64>),
}

/// Where the programs stand in one function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// One of [`FUNCTIONS`].
    pub name: &'static str,
    /// File offset of an instruction at which the arguments are still in their registers.
    pub entry: u64,
    /// Where it ends.
    pub leaving: Leaving,
}

/// What became of the calls, counted in the kernel. When nothing fires any more `left = sent + lost`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Entries.
    pub entered: u64,
    /// Returns whose entry was seen.
    pub left: u64,
    /// Returns whose entry was not seen: the thread was inside when the probes came.
    pub stray: u64,
    /// Entries that there was no room to keep.
    pub no_room: u64,
    /// Events sent.
    pub sent: u64,
    /// Events lost: the ring was full.
    pub lost: u64,
}

/// What came through the ring.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Received {
    /// Events.
    pub events: u64,
    /// Of these, calls of `SSL_write` and `SSL_write_ex`.
    pub writes: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
}

/// The loaded programs. Dropping them detaches and frees all; so does the end of the process, however it comes.
pub struct Tls {
    // Fields drop in this order: first what fires, then what is fired.
    links: Vec<Link>,
    ring: RingBuffer<'static>,
    received: Rc<Cell<Received>>,
    manner: Manner,
    object: Object,
}

impl Tls {
    /// Loads the programs; nothing is attached yet. `ring_bytes` is a power of two, at least a page.
    ///
    /// # Errors
    /// What the kernel said; [`Kind::Unsupported`] if it does not have this manner.
    pub fn load(manner: Manner, ring_bytes: u32) -> Result<Tls> {
        libbpf_rs::set_print(Some((PrintLevel::Info, keep_line)));
        take_lines();
        let failed =
            |what: &str, e| Error::libbpf(format!("{what} the programs that watch TLS"), e, take_lines());
        let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(|e| failed("cannot open", e))?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name == "events" {
                map.set_max_entries(ring_bytes).map_err(|e| failed("cannot set up", e))?;
            } else if name.ends_with(".rodata")
                && let Some(config) = map.initial_value_mut().and_then(|bytes| bytes.first_chunk_mut::<4>())
            {
                *config = os::nested_pid_namespace().unwrap_or(0).to_ne_bytes();
            }
        }
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            program.set_autoload(match manner {
                Manner::One => name.ends_with("_one"),
                Manner::Multi => name.ends_with("_multi"),
                Manner::Session => name == "session",
            });
        }
        let object = open.load().map_err(|e| {
            let error = failed("the kernel refused", e);
            if manner == Manner::One { error } else { error.with_kind(Kind::Unsupported) }
        })?;
        let received = Rc::new(Cell::new(Received::default()));
        let ring = ring(&object, Rc::clone(&received))?;
        Ok(Tls { links: Vec::new(), ring, received, manner, object })
    }

    /// Attaches to these functions of `library` in the process `pid`, and in no other.
    ///
    /// # Errors
    /// The function that could not be attached to. Nothing is attached then.
    pub fn attach(&mut self, pid: u32, library: &Path, functions: &[Function]) -> Result<()> {
        let pid = i32::try_from(pid).map_err(|_| Error::new(Kind::Usage, format!("{pid} is no process")))?;
        let links = match self.manner {
            Manner::One => self.attach_one_by_one(pid, library, functions),
            Manner::Multi => self.attach_together(pid, library, functions),
            Manner::Session => self.attach_sessions(pid, library, functions),
        };
        self.links = links?;
        Ok(())
    }

    fn attach_one_by_one(&self, pid: i32, library: &Path, functions: &[Function]) -> Result<Vec<Link>> {
        let mut links = Vec::new();
        for function in functions {
            let mut add = |program: &str, offset: u64, retprobe| -> Result<()> {
                let options = UprobeOpts { retprobe, cookie: cookie(function), ..UprobeOpts::default() };
                let link = find_program(&self.object, program)?
                    .attach_uprobe_with_opts(pid, library, offset as usize, options)
                    .map_err(|e| {
                        Error::libbpf(format!("cannot attach to {}", function.name), e, take_lines())
                    })?;
                links.push(link);
                Ok(())
            };
            add("enter_one", function.entry, false)?;
            match &function.leaving {
                Leaving::Return => add("leave_one", function.entry, true)?,
                Leaving::Instructions(offsets) => {
                    offsets.iter().try_for_each(|&offset| add("leave_one", offset, false))?;
                }
            }
        }
        Ok(links)
    }

    fn attach_together(&self, pid: i32, library: &Path, functions: &[Function]) -> Result<Vec<Link>> {
        let entries = functions.iter().map(|function| (function.entry, cookie(function))).collect();
        let (mut returns, mut instructions) = (Vec::new(), Vec::new());
        for function in functions {
            match &function.leaving {
                Leaving::Return => returns.push((function.entry, cookie(function))),
                Leaving::Instructions(offsets) => {
                    instructions.extend(offsets.iter().map(|&offset| (offset, cookie(function))));
                }
            }
        }
        let parts = [
            ("enter_multi", entries, false),
            ("leave_multi", returns, true),
            ("leave_multi", instructions, false),
        ];
        let parts = parts.into_iter().filter(|(_, places, _): &(_, Vec<(u64, u64)>, _)| !places.is_empty());
        parts
            .map(|(program, places, retprobe)| self.link(program, pid, library, &places, retprobe, false))
            .collect()
    }

    fn attach_sessions(&self, pid: i32, library: &Path, functions: &[Function]) -> Result<Vec<Link>> {
        if let Some(function) = functions.iter().find(|function| function.leaving != Leaving::Return) {
            let what = format!("a session of {} ends with its return only", function.name);
            return Err(Error::new(Kind::Usage, what));
        }
        let places: Vec<_> = functions.iter().map(|function| (function.entry, cookie(function))).collect();
        Ok(vec![self.link("session", pid, library, &places, false, true)?])
    }

    fn link(
        &self,
        program: &str,
        pid: i32,
        library: &Path,
        places: &[(u64, u64)],
        retprobe: bool,
        session: bool,
    ) -> Result<Link> {
        let options = UprobeMultiOpts {
            offsets: places.iter().map(|&(offset, _)| offset as usize).collect(),
            cookies: places.iter().map(|&(_, cookie)| cookie).collect(),
            retprobe,
            session,
            ..UprobeMultiOpts::default()
        };
        find_program(&self.object, program)?
            .attach_uprobe_multi_with_opts(pid, library, "", options)
            .map_err(|e| Error::libbpf(format!("cannot attach to {}", library.display()), e, take_lines()))
    }

    /// Detaches everything; counters stay readable.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// Takes what waits in the ring. Nobody is woken for it: to be called often enough that the ring does not run full.
    ///
    /// # Errors
    /// As reading the ring.
    pub fn take(&self) -> Result<()> {
        self.ring.consume().map_err(|e| Error::libbpf("cannot read the ring", e, take_lines()))
    }

    /// What has been taken out of the ring so far.
    pub fn received(&self) -> Received {
        self.received.get()
    }

    /// Counters of the kernel's side so far.
    ///
    /// # Errors
    /// As reading a map.
    pub fn counts(&self) -> Result<Counts> {
        let values = map(&self.object, "counts")?
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| Error::libbpf("cannot read counters", e, take_lines()))?
            .unwrap_or_default();
        let sum = |word: usize| values.iter().filter_map(|value| word_at(value, word * 8)).sum();
        let [entered, left, stray, no_room, sent, lost] = [0, 1, 2, 3, 4, 5].map(sum);
        Ok(Counts { entered, left, stray, no_room, sent, lost })
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("manner", &self.manner)
            .field("links", &self.links.len())
            .finish_non_exhaustive()
    }
}

fn cookie(function: &Function) -> u64 {
    let write = if function.name.starts_with("SSL_write") { WRITE } else { 0 };
    write | if function.name.ends_with("_ex") { EX } else { 0 }
}

fn ring(object: &Object, received: Rc<Cell<Received>>) -> Result<RingBuffer<'static>> {
    let events = map(object, "events")?;
    let mut builder = RingBufferBuilder::new();
    let take = move |bytes: &[u8]| {
        received.set(add(received.get(), bytes));
        0
    };
    builder.add(&events, take).map_err(|e| Error::libbpf("cannot read the ring", e, take_lines()))?;
    builder.build().map_err(|e| Error::libbpf("cannot map the ring", e, take_lines()))
}

fn add(mut received: Received, event: &[u8]) -> Received {
    let (Some(length), Some(cookie)) = (word_at(event, LENGTH_AT), event.get(COOKIE_AT)) else {
        return received;
    };
    if event.len() != EVENT_BYTES {
        return received;
    }
    // Below zero: an error, or nothing yet.
    let bytes = if (length as i64) < 0 { 0 } else { length };
    received.events += 1;
    if u64::from(*cookie) & WRITE != 0 {
        received.writes += 1;
        received.bytes_written += bytes;
    } else {
        received.bytes_read += bytes;
    }
    received
}

fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(length: i64, cookie: u32) -> Vec<u8> {
        let mut bytes = vec![0; EVENT_BYTES];
        bytes[LENGTH_AT..LENGTH_AT + 8].copy_from_slice(&length.to_ne_bytes());
        bytes[COOKIE_AT..COOKIE_AT + 4].copy_from_slice(&cookie.to_ne_bytes());
        bytes
    }

    #[test]
    fn lengths_go_by_direction_and_errors_have_none() {
        let events = [event(100, 0), event(-1, 0), event(7, 1), event(11, 3), event(0, 1), vec![0; 8]];
        let received = events.iter().fold(Received::default(), |received, event| add(received, event));
        assert_eq!(received, Received { events: 5, writes: 3, bytes_read: 100, bytes_written: 18 });
    }

    #[test]
    fn cookies_follow_names() {
        let function = |name| Function { name, entry: 0, leaving: Leaving::Return };
        assert_eq!(FUNCTIONS.map(|name| cookie(&function(name))), [0, WRITE, EX, WRITE | EX]);
    }
}
