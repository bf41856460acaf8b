//! Where unwind tables are made: a thread of its own, so that a large object does not keep samples waiting, and a gate that it passes each
//! time it reads, so that a budget can spread the work over as long as it takes.

use crate::cache::{Cache, key_of};
use lightfoot_interpreters::{Detected, Interpreter, Layouts};
use lightfoot_kernel::abi::ObjectKey;
use lightfoot_kernel::os::{self, Hurry};
use lightfoot_unwind::{BuildError, Options, ReadAt, Table};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// `LF_RULE_INTERPRETER`.
const INTERPRETER: u8 = 1;
/// Between two passes of the gate: rows of 256 KiB of call frame information.
const PIECE_NS: u64 = 3_000_000;
/// While sampling: stacks wait for tables, and processes that end cannot be asked any more. Where all CPUs are busy a thread of ordinary
/// priority gets its share of them, not what it needs; what it may use is bounded by other means.
pub(crate) const AT_WORK_NICENESS: i32 = -10;
/// The thread's stack; only what is touched takes memory.
const STACK_BYTES: usize = 1 << 20;

/// An object that needs a table.
#[derive(Debug)]
pub(crate) struct Job {
    pub key: ObjectKey,
    pub what: What,
}

/// What the table is made of.
#[derive(Debug)]
pub(crate) enum What {
    /// The kernel's own shared object.
    Vdso,
    /// An open file.
    File { file: File, size: u64, path: PathBuf },
}

/// What became of a job.
#[derive(Debug)]
pub(crate) struct Made {
    pub key: ObjectKey,
    /// The table, and the interpreter if the object is one; or why there is none.
    pub result: Result<(Table, Option<Interpreter>), String>,
    /// What a user should know.
    pub remark: Option<String>,
    /// The table was kept from an earlier run.
    pub kept: bool,
}

/// The thread. Dropping it ends what it is doing.
#[derive(Debug)]
pub(crate) struct Workshop {
    jobs: Option<Sender<Job>>,
    made: Receiver<Made>,
    gate: Arc<Gate>,
    thread: Option<JoinHandle<()>>,
    idle: bool,
}

impl Workshop {
    /// Starts the thread, which builds tables with these options; nothing is held back until [`Workshop::allow`] is called.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn open(cache: Cache, layouts: Layouts, options: Options) -> std::io::Result<Workshop> {
        let (jobs, next) = channel();
        let (finished, made) = channel();
        let gate = Arc::new(Gate::default());
        let passed = Arc::clone(&gate);
        let thread = std::thread::Builder::new()
            .name("lightfoot-rows".into())
            .stack_size(STACK_BYTES)
            .spawn(move || Worker { cache, layouts, options, gate: passed }.run(&next, &finished))?;
        Ok(Workshop { jobs: Some(jobs), made, gate, thread: Some(thread), idle: true })
    }

    /// Whether a job may be given.
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// Begins with a job. There is one at a time, so that the next one can be chosen as late as possible.
    pub fn begin(&mut self, job: Job) {
        // Fails only if the thread has panicked; then nothing is ever made.
        self.idle = self.jobs.as_ref().is_none_or(|jobs| jobs.send(job).is_err());
    }

    /// Waits for the job at most so long.
    pub fn wait(&mut self, timeout: Duration) -> Option<Made> {
        let made = self.made.recv_timeout(timeout).ok();
        self.idle |= made.is_some();
        made
    }

    /// CPU time that may be used from now on until the next call, in ns.
    pub fn allow(&self, ns: u64) {
        self.gate.allow(ns);
    }

    /// Whether there is CPU time left that may be used.
    pub fn may_go_on(&self) -> bool {
        self.gate.lock().left_ns != Some(0)
    }

    /// Charges what another thread used for tables, in ns. It is not in [`Workshop::spent_ns`].
    pub fn charge(&self, ns: u64) {
        let mut state = self.gate.lock();
        state.left_ns = state.left_ns.map(|left| left.saturating_sub(ns));
        state.fresh = false;
    }

    /// CPU time used so far, in ns.
    pub fn spent_ns(&self) -> u64 {
        self.gate.lock().spent_ns
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        self.jobs = None;
        self.gate.close();
        if let Some(thread) = self.thread.take() {
            // It has panicked, or has tidied up.
            thread.join().ok();
        }
    }
}

