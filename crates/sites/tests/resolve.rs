//! From specs to places, over small files made here and a machine whose `/proc` and `/sys` are a folder.

mod common;

use common::{DATA, Elf, TEXT};
use lightfoot_model::{Instruction, Mechanism};
use lightfoot_sites::{
    Capabilities, Error, Kind, Nop5, Options, Place, Site, Spec, System, list_on, resolve_on,
};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
/// endbr64; push rbx; pop rbx; ret
const PROTECTED: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa, 0x53, 0x5b, 0xc3];
/// push rbx; pop rbx; ret
const PLAIN: &[u8] = &[0x53, 0x5b, 0xc3];
/// mov [rsp - 8], rdi; nop5; mov rax, [rsp - 8]; ret
const LEAF: &[u8] =
    &[0x48, 0x89, 0x7c, 0x24, 0xf8, 0x0f, 0x1f, 0x44, 0, 0, 0x48, 0x8b, 0x44, 0x24, 0xf8, 0xc3];

struct Machine {
    root: tempfile::TempDir,
    options: Options,
}

impl Machine {
    fn new() -> Machine {
        Machine { root: tempfile::tempdir().unwrap(), options: Options::new(Capabilities::all()) }
    }

    fn write(self, path: &str, content: impl AsRef<[u8]>) -> Machine {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    fn with(elf: &Elf) -> Machine {
        Machine::new().write("bin/x", elf.bytes())
    }

    fn system(&self) -> System {
        System::at(self.root.path(), vec!["/bin".into()])
    }

    fn resolve(&self, specs: &str) -> Result<Vec<Site>, Error> {
        resolve_on(&self.system(), &Spec::parse_list(specs)?, &self.options)
    }

    fn sites(&self, specs: &str) -> Vec<Site> {
        self.resolve(specs).unwrap_or_else(|error| panic!("{specs}: {error}"))
    }

    fn error(&self, specs: &str) -> (Kind, String) {
        match self.resolve(specs) {
            Ok(sites) => panic!("{specs}: {sites:?}"),
            Err(error) => (error.kind(), error.to_string()),
        }
    }

    /// Names and offsets from the start of the code.
    fn places(&self, specs: &str) -> Vec<(String, u64)> {
        let offset = |site: &Site| match site.place {
            Place::User { offset, .. } => offset - TEXT,
            _ => panic!("{site:?}"),
        };
        self.sites(specs).iter().map(|site| (site.name.clone(), offset(site))).collect()
    }

    fn list(&self, pattern: &str, verbose: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let mut each = |line: &str| {
            lines.push(line.to_owned());
            true
        };
        list_on(&self.system(), pattern, verbose, &self.options, &mut each).unwrap();
        lines
    }
}

fn place(name: &str, offset: u64) -> (String, u64) {
    (name.to_owned(), offset)
}

#[test]
fn functions_by_name_offset_address_and_glob() {
    let machine = Machine::with(&Elf::new().function("one", PLAIN).function("two", PROTECTED).alias("__two"));
    assert_eq!(machine.places("u:/bin/x:one"), [place("uprobe:/bin/x:one", 0)]);
    assert_eq!(machine.places("u:/bin/x:two"), [place("uprobe:/bin/x:two", 16 + 4)]);
    assert_eq!(machine.places("u:/bin/x:two+4"), [place("uprobe:/bin/x:two+4", 16 + 4)]);
    assert_eq!(machine.places("u:/bin/x:0x410"), [place("uprobe:/bin/x:0x410", 16)]);
    // Two names of one function are one probe, shown by the plainer one.
    assert_eq!(machine.places("u:/bin/x:*"), [place("uprobe:/bin/x:one", 0), place("uprobe:/bin/x:two", 20)]);
    assert_eq!(machine.places("u:/bin/x:two,u:/bin/x:__two").len(), 1, "each place once");
    assert_eq!(machine.places("u:x:one"), [place("uprobe:/bin/x:one", 0)]);
    // In the order asked for.
    let names = machine.places("u:/bin/x:two,u:/bin/x:one");
    assert_eq!(
        names.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["uprobe:/bin/x:two", "uprobe:/bin/x:one"]
    );
    let site = &machine.sites("u:/bin/x:two")[0];
    assert_eq!((site.mechanism, site.instruction), (Mechanism::UprobeMulti, Some(Instruction::Push)));
    assert!(site.choices[0].contains("endbr64"), "{:?}", site.choices);
}

#[test]
fn naive_takes_the_first_byte_and_the_named_mechanism() {
    let mut machine = Machine::with(&Elf::new().function("f", PROTECTED));
    machine.options.naive = true;
    let site = &machine.sites("u:/bin/x:f")[0];
    assert_eq!((site.mechanism, site.instruction), (Mechanism::Uprobe, Some(Instruction::SingleStepped)));
    assert_eq!(machine.places("u:/bin/x:f"), [place("uprobe:/bin/x:f", 0)]);
    let site = &machine.sites("t:syscalls:sys_enter_read")[0];
    assert_eq!(site.mechanism, Mechanism::Tracepoint);
}

#[test]
fn jumps_from_elsewhere_keep_a_probe_at_the_first_byte() {
    // A jump at +16 to f+4, by rel32 and by rel8.
    let far = Elf::new().function("f", PROTECTED).function("g", &[0xe9, 0xef, 0xff, 0xff, 0xff]);
    assert_eq!(Machine::with(&far).places("u:/bin/x:f"), [place("uprobe:/bin/x:f", 0)]);
    let near = Elf::new().function("f", PROTECTED).function("g", &[0xeb, 0xf2]);
    assert_eq!(Machine::with(&near).places("u:/bin/x:f"), [place("uprobe:/bin/x:f", 0)]);
    // From code without a symbol.
    let unnamed = Elf::new().function("f", PROTECTED).code(&[0xe9, 0xf8, 0xff, 0xff, 0xff]);
    assert_eq!(Machine::with(&unnamed).places("u:/bin/x:f"), [place("uprobe:/bin/x:f", 0)]);
    // To the first byte: harmless.
    let entry = Elf::new().function("f", PROTECTED).function("g", &[0xe9, 0xeb, 0xff, 0xff, 0xff]);
    assert_eq!(Machine::with(&entry).places("u:/bin/x:f"), [place("uprobe:/bin/x:f", 4)]);
    // A second function that begins within the first.
    let mut inside = PROTECTED.to_vec();
    inside.splice(0..0, ENDBR64.iter().copied());
    let elf = Elf::new().function("f", ENDBR64).code(PROTECTED);
    assert_eq!(
        Machine::with(&elf).places("u:/bin/x:f"),
        [place("uprobe:/bin/x:f", 0)],
        "the function ends before"
    );
}

#[test]
fn wrong_places() {
    let machine = Machine::with(
        &Elf::new()
            .function("compute", PROTECTED)
            .function("ten", &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xc3]),
    );
    let check = |spec: &str, kind, part: &str| {
        let (found, message) = machine.error(spec);
        assert_eq!(found, kind, "{message}");
        assert!(message.contains(part) && !message.contains('\n'), "{message}");
    };
    check("u:/bin/x:compute+2", Kind::Offset, "in the middle of an instruction");
    check("u:/bin/x:compute+100", Kind::Offset, "has 7 bytes, +100 lies behind its end");
    check("u:/bin/x:0x9999999", Kind::Offset, "not in the code");
    check("u:/bin/x:0x800", Kind::Offset, "not in the code");
    check("u:/bin/x:compuet", Kind::NotFound, "did you mean compute?");
    check("u:/bin/x:zzz*", Kind::NotFound, "no function matches");
    check("u:/bin/none:f", Kind::NotFound, "/bin/none");
    check("u:nothing:f", Kind::NotFound, "no program in PATH and no library");
    check("U:/bin/x:p:n", Kind::NoProvider, "no USDT probes");
    let naive = Machine {
        options: Options { naive: true, ..machine.options.clone() },
        root: tempfile::tempdir().unwrap(),
    };
    let naive = naive.write(
        "bin/x",
        Elf::new()
            .function("ten", &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xc3])
            .function("plain", PLAIN)
            .bytes(),
    );
    let (kind, message) = naive.error("u:/bin/x:ten");
    assert!(kind == Kind::Refused && message.contains("never fire"), "{message}");
    // Of several that were named each must be possible; of a pattern what is not is left out.
    assert_eq!(naive.error("u:/bin/x:plain,u:/bin/x:ten").0, Kind::Refused);
    let rest = naive.sites("u:/bin/x:*");
    assert_eq!((rest.len(), rest[0].name.as_str()), (1, "uprobe:/bin/x:plain"));
    assert!(rest[0].warnings[0].starts_with("1 functions of /bin/x are left out"), "{:?}", rest[0].warnings);
    let script = Machine::new().write("bin/x", "#!/bin/sh\n");
    assert!(script.error("u:/bin/x:f").1.contains("not an ELF file"));
    let elf = Elf::new().function("f", PLAIN).bytes();
    let several = Machine::new().write("bin/x", &elf).write("bin/y", &elf).write("bin/script", "#!/bin/sh\n");
    assert_eq!(several.sites("u:/bin/*:f").len(), 2);
    let (kind, message) = several.error("u:/bin/*:g");
    assert!(kind == Kind::NotFound && message.contains("none of the 2 files"), "{message}");
}

