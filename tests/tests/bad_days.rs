//! What happens to profilers in the wild: files that change under a process, roots of their own, ids that are used again, storms of short
//! processes, too many mappings, very large files, forged unwind information, stacks that lead nowhere.

use lightfoot_tests::corpus::{CORPUS, Chain, Program, judge};
use lightfoot_tests::{
    Lightfoot, Report, Workload, assert_share, privileged, program, programs_dir, workspace,
};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// The default memory of the process, as promised.
const PEAK_BYTES: u64 = 64 << 20;

fn member(name: &str) -> Program {
    *CORPUS.iter().find(|one| one.name == name).expect("a program of the corpus")
}

/// A profile's stacks of the processes called `comm` alone.
fn only(report: &Report, comm: &str) -> Report {
    let mut report = report.clone();
    report.stacks.retain(|stack| stack.comm == comm);
    report
}

/// Judged as in the corpus.
#[track_caller]
fn whole(report: &Report, of: &Program, complete: f64) {
    let complaints = judge(report, of).complaints(complete);
    assert!(complaints.is_empty(), "{}\n{}", of.name, complaints.join("\n"));
}

/// Another program took the place of the file while it runs, and it has been removed.
#[test]
fn a_binary_replaced_while_it_runs() {
    let Some(_turn) = privileged("a_binary_replaced_while_it_runs") else { return };
    for removed in [false, true] {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join("c_plain");
        std::fs::copy(program("c_plain"), &path).expect("copy");
        let target = Workload::spawn(Command::new(&path).args(["--cpu-ms", "20000"]));
        std::thread::sleep(std::time::Duration::from_millis(300));
        if removed {
            std::fs::remove_file(&path).expect("remove");
        } else {
            let other = dir.path().join("other");
            std::fs::copy(program("c_frame_pointers"), &other).expect("copy");
            std::fs::rename(&other, &path).expect("rename");
        }
        let report =
            Lightfoot::new(&format!("profile -F 499 --no-kernel -d 2s -p {}", target.pid())).report(0);
        // Its tables are prepared while it is being sampled: a few tens of ms of two seconds.
        whole(&report, &member("c_plain"), 0.95);
    }
}

/// A file system root of its own, on a file system of its own, with its own copies of libc and ld.so; all of it gone when names are looked up.
#[test]
fn a_container() {
    let Some(_turn) = privileged("a_container") else { return };
    let dir = tempfile::tempdir().expect("folder");
    let script = r#"
        set -e
        mount -t tmpfs tmpfs "$1"
        for file in $(ldd "$2" | grep -o '/[^ ]*'); do
            mkdir -p "$1$(dirname "$file")"
            cp -L "$file" "$1$file"
        done
        cp "$2" "$1/c_plain"
        exec chroot "$1" /c_plain --cpu-ms 2500
    "#;
    let report = Lightfoot::new("profile -F 499 --no-kernel -- unshare --mount sh -c")
        .arg(script)
        .arg("sh")
        .arg(dir.path())
        .arg(program("c_plain"))
        .report(0);
    whole(&only(&report, "c_plain"), &member("c_plain"), 0.98);
}

/// vfork and exec as fast as they go, processes of 3 ms: each is whole, from the child on its parent's stack to the program that it
/// becomes.
#[test]
fn a_storm_of_short_processes() {
    let Some(_turn) = privileged("a_storm_of_short_processes") else { return };
    let (report, run) = Lightfoot::new("profile -F 499 --no-kernel")
        .command("spawner", "--seconds 4 --names brief,brief_twin,brief_static")
        .report_and_run(0);
    let children = run.truth()["children"].as_u64().expect("children");
    assert!(children > 200, "{children} children");
    const CHAINS: &[Chain] = &[
        Chain { frames: "_start;...;main;brief_outer;brief_leaf", share: None },
        Chain { frames: "_start;...;main;twin_outer;twin_leaf", share: None },
        Chain { frames: "_start;...;main;spawn_one;vforked;vforked_leaf", share: None },
    ];
    let storm = Program { chains: CHAINS, ..member("c_plain") };
    whole(&report, &storm, 0.95);
}

