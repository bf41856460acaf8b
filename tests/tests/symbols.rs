//! Names: every way a frame gets one, and what happens when it cannot.

use lightfoot_tests::{Lightfoot, Report, Workload, privileged};
use std::path::Path;

/// C: function, file and line.
#[test]
fn c_functions_have_file_and_line() {
    let Some(_turn) = privileged("c_functions_have_file_and_line") else { return };
    let report = Lightfoot::new("profile -F 499").command("split", "--seconds 2").report(0);
    let frame = report.frame("work_70").expect("work_70");
    assert!(frame["object"].as_str().is_some_and(|object| object.ends_with("/split")), "{frame}");
    assert!(frame["file"].as_str().is_some_and(|file| file.ends_with("split.c")), "{frame}");
    assert!(frame["line"].as_u64().is_some_and(|line| (10..60).contains(&line)), "{frame}");
    assert_eq!(frame["kind"], "native");
    // The loop is `spin` of program.h, inlined.
    let inlined = report.frame("spin").expect("spin");
    assert_eq!(inlined["kind"], "inlined", "{inlined}");
    assert!(inlined["file"].as_str().is_some_and(|file| file.ends_with("program.h")), "{inlined}");
}

/// C++: demangled, with inlined functions in calling order.
#[test]
fn cpp_is_demangled_and_inlined_functions_are_shown() {
    let Some(_turn) = privileged("cpp_is_demangled_and_inlined_functions_are_shown") else { return };
    let report = Lightfoot::new("profile -F 499 --no-kernel").command("inlined", "--seconds 2").report(0);
    let wanted = [
        "run",
        "lf_demo::Mixer<unsigned long>::mix(unsigned long)",
        "lf_demo::outer_inline",
        "lf_demo::inner_inline",
        "spin",
    ];
    let n = report.count(|stack| stack.frames.iter().any(|f| f.contains("::mix")));
    let whole = report.count(|stack| {
        let from = stack.frames.iter().position(|frame| frame == "run" || frame.starts_with("run("));
        from.is_some_and(|from| {
            let rest = &stack.frames[from..];
            rest.len() == wanted.len()
                && rest.iter().zip(wanted).skip(1).all(|(frame, wanted)| frame.starts_with(wanted))
        })
    });
    assert!(n > 100, "{n}");
    assert!(whole * 100 > n * 90, "{whole} of {n}: {}", report.heaviest(|_| true));
    for stack in &report.stacks {
        for (position, frame) in stack.frames.iter().enumerate() {
            if frame.starts_with("lf_demo::inner_inline") || frame.starts_with("lf_demo::outer_inline") {
                assert_eq!(report.kind(stack, position), "inlined");
            }
            assert!(!frame.starts_with("_ZN7lf_demo"), "mangled: {frame}");
        }
    }
}

/// Rust: demangled without the hash, inlined functions shown.
#[test]
fn rust_is_demangled() {
    let Some(_turn) = privileged("rust_is_demangled") else { return };
    let report = Lightfoot::new("profile -F 499 --no-kernel").command("rusty", "2").report(0);
    let n = report.count(|stack| {
        stack.frames.iter().any(|frame| frame.contains("mixer::Mixer") && frame.ends_with("::mix"))
    });
    assert!(n > 100, "{}", report.heaviest(|_| true));
    let inlined = report.count(|stack| {
        stack
            .frames
            .last()
            .is_some_and(|f| f.contains("black_box") || f.contains("inlined_kernel") || f.contains("mix"))
    });
    assert!(inlined * 100 > n * 90, "{}", report.heaviest(|_| true));
    assert!(
        report.count(|stack| stack.frames.iter().any(|frame| frame.contains("inlined_kernel"))) * 100
            > n * 80,
        "{}",
        report.heaviest(|_| true)
    );
    for stack in &report.stacks {
        for frame in &stack.frames {
            assert!(!frame.starts_with("_R") && !frame.starts_with("_ZN"), "mangled: {frame}");
            let hash = frame
                .rsplit_once("::h")
                .is_some_and(|(_, h)| h.len() == 16 && h.bytes().all(|b| b.is_ascii_hexdigit()));
            assert!(!hash, "the hash is left in: {frame}");
        }
    }
}

/// A stripped program whose symbols are in a file beside it, named by `.gnu_debuglink`.
#[test]
fn a_separate_debug_file() {
    let Some(_turn) = privileged("a_separate_debug_file") else { return };
    let report = Lightfoot::new("profile -F 499").command("separate", "--seconds 2").report(0);
    let n = report.through("work_70");
    assert!(n > 60, "{}", report.heaviest(|_| true));
    assert!(
        report.frame("work_70").expect("work_70")["file"]
            .as_str()
            .is_some_and(|file| file.ends_with("split.c"))
    );
}

/// No symbols anywhere: `[file+0xoffset]`, with the reason, and stable: the same function at the same offsets.
#[test]
fn a_stripped_program_says_so() {
    let Some(_turn) = privileged("a_stripped_program_says_so") else { return };
    let report = Lightfoot::new("profile -F 499 --no-kernel").command("stripped", "--seconds 2").report(0);
    let ours = report.count(|stack| {
        stack.frames.last().is_some_and(|leaf| leaf.starts_with("[stripped+0x") && leaf.ends_with(']'))
    });
    assert!(ours * 100 > report.accounting.recorded * 90, "{}", report.heaviest(|_| true));
}

