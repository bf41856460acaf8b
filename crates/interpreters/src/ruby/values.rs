//! Strings, arrays, classes and names of CRuby in memory of a process. Whatever is there is taken for hostile: lengths have bounds,
//! nothing is followed in a loop.

use super::offsets::{self as o, offset};
use crate::Interpreter;
use crate::memory::{Reader, u64_at};

/// A longer name or path is cut.
const MAX_TEXT: u64 = 1024;
/// Most variables of a class that are looked through for its name (before 3.2).
const MAX_VARIABLES: u64 = 256;
/// Names in one part of the table of names. Source: `ID_ENTRY_UNIT`, symbol.c.
const NAMES_UNIT: u64 = 512;

const T_MASK: u64 = 0x1f;
pub const T_CLASS: u64 = 2;
pub const T_MODULE: u64 = 3;
const T_STRING: u64 = 5;
const T_ARRAY: u64 = 7;
const T_ICLASS: u64 = 0x1c;
const T_IMEMO: u64 = 0x1a;
const IMEMO_MENT: u64 = 6;
/// `FL_USER1`: a string's bytes are elsewhere; an array's elements are in the object.
const USER1: u64 = 1 << 13;
const ARRAY_LENGTH_SHIFT: u32 = 15;

/// Memory of one process, seen as one version of Ruby does.
pub struct Values<'a> {
    pub reader: Reader<'a>,
    pub ruby: &'a Interpreter,
}

