//! Stacks as paths of labels, for the formats that know nothing but text: folded and SVG.
//!
//! A path is a thread name, then function names from the root to the leaf. A label has no `;`, no control character, no blank at its
//! ends, and cannot be mistaken for a count.

use lightfoot_model::{FrameKind, Profile, Sample};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;

/// Index into [`Paths::labels`].
type LabelId = u32;

/// Equal paths counted together, in the order of their text as bytes.
pub(crate) struct Paths<'p> {
    labels: Vec<Cow<'p, str>>,
    /// Kind of the first frame that has a label; `None`: a thread or a text that stands for a stack.
    kinds: HashMap<LabelId, FrameKind>,
    /// All paths one after the other, root first.
    steps: Vec<LabelId>,
    rows: Vec<Row>,
}

#[derive(Clone, Copy)]
struct Row {
    /// First step of the path in [`Paths::steps`].
    start: usize,
    /// Number of steps.
    len: usize,
    /// Samples.
    count: u64,
}

impl<'p> Paths<'p> {
    /// The paths of `profile`. Costs four bytes per frame of every distinct stack, and a sort.
    pub(crate) fn new(profile: &'p Profile) -> Paths<'p> {
        let mut labels = Labels::default();
        let mut of_frame: Vec<LabelId> = profile
            .frames
            .iter()
            .map(|frame| labels.intern(function_label(profile.strings.get(frame.name), frame.kind)))
            .collect();
        let mut of_thread: Vec<LabelId> =
            profile.threads.iter().map(|thread| labels.intern(thread_label(&thread.comm))).collect();
        labels.settle(&mut of_frame);
        labels.settle(&mut of_thread);
        let mut kinds = HashMap::new();
        for (&label, frame) in of_frame.iter().zip(profile.frames.iter()) {
            kinds.entry(label).or_insert(frame.kind);
        }
        let no_thread = labels.intern(Cow::Borrowed("[unknown]"));
        let no_stack = labels.intern(Cow::Borrowed("[no stack]"));

        let depth_of =
            |sample: &Sample| sample.stack.map_or(1, |stack| profile.stacks.leaf_first(stack).count());
        let mut steps = Vec::with_capacity(profile.samples.iter().map(|sample| 1 + depth_of(sample)).sum());
        let mut rows = Vec::with_capacity(profile.samples.len());
        for sample in &profile.samples {
            let start = steps.len();
            steps.push(of_thread.get(sample.thread.0 as usize).copied().unwrap_or(no_thread));
            match sample.stack {
                Some(stack) => {
                    steps.extend(profile.stacks.leaf_first(stack).map(|frame| of_frame[frame.0 as usize]));
                    steps[start + 1..].reverse();
                }
                None => steps.push(no_stack),
            }
            rows.push(Row { start, len: steps.len() - start, count: sample.count });
        }
        let mut paths = Paths { labels: labels.texts, kinds, steps, rows };
        paths.sort_and_merge();
        paths
    }

    fn sort_and_merge(&mut self) {
        let mut rows = std::mem::take(&mut self.rows);
        rows.sort_unstable_by(|a, b| self.compare_text(self.path(a), self.path(b)));
        rows.dedup_by(|later, kept| {
            let equal = self.path(later) == self.path(kept);
            if equal {
                kept.count += later.count;
            }
            equal
        });
        rows.retain(|row| row.count > 0);
        self.rows = rows;
    }

    fn path(&self, row: &Row) -> &[LabelId] {
        &self.steps[row.start..row.start + row.len]
    }

    /// The order of the two paths' texts as bytes, labels joined by `;`. Not the order label by label: `a b;c` comes before `a;c`, because
    /// a blank is less than a semicolon. Tools that merge sorted lines expect the former.
    fn compare_text(&self, a: &[LabelId], b: &[LabelId]) -> Ordering {
        let shared = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let (Some(&label_a), Some(&label_b)) = (a.get(shared), b.get(shared)) else {
            return a.len().cmp(&b.len());
        };
        let end_of = |path: &[LabelId]| (shared + 1 < path.len()).then_some(b';');
        let bytes_of = |label: LabelId| self.labels[label as usize].bytes();
        bytes_of(label_a).chain(end_of(a)).cmp(bytes_of(label_b).chain(end_of(b)))
    }

    /// Calls `each` with the labels of every path, root first, and its samples.
    pub(crate) fn for_each<E>(
        &self,
        mut each: impl FnMut(&mut dyn Iterator<Item = &str>, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for row in &self.rows {
            each(&mut self.path(row).iter().map(|&label| self.labels[label as usize].as_ref()), row.count)?;
        }
        Ok(())
    }

    /// Every label that occurs, and the kind of code it stands for; `None` for threads.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, Option<FrameKind>)> {
        let mut occurs = vec![false; self.labels.len()];
        for row in &self.rows {
            self.path(row).iter().for_each(|&label| occurs[label as usize] = true);
        }
        let labels = self.labels.iter().enumerate().filter(move |(label, _)| occurs[*label]);
        labels.map(|(label, text)| (text.as_ref(), self.kinds.get(&(label as LabelId)).copied()))
    }

    /// Frames of a flame graph of these paths.
    pub(crate) fn frame_count(&self) -> usize {
        let mut previous = &[][..];
        let mut frames = 0;
        for row in &self.rows {
            let path = self.path(row);
            frames += path.len() - path.iter().zip(previous).take_while(|(a, b)| a == b).count();
            previous = path;
        }
        frames
    }

    /// Samples of all paths.
    pub(crate) fn total_count(&self) -> u64 {
        self.rows.iter().map(|row| row.count).sum()
    }

    /// Cuts every path at the first frame that stands for fewer than `min_count` samples; its samples stay with the caller, so totals
    /// remain exact.
    pub(crate) fn cut_below(&mut self, min_count: u64) {
        let label_rank = self.label_ranks();
        let mut rows = std::mem::take(&mut self.rows);
        // Label by label, so that the rows of one subtree stand together.
        let rank = |label: &LabelId| label_rank[*label as usize];
        rows.sort_unstable_by(|a, b| self.path(a).iter().map(rank).cmp(self.path(b).iter().map(rank)));
        let mut kept_len: Vec<usize> = rows.iter().map(|row| row.len).collect();
        // The current path: for each frame the row where its subtree began, and the samples before it.
        let mut open: Vec<(usize, u64)> = Vec::new();
        let mut seen = 0;
        for number in 0..=rows.len() {
            let path = rows.get(number).map_or(&[][..], |row| self.path(row));
            let previous = number.checked_sub(1).map_or(&[][..], |number| self.path(&rows[number]));
            let shared = path.iter().zip(previous).take_while(|(a, b)| a == b).count();
            while open.len() > shared {
                let depth = open.len() - 1;
                if let Some((first, before)) = open.pop()
                    && seen - before < min_count
                    && depth > 0
                {
                    for len in &mut kept_len[first..number] {
                        *len = (*len).min(depth);
                    }
                }
            }
            open.resize(path.len(), (number, seen));
            seen += rows.get(number).map_or(0, |row| row.count);
        }
        for (row, len) in rows.iter_mut().zip(kept_len) {
            row.len = len;
        }
        self.rows = rows;
        self.sort_and_merge();
    }

    fn label_ranks(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.labels.len() as u32).collect();
        order.sort_unstable_by_key(|&label| &self.labels[label as usize]);
        let mut ranks = vec![0; order.len()];
        for (rank, label) in order.into_iter().enumerate() {
            ranks[label as usize] = rank as u32;
        }
        ranks
    }
}

