//! `cargo xtask interpreter-offsets python`: where fields of CPython's structures lie, for versions that do not say it themselves
//! (3.8 to 3.12): from debug information, or from the headers that a distribution ships (`python3.x-dev`), by a C compiler.
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::ruby_offsets::Program;

/// What is told of a field.
#[derive(Clone, Copy, PartialEq)]
enum What {
    Offset,
    Size,
    /// Number of the first bit of a bit field, from the field that the path without its last part names.
    Bit,
    Constant,
}

/// Key in the layout, names of the structure (tag in debug information, type in C), path, what, first and last minor version.
type Wanted = (&'static str, &'static str, &'static str, &'static str, What, std::ops::RangeInclusive<u8>);

fn wanted() -> Vec<Wanted> {
    use What::{Bit, Constant, Offset, Size};
    let (runtime, runtime_type) = ("pyruntimestate", "_PyRuntimeState");
    let (interpreter, interpreter_type) = ("_is", "PyInterpreterState");
    let (thread, thread_type) = ("_ts", "PyThreadState");
    let (frame, frame_type) = ("_frame", "PyFrameObject");
    let (inner, code, text) = ("_PyInterpreterFrame", "PyCodeObject", "PyASCIIObject");
    vec![
        ("_PyRuntimeState.interpreters.head", runtime, runtime_type, "interpreters.head", Offset, 8..=12),
        (
            "_PyRuntimeState.gilstate.tstate_current",
            runtime,
            runtime_type,
            "gilstate.tstate_current",
            Offset,
            8..=11,
        ),
        ("_PyRuntimeState.gc.collecting", runtime, runtime_type, "gc.collecting", Offset, 8..=8),
        ("PyInterpreterState.next", interpreter, interpreter_type, "next", Offset, 8..=12),
        ("PyInterpreterState.tstate_head", interpreter, interpreter_type, "tstate_head", Offset, 8..=10),
        ("PyInterpreterState.threads.head", interpreter, interpreter_type, "threads.head", Offset, 11..=12),
        ("PyInterpreterState.gc.collecting", interpreter, interpreter_type, "gc.collecting", Offset, 9..=12),
        ("PyThreadState.prev", thread, thread_type, "prev", Offset, 8..=12),
        ("PyThreadState.next", thread, thread_type, "next", Offset, 8..=12),
        ("PyThreadState.interp", thread, thread_type, "interp", Offset, 8..=12),
        ("PyThreadState.thread_id", thread, thread_type, "thread_id", Offset, 8..=12),
        ("PyThreadState.native_thread_id", thread, thread_type, "native_thread_id", Offset, 11..=12),
        ("PyThreadState.frame", thread, thread_type, "frame", Offset, 8..=10),
        ("PyThreadState.cframe", thread, thread_type, "cframe", Offset, 11..=12),
        ("PyThreadState._status", thread, thread_type, "_status", Offset, 12..=12),
        ("PyThreadState._status.active bit", thread, thread_type, "_status.active", Bit, 12..=12),
        ("_PyCFrame.current_frame", "_PyCFrame", "_PyCFrame", "current_frame", Offset, 11..=12),
        ("_PyCFrame.previous", "_PyCFrame", "_PyCFrame", "previous", Offset, 11..=12),
        ("PyFrameObject.f_code", frame, frame_type, "f_code", Offset, 8..=10),
        ("PyFrameObject.f_back", frame, frame_type, "f_back", Offset, 8..=10),
        ("PyFrameObject.f_lasti", frame, frame_type, "f_lasti", Offset, 8..=10),
        ("_PyInterpreterFrame.f_code", inner, inner, "f_code", Offset, 11..=12),
        ("_PyInterpreterFrame.previous", inner, inner, "previous", Offset, 11..=12),
        ("_PyInterpreterFrame.prev_instr", inner, inner, "prev_instr", Offset, 11..=12),
        ("_PyInterpreterFrame.is_entry", inner, inner, "is_entry", Offset, 11..=11),
        ("_PyInterpreterFrame.owner", inner, inner, "owner", Offset, 12..=12),
        ("FRAME_OWNED_BY_CSTACK", "", "", "FRAME_OWNED_BY_CSTACK", Constant, 12..=12),
        ("PyObject.ob_type", "_object", "PyObject", "ob_type", Offset, 8..=12),
        ("PyCodeObject.co_filename", code, code, "co_filename", Offset, 8..=12),
        ("PyCodeObject.co_name", code, code, "co_name", Offset, 8..=12),
        ("PyCodeObject.co_qualname", code, code, "co_qualname", Offset, 11..=12),
        ("PyCodeObject.co_firstlineno", code, code, "co_firstlineno", Offset, 8..=12),
        ("PyCodeObject.co_lnotab", code, code, "co_lnotab", Offset, 8..=9),
        ("PyCodeObject.co_linetable", code, code, "co_linetable", Offset, 10..=12),
        ("PyCodeObject.co_code_adaptive", code, code, "co_code_adaptive", Offset, 11..=12),
        ("PyASCIIObject.length", text, text, "length", Offset, 8..=12),
        ("PyASCIIObject.state", text, text, "state", Offset, 8..=12),
        ("PyASCIIObject.state.kind bit", text, text, "state.kind", Bit, 8..=12),
        ("sizeof PyASCIIObject", text, text, "", Size, 8..=12),
        (
            "sizeof PyCompactUnicodeObject",
            "PyCompactUnicodeObject",
            "PyCompactUnicodeObject",
            "",
            Size,
            8..=12,
        ),
        ("PyBytesObject.ob_size", "PyBytesObject", "PyBytesObject", "ob_base.ob_size", Offset, 8..=12),
        ("PyBytesObject.ob_sval", "PyBytesObject", "PyBytesObject", "ob_sval", Offset, 8..=12),
    ]
}

