//! Types of the kernel (BTF): which functions it has, which tracepoints, what their arguments are.
//! Source of the format: Documentation/bpf/btf.rst. Foreign bytes: indices and offsets are checked, nothing here panics.

use crate::elf::{u16_at, u32_at};

const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FWD: u32 = 7;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_FLOAT: u32 = 16;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// Types looked at.
const TYPES_MAX: usize = 4 << 20;
/// Types followed for one printed name.
const DEPTH_MAX: usize = 16;

/// The types of the kernel.
pub struct Btf {
    bytes: Vec<u8>,
    strings: usize,
    strings_end: usize,
    /// Where each type stands in `bytes`; type 0 is void.
    types: Vec<u32>,
}

/// A function's arguments and what it returns, as C writes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prototype {
    /// Type and name of each argument.
    pub arguments: Vec<(String, String)>,
    /// Type of the result.
    pub returns: String,
}

impl Btf {
    /// Reads a whole BTF blob, as `/sys/kernel/btf/vmlinux` is one. `None` if it is damaged.
    pub fn parse(bytes: Vec<u8>) -> Option<Btf> {
        if u16_at(&bytes, 0) != 0xeb9f || bytes.len() < 24 {
            return None;
        }
        let header = u32_at(&bytes, 4) as usize;
        let section = |at: usize| {
            let start = header.checked_add(u32_at(&bytes, at) as usize)?;
            let end = start.checked_add(u32_at(&bytes, at + 4) as usize)?;
            (end <= bytes.len()).then_some((start, end))
        };
        let (mut at, types_end) = section(8)?;
        let (strings, strings_end) = section(16)?;
        let mut types = vec![0];
        while at + 12 <= types_end && types.len() < TYPES_MAX {
            types.push(at as u32);
            let info = u32_at(&bytes, at + 4);
            let count = (info & 0xffff) as usize;
            let more = match info >> 24 & 0x1f {
                KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
                KIND_ARRAY => 12,
                KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => 12 * count,
                KIND_ENUM | KIND_FUNC_PROTO => 8 * count,
                KIND_PTR | KIND_FWD | KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT
                | KIND_FUNC | KIND_FLOAT | KIND_TYPE_TAG => 0,
                // A kind of the future: its size is unknown.
                _ => break,
            };
            at += 12 + more;
        }
        Some(Btf { bytes, strings, strings_end, types })
    }

    fn kind(&self, id: u32) -> u32 {
        self.types.get(id as usize).map_or(0, |&at| u32_at(&self.bytes, at as usize + 4) >> 24 & 0x1f)
    }

    fn at(&self, id: u32) -> Option<usize> {
        (id != 0).then(|| self.types.get(id as usize).map(|&at| at as usize))?
    }

    /// The type that another one refers to.
    fn target(&self, id: u32) -> u32 {
        self.at(id).map_or(0, |at| u32_at(&self.bytes, at + 8))
    }

    fn string(&self, offset: u32) -> &str {
        let start = self.strings.saturating_add(offset as usize).min(self.strings_end);
        let bytes = self.bytes.get(start..self.strings_end).unwrap_or_default();
        let end = bytes.iter().take(4096).position(|&byte| byte == 0).unwrap_or(0);
        std::str::from_utf8(&bytes[..end]).unwrap_or_default()
    }

    fn name(&self, id: u32) -> &str {
        self.at(id).map_or("", |at| self.string(u32_at(&self.bytes, at)))
    }

    fn of_kind(&self, kind: u32) -> impl Iterator<Item = (u32, &str)> {
        (1..self.types.len() as u32).filter(move |&id| self.kind(id) == kind).map(|id| (id, self.name(id)))
    }

    /// The kernel's functions, in no order; a name may come twice.
    pub fn functions(&self) -> impl Iterator<Item = (u32, &str)> {
        self.of_kind(KIND_FUNC)
    }

