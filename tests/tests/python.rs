//! Python's frames: named, in the interpreter's own order, and interleaved with native ones as they call each other.

use lightfoot_tests::{
    Lightfoot, Report, Stack, Workload, assert_share, extension, out_of_reach, privileged, workspace,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Functions of C that stand between two of Python in `stacks.py`.
const BETWEEN: [&str; 4] = ["builtin_sorted", "functools_reduce", "pattern_subx", "qsort"];
/// Percent of the samples whose frames must be exactly those that Python told.
const EXACT_PERCENT: u64 = 99;

/// An interpreter, and a folder that it sees, for scripts.
struct Python {
    /// In a root folder of its own by `chroot`, for other distributions' versions.
    root: Option<PathBuf>,
    program: PathBuf,
    scripts: tempfile::TempDir,
}

impl Python {
    fn new(root: Option<PathBuf>, program: PathBuf) -> Python {
        let folder = root.as_deref().map_or("/tmp".into(), |root| root.join("tmp"));
        Python { root, program, scripts: tempfile::tempdir_in(folder).expect("folder") }
    }

    /// A path of the machine as the interpreter sees it.
    fn inside(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => Path::new("/").join(path.strip_prefix(root).expect("below the root")),
            None => path.to_owned(),
        }
    }

    /// The words of its command line.
    fn words(&self) -> Vec<String> {
        let root =
            self.root.iter().flat_map(|root| ["/usr/sbin/chroot".to_owned(), root.display().to_string()]);
        root.chain([self.program.display().to_string()]).collect()
    }

    fn command(&self) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// A script of `tests/programs/python`, as the interpreter sees it.
    fn script(&self, name: &str) -> PathBuf {
        let to = self.scripts.path().join(name);
        std::fs::copy(workspace().join("tests/programs/python").join(name), &to).expect("copy");
        self.inside(&to)
    }

    /// Runs a script for so many seconds.
    fn run(&self, name: &str, seconds: f64) -> Command {
        let mut command = self.command();
        command.arg(self.script(name)).arg(seconds.to_string());
        command
    }

    /// Folders of its headers; `None` if they are not installed.
    fn headers(&self) -> Option<Vec<PathBuf>> {
        let code = "import sysconfig; print(sysconfig.get_paths()['include'])";
        let output = self.command().args(["-c", code]).output().ok()?;
        let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        let root = self.root.as_deref().unwrap_or(Path::new("/"));
        let folder = root.join(folder.strip_prefix("/").ok()?);
        // Debian's include those of the CPU by their path below the second one.
        folder.join("Python.h").is_file().then(|| vec![folder, root.join("usr/include")])
    }
}

