//! Killed in the middle: nothing is left in the kernel, nor in the code of anybody.

use super::*;
use lightfoot_kernel::probes::targets;
use lightfoot_sites::Every;
use lightfoot_tests::{BpfKind, bpf_exists, signal, wait_for};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The process that is killed: this test binary again.
const ROLE: &str = "LIGHTFOOT_PROBES_VICTIM";

fn places() -> Vec<(Mechanism, Place)> {
    let user = targets::all()[2].place.clone();
    let tracepoint = Place::Tracepoint { category: "syscalls".into(), name: "sys_enter_getppid".into() };
    let signals = Place::Tracepoint { category: "signal".into(), name: "signal_generate".into() };
    let timer = Place::Perf { type_: 1, config: 0, every: Every::Hertz(99), one_cpu: false };
    use Mechanism::*;
    Mechanism::ALL
        .into_iter()
        .map(|mechanism| match mechanism {
            Uprobe | Uretprobe | UprobeMulti | UretprobeMulti | UprobeSession => (mechanism, user.clone()),
            Tracepoint => (mechanism, tracepoint.clone()),
            RawTracepoint => (mechanism, getppid_entry()),
            TpBtf => (mechanism, signals.clone()),
            PerfEvent => (mechanism, timer.clone()),
            Kprobe | Kretprobe | KprobeMulti | KretprobeMulti | KprobeSession | Fentry | Fexit => {
                (mechanism, getppid_function())
            }
        })
        .collect()
}

/// Not a test but the victim: attaches everything, to all processes that run this file, and waits to be killed.
#[test]
fn victim() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let groups: Vec<Group> = places()
        .into_iter()
        .filter(|(mechanism, _)| support::check(*mechanism).is_ok())
        .map(|(mechanism, place)| attached(Options::new(mechanism, Body::Event), place))
        .collect();
    eprintln!("attached {}", groups.len());
    std::thread::sleep(Duration::from_secs(60));
    drop(groups);
}

#[test]
fn a_killed_process_leaves_nothing() {
    let Some(_turn) = privileged("a_killed_process_leaves_nothing") else { return };
    let code = (targets::all()[2].call) as usize as u64;
    let memory = std::fs::File::open("/proc/self/mem").expect("own memory");
    let first_byte = || {
        let mut byte = [0];
        memory.read_exact_at(&mut byte, code).expect("own code");
        byte[0]
    };
    let before = first_byte();
    let mut child = Command::new(std::env::current_exe().expect("this file"))
        .args(["leftovers::victim", "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("victim");
    let mut stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
    let mut line = String::new();
    while !line.starts_with("attached") {
        line.clear();
        let read = stderr.read_line(&mut line).expect("stderr");
        assert!(read > 0, "the victim could not attach");
    }
    let held = objects(child.id());
    let links = held.iter().filter(|object| object.kind == BpfKind::Link).count();
    let kinds = Mechanism::ALL.into_iter().filter(|&mechanism| support::check(mechanism).is_ok()).count();
    assert!(links >= kinds, "{links} links for {kinds} kinds");
    assert!(held.iter().all(|&object| bpf_exists(object)));
    assert_ne!(first_byte(), before, "the breakpoint stands in our code, too");
    assert!(signal(child.id(), libc::SIGKILL));
    child.wait().expect("wait");
    for object in held {
        assert!(wait_for(Duration::from_secs(20), || !bpf_exists(object)), "{object:?} is left");
    }
    assert!(wait_for(Duration::from_secs(20), || first_byte() == before), "a breakpoint is left");
    targets::all()[2].run(EVENTS);
}

/// Address in a process's memory of a byte of a file.
fn address_of(pid: u32, file: &str, offset: u64) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let found = maps.lines().filter(|line| line.ends_with(file)).find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end, from) = (hex(start)?, hex(end)?, hex(words.nth(1)?)?);
        (from..from + (end - start)).contains(&offset).then(|| start + offset - from)
    });
    found.unwrap_or_else(|| panic!("{file} is not mapped at {offset:#x}"))
}

/// A thousand probes in one link: each breakpoint stands and each semaphore is up, and then none.
#[test]
fn a_thousand_probes_come_and_go() {
    let Some(_turn) = turn("a_thousand_probes_come_and_go", Mechanism::UprobeMulti) else { return };
    let file = lightfoot_tests::program("manyusdt");
    let mut target = lightfoot_tests::Workload::start("manyusdt", "--seconds 60");
    target.next_line();
    let data = std::fs::read(&file).expect("manyusdt");
    let elf = lightfoot_sites::elf::Elf::parse(&data, None).expect("ELF");
    let notes = lightfoot_sites::usdt::notes(&elf, &data);
    assert_eq!(notes.len(), 1000);
    let code = |address| elf.offset_of(address).expect("code");
    let semaphore = |address: Option<u64>| elf.data_offset_of(address?);
    let points: Vec<Point> = (0..)
        .zip(&notes)
        .map(|(slot, note)| {
            let (offset, semaphore) = (code(note.address), semaphore(note.semaphore));
            Point { slot, place: Place::User { file: file.clone(), offset, semaphore } }
        })
        .collect();
    let memory = std::fs::File::open(format!("/proc/{}/mem", target.pid())).expect("memory");
    let name = file.to_str().expect("UTF-8");
    let mut bytes = vec![0; 1000];
    let first = address_of(target.pid(), name, code(notes[0].address));
    // One-byte nops, one after the other.
    assert_eq!(notes[999].address - notes[0].address, 999);
    let mut semaphores = vec![0; 2000];
    let first_semaphore = address_of(target.pid(), name, semaphore(notes[0].semaphore).expect("semaphore"));
    let mut state = || {
        memory.read_exact_at(&mut bytes, first).expect("code");
        memory.read_exact_at(&mut semaphores, first_semaphore).expect("semaphores");
        let same = |bytes: &[u8]| bytes.iter().all(|&byte| byte == bytes[0]).then_some(bytes[0]);
        let raised = semaphores.as_chunks().0.iter().map(|two| u16::from_ne_bytes(*two));
        (same(&bytes), raised.map(u64::from).sum::<u64>())
    };
    let before = state();
    assert_eq!(before.1, 0);
    assert!(before.0.is_some());
    for mechanism in [Mechanism::UprobeMulti, Mechanism::UretprobeMulti] {
        let wanted = Options { pid: Some(target.pid()), slots: 1000, ..Options::new(mechanism, Body::Empty) };
        let mut group = Group::load(&wanted).expect("load");
        group.attach(&points).expect("attach");
        let during = state();
        assert!(during.0.is_some() && during.0 != before.0, "a breakpoint is missing: {during:?}");
        assert_eq!(during.1, 1000);
        group.detach().expect("detach");
        assert_eq!(state(), before, "{}", mechanism.name());
    }
}
