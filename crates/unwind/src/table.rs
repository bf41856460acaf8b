//! Rows of one object, sorted by the file offset of the code.

use crate::builder::Rules;
use crate::{Arch, Rule, Segment};
use std::ops::Range;

/// From this file offset on, up to the next row, the rule holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Row {
    /// File offset of the code, in bytes.
    pub offset: u32,
    /// Index in [`Table::rules`].
    pub rule: u16,
}

/// What building saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Functions used from `.eh_frame` and `.debug_frame`.
    pub functions: u64,
    /// Functions used from Go's `.gopclntab`.
    pub go_functions: u64,
    /// Rows before equal neighbours were merged.
    pub rows_before_merge: u64,
    /// Rows whose rule is [`crate::CfaKind::Unsupported`], before merging.
    pub unsupported_rows: u64,
    /// Functions that lie over another one: the first one in the file's order of addresses is used where they meet.
    pub overlapping: u64,
    /// Functions outside of the executable segments (removed by the linker).
    pub outside: u64,
    /// Entries that contradict their format.
    pub malformed: u64,
    /// Functions for which there was no room ([`crate::Options::rows_max`], or 65,535 rules).
    pub left_out: u64,
}

/// Everything a walker needs to know about one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// CPU.
    pub arch: Arch,
    /// Rules in the order of their first use; rule 0 is [`Rule::NONE`].
    pub rules: Vec<Rule>,
    /// Ascending offsets, each at most once; neighbours have different rules, and the last one ends the last function with
    /// rule 0. Code before the first row has no information.
    pub rows: Vec<Row>,
    /// Executable segments: [`Segment::bias`] is what turns file offsets into the linker's addresses.
    pub text: Vec<Segment>,
    /// The GNU build ID; empty if the file has none.
    pub build_id: Vec<u8>,
    /// What building saw.
    pub stats: Stats,
}

/// The rows of 64 KiB of an object's file.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// File offset >> 16.
    pub number: u32,
    /// Rule that holds at the start of the page through a row of an earlier one.
    before: Option<u16>,
    rows: &'a [Row],
}

impl<'a> Page<'a> {
    /// Low 16 bits of the file offset, and the index of the rule in [`Table::rules`]; ascending. The first one is at 0 if the start of
    /// the page is covered.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (u16, u16)> + use<'a> {
        let (before, rows) = (self.before, self.rows);
        let extra = usize::from(before.is_some());
        (0..rows.len() + extra).map(move |index| match (index, before) {
            (0, Some(rule)) => (0, rule),
            _ => {
                let row = rows[index - extra];
                (row.offset as u16, row.rule)
            }
        })
    }
}

impl Table {
    /// The rule for the code at a file offset; [`Rule::NONE`] if nothing is known.
    pub fn rule_at(&self, offset: u64) -> Rule {
        let next = self.rows.partition_point(|row| u64::from(row.offset) <= offset);
        let row = next.checked_sub(1).and_then(|index| self.rows.get(index));
        row.and_then(|row| self.rules.get(usize::from(row.rule))).copied().unwrap_or(Rule::NONE)
    }

    /// Sets `flag` on the rules of all code in the ranges of file offsets; rows are split at the ends of a range. Code without
    /// information stays without.
    pub fn mark(&mut self, ranges: &[Range<u64>], flag: u8) {
        for range in ranges {
            let clip = |offset: u64| u32::try_from(offset).unwrap_or(u32::MAX);
            self.mark_one(clip(range.start)..clip(range.end), flag);
        }
    }

    fn mark_one(&mut self, range: Range<u32>, flag: u8) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        let mut rules = Rules::from(std::mem::take(&mut self.rules));
        let first = self.rows.partition_point(|row| row.offset < range.start);
        for row in self.rows[first..].iter_mut().take_while(|row| row.offset < range.end) {
            let mut rule = rules.get(row.rule);
            if rule != Rule::NONE {
                rule.flags |= flag;
                row.rule = rules.index(rule).unwrap_or(row.rule);
            }
        }
        self.rules = rules.into_inner();
        self.rows.dedup_by_key(|row| row.rule);
    }

    /// Makes sure that a row starts at `offset` if the code there is covered.
    fn split(&mut self, offset: u32) {
        let next = self.rows.partition_point(|row| row.offset <= offset);
        if let Some(before) = next.checked_sub(1)
            && self.rows[before].offset != offset
        {
            let rule = self.rows[before].rule;
            self.rows.insert(next, Row { offset, rule });
        }
    }

    /// The rows by 64 KiB page, ascending; pages without any covered code are left out.
    pub fn pages(&self) -> impl Iterator<Item = Page<'_>> {
        let last = self.rows.last().map(|row| row.offset >> 16);
        let mut number = self.rows.first().map(|row| row.offset >> 16);
        let mut rest = self.rows.as_slice();
        let mut before = None;
        std::iter::from_fn(move || {
            loop {
                let page = number.filter(|&page| Some(page) <= last)?;
                number = page.checked_add(1);
                let (rows, after) = rest.split_at(rest.partition_point(|row| row.offset >> 16 <= page));
                rest = after;
                let starts_covered = rows.first().is_some_and(|row| row.offset & 0xffff == 0);
                let found = Page { number: page, before: before.filter(|_| !starts_covered), rows };
                if let Some(row) = rows.last() {
                    before =
                        Some(row.rule).filter(|&rule| self.rules.get(usize::from(rule)) != Some(&Rule::NONE));
                }
                if found.before.is_some() || !rows.is_empty() {
                    return Some(found);
                }
            }
        })
    }
}