#[test]
fn stripped_files() {
    let machine = Machine::with(&Elf::new().function("f", PLAIN).stripped());
    let (kind, message) = machine.error("u:/bin/x:f");
    assert!(kind == Kind::Stripped && message.contains("give an address"), "{message}");
}

#[test]
fn names_of_the_source() {
    let elf = Elf::new()
        .function("_ZN2ns3addEii", PLAIN)
        .function("_ZN2ns3addEdd", PLAIN)
        .function("_ZN4core3fmt5write17h0123456789abcdefE", PLAIN)
        .function("add", PLAIN);
    let machine = Machine::with(&elf);
    let offsets =
        |spec: &str| -> Vec<u64> { machine.places(spec).into_iter().map(|(_, offset)| offset).collect() };
    assert_eq!(offsets("u:/bin/x:ns::add"), [16, 0], "both overloads, by symbol");
    assert_eq!(offsets("u:/bin/x:ns::add(int, int)"), [0]);
    assert_eq!(offsets("u:/bin/x:cpp:ns::*"), [16, 0]);
    assert_eq!(offsets("u:/bin/x:core::fmt::write"), [32]);
    assert_eq!(offsets("u:/bin/x:add"), [48], "a symbol comes first");
    assert!(machine.error("u:/bin/x:ns::addd").1.contains("did you mean ns::add?"));
}

