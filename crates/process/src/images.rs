//! Images: what a process had mapped between two `exec`s.

use crate::jit::JitId;
use crate::table::{Gauge, Table};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Memory of one image besides its table, in bytes: an estimate that rounds up.
pub(crate) const IMAGE_BYTES: usize = 192;
/// Longest wait between two readings of a whole table, in ns of event time.
const READ_PAUSE_NS_MAX: u64 = 64_000_000_000;

/// The current image of a living process.
#[derive(Debug)]
pub(crate) struct Image {
    /// Shared with the parent until either changes.
    pub table: Rc<Table>,
    /// Start of the image, `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// Start of the process in clock ticks since boot, known once it was read from `/proc`.
    pub start_ticks: Option<u64>,
    /// Whether the table holds all mappings: it was read, or all events since the `exec` were seen.
    pub complete: bool,
    /// Reading failed: what is known is all there will be.
    pub unreadable: bool,
    /// Losses of events when the table was last known to be right.
    pub epoch: u64,
    pub jit: Option<JitId>,
    /// Look-ups after misses in the current second of event time.
    lookups: u32,
    second: u64,
    /// No reading of the whole table before this time, and the pause after the next one.
    read_after_ns: u64,
    read_pause_ns: u64,
}

impl Image {
    /// An image of which nothing is known yet.
    pub fn unread(from_ns: u64, epoch: u64, gauge: &Gauge) -> Image {
        Image {
            table: Rc::new(Table::new(gauge)),
            from_ns,
            start_ticks: None,
            complete: false,
            unreadable: false,
            epoch,
            jit: None,
            lookups: 0,
            second: 0,
            read_after_ns: 0,
            read_pause_ns: 1_000_000_000,
        }
    }

    /// The image behind an `exec`: every mapping will come as an event.
    pub fn replaced(from_ns: u64, epoch: u64, gauge: &Gauge) -> Image {
        Image { complete: true, ..Image::unread(from_ns, epoch, gauge) }
    }

    /// The image of a child.
    pub fn fork(&self, time_ns: u64, gauge: &Gauge) -> Image {
        Image {
            table: Rc::clone(&self.table),
            complete: self.complete && !self.unreadable,
            ..Image::unread(time_ns, self.epoch, gauge)
        }
    }

    /// Whether one more address may be looked up now; counts it.
    pub fn may_look_up(&mut self, time_ns: u64, per_second: u32) -> bool {
        let second = time_ns / 1_000_000_000;
        if second != self.second {
            (self.second, self.lookups) = (second, 0);
        }
        self.lookups = self.lookups.saturating_add(1);
        self.lookups <= per_second
    }

    /// Whether the whole table may be read again now; the pause doubles each time.
    pub fn may_read_again(&mut self, time_ns: u64) -> bool {
        if time_ns < self.read_after_ns {
            return false;
        }
        self.read_after_ns = time_ns.saturating_add(self.read_pause_ns);
        self.read_pause_ns = (self.read_pause_ns * 2).min(READ_PAUSE_NS_MAX);
        true
    }

    /// Why an address was not found.
    pub fn miss_reason(&self) -> &'static str {
        if self.unreadable && self.table.len() == 0 {
            "mappings unreadable or process gone"
        } else {
            "not mapped"
        }
    }
}

/// An image that ended.
#[derive(Debug)]
pub(crate) struct Closed {
    pub pid: u32,
    pub from_ns: u64,
    pub until_ns: u64,
    pub table: Rc<Table>,
    pub jit: Option<JitId>,
    /// Losses of events before the end.
    pub epoch: u64,
}

/// Images that ended.
#[derive(Debug, Default)]
pub(crate) struct Exited {
    /// By process id and end.
    images: BTreeMap<(u32, u64), Closed>,
    /// Keys of `images`, oldest end first.
    order: VecDeque<(u32, u64)>,
}

impl Exited {
    /// Adds an image that ended.
    pub fn add(&mut self, closed: Closed) {
        let key = (closed.pid, closed.until_ns);
        if self.images.insert(key, closed).is_none() {
            self.order.push_back(key);
        }
    }

    /// Forgets the image that ended first; false if there is none.
    pub fn forget_oldest(&mut self) -> bool {
        let Some(key) = self.order.pop_front() else { return false };
        self.images.remove(&key);
        true
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.images.len()
    }

    /// The image of `pid` that was current at `time_ns`; the last one that ended before if there is no such.
    pub fn at(&self, pid: u32, time_ns: u64) -> Option<&Closed> {
        let later = self.images.range((pid, time_ns.saturating_add(1))..=(pid, u64::MAX)).next();
        let later = later.filter(|(_, image)| image.from_ns <= time_ns);
        let last = || self.images.range((pid, 0)..=(pid, time_ns)).next_back();
        later.or_else(last).map(|(_, image)| image)
    }

    /// When the last image of `pid` ended; 0 if there was none.
    pub fn last_end_ns(&self, pid: u32) -> u64 {
        self.images.range((pid, 0)..=(pid, u64::MAX)).next_back().map_or(0, |((_, end), _)| *end)
    }
}
