//! Forks, execs, exits, reuse, losses and bounds, against a machine made of tables.

use lightfoot_process::{
    CodeAddress, Device, Event, FileIdentity, JitName, Limits, Mapping, Opened, Owner, Processes, Resolved,
    System,
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
    tables_read: u32,
    queries: u32,
    /// Whether single look-ups work.
    can_query: bool,
}

#[derive(Clone, Default)]
struct Fake(Rc<RefCell<Machine>>);

impl System for Fake {
    fn executable_mappings(
        &self,
        pid: u32,
        visit: &mut dyn FnMut(Mapping<'_>) -> ControlFlow<()>,
    ) -> io::Result<u64> {
        let mut machine = self.0.borrow_mut();
        machine.tables_read += 1;
        let mappings = machine.mappings.get(&pid).cloned().ok_or(io::ErrorKind::NotFound)?;
        let _ = mappings.into_iter().try_for_each(visit);
        Ok(0)
    }

    fn mapping_at(&self, pid: u32, address: u64) -> io::Result<Option<Mapping<'static>>> {
        let mut machine = self.0.borrow_mut();
        if !machine.can_query {
            return Err(io::ErrorKind::Unsupported.into());
        }
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
    fn map(&mut self, pid: u32, time_ns: u64, mapping: Mapping<'_>) {
        self.processes.apply(Event::Map { pid, time_ns, mapping });
    }

    /// The path of the object at an address, or the reason.
    fn at(&mut self, pid: u32, time_ns: u64, address: u64) -> String {
        match self.processes.resolve(pid, time_ns, CodeAddress::Instruction(address)) {
            Resolved::File { object, file_offset } => {
                let path = self.processes.objects()[object.0 as usize].path().display().to_string();
                format!("{path}+{file_offset:x}")
            }
            Resolved::Unknown { reason } => reason.into(),
            other => format!("{other:?}"),
        }
    }
}

#[test]
fn a_child_has_its_parents_mappings_until_it_executes_another_program() {
    let mut w = world(Limits::default());
    w.machine.0.borrow_mut().mappings.insert(1, vec![mapping(0x10_0000, "/bin/sh", 7)]);
    assert_eq!(w.at(1, 5, 0x10_0010), "/bin/sh+1010");
    w.processes.apply(Event::Fork { pid: 2, parent_pid: 1, time_ns: 10 });
    assert_eq!(w.at(2, 11, 0x10_0010), "/bin/sh+1010");
    w.map(2, 12, mapping(0x20_0000, "/lib/a.so", 8));
    assert_eq!(w.at(2, 13, 0x20_0000), "/lib/a.so+1000");
    w.processes.apply(Event::Exec { pid: 2, time_ns: 20 });
    w.map(2, 21, mapping(0x10_0000, "/bin/ls", 9));
    assert_eq!(w.at(2, 22, 0x10_0010), "/bin/ls+1010");
    assert_eq!(w.at(2, 15, 0x10_0010), "/bin/sh+1010", "a late stack from before the exec");
    assert_eq!(w.processes.counters().tables_read, 1, "events made all other reading needless");
    assert_eq!(w.at(2, 22, 0x20_0000), "not mapped");
    assert_eq!(w.at(1, 22, 0x20_0000), "not mapped", "the parent does not see the child's mappings");
}

#[test]
fn new_threads_and_unknown_parents() {
    let mut w = world(Limits::default());
    w.processes.apply(Event::Fork { pid: 5, parent_pid: 5, time_ns: 1 });
    w.processes.apply(Event::Fork { pid: 6, parent_pid: 4, time_ns: 2 });
    w.machine.0.borrow_mut().mappings.insert(6, vec![mapping(0x10_0000, "/bin/x", 7)]);
    assert_eq!(w.at(6, 3, 0x10_0000), "/bin/x+1000", "read when first needed");
    assert_eq!(w.at(5, 3, 0x10_0000), "mappings unreadable or process gone");
    assert_eq!(w.processes.counters().tables_unreadable, 1);
    assert_eq!(w.at(5, 4, 0x10_0000), "mappings unreadable or process gone");
    assert_eq!(w.machine.0.borrow().tables_read, 2, "a failed reading is not repeated");
}

#[test]
fn a_process_id_that_is_used_again_does_not_mix_mappings() {
    let mut w = world(Limits::default());
    w.processes.apply(Event::Exec { pid: 9, time_ns: 10 });
    w.map(9, 11, mapping(0x10_0000, "/bin/old", 1));
    w.processes.apply(Event::Exit { pid: 9, time_ns: 20 });
    assert_eq!(w.at(9, 25, 0x10_0000), "/bin/old+1000", "a stack that comes after the exit");
    w.processes.apply(Event::Exec { pid: 9, time_ns: 30 });
    w.map(9, 31, mapping(0x10_0000, "/bin/new", 2));
    assert_eq!(w.at(9, 15, 0x10_0000), "/bin/old+1000");
    assert_eq!(w.at(9, 35, 0x10_0000), "/bin/new+1000");
    assert_eq!(w.machine.0.borrow().tables_read, 0);
}

#[test]
fn a_reading_of_another_process_with_the_same_id_is_not_used() {
    let mut w = world(Limits::default());
    w.machine.0.borrow_mut().mappings.insert(3, vec![mapping(0x10_0000, "/bin/a", 1)]);
    w.machine.0.borrow_mut().start_ticks.insert(3, 100);
    assert_eq!(w.at(3, 1, 0x10_0000), "/bin/a+1000");
    // Exit, fork and exec are lost.
    w.machine.0.borrow_mut().mappings.insert(3, vec![mapping(0x20_0000, "/bin/b", 2)]);
    w.machine.0.borrow_mut().start_ticks.insert(3, 200);
    w.processes.apply(Event::Lost { count: 3, time_ns: 2 });
    assert_eq!(w.at(3, 3, 0x20_0000), "/bin/b+1000");
    assert_eq!((w.processes.counters().pids_reused, w.processes.counters().events_lost), (1, 3));
    assert_eq!(w.at(3, 1, 0x10_0000), "/bin/a+1000", "the old process keeps its own");
}

#[test]
fn after_a_loss_an_exited_id_may_be_another_process() {
    let mut w = world(Limits::default());
    w.processes.apply(Event::Exec { pid: 4, time_ns: 1 });
    w.map(4, 2, mapping(0x10_0000, "/bin/a", 1));
    w.processes.apply(Event::Exit { pid: 4, time_ns: 10 });
    w.machine.0.borrow_mut().mappings.insert(4, vec![mapping(0x10_0000, "/bin/b", 2)]);
    assert_eq!(w.at(4, 11, 0x10_0000), "/bin/a+1000");
    w.processes.apply(Event::Lost { count: 1, time_ns: 20 });
    assert_eq!(w.at(4, 21, 0x10_0000), "/bin/b+1000");
    assert_eq!(w.at(4, 5, 0x10_0000), "/bin/a+1000");
}

#[test]
fn a_miss_is_looked_up_alone_and_not_too_often() {
    let mut w = world(Limits { lookups_per_second: 4, ..Limits::default() });
    w.machine.0.borrow_mut().can_query = true;
    w.machine.0.borrow_mut().mappings.insert(1, vec![mapping(0x10_0000, "/bin/a", 1)]);
    assert_eq!(w.at(1, 1, 0x10_0000), "/bin/a+1000");
    w.machine.0.borrow_mut().mappings.get_mut(&1).unwrap().push(mapping(0x30_0000, "/lib/late.so", 2));
    assert_eq!(w.at(1, 2, 0x30_0000), "/lib/late.so+1000");
    for i in 0..100 {
        assert_eq!(w.at(1, 3, 0x50_0000 + i), "not mapped");
        assert_eq!(w.at(1, 3, i), "not mapped");
    }
    assert_eq!((w.machine.0.borrow().tables_read, w.machine.0.borrow().queries), (1, 4));
    assert_eq!(w.processes.counters().lookups_held_back, 97);
    assert_eq!(w.at(1, 1_000_000_003, 0x50_0000), "not mapped");
    assert_eq!(w.machine.0.borrow().queries, 5);
}

#[test]
fn without_single_lookups_tables_are_read_again_ever_more_rarely() {
    let mut w = world(Limits::default());
    w.machine.0.borrow_mut().mappings.insert(1, vec![]);
    for second in 0..100 {
        for i in 0..10 {
            assert_eq!(w.at(1, second * 1_000_000_000 + i, 0x50_0000), "not mapped");
        }
    }
    let read = w.machine.0.borrow().tables_read;
    assert!((4..10).contains(&read), "{read}");
}

#[test]
fn exited_processes_are_forgotten_oldest_first() {
    let mut w = world(Limits { mapping_bytes: 64 << 10, ..Limits::default() });
    for pid in 1..=1000 {
        let time_ns = u64::from(pid) * 10;
        w.processes.apply(Event::Exec { pid, time_ns });
        w.map(pid, time_ns + 1, mapping(0x10_0000, "/bin/a", 1));
        w.processes.apply(Event::Exit { pid, time_ns: time_ns + 2 });
    }
    let forgotten = w.processes.counters().exited_forgotten;
    assert!((500..1000).contains(&forgotten), "{forgotten}");
    assert_eq!(w.at(1000, 10_001, 0x10_0000), "/bin/a+1000");
    assert_eq!(w.at(1, 11, 0x10_0000), "mappings unreadable or process gone");
}

#[test]
fn too_many_mappings_and_files_are_counted() {
    let limits = Limits { mappings_per_process: 10, objects: 12, ..Limits::default() };
    let mut w = world(limits);
    let many = (0..100).map(|i| mapping(0x10_0000 + i * 0x2000, "/bin/a", 1)).collect();
    w.machine.0.borrow_mut().mappings.insert(1, many);
    assert_eq!(w.at(1, 1, 0x10_0000), "/bin/a+1000");
    assert_eq!(w.processes.counters().mappings_dropped, 1, "reading stops at the bound");
    for inode in 0..20 {
        w.processes.apply(Event::Exec { pid: 2, time_ns: 2 });
        w.map(2, 3, mapping(0x10_0000, "/bin/b", 100 + inode));
    }
    assert_eq!(w.processes.objects().len(), 12);
    assert_eq!(w.processes.counters().objects_dropped, 9);
}

#[test]
fn a_file_under_two_paths_does_not_multiply() {
    const PATHS: [&str; 6] = ["/a", "/b", "/c", "/d", "/e", "/f"];
    let mut w = world(Limits::default());
    for time_ns in 0..100 {
        w.processes.apply(Event::Exec { pid: 1, time_ns });
        w.map(1, time_ns, mapping(0x10_0000, PATHS[time_ns as usize % PATHS.len()], 1));
    }
    assert_eq!(w.processes.objects().len(), 4);
}

#[test]
fn only_the_mapped_file_is_opened() {
    let mut w = world(Limits::default());
    w.machine.0.borrow_mut().files.insert("/bin/replaced".into(), (identity(99, 0), b"\x7fELF".to_vec()));
    w.machine
        .0
        .borrow_mut()
        .files
        .insert("/proc/1/root/bin/in-container".into(), (identity(5, 0), b"\x7fELF".to_vec()));
    w.processes.apply(Event::Exec { pid: 1, time_ns: 0 });
    w.map(1, 1, mapping(0x10_0000, "/bin/replaced (deleted)", 4));
    w.map(1, 1, mapping(0x20_0000, "/bin/in-container", 5));
    assert_eq!(w.at(1, 2, 0x10_0000), "/bin/replaced+1000");
    assert_eq!(w.at(1, 2, 0x20_0000), "/bin/in-container+1000");
    let ids: Vec<_> = (0..2).map(lightfoot_process::ObjectId).collect();
    assert_eq!(w.processes.open(ids[0]).unwrap_err(), "file gone");
    assert!(w.processes.objects()[0].deleted());
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
        w.processes.apply(Event::Exec { pid, time_ns: 1 });
        w.map(pid, 2, mapping(0x10_0000, "//anon", 0));
        let resolved = w.processes.resolve(pid, 3, CodeAddress::Instruction(0x10_0050));
        let Resolved::Jit { jit, address } = resolved else { panic!("{resolved:?}") };
        // The file vanishes with the process.
        w.processes.apply(Event::Exit { pid, time_ns: 4 });
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
fn special_mappings() {
    let mut w = world(Limits::default());
    w.processes.apply(Event::Exec { pid: 1, time_ns: 0 });
    w.map(1, 1, mapping(0x10_0000, "[vdso]", 0));
    w.map(1, 1, mapping(0xffff_ffff_ff60_0000, "[vsyscall]", 0));
    w.map(1, 1, mapping(0x30_0000, "/memfd:doublemapper (deleted)", 12));
    let mut at = |address| w.processes.resolve(1, 2, CodeAddress::Instruction(address));
    assert_eq!(at(0x10_0020), Resolved::Vdso { offset: 0x20 });
    assert_eq!(at(0xffff_ffff_ff60_0004), Resolved::Special { name: "[vsyscall]", offset: 4 });
    assert!(matches!(at(0x30_0000), Resolved::Jit { address: 0x30_0000, .. }));
    assert!(matches!(
        at(0xffff_ffff_8100_0000),
        Resolved::Unknown { reason: "kernel address in a user stack" }
    ));
    assert!(matches!(at(0), Resolved::Unknown { reason: "not mapped" }));
}