#[test]
fn returns_of_go_are_probed_at_the_return_instructions() {
    let two_ends = &[0x53, 0x5b, 0xc3, 0x5b, 0xc3];
    let machine =
        Machine::with(&Elf::new().function("main.f", two_ends).function("main.loop", &[0xeb, 0xfe]).go());
    let sites = machine.sites("ur:/bin/x:main.f");
    assert_eq!(
        machine.places("ur:/bin/x:main.f"),
        [place("uretprobe:/bin/x:main.f", 2), place("uretprobe:/bin/x:main.f", 4)]
    );
    assert!(sites.iter().all(|site| site.mechanism == Mechanism::UprobeMulti));
    assert!(sites[0].choices[0].contains("Go"));
    let (kind, message) = machine.error("ur:/bin/x:main.loop");
    assert!(kind == Kind::Refused && message.contains("no return instruction"), "{message}");
    let elsewhere = Machine::with(&Elf::new().function("f", two_ends));
    assert_eq!(elsewhere.sites("ur:/bin/x:f")[0].mechanism, Mechanism::UretprobeMulti);
}

#[test]
fn a_nop5_in_a_leaf_function() {
    let mut machine = Machine::with(&Elf::new().function("leaf", LEAF).usdt(5, 0, "p", "n", ""));
    assert_eq!(machine.error("u:/bin/x:leaf+5").0, Kind::Refused);
    // A USDT probe is moved behind the nop.
    assert_eq!(machine.places("U:/bin/x:p:n"), [place("usdt:/bin/x:p:n", 10)]);
    machine.options.capabilities.nop5 = Nop5::Trap;
    assert_eq!(machine.places("u:/bin/x:leaf+5"), [place("uprobe:/bin/x:leaf+5", 5)]);
    assert_eq!(machine.places("U:/bin/x:p:n"), [place("usdt:/bin/x:p:n", 5)]);
}

