//! Every kind and every body: as many firings as events.

use super::*;
use lightfoot_kernel::probes::targets;
use lightfoot_sites::Every;
use lightfoot_tests::program;

/// Everything was recorded, and `times` for each event.
#[track_caller]
fn assert_exact(what: &str, mut group: Group, times: u64) {
    let counts = finished(&mut group);
    assert_eq!(counts.recorded, times * EVENTS, "{what}: {counts:?}");
    assert_eq!(counts.weighed, counts.recorded, "{what}");
    assert_eq!(counts.throttled + counts.lost, 0, "{what}: {counts:?}");
    assert_eq!(group.missed().expect("missed"), 0, "{what}");
}

/// System calls, for every kind that can count them.
fn syscalls(name: &str, mechanism: Mechanism, place: Place, times: u64) {
    let Some(_turn) = turn(name, mechanism) else { return };
    // Detaching a perf event takes the kernel 100 ms: a few bodies only.
    let few = [Body::Empty, Body::Complex, Body::UserStack];
    let single = matches!(mechanism, Mechanism::Kprobe | Mechanism::Kretprobe | Mechanism::Tracepoint);
    for &body in if single { &few[..] } else { &Body::ALL[..] } {
        let group = attached(options(mechanism, body), place.clone());
        targets::getppid(EVENTS);
        let total = group.body_total().expect("total");
        if matches!(
            body,
            Body::PerCpuCounter | Body::SharedCounter | Body::Simple | Body::Complex | Body::Filter
        ) {
            assert_eq!(total, times * EVENTS, "{}: what the body counted", body.name());
        }
        assert_exact(body.name(), group, times);
    }
}

#[test]
fn raw_tracepoint_dispatches_system_calls() {
    syscalls("raw_tracepoint_dispatches_system_calls", Mechanism::RawTracepoint, getppid_entry(), 1);
}

#[test]
fn raw_tracepoint_dispatches_their_ends() {
    let exit = Place::Syscall { number: GETPPID, exit: true };
    syscalls("raw_tracepoint_dispatches_their_ends", Mechanism::RawTracepoint, exit, 1);
}

#[test]
fn tp_btf_dispatches_system_calls() {
    syscalls("tp_btf_dispatches_system_calls", Mechanism::TpBtf, getppid_entry(), 1);
}

#[test]
fn kprobe() {
    syscalls("kprobe", Mechanism::Kprobe, getppid_function(), 1);
}

/// An instruction inside of a function: its second one, wherever that begins.
#[test]
fn kprobe_at_an_offset() {
    let Some(_turn) = turn("kprobe_at_an_offset", Mechanism::Kprobe) else { return };
    let Place::Kernel { function, .. } = getppid_function() else { panic!("a kernel place") };
    let mut refused = 0;
    for offset in 1..=16 {
        let place = Place::Kernel { function: function.clone(), offset };
        let mut group = Group::load(&options(Mechanism::Kprobe, Body::Empty)).expect("load");
        match group.attach(&[Point { slot: 0, place }]) {
            Ok(()) => {
                targets::getppid(EVENTS);
                return assert_exact(&format!("offset {offset}"), group, 1);
            }
            Err(error) => {
                assert_eq!(error.kind(), lightfoot_kernel::Kind::Usage, "{}", chain(&error));
                refused += 1;
            }
        }
    }
    panic!("no instruction begins in {refused} bytes");
}

#[test]
fn kretprobe() {
    syscalls("kretprobe", Mechanism::Kretprobe, getppid_function(), 1);
}

#[test]
fn kprobe_multi() {
    syscalls("kprobe_multi", Mechanism::KprobeMulti, getppid_function(), 1);
}

#[test]
fn kretprobe_multi() {
    syscalls("kretprobe_multi", Mechanism::KretprobeMulti, getppid_function(), 1);
}

#[test]
fn kprobe_session() {
    syscalls("kprobe_session", Mechanism::KprobeSession, getppid_function(), 2);
}

