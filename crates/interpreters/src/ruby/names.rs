//! Names of frames, kept by process and address for as long as what is there is the same.

use std::collections::HashMap;
use std::sync::Arc;

use super::code::{self, Code, Identity};
use super::frame;
use super::offsets::{self as o, SYMBOL_NAMES};
use super::values::Values;
use crate::memory::Reader;
use crate::{Interpreter, Memory, Name, Process, Resolved, Unknown};

const COMPILED: &str = "<compiled>";

/// What names may cost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of names and tables of lines that are kept. At the bound the half that was not used lately is forgotten, and read again
    /// when needed.
    pub kept_bytes: usize,
    /// Processes whose table of names is remembered.
    pub processes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { kept_bytes: 8 << 20, processes: 4096 }
    }
}

/// What was read at an address.
#[derive(Clone, Debug)]
enum Known {
    Code {
        identity: Identity,
        code: Arc<Code>,
        function: Arc<str>,
        file: Arc<str>,
    },
    /// A method: definition, name, owner; its instructions' address.
    Method {
        entry: (u64, u64, u64),
        iseq: u64,
        function: Arc<str>,
    },
}

#[derive(Debug)]
struct Kept {
    known: Known,
    /// Round in which it was last compared with memory.
    round: u64,
}

/// Resolves frames to names.
#[derive(Debug)]
pub struct Names {
    limits: Limits,
    round: u64,
    used: HashMap<(Process, u64), Kept>,
    used_bytes: usize,
    older: HashMap<(Process, u64), Kept>,
    /// Process -> address of its table of names, if it was found.
    tables: HashMap<Process, Option<u64>>,
    /// Method's iseq -> what stands before the names of its blocks.
    prefixes: HashMap<(Process, u64), Arc<str>>,
    files: HashMap<String, Arc<str>>,
}

impl Default for Names {
    fn default() -> Self {
        Names::new(Limits::default())
    }
}

impl Names {
    /// No names yet.
    pub fn new(limits: Limits) -> Names {
        Names {
            limits,
            round: 1,
            used: HashMap::new(),
            used_bytes: 0,
            older: HashMap::new(),
            tables: HashMap::new(),
            prefixes: HashMap::new(),
            files: HashMap::new(),
        }
    }

    /// A new look at the processes: what is known is compared with memory once more when it is next asked for. To be called before
    /// each batch of stacks.
    pub fn next_round(&mut self) {
        self.round += 1;
    }

    /// Bytes of names and tables in memory, about: twice what was used since the last time the bound was met.
    pub fn kept_bytes(&self) -> usize {
        self.used_bytes + self.older.values().map(|kept| kept.bytes()).sum::<usize>()
    }

    /// The name of a frame.
    ///
    /// `address` and `position` are the two words that the kernel side gave (the first without its top byte); `base` is where the
    /// interpreter's file would begin in the mapping of its code (`segment.start - segment.file_offset`).
    ///
    /// Frames of a stack are best resolved from the root: a block is then named after its method, whose class is known from there.
    pub fn resolve(
        &mut self,
        memory: &dyn Memory,
        process: Process,
        interpreter: &Interpreter,
        base: u64,
        address: u64,
        position: u64,
    ) -> Resolved {
        if position & frame::NOTHING != 0 || address == 0 {
            return Resolved::Hidden;
        }
        let values = Values { reader: Reader { memory, pid: process.pid }, ruby: interpreter };
        let pc = position & frame::PC;
        if position & frame::METHOD_ENTRY == 0 {
            return match self.code(&values, process, address) {
                Some((code, function, file)) => named(&code, &function, &file, pc),
                None => unknown(&values, address),
            };
        }
        let Some((iseq, function)) = self.method(&values, process, base, address, position) else {
            return unknown(&values, address);
        };
        if position & frame::C_FUNCTION != 0 {
            // Without a name it tells nothing that its native frames do not.
            if function.is_empty() {
                return Resolved::Hidden;
            }
            return Resolved::Named(Name { function, file: Arc::from(""), line: 0 });
        }
        match self.code(&values, process, iseq) {
            Some((code, _, file)) => named(&code, &function, &file, pc),
            None => unknown(&values, iseq),
        }
    }

