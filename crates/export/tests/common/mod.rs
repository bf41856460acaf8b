//! Profiles to write: small ones with known contents, and a large one.
#![allow(dead_code, reason = "each test file uses its part")]

use lightfoot_model::{
    Accounting, Clock, Cost, Debt, Frame, FrameId, FrameKind, FrameTable, Meta, PhaseCost, Profile, Sample,
    StackOutcome, StackTable, StringId, StringTable, Thread, ThreadId, Wait,
};

/// CPU time of one sample in these profiles: 99 Hz.
pub const PERIOD_NS: u64 = 10_101_010;

/// A profile with a run and a price, and nothing seen.
pub fn no_samples() -> Profile {
    Profile {
        meta: Meta {
            version: "0.1.0".into(),
            target: "process 1234 (xz)".into(),
            command_line: "lightfoot profile -p 1234 -d 10s".into(),
            started_unix_ns: 1_800_000_000_123_456_789,
            duration_ns: 10_000_000_000,
            rate_hz: 99,
            period_ns: PERIOD_NS,
            clock: Clock::CpuClock,
            cpus: 2,
            kernel: "6.18.0".into(),
            machine: "x86_64".into(),
            kernel_frames: true,
            notes: vec![],
            off_cpu: None,
        },
        strings: StringTable::default(),
        frames: FrameTable::default(),
        stacks: StackTable::default(),
        threads: vec![],
        samples: vec![],
        debt: vec![],
        accounting: Accounting { fired: 7, filtered: 7, ..Default::default() },
        cost: Cost {
            interrupt_ns: 98_000,
            bpf_ns: 2_100,
            user_ns: 9_000_000,
            total_ns: 9_100_100,
            percent_of_one_cpu: 0.091_001,
            ns_per_sample: 0.0,
            peak_rss_bytes: 12_582_912,
            bpf_map_bytes: 4_194_304,
            interrupt_each_ns: 14_000,
            interrupts: 7,
            interrupt_calibrated: true,
            phases: vec![PhaseCost { phase: "start", cpu_ns: 9_000_000 }],
            running_percent_of_one_cpu: 0.001_001,
            ..Default::default()
        },
    }
}

/// What a frame is made of; see [`add_frame`].
pub struct F<'a>(pub &'a str, pub FrameKind, pub &'a str, pub &'a str, pub u32, pub u64);

pub fn add_frame(profile: &mut Profile, F(name, kind, object, file, line, address): F) -> FrameId {
    let note = if kind == FrameKind::Unknown { "no symbol table" } else { "" };
    let frame = Frame {
        name: profile.strings.intern(name),
        file: profile.strings.intern(file),
        line,
        object: profile.strings.intern(object),
        address,
        kind,
        note: profile.strings.intern(note),
    };
    profile.frames.intern(frame)
}

pub fn add_samples(
    profile: &mut Profile,
    thread: u32,
    frames: &[FrameId],
    outcome: StackOutcome,
    count: u64,
) {
    let stack = profile.stacks.intern(frames.iter().copied());
    profile.samples.push(Sample {
        stack,
        thread: ThreadId(thread),
        outcome,
        count,
        weight_ns: count * PERIOD_NS,
        wait: Wait::None,
    });
    profile.accounting.recorded += count;
    profile.accounting.fired += count;
}

fn thread(pid: u32, tid: u32, comm: &str) -> Thread {
    Thread { pid, tid, comm: comm.into(), start_ns: 1_000 + u64::from(tid) }
}

fn debt(object: &str, outcome: StackOutcome, count: u64, detail: &str) -> Debt {
    Debt {
        object: object.into(),
        outcome,
        count,
        weight_ns: count * PERIOD_NS,
        detail: detail.into(),
        remedy: outcome.remedy(),
    }
}

