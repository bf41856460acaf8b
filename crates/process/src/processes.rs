//! The bookkeeping: events in, places of addresses out.

use crate::address::CodeAddress;
use crate::counters::{Counters, Limits};
use crate::event::{Event, Mapping};
use crate::host::Host;
use crate::images::{Closed, Exited, IMAGE_BYTES, Image};
use crate::jit::{JitId, JitName, Jits};
use crate::objects::{Object, ObjectId, Objects, OpenObject};
use crate::system::System;
use crate::table::{Entry, Gauge, Table, Target};
use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;

/// Below this address nothing is mapped (`vm.mmap_min_addr` is 64 KiB on all distributions); such addresses come from
/// broken frame pointers and are not worth a look-up.
const LOWEST_ADDRESS: u64 = 0x1_0000;

/// Where an address lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// In a file.
    File {
        /// The file.
        object: ObjectId,
        /// Offset in the file of the byte to look up, in bytes (for a return address already inside the call).
        file_offset: u64,
    },
    /// In the vDSO, the kernel's code in each process.
    Vdso {
        /// Offset in the vDSO's image, in bytes.
        offset: u64,
    },
    /// In memory without a file: code made at run time. Named by [`Processes::jit_names`].
    Jit {
        /// The process image.
        jit: JitId,
        /// The absolute address to look up.
        address: u64,
    },
    /// In another page that the kernel maps into processes.
    Special {
        /// Its name, for example `[vsyscall]`.
        name: &'static str,
        /// Offset in the page, in bytes.
        offset: u64,
    },
    /// Nowhere that is known.
    Unknown {
        /// A short phrase, for example `not mapped`.
        reason: &'static str,
    },
}

/// All processes of the machine, as far as they matter.
#[derive(Debug)]
pub struct Processes<S: System = Host> {
    system: S,
    limits: Limits,
    counters: Counters,
    live: HashMap<u32, Image>,
    /// Bytes of all tables.
    gauge: Gauge,
    exited: Exited,
    objects: Objects,
    jits: Jits,
    /// Raised by each loss of events: tables of an older epoch may be out of date.
    epoch: u64,
}

impl Processes<Host> {
    /// The processes of this machine.
    pub fn new(limits: Limits) -> Self {
        Processes::with_system(limits, Host::default())
    }
}