/// Where to look.
pub enum Source {
    /// Files with debug information: a libpython or python built with -g, or its separate debug file.
    Files(Vec<PathBuf>),
    /// The folder that has `Python.h`.
    Headers(PathBuf),
}

/// A layout as lightfoot reads it.
///
/// # Errors
/// The version is one that describes itself or is too old; files cannot be read, or something is missing in them.
pub fn layout(source: &Source, version: &str) -> anyhow::Result<serde_json::Value> {
    let mut parts = version.split('.').map(str::parse::<u8>);
    let (Some(Ok(3)), Some(Ok(minor)), Some(Ok(_)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        bail!("'{version}' is no version such as 3.11.2")
    };
    ensure!(minor < 13, "Python {version} describes itself: it needs no layout");
    ensure!(minor >= 8, "Python {version} is too old: 3.8 is the oldest that is known");
    let wanted: Vec<Wanted> = wanted().into_iter().filter(|wanted| wanted.5.contains(&minor)).collect();
    let (offsets, how) = match source {
        Source::Files(files) => (from_debug_information(files, &wanted)?, "debug information"),
        Source::Headers(folder) => (from_headers(folder, &wanted, version)?, "headers"),
    };
    for (key, ..) in &wanted {
        ensure!(offsets.contains_key(*key), "{key} is not there: is this CPython {version}?");
    }
    Ok(serde_json::json!({ "language": "python", "version": version, "source": how, "offsets": offsets }))
}

fn from_debug_information(files: &[PathBuf], wanted: &[Wanted]) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut offsets = BTreeMap::new();
    for file in files {
        let program = Program::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        for (key, tag, _, path, what, _) in wanted {
            let value = match what {
                What::Offset => program.field(tag, path)?.map(|place| place.offset),
                What::Bit => program.field(tag, path)?.and_then(|place| place.bit),
                What::Size => program.size(tag)?,
                What::Constant => program.constants.get(*path).copied(),
            };
            if let Some(value) = value {
                offsets.entry((*key).to_owned()).or_insert(value);
            }
        }
    }
    Ok(offsets)
}

/// Compiles a program that prints them, with the compiler `cc`, and runs it.
fn from_headers(folder: &Path, wanted: &[Wanted], version: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut program = String::from(
        "#define Py_BUILD_CORE 1\n#include <stddef.h>\n#include <Python.h>\n#include <frameobject.h>\n#if PY_VERSION_HEX >= 0x03090000\n\
         #include <internal/pycore_runtime.h>\n#include <internal/pycore_interp.h>\n#endif\n\
         #include <internal/pycore_pystate.h>\n#if PY_VERSION_HEX >= 0x030b0000\n\
         #include <internal/pycore_frame.h>\n#endif\n#include <stdio.h>\n#include <string.h>\nint main(void) {\n\
         printf(\"version %d.%d.%d\\n\", PY_MAJOR_VERSION, PY_MINOR_VERSION, PY_MICRO_VERSION);\n",
    );
    for (key, _, name, path, what, _) in wanted {
        match what {
            What::Offset => writeln!(program, "printf(\"{key}=%zu\\n\", offsetof({name}, {path}));")?,
            What::Size => writeln!(program, "printf(\"{key}=%zu\\n\", sizeof({name}));")?,
            What::Constant => writeln!(program, "printf(\"{key}=%d\\n\", (int){path});")?,
            // A bit field has no address: the first bit that changes is its first bit.
            What::Bit => {
                let outer = path.rsplit_once('.').context("a bit field is in a structure")?.0;
                writeln!(
                    program,
                    "{{ static {name} it; unsigned word; memset(&it, 0, sizeof it); it.{path} = 1;\n\
                     memcpy(&word, &it.{outer}, sizeof word); printf(\"{key}=%d\\n\", __builtin_ctz(word)); }}"
                )?;
            }
        }
    }
    program.push_str("return 0; }\n");
    let work = std::env::temp_dir().join(format!("lightfoot-offsets-{}", std::process::id()));
    std::fs::create_dir_all(&work)?;
    let (source, binary) = (work.join("offsets.c"), work.join("offsets"));
    std::fs::write(&source, program)?;
    let compiled = Command::new("cc")
        .arg("-w")
        .arg("-I")
        .arg(folder)
        // Headers include each other by bare names; first in the search they would hide public ones of the same name.
        .arg("-idirafter")
        .arg(folder.join("internal"))
        .args([&source, Path::new("-o"), &binary])
        .status()
        .context("cc is needed to compile the headers")?;
    let output = compiled.success().then(|| Command::new(&binary).output());
    std::fs::remove_dir_all(&work)?;
    let Some(output) = output else { bail!("the headers in {} could not be compiled", folder.display()) };
    let text = String::from_utf8(output?.stdout)?;
    let mut lines = text.lines();
    let found = lines.next().and_then(|line| line.strip_prefix("version ")).context("no version")?;
    ensure!(found == version, "the headers are those of {found}, not {version}");
    lines
        .map(|line| {
            let (key, value) = line.rsplit_once('=').context("no value")?;
            Ok((key.to_owned(), value.parse()?))
        })
        .collect()
}