/// Every kind of frame and outcome, inlined frames, recursion, three processes, a function met on two lines, a sample without a stack,
/// native code called from an interpreter.
pub fn varied() -> Profile {
    use FrameKind::*;
    let mut p = no_samples();
    p.threads = vec![
        thread(1234, 1234, "xz"),
        thread(1234, 1240, "xz worker"),
        thread(77, 77, "node"),
        thread(90, 90, "app"),
    ];
    let xz = "/usr/bin/xz";
    let lzma = "/usr/lib/x86_64-linux-gnu/liblzma.so.5.4.1";
    let mut f = |frame: F| add_frame(&mut p, frame);
    let start = f(F("_start", Native, xz, "", 0, 0x1000));
    let main = f(F("main", Native, xz, "src/xz/main.c", 300, 0x1040));
    let encode = f(F("lzma_encode", Native, lzma, "src/lzma_encoder.c", 310, 0x8000));
    let encode_again = f(F("lzma_encode", Native, lzma, "src/lzma_encoder.c", 355, 0x8000));
    let find = f(F("lzma_mf_bt4_find", Native, lzma, "src/lz_encoder_mf.c", 722, 0x9100));
    let cmp = f(F("lzma_memcmplen", Inlined, lzma, "src/memcmplen.h", 59, 0x9100));
    let load = f(F("read64ne", Inlined, lzma, "src/tuklib_integer.h", 12, 0x9100));
    let sys = f(F("entry_SYSCALL_64", Kernel, "[kernel]", "", 0, 0xffff_ffff_8100_0080));
    let vfs = f(F("vfs_read", Kernel, "[kernel]", "fs/read_write.c", 450, 0xffff_ffff_8130_1000));
    let fib = f(F("fib(unsigned long)", Native, xz, "demo.cc", 3, 0x2000));
    let js = f(F("JS:~handler app.js:10", Jit, "/tmp/perf-77.map", "", 0, 0x7f00_1000));
    let unknown = f(F("[libplugin.so+0x29d90]", Unknown, "/opt/lib/libplugin.so", "", 0, 0x29d90));
    let long = f(F(
        "std::vector<std::pair<std::string, unsigned long>, std::allocator<std::pair<std::string, unsigned long>>>::push_back",
        Native,
        "/opt/lib/libplugin.so",
        "",
        0,
        0x31000,
    ));
    let python = "/usr/bin/python3.11";
    let eval = f(F("_PyEval_EvalFrameDefault", Native, python, "", 0, 0x5000));
    let module = f(F("<module>", Python, "/srv/app.py", "/srv/app.py", 31, 0));
    let handle = f(F("Handler.handle", Python, "/srv/app.py", "/srv/app.py", 17, 0));
    let loads = f(F("scanstring", Native, "/usr/lib/python3.11/lib-dynload/_json.so", "", 0, 0x2300));
    let vm = f(F("vm_exec_core", Native, "/usr/lib/libruby-3.1.so.3.1", "", 0, 0x9900));
    let each = f(F("Array#each", Ruby, "", "", 0, 0));
    let block = f(F("block in Report#rows", Ruby, "/srv/report.rb", "/srv/report.rb", 8, 0));
    use StackOutcome::*;
    add_samples(&mut p, 0, &[start, main, encode, find, cmp, load], Complete, 447);
    add_samples(&mut p, 0, &[start, main, encode_again, find], Complete, 153);
    add_samples(&mut p, 1, &[start, main, encode, find, cmp], Complete, 101);
    add_samples(&mut p, 0, &[start, main, sys, vfs], Complete, 89);
    add_samples(&mut p, 1, &[start, main, fib, fib, fib, fib], Complete, 71);
    add_samples(&mut p, 2, &[js, unknown], FramePointerBroken, 53);
    add_samples(&mut p, 3, &[start, eval, module, handle, loads], Complete, 47);
    add_samples(&mut p, 3, &[start, eval, module, handle], Complete, 37);
    add_samples(&mut p, 2, &[unknown, long], Truncated, 31);
    add_samples(&mut p, 3, &[start, vm, block, each], Complete, 29);
    let rare = [
        Unreadable,
        NotMapped,
        NoRowsYet,
        NoRows,
        UnsupportedRule,
        NotGrowing,
        RegisterUnknown,
        NoMappingFound,
    ];
    for (outcome, count) in rare.into_iter().zip([13, 11, 10, 17, 9, 8, 7, 5]) {
        add_samples(&mut p, 2, &[sys], outcome, count);
    }
    add_samples(&mut p, 2, &[], Complete, 2);
    p.samples.sort_by_key(|sample| std::cmp::Reverse(sample.weight_ns));
    p.debt = vec![
        debt("[jit]", FramePointerBroken, 53, ""),
        debt("/opt/lib/libplugin.so", Truncated, 31, ""),
        debt("/opt/lib/libplugin.so", NoRows, 17, "no .eh_frame, no .debug_frame"),
        debt("/usr/bin/node", Unreadable, 13, ""),
        debt("/usr/bin/node", NotMapped, 11, ""),
        debt("/opt/lib/libplugin.so", NoRowsYet, 10, ""),
        debt("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", UnsupportedRule, 9, ""),
        debt("/usr/bin/node", NotGrowing, 8, ""),
        debt("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", RegisterUnknown, 7, ""),
        debt("", NoMappingFound, 5, ""),
    ];
    p.accounting.lost = 11;
    p.accounting.failed = 3;
    p.accounting.reasons.insert("no_frames", 3);
    p.accounting.fired += 14;
    let fired = p.accounting.fired;
    p.meta.notes.push(
        "Kernel stacks are not shown in full, because kptr_restrict hides the addresses of the kernel's functions: \
         run as root, or set kernel.kptr_restrict=1."
            .into(),
    );
    p.cost = Cost {
        transfer_bytes: 123_456,
        interrupt_ns: fired * 14_000,
        bpf_ns: fired * 1_900,
        bpf_sample_p50_ns: 1_850,
        bpf_sample_p99_ns: 4_200,
        user_ns: 21_400_000,
        total_ns: fired * 15_900 + 21_400_000,
        percent_of_one_cpu: 0.369,
        ns_per_sample: 38_200.0,
        peak_rss_bytes: 19_084_083,
        bpf_map_bytes: 4_718_592,
        interrupt_each_ns: 14_000,
        interrupts: fired,
        interrupt_calibrated: true,
        phases: vec![
            PhaseCost { phase: "calibrate", cpu_ns: 3_000_000 },
            PhaseCost { phase: "start", cpu_ns: 6_100_000 },
            PhaseCost { phase: "collect", cpu_ns: 1_200_000 },
            PhaseCost { phase: "symbolize", cpu_ns: 10_400_000 },
            PhaseCost { phase: "write", cpu_ns: 700_000 },
        ],
        running_percent_of_one_cpu: 0.167,
        first_sample_wall_ns: 41_000_000,
        first_sample_cpu_ns: 12_300_000,
        ..Default::default()
    };
    p
}