impl<S: System> Processes<S> {
    /// As [`Processes::new`], asking `system` instead of the machine.
    pub fn with_system(limits: Limits, system: S) -> Self {
        Processes {
            system,
            limits,
            counters: Counters::default(),
            live: HashMap::new(),
            gauge: Gauge::default(),
            exited: Exited::default(),
            objects: Objects::default(),
            jits: Jits::default(),
            epoch: 0,
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Every file seen, in the order of [`ObjectId`].
    pub fn objects(&self) -> &[Object] {
        self.objects.all()
    }

    /// The object's file for reading: the file that was mapped, even if it was deleted or replaced since. Files are
    /// held open from the first address resolved in them.
    ///
    /// # Errors
    /// A short phrase: `file gone`, `file changed`.
    pub fn open(&mut self, id: ObjectId) -> Result<OpenObject, &'static str> {
        self.objects.reopen(id, &self.system, &mut self.counters)
    }

    /// Names for addresses of code made at run time, in their order; from the process's perf map.
    pub fn jit_names(&mut self, id: JitId, addresses: &[u64]) -> Vec<JitName> {
        self.jits.name(id, addresses, &self.system, &self.limits, &mut self.counters)
    }

    /// Takes note of an event. Events must come in the order of time.
    pub fn apply(&mut self, event: Event<'_>) {
        self.counters.events += 1;
        match event {
            Event::Fork { pid, parent_pid, .. } if pid == parent_pid => {}
            Event::Fork { pid, parent_pid, time_ns } => {
                // An older process with this id must have exited.
                self.close(pid, time_ns);
                let image = match self.live.get(&parent_pid) {
                    Some(parent) => parent.fork(time_ns, &self.gauge),
                    None => Image::unread(time_ns, self.epoch, &self.gauge),
                };
                self.put(pid, image);
            }
            Event::Exec { pid, time_ns } => {
                self.close(pid, time_ns);
                self.put(pid, Image::replaced(time_ns, self.epoch, &self.gauge));
            }
            Event::Map { pid, mapping, .. } => {
                if !self.live.contains_key(&pid) {
                    let image = Image::unread(self.exited.last_end_ns(pid), self.epoch, &self.gauge);
                    self.put(pid, image);
                }
                self.map(pid, &mapping);
            }
            Event::Exit { pid, time_ns } => self.close(pid, time_ns),
            Event::Lost { count, .. } => {
                self.counters.events_lost += count;
                self.epoch += 1;
            }
        }
    }

    /// Where `address` lies in the process `pid` at `time_ns` (`CLOCK_MONOTONIC`). To be asked when the stack arrives,
    /// after the events before it were applied: mappings change, and processes exit.
    pub fn resolve(&mut self, pid: u32, time_ns: u64, address: CodeAddress) -> Resolved {
        let lookup = address.lookup();
        if lookup >> 63 != 0 && address.raw() < 0xffff_ffff_ff60_0000 {
            return Resolved::Unknown { reason: "kernel address in a user stack" };
        }
        let alive_then = match self.live.get(&pid) {
            Some(image) => image.from_ns <= time_ns,
            // Never seen; or seen to exit, but its id may have been given to another process in events that were lost.
            None => self
                .exited
                .at(pid, time_ns)
                .is_none_or(|image| image.until_ns <= time_ns && image.epoch != self.epoch),
        };
        if !alive_then {
            let Some(image) = self.exited.at(pid, time_ns) else {
                return Resolved::Unknown { reason: "process exited and its mappings were dropped" };
            };
            let (entry, jit) = (image.table.find(lookup).copied(), image.jit);
            return entry.map_or(Resolved::Unknown { reason: "not mapped" }, |entry| {
                self.place(pid, entry, lookup, jit)
            });
        }
        if !self.live.contains_key(&pid) {
            let image = Image::unread(self.exited.last_end_ns(pid), self.epoch, &self.gauge);
            self.put(pid, image);
        }
        let found = self.find_or_ask(pid, time_ns, lookup);
        match (self.live.get(&pid), found) {
            (Some(image), Some(entry)) => self.place(pid, entry, lookup, image.jit),
            (Some(image), None) => Resolved::Unknown { reason: image.miss_reason() },
            (None, _) => Resolved::Unknown { reason: "too many processes" },
        }
    }

    /// The mapping of a living process that covers `address`, from what is known or else from `/proc`.
    fn find_or_ask(&mut self, pid: u32, time_ns: u64, address: u64) -> Option<Entry> {
        let image = self.live.get_mut(&pid)?;
        if let Some(entry) = image.table.find(address).copied()
            && (image.complete || image.unreadable)
        {
            return Some(entry);
        }
        let out_of_date = !image.complete || image.epoch != self.epoch;
        if out_of_date && !image.unreadable {
            self.read(pid, time_ns);
            return self.live.get(&pid)?.table.find(address).copied();
        }
        if address < LOWEST_ADDRESS || image.unreadable {
            return None;
        }
        if !image.may_look_up(time_ns, self.limits.lookups_per_second) {
            self.counters.lookups_held_back += 1;
            return None;
        }
        self.counters.addresses_queried += 1;
        match self.system.mapping_at(pid, address) {
            Ok(Some(mapping)) => self.map(pid, &mapping),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                if self.live.get_mut(&pid)?.may_read_again(time_ns) {
                    self.read(pid, time_ns);
                }
            }
            Err(_) => {}
        }
        self.live.get(&pid)?.table.find(address).copied()
    }

    /// Reads the whole table of a living process; keeps what is known if that fails.
    fn read(&mut self, pid: u32, time_ns: u64) {
        let Some(image) = self.live.get(&pid) else { return };
        let start_ticks = self.system.start_ticks(pid).ok();
        if image.start_ticks.is_some() && start_ticks.is_some() && image.start_ticks != start_ticks {
            // Another process, whose beginning was not seen.
            self.counters.pids_reused += 1;
            self.close(pid, time_ns);
            self.put(pid, Image::unread(time_ns, self.epoch, &self.gauge));
        }
        let mut table = Table::new(&self.gauge);
        let (mut dropped, limit) = (0, self.limits.mappings_per_process);
        let (objects, limits, counters) = (&mut self.objects, &self.limits, &mut self.counters);
        let result = self.system.executable_mappings(pid, &mut |mapping| {
            if table.len() >= limit {
                dropped += 1;
                return ControlFlow::Break(());
            }
            match entry(&mapping, objects, limits, counters) {
                Some(entry) => table.insert(entry),
                None => dropped += 1,
            }
            ControlFlow::Continue(())
        });
        counters.mappings_dropped += dropped;
        let Some(image) = self.live.get_mut(&pid) else { return };
        image.complete = true;
        image.epoch = self.epoch;
        image.start_ticks = image.start_ticks.or(start_ticks);
        match result {
            Ok(malformed) => {
                counters.tables_read += 1;
                counters.maps_lines_malformed += malformed;
                table.shrink();
                let kept = table.len() as u64;
                image.table = Rc::new(table);
                if !self.make_room() {
                    // Keeps the process, forgets its mappings: the bound matters more than one process's names.
                    self.counters.mappings_dropped += kept;
                    if let Some(image) = self.live.get_mut(&pid) {
                        image.table = Rc::new(Table::new(&self.gauge));
                    }
                }
            }
            Err(_) => {
                counters.tables_unreadable += 1;
                image.unreadable = true;
            }
        }
    }