    /// Entry of a method -> its instructions and name.
    fn method(
        &mut self,
        values: &Values,
        process: Process,
        base: u64,
        address: u64,
        position: u64,
    ) -> Option<(u64, Arc<str>)> {
        let kept = self.kept(process, address);
        if let Some((Known::Method { iseq, function, .. }, true)) = &kept {
            return Some((*iseq, Arc::clone(function)));
        }
        let entry = values.method_entry(address)?;
        if let Some((known @ Known::Method { entry: before, iseq, function }, _)) = &kept
            && *before == entry
        {
            let found = (*iseq, Arc::clone(function));
            self.keep(process, address, known.clone());
            return Some(found);
        }
        let table = self.table(values, process, base);
        let prefix = values.prefix(entry.2, table);
        let (iseq, name) = if position & frame::C_FUNCTION != 0 {
            (0, table.and_then(|table| values.name(table, entry.1)))
        } else {
            let iseq = values.field(entry.0, o::DEFINITION_ISEQ)?;
            let (code, _, _) = self.code(values, process, iseq)?;
            if self.prefixes.len() * 64 > self.limits.kept_bytes {
                self.prefixes.clear();
            }
            self.prefixes.insert((process, iseq), Arc::from(prefix.as_str()));
            (iseq, Some(code.base_label.clone()))
        };
        let function: Arc<str> = name.map(|name| prefix + &name).unwrap_or_default().into();
        self.keep(process, address, Known::Method { entry, iseq, function: Arc::clone(&function) });
        Some((iseq, function))
    }

    fn code(
        &mut self,
        values: &Values,
        process: Process,
        iseq: u64,
    ) -> Option<(Arc<Code>, Arc<str>, Arc<str>)> {
        let kept = self.kept(process, iseq);
        if let Some((Known::Code { code, function, file, .. }, true)) = &kept {
            return Some((Arc::clone(code), Arc::clone(function), Arc::clone(file)));
        }
        let (identity, bytes) = code::identity(values, iseq)?;
        if let Some((known @ Known::Code { identity: before, code, function, file }, _)) = &kept
            && *before == identity
        {
            let found = (Arc::clone(code), Arc::clone(function), Arc::clone(file));
            self.keep(process, iseq, known.clone());
            return Some(found);
        }
        let code = Arc::new(Code::read(values, iseq, &identity, &bytes)?);
        // Prism's name for what `eval` runs (3.4): Ruby itself shows the method instead.
        let of = match code.label == COMPILED && code.local != iseq {
            true => self.code(values, process, code.local).map(|(local, ..)| local.base_label.clone()),
            false => None,
        };
        let base_label = of.as_ref().unwrap_or(&code.base_label);
        let label = of.as_ref().unwrap_or(&code.label);
        let prefix = self.prefixes.get(&(process, code.local)).filter(|_| code.local != iseq);
        let function: Arc<str> = match (prefix, label.strip_suffix(base_label.as_str())) {
            (Some(prefix), Some(before)) => format!("{before}{prefix}{base_label}").into(),
            _ => label.as_str().into(),
        };
        let file = self.file(&code.file);
        let known = Known::Code {
            identity,
            code: Arc::clone(&code),
            function: Arc::clone(&function),
            file: Arc::clone(&file),
        };
        self.keep(process, iseq, known);
        Some((code, function, file))
    }

    /// Where the process's table of names is.
    fn table(&mut self, values: &Values, process: Process, base: u64) -> Option<u64> {
        if let Some(table) = self.tables.get(&process) {
            return *table;
        }
        let places = values.ruby.symbols[SYMBOL_NAMES..].iter().filter(|&&place| place != 0);
        let table = places.map(|place| base.wrapping_add(*place)).find(|&table| values.is_names(table));
        if self.tables.len() >= self.limits.processes {
            self.tables.clear();
        }
        self.tables.insert(process, table);
        table
    }

