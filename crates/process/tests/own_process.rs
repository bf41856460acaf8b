//! Against the real `/proc`, with this test's own process.

use lightfoot_process::{Host, JitName, Limits, Process, Processes, Resolved, System};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, symlink};

/// A place in this program's own code.
#[inline(never)]
fn here() -> u64 {
    here as fn() -> u64 as usize as u64
}

fn process(pid: u32) -> Process {
    Process { pid, start_ns: 0, exec_id: 0 }
}

#[test]
fn own_code_is_in_the_own_executable() {
    let mut processes = Processes::new(Limits::default());
    let pid = std::process::id();
    let Resolved::File { object, file_offset } = processes.resolve(process(pid), 1, here(), None) else {
        panic!("own code not found");
    };
    let executable = std::env::current_exe().unwrap().canonicalize().unwrap();
    assert_eq!(processes.objects()[object.0 as usize].path(), executable);
    let opened = processes.open(object).unwrap();
    assert_eq!(opened.file.metadata().unwrap().ino(), executable.metadata().unwrap().ino());
    assert!(file_offset < opened.size);
    assert_eq!(processes.resolve(process(pid), 1, 0x1000, None), Resolved::Unknown { reason: "not mapped" });
}

/// The text of `/proc/PID/maps` and `PROCMAP_QUERY` must say the same.
#[test]
fn both_ways_to_read_mappings_agree() {
    let read = |host: &Host| {
        let mut mappings = Vec::new();
        host.executable_mappings(std::process::id(), &mut |mapping| {
            let path = mapping.path.to_vec();
            mappings.push((
                mapping.start,
                mapping.end,
                mapping.file_offset,
                mapping.device,
                mapping.inode,
                path,
            ));
            ControlFlow::Continue(())
        })
        .unwrap();
        // A gate page that no process owns: only the text shows it.
        mappings.retain(|mapping| mapping.0 < 1 << 63);
        mappings
    };
    assert_eq!(read(&Host::default()), read(&Host::text_only()));
}

#[test]
fn a_child_that_exited_keeps_its_names() {
    let mut processes = Processes::new(Limits::default());
    let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let pid = child.id();
    // Until the child has executed its program.
    let mut mapping = None;
    for _ in 0..1000 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        Host::default()
            .executable_mappings(pid, &mut |found| {
                if found.path.ends_with(b"sleep") || found.path.ends_with(b"coreutils") {
                    mapping = Some((found.start, found.inode));
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        if mapping.is_some() {
            break;
        }
    }
    let (start, inode) = mapping.expect("the program's mapping");
    let first = processes.resolve(process(pid), 10, start + 16, None);
    child.kill().unwrap();
    child.wait().unwrap();
    let Resolved::File { object, .. } = first else { panic!("{first:?}") };
    assert_eq!(processes.open(object).unwrap().file.metadata().unwrap().ino(), inode);
}

/// What a hostile process may put where its perf map is looked for: nothing of it is opened, and nothing waits.
#[test]
fn only_regular_files_are_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("file"), "x").unwrap();
    symlink(path("file"), path("link")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(path("fifo")).status();
    let host = Host::default();
    assert_eq!(host.open(&path("file")).unwrap().identity.size, 1);
    assert_eq!(host.open(&path("link")).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(host.open(folder.path()).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(host.open("/dev/zero".as_ref()).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(host.open(&path("none")).unwrap_err().kind(), ErrorKind::NotFound);
    if made.is_ok_and(|status| status.success()) {
        assert_eq!(host.open(&path("fifo")).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

/// A program that is deleted while it runs keeps its content for us.
#[test]
fn a_file_deleted_or_changed_after_the_first_look() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let mut child = std::process::Command::new(&program).arg("100").spawn().unwrap();
    let pid = child.id();
    let mut start = None;
    for _ in 0..1000 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        let _ = Host::default().executable_mappings(pid, &mut |mapping| {
            if mapping.path.ends_with(b"/program") {
                start = Some(mapping.start);
            }
            ControlFlow::Continue(())
        });
        if start.is_some() {
            break;
        }
    }
    let address = start.expect("the program's mapping");
    let mut processes = Processes::new(Limits::default());
    let Resolved::File { object, .. } = processes.resolve(process(pid), 1, address, None) else {
        panic!("not found")
    };
    std::fs::remove_file(&program).unwrap();
    assert_eq!(processes.open(object).unwrap().size, std::fs::metadata("/bin/sleep").unwrap().len());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(processes.open(object).is_ok());
}

/// A real JIT compiler's perf map, read while the process lives and again from what was kept when it exited.
#[test]
fn code_of_node_is_named_by_its_perf_map() {
    let script = "function hot(n){let s=0;for(let i=0;i<n;i++)s+=i;return s};\
        for(let i=0;i<2000;i++)hot(1000);setTimeout(()=>{},60000)";
    // node writes a log of its own beside the perf map.
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("node");
    let node = command.args(["--perf-basic-prof", "-e", script]).current_dir(folder.path()).spawn();
    let Ok(mut node) = node else {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"skipped: no node\n");
        return;
    };
    let pid = node.id();
    let path = format!("/tmp/perf-{pid}.map");
    for _ in 0..500 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        let map = std::fs::read(&path).unwrap_or_default();
        let mut lines = map.split(|&byte| byte == b'\n').filter_map(lightfoot_process::perf_map::parse_line);
        // Optimised code; the entries before it are of bytecode, which is no code.
        let found = lines.rfind(|(_, _, name)| name.windows(4).any(|part| part == b"*hot"));
        if let Some((start, _, _)) = found {
            let mut processes = Processes::new(Limits::default());
            // The compiler makes its pages writable, and not executable, for moments.
            let resolved = processes.resolve(process(pid), 1, start, None);
            let Resolved::Jit { jit, address } = resolved else { continue };
            let alive = processes.jit_names(jit, &[address]);
            node.kill().unwrap();
            node.wait().unwrap();
            std::fs::remove_file(&path).unwrap();
            assert!(matches!(&alive[..], [JitName::Known(entry)] if entry.name.contains("hot")), "{alive:?}");
            assert_eq!(processes.jit_names(jit, &[address]), alive);
            return;
        }
    }
    let _ = node.kill();
    let _ = node.wait();
    let _ = std::fs::remove_file(&path);
    panic!("no perf map after 5 s");
}
