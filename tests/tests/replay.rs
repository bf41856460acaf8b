//! The walk in the kernel and the one in user space, over the same registers, stacks and rows, find the same frames and end the same way.

use lightfoot_tests::{Lightfoot, privileged};
use lightfoot_unwind::{Agreement, Frozen, compare};
use std::path::Path;

/// Walks of the folder: (all, the same to the end, longest).
fn replay(folder: &Path, program: &str) -> (usize, usize, usize) {
    let (mut all, mut same, mut longest) = (0, 0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let frozen =
            Frozen::decode(&std::fs::read(&path).unwrap()).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let (walked, _, agreement) = compare(&frozen);
        all += 1;
        longest = longest.max(walked.frames.len());
        match agreement {
            Agreement::Same => same += 1,
            // Another stack, or one larger than what is saved of it.
            Agreement::MemoryEnds => {}
            Agreement::Differs(at) => {
                panic!("{program} {path:?}: frame {at}\n{walked:x?}\nkernel: {:x?}", frozen.found)
            }
        }
    }
    (all, same, longest)
}

/// Tables, frame pointers, signals, threads, vfork, Go through C, stacks that are damaged on purpose.
#[test]
fn kernel_and_user_space_find_the_same_frames() {
    let Some(_turn) = privileged("kernel_and_user_space_find_the_same_frames") else { return };
    for (program, arguments, walks, frames) in [
        ("c_plain", "", 3, 4),
        ("linkage", "", 10, 4),
        ("signals", "", 10, 5),
        ("pthreads", "", 20, 4),
        ("spawner", "", 10, 4),
        ("contexts", "", 10, 3),
        ("gopher_c", "", 5, 3),
        ("lost", "--how cycle", 1, 1),
        ("lost", "--how data", 1, 1),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let report = Lightfoot::new("profile -d 2s -F 499 --save-all --save-failed")
            .arg(folder.path())
            .command(program, arguments)
            .report(0);
        let (all, same, longest) = replay(folder.path(), program);
        assert!(all >= walks, "{program}: only {all} walks of {} samples", report.count(|_| true));
        assert!(longest >= frames, "{program}: at most {longest} frames");
        // Go's other stacks are not saved: there the walks agree up to the switch.
        if program != "gopher_c" {
            assert!(same * 100 >= all * 95, "{program}: {same} of {all} walks could be repeated to the end");
        }
    }
}

/// Without the hidden option only walks that failed are saved: one for each place and reason, named after them.
#[test]
fn failed_walks_alone_are_saved_once_for_each_place() {
    let Some(_turn) = privileged("failed_walks_alone_are_saved_once_for_each_place") else { return };
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("made/here");
    let command = Lightfoot::new("profile -d 2s -F 499 --save-failed").arg(&below);
    command.command("lost", "--how cycle").report(0);
    let names: Vec<String> = std::fs::read_dir(&below)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert!((1..=100).contains(&names.len()), "{names:?}");
    assert!(names.iter().all(|name| name.ends_with(".lfw") && !name.starts_with("complete")), "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("frame_pointer_broken-")), "{names:?}");
}
