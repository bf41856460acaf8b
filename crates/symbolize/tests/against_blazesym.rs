//! Lines and inlined functions must be those that blazesym finds, which reads the same debug information in another way.
#![allow(clippy::print_stderr)]

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};
use lightfoot_symbolize::{Named, ObjectSource, Options, object};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// File offset and length of the largest executable segment (64-bit, little-endian).
fn code(file: &File) -> (u64, u64) {
    let number = |at: u64, bytes: usize| {
        let mut field = [0; 8];
        file.read_exact_at(&mut field[..bytes], at).unwrap();
        u64::from_le_bytes(field)
    };
    let header = number(32, 8);
    (0..number(56, 2))
        .map(|i| header + i * 56)
        .filter(|&at| number(at, 4) == 1 && number(at + 4, 4) & 1 == 1)
        .map(|at| (number(at + 8, 8), number(at + 32, 8)))
        .max_by_key(|(_, size)| *size)
        .unwrap()
}

/// One line of text per function: name of inlined ones, file and line.
fn text(name: Option<&str>, file: Option<&str>, line: u32) -> String {
    format!("{} {}:{line}", name.unwrap_or("-"), file.unwrap_or("-"))
}

fn ours(path: &Path, offsets: &[u64]) -> Vec<Vec<String>> {
    let file = File::open(path).unwrap();
    let options = Options { debug_info_limit_bytes: 1 << 30, ..Options::default() };
    let batch = object(&ObjectSource { file: &file, display_path: path }, offsets, &options);
    assert_eq!(batch.note, None);
    let frames = |named: &Named| match named {
        Named::Known { frames } => {
            frames.iter().map(|f| text(f.inlined.then_some(&f.name), f.file.as_deref(), f.line)).collect()
        }
        Named::Unknown { .. } => vec![],
    };
    batch.named.iter().map(frames).collect()
}

fn blazesym(path: &Path, offsets: &[u64]) -> Vec<Vec<String>> {
    let symbolizer = Symbolizer::new();
    let found = symbolizer.symbolize(&Source::Elf(Elf::new(path)), Input::FileOffset(offsets)).unwrap();
    let line = |name: Option<&str>, code: Option<&CodeInfo<'_>>| {
        let path = code.map(|code| code.to_path().to_string_lossy().into_owned());
        text(name, path.as_deref(), code.and_then(|code| code.line).unwrap_or(0))
    };
    let frames = |symbol: &Symbolized<'_>| match symbol {
        Symbolized::Sym(symbol) => {
            let inlined = symbol.inlined.iter().map(|f| line(Some(&f.name), f.code_info.as_ref()));
            std::iter::once(line(None, symbol.code_info.as_deref())).chain(inlined).collect()
        }
        Symbolized::Unknown(_) => vec![],
    };
    found.iter().map(frames).collect()
}

/// Share of `count` places spread over the code at which both say the same.
fn agreement(path: &Path, count: u64) -> f64 {
    let (start, size) = code(&File::open(path).unwrap());
    let offsets: Vec<u64> = (0..count).map(|i| start + i * size / count).collect();
    let (ours, theirs) = (ours(path, &offsets), blazesym(path, &offsets));
    let (mut same, mut compared, mut shown) = (0, 0, 0);
    for ((ours, theirs), offset) in ours.iter().zip(&theirs).zip(&offsets) {
        // Without lines there is nothing to compare; and symbols without size are left to the symbol table's own tests.
        if theirs.len() < 2 && theirs.iter().chain(ours).all(|frame| frame.ends_with("-:0")) {
            continue;
        }
        compared += 1;
        if ours == theirs {
            same += 1;
        } else if shown < 5 {
            shown += 1;
            eprintln!("{offset:#x}:\n  ours     {ours:?}\n  blazesym {theirs:?}");
        }
    }
    assert!(ours.iter().filter(|frames| frames.len() > 1).count() > 0, "inlined functions were compared");
    eprintln!("{same} of {compared} places of {} are the same", path.display());
    f64::from(same) / f64::from(compared)
}