    /// The functions of one name: of two, a probe by name would not know which.
    pub fn functions_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u32> + 'a {
        self.functions().filter(move |(_, other)| *other == name).map(|(id, _)| id)
    }

    /// Tracepoints whose arguments are known: from the types `btf_trace_NAME`.
    pub fn tracepoints(&self) -> impl Iterator<Item = (u32, &str)> {
        self.of_kind(KIND_TYPEDEF).filter_map(|(id, name)| Some((id, name.strip_prefix("btf_trace_")?)))
    }

    /// Arguments of a function or of a tracepoint, of which the first (the kernel's own data) is left out.
    pub fn prototype(&self, id: u32) -> Option<Prototype> {
        let tracepoint = self.kind(id) == KIND_TYPEDEF;
        let mut proto = self.target(id);
        for _ in 0..DEPTH_MAX {
            if self.kind(proto) != KIND_PTR {
                break;
            }
            proto = self.target(proto);
        }
        if self.kind(proto) != KIND_FUNC_PROTO {
            return None;
        }
        let at = self.at(proto)?;
        let count = (u32_at(&self.bytes, at + 4) & 0xffff).min(64) as usize;
        let argument = |index: usize| {
            let at = at + 12 + 8 * index;
            (self.type_name(u32_at(&self.bytes, at + 4), 0), self.string(u32_at(&self.bytes, at)).to_owned())
        };
        let arguments = (usize::from(tracepoint)..count).map(argument).collect();
        Some(Prototype { arguments, returns: self.type_name(self.target(proto), 0) })
    }

    /// A type as C writes it: `struct task_struct *`.
    fn type_name(&self, id: u32, depth: usize) -> String {
        if depth > DEPTH_MAX {
            return "...".to_owned();
        }
        let inner = || self.type_name(self.target(id), depth + 1);
        match self.kind(id) {
            0 => "void".to_owned(),
            KIND_PTR if self.kind(self.target(id)) == KIND_FUNC_PROTO => "void (*)()".to_owned(),
            KIND_PTR => {
                let inner = inner();
                if inner.ends_with('*') { inner + "*" } else { inner + " *" }
            }
            KIND_STRUCT => format!("struct {}", self.name(id)),
            KIND_UNION => format!("union {}", self.name(id)),
            KIND_ENUM | KIND_ENUM64 => format!("enum {}", self.name(id)),
            KIND_FWD => format!("struct {}", self.name(id)),
            KIND_CONST => format!("const {}", inner()),
            KIND_VOLATILE => format!("volatile {}", inner()),
            KIND_RESTRICT | KIND_TYPE_TAG => inner(),
            KIND_ARRAY => "array".to_owned(),
            _ => self.name(id).to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `int f(int count, struct task *who)` and the tracepoint `switch(void *, int, struct task *)`.
    fn small() -> Vec<u8> {
        let strings = b"\0int\0task\0f\0count\0who\0btf_trace_switch\0";
        let offset = |name: &str| {
            let text = std::str::from_utf8(strings).unwrap();
            text.find(&format!("\0{name}\0")).unwrap() as u32 + 1
        };
        let mut types: Vec<u32> = Vec::new();
        let mut add = |words: &[u32]| types.extend_from_slice(words);
        add(&[offset("int"), KIND_INT << 24, 4, 0x0100_0020]); // 1
        add(&[offset("task"), KIND_STRUCT << 24, 0]); // 2
        add(&[0, KIND_PTR << 24, 2]); // 3
        add(&[0, KIND_FUNC_PROTO << 24 | 2, 1, offset("count"), 1, offset("who"), 3]); // 4
        add(&[offset("f"), KIND_FUNC << 24 | 1, 4]); // 5
        add(&[0, KIND_PTR << 24, 0]); // 6: void *
        add(&[0, KIND_FUNC_PROTO << 24 | 3, 0, 0, 6, 0, 1, 0, 3]); // 7
        add(&[0, KIND_PTR << 24, 7]); // 8
        add(&[offset("btf_trace_switch"), KIND_TYPEDEF << 24, 8]); // 9
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(types);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn functions_and_tracepoints_with_arguments() {
        let btf = Btf::parse(small()).unwrap();
        assert_eq!(btf.functions().collect::<Vec<_>>(), [(5, "f")]);
        assert_eq!(btf.tracepoints().collect::<Vec<_>>(), [(9, "switch")]);
        let expected =
            [("int".to_owned(), "count".to_owned()), ("struct task *".to_owned(), "who".to_owned())];
        let prototype = btf.prototype(5).unwrap();
        assert_eq!((prototype.arguments.as_slice(), prototype.returns.as_str()), (&expected[..], "int"));
        let types: Vec<String> =
            btf.prototype(9).unwrap().arguments.into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(types, ["int", "struct task *"]);
        assert_eq!(btf.prototype(2), None);
    }

    #[test]
    fn damaged_types_end_the_list() {
        let whole = small();
        for length in 0..whole.len() {
            if let Some(btf) = Btf::parse(whole[..length].to_vec()) {
                let _ = btf.functions().count() + btf.tracepoints().count();
            }
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] = 0xff;
            if let Some(btf) = Btf::parse(bytes) {
                let ids: Vec<u32> = btf.functions().chain(btf.tracepoints()).map(|(id, _)| id).collect();
                ids.iter().for_each(|&id| drop(btf.prototype(id)));
            }
        }
    }
}
