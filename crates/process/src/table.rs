//! The executable mappings of one process image.

use crate::objects::ObjectId;
use std::cell::Cell;
use std::rc::Rc;

/// What an executable mapping holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// A file.
    Object(ObjectId),
    /// Memory without a file: code made at run time.
    Anonymous,
    /// The vDSO.
    Vdso,
    /// Another page of the kernel, by its name, for example `[vsyscall]`.
    Special(&'static &'static str),
}

/// One mapping; 32 bytes plus the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub start: u64,
    /// First address behind the mapping.
    pub end: u64,
    /// Offset in the file of the byte at `start`.
    pub file_offset: u64,
    pub target: Target,
}

/// Bytes of memory that all tables of one [`Gauge`] use together. Exact also where tables are shared: a table is charged
/// when it is made and credited when the last one who shares it lets go.
pub(crate) type Gauge = Rc<Cell<usize>>;

/// Mappings sorted by address, without overlaps.
#[derive(Debug)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    gauge: Gauge,
    charged: usize,
}

impl Clone for Table {
    fn clone(&self) -> Self {
        let mut copy = Table::new(&self.gauge);
        copy.entries.clone_from(&self.entries);
        copy.charge();
        copy
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.gauge.set(self.gauge.get() - self.charged);
    }
}

impl Table {
    /// An empty table whose memory is charged to `gauge`.
    pub fn new(gauge: &Gauge) -> Table {
        let mut table = Table { entries: Vec::new(), gauge: Rc::clone(gauge), charged: 0 };
        table.charge();
        table
    }

    fn charge(&mut self) {
        let bytes = size_of::<Table>() + self.entries.capacity() * size_of::<Entry>();
        self.gauge.set(self.gauge.get() - self.charged + bytes);
        self.charged = bytes;
    }

    /// Gives back memory that is not used.
    pub fn shrink(&mut self) {
        self.entries.shrink_to_fit();
        self.charge();
    }

    /// The mapping that covers `address`.
    pub fn find(&self, address: u64) -> Option<&Entry> {
        let behind = self.entries.partition_point(|entry| entry.start <= address);
        self.entries[..behind].last().filter(|entry| address < entry.end)
    }

    /// Whether exactly this mapping is there.
    pub fn contains(&self, entry: &Entry) -> bool {
        self.find(entry.start) == Some(entry)
    }

    /// Adds a mapping; older ones give way where they overlap.
    pub fn insert(&mut self, new: Entry) {
        if new.start < new.end {
            self.cut_in(new);
            self.charge();
        }
    }

    fn cut_in(&mut self, new: Entry) {
        if self.entries.last().is_none_or(|last| last.end <= new.start) {
            self.entries.push(new);
            return;
        }
        let from = self.entries.partition_point(|entry| entry.end <= new.start);
        let to = self.entries.partition_point(|entry| entry.start < new.end);
        if from >= to {
            self.entries.insert(from, new);
            return;
        }
        let (first, last) = (self.entries[from], self.entries[to - 1]);
        let left = (first.start < new.start).then_some(Entry { end: new.start, ..first });
        let right = (last.end > new.end).then(|| Entry {
            start: new.end,
            file_offset: last.file_offset.wrapping_add(new.end - last.start),
            ..last
        });
        self.entries.splice(from..to, left.into_iter().chain([new]).chain(right));
    }

    /// Number of mappings.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(start: u64, end: u64, id: u32) -> Entry {
        Entry { start, end, file_offset: start, target: Target::Object(ObjectId(id)) }
    }

    fn ids(table: &Table, addresses: &[u64]) -> Vec<Option<u32>> {
        addresses
            .iter()
            .map(|&address| match table.find(address)?.target {
                Target::Object(ObjectId(id)) => Some(id),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn newer_mappings_cut_older_ones() {
        let mut table = Table::new(&Gauge::default());
        table.insert(entry(0x1000, 0x5000, 1));
        table.insert(entry(0x8000, 0x9000, 2));
        table.insert(entry(0x2000, 0x3000, 3));
        assert_eq!(
            ids(&table, &[0xfff, 0x1000, 0x1fff, 0x2000, 0x3000, 0x4fff, 0x5000, 0x8000]),
            [None, Some(1), Some(1), Some(3), Some(1), Some(1), None, Some(2)]
        );
        assert_eq!(table.find(0x3000).unwrap().file_offset, 0x3000, "the right part keeps its file offset");
        table.insert(entry(0, 0x10000, 4));
        assert_eq!((table.len(), ids(&table, &[0, 0x8000, 0xffff])), (1, vec![Some(4); 3]));
        table.insert(entry(0x20, 0x20, 5));
        assert_eq!(table.len(), 1, "an empty mapping is none");
    }

    #[test]
    fn shared_tables_are_charged_once() {
        let gauge = Gauge::default();
        let mut parent = Rc::new(Table::new(&gauge));
        Rc::make_mut(&mut parent).insert(entry(0x1000, 0x5000, 1));
        let one = gauge.get();
        let mut child = Rc::clone(&parent);
        assert_eq!(gauge.get(), one);
        Rc::make_mut(&mut child).insert(entry(0x8000, 0x9000, 2));
        assert!(gauge.get() > one);
        drop(parent);
        drop(child);
        assert_eq!(gauge.get(), 0);
    }

    /// Against a plain array of pages, for many random insertions.
    #[test]
    fn agrees_with_a_page_array() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for _ in 0..200 {
            let mut table = Table::new(&Gauge::default());
            let mut pages = [None; 64];
            for id in 0..40 {
                let start = random(64);
                let end = start + random(64 - start + 1);
                table.insert(entry(start, end, id));
                pages[start as usize..end as usize].fill(Some(id));
            }
            assert_eq!(ids(&table, &(0..64).collect::<Vec<_>>()), pages);
            assert!(table.entries.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }
    }
}