    /// Adds one mapping to a living process.
    fn map(&mut self, pid: u32, mapping: &Mapping<'_>) {
        let room = self.make_room();
        let Some(image) = self.live.get_mut(&pid) else { return };
        let room = room && image.table.len() < self.limits.mappings_per_process;
        let entry =
            if room { entry(mapping, &mut self.objects, &self.limits, &mut self.counters) } else { None };
        match entry {
            Some(entry) if image.table.contains(&entry) => {}
            Some(entry) => Rc::make_mut(&mut image.table).insert(entry),
            None => self.counters.mappings_dropped += 1,
        }
    }

    /// Takes note of a process; at the bound it is forgotten at once.
    fn put(&mut self, pid: u32, image: Image) {
        if self.make_room() {
            self.live.insert(pid, image);
        } else {
            self.counters.processes_dropped += 1;
        }
    }

    /// Ends the current image of `pid`: it exited, or executes another program.
    fn close(&mut self, pid: u32, time_ns: u64) {
        let Some(image) = self.live.remove(&pid) else { return };
        if let Some(jit) = image.jit {
            self.jits.exited(jit, &self.system, &self.limits, &mut self.counters);
        }
        self.exited.add(Closed {
            pid,
            from_ns: image.from_ns,
            until_ns: time_ns,
            table: image.table,
            jit: image.jit,
            epoch: self.epoch,
        });
        self.make_room();
    }

    /// Forgets exited processes until the bound is kept. Whether it is kept now.
    fn make_room(&mut self) -> bool {
        loop {
            let images = self.live.len() + self.exited.len();
            if self.gauge.get() + images * IMAGE_BYTES <= self.limits.mapping_bytes {
                return true;
            }
            if !self.exited.forget_oldest() {
                return false;
            }
            self.counters.exited_forgotten += 1;
        }
    }

    /// What an address in a mapping is, and makes sure that it can be named later.
    fn place(&mut self, pid: u32, entry: Entry, lookup: u64, jit: Option<JitId>) -> Resolved {
        let offset = lookup - entry.start;
        let object = match entry.target {
            Target::Vdso => return Resolved::Vdso { offset },
            Target::Special(name) => return Resolved::Special { name, offset },
            Target::Anonymous => return self.place_jit(pid, lookup, jit),
            Target::Object(object) => object,
        };
        let range = (entry.start, entry.end);
        self.objects.open_once(object, pid, range, &self.system, &self.limits, &mut self.counters);
        if self.objects.get(object).is_generated() {
            return self.place_jit(pid, lookup, jit);
        }
        Resolved::File { object, file_offset: entry.file_offset.wrapping_add(offset) }
    }

    fn place_jit(&mut self, pid: u32, address: u64, known: Option<JitId>) -> Resolved {
        let id = known.or_else(|| self.jits.add(pid, &self.system, &self.limits, &mut self.counters));
        let Some(jit) = id else {
            self.counters.jit_addresses_dropped += 1;
            return Resolved::Unknown { reason: "too many processes with generated code" };
        };
        if let Some(image) = self.live.get_mut(&pid).filter(|image| image.jit.is_none() && known.is_none()) {
            image.jit = Some(jit);
        }
        self.jits.remember(jit, address, &self.limits, &mut self.counters);
        Resolved::Jit { jit, address }
    }
}

/// What a mapping holds; `None` if it is not kept.
fn entry(
    mapping: &Mapping<'_>,
    objects: &mut Objects,
    limits: &Limits,
    counters: &mut Counters,
) -> Option<Entry> {
    const SPECIAL: [&str; 3] = ["[vsyscall]", "[uprobes]", "[uprobes-trampoline]"];
    let path: &[u8] = &mapping.path;
    let target = if path == b"[vdso]" {
        Target::Vdso
    } else if let Some(name) = SPECIAL.iter().find(|name| name.as_bytes() == path) {
        Target::Special(name)
    } else if mapping.inode == 0
        || path.is_empty()
        || !path.starts_with(b"/")
        || path.starts_with(b"//")
        || path.starts_with(b"/dev/zero")
        || path.starts_with(b"/anon_hugepage")
        || path.starts_with(b"/SYSV")
    {
        Target::Anonymous
    } else {
        Target::Object(objects.intern(mapping, limits, counters)?)
    };
    Some(Entry { start: mapping.start, end: mapping.end, file_offset: mapping.file_offset, target })
}
