//! What is where in [`crate::Interpreter::offsets`] and [`crate::Interpreter::symbols`] for CRuby. Mirror of the first part: `bpf/ruby.h`.

use crate::{Interpreter, Layout, OFFSETS};

/// Places in [`crate::Interpreter::symbols`].
pub const SYMBOL_THREAD_LOCAL: usize = 0;
pub const SYMBOL_EC: usize = 1;
/// From here on: where the table of names may be. The right one is found by what it holds.
pub const SYMBOL_NAMES: usize = 2;

pub const ACCESS: usize = 0;
pub const TLS_OFFSET: usize = 1;
pub const DTV: usize = 2;
pub const DTV_ENTRY: usize = 3;
/// Values of [`ACCESS`].
pub const ACCESS_GLOBAL: u32 = 1;
pub const ACCESS_TLS_MODULE: u32 = 2;
pub const ACCESS_TP_IN_GOT: u32 = 3;
pub const ACCESS_TP_FIXED: u32 = 4;

macro_rules! fields {
    ($($name:ident = $place:literal, $key:literal, $needed:literal;)*) => {
        $(#[allow(dead_code, reason = "some are the kernel side's alone")] pub const $name: usize = $place;)*
        /// Place, key in a layout, whether every version has it.
        const FIELDS: &[(usize, &str, bool)] = &[$(($place, $key, $needed)),*];
    };
}

fields! {
    EC_STACK = 4, "ec.vm_stack", true;
    EC_STACK_SIZE = 5, "ec.vm_stack_size", true;
    EC_CFP = 6, "ec.cfp", true;
    EC_THREAD = 7, "ec.thread", true;
    EC_MACHINE_START = 8, "ec.machine.stack_start", true;
    EC_MACHINE_SIZE = 9, "ec.machine.stack_maxsize", true;
    CFP_SIZE = 10, "cfp.size", true;
    CFP_PC = 11, "cfp.pc", true;
    CFP_ISEQ = 12, "cfp.iseq", true;
    CFP_EP = 13, "cfp.ep", true;
    VM_OBJSPACE = 14, "vm.objspace", true;
    OBJSPACE_FLAGS = 15, "objspace.flags", true;
    DURING_GC = 16, "objspace.during_gc", true;
    THREAD_RACTOR = 17, "thread.ractor", false;
    RACTOR_EC = 18, "ractor.running_ec", false;
    THREAD_VM = 19, "thread.vm", true;
    ISEQ_BODY = 20, "iseq.body", true;
    BODY_SIZE = 21, "body.iseq_size", true;
    BODY_ENCODED = 22, "body.iseq_encoded", true;
    BODY_PATH = 23, "body.pathobj", true;
    BODY_BASE_LABEL = 24, "body.base_label", true;
    BODY_LABEL = 25, "body.label", true;
    BODY_FIRST_LINE = 26, "body.first_lineno", true;
    BODY_FIRST_LINE_SIZE = 27, "body.first_lineno_size", true;
    BODY_INFO = 28, "body.insns_info", true;
    BODY_POSITIONS = 29, "body.insns_positions", true;
    BODY_INFO_SIZE = 30, "body.insns_size", true;
    BODY_INDEX = 31, "body.insns_index", true;
    BODY_LOCAL_ISEQ = 32, "body.local_iseq", true;
    INFO_SIZE = 33, "insn_info.size", true;
    INFO_LINE = 34, "insn_info.line_no", true;
    ENTRY_DEFINITION = 35, "method_entry.def", true;
    ENTRY_CALLED_ID = 36, "method_entry.called_id", true;
    ENTRY_OWNER = 37, "method_entry.owner", true;
    DEFINITION_ISEQ = 38, "definition.iseq", true;
    STRING_LENGTH = 39, "string.length", true;
    STRING_EMBEDDED = 40, "string.embedded", true;
    STRING_EMBED_MASK = 41, "RSTRING_EMBED_LEN_MASK", false;
    STRING_EMBED_SHIFT = 42, "RSTRING_EMBED_LEN_SHIFT", false;
    ARRAY_EMBED_MASK = 43, "RARRAY_EMBED_LEN_MASK", true;
    CLASS_SIZE = 44, "class.size", true;
    CLASS_EXTENSION = 45, "class.extension_pointer", false;
    EXTENSION_CLASS_PATH = 46, "extension.classpath", false;
    EXTENSION_ATTACHED = 47, "extension.attached", false;
    EXTENSION_VARIABLES = 48, "extension.variables", false;
    NAMES_IDS = 49, "symbols.ids", true;
    LAST_OPERATOR = 50, "tLAST_OP_ID", true;
    FL_SINGLETON = 51, "RUBY_FL_SINGLETON", true;
}

/// What the kernel side and this crate are compiled with: a version that differs is not read.
const SAME: &[(&str, u32)] = &[
    ("VM_FRAME_MAGIC_METHOD", 0x1111_0001),
    ("VM_FRAME_MAGIC_CFUNC", 0x5555_0001),
    ("VM_FRAME_MAGIC_DUMMY", 0x7999_0001),
    ("VM_FRAME_MAGIC_MASK", 0x7fff_0001),
    ("VM_FRAME_FLAG_FINISH", 0x20),
    ("VM_FRAME_FLAG_CFRAME", 0x80),
    ("imemo_svar", 2),
    ("imemo_ment", 6),
    ("RUBY_T_MASK", 0x1f),
    ("RUBY_T_IMEMO", 0x1a),
    ("RUBY_T_STRING", 5),
    ("RUBY_T_ARRAY", 7),
    ("RUBY_T_CLASS", 2),
    ("RUBY_T_MODULE", 3),
    ("RUBY_FL_USHIFT", 12),
    ("RSTRING_NOEMBED", 1 << 13),
    ("RARRAY_EMBED_FLAG", 1 << 13),
    ("RARRAY_EMBED_LEN_SHIFT", 15),
    ("RUBY_ID_SCOPE_SHIFT", 4),
    ("ID_ENTRY_SIZE", 2),
    ("VM_METHOD_TYPE_ISEQ", 0),
    ("string.pointer", 24),
    ("array.length", 16),
    ("array.pointer", 32),
    ("array.embedded", 16),
    ("index.blocks", 48),
    ("block.rank", 0),
    ("block.small_ranks", 8),
    ("block.bits", 16),
    ("block.size", 80),
    ("st_table.num_entries", 16),
    ("st_table.entries_start", 32),
    ("st_table.entries_bound", 40),
    ("st_table.entries", 48),
    ("st_table_entry.key", 8),
    ("st_table_entry.record", 16),
    ("st_table_entry.size", 24),
];

/// Fields of an execution context and of a control frame are read in one piece each: `bpf/ruby.h`.
const EC_BYTES: u32 = 256;
const CFP_BYTES: u32 = 64;

/// The offsets of a version.
///
/// # Errors
/// Something is missing in the layout, or is where this program does not look for it.
pub fn from_layout(layout: &Layout) -> Result<[u32; OFFSETS], String> {
    for (key, value) in SAME {
        if layout.get(key) != Some(*value) {
            return Err(format!("the layout of Ruby {} has another {key}", layout.version));
        }
    }
    let mut offsets = [0; OFFSETS];
    for (place, key, needed) in FIELDS {
        match layout.get(key) {
            Some(value) => offsets[*place] = value,
            None if *needed => return Err(format!("the layout of Ruby {} has no {key}", layout.version)),
            None => {}
        }
    }
    let fits = |places: &[usize], bytes| {
        places.iter().all(|&place| offsets[place] % 8 == 0 && offsets[place] + 8 <= bytes)
    };
    let context = [EC_STACK, EC_STACK_SIZE, EC_CFP, EC_THREAD, EC_MACHINE_START, EC_MACHINE_SIZE];
    if !fits(&context, EC_BYTES) || !fits(&[CFP_PC, CFP_ISEQ, CFP_EP], CFP_BYTES) || offsets[CFP_SIZE] == 0 {
        return Err(format!(
            "fields of Ruby {} lie too far from the begin of their structures",
            layout.version
        ));
    }
    Ok(offsets)
}

/// An offset, as it is added to addresses.
pub fn offset(interpreter: &Interpreter, place: usize) -> u64 {
    interpreter.offsets.get(place).copied().unwrap_or_default().into()
}