#[test]
fn usdt_probes() {
    // Two places of one probe; another probe with a semaphore.
    let code = &[0x53, 0x90, 0x90, 0x90, 0x5b, 0xc3];
    let elf = Elf::new()
        .function("f", code)
        .usdt(1, 0, "ruby", "gc", "8@%rdi")
        .usdt(2, 0, "ruby", "gc", "")
        .usdt(3, DATA + 4, "ruby", "raise", "");
    let machine = Machine::with(&elf);
    assert_eq!(
        machine.places("U:/bin/x:ruby:gc"),
        [place("usdt:/bin/x:ruby:gc", 1), place("usdt:/bin/x:ruby:gc", 2)]
    );
    assert_eq!(machine.places("U:/bin/x:*").len(), 3);
    let site = &machine.sites("U:/bin/x:raise")[0];
    assert!(matches!(site.place, Place::User { semaphore: Some(semaphore), .. } if semaphore == DATA + 4));
    assert_eq!((site.mechanism, site.instruction), (Mechanism::UprobeMulti, Some(Instruction::Nop)));
    let (kind, message) = machine.error("U:/bin/x:python:gc");
    assert!(kind == Kind::NoProvider && message.contains("only ruby"), "{message}");
    let (kind, message) = machine.error("U:/bin/x:ruby:rais");
    assert!(kind == Kind::NotFound && message.contains("did you mean raise?"), "{message}");
    assert_eq!(
        machine.list("usdt:/bin/x", true),
        ["usdt:/bin/x:ruby:gc", "    arg0: 8 bytes, in rdi", "usdt:/bin/x:ruby:raise"]
    );
}

#[test]
fn a_function_that_is_chosen_at_load_time_is_warned_of() {
    let machine = Machine::with(&Elf::new().chooser("memcpy", PLAIN));
    assert!(machine.sites("u:/bin/x:memcpy")[0].warnings[0].contains("chosen among several"));
}

#[test]
fn an_instruction_that_repeats_itself_is_warned_of() {
    // rep movsb; ret
    let machine = Machine::with(&Elf::new().function("copy", &[0xf3, 0xa4, 0xc3]));
    assert!(machine.sites("u:/bin/x:copy")[0].warnings[0].contains("each repetition"));
}

#[test]
fn the_limit() {
    let mut elf = Elf::new();
    for number in 0..7 {
        elf = elf.function(&format!("f{number}"), PLAIN);
    }
    let mut machine = Machine::with(&elf);
    machine.options.limit = 7;
    assert_eq!(machine.sites("u:/bin/x:f*").len(), 7);
    machine.options.limit = 6;
    let (kind, message) = machine.error("u:/bin/x:f*");
    assert!(
        kind == Kind::TooMany && message.contains("7 places, the limit is 6") && message.contains("raise it"),
        "{message}"
    );
    assert_eq!(machine.error("u:/bin/x:f0,t:syscalls:sys_enter_*").0, Kind::TooMany);
}

fn kallsyms(machine: Machine) -> Machine {
    let lines = "0 T vfs_read\n0 T vfs_write\n0 t twice\n0 t twice\n0 t ext4_open\t[ext4]\n0 T __x64_sys_read\n0 T __x64_sys_newstat\n0 T __arm64_sys_read\n0 T __arm64_sys_newfstatat\n";
    machine.write("proc/kallsyms", lines)
}

