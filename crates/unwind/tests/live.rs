//! Real stacks of sleeping programs: the walker must find the frames that gdb finds. Without gdb and a C compiler there is nothing to
//! compare with.

#![cfg(target_arch = "x86_64")]

use lightfoot_unwind::{
    Arch, Frozen, FrozenMapping, Options, Outcome, Registers, State, Table, Walked, replay,
};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A program that is killed and waited for when the test ends, however it ends.
struct Asleep(Child);

impl Drop for Asleep {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What gdb says about one thread.
struct Thread {
    registers: Registers,
    frames: Vec<u64>,
}

fn ask_gdb(pid: u32) -> Option<Vec<Thread>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/registers.py");
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off"])
        .args([
            "-ex",
            "set backtrace past-main on",
            "-ex",
            "set backtrace past-entry on",
            "-p",
            &pid.to_string(),
        ])
        .arg("-x")
        .arg(script)
        .output()
        .ok()?;
    let mut threads: Vec<Thread> = vec![];
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut words = line.split_whitespace();
        let kind = words.next();
        let numbers: Vec<u64> = words.map_while(|word| u64::from_str_radix(word, 16).ok()).collect();
        match (kind, threads.last_mut()) {
            (Some("@registers"), _) => {
                let mut registers = Registers { ip: numbers[16], general: [0; 32] };
                registers.general[..16].copy_from_slice(&numbers[..16]);
                threads.push(Thread { registers, frames: vec![] });
            }
            (Some("@frame"), Some(thread)) => thread.frames.push(numbers[0]),
            _ => {}
        }
    }
    assert!(!threads.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(threads)
}

/// The process's mappings, tables and writable memory.
fn freeze(pid: u32) -> Frozen {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut frozen = Frozen {
        arch: Arch::X86_64,
        registers: Registers { ip: 0, general: [0; 32] },
        frames_max: 1024,
        memory: vec![],
        mappings: vec![],
        tables: vec![],
        found: Walked { frames: vec![], outcome: Outcome::Complete },
    };
    let mut known: HashMap<String, usize> = HashMap::new();
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next().unwrap().split_once('-').unwrap();
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let (start, end) = (hex(start), hex(end));
        let rights = fields.next().unwrap();
        let file_offset = hex(fields.next().unwrap());
        let path = fields.nth(2).unwrap_or_default().to_owned();
        let read = || {
            let mut bytes = vec![0; (end - start) as usize];
            memory.read_exact_at(&mut bytes, start).ok().map(|()| bytes)
        };
        if rights.starts_with("rw") && end - start <= 16 << 20 {
            frozen.memory.extend(read().map(|bytes| (start, bytes)));
        }
        if rights.as_bytes()[2] != b'x' {
            continue;
        }
        let image = if path == "[vdso]" { read() } else { std::fs::read(&path).ok() };
        let table = image.and_then(|image| Table::build(&image.as_slice(), &Options::default()).ok());
        let state = if table.is_some() { State::Ready } else { State::Nothing };
        let index = match (known.get(&path), table) {
            (Some(index), _) => *index,
            (None, Some(table)) => {
                frozen.tables.push(table);
                known.insert(path.clone(), frozen.tables.len() - 1);
                frozen.tables.len() - 1
            }
            (None, None) => 0,
        };
        let is_file = path.starts_with('/');
        frozen.mappings.push(FrozenMapping { start, end, file_offset, is_file, state, table: index, path });
    }
    frozen
}

/// Compares every thread's stack with gdb's, and with itself after freezing it into bytes. Returns the depths.
fn compare(what: &str, pid: u32) -> Vec<usize> {
    walk_all(what, pid, true)
}

/// `frames`: gdb's are right. It does not get through Go's assembly, and stops at a goroutine's first function.
fn walk_all(what: &str, pid: u32, frames: bool) -> Vec<usize> {
    let Some(threads) = ask_gdb(pid) else { return vec![] };
    let mut depths = vec![];
    for thread in threads {
        let mut frozen = freeze(pid);
        frozen.registers = thread.registers;
        let walked = replay(&frozen);
        let addresses: Vec<u64> = walked.frames.iter().map(|frame| frame.address).collect();
        assert_eq!(walked.outcome, Outcome::Complete, "{what}: {addresses:x?}, gdb: {:x?}", thread.frames);
        if frames {
            assert_eq!(addresses, thread.frames, "{what}");
        }
        // A frozen stack needs a small part of that, and says the same.
        frozen.found = walked.clone();
        frozen.memory.retain(|(start, bytes)| {
            let sp = frozen.registers.general[7];
            bytes.len() <= 256 << 10 || (*start..*start + bytes.len() as u64).contains(&sp)
        });
        frozen.shrink();
        let again = Frozen::decode(&frozen.encode()).unwrap();
        assert_eq!(again, frozen, "{what}");
        assert!(again.tables.len() <= 4, "{what}: {} tables", again.tables.len());
        depths.push(walked.frames.len());
    }
    depths
}