    fn file(&mut self, path: &str) -> Arc<str> {
        if self.files.len() * 128 > self.limits.kept_bytes {
            self.files.clear();
        }
        if let Some(file) = self.files.get(path) {
            return Arc::clone(file);
        }
        let file: Arc<str> = path.into();
        self.files.insert(path.to_owned(), Arc::clone(&file));
        file
    }

    /// What is known of an address, and whether it was compared with memory in this round.
    fn kept(&mut self, process: Process, address: u64) -> Option<(Known, bool)> {
        let key = (process, address);
        if let Some(kept) = self.used.get(&key) {
            return Some((kept.known.clone(), kept.round == self.round));
        }
        let kept = self.older.remove(&key)?;
        let found = (kept.known.clone(), kept.round == self.round);
        self.used_bytes += kept.bytes();
        self.used.insert(key, kept);
        Some(found)
    }

    fn keep(&mut self, process: Process, address: u64, known: Known) {
        let kept = Kept { known, round: self.round };
        let bytes = kept.bytes();
        if self.used_bytes + bytes > self.limits.kept_bytes / 2 {
            self.older = std::mem::take(&mut self.used);
            self.used_bytes = 0;
        }
        self.used_bytes += bytes;
        if let Some(before) = self.used.insert((process, address), kept) {
            self.used_bytes = self.used_bytes.saturating_sub(before.bytes());
        }
    }
}

impl Kept {
    fn bytes(&self) -> usize {
        let own = match &self.known {
            Known::Code { code, function, .. } => code.bytes() + function.len(),
            Known::Method { function, .. } => function.len(),
        };
        size_of::<Kept>() + own + 64
    }
}

fn named(code: &Code, function: &Arc<str>, file: &Arc<str>, pc: u64) -> Resolved {
    Resolved::Named(Name { function: Arc::clone(function), file: Arc::clone(file), line: code.line(pc) })
}

fn unknown(values: &Values, address: u64) -> Resolved {
    let readable = values.reader.u64(address).is_some();
    Resolved::Unknown(if readable { Unknown::NotCode } else { Unknown::Unreadable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Language, Layouts, OFFSETS, SYMBOLS, Version};

    /// Memory in which every address holds something: from a seed, small pointers, and now and then nothing.
    struct Hostile(u64);

    impl Memory for Hostile {
        fn read(&self, _pid: u32, address: u64, into: &mut [u8]) -> bool {
            let mut state = (self.0 ^ address).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            for chunk in into.chunks_mut(8) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let word = match state >> 61 {
                    // Flags of strings, arrays, classes and method entries; lengths beyond all bounds.
                    0 => [5, 7, 2, 0x601a, 0x2005, 0x2007, 3, 0x1c][state as usize >> 8 & 7],
                    1 => u64::MAX >> (state >> 8 & 63),
                    2 => state >> 40 & 0xff,
                    _ => (state >> 20 & 0xffff_ffff) << 3,
                };
                chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
            }
            state >> 60 != 0
        }
    }

    #[test]
    fn hostile_memory_costs_neither_time_nor_room() {
        let layouts = Layouts::built_in();
        for (minor, patch) in [(1, 2), (3, 8), (4, 5)] {
            let version = Version { major: 3, minor, patch };
            let layout = layouts.find("ruby", version).expect("built in");
            let offsets: [u32; OFFSETS] = super::super::offsets::from_layout(layout).expect("complete");
            let ruby = Interpreter {
                language: Language::Ruby,
                version,
                symbols: [4096; SYMBOLS],
                offsets,
                loop_code: Vec::new(),
            };
            let mut names = Names::new(Limits { kept_bytes: 1 << 20, processes: 8 });
            for seed in 0..3000 {
                let process = Process { pid: 1, start_ns: seed / 100, exec_id: 0 };
                let position = (seed % 16) << 56 | seed << 12;
                names.next_round();
                names.resolve(&Hostile(seed), process, &ruby, seed << 20, seed << 3 | 1 << 20, position);
                assert!(names.kept_bytes() <= 2 << 20, "{}", names.kept_bytes());
                assert!(names.tables.len() <= 8);
            }
        }
    }
}
