//! Processes with code made at run time, and the names that their perf maps give it.

use crate::counters::{Counters, Limits};
use crate::perf_map::{self, Entry};
use crate::system::{Opened, Owner, Runtime, System};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::PathBuf;

/// Perf maps held open while their process lives.
const OPEN_MAX: usize = 64;

/// A process image with code made at run time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct JitId(pub u32);

/// The name of code made at run time, or why there is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JitName {
    /// Found in the perf map.
    Known(Entry),
    /// Not found.
    Unknown {
        /// A short phrase, for example `no perf map`.
        reason: &'static str,
    },
}

#[derive(Debug)]
struct Jit {
    pid: u32,
    owner: Option<Owner>,
    start_ticks: Option<u64>,
    runtime: Runtime,
    /// The JVM said no, or did not answer: it is not asked again.
    refused: Option<&'static str>,
    /// Why some address has no name, for people.
    missing: Option<&'static str>,
    /// Held open from the first look, so that it outlives the process's mount namespace.
    file: Option<File>,
    addresses: BTreeSet<u64>,
    /// Names found when the process exited.
    names: HashMap<u64, JitName>,
}

impl Jit {
    /// Whether the process still runs, and is not another one with the same id.
    fn is_alive(&self, system: &dyn System) -> bool {
        self.start_ticks.is_some() && system.start_ticks(self.pid).ok() == self.start_ticks
    }
}

/// All images with code made at run time.
#[derive(Debug, Default)]
pub(crate) struct Jits {
    list: Vec<Jit>,
    open: usize,
    /// Whether JVMs are not to be asked.
    pub ask_no_jvm: bool,
}

impl Jits {
    /// Adds an image of `pid`. `None` at the bound.
    pub fn add(
        &mut self,
        pid: u32,
        system: &dyn System,
        limits: &Limits,
        counters: &mut Counters,
    ) -> Option<JitId> {
        if self.list.len() >= limits.jit_processes {
            return None;
        }
        let owner = system.owner(pid).ok();
        let mut jit = Jit {
            pid,
            owner,
            start_ticks: system.start_ticks(pid).ok(),
            runtime: system.runtime(pid),
            refused: None,
            missing: None,
            file: None,
            addresses: BTreeSet::new(),
            names: HashMap::new(),
        };
        if self.open < OPEN_MAX {
            jit.file = open(&jit, system, counters).ok();
            self.open += usize::from(jit.file.is_some());
        }
        self.list.push(jit);
        Some(JitId(self.list.len() as u32 - 1))
    }

    /// Remembers an address to be named while a JVM can still be asked.
    pub fn remember(&mut self, id: JitId, address: u64, limits: &Limits, counters: &mut Counters) {
        let addresses = &mut self.list[id.0 as usize].addresses;
        if addresses.len() < limits.jit_addresses_per_process {
            addresses.insert(address);
        } else if !addresses.contains(&address) {
            counters.jit_addresses_dropped += 1;
        }
    }

    /// Reads names now and keeps them; those that were known stay, since compilers drop code.
    fn learn(
        &mut self,
        id: JitId,
        addresses: &[u64],
        system: &dyn System,
        limits: &Limits,
        counters: &mut Counters,
    ) {
        let Ok(names) = self.read(id, addresses, system, limits, counters) else { return };
        let known = &mut self.list[id.0 as usize].names;
        for (&address, name) in addresses.iter().zip(names) {
            if matches!(name, JitName::Known(_)) || !known.contains_key(&address) {
                known.insert(address, name);
            }
        }
    }

    /// Asks each JVM that still runs for the names of the code seen so far, since it cannot be asked when it has exited.
    /// A JVM takes 10 to 100 ms; one that does not answer is asked once.
    pub fn ask_jvms(&mut self, system: &dyn System, limits: &Limits, counters: &mut Counters) {
        for index in 0..self.list.len() {
            let jit = &self.list[index];
            if jit.runtime != Runtime::Java || jit.addresses.is_empty() || !jit.is_alive(system) {
                continue;
            }
            let known = |address: &u64| matches!(jit.names.get(address), Some(JitName::Known(_)));
            let addresses: Vec<u64> = jit.addresses.iter().copied().filter(|a| !known(a)).collect();
            if !addresses.is_empty() {
                self.learn(JitId(index as u32), &addresses, system, limits, counters);
            }
        }
    }

    /// Why code made at run time has no names, one sentence each, with what would help.
    pub fn remarks(&self) -> Vec<String> {
        let mut by_reason: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for jit in &self.list {
            if let Some(reason) = jit.missing {
                by_reason.entry(reason).or_default().push(jit.pid);
            }
        }
        let sentence = |(reason, mut pids): (&str, Vec<u32>)| {
            pids.sort_unstable();
            pids.dedup();
            let shown = pids.iter().take(4).map(u32::to_string).collect::<Vec<_>>().join(", ");
            let more = if pids.len() > 4 { format!(" and {} more", pids.len() - 4) } else { String::new() };
            format!("code made at run time without names: {reason}: process {shown}{more}")
        };
        by_reason.into_iter().map(sentence).collect()
    }

