//! The programs that people open these files with, asked what they understood: Go's pprof, speedscope's schema, the Firefox Profiler.
//!
//! Runs with `LIGHTFOOT_CONSUMERS=1`, and then a missing program is a failure. Needs `go` (or `GO=/path/of/go`), `node`, and the
//! packages of `tests/consumers` (`npm ci` there).
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

mod common;

use lightfoot_export::{Format, TextOptions};
use lightfoot_model::Profile;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether the consumers are to be asked; says so if not.
fn asked() -> bool {
    let asked = std::env::var("LIGHTFOOT_CONSUMERS").is_ok_and(|value| value == "1");
    if !asked {
        eprintln!(
            "skipped: set LIGHTFOOT_CONSUMERS=1 to ask go, speedscope's schema and the Firefox Profiler"
        );
    }
    asked
}

struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        Files { directory: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, profile: &Profile, format: Format) -> PathBuf {
        let path = self.directory.path().join(name);
        let mut file = std::fs::File::create(&path).unwrap();
        lightfoot_export::write(profile, format, &mut file, &TextOptions::default()).unwrap();
        path
    }
}

/// Standard output of a command that must succeed.
fn output(command: &mut Command) -> String {
    let result = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&result.stderr);
    assert!(result.status.success(), "{command:?}: {}\n{errors}", result.status);
    String::from_utf8(result.stdout).unwrap()
}

fn script(name: &str) -> Command {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/consumers");
    assert!(directory.join("node_modules").is_dir(), "run `npm ci` in crates/export/tests/consumers first");
    let mut command = Command::new("node");
    command.arg(directory.join(name)).current_dir(&directory);
    command
}

fn pprof(files: &Files, file: &Path, words: &[&str]) -> String {
    let go = std::env::var_os("GO").unwrap_or_else(|| "go".into());
    let mut command = Command::new(go);
    command.args(["tool", "pprof"]).args(words).arg(file);
    // What it keeps goes where it is thrown away.
    command.env("PPROF_TMPDIR", files.directory.path());
    output(&mut command)
}

/// Own and total figures of each function, as a reader ought to add them up.
fn expected_functions(profile: &Profile) -> BTreeMap<String, (u64, u64)> {
    let mut functions = BTreeMap::new();
    for function in profile.functions() {
        let entry = functions.entry(profile.strings.get(function.name).to_owned()).or_insert((0, 0));
        entry.0 += function.self_ns;
        entry.1 += function.total_ns;
    }
    functions
}

#[test]
fn go_pprof_adds_up_what_we_wrote() {
    if !asked() {
        return;
    }
    let files = Files::new();
    let profile = common::varied();
    let file = files.write("varied.pb.gz", &profile, Format::Pprof);

    let top = pprof(&files, &file, &["-top", "-unit=ns", "-nodecount=1000"]);
    assert!(top.contains("Type: cpu"), "{top}");
    assert!(top.contains(&format!("Total samples = {}ns", profile.total_weight_ns())), "{top}");
    assert!(top.starts_with("File: xz\n"), "{top}");
    for (name, (own, total)) in expected_functions(&profile) {
        // pprof shortens C++ names.
        let shown = if name.starts_with("std::vector<") { "std::vector::push_back".into() } else { name };
        let found = top.lines().any(|line| {
            let mut words = line.split_whitespace();
            let own_shown = words.next().map(|word| word.trim_end_matches("ns"));
            let total_shown = words.nth(2).map(|word| word.trim_end_matches("ns"));
            let name_shown = line.split("%  ").last().unwrap_or_default().trim_end_matches(" (inline)");
            name_shown == shown
                && own_shown == Some(&own.to_string())
                && total_shown == Some(&total.to_string())
        });
        assert!(found, "{shown}: own {own}, total {total}\n{top}");
    }
    assert!(top.contains("read64ne (inline)"), "{top}");

    let samples = pprof(&files, &file, &["-top", "-sample_index=samples"]);
    assert!(samples.contains(&format!("Total samples = {}", profile.total_count())), "{samples}");

    let traces = pprof(&files, &file, &["-traces", "-unit=ns"]);
    assert!(
        traces.contains(
            "read64ne (inline)\n             lzma_memcmplen (inline)\n             lzma_mf_bt4_find\n"
        ),
        "{traces}"
    );
    assert!(traces.contains("thread:  xz worker"), "{traces}");

    let raw = pprof(&files, &file, &["-raw"]);
    for line in [
        "PeriodType: cpu nanoseconds",
        "Period: 10101010",
        "samples/count cpu/nanoseconds[dflt]",
        "0x9100 M=3 read64ne src/tuklib_integer.h:12:0 s=0",
        "1: 0x0/0x0/0x0 /usr/bin/xz  [FN][FL][LN][IN]",
        "M=7 Handler.handle /srv/app.py:17:0",
        "7: 0x0/0x0/0x0 [python]  [FN][FL][LN][IN]",
        "Comment:   fired 1,161 = recorded 1,140 + filtered 7 + throttled 0 + lost 11 + failed 3 (no_frames 3)",
    ] {
        assert!(raw.contains(line), "{line}\n{raw}");
    }
}

