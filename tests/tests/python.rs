//! Python's frames: named, in the interpreter's own order, and interleaved with native ones as they call each other.

use lightfoot_tests::{Lightfoot, Report, Workload, assert_share, out_of_reach, privileged, workspace};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

/// Functions of C that stand between two of Python in `stacks.py`.
const BETWEEN: [&str; 4] = ["builtin_sorted", "functools_reduce", "pattern_subx", "qsort"];
/// Percent of the samples whose frames must be exactly those that Python told.
const EXACT_PERCENT: u64 = 99;

/// Interpreters here, one of each version: the system's, and what pyenv has.
fn pythons(test: &str) -> BTreeMap<String, PathBuf> {
    let mut candidates = vec![PathBuf::from("/usr/bin/python3")];
    let versions = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    if let Some(Ok(entries)) = versions.map(|root| std::fs::read_dir(root.join("versions"))) {
        candidates.extend(entries.flatten().map(|entry| entry.path().join("bin/python3")));
    }
    let mut found = BTreeMap::new();
    for path in candidates {
        let code = "import sys; print('%d.%d.%d' % sys.version_info[:3], *sys.version_info[:2])";
        let Ok(output) = Command::new(&path).args(["-c", code]).output() else { continue };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut words = text.split_whitespace();
        let (Some(version), Some("3"), Some(minor)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if minor.parse::<u32>().is_ok_and(|minor| (8..=14).contains(&minor)) {
            found.insert(version.to_owned(), path);
        }
    }
    if found.is_empty() {
        out_of_reach(test, "no Python from 3.8 to 3.14 here");
    }
    found
}

fn script(python: &PathBuf, name: &str, seconds: f64) -> Command {
    let mut command = Command::new(python);
    command.arg(workspace().join("tests/programs/python").join(name)).arg(seconds.to_string());
    command
}

/// Profiles `stacks.py`. Returns what was seen and what Python says.
fn stacks(python: &PathBuf) -> (Report, Value) {
    let mut workload = Workload::spawn(&mut script(python, "stacks.py", 8.0));
    assert_eq!(workload.next_line()["event"], "ready");
    let arguments = format!("profile --no-kernel -F 997 -d 5s -p {}", workload.pid());
    let report = Lightfoot::new(&arguments).report(0);
    let truth = workload.next_line();
    (report, truth)
}

/// `qsort` is a jump to `qsort_r` in some versions of glibc.
fn marker(frame: &str) -> Option<&'static str> {
    let frame = frame.trim_start_matches('_');
    BETWEEN.into_iter().find(|name| {
        frame.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || rest == "_r")
    })
}

/// Python's frames of a stack from the root on, with the functions of C between them that are in `known`.
fn sequence(report: &Report, stack: &lightfoot_tests::Stack, known: &BTreeSet<&str>) -> Vec<String> {
    let mut sequence: Vec<String> = Vec::new();
    for (at, frame) in stack.frames.iter().enumerate() {
        if report.kind(stack, at) == "python" {
            sequence.push(frame.clone());
        } else if let Some(name) = marker(frame)
            && known.contains(name)
            && sequence.last().is_none_or(|last| last != name)
        {
            sequence.push(name.to_owned());
        }
    }
    sequence
}

#[test]
fn stacks_are_those_that_python_tells() {
    let Some(_privileged) = privileged("stacks_are_those_that_python_tells") else { return };
    for (version, python) in pythons("stacks_are_those_that_python_tells") {
        let (report, truth) = stacks(&python);
        // A stripped interpreter has no names for its own functions of C; the C library's are there.
        let known: BTreeSet<&str> = BETWEEN
            .into_iter()
            .filter(|name| report.stacks.iter().any(|s| s.frames.iter().any(|f| marker(f) == Some(*name))))
            .collect();
        assert!(known.contains("qsort"), "{version}: {}", report.heaviest(|_| true));
        let chains = truth["chains"].as_object().expect("chains");
        assert_eq!(chains.len(), 12, "{version}: each scenario tells its chain");
        let chains: BTreeSet<Vec<String>> = chains
            .values()
            .map(|chain| {
                let names = chain.as_array().expect("chain").iter().filter_map(Value::as_str);
                names
                    .filter(|name| !BETWEEN.contains(name) || known.contains(name))
                    .map(str::to_owned)
                    .collect()
            })
            .collect();
        let (mut exact, mut seen, mut met) = (0, 0, BTreeSet::new());
        let mut wrong: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for stack in report.stacks.iter().filter(|stack| stack.outcome == "complete") {
            let mut found = sequence(&report, stack, &known);
            // Only `step` is called by `spin`.
            if found.last().is_some_and(|last| last == "step") {
                found.pop();
            }
            if found.last().is_none_or(|last| last != "spin") {
                continue;
            }
            seen += stack.count;
            if chains.contains(&found) {
                exact += stack.count;
                met.insert(found);
            } else {
                *wrong.entry(found).or_default() += stack.count;
            }
        }
        assert!(seen > 300, "{version}: only {seen} samples: {}", report.heaviest(|_| true));
        assert!(exact * 100 >= seen * EXACT_PERCENT, "{version}: {exact} of {seen} are exact, not {wrong:?}");
        assert!(met.len() >= 11, "{version}: only {} of 12 scenarios were met", met.len());
    }
}

