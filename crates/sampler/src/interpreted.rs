//! Names of interpreters' frames, read from the processes' memory as soon as a stack has arrived.

use crate::library::Library;
use lightfoot_interpreters::{Language, Memory, Process, Resolved, Unknown, Version, python, ruby};
use lightfoot_kernel::abi::{Segment, frame};
use lightfoot_kernel::os;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A frame of an interpreter.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Interpreted {
    pub kind: Kind,
    pub function: Arc<str>,
    /// Empty if not known.
    pub file: Arc<str>,
    /// 0 if not known.
    pub line: u32,
    /// Why there is no name; empty if there is one.
    pub reason: &'static str,
}

/// What such a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    Python,
    Ruby,
    /// The interpreter collects garbage.
    Gc,
}

/// Reads memory of processes by `process_vm_readv`.
#[derive(Debug)]
struct LiveMemory;

impl Memory for LiveMemory {
    fn read(&self, pid: u32, address: u64, into: &mut [u8]) -> bool {
        os::read_memory(pid, address, into)
    }
}

fn is_distrusted((good, bad): (u64, u64)) -> bool {
    good == 0 && bad >= DISTRUST
}

/// Names of all interpreters' frames.
#[derive(Debug, Default)]
pub(crate) struct Interpreters {
    python: python::Names,
    ruby: ruby::Names,
    /// Of each version of Ruby: frames that led to code, and frames that did not.
    ruby_told: BTreeMap<Version, (u64, u64)>,
    /// Versions of Ruby that were seen to run code made at run time.
    ruby_compiled: BTreeSet<Version>,
}

/// So many frames, and not one of them led to code: the layout does not fit.
const DISTRUST: u64 = 16;

impl Interpreters {
    /// Versions whose frames make no sense, one sentence each.
    pub fn remarks(&self) -> Vec<String> {
        let ruby =
            self.ruby_told.iter().filter(|(_, told)| is_distrusted(**told)).map(|(version, _)| *version);
        let sentence = |language, version| {
            format!(
                "{language} {version}: what its frames point to is no code, so only native frames are shown"
            )
        };
        let python = self.python.distrusted().map(|version| sentence(Language::Python, version));
        let compiled = self.ruby_compiled.iter().map(|version| {
            format!(
                "Ruby {version} runs code that YJIT compiled: its native frames have no names, Ruby's own frames do, and their lines are \
                 those of the last call"
            )
        });
        python.chain(ruby.map(|version| sentence(Language::Ruby, version))).chain(compiled).collect()
    }

    /// Takes note of a stack with Ruby's frames that passes through code made at run time.
    pub fn met_compiled(&mut self, library: &Library, segments: &[Segment]) {
        let found = segments.iter().filter_map(|segment| library.interpreter(&segment.key()));
        self.ruby_compiled
            .extend(found.filter(|found| found.language == Language::Ruby).map(|found| found.version));
    }

    /// To be called before each batch of stacks: code may have been replaced.
    pub fn next_round(&mut self) {
        self.python.next_round();
        self.ruby.next_round();
    }

    /// Looks at Ruby's frames from the root, so that a block gets its method's class, which is known from there.
    pub fn learn(&mut self, library: &Library, segments: &[Segment], process: Process, words: &[u64]) {
        let mut pairs = Vec::new();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match (word >> 56) as u8 {
                frame::RUBY => pairs.extend(words.next().map(|&position| (word, position))),
                frame::PYTHON => {
                    words.next();
                }
                _ => {}
            }
        }
        for (word, position) in pairs.into_iter().rev() {
            self.resolve(library, segments, process, word, position);
        }
    }

    /// The frame behind two words of a stack with these segments; `None` if it is none that a user would know.
    pub fn resolve(
        &mut self,
        library: &Library,
        segments: &[Segment],
        process: Process,
        word: u64,
        position: u64,
    ) -> Option<Interpreted> {
        let named = |kind, function: Arc<str>, file, line| {
            Some(Interpreted { kind, function, file, line, reason: "" })
        };
        let (language, kind) = match (word >> 56) as u8 {
            frame::PYTHON => (Language::Python, Kind::Python),
            frame::RUBY => (Language::Ruby, Kind::Ruby),
            _ => return named(Kind::Gc, "(garbage collection)".into(), "".into(), 0),
        };
        let unknown = |reason| {
            let function = format!("[{language} function]").into();
            Some(Interpreted { kind, function, file: "".into(), line: 0, reason })
        };
        let found = segments.iter().find_map(|segment| {
            let interpreter = library.interpreter(&segment.key())?;
            (interpreter.language == language).then_some((interpreter, segment))
        });
        let Some((interpreter, segment)) = found else { return unknown("its interpreter is not known") };
        let base = segment.start.wrapping_sub(segment.file_offset);
        let address = word & frame::ADDRESS;
        let resolved = match language {
            Language::Python => {
                self.python.resolve(&LiveMemory, process, interpreter, base, address, position)
            }
            Language::Ruby => {
                let resolved = self.ruby.resolve(&LiveMemory, process, interpreter, base, address, position);
                let told = self.ruby_told.entry(interpreter.version).or_default();
                match resolved {
                    Resolved::Named(_) => told.0 += 1,
                    Resolved::Unknown(Unknown::NotCode) => told.1 += 1,
                    Resolved::Hidden | Resolved::Unknown(Unknown::Unreadable) => {}
                }
                if is_distrusted(*told) { Resolved::Hidden } else { resolved }
            }
        };
        match resolved {
            Resolved::Named(name) => named(kind, name.function, name.file, name.line),
            Resolved::Hidden => None,
            Resolved::Unknown(Unknown::Unreadable) => {
                unknown("the process was gone before its name was read")
            }
            Resolved::Unknown(Unknown::NotCode) => unknown("what is there is no code"),
        }
    }
}