fn wait_for_line(child: &mut Child) {
    let mut stdout = child.stdout.take().unwrap();
    let mut byte = [0];
    while stdout.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {}
    child.stdout = Some(stdout);
    // From writing the line to falling asleep.
    std::thread::sleep(std::time::Duration::from_millis(100));
}

fn start(program: &Path, arguments: &[&str]) -> Asleep {
    let mut command = Command::new(program);
    command.args(arguments).env("LIGHTFOOT_SLEEP", "1");
    let mut asleep = Asleep(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    wait_for_line(&mut asleep.0);
    asleep
}

#[test]
fn c_in_a_signal_handler_on_an_alternate_stack() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/handler.c");
    let folder = tempfile::tempdir().unwrap();
    for (name, flags) in [("plain", vec![]), ("static", vec!["-static"]), ("stripped", vec!["-s"])] {
        let program = folder.path().join(format!("handler-{name}"));
        let built = Command::new("cc")
            .args(["-O2", "-fomit-frame-pointer", "-mavx", "-pthread", "-Wl,-z,lazy", "-o"])
            .args([&program, &source])
            .args(flags)
            .status();
        if built.is_err() {
            return;
        }
        assert!(built.unwrap().success());
        let asleep = start(&program, &[]);
        let depths = compare(name, asleep.0.id());
        // main's thread; handler, signal frame, raise, 21 x aligned, variable, compare, qsort, thread.
        assert!(depths.is_empty() || depths.iter().any(|&depth| depth > 28), "{name}: {depths:?}");
    }
}

#[test]
fn rust_in_a_deep_recursion() {
    let asleep = start(&std::env::current_exe().unwrap(), &["--exact", "sleeps_when_asked", "--nocapture"]);
    let depths = compare("Rust", asleep.0.id());
    assert!(depths.is_empty() || depths.iter().any(|&depth| depth > 100), "{depths:?}");
}

/// A goroutine in a system call, with a deep recursion below it, and Go's idle threads; in pure Go, and called from C called from Go.
#[test]
fn go_in_a_system_call() {
    let folder = tempfile::tempdir().unwrap();
    let common = r#"
//go:noinline
func descend(depth int, last func()) int {
	if depth == 0 {
		last()
		return 0
	}
	return descend(depth-1, last) + 1
}
func sleep() {
	var bytes [1]byte
	syscall.Write(1, []byte("asleep\n"))
	syscall.Read(0, bytes[:])
}
"#;
    let pure = format!("package main\nimport \"syscall\"\n{common}\nfunc main() {{ descend(60, sleep) }}\n");
    let header = "package main\n// int call(int depth);\nimport \"C\"\nimport \"syscall\"\n";
    let callback = "//export called\nfunc called() { descend(30, sleep) }\n";
    let cgo =
        format!("{header}{common}\n{callback}\nfunc main() {{ descend(30, func() {{ C.call(10) }}) }}\n");
    let c = "extern void called(void);\n__attribute__((noinline)) int call(int depth)\n\
             { if (!depth) { called(); return 1; } return call(depth - 1) + depth; }\n";
    for (name, with_c, flags) in [
        ("pure", false, ""),
        ("stripped", false, "-s -w"),
        ("cgo", true, ""),
        ("cgo-stripped", true, "-s -w"),
    ] {
        let package = folder.path().join(name);
        std::fs::create_dir_all(&package).unwrap();
        std::fs::write(package.join("go.mod"), "module asleep\n").unwrap();
        std::fs::write(package.join("main.go"), if with_c { &cgo } else { &pure }).unwrap();
        if with_c {
            std::fs::write(package.join("call.c"), c).unwrap();
        }
        let build = Command::new("go")
            .args(["build", "-ldflags", flags, "-o", "asleep", "."])
            .env("CGO_ENABLED", if with_c { "1" } else { "0" })
            .current_dir(&package)
            .output();
        let Ok(build) = build else { return };
        assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
        let asleep = start(&package.join("asleep"), &[]);
        let depths = walk_all(name, asleep.0.id(), false);
        // read, Read, sleep, the recursion, main, runtime.main, goexit; with C, its recursion and cgo's own.
        assert!(depths.is_empty() || depths.iter().any(|&depth| depth > 64), "{name}: {depths:?}");
    }
}

#[test]
fn python_asleep() {
    let python = Path::new("/usr/bin/python3");
    if python.exists() {
        let asleep = start(python, &["-c", "import time; print('x', flush=True); time.sleep(600)"]);
        let depths = compare("Python", asleep.0.id());
        assert!(depths.is_empty() || depths[0] > 10, "{depths:?}");
    }
}

/// Not a test by itself: what `rust_in_a_deep_recursion` runs.
#[test]
fn sleeps_when_asked() {
    #[inline(never)]
    fn descend(depth: u32) -> u32 {
        if depth == 0 {
            // The test harness captures what is printed through macros.
            std::io::Write::write_all(&mut std::io::stdout(), b"\nasleep\n").unwrap();
            std::thread::sleep(std::time::Duration::from_secs(600));
        }
        if depth == 0 { 0 } else { std::hint::black_box(descend(depth - 1)) + 1 }
    }
    if std::env::var_os("LIGHTFOOT_SLEEP").is_some() {
        descend(100);
    }
}