    /// Names for `addresses`, in their order.
    pub fn name(
        &mut self,
        id: JitId,
        addresses: &[u64],
        system: &dyn System,
        limits: &Limits,
        counters: &mut Counters,
    ) -> Vec<JitName> {
        let jit = &self.list[id.0 as usize];
        let alive = jit.is_alive(system);
        // What a map did not have while the process ran may be in the next one.
        let settled = |address: &u64| match jit.names.get(address) {
            Some(JitName::Known(_)) => true,
            Some(JitName::Unknown { .. }) => !alive,
            None => false,
        };
        let mut missing: Vec<u64> = addresses.iter().copied().filter(|address| !settled(address)).collect();
        missing.sort_unstable();
        missing.dedup();
        let read =
            if missing.is_empty() { Ok(vec![]) } else { self.read(id, &missing, system, limits, counters) };
        let jit = &mut self.list[id.0 as usize];
        let name = |address: &u64| match (missing.binary_search(address), &read) {
            (Ok(at), Ok(names)) => names[at].clone(),
            (Ok(_), Err(reason)) => JitName::Unknown { reason },
            (Err(_), _) => jit.names[address].clone(),
        };
        let names: Vec<JitName> = addresses.iter().map(name).collect();
        let reason = |name: &JitName| match name {
            JitName::Unknown { reason } => Some(*reason),
            JitName::Known(_) => None,
        };
        jit.missing = jit.missing.or(names.iter().find_map(reason));
        names
    }

    fn read(
        &mut self,
        id: JitId,
        addresses: &[u64],
        system: &dyn System,
        limits: &Limits,
        counters: &mut Counters,
    ) -> Result<Vec<JitName>, &'static str> {
        let ask_no_jvm = self.ask_no_jvm;
        let jit = &mut self.list[id.0 as usize];
        let opened = match &jit.file {
            Some(file) => file.try_clone().map_err(|_| "no perf map"),
            None => open(jit, system, counters),
        };
        let mut file = match (opened, jit.runtime) {
            (Err("no perf map"), Runtime::Node) => {
                return Err("no perf map (start node with --perf-basic-prof)");
            }
            (Err("no perf map"), Runtime::Java) => ask(jit, ask_no_jvm, system, counters)?,
            (opened, _) => opened?,
        };
        file.seek(SeekFrom::Start(0)).map_err(|_| "no perf map")?;
        let (found, cut) =
            perf_map::find(&mut file, addresses, limits.perf_map_bytes).map_err(|_| "perf map unreadable")?;
        counters.perf_maps_cut += u64::from(cut);
        let interpreted = match jit.runtime {
            Runtime::Java => "the JVM's map has no entry: its interpreter, or code that it has dropped",
            _ => "perf map has no entry",
        };
        let name = |entry: Option<Entry>| match entry {
            Some(entry) => JitName::Known(entry),
            None if cut => JitName::Unknown { reason: "perf map too long" },
            None => JitName::Unknown { reason: interpreted },
        };
        Ok(found.into_iter().map(name).collect())
    }
}

/// Has a JVM write its perf map, and opens it.
fn ask(
    jit: &mut Jit,
    ask_no_jvm: bool,
    system: &dyn System,
    counters: &mut Counters,
) -> Result<File, &'static str> {
    if let Some(reason) = jit.refused {
        return Err(reason);
    }
    if ask_no_jvm {
        return Err("the JVM was not asked (--no-jvm-attach)");
    }
    let Some(owner) = jit.owner.filter(|_| jit.is_alive(system)) else {
        return Err("the JVM has exited (java -XX:+DumpPerfMapAtExit keeps the names)");
    };
    counters.jvms_asked += 1;
    let same = || jit.start_ticks.is_some() && system.start_ticks(jit.pid).ok() == jit.start_ticks;
    // Removed again when it has been opened.
    let written = match system.ask_jvm(jit.pid, owner, &same) {
        Ok(written) => written,
        Err(reason) => {
            jit.refused = Some(reason);
            return Err(reason);
        }
    };
    let file = open(jit, system, counters);
    drop(written);
    file
}

/// Opens the perf map of a process: under its own root by its innermost process id, then in our `/tmp`. Only a regular
/// file of the process's own user or of root is taken, so that nobody else can put names into a profile.
fn open(jit: &Jit, system: &dyn System, counters: &mut Counters) -> Result<File, &'static str> {
    let pid = jit.pid;
    let Some(owner) = jit.owner else { return Err("no perf map") };
    let paths = [
        PathBuf::from(format!("/proc/{pid}/root/tmp/perf-{}.map", owner.ns_pid)),
        PathBuf::from(format!("/tmp/perf-{pid}.map")),
    ];
    let mut reason = "no perf map";
    for path in &paths {
        match system.open(path) {
            Ok(Opened { file, identity }) if identity.uid == 0 || identity.uid == owner.uid => {
                return Ok(file);
            }
            // ESRCH: exited; EACCES: not our process.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::EACCES)) => {
            }
            Ok(_) | Err(_) => {
                counters.perf_maps_refused += 1;
                reason = "perf map refused (not a regular file of the process's user)";
            }
        }
    }
    Err(reason)
}