#[derive(Default)]
struct Labels<'p> {
    texts: Vec<Cow<'p, str>>,
    index: HashMap<Cow<'p, str>, LabelId>,
}

impl<'p> Labels<'p> {
    fn intern(&mut self, label: Cow<'p, str>) -> LabelId {
        if let Some(&id) = self.index.get(&label) {
            return id;
        }
        let id = self.texts.len() as LabelId;
        self.texts.push(label.clone());
        self.index.insert(label, id);
        id
    }

    /// Takes the blank out of labels that stand in the way of another: as lines, `f (x) 1` sorts before `f 5`, but as stacks `f`
    /// comes before `f (x)`. inferno sorts lines and then insists on the order of stacks.
    fn settle(&mut self, ids: &mut [LabelId]) {
        for id in ids {
            let label = self.texts[*id as usize].clone();
            let in_the_way = |&(blank, _): &(usize, &str)| {
                label.as_bytes().get(blank + 1).is_some_and(|&next| next <= b'9')
                    && self.index.contains_key(&label[..blank])
            };
            if let Some((blank, _)) = label.match_indices(' ').find(in_the_way) {
                *id = self.intern(Cow::Owned(format!("{}_{}", &label[..blank], &label[blank + 1..])));
            }
        }
    }
}

/// The field's suffixes for kinds of code. Source: brendangregg/FlameGraph, `stackcollapse-perf.pl` (`--kernel`, `--jit`, `--inline`). It
/// has none for interpreted code, and the profilers of Python and Ruby that write folded stacks put none.
fn suffix(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Kernel => "_[k]",
        FrameKind::Inlined => "_[i]",
        FrameKind::Jit => "_[j]",
        FrameKind::Native | FrameKind::Unknown | FrameKind::Python | FrameKind::Ruby => "",
    }
}

