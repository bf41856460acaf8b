//! Places of addresses, and what is needed to name them.

use crate::counters::{Counters, Limits};
use crate::host::Host;
use crate::jit::{JitId, JitName, Jits};
use crate::mapping::{Code, Content, FileKey, Mapping, Process};
use crate::objects::{Object, ObjectId, Objects, OpenObject};
use crate::system::System;
use std::collections::HashMap;

/// Where the kernel maps `[vsyscall]` into each process on x86-64: Documentation/arch/x86/x86_64/mm.rst.
const VSYSCALL: u64 = 0xffff_ffff_ff60_0000;

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

/// Files and generated code of all processes, as far as they were seen.
#[derive(Debug)]
pub struct Processes<S: System = Host> {
    system: S,
    limits: Limits,
    counters: Counters,
    objects: Objects,
    jits: Jits,
    jit_of: HashMap<Process, JitId>,
    /// Look-ups in `/proc` in the current second.
    lookups: (u64, u32),
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
            objects: Objects::default(),
            jits: Jits::default(),
            jit_of: HashMap::new(),
            lookups: (0, 0),
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
    /// held open from the moment they are seen.
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

    /// Says that no Java virtual machine is to be asked for the names of its code.
    pub fn ask_no_jvm(&mut self) {
        self.jits.ask_no_jvm = true;
    }

    /// Asks each Java virtual machine that still runs for the names of its code seen so far. To be called now and then, and before
    /// a process is ended: one that has exited cannot be asked. Takes 10 to 100 ms for each that works.
    pub fn ask_jvms(&mut self) {
        self.jits.ask_jvms(&self.system, &self.limits, &mut self.counters);
    }

    /// Why code made at run time has no names, one sentence each, after [`Processes::jit_names`].
    pub fn jit_remarks(&self) -> Vec<String> {
        self.jits.remarks()
    }

    /// Takes note of a file that the kernel saw mapped, and opens it while that is possible: through the mapping, through the process's
    /// root, by its path. `None` at the bound.
    pub fn saw_file(&mut self, pid: u32, mapping: &Mapping<'_>, generation: u32) -> Option<ObjectId> {
        let object = self.objects.intern(mapping, generation, &self.limits, &mut self.counters)?;
        self.open_once(object, pid, (mapping.start, mapping.end));
        Some(object)
    }

    /// The object of a file that was seen.
    pub fn object_of(&self, key: &FileKey) -> Option<ObjectId> {
        self.objects.find(key)
    }

    /// Where `lookup`, the address of an instruction or of a byte of a call, lies in a process that was seen at `time_ns`
    /// (`CLOCK_MONOTONIC`). `code` is the mapping that the kernel found it in; without one `/proc` is asked, within bounds.
    pub fn resolve(&mut self, who: Process, time_ns: u64, lookup: u64, code: Option<&Code>) -> Resolved {
        if (VSYSCALL..VSYSCALL + 0x1000).contains(&lookup) {
            return Resolved::Special { name: "[vsyscall]", offset: lookup - VSYSCALL };
        }
        if lookup >> 63 != 0 {
            return Resolved::Unknown { reason: "kernel address in a user stack" };
        }
        let asked;
        let code = match code {
            Some(code) => code,
            None => match self.ask(who.pid, time_ns, lookup) {
                Ok(code) => {
                    asked = code;
                    &asked
                }
                Err(reason) => return Resolved::Unknown { reason },
            },
        };
        let into = lookup.wrapping_sub(code.start);
        match code.content {
            Content::Vdso => Resolved::Vdso { offset: into },
            Content::Anonymous => self.place_jit(who, lookup),
            Content::File { key, offset } => match self.file(who.pid, &key, lookup, code) {
                Some(object) if self.objects.get(object).is_generated() => self.place_jit(who, lookup),
                Some(object) => Resolved::File { object, file_offset: offset.wrapping_add(into) },
                None => Resolved::Unknown { reason: "too many files" },
            },
        }
    }

    /// The object of a file in a mapping; if nobody told of it before, without its path unless the process still lives.
    fn file(&mut self, pid: u32, key: &FileKey, lookup: u64, code: &Code) -> Option<ObjectId> {
        if let Some(object) = self.objects.find(key) {
            self.open_once(object, pid, (code.start, code.end));
            return Some(object);
        }
        self.counters.addresses_queried += 1;
        let told = self.system.mapping_at(pid, lookup).ok().flatten();
        let path = told.filter(|mapping| mapping.inode == key.inode).map(|mapping| mapping.path);
        let mapping = Mapping {
            start: code.start,
            end: code.end,
            file_offset: 0,
            device: key.device,
            inode: key.inode,
            path: path.unwrap_or_default(),
        };
        self.saw_file(pid, &mapping, key.generation)
    }

    fn open_once(&mut self, object: ObjectId, pid: u32, range: (u64, u64)) {
        self.objects.open_once(object, pid, range, &self.system, &self.limits, &mut self.counters);
    }

    /// The mapping of an address by `/proc`.
    fn ask(&mut self, pid: u32, time_ns: u64, lookup: u64) -> Result<Code, &'static str> {
        let second = time_ns / 1_000_000_000;
        if self.lookups.0 != second {
            self.lookups = (second, 0);
        }
        self.lookups.1 += 1;
        if self.lookups.1 > self.limits.lookups_per_second {
            self.counters.lookups_held_back += 1;
            return Err("mapping not looked up (too many such addresses)");
        }
        self.counters.addresses_queried += 1;
        let Ok(Some(mapping)) = self.system.mapping_at(pid, lookup) else { return Err("not mapped") };
        let key = FileKey { device: mapping.device, inode: mapping.inode, generation: 0 };
        let content = if *mapping.path == *b"[vdso]" {
            Content::Vdso
        } else if mapping.inode == 0 {
            Content::Anonymous
        } else {
            self.objects.intern(&mapping, 0, &self.limits, &mut self.counters);
            Content::File { key, offset: mapping.file_offset }
        };
        Ok(Code { start: mapping.start, end: mapping.end, content })
    }

    fn place_jit(&mut self, who: Process, address: u64) -> Resolved {
        let jit = match self.jit_of.get(&who) {
            Some(&jit) => jit,
            None => match self.jits.add(who.pid, &self.system, &self.limits, &mut self.counters) {
                Some(jit) => *self.jit_of.entry(who).or_insert(jit),
                None => {
                    self.counters.jit_addresses_dropped += 1;
                    return Resolved::Unknown { reason: "too many processes with generated code" };
                }
            },
        };
        self.jits.remember(jit, address, &self.limits, &mut self.counters);
        Resolved::Jit { jit, address }
    }
}