/// Two programs take turns under one process id.
#[test]
fn one_process_id_for_many() {
    let Some(_turn) = privileged("one_process_id_for_many") else { return };
    let (report, run) =
        Lightfoot::new("profile -F 999 --no-kernel").command("samepid", "--seconds 3").report_and_run(0);
    let truth = run.truth();
    let (same, id) = (truth["same"].as_u64().expect("same"), truth["id"].as_u64().expect("id") as u32);
    assert!(same > 100, "{truth}");
    let (brief, twin) = (report.through("brief_leaf"), report.through("twin_leaf"));
    assert!(brief + twin > 300, "{}", report.heaviest(|_| true));
    assert_share("brief", brief as f64 / (brief + twin) as f64, 0.5, brief + twin);
    for stack in
        report.stacks.iter().filter(|stack| stack.through("brief_leaf") || stack.through("twin_leaf"))
    {
        assert_eq!(stack.pid, id);
        let mixed = stack.frames.iter().any(|f| f.starts_with("brief_"))
            && stack.frames.iter().any(|f| f.starts_with("twin_"));
        assert!(!mixed, "one program's frames in the other's stack: {:?}", stack.frames);
    }
    const CHAINS: &[Chain] = &[
        Chain { frames: "_start;...;main;brief_outer;brief_leaf", share: None },
        Chain { frames: "_start;...;main;twin_outer;twin_leaf", share: None },
    ];
    whole(&report, &Program { chains: CHAINS, ..member("c_plain") }, 0.95);
}

/// The kernel's limit of mappings per process, raised for a test and put back.
struct MapCount(String);

const MAX_MAP_COUNT: &str = "/proc/sys/vm/max_map_count";

impl MapCount {
    fn raised(to: u32) -> MapCount {
        let before = std::fs::read_to_string(MAX_MAP_COUNT).expect(MAX_MAP_COUNT);
        if before.trim().parse::<u32>().is_ok_and(|now| now < to) {
            std::fs::write(MAX_MAP_COUNT, to.to_string()).ok();
        }
        MapCount(before)
    }
}

impl Drop for MapCount {
    fn drop(&mut self) {
        std::fs::write(MAX_MAP_COUNT, &self.0).ok();
    }
}

/// A hundred thousand mappings in one process, half of them executable, some of them changing.
#[test]
fn very_many_mappings() {
    let Some(_turn) = privileged("very_many_mappings") else { return };
    let _raised = MapCount::raised(110_000);
    let mut target = Workload::start("manymaps", "--maps 100000 --seconds 60");
    let ready = target.next_line();
    let mappings = ready["mappings"].as_u64().expect("mappings");
    assert!(mappings > 60_000, "{ready}");
    let (report, run) =
        Lightfoot::new(&format!("profile -F 499 --no-kernel -d 3s -p {}", target.pid())).report_and_run(0);
    const CHAINS: &[Chain] = &[
        Chain { frames: "_start;...;main;outer;middle;leaf_a", share: Some(0.5) },
        Chain { frames: "_start;...;main;outer;middle;leaf_b", share: Some(0.3) },
        Chain { frames: "_start;...;main;outer;leaf_c", share: Some(0.2) },
    ];
    whole(&report, &Program { chains: CHAINS, ..member("c_plain") }, 0.98);
    let peak = report.cost("peak_rss_bytes");
    assert!(peak <= PEAK_BYTES, "{} MiB of memory", peak >> 20);
    let user_s = report.cost("user_ns") as f64 / 1e9;
    assert!(user_s < 2.0, "{user_s:.2} s of CPU for {mappings} mappings");
    assert!(run.wall.as_secs() < 15, "{:?}", run.wall);
}

/// A program of 100 MB with 400,000 functions: its tables take a while; what is not whole says that they are not there yet.
#[test]
fn a_very_large_binary() {
    let Some(_turn) = privileged("a_very_large_binary") else { return };
    let made = Command::new("make")
        .args(["--silent", "big", "--directory"])
        .arg(workspace().join("tests/programs"))
        .arg(format!("OUT={}", programs_dir().display()))
        .output()
        .expect("make");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(std::fs::metadata(program("big")).expect("big").len() > 100 << 20);
    let report = Lightfoot::new("profile -F 499 --no-kernel").command("big", "--cpu-ms 6000").report(0);
    const CHAINS: &[Chain] = &[Chain { frames: "_start;...;main;big_enter;...;big_leaf", share: None }];
    let verdict = judge(&report, &Program { chains: CHAINS, ..member("c_plain") });
    assert!(verdict.complete() > 0.8, "{verdict:#?}");
    let waiting = verdict.outcomes.get("no_rows_yet").copied().unwrap_or(0);
    assert!(verdict.as_expected + waiting >= verdict.samples * 99 / 100, "{verdict:#?}");
    assert_eq!(verdict.wrong_roots, 0, "{verdict:#?}");
    // main, big_enter, the hundred that are called, big_leaf, and what is below main.
    let deep = report.count(|stack| stack.outcome == "complete" && stack.frames.len() >= 103);
    assert!(deep * 100 > verdict.as_expected * 99, "{deep} of {}", verdict.as_expected);
    let peak = report.cost("peak_rss_bytes");
    assert!(peak <= PEAK_BYTES, "{} MiB of memory", peak >> 20);
}