impl Values<'_> {
    pub fn offset(&self, place: usize) -> u64 {
        offset(self.ruby, place)
    }

    /// The word of a field.
    pub fn field(&self, object: u64, place: usize) -> Option<u64> {
        self.reader.u64(object.checked_add(self.offset(place))?)
    }

    /// An object's flags. Small numbers, symbols, nil, true and false are no objects.
    fn flags(&self, value: u64) -> Option<u64> {
        if value < 4096 || value & 7 != 0 {
            return None;
        }
        self.reader.u64(value)
    }

    /// Text of a String.
    pub fn string(&self, value: u64) -> Option<String> {
        let flags = self.flags(value).filter(|flags| flags & T_MASK == T_STRING)?;
        let mask = self.offset(o::STRING_EMBED_MASK);
        let embedded = flags & USER1 == 0;
        let length = if embedded && mask != 0 {
            (flags & mask) >> self.offset(o::STRING_EMBED_SHIFT).min(63)
        } else {
            self.field(value, o::STRING_LENGTH)?
        };
        let address = if embedded {
            value.checked_add(self.offset(o::STRING_EMBEDDED))?
        } else {
            self.reader.u64(value.checked_add(24)?)?
        };
        let bytes = self.reader.bytes(address, length.min(MAX_TEXT), MAX_TEXT as usize)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// An element of an Array.
    pub fn element(&self, value: u64, index: u64) -> Option<u64> {
        let flags = self.flags(value).filter(|flags| flags & T_MASK == T_ARRAY)?;
        let (length, first) = if flags & USER1 != 0 {
            ((flags & self.offset(o::ARRAY_EMBED_MASK)) >> ARRAY_LENGTH_SHIFT, value.checked_add(16)?)
        } else {
            (self.reader.u64(value.checked_add(16)?)?, self.reader.u64(value.checked_add(32)?)?)
        };
        if index >= length {
            return None;
        }
        self.reader.u64(first.checked_add(index.checked_mul(8)?)?)
    }

    /// A path: a String, or an Array of it and its absolute form.
    pub fn path(&self, value: u64) -> Option<String> {
        self.string(value).or_else(|| self.string(self.element(value, 0)?))
    }

    /// A method entry's definition, name and owner.
    pub fn method_entry(&self, entry: u64) -> Option<(u64, u64, u64)> {
        let flags = self.flags(entry)?;
        if flags & T_MASK != T_IMEMO || flags >> 12 & 0xf != IMEMO_MENT {
            return None;
        }
        let bytes = self.reader.array::<48>(entry)?;
        let word = |place| u64_at(&bytes, self.offset(place) as usize);
        Some((word(o::ENTRY_DEFINITION), word(o::ENTRY_CALLED_ID), word(o::ENTRY_OWNER)))
    }

    /// What stands before a method's name: `Class#`, `Class.`, or nothing for what has no name. `names`: address of the table of names.
    pub fn prefix(&self, owner: u64, names: Option<u64>) -> String {
        let of = |owner, separator| self.class_path(owner, names).map(|path| path + separator);
        match self.attached(owner, names) {
            Some(object) => of(object, ".").unwrap_or_default(),
            None => of(owner, "#").unwrap_or_default(),
        }
    }

    /// The object whose singleton class this is.
    fn attached(&self, class: u64, names: Option<u64>) -> Option<u64> {
        let flags = self.flags(class).filter(|flags| flags & T_MASK == T_CLASS)?;
        if flags & self.offset(o::FL_SINGLETON) == 0 {
            return None;
        }
        let at = self.offset(o::EXTENSION_ATTACHED);
        if at != 0 {
            return self.reader.u64(self.extension(class)?.checked_add(at)?);
        }
        self.variable(class, &["__attached__"], names)
    }

    fn extension(&self, class: u64) -> Option<u64> {
        match self.offset(o::CLASS_EXTENSION) {
            0 => class.checked_add(self.offset(o::CLASS_SIZE)),
            at => self.reader.u64(class.checked_add(at)?),
        }
    }

    fn class_path(&self, class: u64, names: Option<u64>) -> Option<String> {
        let flags = self.flags(class)?;
        let class = match flags & T_MASK {
            T_CLASS | T_MODULE => class,
            T_ICLASS => self.reader.u64(class.checked_add(8)?)?,
            _ => return None,
        };
        let at = self.offset(o::EXTENSION_CLASS_PATH);
        let path = if at != 0 {
            self.reader.u64(self.extension(class)?.checked_add(at)?)?
        } else {
            self.variable(class, &["__classpath__", "__tmp_classpath__"], names)?
        };
        self.string(path).filter(|path| !path.is_empty())
    }

    /// A variable of a class whose table of variables is an `st_table` (before 3.2).
    fn variable(&self, class: u64, wanted: &[&str], names: Option<u64>) -> Option<u64> {
        let names = names?;
        let table =
            self.reader.u64(self.extension(class)?.checked_add(self.offset(o::EXTENSION_VARIABLES))?)?;
        let head = self.reader.array::<56>(table)?;
        let (start, bound, entries) = (u64_at(&head, 32), u64_at(&head, 40), u64_at(&head, 48));
        for index in start..bound.min(start.saturating_add(MAX_VARIABLES)) {
            let entry = self.reader.array::<24>(entries.checked_add(index.checked_mul(24)?)?)?;
            let name = self.name(names, u64_at(&entry, 8));
            if name.is_some_and(|name| wanted.contains(&name.as_str())) {
                return Some(u64_at(&entry, 16));
            }
        }
        None
    }

    /// Text of a name (`ID`) by the table at `names`.
    pub fn name(&self, names: u64, id: u64) -> Option<String> {
        let number = if id > self.offset(o::LAST_OPERATOR) { id >> 4 } else { id };
        let parts = self.reader.u64(names.checked_add(self.offset(o::NAMES_IDS))?)?;
        let part = self.element(parts, number / NAMES_UNIT)?;
        self.string(self.element(part, number % NAMES_UNIT * 2)?)
    }

    /// Whether the table of names is at this address: operators of one character have that character's number.
    pub fn is_names(&self, names: u64) -> bool {
        b"+-*/%<>!~^&|".iter().all(|&operator| {
            self.name(names, operator.into()).is_some_and(|name| name.as_bytes() == [operator])
        })
    }
}
