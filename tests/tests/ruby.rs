//! Ruby's frames, against what the program itself says of its stacks.
//!
//! `RUBY` names the interpreter (default: `ruby`); `RUBY_ROOT` a folder to run it in by chroot, for other distributions' versions.

use lightfoot_tests::{Lightfoot, Report, Stack, extension, out_of_reach, privileged, workspace};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A frame: name without its class, whether it is Ruby's, whether it has lines (methods written in C have none).
struct Frame {
    name: String,
    ruby: bool,
    lines: bool,
}

/// `Shop#inner`, `Shop.inner`, `block in Shop#inner` -> `inner`, `block in inner`.
fn without_class(label: &str) -> String {
    let words = label.split(' ').map(|word| {
        let class = word.starts_with(|first: char| first.is_ascii_uppercase());
        word.split_once(['#', '.']).filter(|_| class).map_or(word, |(_, name)| name)
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Runs `calls.rb` under lightfoot, with `RUBYOPT`: the report, and kind -> labels, leaf first, by the program itself.
fn profile(test: &str, options: &str) -> Option<(Report, BTreeMap<String, Vec<String>>)> {
    let ruby = std::env::var("RUBY").unwrap_or("ruby".into());
    let root = std::env::var("RUBY_ROOT").ok();
    let dir = tempfile::tempdir_in(root.as_deref().map_or("/tmp".into(), |root| format!("{root}/tmp")))
        .expect("folder");
    let inside = |path: &Path| match &root {
        Some(root) => Path::new("/").join(path.strip_prefix(root).expect("below the root")),
        None => path.to_owned(),
    };
    let (script, truth) = (dir.path().join("calls.rb"), dir.path().join("truth"));
    std::fs::copy(workspace().join("tests/programs/ruby/calls.rb"), &script).expect("copy");
    let mut words = Vec::new();
    if let Some(root) = &root {
        words.extend(["chroot".to_owned(), root.clone()]);
    }
    words.push(ruby);
    let version = Command::new(&words[0]).args(&words[1..]).arg("--version").output();
    if version.is_err() {
        out_of_reach(test, "there is no Ruby");
        return None;
    }
    let command = format!("{} {} 4 {}", words.join(" "), inside(&script).display(), inside(&truth).display());
    let arguments = format!("profile -F 499 -d 60s -- {command}");
    let report = Lightfoot::new(&arguments).env("RUBYOPT", options).report(0);
    let text = std::fs::read_to_string(&truth).expect("the program's own words");
    let kinds = text.lines().map(|line| {
        let mut labels = line.split('\t').map(without_class);
        (labels.next().expect("kind"), labels.collect())
    });
    Some((report, kinds.collect()))
}

/// Frames of each stack through `burn`, leaf first from there, with its samples.
fn burning(report: &Report) -> Vec<(Vec<Frame>, u64)> {
    let table = report.json["frames"].as_array().expect("frames");
    let whole = report.stacks.iter().filter(|stack| stack.outcome == "complete");
    whole
        .filter_map(|stack| {
            let frames = stack.frames.iter().zip(&stack.frame_ids).map(|(name, &id)| Frame {
                name: without_class(name),
                ruby: table[id]["kind"] == "ruby" || table[id]["object"] == "[ruby]",
                lines: name == NAMELESS || table[id]["line"].as_u64().is_some_and(|line| line > 0),
            });
            let mut frames: Vec<Frame> = frames.collect();
            frames.reverse();
            let leaf = frames.iter().position(|frame| frame.ruby && frame.name == "burn")?;
            Some((frames.split_off(leaf), stack.count))
        })
        .collect()
}

/// Name of a frame of Ruby whose code was gone before it could be asked: `eval` makes new code each time.
const NAMELESS: &str = "[Ruby function]";

/// Each sample below `burn` has exactly the frames that the program saw, and native frames stand where C runs Ruby, nowhere else.
#[test]
fn ruby_frames_are_those_that_the_program_sees() {
    let test = "ruby_frames_are_those_that_the_program_sees";
    let Some(_turn) = privileged(test) else { return };
    let Some((report, kinds)) = profile(test, "") else { return };
    assert_frames_and_order("interpreted", &report, &kinds);
}

/// The same where YJIT compiled the code, which has neither unwind information nor, up to 3.1, frame pointers.
#[test]
fn ruby_frames_stand_where_they_are_when_yjit_compiled_the_code() {
    let test = "ruby_frames_stand_where_they_are_when_yjit_compiled_the_code";
    let Some(_turn) = privileged(test) else { return };
    let ruby = std::env::var("RUBY").unwrap_or("ruby".into());
    let words = std::env::var("RUBY_ROOT").map_or(vec![], |root| vec!["chroot".to_owned(), root]);
    let words = [&words[..], &[ruby]].concat();
    let works = Command::new(&words[0])
        .args(&words[1..])
        .args(["--yjit", "-e", "exit RubyVM::YJIT.enabled?"])
        .status();
    if !works.is_ok_and(|status| status.success()) {
        return out_of_reach(test, "no Ruby with YJIT");
    }
    let Some((report, kinds)) = profile(test, "--yjit") else { return };
    assert_frames_and_order("YJIT", &report, &kinds);
    let compiled = |stack: &Stack| stack.frames.iter().any(|frame| frame.starts_with("[jit"));
    let (all, whole) =
        (report.count(compiled), report.count(|stack| compiled(stack) && stack.outcome == "complete"));
    let notes = report.json["meta"]["notes"].as_array().expect("notes");
    assert!(notes.iter().any(|note| note.as_str().is_some_and(|note| note.contains("YJIT"))), "{notes:?}");
    eprintln!("YJIT: {whole} of {all} samples through compiled code are whole");
    assert!(all > 200, "{all} samples through compiled code: {}", report.heaviest(|_| true));
    assert!(whole * 100 >= all * 99, "{whole} of {all} are whole: {}", report.heaviest(compiled));
}

/// Each sample of `burn` has the frames of one of the kinds, in order with native ones; each kind is met.
fn assert_frames_and_order(what: &str, report: &Report, kinds: &BTreeMap<String, Vec<String>>) {
    // From 3.4 on `caller` leaves out the part of a method that rescues.
    let rescues = kinds.values().flatten().any(|label| label.starts_with("rescue in "));
    let (mut right, mut all, mut nameless, mut wrong) = (0, 0, 0, BTreeMap::<String, u64>::new());
    let mut met = BTreeMap::<&str, u64>::new();
    for (frames, count) in burning(report) {
        all += count;
        let shown = |frame: &&Frame| frame.ruby && (rescues || !frame.name.starts_with("rescue in "));
        let names: Vec<&str> = frames.iter().filter(shown).map(|frame| frame.name.as_str()).collect();
        let told = |labels: &Vec<String>| {
            labels.len() + 1 == names.len()
                && labels.iter().zip(&names[1..]).all(|(told, name)| told == name || *name == NAMELESS)
        };
        let kind = kinds.iter().find(|(_, labels)| told(labels));
        nameless += if names.contains(&NAMELESS) { count } else { 0 };
        let ruby: Vec<(usize, &Frame)> = frames.iter().enumerate().filter(|(_, frame)| frame.ruby).collect();
        let interleaved = ruby.windows(2).all(|pair| {
            let native_between = pair[1].0 - pair[0].0 - 1;
            // Ruby run by a method written in C passes through C; a method calling a method of the same kind does not.
            match (pair[0].1.lines, pair[1].1.lines) {
                (true, false) => native_between > 0,
                (true, true) => native_between == 0 || pair[1].1.name != "outer" && pair[1].1.name != "deep",
                (false, _) => native_between == 0 || pair[1].1.lines,
            }
        });
        match kind {
            Some((kind, _)) if interleaved => {
                right += count;
                *met.entry(kind).or_default() += count;
            }
            _ => *wrong.entry(names.join(" <- ")).or_default() += count,
        }
    }
    eprintln!(
        "{what}: {right} of {all} samples have exactly the frames that the program sees, {nameless} with one whose name is gone: {met:?}"
    );
    assert!(all > 300, "{all} samples");
    assert!(right * 100 >= all * 99, "{right} of {all}, others: {wrong:#?}");
    assert!(nameless * 20 <= all, "{nameless} of {all} have a frame without a name");
    let notes = report.json["meta"]["notes"].as_array().expect("notes");
    let failed = ["could not be read", "in the middle of a change", "was not found"];
    let missing = notes
        .iter()
        .filter_map(|note| note.as_str())
        .find(|note| failed.iter().any(|why| note.contains(why)));
    eprintln!("{what}: {}", missing.unwrap_or("no frames are missing"));
    // Nothing passes because a kind is never seen.
    let unseen: Vec<&String> = kinds.keys().filter(|kind| !met.contains_key(kind.as_str())).collect();
    assert!(unseen.is_empty(), "never seen: {unseen:?}");
}

/// Names of methods have their classes, files and lines are those of the source.
#[test]
fn ruby_methods_have_classes_files_and_lines() {
    let test = "ruby_methods_have_classes_files_and_lines";
    let Some(_turn) = privileged(test) else { return };
    let Some((report, _)) = profile(test, "") else { return };
    let source = std::fs::read_to_string(workspace().join("tests/programs/ruby/calls.rb")).expect("source");
    for (name, text) in [
        ("Shop#outer", "inner"),
        ("Shop#inner", "burn(:nested)"),
        ("Shop.factory", "burn(:singleton)"),
        ("Odd#<=>", "burn(:compared)"),
    ] {
        let frame = report.frame(name).unwrap_or_else(|| panic!("no {name}: {}", report.heaviest(|_| true)));
        assert!(frame["file"].as_str().is_some_and(|file| file.ends_with("calls.rb")), "{frame}");
        let line = frame["line"].as_u64().expect("line") as usize;
        assert!(source.lines().nth(line - 1).is_some_and(|line| line.contains(text)), "{frame}");
    }
    for name in ["Array#each", "Enumerable#sort_by", "Hash#each_value", "block in Shop#each_block"] {
        assert!(report.frame(name).is_some(), "no {name}");
    }
}

/// Folders of the headers of `ruby`; `None` if they are not installed.
fn headers(ruby: &str) -> Option<Vec<PathBuf>> {
    let code = "puts RbConfig::CONFIG.values_at('rubyhdrdir', 'rubyarchhdrdir')";
    let output = Command::new(ruby).args(["-rrbconfig", "-e", code]).output().ok()?;
    let folders: Vec<PathBuf> = String::from_utf8(output.stdout).ok()?.lines().map(PathBuf::from).collect();
    folders.first()?.join("ruby.h").is_file().then_some(folders)
}

/// `block in Shop#price`, `rescue in Shop#price` -> `Shop#price`: `rb_profile_frames` tells the method that a block is part of.
fn method(label: &str) -> &str {
    label.rsplit_once(" in ").map_or(label, |(_, method)| method)
}

/// Whether a frame that was shown is the one that the program told. A block whose method is not on the same stack (a fiber's) has no class.
fn is_told(shown: &str, told: &str) -> bool {
    let shown_method = method(shown);
    shown_method == told || shown_method != shown && without_class(told) == shown_method
}

/// Ruby calls a C extension, which calls Ruby: each sample has the frames of both in the order in which they were called, as
/// `rb_profile_frames` and the extension itself tell.
#[test]
fn a_c_extension_stands_between_its_caller_and_what_it_calls() {
    let test = "a_c_extension_stands_between_its_caller_and_what_it_calls";
    let Some(_turn) = privileged(test) else { return };
    let ruby = std::env::var("RUBY").unwrap_or("ruby".into());
    let headers = match headers(&ruby) {
        Some(headers) if std::env::var_os("RUBY_ROOT").is_none() => headers,
        _ => return out_of_reach(test, "no Ruby with its headers (package ruby-dev)"),
    };
    let dir = tempfile::tempdir().expect("folder");
    let (library, truth) = (dir.path().join("truth.so"), dir.path().join("chains"));
    extension("ruby/truth.c", &headers, &library);
    let script = workspace().join("tests/programs/ruby/extension.rb");
    let command = format!("{ruby} {} 4 {} {}", script.display(), library.display(), truth.display());
    let report = Lightfoot::new(&format!("profile -F 499 -d 60s -- {command}")).report(0);
    let text = std::fs::read_to_string(&truth).expect("the program's own words");
    let chains: BTreeMap<&str, Vec<&str>> = text
        .lines()
        .map(|line| {
            let (kind, chain) = line.split_once('\t').expect("kind and chain");
            let mut chain: Vec<&str> = chain.split('\t').map(method).collect();
            // The interpreter's own frame below the program's, which has its name.
            if chain.starts_with(&["<main>", "<main>"]) {
                chain.remove(0);
            }
            (kind, chain)
        })
        .collect();
    assert_eq!(chains.len(), 9, "each kind tells its chain");
    let (mut right, mut all, mut burning) = (0, 0, 0);
    let (mut met, mut wrong) = (BTreeSet::new(), BTreeMap::<String, u64>::new());
    for stack in &report.stacks {
        let frames = (0..stack.frames.len())
            .filter(|&at| report.kind(stack, at) == "ruby" || stack.frames[at].starts_with("native_"));
        let found: Vec<&str> = frames.map(|at| stack.frames[at].as_str()).collect();
        let burns = found.contains(&"Object#burn");
        // What Ruby loads before the program begins, and what it does after it, is no part of a chain.
        if !burns && !found.iter().any(|frame| frame.starts_with("native_")) {
            continue;
        }
        all += stack.count;
        // On the way to `burn` and back a stack is the root side of a chain.
        let fits = |chain: &&Vec<&str>| {
            (if burns { chain.len() == found.len() } else { chain.len() >= found.len() })
                && found.iter().zip(chain.iter()).all(|(shown, told)| is_told(shown, told))
        };
        let kind = chains.iter().find(|(_, chain)| fits(chain)).map(|(kind, _)| *kind);
        if stack.outcome == "complete" && !found.is_empty() && kind.is_some() {
            right += stack.count;
            burning += if burns { stack.count } else { 0 };
            met.extend(kind.filter(|_| burns));
        } else {
            *wrong.entry(format!("{} [{}]", found.join(" "), stack.outcome)).or_default() += stack.count;
        }
    }
    eprintln!(
        "{right} of {all} samples are right through the extension, {burning} of them to the leaf; {wrong:#?}"
    );
    assert!(all > 300, "{all} samples: {}", report.heaviest(|_| true));
    assert!(right * 100 >= all * 99, "{right} of {all}, others: {wrong:#?}");
    assert!(burning * 100 >= all * 90, "only {burning} of {all} reach the leaf");
    let unseen: Vec<&&str> = chains.keys().filter(|kind| !met.contains(*kind)).collect();
    assert!(unseen.is_empty(), "never seen: {unseen:?}");
}

/// Names are read while a process lives, however short that is.
#[test]
fn processes_that_live_for_moments_have_names() {
    let test = "processes_that_live_for_moments_have_names";
    let Some(_turn) = privileged(test) else { return };
    let ruby = std::env::var("RUBY").unwrap_or("ruby".into());
    if std::env::var_os("RUBY_ROOT").is_some() || Command::new(&ruby).arg("--version").output().is_err() {
        return out_of_reach(test, "there is no Ruby outside of a root folder");
    }
    let programs = workspace().join("tests/programs");
    let arguments = format!("20 {ruby} --disable-gems {}", programs.join("ruby/short.rb").display());
    let report = Lightfoot::new("profile -F 499")
        .command(&programs.join("many.sh").display().to_string(), &arguments)
        .report(0);
    let (named, gone) = report.interpreted_frames();
    eprintln!("of {} frames in processes of moments {gone} have no name", named + gone);
    assert!(report.through("Object#work") > 20, "{}", report.heaviest(|_| true));
    // Waiting for the next regular look at the ring left 85 to 97 % without.
    assert!(gone * 10 <= named + gone, "{gone} frames without a name, {named} with one");
}