/// (offset, size) of a section in a file. Source: `readelf -SW`.
fn section(path: &Path, name: &str) -> (u64, u64) {
    let output = Command::new("readelf").arg("-SW").arg(path).output().expect("readelf");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.split_whitespace().any(|word| word == name)).expect("section");
    let words: Vec<&str> = line[line.find(name).expect("name")..].split_whitespace().collect();
    let hex = |word: &str| u64::from_str_radix(word, 16).expect("hexadecimal");
    (hex(words[3]), hex(words[4]))
}

/// Unwind information that lies, in programs that run well without it: no crash, no endless work, no memory after a forged size, and the
/// account of outcomes still adds up. What the stacks look like is not promised, but that the innermost function is right.
#[test]
fn forged_unwind_information() {
    let Some(_turn) = privileged("forged_unwind_information") else { return };
    let mut state = 88172645463325252u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for forgery in ["noise", "zeros", "ones", "lengths", "bits", "header noise", "header count"] {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join("forged");
        std::fs::copy(program("c_plain"), &path).expect("copy");
        let (frame, frame_bytes) = section(&path, ".eh_frame");
        let (header, header_bytes) = section(&path, ".eh_frame_hdr");
        let file = std::fs::File::options().read(true).write(true).open(&path).expect("open");
        let mut bytes = vec![0; frame_bytes as usize];
        file.read_exact_at(&mut bytes, frame).expect("read");
        let mut at = frame;
        match forgery {
            "noise" => bytes.iter_mut().for_each(|byte| *byte = random() as u8),
            "zeros" => bytes.fill(0),
            "ones" => bytes.fill(0xff),
            // Each aligned word that may be a length becomes a large one.
            "lengths" => {
                for word in bytes.chunks_exact_mut(4).step_by(6) {
                    word.copy_from_slice(&0x7fff_fff0u32.to_le_bytes());
                }
            }
            "bits" => {
                for _ in 0..bytes.len() / 8 {
                    let which = random() as usize % bytes.len();
                    bytes[which] ^= 1 << (random() % 8);
                }
            }
            "header noise" => {
                at = header;
                bytes = (0..header_bytes).map(|_| random() as u8).collect();
            }
            _ => {
                // The table's count, behind version, three encodings and the pointer to .eh_frame.
                at = header + 8;
                bytes = u32::MAX.to_le_bytes().to_vec();
            }
        }
        file.write_all_at(&bytes, at).expect("write");
        drop(file);
        let (report, run) = Lightfoot::new("profile -F 499 --no-kernel --")
            .arg(&path)
            .args(&["--cpu-ms", "700"])
            .report_and_run(0);
        let leaf = report.count(|stack| stack.frames.iter().any(|frame| frame.starts_with("leaf_")));
        assert!(leaf > 150, "{forgery}: {}", report.heaviest(|_| true));
        assert!(run.wall.as_secs() < 10, "{forgery}: {:?}", run.wall);
        let peak = report.cost("peak_rss_bytes");
        assert!(peak <= PEAK_BYTES, "{forgery}: {} MiB of memory", peak >> 20);
    }
}

/// Frame pointers that lead astray, from code without any unwind information. Only the last is the end of a stack.
#[test]
fn frame_pointers_that_lead_astray() {
    let Some(_turn) = privileged("frame_pointers_that_lead_astray") else { return };
    for (how, outcomes) in [
        ("cycle", &["not_growing", "frame_pointer_broken"][..]),
        ("pair", &["not_growing", "frame_pointer_broken"]),
        ("void", &["unreadable", "frame_pointer_broken", "not_growing"]),
        ("kernel", &["unreadable", "frame_pointer_broken", "not_mapped"]),
        ("odd", &["frame_pointer_broken", "not_mapped", "unreadable"]),
        ("data", &["not_mapped", "frame_pointer_broken"]),
        ("zero", &["complete"]),
    ] {
        let report = Lightfoot::new("profile -F 499 --no-kernel")
            .command("lost", &format!("--cpu-ms 700 --how {how}"))
            .report(0);
        let astray = |stack: &lightfoot_tests::Stack| {
            stack.frames.last().is_some_and(|leaf| leaf.starts_with("[jit+0x"))
        };
        let n = report.count(astray);
        let right = report.count(|stack| {
            astray(stack) && outcomes.contains(&stack.outcome.as_str()) && stack.frames.len() <= 4
        });
        assert!(n > 150, "{how}: {}", report.heaviest(|_| true));
        // A sample on the first or last instructions sees the caller's frame pointer.
        assert!(right * 100 >= n * 98, "{how}: {right} of {n}: {}", report.heaviest(|_| true));
        let invented =
            report.count(|stack| astray(stack) && stack.outcome != "complete" && stack.through("main"));
        assert!(invented * 100 <= n * 2, "{how}: {}", report.heaviest(|_| true));
    }
}