#[test]
fn fentry() {
    syscalls("fentry", Mechanism::Fentry, getppid_function(), 1);
}

#[test]
fn fexit() {
    syscalls("fexit", Mechanism::Fexit, getppid_function(), 1);
}

#[test]
fn tracepoint() {
    let place = Place::Tracepoint { category: "syscalls".into(), name: "sys_enter_getppid".into() };
    syscalls("tracepoint", Mechanism::Tracepoint, place, 1);
}

/// Tracepoints by their own name: a signal that its receiver ignores is generated once.
fn signals(name: &str, mechanism: Mechanism) {
    let Some(_turn) = turn(name, mechanism) else { return };
    let place = Place::Tracepoint { category: "signal".into(), name: "signal_generate".into() };
    for body in [Body::Empty, Body::Simple, Body::KernelStack] {
        let group = attached(options(mechanism, body), place.clone());
        for _ in 0..EVENTS {
            assert!(lightfoot_tests::signal(std::process::id(), libc::SIGURG));
        }
        assert_exact(body.name(), group, 1);
    }
}

#[test]
fn raw_tracepoint() {
    signals("raw_tracepoint", Mechanism::RawTracepoint);
}

#[test]
fn tp_btf() {
    signals("tp_btf", Mechanism::TpBtf);
}

/// Each of our functions, by every instruction that a function can begin with.
fn functions(name: &str, mechanism: Mechanism, bodies: &[Body], times: u64) {
    let Some(_turn) = turn(name, mechanism) else { return };
    assert!(!targets::all().is_empty());
    for target in targets::all() {
        for &body in bodies {
            let group = attached(options(mechanism, body), target.place.clone());
            target.run(EVENTS);
            assert_exact(&format!("{} {}", target.name, body.name()), group, times);
        }
    }
}

#[test]
fn uprobe() {
    functions("uprobe", Mechanism::Uprobe, &[Body::Empty], 1);
}

#[test]
fn uretprobe() {
    functions("uretprobe", Mechanism::Uretprobe, &[Body::Simple], 1);
}

#[test]
fn uprobe_multi() {
    functions("uprobe_multi", Mechanism::UprobeMulti, &[Body::Empty, Body::Event, Body::UserStack], 1);
}

#[test]
fn uretprobe_multi() {
    functions("uretprobe_multi", Mechanism::UretprobeMulti, &[Body::Empty], 1);
}

#[test]
fn uprobe_session() {
    functions("uprobe_session", Mechanism::UprobeSession, &[Body::Empty], 2);
}

/// Two threads at once, on a probe whose program can be preempted: no count is lost.
#[test]
fn threads_share_a_probe() {
    let Some(_turn) = turn("threads_share_a_probe", Mechanism::UprobeMulti) else { return };
    let target = &targets::all()[1];
    let mut group = attached(options(Mechanism::UprobeMulti, Body::SharedCounter), target.place.clone());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| target.run(EVENTS));
        }
    });
    assert_eq!(group.body_total().expect("total"), 4 * EVENTS);
    assert_eq!(finished(&mut group).recorded, 4 * EVENTS);
}

/// Many probes in one link: each has counters of its own, and the one that is taken out stands still.
#[test]
fn slots_are_told_apart() {
    let Some(_turn) = turn("slots_are_told_apart", Mechanism::UprobeMulti) else { return };
    let all = targets::all();
    let several = Options { slots: all.len() as u32, ..options(Mechanism::UprobeMulti, Body::Simple) };
    let points: Vec<Point> =
        (0..).zip(all).map(|(slot, target)| Point { slot, place: target.place.clone() }).collect();
    let mut group = Group::load(&several).expect("load");
    group.attach(&points).expect("attach");
    let run = || (1..).zip(all).for_each(|(times, target)| target.run(times * 101));
    run();
    group.detach_slot(1).expect("detach one");
    run();
    group.detach().expect("detach");
    let counts = group.counts().expect("counts");
    let hits = group.hits().expect("hits");
    assert_eq!(hits.len(), all.len());
    for (slot, counts) in (0u64..).zip(counts) {
        let rounds = if slot == 1 { 1 } else { 2 };
        assert_eq!(counts.recorded, rounds * (slot + 1) * 101, "slot {slot}");
        let hit = hits.iter().find(|hit| u64::from(hit.slot) == slot).expect("a hit");
        assert_eq!((hit.weighed, hit.pid), (counts.recorded, std::process::id()), "slot {slot}");
    }
}