/// Names that try to break each format's syntax, a terminal or a page.
pub fn hostile() -> Profile {
    use FrameKind::*;
    let mut p = no_samples();
    p.meta.target = "command '</title><script>alert(1)</script>' & \"more\"\n\x1b[31mred".into();
    p.meta.notes.push("a note with \x1b]0;title\x07 and \u{202E}reversed".into());
    p.threads = vec![
        thread(1, 1, "# comment"),
        thread(1, 2, "a;b\nc"),
        thread(1, 3, ""),
        thread(1, 4, "</script>"),
        thread(1, 5, " 12 34 "),
    ];
    let names = [
        "</script><script>alert(1)</script>",
        "<!-- ]]> \"quoted\" 'single' & &amp; \\ \\u003c",
        "semi;colon",
        "line\nbreak\r\ttab",
        "escape\x1b[2J\x1b]0;x\x07\u{9b}31m",
        "separators\u{2028}\u{2029}\u{202E}\u{FEFF}",
        "operator new 12",
        "ends in two counts 12 34",
        "",
        " ",
        "世界世界 \u{1F600} e\u{301}",
        "nul\0byte \u{FFFE} \u{FFFF}",
        "foo",
        "foo (inlined)",
        "foo !",
    ];
    let frames: Vec<FrameId> = names
        .into_iter()
        .enumerate()
        .map(|(number, name)| {
            let kind = FrameKind::ALL[number % FrameKind::ALL.len()];
            add_frame(&mut p, F(name, kind, "/a;b/<c>\n", "<d>\u{2028};", 7, number as u64))
        })
        .collect();
    let _ = (Native, StringId::EMPTY);
    for (number, &frame) in frames.iter().enumerate() {
        let thread = (number % p.threads.len()) as u32;
        add_samples(&mut p, thread, &[frame], StackOutcome::Complete, 1 + number as u64);
        add_samples(&mut p, thread, &[frame, frames[0]], StackOutcome::Complete, 2);
        add_samples(&mut p, thread, &[frames[12], frame], StackOutcome::Complete, 3);
    }
    p
}

/// `stacks` distinct stacks of about 30 frames over 20,000 functions in 40 objects and 16 threads, from a fixed seed. Deeper parts are
/// shared, as in real programs: a stack leaves an earlier one somewhere.
pub fn large(stacks: u64) -> Profile {
    let mut p = no_samples();
    p.threads = (0..16).map(|n| thread(1000, 1000 + n, &format!("worker-{n}"))).collect();
    let frames: Vec<FrameId> = (0..20_000u64)
        .map(|n| {
            let kind = match n % 20 {
                0..12 => FrameKind::Native,
                12..16 => FrameKind::Inlined,
                16..18 => FrameKind::Kernel,
                18 => FrameKind::Jit,
                _ => FrameKind::Unknown,
            };
            let name = format!("project::module_{}::Type{}::function_{n}", n % 97, n % 1009);
            let object = format!("/usr/lib/x86_64-linux-gnu/libobject{}.so.{}", n % 40, n % 3);
            let file = format!("src/module_{}/file_{}.rs", n % 97, n % 1009);
            add_frame(&mut p, F(&name, kind, &object, &file, (n % 5000) as u32 + 1, 0x1000 + n * 64))
        })
        .collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut path: Vec<FrameId> = Vec::new();
    for _ in 0..stacks {
        path.truncate(30 - random(12) as usize);
        while path.len() < 30 {
            path.push(frames[random(frames.len() as u64) as usize]);
        }
        let count = 1 + random(50) * random(3);
        add_samples(&mut p, random(16) as u32, &path, StackOutcome::Complete, count);
    }
    p.samples.sort_by_key(|sample| std::cmp::Reverse(sample.weight_ns));
    p
}