#[test]
fn rust_program() {
    let share = agreement(&std::env::current_exe().unwrap(), 2000);
    assert!(share > 0.95, "{share}");
}

/// Compiles `text` with each set of `flags` and compares.
fn check(compiler: &str, name: &str, text: &str, flags: &[&[&str]]) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join(name);
    std::fs::write(&source, text).unwrap();
    for flags in flags {
        let program = folder.path().join("program");
        let built =
            Command::new(compiler).args(["-O2", "-o"]).arg(&program).args(*flags).arg(&source).output();
        if !built.is_ok_and(|built| built.status.success()) {
            eprintln!("skipped: {compiler} {flags:?} does not work here");
            continue;
        }
        let share = agreement(&program, 1000);
        assert!(share > 0.98, "{compiler} {flags:?}: {share}");
    }
}

const FORMATS: [&[&str]; 4] = [&["-gdwarf-5"], &["-gdwarf-4"], &["-gdwarf-3"], &["-gdwarf-5", "-gz=zlib"]];

#[test]
fn c_program() {
    let text = "
        static inline __attribute__((always_inline)) int inner(int x) {
            volatile int y = x * 3;
            return y;
        }
        static inline __attribute__((always_inline)) int around(int x) {
            return inner(x) + inner(x + 1);
        }
        __attribute__((noinline)) int outer(int x) {
            int sum = 0;
            for (int i = 0; i < x; i++) sum += around(i);
            return sum;
        }
        int main(int c, char **v) { return outer(c); }
    ";
    check("gcc", "program.c", text, &FORMATS);
    check("clang", "program.c", text, &FORMATS[..3]);
}

#[test]
fn cpp_program() {
    let text = "
        #include <algorithm>
        #include <cstdio>
        #include <map>
        #include <string>
        #include <vector>
        namespace shop {
            template <class T> struct Shelf {
                std::vector<T> things;
                void put(T thing) { things.push_back(thing); }
                T best() const { return *std::max_element(things.begin(), things.end()); }
            };
        }
        int main(int c, char **v) {
            shop::Shelf<std::string> shelf;
            std::map<std::string, int> counts;
            for (int i = 0; i < c * 10; i++) { shelf.put(std::to_string(i)); counts[std::to_string(i % 3)]++; }
            std::printf(\"%s %zu\\n\", shelf.best().c_str(), counts.size());
        }
    ";
    check("g++", "program.cpp", text, &FORMATS);
    check("clang++", "program.cpp", text, &FORMATS[..3]);
}

/// Two programs whose common debug information `dwz` moved into a third file: the answers must be those from before. (blazesym
/// 0.2.7 has no names for functions described there.)
#[test]
fn programs_with_shared_debug_information() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = "
        #include <string>
        #include <vector>
        #include <algorithm>
        int main(int c, char **v) {
            std::vector<std::string> words(v, v + c);
            std::sort(words.begin(), words.end());
            for (int i = 0; i < c; i++) words.push_back(std::to_string(i * NUMBER));
            return words.back().size();
        }
    ";
    std::fs::write(path("program.cpp"), text).unwrap();
    let works = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    for number in ["2", "3"] {
        let mut compiler = Command::new("g++");
        compiler.args(["-O2", "-gdwarf-4", "-D"]).arg(format!("NUMBER={number}")).arg("-o").arg(path(number));
        if !works(compiler.arg(path("program.cpp"))) {
            return eprintln!("skipped: no g++");
        }
    }
    let (start, size) = code(&File::open(path("2")).unwrap());
    let offsets: Vec<u64> = (0..1000).map(|i| start + i * size / 1000).collect();
    let before = ours(&path("2"), &offsets);
    if !works(
        Command::new("dwz")
            .arg("-m")
            .arg(path("shared"))
            .args(["-M", "shared"])
            .arg(path("2"))
            .arg(path("3")),
    ) {
        return eprintln!("skipped: no dwz");
    }
    assert_eq!(ours(&path("2"), &offsets), before);
    std::fs::remove_file(path("shared")).unwrap();
    assert_ne!(ours(&path("2"), &offsets), before, "the shared file was needed");
}