/// System calls in one dispatcher: each has its slot, those that nobody asked for pass.
#[test]
fn system_calls_are_told_apart() {
    let Some(_turn) = turn("system_calls_are_told_apart", Mechanism::RawTracepoint) else { return };
    let several = Options { slots: 3, ..options(Mechanism::RawTracepoint, Body::Empty) };
    let mut group = Group::load(&several).expect("load");
    let place = |number, exit| Place::Syscall { number, exit };
    let other = libc::SYS_sched_rr_get_interval as u32;
    let points = [place(GETPPID, false), place(GETPPID, true), place(other, false)];
    let points: Vec<Point> = (0..).zip(points).map(|(slot, place)| Point { slot, place }).collect();
    group.attach(&points[..2]).expect("attach");
    group.attach(&points[2..]).expect("attach one more");
    assert_eq!(group.attach(&points[..1]).unwrap_err().kind(), lightfoot_kernel::Kind::Usage, "twice");
    targets::getppid(EVENTS);
    group.detach_slot(0).expect("detach one");
    targets::getppid(EVENTS);
    group.detach().expect("detach");
    let counts = group.counts().expect("counts");
    assert_eq!([counts[0].recorded, counts[1].recorded], [EVENTS, 2 * EVENTS]);
    assert_eq!(counts[2].recorded, 0, "nobody makes this call");
    assert!(group.passed() >= EVENTS, "the second round passed the dispatcher of entries");
}

#[test]
fn usdt_raises_its_semaphore() {
    let Some(_turn) = turn("usdt_raises_its_semaphore", Mechanism::UprobeMulti) else { return };
    for mechanism in [Mechanism::UprobeMulti, Mechanism::Uprobe] {
        let mut child = Talker::start(Command::new(program("usdt")).args(["--calls", &EVENTS.to_string()]));
        let at = child.json();
        let place = Place::User {
            file: program("usdt"),
            offset: at["probe"].as_u64().expect("offset"),
            semaphore: at["semaphore"].as_u64(),
        };
        let wanted = Options { pid: Some(child.pid()), ..Options::new(mechanism, Body::Empty) };
        let group = attached(wanted, place);
        child.go();
        assert_eq!(child.json()["up"].as_u64(), Some(EVENTS), "{}", mechanism.name());
        assert_exact(mechanism.name(), group, 1);
        child.stdin = None;
        assert_eq!(child.json()["semaphore"].as_u64(), Some(0), "{}: it is down again", mechanism.name());
    }
}

/// `PERF_COUNT_SW_PAGE_FAULTS`, each one.
#[test]
fn software_events() {
    let Some(_turn) = turn("software_events", Mechanism::PerfEvent) else { return };
    let mut child = Talker::start(Command::new(program("faults")).args(["--pages", &EVENTS.to_string()]));
    child.line();
    let wanted = Options { pid: Some(child.pid()), ..Options::new(Mechanism::PerfEvent, Body::Empty) };
    let place = Place::Perf { type_: 1, config: 2, every: Every::Period(1), one_cpu: false };
    let mut group = attached(wanted, place);
    child.go();
    let faults = child.json()["faults"].as_u64().expect("faults");
    let counts = finished(&mut group);
    assert!(faults >= EVENTS, "{faults}");
    assert_eq!(counts.recorded, faults, "{counts:?}");
}