#[test]
fn functions_of_the_kernel() {
    let mut machine = kallsyms(Machine::new());
    let mechanisms = |machine: &Machine, spec: &str| -> Vec<(String, Mechanism)> {
        machine.sites(spec).into_iter().map(|site| (site.name, site.mechanism)).collect()
    };
    // Without BTF no trampoline can be made.
    assert_eq!(mechanisms(&machine, "k:vfs_read"), [("kprobe:vfs_read".into(), Mechanism::Kprobe)]);
    assert_eq!(mechanisms(&machine, "k:vfs_read+4")[0].1, Mechanism::Kprobe);
    let two = mechanisms(&machine, "kr:vfs_*");
    assert_eq!(
        two,
        [
            ("kretprobe:vfs_read".into(), Mechanism::KretprobeMulti),
            ("kretprobe:vfs_write".into(), Mechanism::KretprobeMulti)
        ]
    );
    assert_eq!(mechanisms(&machine, "k:ext4:ext4_*").len(), 1);
    assert_eq!(machine.error("k:vmlinux:ext4_open").0, Kind::NotFound);
    let addresses = Machine::new().write("proc/kallsyms", "1000 T vfs_read\n1020 T vfs_write\n");
    assert_eq!(addresses.sites("k:vfs_read+31").len(), 1);
    assert_eq!(addresses.error("k:vfs_read+32").0, Kind::Offset);
    assert!(machine.error("k:vfs_raed").1.contains("did you mean vfs_read?"));
    assert_eq!(machine.error("f:vfs_read").0, Kind::Unsupported, "BTF does not describe it");
    machine.options.capabilities = Capabilities::new([Mechanism::Tracepoint], Nop5::Trap);
    let (kind, message) = machine.error("k:vfs_read");
    assert!(
        kind == Kind::Unsupported && message.contains("kprobe does not work on this kernel"),
        "{message}"
    );
}

#[test]
fn tracepoints_with_and_without_tracefs() {
    let mut machine = kallsyms(Machine::new());
    let site = &machine.sites("t:syscalls:sys_enter_read")[0];
    assert_eq!(site.mechanism, Mechanism::RawTracepoint);
    assert!(matches!(site.place, Place::Syscall { exit: false, .. }));
    assert!(site.trigger().syscall);
    let kernel_names = if cfg!(target_arch = "aarch64") { "newfstatat" } else { "newstat" };
    let known = if cfg!(target_arch = "aarch64") { "fstatat" } else { "stat" };
    assert_eq!(
        machine.sites(&format!("t:syscalls:sys_exit_{known}"))[0].name,
        format!("tracepoint:syscalls:sys_exit_{kernel_names}")
    );
    assert_eq!(machine.sites("t:syscalls:*").len(), 4);
    let (kind, message) = machine.error("t:syscalls:sys_enter_raed");
    assert!(kind == Kind::NotFound && message.contains("tracepoint:syscalls:sys_enter_read"), "{message}");
    assert_eq!(machine.error("t:sched:sched_switch").0, Kind::NotFound, "no tracefs, no BTF");
    machine = machine.write(
        "sys/kernel/tracing/events/sched/sched_switch/format",
        "\tfield:pid_t prev_pid;\toffset:24;\n",
    );
    let site = &machine.sites("t:sched:sched_*")[0];
    assert_eq!(
        (site.name.as_str(), site.mechanism),
        ("tracepoint:sched:sched_switch", Mechanism::Tracepoint)
    );
    assert!(machine.error("t:sched:sched_swich").1.contains("did you mean tracepoint:sched:sched_switch?"));
    assert!(machine.error("t:shed:sched_switch").1.contains("did you mean tracepoint:sched:sched_switch?"));
    assert_eq!(machine.list("t:*", true), ["tracepoint:sched:sched_switch", "    pid_t prev_pid"]);
}

/// The types of `fuzz/corpus/btf/a-type-of-itself`: a function `f(int count, struct task *who)` and a tracepoint `switch`.
#[test]
fn what_btf_describes_is_attached_without_breakpoints_and_perf_events() {
    let types = include_bytes!("../../../fuzz/corpus/btf/a-type-of-itself");
    let machine = Machine::new()
        .write("sys/kernel/btf/vmlinux", types)
        .write("proc/kallsyms", "0 T f\n0 T g\n0 t loop\n0 t loop\n");
    let mechanism = |spec: &str| machine.sites(spec)[0].mechanism;
    assert_eq!(mechanism("k:f"), Mechanism::Fentry);
    assert_eq!(mechanism("kr:f"), Mechanism::Fexit);
    assert_eq!(mechanism("k:f+4"), Mechanism::Kprobe, "not the entry");
    assert_eq!(mechanism("k:g"), Mechanism::Kprobe, "BTF does not describe it");
    assert_eq!(mechanism("k:loop"), Mechanism::Kprobe, "two functions have this name");
    assert_eq!(mechanism("f:f"), Mechanism::Fentry);
    assert_eq!(machine.error("f:g").0, Kind::Unsupported);
    assert_eq!(mechanism("k:?"), Mechanism::KprobeMulti);
    assert_eq!(mechanism("t:sched:switch"), Mechanism::RawTracepoint);
    assert_eq!(mechanism("rt:sw*"), Mechanism::RawTracepoint);
    assert!(machine.error("rt:swich").1.contains("did you mean rawtracepoint:switch?"));
    assert_eq!(machine.list("fentry:f", true), ["fentry:f", "    int count", "    struct task * who"]);
    assert_eq!(machine.list("fexit:f", true).last().unwrap(), "    int retval");
    assert_eq!(machine.list("rawtracepoint", true), ["rawtracepoint:switch", "    int", "    struct task *"]);
    let naive = Options { naive: true, ..machine.options.clone() };
    let specs = Spec::parse_list("k:f").unwrap();
    assert_eq!(resolve_on(&machine.system(), &specs, &naive).unwrap()[0].mechanism, Mechanism::Kprobe);
}