#[test]
fn go_pprof_reads_the_empty_the_hostile_and_the_large() {
    if !asked() {
        return;
    }
    let files = Files::new();
    for (name, profile) in
        [("empty", common::no_samples()), ("hostile", common::hostile()), ("large", common::large(20_000))]
    {
        let file = files.write(&format!("{name}.pb.gz"), &profile, Format::Pprof);
        let raw = pprof(&files, &file, &["-raw"]);
        let samples = raw.lines().skip_while(|line| !line.starts_with("samples/count")).skip(1);
        let total: u64 = samples
            .take_while(|line| !line.starts_with("Locations"))
            .filter_map(|line| line.split_once(':')?.0.split_whitespace().next_back()?.parse::<u64>().ok())
            .sum();
        assert_eq!(total, profile.total_weight_ns(), "{name}");
        let top = pprof(&files, &file, &["-top", "-unit=ns"]);
        assert!(top.contains("Type: cpu"), "{name}: {top}");
    }
}

#[test]
fn speedscope_schema_accepts_every_profile() {
    if !asked() {
        return;
    }
    let files = Files::new();
    let mut check = script("check-speedscope.mjs");
    for (name, profile) in [
        ("empty", common::no_samples()),
        ("varied", common::varied()),
        ("hostile", common::hostile()),
        ("large", common::large(2000)),
    ] {
        check.arg(files.write(&format!("{name}.speedscope.json"), &profile, Format::Speedscope));
    }
    output(&mut check);
}

#[test]
fn firefox_profiler_understands_every_thread() {
    if !asked() {
        return;
    }
    let files = Files::new();
    for (name, profile) in [
        ("empty", common::no_samples()),
        ("varied", common::varied()),
        ("hostile", common::hostile()),
        ("large", common::large(2000)),
    ] {
        let file = files.write(&format!("{name}.firefox.json"), &profile, Format::Firefox);
        let threads: serde_json::Value =
            serde_json::from_str(&output(script("check-firefox.mjs").arg(file))).unwrap();
        let threads = threads.as_array().unwrap();
        let mut seen = 0;
        for (id, thread) in profile.threads.iter().enumerate() {
            let of_thread = profile.samples.iter().filter(|sample| sample.thread.0 as usize == id);
            let (count, ns, with_stack) = of_thread.fold((0, 0, 0), |(count, ns, with_stack), sample| {
                let with_stack = with_stack + if sample.stack.is_some() { sample.count } else { 0 };
                (count + sample.count, ns + sample.weight_ns, with_stack)
            });
            if count == 0 {
                continue;
            }
            seen += 1;
            let shown = threads.iter().find(|shown| shown["tid"] == thread.tid).unwrap();
            assert_eq!(shown["samples"], with_stack, "{name}: samples of {}", thread.tid);
            let cpu_ms = shown["cpu_ms"].as_f64().unwrap();
            assert!(
                (cpu_ms - ns as f64 / 1e6).abs() < 1e-3,
                "{name}: CPU time of {}: {cpu_ms} ms",
                thread.tid
            );
            let own: u64 =
                shown["functions"].as_array().unwrap().iter().map(|f| f["self"].as_u64().unwrap()).sum();
            assert_eq!(own, with_stack, "{name}: own samples of the functions of {}", thread.tid);
        }
        assert_eq!(threads.len(), seen.max(1), "{name}");
        if name == "varied" {
            let functions = threads.iter().flat_map(|thread| thread["functions"].as_array().unwrap());
            let total: u64 = functions
                .filter(|f| f["name"] == "liblzma.so.5.4.1!lzma_mf_bt4_find")
                .map(|f| f["total"].as_u64().unwrap())
                .sum();
            assert_eq!(total, 447 + 153 + 101);
        }
    }
}