/// `interval` and `profile`: timers on one CPU and on each.
#[test]
fn timers() {
    let Some(_turn) = turn("timers", Mechanism::PerfEvent) else { return };
    for one_cpu in [true, false] {
        let place = Place::Perf { type_: 1, config: 0, every: Every::Hertz(999), one_cpu };
        let mut group = attached(Options::new(Mechanism::PerfEvent, Body::Empty), place);
        let fired = |group: &Group| group.counts().expect("counts")[0].fired;
        assert!(
            lightfoot_tests::wait_for(std::time::Duration::from_secs(20), || fired(&group) > 0),
            "one_cpu: {one_cpu}"
        );
        assert!(finished(&mut group).recorded > 0);
    }
}

/// Bodies without anything around them do their work and count nothing.
#[test]
fn bare_bodies() {
    let Some(_turn) = turn("bare_bodies", Mechanism::UprobeMulti) else { return };
    let target = &targets::all()[0];
    for body in Body::ALL {
        let bare = Options { bare: true, ..options(Mechanism::UprobeMulti, body) };
        let mut group = attached(bare, target.place.clone());
        target.run(EVENTS);
        group.detach().expect("detach");
        assert_eq!(group.counts().expect("counts")[0].fired, 0);
        let counts = matches!(
            body,
            Body::PerCpuCounter | Body::SharedCounter | Body::Simple | Body::Complex | Body::Filter
        );
        assert_eq!(group.body_total().expect("total"), if counts { EVENTS } else { 0 }, "{}", body.name());
        let mut events = 0;
        group.events(|event| events += u64::from(event.pid == std::process::id()));
        assert_eq!(events, if body == Body::Event { EVENTS } else { 0 });
    }
}

/// The kernel's statistics count the same runs.
#[test]
fn statistics() {
    let Some(_turn) = turn("statistics", Mechanism::UprobeMulti) else { return };
    let target = &targets::all()[0];
    let mut group = attached(options(Mechanism::UprobeMulti, Body::Simple), target.place.clone());
    target.run(EVENTS);
    assert_eq!(group.statistics().expect("statistics"), (0, 0), "they are off");
    let on = lightfoot_kernel::probes::Statistics::on().expect("on");
    target.run(EVENTS);
    drop(on);
    target.run(EVENTS);
    let (time_ns, runs) = group.statistics().expect("statistics");
    assert_eq!(runs, EVENTS);
    assert!(time_ns > 0);
    assert_eq!(finished(&mut group).recorded, 3 * EVENTS);
}

/// The part of `pid_namespaces` that runs in one.
const NAMESPACE: &str = "LIGHTFOOT_PROBES_NAMESPACE";

/// Not a test by itself.
#[test]
fn in_a_pid_namespace() {
    if std::env::var_os(NAMESPACE).is_none() {
        return;
    }
    let user = &targets::all()[0];
    for body in Body::ALL {
        let mut group = attached(options(Mechanism::RawTracepoint, body), getppid_entry());
        targets::getppid(EVENTS);
        let mut pids = std::collections::BTreeSet::new();
        group.events(|event| _ = pids.insert(event.pid));
        pids.extend(group.hits().expect("hits").iter().map(|hit| hit.pid));
        assert!(pids.into_iter().all(|pid| pid == std::process::id()), "{}", body.name());
        assert_exact(body.name(), group, 1);
        let group = attached(options(Mechanism::UprobeMulti, body), user.place.clone());
        user.run(EVENTS);
        assert_exact(body.name(), group, 1);
    }
}

/// In a pid namespace of its own a process is known by the number that it has there.
#[test]
fn pid_namespaces() {
    let Some(_turn) = turn("pid_namespaces", Mechanism::UprobeMulti) else { return };
    let this = std::env::current_exe().expect("this file");
    let run = Command::new("unshare")
        .args([
            "--pid",
            "--fork",
            "--mount-proc",
            "sh",
            "-c",
            "\"$0\" counts::in_a_pid_namespace --exact; exit $?",
        ])
        .arg(this)
        .env(NAMESPACE, "1")
        .output()
        .expect("unshare");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
}