/// Interpreters here, one of each version: the system's, what pyenv has, and what is in the root folders that `PYTHON_ROOTS` names
/// (separated by colons; `usr/bin/python3.*` in each).
fn pythons(test: &str) -> BTreeMap<String, Python> {
    let mut candidates = vec![(None, PathBuf::from("/usr/bin/python3"))];
    let versions = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    if let Some(Ok(entries)) = versions.map(|root| std::fs::read_dir(root.join("versions"))) {
        candidates.extend(entries.flatten().map(|entry| (None, entry.path().join("bin/python3"))));
    }
    for root in std::env::var("PYTHON_ROOTS").unwrap_or_default().split(':').filter(|root| !root.is_empty()) {
        let programs = (8..=15).map(|minor| format!("usr/bin/python3.{minor}"));
        let found = programs.filter(|program| Path::new(root).join(program).is_file());
        candidates.extend(found.map(|program| (Some(PathBuf::from(root)), Path::new("/").join(program))));
    }
    let mut found = BTreeMap::new();
    for (root, program) in
        candidates.into_iter().filter(|(root, program)| root.is_some() || program.is_file())
    {
        let python = Python::new(root, program);
        let code = "import sys; print('%d.%d.%d' % sys.version_info[:3], *sys.version_info[:2])";
        let Ok(output) = python.command().args(["-c", code]).output() else { continue };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut words = text.split_whitespace();
        let (Some(version), Some("3"), Some(minor)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if minor.parse::<u32>().is_ok_and(|minor| (8..=15).contains(&minor)) {
            found.insert(version.to_owned(), python);
        }
    }
    if found.is_empty() {
        out_of_reach(test, "no Python from 3.8 to 3.15 here");
    }
    found
}

/// Profiles `stacks.py`. Returns what was seen and what Python says.
fn stacks(python: &Python) -> (Report, Value) {
    let mut workload = Workload::spawn(&mut python.run("stacks.py", 8.0));
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
fn sequence(report: &Report, stack: &Stack, known: &BTreeSet<&str>) -> Vec<String> {
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
        eprintln!("Python {version}: {exact} of {seen} samples have exactly the frames that Python tells");
        assert!(exact * 100 >= seen * EXACT_PERCENT, "{version}: {exact} of {seen} are exact, not {wrong:?}");
        assert!(met.len() >= 11, "{version}: only {} of 12 scenarios were met", met.len());
    }
}

#[test]
fn shares_files_and_lines() {
    let Some(_privileged) = privileged("shares_files_and_lines") else { return };
    for (version, python) in pythons("shares_files_and_lines") {
        let (words, path) = (python.words(), python.script("nested.py"));
        let report = Lightfoot::new("profile --no-kernel -F 499")
            .command(&words[0], &format!("{} {} 3", words[1..].join(" "), path.display()))
            .report(0);
        let named = |stack: &Stack, name: &str| {
            stack.frames.iter().any(|frame| frame == name || frame.strip_prefix("Worker.") == Some(name))
        };
        let [one, three] = ["one", "three"].map(|name| report.count(|stack| named(stack, name)));
        assert!(one + three > 150, "{version}: {}", report.heaviest(|_| true));
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
        let mut workload = Workload::spawn(&mut python.run("threads.py", 7.0));
        assert_eq!(workload.next_line()["event"], "ready");
        let report =
            Lightfoot::new(&format!("profile --no-kernel -F 997 -d 4s -p {}", workload.pid())).report(0);
        let complete = |stack: &Stack| stack.outcome == "complete";
        let mut threads = BTreeSet::new();
        for name in ["first", "second", "hashing", "collecting"] {
            let of_it = |stack: &Stack| complete(stack) && stack.through(name);
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
        let collects = |stack: &Stack| stack.through("(garbage collection)");
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

/// Python calls a C extension, which calls Python: each sample has the frames of both in the order in which they were called, as
/// `sys._current_frames` and the extension itself tell.
#[test]
fn a_c_extension_stands_between_its_caller_and_what_it_calls() {
    let test = "a_c_extension_stands_between_its_caller_and_what_it_calls";
    let Some(_privileged) = privileged(test) else { return };
    let mut tested = 0;
    for (version, python) in pythons(test) {
        let Some(headers) = python.headers() else { continue };
        tested += 1;
        let folder = python.scripts.path();
        extension("python/truth.c", &headers, &folder.join("truth.so"));
        let mut workload = Workload::spawn(python.run("extension.py", 7.0).arg(python.inside(folder)));
        assert_eq!(workload.next_line()["event"], "ready");
        let arguments = format!("profile --no-kernel -F 997 -d 4s -p {}", workload.pid());
        let report = Lightfoot::new(&arguments).report(0);
        let truth = workload.next_line();
        let chains: BTreeMap<&str, Vec<&str>> = truth["chains"]
            .as_object()
            .expect("chains")
            .iter()
            .map(|(name, chain)| {
                let frames = chain.as_array().expect("chain").iter().filter_map(Value::as_str);
                (name.as_str(), frames.collect())
            })
            .collect();
        assert_eq!(chains.len(), 7, "{version}: each scenario tells its chain");
        let (mut right, mut all, mut in_spin) = (0, 0, 0);
        let (mut met, mut wrong) = (BTreeSet::new(), BTreeMap::<Vec<&str>, u64>::new());
        for stack in &report.stacks {
            let of_interest =
                |at: usize| report.kind(stack, at) == "python" || stack.frames[at].starts_with("truth_");
            let frames = (0..stack.frames.len()).filter(|&at| of_interest(at));
            let mut found: Vec<&str> = frames.map(|at| stack.frames[at].as_str()).collect();
            all += stack.count;
            // Only `step` is called by `spin`.
            let spins = found.contains(&"spin");
            if spins && found.last() == Some(&"step") {
                found.pop();
            }
            // On the way to `spin` and back a stack is the root side of a chain.
            let fits = |chain: &&Vec<&str>| if spins { **chain == found } else { chain.starts_with(&found) };
            if stack.outcome == "complete" && !found.is_empty() && chains.values().any(|chain| fits(&chain)) {
                right += stack.count;
                in_spin += if spins { stack.count } else { 0 };
                met.extend(chains.iter().filter(|(_, chain)| **chain == found).map(|(name, _)| *name));
            } else {
                *wrong.entry(found).or_default() += stack.count;
            }
        }
        eprintln!(
            "Python {version}: {right} of {all} samples are right through the extension, {in_spin} to the leaf"
        );
        assert!(all > 300, "{version}: only {all} samples: {}", report.heaviest(|_| true));
        assert!(right * 100 >= all * EXACT_PERCENT, "{version}: {right} of {all} are right, not {wrong:?}");
        assert!(in_spin * 100 >= all * 90, "{version}: only {in_spin} of {all} reach the leaf");
        assert_eq!(met.len(), chains.len(), "{version}: only {met:?} were met");
    }
    if tested == 0 {
        out_of_reach(test, "no Python here has its headers");
    }
}

/// Names are read while a process lives, however short that is.
#[test]
fn processes_that_live_for_moments_have_names() {
    let test = "processes_that_live_for_moments_have_names";
    let Some(_privileged) = privileged(test) else { return };
    let programs = workspace().join("tests/programs");
    for (version, python) in pythons(test) {
        let arguments =
            format!("20 {} -S -E {}", python.words().join(" "), python.script("short.py").display());
        let report = Lightfoot::new("profile -F 499")
            .command(&programs.join("many.sh").display().to_string(), &arguments)
            .report(0);
        let (named, gone) = report.interpreted_frames();
        eprintln!("Python {version}: of {} frames in processes of moments {gone} have no name", named + gone);
        assert!(report.through("work") > 20, "{version}: {}", report.heaviest(|_| true));
        // Waiting for the next regular look at the ring left 65 to 97 % without.
        assert!(gone * 10 <= named + gone, "{version}: {gone} frames without a name, {named} with one");
    }
}
