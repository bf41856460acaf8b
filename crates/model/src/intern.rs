//! Strings stored once and named by a number.

use serde::Serialize;
use std::collections::HashMap;
use std::rc::Rc;

/// Index into a [`StringTable`]. Entry 0 is always the empty string.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct StringId(pub u32);

impl StringId {
    /// The empty string: "not known" for file and object names.
    pub const EMPTY: StringId = StringId(0);

    /// Whether this is the empty string.
    pub fn is_empty(self) -> bool {
        self == StringId::EMPTY
    }
}

/// Interned strings. Grows with the number of *distinct* strings only.
#[derive(Debug, Clone)]
pub struct StringTable {
    strings: Vec<Rc<str>>,
    index: HashMap<Rc<str>, StringId>,
}

impl Default for StringTable {
    fn default() -> Self {
        let mut table = StringTable { strings: Vec::new(), index: HashMap::new() };
        table.intern("");
        table
    }
}

impl StringTable {
    /// The id of `text`; adds it if it is new.
    pub fn intern(&mut self, text: &str) -> StringId {
        if let Some(&id) = self.index.get(text) {
            return id;
        }
        let id = StringId(self.strings.len() as u32);
        let text: Rc<str> = Rc::from(text);
        self.strings.push(Rc::clone(&text));
        self.index.insert(text, id);
        id
    }

    /// The text of `id`; the empty string for an id of another table.
    pub fn get(&self, id: StringId) -> &str {
        self.strings.get(id.0 as usize).map_or("", |s| s)
    }

    /// Number of distinct strings, the empty one included.
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Never true: entry 0 is the empty string.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }

    /// All strings in index order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.strings.iter().map(|s| s.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interns_once_and_keeps_the_empty_string_first() {
        let mut table = StringTable::default();
        let (a, b) = (table.intern("a"), table.intern("b"));
        assert_eq!(table.intern("a"), a);
        assert_ne!(a, b);
        assert_eq!(table.intern(""), StringId::EMPTY);
        assert_eq!(table.iter().collect::<Vec<_>>(), ["", "a", "b"]);
        assert_eq!(table.get(StringId(99)), "");
    }
}
