//! The unwind tables in the kernel: which objects have one, where it lies, what waits to be prepared, what has to go.
//!
//! An object is prepared when a stack passes through it for the first time; its table then serves each process that maps it, now and
//! later. What was prepared in an earlier run comes from the cache on disk.

use crate::cache::{Cache, user_folder};
use crate::error::{Error, Result};
use crate::ranges::Ranges;
use crate::workshop::{Job, Made, What, Workshop};
use lightfoot_interpreters::{Interpreter, Layouts};
use lightfoot_kernel::abi::{self, ObjectKey, ObjectState};
use lightfoot_kernel::os;
use lightfoot_kernel::tables::Tables;
use lightfoot_process::{ObjectId, Processes};
use lightfoot_unwind::{Options, Rule, Table};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Bounds of a [`Library`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    pub banks: u32,
    pub pages: u32,
    pub rules: u32,
    pub objects: u32,
    /// Rows of one table while it is made; `None`: as many as are made without a limit of memory.
    pub rows_of_one: Option<u32>,
}

/// What a library did, for the account and for tests.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    /// Tables made from the objects themselves.
    pub built: u64,
    /// Tables from the cache on disk.
    pub loaded: u64,
    /// Objects removed to make room.
    pub evicted: u64,
    /// Rows now in the kernel.
    pub rows: u64,
}

/// Objects that wait, as many as are compared to find the most wanted: each comparison is a system call.
const COMPARED_MAX: usize = 16;

/// Banks made at a time, at least.
const BANKS_AT_ONCE: u64 = 4;

/// Rows written in one piece, at least: half a millisecond. A large table has millions.
const ROWS_PER_PIECE: usize = 65_536;

/// Memory of a row while its table is made; what has to be unpacked for that gets as much.
const BYTES_PER_ROW: u64 = 20;

/// An object with a table in the kernel.
#[derive(Debug)]
struct Shelved {
    /// First index in the kernel's map and how many.
    pages: (u32, u32),
    /// Number of the first one.
    page_base: u32,
    /// (bank, first row, rows).
    runs: Vec<(u32, u32, u32)>,
    rules: Vec<u16>,
    interpreter: u32,
    /// The table's rows.
    rows: u64,
}

/// A table on its way into the kernel's maps.
#[derive(Debug)]
struct Shelving {
    key: ObjectKey,
    table: Table,
    interpreter: Option<Interpreter>,
    /// Numbers of the table's rules.
    rules: Vec<u16>,
    shelved: Shelved,
    pages: Vec<abi::Page>,
    /// Pages of the table that are written.
    written: usize,
}

/// An object that was announced.
#[derive(Clone, Debug)]
struct Waiting {
    key: ObjectKey,
    object: Option<ObjectId>,
}

/// Why an object has no table.
type Reason = String;
const NO_ROOM: &str = "no room for its unwind table (see --mem)";

/// What is known about an object's code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// It has no table.
    Nothing,
    /// It has none yet.
    NotYet,
    /// Its code pages from number `base` on lie in the kernel's map from index `first` on.
    Pages { first: u32, base: u32, count: u32 },
}

/// All tables.
#[derive(Debug)]
pub(crate) struct Library {
    room: Room,
    banks: Vec<Ranges>,
    pages: Ranges,
    rule_numbers: HashMap<Rule, u16>,
    /// By number: the rule, and how many objects use it.
    rule_users: HashMap<u16, (Rule, u32)>,
    rules: Ranges,
    interpreters: Ranges,
    shelved: HashMap<ObjectKey, Shelved>,
    without: HashMap<ObjectKey, Reason>,
    waiting: VecDeque<Waiting>,
    /// What the objects' interpreters are, by place in the kernel's map; remarks about those that cannot be read.
    remarks: Vec<String>,
    workshop: Workshop,
    shelving: Option<Shelving>,
    /// Objects that are interpreters.
    languages: HashMap<ObjectKey, Interpreter>,
    next_id: u32,
    changes: u64,
    counts: Counts,
}

