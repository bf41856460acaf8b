//! Executable files, each known once and held open.

use crate::counters::{Counters, Limits};
use crate::mapping::{Device, FileKey, Mapping};
use crate::system::{FileIdentity, Opened, System};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The kernel's mark behind the path of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";
/// Processes through which opening an object is tried.
const ATTEMPTS_MAX: u8 = 8;

/// Index into [`crate::Processes::objects`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ObjectId(pub u32);

/// An executable file, identified by [`FileKey`].
#[derive(Debug)]
pub struct Object {
    path: Box<[u8]>,
    device: Device,
    inode: u64,
    deleted: bool,
    elf: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nobody asked yet, or nobody could open it; with the number of processes through which it was tried and the last.
    Unopened {
        attempts: u8,
        last_pid: u32,
    },
    Open(Box<(File, FileIdentity)>),
    /// Closed because too many were open: where it can be opened again.
    Closed(Box<([PathBuf; 2], FileIdentity)>),
}

/// An object's file, opened to be read.
#[derive(Debug)]
pub struct OpenObject {
    /// The file; `/proc/self/fd/N` is a path to it.
    pub file: File,
    /// Size in bytes.
    pub size: u64,
}

impl Object {
    /// Path as the process saw it, for display, without the kernel's ` (deleted)`.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// Whether the file had lost its name when it was first seen.
    pub fn deleted(&self) -> bool {
        self.deleted
    }

    /// Device as the mapping shows it.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Inode number.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    fn opened(&self) -> bool {
        matches!(self.state, State::Open(_) | State::Closed(_))
    }

    /// Whether the object is a file that holds code made at run time: a memory file that is not ELF, or whose content
    /// nobody could look at.
    pub(crate) fn is_generated(&self) -> bool {
        self.path.starts_with(b"/memfd:") && !(self.opened() && self.elf)
    }

    fn matches(&self, identity: &FileIdentity, counters: &mut Counters) -> bool {
        if identity.inode != self.inode {
            return false;
        }
        // btrfs and overlayfs show another device in mappings than in stat; the inode number is the same.
        counters.devices_differing += u64::from(identity.device != self.device);
        true
    }
}

/// All objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    list: Vec<Object>,
    index: HashMap<FileKey, ObjectId>,
    open: usize,
}

impl Objects {
    pub fn all(&self) -> &[Object] {
        &self.list
    }

    pub fn get(&self, id: ObjectId) -> &Object {
        &self.list[id.0 as usize]
    }

    /// The object of a file, if it was seen.
    pub fn find(&self, key: &FileKey) -> Option<ObjectId> {
        self.index.get(key).copied()
    }

    /// The object of a file mapping; adds it if it is new. `None` at the bound.
    pub fn intern(
        &mut self,
        mapping: &Mapping<'_>,
        generation: u32,
        limits: &Limits,
        counters: &mut Counters,
    ) -> Option<ObjectId> {
        let key = FileKey { device: mapping.device, inode: mapping.inode, generation };
        if let Some(&id) = self.index.get(&key) {
            return Some(id);
        }
        if self.list.len() >= limits.objects {
            counters.objects_dropped += 1;
            return None;
        }
        let stripped = mapping.path.strip_suffix(DELETED);
        let id = ObjectId(self.list.len() as u32);
        self.list.push(Object {
            path: stripped.unwrap_or(&mapping.path).into(),
            device: mapping.device,
            inode: mapping.inode,
            deleted: stripped.is_some(),
            elf: false,
            state: State::Unopened { attempts: 0, last_pid: 0 },
        });
        self.index.insert(key, id);
        Some(id)
    }

    /// Opens the object's file if that has not been done: through the mapping itself, through the process's root, and
    /// by its path, whichever gives the mapped file.
    pub fn open_once(
        &mut self,
        id: ObjectId,
        pid: u32,
        (start, end): (u64, u64),
        system: &dyn System,
        limits: &Limits,
        counters: &mut Counters,
    ) {
        let object = &mut self.list[id.0 as usize];
        let State::Unopened { attempts, last_pid } = &mut object.state else { return };
        if *attempts >= ATTEMPTS_MAX || (*attempts > 0 && *last_pid == pid) {
            return;
        }
        (*attempts, *last_pid) = (*attempts + 1, pid);
        let by_path = paths(pid, &object.path);
        let opened = system
            .open_mapped(pid, start, end)
            .ok()
            .filter(|opened| object.matches(&opened.identity, counters))
            .or_else(|| open_by_path(object, &by_path, system, counters));
        let Some(Opened { file, identity }) = opened else {
            counters.files_unopened += 1;
            return;
        };
        let mut magic = [0; 4];
        object.elf = file.read_exact_at(&mut magic, 0).is_ok() && magic == *b"\x7fELF";
        if self.open < limits.open_files {
            self.open += 1;
            object.state = State::Open(Box::new((file, identity)));
        } else {
            counters.files_closed_early += 1;
            object.state = State::Closed(Box::new((by_path, identity)));
        }
    }

    /// The object's file for reading.
    ///
    /// # Errors
    /// A reason for people.
    pub fn reopen(
        &self,
        id: ObjectId,
        system: &dyn System,
        counters: &mut Counters,
    ) -> Result<OpenObject, &'static str> {
        let object = self.get(id);
        let (file, before) = match &object.state {
            State::Unopened { .. } => return Err("file gone"),
            State::Open(open) => (open.0.try_clone().map_err(|_| "file could not be opened again")?, open.1),
            State::Closed(closed) => {
                let opened = open_by_path(object, &closed.0, system, counters).ok_or("file gone")?;
                (opened.file, closed.1)
            }
        };
        let now = crate::host::identity(&file).map_err(|_| "file gone")?;
        if (now.device, now.inode, now.size, now.modified_ns)
            != (before.device, before.inode, before.size, before.modified_ns)
        {
            return Err("file changed");
        }
        Ok(OpenObject { file, size: now.size })
    }
}

/// Where a file may be found by its path: in the process's own root (another mount namespace, while the process
/// lives), and in ours.
fn paths(pid: u32, path: &[u8]) -> [PathBuf; 2] {
    let path = Path::new(OsStr::from_bytes(path));
    let below_root = path.strip_prefix("/").unwrap_or(path);
    [PathBuf::from(format!("/proc/{pid}/root")).join(below_root), path.to_path_buf()]
}

fn open_by_path(
    object: &Object,
    paths: &[PathBuf],
    system: &dyn System,
    counters: &mut Counters,
) -> Option<Opened> {
    if !object.path.starts_with(b"/") {
        return None;
    }
    paths
        .iter()
        .find_map(|path| system.open(path).ok().filter(|opened| object.matches(&opened.identity, counters)))
}