/// The program's file is gone while it runs.
#[test]
fn a_deleted_program_is_named() {
    let Some(_turn) = privileged("a_deleted_program_is_named") else { return };
    let dir = tempfile::tempdir().expect("folder");
    let target = Workload::ready("deleted", &format!("--dir {} --seconds 5", dir.path().display()));
    assert!(!dir.path().join("deleted-copy").exists());
    let report = Lightfoot::new(&format!("profile -F 499 -d 2s -p {}", target.pid())).report(0);
    let n = report.through("deleted_hot");
    assert!(n * 100 > report.accounting.recorded * 90 && n > 60, "{}", report.heaviest(|_| true));
}

/// The same, with the process gone as well by the time names are looked up.
#[test]
fn a_deleted_program_that_has_exited_is_named() {
    let Some(_turn) = privileged("a_deleted_program_that_has_exited_is_named") else { return };
    let dir = tempfile::tempdir().expect("folder");
    let report = Lightfoot::new("profile -F 499")
        .command("deleted", &format!("--dir {} --seconds 1", dir.path().display()))
        .report(0);
    let n = report.through("deleted_hot");
    assert!(n * 100 > report.accounting.recorded * 85 && n > 60, "{}", report.heaviest(|_| true));
}

/// Code made at run time is named by its perf map, with its callers, in any state of the map.
#[test]
fn jit_code_is_named_by_its_perf_map() {
    let Some(_turn) = privileged("jit_code_is_named_by_its_perf_map") else { return };
    for map in ["good", "truncated", "hostile", "none"] {
        let target = Workload::ready("jit", &format!("--seconds 4 --map {map}"));
        let (report, run) = Lightfoot::new(&format!("profile -F 499 --no-kernel -d 1s -p {}", target.pid()))
            .report_and_run(0);
        let n = report.through("jit_caller");
        assert!(n > 60, "{map}: {}", report.heaviest(|_| true));
        let named =
            report.count(|stack| stack.frames.ends_with(&["jit_caller".into(), "jit_hot_loop".into()]));
        match map {
            "good" | "truncated" => {
                assert!(named * 100 > n * 95, "{map}: {named} of {n}: {}", report.heaviest(|_| true));
                assert_eq!(report.frame("jit_hot_loop").expect("frame")["kind"], "jit");
            }
            "none" => assert_eq!(named, 0),
            _ => {
                assert!(run.wall.as_secs() < 10, "a hostile map costs no more than its bound: {:?}", run.wall)
            }
        }
        drop(target.truth()); // it ends by itself and removes its map
    }
}

/// The perf map is gone with its process before the end: the names must have been taken in time.
#[test]
fn jit_code_of_an_exited_process() {
    let Some(_turn) = privileged("jit_code_of_an_exited_process") else { return };
    let report = Lightfoot::new("profile -F 499 --no-kernel").command("jit", "--seconds 2").report(0);
    let n = report.through("jit_caller");
    let named = report.through("jit_hot_loop");
    assert!(n > 100, "{}", report.heaviest(|_| true));
    if named == 0 {
        // Not promised: then each frame says why it has no name.
        let unknown = report.count(|stack| stack.frames.last().is_some_and(|leaf| leaf.starts_with('[')));
        assert!(unknown * 100 > n * 95, "{}", report.heaviest(|_| true));
    }
}

/// Executable mappings of files that only look like ELF: cut off, absurd, empty of sense. No name, no harm.
#[test]
fn hostile_elf_files() {
    let Some(_turn) = privileged("hostile_elf_files") else { return };
    for (what, page) in hostile_first_pages() {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join("hostile.so");
        let mut bytes = page;
        bytes.resize(8192, 0);
        std::fs::write(&path, bytes).expect("file");
        let (report, run) = profile_mapped(&path);
        let n = report.through("jit_caller");
        assert!(n > 40, "{what}: {}", report.heaviest(|_| true));
        let unknown =
            report.count(|stack| stack.frames.last().is_some_and(|leaf| leaf.starts_with("[hostile.so+0x")));
        assert!(unknown * 100 > n * 90, "{what}: {}", report.heaviest(|_| true));
        assert!(run.wall.as_secs() < 10, "{what}: {:?}", run.wall);
        assert!(report.cost("peak_rss_bytes") < 200 << 20, "{what}: memory follows the file's claims");
    }
}

fn profile_mapped(path: &Path) -> (Report, lightfoot_tests::Run) {
    let target = Workload::ready("jit", &format!("--seconds 4 --file {}", path.display()));
    Lightfoot::new(&format!("profile -F 499 --no-kernel -d 1s -p {}", target.pid())).report_and_run(0)
}

/// First pages with a fault each, built on a true ELF header.
fn hostile_first_pages() -> Vec<(&'static str, Vec<u8>)> {
    let header = std::fs::read(lightfoot_tests::program("split")).expect("split")[..4096].to_vec();
    let with = |offset: usize, bytes: &[u8]| {
        let mut page = header.clone();
        page[offset..offset + bytes.len()].copy_from_slice(bytes);
        page
    };
    let mut noise = vec![0u8; 4096];
    let mut state = 12345u64;
    for byte in &mut noise {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *byte = (state >> 56) as u8;
    }
    let mut noisy = header[..64].to_vec();
    noisy.extend(&noise[64..]);
    vec![
        ("zeros", vec![0; 4096]),
        ("noise", noise),
        ("a true header over noise", noisy),
        ("a header cut off from its sections", header.clone()),
        ("only the magic number", b"\x7fELF".to_vec()),
        ("program headers at the end of the world", with(32, &u64::MAX.to_le_bytes())),
        ("section headers at the end of the world", with(40, &(u64::MAX - 63).to_le_bytes())),
        ("65,535 sections", with(60, &u16::MAX.to_le_bytes())),
        ("65,535 program headers", with(56, &u16::MAX.to_le_bytes())),
        ("32-bit class", with(4, &[1])),
        ("big endian", with(5, &[2])),
    ]
}
