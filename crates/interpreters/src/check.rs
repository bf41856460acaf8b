//! What must hold for any bytes; called by the fuzz targets and, over their corpus, by plain tests.

use crate::{Interpreter, Language, Layouts, Memory, OFFSETS, Process, Resolved, SYMBOLS, Version, python};

/// Where the bytes are in the memory of the process that they are.
const BASE: u64 = 0x1000;
/// `PyCode_Type` there.
const CODE_TYPE: u64 = 0x1_2345_6780;

/// The bytes as all memory that there is.
struct Bytes<'a>(&'a [u8]);

impl Memory for Bytes<'_> {
    fn read(&self, _pid: u32, address: u64, into: &mut [u8]) -> bool {
        let start = address.checked_sub(BASE).and_then(|start| usize::try_from(start).ok());
        let found = start.and_then(|start| self.0.get(start..start.checked_add(into.len())?));
        found.map(|found| into.copy_from_slice(found)).is_some()
    }
}

/// Any bytes as memory of a Python process: code objects at its begin and further on, of each generation.
///
/// # Panics
/// If a name is one that a terminal would obey, or more is kept than allowed: that is a bug.
pub fn python_names(bytes: &[u8]) {
    let layouts = Layouts::built_in();
    let limits = python::Limits { kept_bytes: 64 << 10, table_bytes: 4 << 10 };
    let process = Process { pid: 1, start_ns: 1, exec_id: 0 };
    for minor in 8..=12 {
        let Some(mut interpreter) = interpreter(&layouts, minor) else { panic!("a layout that is built in") };
        let mut names = python::Names::new(limits.clone());
        for with_copies in [false, true] {
            // The table of copies behind the head of a code object.
            interpreter.offsets[python::Offset::CodeLocalCopies as usize] = if with_copies { 184 } else { 0 };
            for code in
                [0, BASE, BASE + 8, BASE + 256, BASE + 1, u64::MAX - 7, BASE + (bytes.len() as u64 & !7)]
            {
                for position in [0, 2, 4, 40, 1 << 21, u64::MAX - 1, u64::MAX / 2] {
                    names.next_round();
                    let found = names.resolve(&Bytes(bytes), process, &interpreter, 0, code, position);
                    if let Resolved::Named(name) = found {
                        assert!(!name.function.is_empty());
                        assert!(
                            !name.function.contains(char::is_control)
                                && !name.file.contains(char::is_control)
                        );
                        assert!(name.function.chars().count() <= 1024);
                    }
                }
            }
        }
        assert!(names.kept_bytes() <= limits.kept_bytes + (16 << 10), "{} bytes kept", names.kept_bytes());
    }
}

fn interpreter(layouts: &Layouts, minor: u8) -> Option<Interpreter> {
    let version = Version { major: 3, minor, patch: u8::MAX };
    let offsets: [u32; OFFSETS] = python::from_layout(layouts.find("python", version)?, version).ok()?;
    let mut symbols = [0; SYMBOLS];
    symbols[python::SYMBOL_CODE_TYPE] = CODE_TYPE;
    Some(Interpreter { language: Language::Python, version, symbols, offsets, loop_code: Vec::new() })
}

/// Any bytes as an ELF file that may be an interpreter.
///
/// # Panics
/// If what is found cannot be true of the bytes: that is a bug.
pub fn interpreter_elf(bytes: &[u8]) {
    for path in ["/usr/bin/python3.9", "/usr/lib/libruby-3.1.so.3.1", "x"] {
        let data = bytes.to_vec();
        if let crate::Detected::Interpreter(found) = crate::detect(&data, path, &Layouts::built_in()) {
            assert!(!found.loop_code.is_empty());
            assert!(
                found
                    .loop_code
                    .iter()
                    .all(|range| range.start < range.end && range.end <= bytes.len() as u64)
            );
        }
    }
}

/// Any words as the user part of a stack.
///
/// # Panics
/// If a native frame is lost or moved among native frames: that is a bug.
pub fn python_align(bytes: &[u8]) {
    let words: Vec<u64> = bytes.chunks_exact(8).map(|word| crate::memory::u64_at(word, 0)).collect();
    let natives = |words: &[u64]| {
        let (mut at, mut natives) = (0, Vec::new());
        while let Some(&word) = words.get(at) {
            let pair = matches!(word >> 56, 2 | 3);
            if !pair {
                natives.push(word);
            }
            at += if pair { 2 } else { 1 };
        }
        natives
    };
    let mut aligned = words.clone();
    python::align(&mut aligned);
    assert!(aligned.len() <= words.len());
    assert_eq!(natives(&aligned), natives(&words));
}
