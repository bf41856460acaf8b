//! The fuzz targets' checks over their corpus and fixed mutations of it.

#[path = "../../../fuzz/mutations.rs"]
mod mutations;

#[test]
fn python_names() {
    mutations::run("python_names", 1000, lightfoot_interpreters::check::python_names);
}

#[test]
fn python_align() {
    mutations::run("python_align", 5000, lightfoot_interpreters::check::python_align);
}

#[test]
fn interpreter_elf() {
    mutations::run("interpreter_elf", 300, lightfoot_interpreters::check::interpreter_elf);
}

/// The corpus itself: what is well-formed there has its name and line.
#[test]
fn code_of_each_generation_has_its_name() {
    use lightfoot_interpreters::{
        Detected, Interpreter, Layouts, Memory, Process, Resolved, Version, detect,
    };
    struct File(Vec<u8>);
    impl Memory for File {
        fn read(&self, _pid: u32, address: u64, into: &mut [u8]) -> bool {
            let start = address.wrapping_sub(0x1000) as usize;
            let found = self.0.get(start..start.saturating_add(into.len()));
            found.map(|found| into.copy_from_slice(found)).is_some()
        }
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let elf = std::fs::read(folder.join("interpreter_elf/python_0x030b02f0")).expect("corpus");
    let Detected::Interpreter(found) = detect(&elf, "libpython3.11.so.1.0", &Layouts::built_in()) else {
        panic!("an interpreter")
    };
    let mut found: Interpreter = *found;
    assert_eq!(found.version, Version { major: 3, minor: 11, patch: 2 });
    found.symbols[1] = 0x1_2345_6780;
    let memory = File(std::fs::read(folder.join("python_names/code_3_11")).expect("corpus"));
    let mut names = lightfoot_interpreters::python::Names::default();
    let process = Process { pid: 1, start_ns: 1, exec_id: 0 };
    let lines: Vec<u32> = [0u64, 4, 100]
        .into_iter()
        .map(|position| match names.resolve(&memory, process, &found, 0, 0x1000, position) {
            Resolved::Named(name) => {
                assert_eq!((&*name.function, &*name.file), ("Class.method", "/srv/app/main.py"));
                name.line
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lines, [41, 42, 41]);
}

/// A layout that does not fit: the frames are left out, and that is told. One frame that makes sense, and all count again.
#[test]
fn a_version_whose_frames_make_no_sense_is_distrusted() {
    use lightfoot_interpreters::{Detected, Layouts, Memory, Process, Resolved, Unknown, detect, python};
    struct Zeroes;
    impl Memory for Zeroes {
        fn read(&self, _pid: u32, _address: u64, into: &mut [u8]) -> bool {
            into.fill(0);
            true
        }
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let elf = std::fs::read(folder.join("interpreter_elf/python_0x030b02f0")).expect("corpus");
    let Detected::Interpreter(found) = detect(&elf, "python3.11", &Layouts::built_in()) else {
        panic!("an interpreter")
    };
    let mut names = python::Names::default();
    let process = Process { pid: 1, start_ns: 1, exec_id: 0 };
    let mut results = (0..20u64).map(|at| names.resolve(&Zeroes, process, &found, 0, 0x1000 + at * 8, 0));
    assert!(results.by_ref().take(15).all(|found| found == Resolved::Unknown(Unknown::NotCode)));
    assert!(results.all(|found| found == Resolved::Hidden));
    assert_eq!(names.distrusted().collect::<Vec<_>>(), [found.version]);
}
