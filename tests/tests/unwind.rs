//! Whole stacks: every program of the corpus, compiled as programs are, reaches its root by the known way.

use lightfoot_tests::corpus::{CORPUS, Program, corpus, judge};
use lightfoot_tests::{Lightfoot, out_of_reach, privileged};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// Of one program's samples, those with the outcome that its truth says: a gate against regressions, also where much else runs;
/// `benches -- corpus` holds the goal.
const PER_PROGRAM: f64 = 0.98;
/// Of a group's samples.
const OVERALL: f64 = 0.99;

/// A lightfoot that has kept no tables of earlier runs, as long as the folder lives.
fn cold(arguments: &str) -> (TempDir, Lightfoot) {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().to_str().expect("a plain path").to_owned();
    (folder, Lightfoot::new(arguments).env("XDG_CACHE_HOME", &path))
}

/// Profiles a program of the corpus and returns (samples, as expected, complaints).
fn look(one: &Program) -> (u64, u64, Vec<String>) {
    let (_cache, lightfoot) = cold("profile -F 499 --no-kernel");
    let report = lightfoot.command(one.name, one.arguments).report(0);
    let verdict = judge(&report, one);
    let said = verdict.complaints(PER_PROGRAM).into_iter();
    (
        verdict.samples,
        verdict.as_expected,
        said.map(|line| format!("{} {}: {line}", one.name, one.arguments)).collect(),
    )
}

/// One test for a group of programs, so that a failure says where to look.
fn group(test: &str, names: &[&str]) {
    let Some(_turn) = privileged(test) else { return };
    let programs: Vec<Program> = corpus().into_iter().filter(|one| names.contains(&one.name)).collect();
    for name in names {
        assert!(CORPUS.iter().any(|one| one.name == *name), "{name} is not in the corpus");
        if !programs.iter().any(|one| one.name == *name) {
            out_of_reach(test, &format!("{name} was not built: its compiler is missing"));
        }
    }
    let (mut samples, mut complete, mut said) = (0, 0, Vec::new());
    for one in &programs {
        let (n, whole, complaints) = look(one);
        samples += n;
        complete += whole;
        said.extend(complaints);
    }
    if (complete as f64) < samples as f64 * OVERALL {
        said.push(format!("{complete} of {samples} stacks of this group are complete"));
    }
    assert!(said.is_empty(), "\n{}", said.join("\n"));
}

/// Dynamic, static, static-pie, at a fixed address, by other compilers and linkers.
#[test]
fn c_in_every_binary_form() {
    group(
        "c_in_every_binary_form",
        &["c_plain", "c_static", "c_static_pie", "c_no_pie", "c_now", "c_cet", "c_gold", "c_clang"],
    );
}

/// Without symbols, and without section headers.
#[test]
fn stripped() {
    group("stripped", &["c_stripped", "c_no_sections"]);
}

/// Frame pointers everywhere, in one object of many, and information for debuggers only.
#[test]
fn other_sources_of_unwind_information() {
    group(
        "other_sources_of_unwind_information",
        &["c_frame_pointers", "c_no_eh", "c_debug_frame", "c_debug_frame_z"],
    );
}

#[test]
fn cpp_exceptions() {
    group("cpp_exceptions", &["throws", "throws_static"]);
}

#[test]
fn callbacks_through_libraries() {
    group("callbacks_through_libraries", &["callbacks", "callbacks_static"]);
}

/// Handlers, on the normal and on an alternate stack, and a fault at a function's first instruction.
#[test]
fn signal_handlers() {
    group("signal_handlers", &["signals"]);
}

#[test]
fn jumps_out_of_many_frames() {
    group("jumps_out_of_many_frames", &["jumps"]);
}

/// Stacks that libc, the compiler or the program itself made.
#[test]
fn other_stacks() {
    group("other_stacks", &["contexts", "green", "coroutines"]);
}

/// 900 frames are complete, 5,000 are cut and say so.
#[test]
fn deep_recursion() {
    group("deep_recursion", &["recursion"]);
}

#[test]
fn realigned_stacks_and_vector_registers() {
    group("realigned_stacks_and_vector_registers", &["aligned"]);
}

/// Most samples hit a prologue, an epilogue or a leaf without a frame.
#[test]
fn prologues_and_epilogues() {
    group("prologues_and_epilogues", &["tiny"]);
}

/// Procedure linkage tables and lazy binding.
#[test]
fn linkage() {
    group("linkage", &["linkage"]);
}

/// libc, libm, the vDSO.
#[test]
fn inside_the_c_library() {
    group("inside_the_c_library", &["libraries", "clock"]);
}

#[test]
fn threads() {
    group("threads", &["pthreads"]);
}

/// Two libraries that take turns at one address.
#[test]
fn libraries_that_come_and_go() {
    group("libraries_that_come_and_go", &["reuse"]);
}

#[test]
fn rust() {
    group("rust", &["rusty_release", "rusty_stripped"]);
}

#[test]
fn go() {
    group("go", &["gopher", "gopher_pie", "gopher_stripped", "gopher_c"]);
}

/// No program is left out of a group above.
#[test]
fn every_program_is_in_a_group() {
    let this = include_str!("unwind.rs");
    for one in CORPUS {
        assert!(this.contains(&format!("\"{}\"", one.name)), "{} is in no group", one.name);
    }
}

/// A compiler of 30 MB that nobody has seen before, and that has finished before much could be prepared: its table takes longer than the
/// first of its samples. These are ended when the table is there.
#[test]
fn the_first_stacks_through_a_large_file() {
    let Some(_turn) = privileged("the_first_stacks_through_a_large_file") else { return };
    let asked = Command::new("g++").arg("-print-prog-name=cc1plus").output().expect("g++");
    let compiler = PathBuf::from(String::from_utf8(asked.stdout).expect("a path").trim());
    let folder = tempfile::tempdir().expect("folder");
    // Another inode is another object.
    let copy = folder.path().join("compiler");
    std::fs::copy(compiler, &copy).expect("copy");
    let source = folder.path().join("source.cc");
    let function = |number: u32| {
        format!(
            "int f{number}(int *v, int n) {{ int s = {number}; \
             for (int i = 0; i < n; i++) s += v[i] * {number} ^ (s >> 3); return s; }}\n"
        )
    };
    std::fs::write(&source, (0..300).map(function).collect::<String>()).expect("source");
    let (_cache, lightfoot) = cold("profile -F 997 --no-kernel");
    let arguments = format!("-quiet -O2 -o /dev/null {}", source.display());
    let report = lightfoot.command(copy.to_str().expect("a plain path"), &arguments).report(0);
    let n = report.count(|_| true);
    let whole = report.count(|stack| stack.outcome == "complete");
    assert!(n > 100, "only {n} samples");
    assert!(whole * 100 >= n * 95, "{whole} of {n} are whole: {:?}", report.json["debt"]);
    // And they are what they would have been: all come from main, called by the C library.
    let rooted = report.count(|stack| stack.through("main") && stack.through("__libc_start_main"));
    assert!(rooted * 100 >= n * 85, "{rooted} of {n} come from main");
}
