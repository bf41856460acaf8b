//! Places of addresses, files, generated code and bounds, against a machine made of tables.

use lightfoot_process::{
    Code, Content, Device, FileIdentity, FileKey, JitName, Limits, Mapping, Opened, Owner, Process,
    Processes, Resolved, System,
};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const DISK: Device = Device { major: 8, minor: 1 };

/// What the made-up machine holds; shared with the test, which changes it while it runs.
#[derive(Default)]
struct Machine {
    mappings: HashMap<u32, Vec<Mapping<'static>>>,
    start_ticks: HashMap<u32, u64>,
    /// Path to identity and content.
    files: HashMap<PathBuf, (FileIdentity, Vec<u8>)>,
    queries: u32,
}

#[derive(Clone, Default)]
struct Fake(Rc<RefCell<Machine>>);

impl System for Fake {
    fn executable_mappings(
        &self,
        pid: u32,
        visit: &mut dyn FnMut(Mapping<'_>) -> ControlFlow<()>,
    ) -> io::Result<u64> {
        let machine = self.0.borrow_mut();
        let mappings = machine.mappings.get(&pid).cloned().ok_or(io::ErrorKind::NotFound)?;
        let _ = mappings.into_iter().try_for_each(visit);
        Ok(0)
    }

    fn mapping_at(&self, pid: u32, address: u64) -> io::Result<Option<Mapping<'static>>> {
        let mut machine = self.0.borrow_mut();
        machine.queries += 1;
        let mappings = machine.mappings.get(&pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&address)).cloned())
    }

    fn start_ticks(&self, pid: u32) -> io::Result<u64> {
        self.0.borrow().start_ticks.get(&pid).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn owner(&self, pid: u32) -> io::Result<Owner> {
        Ok(Owner { ns_pid: pid % 100, uid: 1000 })
    }

    fn open(&self, path: &Path) -> io::Result<Opened> {
        let machine = self.0.borrow();
        let (identity, content) =
            machine.files.get(path).ok_or(io::Error::from_raw_os_error(libc::ENOENT))?;
        let mut file = tempfile::tempfile()?;
        file.write_all(content)?;
        Ok(Opened { file, identity: *identity })
    }

    fn open_mapped(&self, _: u32, _: u64, _: u64) -> io::Result<Opened> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

fn mapping(start: u64, path: &'static str, inode: u64) -> Mapping<'static> {
    let device = if inode == 0 { Device::default() } else { DISK };
    Mapping {
        start,
        end: start + 0x1000,
        file_offset: 0x1000,
        device,
        inode,
        path: Cow::Borrowed(path.as_bytes()),
    }
}

fn identity(inode: u64, uid: u32) -> FileIdentity {
    FileIdentity { device: DISK, inode, size: 4, modified_ns: 0, uid }
}

struct World {
    machine: Fake,
    processes: Processes<Fake>,
}

fn world(limits: Limits) -> World {
    let machine = Fake::default();
    World { processes: Processes::with_system(limits, machine.clone()), machine }
}

impl World {
    /// A file is announced, as the kernel does it before the first stack through it.
    fn see(&mut self, pid: u32, mapping: &Mapping<'_>, generation: u32) {
        self.processes.saw_file(pid, mapping, generation);
    }

    /// The path of the object at an address with its mapping, or the reason.
    fn at(&mut self, who: Process, address: u64, code: Option<&Code>) -> String {
        match self.processes.resolve(who, 1, address, code) {
            Resolved::File { object, file_offset } => {
                let path = self.processes.objects()[object.0 as usize].path().display().to_string();
                format!("{path}+{file_offset:x}")
            }
            Resolved::Unknown { reason } => reason.into(),
            other => format!("{other:?}"),
        }
    }
}

fn process(pid: u32) -> Process {
    Process { pid, start_ns: u64::from(pid) * 1000, exec_id: 1 }
}

/// The mapping as it comes with a stack.
fn code(mapping: &Mapping<'_>, generation: u32) -> Code {
    let key = FileKey { device: mapping.device, inode: mapping.inode, generation };
    let content = Content::File { key, offset: mapping.file_offset };
    Code { start: mapping.start, end: mapping.end, content }
}

#[test]
fn a_stack_brings_its_own_mappings() {
    let mut w = world(Limits::default());
    let (shell, library) = (mapping(0x10_0000, "/bin/sh", 7), mapping(0x10_0000, "/lib/a.so", 8));
    w.see(1, &shell, 0);
    w.see(1, &library, 0);
    // The same address in two processes, and in one process before and after an exec: no table of ours could get that wrong.
    assert_eq!(w.at(process(1), 0x10_0010, Some(&code(&shell, 0))), "/bin/sh+1010");
    assert_eq!(w.at(process(2), 0x10_0010, Some(&code(&library, 0))), "/lib/a.so+1010");
    assert_eq!(w.at(process(1), 0x10_0010, Some(&code(&library, 0))), "/lib/a.so+1010");
    assert_eq!(w.machine.0.borrow().queries, 0, "/proc is not asked");
}

#[test]
fn a_number_that_is_used_again_is_another_file() {
    let mut w = world(Limits::default());
    let (old, new) = (mapping(0x10_0000, "/bin/old", 1), mapping(0x10_0000, "/bin/new", 1));
    w.see(1, &old, 100);
    w.see(2, &new, 200);
    w.see(3, &mapping(0x10_0000, "/bin/other-path", 1), 200);
    assert_eq!(w.at(process(1), 0x10_0000, Some(&code(&old, 100))), "/bin/old+1000");
    assert_eq!(w.at(process(2), 0x10_0000, Some(&code(&new, 200))), "/bin/new+1000");
    assert_eq!(w.processes.objects().len(), 2, "one file under two paths is one file");
}

#[test]
fn a_file_that_nobody_announced_is_asked_for() {
    let mut w = world(Limits::default());
    let known = mapping(0x10_0000, "/bin/a", 1);
    w.machine.0.borrow_mut().mappings.insert(1, vec![known.clone()]);
    assert_eq!(w.at(process(1), 0x10_0000, Some(&code(&known, 5))), "/bin/a+1000");
    let gone = mapping(0x20_0000, "/bin/b", 2);
    assert_eq!(w.at(process(1), 0x20_0000, Some(&code(&gone, 5))), "+1000", "a file without a path");
}

#[test]
fn an_address_without_a_mapping_is_looked_up_and_not_too_often() {
    let mut w = world(Limits { lookups_per_second: 4, ..Limits::default() });
    w.machine.0.borrow_mut().mappings.insert(1, vec![mapping(0x30_0000, "/lib/late.so", 2)]);
    assert_eq!(w.at(process(1), 0x30_0000, None), "/lib/late.so+1000");
    let mut reasons = HashMap::new();
    for i in 0..100 {
        *reasons.entry(w.at(process(1), 0x50_0000 + i, None)).or_insert(0) += 1;
    }
    assert_eq!(reasons["not mapped"], 3);
    assert_eq!(w.processes.counters().lookups_held_back, 97);
    assert_eq!(w.machine.0.borrow().queries, 4);
    assert!(matches!(
        w.processes.resolve(process(1), 2_000_000_000, 0x50_0000, None),
        Resolved::Unknown { reason: "not mapped" }
    ));
}

#[test]
fn too_many_files_are_counted() {
    let mut w = world(Limits { objects: 12, ..Limits::default() });
    for inode in 1..=20 {
        w.see(2, &mapping(0x10_0000, "/bin/b", inode), 0);
    }
    assert_eq!(w.processes.objects().len(), 12);
    assert_eq!(w.processes.counters().objects_dropped, 8);
    let last = mapping(0x10_0000, "/bin/b", 20);
    assert_eq!(w.at(process(2), 0x10_0000, Some(&code(&last, 0))), "too many files");
}

#[test]
fn only_the_mapped_file_is_opened() {
    let mut w = world(Limits::default());
    let files = |w: &World, path: &str, inode| {
        let file = (identity(inode, 0), b"\x7fELF".to_vec());
        w.machine.0.borrow_mut().files.insert(path.into(), file);
    };
    files(&w, "/bin/replaced", 99);
    files(&w, "/proc/1/root/bin/in-container", 5);
    w.see(1, &mapping(0x10_0000, "/bin/replaced", 4), 0);
    w.see(1, &mapping(0x20_0000, "/bin/in-container", 5), 0);
    let ids: Vec<_> = (0..2).map(lightfoot_process::ObjectId).collect();
    assert_eq!(w.processes.open(ids[0]).unwrap_err(), "file gone");
    // The made-up machine gives a temporary file, which is another one than it says.
    assert_eq!(w.processes.open(ids[1]).unwrap_err(), "file changed");
    assert_eq!(w.processes.counters().files_unopened, 1);
}

#[test]
fn generated_code_is_named_by_the_perf_map_of_its_own_user_only() {
    let mut w = world(Limits::default());
    let map = b"100000 100 Builtin:hello\n".to_vec();
    w.machine
        .0
        .borrow_mut()
        .files
        .insert("/proc/207/root/tmp/perf-7.map".into(), (identity(1, 1000), map.clone()));
    w.machine.0.borrow_mut().files.insert("/tmp/perf-308.map".into(), (identity(2, 666), map));
    let mut name = |pid: u32| {
        let code = Code { start: 0x10_0000, end: 0x10_1000, content: Content::Anonymous };
        let resolved = w.processes.resolve(process(pid), 3, 0x10_0050, Some(&code));
        let Resolved::Jit { jit, address } = resolved else { panic!("{resolved:?}") };
        // The file vanishes with the process; it is held open from the first look.
        w.machine.0.borrow_mut().files.remove(Path::new("/proc/207/root/tmp/perf-7.map"));
        match &w.processes.jit_names(jit, &[address])[..] {
            [JitName::Known(entry)] => entry.name.to_string(),
            [JitName::Unknown { reason }] => (*reason).into(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(name(207), "Builtin:hello");
    assert!(name(308).starts_with("perf map refused"));
    assert_eq!(name(409), "no perf map");
}

#[test]
fn another_process_with_the_same_id_has_its_own_generated_code() {
    let mut w = world(Limits::default());
    let code = Code { start: 0x10_0000, end: 0x10_1000, content: Content::Anonymous };
    let mut jit = |who| match w.processes.resolve(who, 1, 0x10_0000, Some(&code)) {
        Resolved::Jit { jit, .. } => jit,
        other => panic!("{other:?}"),
    };
    let first = jit(process(5));
    assert_eq!(jit(process(5)), first);
    assert_ne!(jit(Process { start_ns: 7, ..process(5) }), first);
    assert_ne!(jit(Process { exec_id: 2, ..process(5) }), first);
}

#[test]
fn special_mappings() {
    let mut w = world(Limits::default());
    let vdso = Code { start: 0x10_0000, end: 0x10_2000, content: Content::Vdso };
    let mut at = |address, code: Option<&Code>| w.processes.resolve(process(1), 2, address, code);
    assert_eq!(at(0x10_0020, Some(&vdso)), Resolved::Vdso { offset: 0x20 });
    assert_eq!(at(0xffff_ffff_ff60_0004, None), Resolved::Special { name: "[vsyscall]", offset: 4 });
    assert!(matches!(
        at(0xffff_ffff_8100_0000, None),
        Resolved::Unknown { reason: "kernel address in a user stack" }
    ));
    let memory = mapping(0x30_0000, "/memfd:doublemapper", 12);
    w.see(1, &memory, 0);
    let resolved = w.processes.resolve(process(1), 2, 0x30_0000, Some(&code(&memory, 0)));
    assert!(matches!(resolved, Resolved::Jit { address: 0x30_0000, .. }), "{resolved:?}");
}