impl Library {
    /// A library with nothing in it.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn new(room: Room) -> Result<Library> {
        let mut options = Options::default();
        if let Some(rows) = room.rows_of_one {
            options.rows_max = rows as usize;
            options.unpacked_limit_bytes = options.unpacked_limit_bytes.min(u64::from(rows) * BYTES_PER_ROW);
        }
        let (layouts, remark) = layouts();
        Ok(Library {
            room,
            banks: Vec::new(),
            pages: Ranges::new(0, room.pages),
            rule_numbers: HashMap::new(),
            rule_users: HashMap::new(),
            // Rule 0 says that nothing is known.
            rules: Ranges::new(1, room.rules),
            interpreters: Ranges::new(0, abi::INTERPRETERS),
            shelved: HashMap::new(),
            without: HashMap::new(),
            waiting: VecDeque::new(),
            remarks: remark.into_iter().collect(),
            workshop: Workshop::open(Cache::open(), layouts, options).map_err(Error::no_thread)?,
            shelving: None,
            languages: HashMap::new(),
            next_id: 1,
            changes: 0,
            counts: Counts::default(),
        })
    }

    /// Takes note of an object that the kernel announced.
    pub fn announced(&mut self, key: ObjectKey, object: Option<ObjectId>) {
        self.waiting.push_back(Waiting { key, object });
    }

    /// Why an object has no table, if it has none.
    pub fn why_without(&self, key: &ObjectKey) -> Option<&str> {
        self.without.get(key).map(String::as_str)
    }

    /// What is known about an object's code.
    pub fn known(&self, key: &ObjectKey) -> Known {
        match self.shelved.get(key) {
            Some(shelved) => {
                Known::Pages { first: shelved.pages.0, base: shelved.page_base, count: shelved.pages.1 }
            }
            None if self.without.contains_key(key) => Known::Nothing,
            None => Known::NotYet,
        }
    }

    /// Changes each time that something new is known about an object.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The interpreter that an object is.
    pub fn interpreter(&self, key: &ObjectKey) -> Option<&Interpreter> {
        self.languages.get(key)
    }

    /// What a user should know, one sentence each.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Whether an object waits or is being prepared.
    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || !self.workshop.is_idle() || self.shelving.is_some()
    }

    /// CPU time that tables may take from now on until the next call, in ns. Without a call there is no limit.
    pub fn allow(&self, ns: u64) {
        self.workshop.allow(ns);
    }

    /// Whether any of it is left, as far as this is known without a look at the thread's clock.
    pub fn may_go_on(&self) -> bool {
        self.workshop.may_go_on()
    }

    /// Charges work for tables that was done elsewhere, in ns.
    pub fn charge(&self, ns: u64) {
        self.workshop.charge(ns);
    }

    /// Has small files prepared first: what most programs share is small, and one large file must not keep all of them waiting.
    pub fn smallest_first(&mut self, processes: &mut Processes) {
        let size = |waiting: &Waiting| waiting.object.and_then(|id| Some(processes.open(id).ok()?.size));
        self.waiting.make_contiguous().sort_by_cached_key(size);
    }

    /// CPU time that tables took so far, in ns, what [`Library::work`] itself took not included.
    pub fn spent_ns(&self) -> u64 {
        self.workshop.spent_ns()
    }

    /// Prepares waiting objects for about `limit`. What is not ready by then goes on in the background. Returns how many are ready now.
    pub fn work(
        &mut self,
        kernel: &mut Tables<'_>,
        processes: &mut Processes,
        limit: Duration,
    ) -> Result<usize> {
        let start = Instant::now();
        let mut ready = 0;
        loop {
            while self.shelving.is_some() {
                if !self.workshop.may_go_on() {
                    return Ok(ready);
                }
                let before_ns = os::thread_cpu_ns();
                ready += usize::from(self.shelve_on(kernel)?);
                self.workshop.charge(os::thread_cpu_ns() - before_ns);
                if self.shelving.is_some() && start.elapsed() >= limit {
                    return Ok(ready);
                }
            }
            self.begin(kernel, processes)?;
            if self.workshop.is_idle() {
                return Ok(ready);
            }
            let Some(made) = self.workshop.wait(limit.saturating_sub(start.elapsed())) else {
                return Ok(ready);
            };
            self.publish(made, kernel)?;
            ready += usize::from(self.shelving.is_none());
        }
    }

    /// Gives the workshop something to do, if anything waits.
    fn begin(&mut self, kernel: &mut Tables<'_>, processes: &mut Processes) -> Result<()> {
        while self.workshop.is_idle()
            && let Some(waiting) = self.next(kernel)
        {
            let key = waiting.key;
            if self.shelved.contains_key(&key) {
                continue;
            }
            match what(&waiting, processes) {
                Ok(what) => self.workshop.begin(Job { key, what }),
                Err(reason) => self.leave_without(key, reason, kernel)?,
            }
        }
        Ok(())
    }

    /// The object without whose table most stacks were lost so far; of equal ones that which was met first.
    fn next(&mut self, kernel: &Tables<'_>) -> Option<Waiting> {
        let mut best = (0, 0);
        if self.waiting.len() > 1 {
            for (at, waiting) in self.waiting.iter().enumerate().take(COMPARED_MAX) {
                let missed = kernel.object(&waiting.key).map_or(0, |object| object.missed);
                if missed > best.0 {
                    best = (missed, at);
                }
            }
        }
        self.waiting.remove(best.1)
    }

    /// Begins to put a finished table into the kernel's maps.
    fn publish(&mut self, made: Made, kernel: &mut Tables<'_>) -> Result<()> {
        let key = made.key;
        self.remarks.extend(made.remark);
        if self.shelved.len() + self.without.len() + 1 >= self.room.objects as usize * 3 / 4 {
            self.forget(kernel, self.room.objects as usize / 8)?;
        }
        let (table, interpreter) = match made.result {
            Ok(found) => found,
            Err(reason) => return self.leave_without(key, reason, kernel),
        };
        if made.kept {
            self.counts.loaded += 1;
        } else {
            self.counts.built += 1;
        }
        for _ in 0..3 {
            if let Some((shelved, rules)) = self.lay_out(&table, kernel)? {
                let pages = vec![abi::Page::default(); shelved.pages.1 as usize];
                let shelving = Shelving { key, table, interpreter, rules, shelved, pages, written: 0 };
                self.shelving = Some(shelving);
                return Ok(());
            }
            if self.forget(kernel, (self.shelved.len() / 4).max(1))? == 0 {
                break;
            }
        }
        self.leave_without(key, NO_ROOM.into(), kernel)
    }

    /// Writes the next rows of the table that is on its way; whether that was the last of it.
    fn shelve_on(&mut self, kernel: &mut Tables<'_>) -> Result<bool> {
        let Some(mut shelving) = self.shelving.take() else { return Ok(true) };
        let mut rows = 0;
        let piece: Vec<(u32, Vec<u32>)> = shelving
            .table
            .pages()
            .skip(shelving.written)
            .map_while(|page| {
                let words = |(low, rule): (u16, u16)| {
                    u32::from(low) << 16 | u32::from(shelving.rules[usize::from(rule)])
                };
                let page = (rows < ROWS_PER_PIECE)
                    .then(|| (page.number, page.rows().map(words).collect::<Vec<u32>>()));
                rows += page.as_ref().map_or(0, |page| page.1.len());
                page
            })
            .collect();
        if piece.is_empty() {
            self.publish_shelved(shelving, kernel)?;
            return Ok(true);
        }
        shelving.written += piece.len();
        let free: u64 = self.banks.iter().map(|bank| u64::from(bank.free())).sum();
        let missing = (rows as u64 + piece.len() as u64).saturating_sub(free);
        // Some more than are needed now: it takes 10 ms, however many they are.
        self.add_banks(missing.div_ceil(abi::BANK_ROWS.into()).next_multiple_of(BANKS_AT_ONCE), kernel)?;
        let mut writes: HashMap<u32, Vec<(u32, Vec<u32>)>> = HashMap::new();
        for (number, rows) in piece {
            let Some((bank, at)) = self.find_rows(rows.len() as u32, kernel)? else {
                self.give_back(&shelving.shelved);
                self.leave_without(shelving.key, NO_ROOM.into(), kernel)?;
                return Ok(true);
            };
            shelving.shelved.runs.push((bank, at, rows.len() as u32));
            shelving.pages[(number - shelving.shelved.page_base) as usize] =
                abi::Page { first_row: bank << 16 | at, rows: rows.len() as u32 };
            writes.entry(bank).or_default().push((at, rows));
        }
        for (bank, runs) in &writes {
            kernel.write_rows(*bank, runs.iter().map(|(at, rows)| (*at, rows.as_slice())))?;
        }
        self.shelving = Some(shelving);
        Ok(false)
    }

    /// Room for rows, even if others have to go.
    fn find_rows(&mut self, rows: u32, kernel: &mut Tables<'_>) -> Result<Option<(u32, u32)>> {
        for _ in 0..3 {
            if let Some(found) = self.take_rows(rows, kernel)? {
                return Ok(Some(found));
            }
            if self.forget(kernel, (self.shelved.len() / 4).max(1))? == 0 {
                break;
            }
        }
        Ok(None)
    }

    /// Tells the kernel side of a table that is there now.
    fn publish_shelved(&mut self, shelving: Shelving, kernel: &mut Tables<'_>) -> Result<()> {
        let Shelving { key, interpreter, mut shelved, pages, .. } = shelving;
        kernel.write_pages(shelved.pages.0, &pages)?;
        if let Some(interpreter) = interpreter
            && let Some(at) = self.interpreters.take(1)
        {
            let told = abi::Interpreter {
                kind: interpreter.language as u32,
                version: interpreter.version.number(),
                symbols: interpreter.symbols,
                offsets: interpreter.offsets,
            };
            kernel.write_interpreter(at, &told)?;
            shelved.interpreter = at + 1;
            self.languages.insert(key, interpreter);
        }
        let object = abi::Object {
            id: self.next_id,
            state: ObjectState::Ready as u32,
            first_page: shelved.pages.0,
            pages: shelved.pages.1,
            page_base: shelved.page_base,
            interpreter: shelved.interpreter,
            ..kernel.object(&key).unwrap_or_default()
        };
        self.next_id += 1;
        self.changes += 1;
        kernel.put_object(&key, &object)?;
        self.counts.rows += shelved.rows;
        self.shelved.insert(key, shelved);
        Ok(())
    }

    fn leave_without(&mut self, key: ObjectKey, reason: Reason, kernel: &mut Tables<'_>) -> Result<()> {
        let object = abi::Object {
            id: self.next_id,
            state: ObjectState::NoTable as u32,
            ..kernel.object(&key).unwrap_or_default()
        };
        self.next_id += 1;
        self.changes += 1;
        self.without.insert(key, reason);
        Ok(kernel.put_object(&key, &object)?)
    }

    /// Room for a table's pages and numbers for its rules; `None` if there is none.
    fn lay_out(&mut self, table: &Table, kernel: &mut Tables<'_>) -> Result<Option<(Shelved, Vec<u16>)>> {
        let mut shelved = Shelved {
            pages: (0, 0),
            page_base: 0,
            runs: vec![],
            rules: vec![],
            interpreter: 0,
            rows: table.rows.len() as u64,
        };
        let (Some(first), Some(last)) = (table.rows.first(), table.rows.last()) else {
            return Ok(Some((shelved, vec![])));
        };
        let page_base = first.offset >> 16;
        let count = (last.offset >> 16) - page_base + 1;
        let Some(rules) = self.take_rules(table, &mut shelved, kernel)? else {
            self.give_back(&shelved);
            return Ok(None);
        };
        let Some(first_page) = self.pages.take(count) else {
            self.give_back(&shelved);
            return Ok(None);
        };
        shelved.pages = (first_page, count);
        shelved.page_base = page_base;
        Ok(Some((shelved, rules)))
    }

    /// Numbers of a table's rules; `None` if there are too many distinct ones in all objects.
    fn take_rules(
        &mut self,
        table: &Table,
        shelved: &mut Shelved,
        kernel: &mut Tables<'_>,
    ) -> Result<Option<Vec<u16>>> {
        let mut numbers = Vec::with_capacity(table.rules.len());
        let mut fresh = Vec::new();
        for rule in &table.rules {
            if *rule == Rule::NONE {
                numbers.push(0);
                continue;
            }
            let number = match self.rule_numbers.get(rule) {
                Some(&number) => number,
                None => {
                    let Some(number) = self.rules.take(1) else { return Ok(None) };
                    fresh.push((number, rule.to_bytes()));
                    self.rule_numbers.insert(*rule, number as u16);
                    number as u16
                }
            };
            self.rule_users.entry(number).or_insert((*rule, 0)).1 += 1;
            shelved.rules.push(number);
            numbers.push(number);
        }
        kernel.write_rules(&fresh)?;
        Ok(Some(numbers))
    }

    /// Room for rows in one piece: (bank, first row).
    fn take_rows(&mut self, rows: u32, kernel: &mut Tables<'_>) -> Result<Option<(u32, u32)>> {
        if rows > abi::BANK_ROWS {
            return Ok(None);
        }
        for (bank, ranges) in self.banks.iter_mut().enumerate() {
            if let Some(at) = ranges.take(rows) {
                return Ok(Some((bank as u32, at)));
            }
        }
        let before = self.banks.len();
        self.add_banks(1, kernel)?;
        let fresh = self.banks.get_mut(before);
        Ok(fresh.and_then(|ranges| ranges.take(rows)).map(|at| (before as u32, at)))
    }

    /// Makes so many banks, or as many as there is room for.
    fn add_banks(&mut self, count: u64, kernel: &mut Tables<'_>) -> Result<()> {
        let room = self.room.banks.min(abi::BANKS).saturating_sub(self.banks.len() as u32);
        let count = count.min(room.into()) as u32;
        if count > 0 {
            kernel.add_banks(count)?;
            self.banks.extend((0..count).map(|_| Ranges::new(0, abi::BANK_ROWS)));
        }
        Ok(())
    }

    /// Gives memory back: forgets a quarter of the objects, those used longest ago, and removes the last banks as far as they are empty. Their number.
    pub fn shrink(&mut self, kernel: &mut Tables<'_>) -> Result<u32> {
        self.forget(kernel, (self.shelved.len() / 4).max(1))?;
        let used =
            self.banks.iter().rposition(|bank| bank.free() < abi::BANK_ROWS).map_or(0, |last| last + 1);
        // One stays: the barrier needs it.
        let removed = (self.banks.len() - used.max(1).min(self.banks.len())) as u32;
        kernel.remove_banks(removed)?;
        self.banks.truncate(self.banks.len() - removed as usize);
        Ok(removed)
    }

    /// Forgets up to `count` objects, those used longest ago first. How many it were.
    fn forget(&mut self, kernel: &mut Tables<'_>, count: usize) -> Result<usize> {
        let mut by_use: Vec<(u64, ObjectKey)> = self
            .shelved
            .keys()
            .chain(self.without.keys())
            .map(|key| (kernel.object(key).map_or(0, |object| object.used_ns), *key))
            .collect();
        by_use.sort_unstable();
        by_use.truncate(count);
        for (_, key) in &by_use {
            kernel.remove_object(key)?;
        }
        // Only when no walk can be reading them any more may their places be given to others.
        kernel.barrier()?;
        for (_, key) in &by_use {
            self.without.remove(key);
            if let Some(shelved) = self.shelved.remove(key) {
                self.give_back(&shelved);
                self.counts.rows -= shelved.rows;
            }
        }
        self.counts.evicted += by_use.len() as u64;
        Ok(by_use.len())
    }

    fn give_back(&mut self, shelved: &Shelved) {
        self.pages.give_back(shelved.pages.0, shelved.pages.1);
        for &(bank, at, rows) in &shelved.runs {
            self.banks[bank as usize].give_back(at, rows);
        }
        if shelved.interpreter > 0 {
            self.interpreters.give_back(shelved.interpreter - 1, 1);
        }
        for number in &shelved.rules {
            let Some((rule, users)) = self.rule_users.get_mut(number) else { continue };
            *users -= 1;
            if *users == 0 {
                self.rule_numbers.remove(rule);
                self.rule_users.remove(number);
                self.rules.give_back(u32::from(*number), 1);
            }
        }
    }
}

/// What an object's table is made of, or why there can be none.
fn what(waiting: &Waiting, processes: &mut Processes) -> std::result::Result<What, Reason> {
    if waiting.key.device == abi::VDSO_DEVICE {
        return Ok(What::Vdso);
    }
    let id = waiting.object.ok_or("too many files")?;
    let path = processes.objects()[id.0 as usize].path().to_path_buf();
    let open = processes.open(id)?;
    Ok(What::File { file: open.file, size: open.size, path })
}

/// Layouts of interpreters: our own, and the user's (`$XDG_CONFIG_HOME/lightfoot/interpreters` or `~/.config/lightfoot/interpreters`); and
/// what is wrong with the user's. That must not end the run: those before it count.
fn layouts() -> (Layouts, Option<String>) {
    let mut layouts = Layouts::built_in();
    let folder = user_folder("XDG_CONFIG_HOME", ".config").map(|base| base.join("lightfoot/interpreters"));
    let wrong = folder.filter(|folder| folder.is_dir()).and_then(|folder| layouts.add_folder(&folder).err());
    (layouts, wrong.map(|error| format!("a layout of an interpreter is left out, and all after it: {error}")))
}
