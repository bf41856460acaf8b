//! Processes with code made at run time, and the names that their perf maps give it.

use crate::counters::{Counters, Limits};
use crate::perf_map::{self, Entry};
use crate::system::{Opened, Owner, System};
use std::collections::{BTreeSet, HashMap};
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
    /// Held open from the first look, so that it outlives the process's mount namespace.
    file: Option<File>,
    addresses: BTreeSet<u64>,
    /// Names found when the process exited.
    names: HashMap<u64, JitName>,
}

/// All images with code made at run time.
#[derive(Debug, Default)]
pub(crate) struct Jits {
    list: Vec<Jit>,
    open: usize,
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
        let mut jit = Jit { pid, owner, file: None, addresses: BTreeSet::new(), names: HashMap::new() };
        if self.open < OPEN_MAX {
            jit.file = open(&jit, system, counters).ok();
            self.open += usize::from(jit.file.is_some());
        }
        self.list.push(jit);
        Some(JitId(self.list.len() as u32 - 1))
    }

    /// Remembers an address to be named when the process exits.
    pub fn remember(&mut self, id: JitId, address: u64, limits: &Limits, counters: &mut Counters) {
        let addresses = &mut self.list[id.0 as usize].addresses;
        if addresses.len() < limits.jit_addresses_per_process {
            addresses.insert(address);
        } else if !addresses.contains(&address) {
            counters.jit_addresses_dropped += 1;
        }
    }

    /// The process has exited: reads its perf map while that is still there.
    pub fn exited(&mut self, id: JitId, system: &dyn System, limits: &Limits, counters: &mut Counters) {
        let addresses: Vec<u64> =
            std::mem::take(&mut self.list[id.0 as usize].addresses).into_iter().collect();
        let names = self.read(id, &addresses, system, limits, counters);
        let jit = &mut self.list[id.0 as usize];
        if let Ok(names) = names {
            jit.names.extend(addresses.into_iter().zip(names));
        }
        self.open -= usize::from(jit.file.take().is_some());
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
        let known = &self.list[id.0 as usize].names;
        let mut missing: Vec<u64> =
            addresses.iter().copied().filter(|address| !known.contains_key(address)).collect();
        missing.sort_unstable();
        missing.dedup();
        let read =
            if missing.is_empty() { Ok(vec![]) } else { self.read(id, &missing, system, limits, counters) };
        let known = &self.list[id.0 as usize].names;
        let name = |address: &u64| match (known.get(address), missing.binary_search(address), &read) {
            (Some(name), _, _) => name.clone(),
            (None, Ok(at), Ok(names)) => names[at].clone(),
            (_, _, Err(reason)) => JitName::Unknown { reason },
            (None, Err(_), Ok(_)) => JitName::Unknown { reason: "perf map has no entry" },
        };
        addresses.iter().map(name).collect()
    }

    fn read(
        &self,
        id: JitId,
        addresses: &[u64],
        system: &dyn System,
        limits: &Limits,
        counters: &mut Counters,
    ) -> Result<Vec<JitName>, &'static str> {
        let jit = &self.list[id.0 as usize];
        let mut file = match &jit.file {
            Some(file) => file.try_clone().map_err(|_| "no perf map")?,
            None => open(jit, system, counters)?,
        };
        file.seek(SeekFrom::Start(0)).map_err(|_| "no perf map")?;
        let (found, cut) =
            perf_map::find(&mut file, addresses, limits.perf_map_bytes).map_err(|_| "perf map unreadable")?;
        counters.perf_maps_cut += u64::from(cut);
        let name = |entry: Option<Entry>| match entry {
            Some(entry) => JitName::Known(entry),
            None if cut => JitName::Unknown { reason: "perf map too long" },
            None => JitName::Unknown { reason: "perf map has no entry" },
        };
        Ok(found.into_iter().map(name).collect())
    }
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