#[test]
fn shares_files_and_lines() {
    let Some(_privileged) = privileged("shares_files_and_lines") else { return };
    for (version, python) in pythons("shares_files_and_lines") {
        let python = python.display().to_string();
        let path = workspace().join("tests/programs/python/nested.py");
        let report = Lightfoot::new("profile --no-kernel -F 499")
            .command(&python, &format!("{} 3", path.display()))
            .report(0);
        let named = |stack: &lightfoot_tests::Stack, name: &str| {
            stack.frames.iter().any(|frame| frame == name || frame.strip_prefix("Worker.") == Some(name))
        };
        let [one, three] = ["one", "three"].map(|name| report.count(|stack| named(stack, name)));
        assert!(one + three > 300, "{version}: {}", report.heaviest(|_| true));
        assert_share(&version, three as f64 / (one + three) as f64, 0.75, one + three);
        let busy = report.frame("busy").unwrap_or_else(|| panic!("{version}: no busy"));
        assert_eq!(busy["file"].as_str(), path.to_str(), "{version}");
        let lines: BTreeSet<u64> = report.json["frames"]
            .as_array()
            .expect("frames")
            .iter()
            .filter(|frame| frame["name"] == "busy")
            .filter_map(|frame| frame["line"].as_u64())
            .collect();
        // The loop's two lines, and perhaps the ones around it.
        assert!(
            lines.iter().all(|line| (6..=10).contains(line)) && lines.contains(&9),
            "{version}: {lines:?}"
        );
    }
}

#[test]
fn threads_have_their_own_frames_and_the_collector_is_shown() {
    let Some(_privileged) = privileged("threads_have_their_own_frames_and_the_collector_is_shown") else {
        return;
    };
    for (version, python) in pythons("threads_have_their_own_frames_and_the_collector_is_shown") {
        let mut workload = Workload::spawn(&mut script(&python, "threads.py", 7.0));
        assert_eq!(workload.next_line()["event"], "ready");
        let report =
            Lightfoot::new(&format!("profile --no-kernel -F 997 -d 4s -p {}", workload.pid())).report(0);
        let complete = |stack: &lightfoot_tests::Stack| stack.outcome == "complete";
        let mut threads = BTreeSet::new();
        for name in ["first", "second", "hashing", "collecting"] {
            let of_it = |stack: &lightfoot_tests::Stack| complete(stack) && stack.through(name);
            let tids: BTreeSet<u32> =
                report.stacks.iter().filter(|stack| of_it(stack)).map(|stack| stack.tid).collect();
            assert_eq!(
                tids.len(),
                1,
                "{version}: {name} is one thread's: {tids:?} {}",
                report.heaviest(of_it)
            );
            threads.extend(tids);
        }
        assert_eq!(threads.len(), 4, "{version}: four threads work");
        let with_frames = report.count(|stack| {
            complete(stack) && (0..stack.frames.len()).any(|at| report.kind(stack, at) == "python")
        });
        let all = report.count(complete);
        assert!(
            with_frames * 100 >= all * EXACT_PERCENT,
            "{version}: {with_frames} of {all} have Python's frames"
        );
        let collects = |stack: &lightfoot_tests::Stack| stack.through("(garbage collection)");
        let (collector, elsewhere) = (
            report.count(|stack| collects(stack) && stack.through("collecting")),
            report.count(|stack| collects(stack) && !stack.through("collecting")),
        );
        let collecting = report.count(|stack| complete(stack) && stack.through("collecting"));
        assert!(collector * 100 >= collecting * 80, "{version}: {collector} of {collecting} collect");
        // Other threads allocate little, but collections may come from there, too.
        assert!(elsewhere * 50 <= collector, "{version}: {elsewhere} of other threads, {collector}");
    }
}
