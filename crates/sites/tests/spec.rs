//! The syntax of probes: what is read, how it is printed, what is said about mistakes.

use lightfoot_sites::{At, Every, Kind, Spec};

fn parsed(text: &str) -> Spec {
    Spec::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Every short name, in its full form.
#[test]
fn short_names() {
    let table = [
        ("k:vfs_read", "kprobe:vfs_read"),
        ("kprobe:vfs_read+8", "kprobe:vfs_read+8"),
        ("kprobe:vfs_read+0x10", "kprobe:vfs_read+16"),
        ("kprobe:ext4:ext4_open", "kprobe:ext4:ext4_open"),
        ("kprobe_multi:vfs_*", "kprobe:vfs_*"),
        ("kr:vfs_read", "kretprobe:vfs_read"),
        ("f:vfs_read", "fentry:vfs_read"),
        ("kfunc:vmlinux:vfs_read", "fentry:vmlinux:vfs_read"),
        ("fr:vfs_read", "fexit:vfs_read"),
        ("kretfunc:vfs_read", "fexit:vfs_read"),
        ("t:sched:sched_switch", "tracepoint:sched:sched_switch"),
        ("rt:sched_switch", "rawtracepoint:sched_switch"),
        ("rawtracepoint:vmlinux:sched_switch", "rawtracepoint:sched_switch"),
        ("u:/bin/bash:readline", "uprobe:/bin/bash:readline"),
        ("u:/bin/bash:readline+4", "uprobe:/bin/bash:readline+4"),
        ("u:bash:0x1234", "uprobe:bash:0x1234"),
        ("u:bash:4660", "uprobe:bash:0x1234"),
        ("ur:/bin/bash:read*", "uretprobe:/bin/bash:read*"),
        ("u:/bin/x:ns::f(int, char)", "uprobe:/bin/x:ns::f(int, char)"),
        ("u:/bin/x:cpp:ns::f", "uprobe:/bin/x:cpp:ns::f"),
        ("u:/bin/x:cpp:\"ns::f(int)\"", "uprobe:/bin/x:cpp:ns::f(int)"),
        ("u:/bin/x:operator+", "uprobe:/bin/x:operator+"),
        ("U:/lib/libruby.so:ruby:gc__mark__begin", "usdt:/lib/libruby.so:ruby:gc__mark__begin"),
        ("usdt:/lib/libruby.so:gc__mark__begin", "usdt:/lib/libruby.so:gc__mark__begin"),
        ("usdt:/lib/*:ruby:gc*", "usdt:/lib/*:ruby:gc*"),
        ("s:faults:100", "software:faults:100"),
        ("software:cpu-clock", "software:cpu-clock"),
        ("h:cache-misses:1e6", "hardware:cache-misses:1000000"),
        ("p:hz:99", "profile:hz:99"),
        ("profile:99", "profile:hz:99"),
        ("profile:us:100", "profile:us:100"),
        ("i:s:1", "interval:s:1"),
        ("interval:10ms", "interval:ms:10"),
        ("interval:ms:2000", "interval:s:2"),
    ];
    for (text, full) in table {
        assert_eq!(parsed(text).to_string(), full, "{text}");
        assert_eq!(parsed(full).to_string(), full, "what is printed can be read");
    }
}

#[test]
fn parts() {
    let at = |name: &str, offset, demangled| At::Function { name: name.into(), offset, demangled };
    let uprobe = |file: &str, at| Spec::Uprobe { returns: false, file: file.into(), at };
    assert_eq!(parsed("u:/a:f+0x10"), uprobe("/a", at("f", 16, false)));
    assert_eq!(parsed("u:\"/a:b\":f"), uprobe("/a:b", at("f", 0, false)));
    assert_eq!(parsed("u:/a:cpp:x::y"), uprobe("/a", at("x::y", 0, true)));
    assert_eq!(parsed("u:/a:0x10"), uprobe("/a", At::Address(16)));
    assert_eq!(parsed("i:us:5"), Spec::Timer { one_cpu: true, every: Every::Period(5_000) });
    assert_eq!(parsed("p:hz:99"), Spec::Timer { one_cpu: false, every: Every::Hertz(99) });
}

#[test]
fn lists() {
    let list = |text: &str| -> Vec<String> {
        let specs = Spec::parse_list(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        specs.iter().map(Spec::to_string).collect()
    };
    assert_eq!(list("k:a,kr:b"), ["kprobe:a", "kretprobe:b"]);
    assert_eq!(list(" k:a , t:x:y ,"), ["kprobe:a", "tracepoint:x:y"]);
    // Commas of C++ belong to the name.
    assert_eq!(list("u:/a:f(int, char),u:/a:g"), ["uprobe:/a:f(int, char)", "uprobe:/a:g"]);
    assert_eq!(list("u:/a:\"f<s, t>\",i:s:1"), ["uprobe:/a:f<s, t>", "interval:s:1"]);
}

/// Each mistake is one line that names it and the next step.
#[test]
fn mistakes() {
    let table = [
        ("", "an empty probe"),
        ("kprob:vfs_read", "did you mean kprobe?"),
        ("something:else", "known are kprobe"),
        ("kprobe", "a kprobe is written kprobe:FUNCTION"),
        ("kprobe:", "a kprobe is written"),
        ("kprobe:a:b:c", "a kprobe is written"),
        ("kprobe:a,b", "each probe needs its kind: kprobe:FIRST,kprobe:SECOND"),
        ("kretprobe:f+4", "leave out +4"),
        ("kprobe:vfs_*+4", "an offset needs one function"),
        ("tracepoint:sched", "tracepoint:CATEGORY:NAME"),
        ("uprobe:/bin/bash", "uprobe:FILE:FUNCTION"),
        ("uprobe::f", "uprobe:FILE:FUNCTION"),
        ("uprobe:/bin/bash:", "a function is missing"),
        ("uprobe:/bin/bash:0xzz", "\"0xzz\" is not a number"),
        ("uprobe:/bin/bash:f+99999999999999999999999", "is not a number"),
        ("uretprobe:/bin/bash:0x10", "needs a function"),
        ("uretprobe:/bin/bash:f+4", "leave out +4"),
        ("uprobe:/bin/bash:\"f", "a quote is not closed"),
        ("usdt:/bin/bash", "usdt:FILE:PROVIDER:NAME"),
        ("software:page-fault", "did you mean page-faults"),
        ("software:faults:0", "never fires"),
        ("hardware:nonsense", "known are"),
        ("profile:hz:0", "never fires"),
        ("profile:days:1", "known are hz, s, ms, us"),
        ("interval:s:99999999999999", "too long"),
        ("interval", "interval:s|ms|us:NUMBER"),
    ];
    for (text, part) in table {
        let Err(error) = Spec::parse(text) else { panic!("{text} was read") };
        assert_eq!((error.kind(), error.exit_code()), (Kind::Usage, 2), "{text}");
        let message = error.to_string();
        assert!(message.contains(part) && !message.contains('\n'), "{message}");
    }
    assert!(Spec::parse_list(" , ").is_err());
}

/// Whatever is given, it is read or refused.
#[test]
fn anything() {
    let pieces = [
        "u", ":", "+", ",", "\"", "*", "[", "0x", "9", "cpp", "usdt", "::", " ", "é", "e", "1e99", "kprobe",
        "-",
    ];
    let mut seed = 7_u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..8 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
        }
        if let Ok(specs) = Spec::parse_list(&text) {
            assert!(specs.iter().all(|spec| !spec.to_string().is_empty()));
        }
    }
}
