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