fn function_label(name: &str, kind: FrameKind) -> Cow<'_, str> {
    let label = clean(name);
    match suffix(kind) {
        "" => label,
        suffix => Cow::Owned(label.into_owned() + suffix),
    }
}

fn thread_label(comm: &str) -> Cow<'_, str> {
    let label = clean(comm);
    // A line that starts with "# " is a comment.
    match label.strip_prefix("# ") {
        Some(rest) => Cow::Owned(format!("#_{rest}")),
        None => label,
    }
}

/// A label of one line that survives the syntax `label;label count`.
fn clean(name: &str) -> Cow<'_, str> {
    let trimmed = name.trim();
    let bad = |c: char| {
        c == ';' || (c.is_whitespace() && c != ' ') || matches!(c, '\u{FFFE}' | '\u{FFFF}') || c.is_control()
    };
    let mut label = crate::names::printable(trimmed);
    if trimmed.is_empty() {
        return Cow::Borrowed("[no name]");
    }
    if label.contains(bad) {
        let replaced = label.chars().map(|c| match c {
            ';' => ':',
            c if c.is_whitespace() => ' ',
            c if bad(c) => '\u{FFFD}',
            c => c,
        });
        label = Cow::Owned(replaced.collect());
    }
    // "a 12" as a leaf would read as two columns of counts.
    if let Some((before, last)) = label.rsplit_once(' ')
        && last.bytes().all(|b| b.is_ascii_digit() || b == b'.')
    {
        label = Cow::Owned(format!("{before}_{last}"));
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_survive_the_syntax() {
        for (name, label) in [
            ("plain", "plain"),
            ("a;b", "a:b"),
            ("two\nlines", "two\u{FFFD}lines"),
            ("  ", "[no name]"),
            ("", "[no name]"),
            (" ends ", "ends"),
            ("operator new 12", "operator new_12"),
            ("x 1 2", "x 1_2"),
            ("x 1.5", "x_1.5"),
            ("wide\u{3000}blank", "wide blank"),
        ] {
            assert_eq!(clean(name), label, "{name:?}");
        }
        assert_eq!(function_label("f", FrameKind::Kernel), "f_[k]");
        assert_eq!(function_label("f", FrameKind::Inlined), "f_[i]");
        assert_eq!(function_label("f", FrameKind::Jit), "f_[j]");
        assert_eq!(function_label("f", FrameKind::Python), "f");
        assert_eq!(function_label("f", FrameKind::Ruby), "f");
        assert_eq!(function_label("[x+0x1]", FrameKind::Unknown), "[x+0x1]");
        assert_eq!(thread_label("# no comment"), "#_no comment");
    }
}