#[test]
fn events_and_timers() {
    let machine = Machine::new();
    let sites = machine.sites("s:faults,i:s:1,p:hz:99,h:cycles:1000");
    assert!(sites.iter().all(|site| site.mechanism == Mechanism::PerfEvent));
    assert!(sites[0].choices[0].contains("each 100 events"));
    let one_cpu: Vec<bool> =
        sites.iter().map(|site| matches!(site.place, Place::Perf { one_cpu: true, .. })).collect();
    assert_eq!(one_cpu, [false, true, false, false]);
}

#[test]
fn what_there_is_is_listed_sorted_once_and_until_it_is_enough() {
    let machine = kallsyms(Machine::with(&Elf::new().function("b", PLAIN).function("a", PLAIN).alias("__a")));
    assert_eq!(machine.list("uprobe:/bin/x", false), ["uprobe:/bin/x:a", "uprobe:/bin/x:b"]);
    assert_eq!(machine.list("kprobe:vfs_*", false), ["kprobe:vfs_read", "kprobe:vfs_write"]);
    assert_eq!(machine.list("*twice", false), ["kprobe:twice", "kretprobe:twice"]);
    assert_eq!(machine.list("k*probe:vfs_read", false), ["kprobe:vfs_read", "kretprobe:vfs_read"]);
    assert_eq!(machine.list("software:*-faults", false).len(), 5);
    let mut count = 0;
    let mut each = |_: &str| {
        count += 1;
        count < 2
    };
    list_on(&machine.system(), "kprobe:*", false, &machine.options, &mut each).unwrap();
    assert_eq!(count, 2);
    let mut none = |_: &str| true;
    let error = list_on(&machine.system(), "kprob:*", false, &machine.options, &mut none).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
}

/// On a real library, if it is here: what is chosen is never dearer than the first byte, and never outside of the function.
#[test]
fn libraries_of_this_machine() {
    for path in ["/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib/x86_64-linux-gnu/libc.so.6"] {
        if !Path::new(path).exists() {
            continue;
        }
        let spec = Spec::parse(&format!("u:{path}:*")).unwrap();
        let mut options = Options::new(Capabilities::all());
        let chosen = resolve_on(&System::new(), std::slice::from_ref(&spec), &options).unwrap();
        options.naive = true;
        let naive = resolve_on(&System::new(), std::slice::from_ref(&spec), &options).unwrap();
        assert!(chosen.len() > 1_000 && chosen.len() >= naive.len());
        let cheap = |sites: &[Site]| {
            sites.iter().filter(|site| site.instruction != Some(Instruction::SingleStepped)).count()
        };
        assert!(cheap(&chosen) > cheap(&naive), "{path}: {} {}", cheap(&chosen), cheap(&naive));
        let moved = chosen
            .iter()
            .filter(|site| site.choices.iter().any(|choice| choice.contains("would be single-stepped")));
        for site in moved {
            let Place::User { offset, .. } = site.place else { panic!("{site:?}") };
            // Several functions may have one name.
            let mut same = naive.iter().filter(|other| other.name == site.name);
            assert!(
                same.any(|other| matches!(other.place, Place::User { offset: first, .. } if (first + 1..first + 64).contains(&offset))),
                "{site:?}"
            );
        }
    }
}
