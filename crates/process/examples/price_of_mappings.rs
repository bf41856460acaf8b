//! The price of bookkeeping: `price_of_mappings PID` reads the executable mappings of a process in both ways, and then applies a storm of
//! events; prints CPU time and memory.
#![allow(clippy::print_stdout)]

use lightfoot_process::{CodeAddress, Device, Event, Host, Limits, Mapping, Processes, System};
use std::borrow::Cow;
use std::ops::ControlFlow;

/// CPU time of this process in us, user and system. Source: `/proc/self/schedstat`.
fn cpu_us() -> f64 {
    // The kernel brings the figure up to date when the thread gives way.
    std::thread::yield_now();
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    schedstat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e3
}

fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
}

fn main() {
    let own = std::process::id();
    let pid = std::env::args().nth(1).and_then(|pid| pid.parse().ok()).unwrap_or(own);
    for (name, host) in [("PROCMAP_QUERY", Host::default()), ("text", Host::text_only())] {
        let mut best = f64::MAX;
        let mut count = 0;
        for _ in 0..20 {
            let before = cpu_us();
            count = 0;
            let _ = host.executable_mappings(pid, &mut |_| {
                count += 1;
                ControlFlow::Continue(())
            });
            best = best.min(cpu_us() - before);
        }
        println!("{name}: {count} executable mappings in {best:.0} us CPU");
    }
    let mut best = f64::MAX;
    for _ in 0..20 {
        let mut processes = Processes::new(Limits::default());
        let before = cpu_us();
        processes.resolve(pid, 1, CodeAddress::Instruction(main as fn() as usize as u64));
        best = best.min(cpu_us() - before);
    }
    println!("first sight of a process: {best:.0} us CPU");

    let mut processes = Processes::new(Limits::default());
    let before = cpu_us();
    let storms = 100_000u32;
    for i in 0..storms {
        let (child, time_ns) = (1000 + i % 30_000, u64::from(i) * 1000);
        processes.apply(Event::Fork { pid: child, parent_pid: 1, time_ns });
        processes.apply(Event::Exec { pid: child, time_ns: time_ns + 1 });
        for library in 0..4 {
            let mapping = Mapping {
                start: 0x7f00_0000_0000 + library * 0x10_0000,
                end: 0x7f00_0000_0000 + library * 0x10_0000 + 0x8000,
                file_offset: 0,
                device: Device { major: 8, minor: 1 },
                inode: library + 1,
                path: Cow::Borrowed(b"/usr/lib/x86_64-linux-gnu/libexample.so.1"),
            };
            processes.apply(Event::Map { pid: child, time_ns: time_ns + 2, mapping });
        }
        processes.apply(Event::Exit { pid: child, time_ns: time_ns + 3 });
    }
    let each = (cpu_us() - before) * 1000.0 / f64::from(storms);
    println!(
        "fork, exec, 4 mappings, exit: {each:.0} ns CPU; peak memory {}; {:?}",
        resident(),
        processes.counters()
    );
}