/// CPU time that the thread may use.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// `None`: no limit.
    left_ns: Option<u64>,
    /// Nothing of it was used.
    fresh: bool,
    spent_ns: u64,
    closed: bool,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allow(&self, ns: u64) {
        let mut state = self.lock();
        state.left_ns = Some(ns);
        state.fresh = true;
        if ns > 0 {
            self.changed.notify_all();
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Called by the thread with its CPU clock: charges what was used, and waits until more may be. False if the run is over.
    fn pass(&self, cpu_ns: u64) -> bool {
        let mut state = self.lock();
        let used = cpu_ns.saturating_sub(state.spent_ns);
        state.spent_ns += used;
        state.left_ns = state.left_ns.map(|left| left.saturating_sub(used));
        // The next piece may be as long as PIECE_NS: it begins only if that is left, or if nothing was used of little.
        let too_little =
            |state: &State| state.left_ns.is_some_and(|left| left == 0 || left < PIECE_NS && !state.fresh);
        while too_little(&state) && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.fresh = false;
        !state.closed
    }
}

struct Worker {
    cache: Cache,
    layouts: Layouts,
    options: Options,
    gate: Arc<Gate>,
}

impl Worker {
    fn run(mut self, jobs: &Receiver<Job>, made: &Sender<Made>) {
        // Not allowed without CAP_SYS_NICE: then tables take longer where all CPUs are busy.
        let _hurry = Hurry::new(AT_WORK_NICENESS);
        while let Ok(job) = jobs.recv() {
            if !self.gate.pass(os::thread_cpu_ns()) {
                break;
            }
            let done = self.make(job);
            if !self.gate.pass(os::thread_cpu_ns()) || made.send(done).is_err() {
                break;
            }
        }
        self.cache.tidy();
    }

    fn make(&mut self, job: Job) -> Made {
        let mut made = Made { key: job.key, result: Err(String::new()), remark: None, kept: false };
        made.result = match job.what {
            What::Vdso => vdso().map(|table| (table, None)),
            What::File { file, size, path } => {
                let bytes = FileBytes { file, size, gate: Arc::clone(&self.gate) };
                self.table_of(&bytes, &path, &mut made)
            }
        };
        made
    }

    fn table_of(
        &mut self,
        bytes: &FileBytes,
        path: &Path,
        made: &mut Made,
    ) -> Result<(Table, Option<Interpreter>), String> {
        let mut table = self.load_or_build(bytes, path, made).map_err(|e| e.to_string())?;
        match lightfoot_interpreters::detect(bytes, &path.to_string_lossy(), &self.layouts) {
            Detected::Nothing => Ok((table, None)),
            Detected::Unsupported { language, reason } => {
                made.remark =
                    Some(format!("{language} frames of {} are not shown: {reason}", path.display()));
                Ok((table, None))
            }
            Detected::Interpreter(found) => {
                table.mark(&found.loop_code, INTERPRETER);
                Ok((table, Some(*found)))
            }
        }
    }

    fn load_or_build(
        &mut self,
        bytes: &FileBytes,
        path: &Path,
        made: &mut Made,
    ) -> Result<Table, BuildError> {
        let elf = lightfoot_unwind::Elf::parse(bytes)?;
        let key = bytes.file.metadata().ok().map(|metadata| key_of(&elf.build_id, path, &metadata));
        let pause = || bytes.pause();
        let rows_max = self.options.rows_max;
        if let Some(table) = key.as_ref().and_then(|key| self.cache.load(key, rows_max, &pause)) {
            made.kept = true;
            return Ok(table);
        }
        let table = Table::build(bytes, &self.options)?;
        let left_out = table.stats.left_out;
        if left_out > 0 {
            made.remark = Some(format!(
                "{left_out} of {} functions of {} have no unwind table: no room for more than {rows_max} rows (see --mem)",
                table.stats.functions + left_out,
                path.display()
            ));
        }
        // Of a file that could not be read to its end, because the run is over, there is only half a table.
        if let Some(key) = key.filter(|_| left_out == 0 && !self.gate.lock().closed) {
            self.cache.store(&key, &table, &pause);
        }
        Ok(table)
    }
}

fn vdso() -> Result<Table, String> {
    let image = lightfoot_symbolize::vdso_image().ok_or("the vDSO cannot be read")?;
    Table::build(&image, &Options::default()).map_err(|e| e.to_string())
}

/// A file as bytes, behind the gate.
#[derive(Debug)]
struct FileBytes {
    file: File,
    size: u64,
    gate: Arc<Gate>,
}

impl ReadAt for FileBytes {
    fn len(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        if !self.gate.pass(os::thread_cpu_ns()) {
            return None;
        }
        self.file.read_exact_at(into, offset).ok()
    }

    fn pause(&self) {
        // Whether the run is over is asked where something is read next.
        self.gate.pass(os::thread_cpu_ns());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn the_gate_charges_and_holds_back_until_more_is_allowed() {
        let gate = Arc::new(Gate::default());
        assert!(gate.pass(1_000), "no limit yet");
        gate.allow(4_000_000);
        assert!(gate.pass(1_400), "enough is left for another piece");
        gate.allow(500);
        assert!(gate.pass(1_400), "little, but all of it");
        let passed = Arc::new(AtomicU64::new(0));
        let thread = {
            let (gate, passed) = (Arc::clone(&gate), Arc::clone(&passed));
            std::thread::spawn(move || {
                let went_on = gate.pass(1_600);
                passed.store(1, Ordering::SeqCst);
                went_on
            })
        };
        while gate.lock().spent_ns < 1_600 {
            std::thread::yield_now();
        }
        assert_eq!(passed.load(Ordering::SeqCst), 0, "100 too many: it waits");
        gate.allow(1);
        assert!(thread.join().unwrap());
        assert_eq!(gate.lock().spent_ns, 1_600);
        gate.allow(0);
        gate.close();
        assert!(!gate.pass(9_000), "nobody waits for what is closed");
    }

    #[test]
    fn a_large_object_waits_for_its_allowance_and_the_table_is_the_same() {
        let path = std::env::current_exe().unwrap();
        let whole = Table::build(&std::fs::read(&path).unwrap(), &Options::default()).unwrap();
        let mut workshop = Workshop::open(Cache::none(), Layouts::built_in(), Options::default()).unwrap();
        workshop.allow(0);
        let file = File::open(&path).unwrap();
        let size = file.metadata().unwrap().len();
        let key = ObjectKey { inode: 1, device: 2, generation: 3 };
        workshop.begin(Job { key, what: What::File { file, size, path } });
        assert!(workshop.wait(Duration::from_millis(20)).is_none(), "nothing is allowed");
        let mut grants = 0;
        let made = loop {
            workshop.allow(1_000_000);
            grants += 1;
            if let Some(made) = workshop.wait(Duration::from_millis(100)) {
                break made;
            }
        };
        assert!(grants > 1, "it is a program of several MB");
        assert!(workshop.spent_ns() > 1_000_000);
        assert_eq!(made.result.unwrap().0, whole);
    }

    #[test]
    fn dropping_it_ends_a_job_that_waits() {
        let mut workshop = Workshop::open(Cache::none(), Layouts::built_in(), Options::default()).unwrap();
        workshop.allow(0);
        let file = File::open("/proc/self/exe").unwrap();
        let size = file.metadata().unwrap().len();
        let key = ObjectKey { inode: 1, device: 2, generation: 3 };
        workshop.begin(Job { key, what: What::File { file, size, path: "x".into() } });
        drop(workshop);
    }
}
