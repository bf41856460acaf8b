//! The maps that hold unwind tables. What is written where is the caller's decision (crate `sampler`); here it is only written.

use crate::abi::{self, Interpreter, Live, ObjectKey, Page};
use crate::mmap::Shared;
use crate::sampler::map;
use crate::{Error, Result, os};
use libbpf_rs::{MapCore, MapFlags, Object};
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

const BANK_BYTES: usize = abi::BANK_ROWS as usize * 4;
/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;

/// The kernel's side of all unwind tables.
#[derive(Debug)]
pub struct Tables<'a> {
    object: &'a Object,
    banks: &'a mut Vec<OwnedFd>,
}

impl<'a> Tables<'a> {
    pub(crate) fn new(object: &'a Object, banks: &'a mut Vec<OwnedFd>) -> Tables<'a> {
        Tables { object, banks }
    }

    /// Banks made so far. Rows may be written to these and to the next one.
    pub fn banks(&self) -> u32 {
        self.banks.len() as u32
    }

    /// Memory of all banks, in bytes.
    pub fn bank_bytes(&self) -> u64 {
        (self.banks.len() * BANK_BYTES) as u64
    }

    /// Makes so many more banks for rows, 256 KiB each, all at once: each change of the map of banks waits until no program runs that
    /// could still see the old ones (some 10 ms).
    ///
    /// # Errors
    /// The errno of `bpf(2)`.
    pub fn add_banks(&mut self, count: u32) -> Result<()> {
        let first = self.banks();
        for _ in 0..count {
            self.banks.push(new_bank()?);
        }
        let keys: Vec<u32> = (first..self.banks()).collect();
        let fds: Vec<i32> = self.banks[first as usize..].iter().map(AsRawFd::as_raw_fd).collect();
        let result = self.put_banks(&keys, &fds);
        if result.is_err() {
            self.banks.truncate(first as usize);
        }
        result
    }

    /// Removes so many banks, the last ones. No object may have rows there any more.
    ///
    /// # Errors
    /// What libbpf says if one is not there.
    pub fn remove_banks(&mut self, count: u32) -> Result<()> {
        for _ in 0..count.min(self.banks()) {
            let last = self.banks() - 1;
            map(self.object, "banks")?
                .delete(&last.to_ne_bytes())
                .map_err(|e| Error::libbpf("cannot remove a bank of unwind rows", e, String::new()))?;
            self.banks.pop();
        }
        Ok(())
    }

    fn put_banks(&self, keys: &[u32], fds: &[i32]) -> Result<()> {
        let mut count = keys.len() as u32;
        let map = map(self.object, "banks")?;
        // SAFETY: `keys` and `fds` have `count` elements of 4 bytes each, the map's sizes, and live until the call returns.
        let result = unsafe {
            libbpf_sys::bpf_map_update_batch(
                map.as_fd().as_raw_fd(),
                keys.as_ptr().cast(),
                fds.as_ptr().cast(),
                &raw mut count,
                std::ptr::null(),
            )
        };
        if result == 0 {
            return Ok(());
        }
        // Before Linux 5.15 only one by one.
        keys.iter()
            .zip(fds)
            .try_for_each(|(key, fd)| self.update("banks", &key.to_ne_bytes(), &fd.to_ne_bytes()))
    }

    /// Writes runs of rows to a bank: each (first row, rows).
    ///
    /// # Errors
    /// The errno of `mmap(2)`.
    ///
    /// # Panics
    /// If there is no such bank, or the rows do not fit.
    pub fn write_rows<'r>(&self, bank: u32, runs: impl IntoIterator<Item = (u32, &'r [u32])>) -> Result<()> {
        // Mapped for the moment only: our resident memory would count what the map's memory counts already.
        let memory = Shared::map(self.banks[bank as usize].as_fd(), BANK_BYTES, true, "a bank")?;
        for (at, rows) in runs {
            memory.write_u32(at as usize * 4, rows);
        }
        Ok(())
    }

    /// Writes code pages from index `at` on.
    ///
    /// # Errors
    /// The errno of `mmap(2)`.
    ///
    /// # Panics
    /// If there is no such index.
    pub fn write_pages(&self, at: u32, pages: &[Page]) -> Result<()> {
        let words: Vec<u32> = pages.iter().flat_map(|page| [page.first_row, page.rows]).collect();
        self.map_array("pages", size_of::<Page>())?.write_u32(at as usize * size_of::<Page>(), &words);
        Ok(())
    }

    /// Writes rules: each (number, bytes).
    ///
    /// # Errors
    /// The errno of `mmap(2)`.
    ///
    /// # Panics
    /// If there is no such number.
    pub fn write_rules(&self, rules: &[(u32, [u8; abi::RULE_BYTES])]) -> Result<()> {
        if rules.is_empty() {
            return Ok(());
        }
        let memory = self.map_array("rules", abi::RULE_BYTES)?;
        for (number, bytes) in rules {
            let mut words = [0u32; abi::RULE_BYTES / 4];
            for (word, four) in words.iter_mut().zip(bytes.chunks_exact(4)) {
                *word = u32::from_ne_bytes(four.try_into().expect("4 bytes"));
            }
            memory.write_u32(*number as usize * abi::RULE_BYTES, &words);
        }
        Ok(())
    }

    /// The tables as they are now, to be read as the programs read them.
    pub fn rows(&self) -> Rows<'_> {
        Rows { tables: self, arrays: OnceCell::new(), banks: RefCell::new(HashMap::new()) }
    }

    /// Writes what is known about an interpreter.
    ///
    /// # Errors
    /// What libbpf says if there is no such index.
    pub fn write_interpreter(&self, at: u32, interpreter: &Interpreter) -> Result<()> {
        self.update("interpreters", &at.to_ne_bytes(), plain_bytes(interpreter))
    }

    /// Publishes an object. Its rows and pages must have been written.
    ///
    /// # Errors
    /// What libbpf says if there is no room.
    pub fn put_object(&self, key: &ObjectKey, object: &abi::Object) -> Result<()> {
        self.update("objects", plain_bytes(key), plain_bytes(object))?;
        self.objects_changed()
    }

    /// What the kernel side knows about an object: its use above all.
    pub fn object(&self, key: &ObjectKey) -> Option<abi::Object> {
        let value = map(self.object, "objects").ok()?.lookup(plain_bytes(key), MapFlags::ANY).ok()??;
        let word = |at: usize| u32::from_ne_bytes(value[at * 4..at * 4 + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from_ne_bytes(value[at..at + 8].try_into().expect("8 bytes"));
        (value.len() == size_of::<abi::Object>()).then(|| abi::Object {
            id: word(0),
            state: word(1),
            first_page: word(2),
            pages: word(3),
            page_base: word(4),
            interpreter: word(5),
            used_ns: long(24),
            missed: long(32),
        })
    }

    /// Forgets an object: it will be announced again when a stack passes through it.
    ///
    /// # Errors
    /// What libbpf says if it is not there.
    pub fn remove_object(&self, key: &ObjectKey) -> Result<()> {
        map(self.object, "objects")?.delete(plain_bytes(key)).map_err(|e| {
            Error::libbpf("cannot remove an object from the BPF map objects", e, String::new())
        })?;
        self.objects_changed()
    }

    /// What the programs keep of objects from one walk to the next holds no more.
    fn objects_changed(&self) -> Result<()> {
        const NAME: &str = "objects_changed";
        let key = 0u32.to_ne_bytes();
        let value = map(self.object, NAME)?.lookup(&key, MapFlags::ANY).ok().flatten();
        let count = value.and_then(|bytes| Some(u64::from_ne_bytes(bytes.try_into().ok()?))).unwrap_or(0);
        self.update(NAME, &key, &(count + 1).to_ne_bytes())
    }

    /// Returns when no program can be reading any more what was removed before. Takes some 10 ms of waiting.
    ///
    /// # Errors
    /// As for every update of a map.
    pub fn barrier(&self) -> Result<()> {
        // Each update of a map of maps waits for all running programs: kernel/bpf/syscall.c, maybe_wait_bpf_programs().
        match self.banks.first() {
            Some(bank) => self.put_banks(&[0], &[bank.as_raw_fd()]),
            None => Ok(()),
        }
    }

    /// Changes what may change while the programs run.
    ///
    /// # Errors
    /// As for every update of a map.
    pub fn set_live(&self, live: &Live) -> Result<()> {
        self.update("live", &0u32.to_ne_bytes(), plain_bytes(live))
    }

    /// Mapped for the moment only, as a bank is.
    fn map_array(&self, name: &str, value_bytes: usize) -> Result<Shared> {
        let map = map(self.object, name)?;
        let bytes = (map.max_entries() as usize * value_bytes).next_multiple_of(os::page_bytes());
        Shared::map(map.as_fd(), bytes, true, name)
    }

    fn update(&self, name: &str, key: &[u8], value: &[u8]) -> Result<()> {
        crate::sampler::put(self.object, name, key, value)
    }
}

fn new_bank() -> Result<OwnedFd> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: MMAPABLE,
        ..Default::default()
    };
    // SAFETY: the name is NUL-terminated and `options` says its own size; the kernel copies both.
    let fd = unsafe {
        libbpf_sys::bpf_map_create(
            libbpf_sys::BPF_MAP_TYPE_ARRAY,
            c"bank".as_ptr(),
            4,
            BANK_BYTES as u32,
            1,
            &raw const options,
        )
    };
    if fd < 0 {
        return Err(Error::io("cannot make a bank for unwind rows", io::Error::from_raw_os_error(-fd)));
    }
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Rows, pages and rules, mapped as far as they are asked for, for as long as this lives.
#[derive(Debug)]
pub struct Rows<'a> {
    tables: &'a Tables<'a>,
    arrays: OnceCell<Option<(Shared, Shared)>>,
    banks: RefCell<HashMap<u32, Option<Shared>>>,
}

impl Rows<'_> {
    /// The rule for a file offset in code page number `page` of [`Tables::write_pages`]; the same as `find_rule` in `bpf/walk.h`. Rule 0,
    /// which says that nothing is known, where there is no row. `None` if the maps cannot be read.
    pub fn rule(&self, page: u32, offset: u64) -> Option<[u8; abi::RULE_BYTES]> {
        let arrays = self.arrays.get_or_init(|| {
            let pages = self.tables.map_array("pages", size_of::<Page>()).ok()?;
            Some((pages, self.tables.map_array("rules", abi::RULE_BYTES).ok()?))
        });
        let (pages, rules) = arrays.as_ref()?;
        let at = page as usize * size_of::<Page>();
        let (first_row, count) = (pages.u32(at)?, pages.u32(at + 4)?);
        let (bank, first) = (first_row >> 16, first_row & 0xffff);
        let mut banks = self.banks.borrow_mut();
        let bank = banks.entry(bank).or_insert_with(|| {
            let fd = self.tables.banks.get(bank as usize)?;
            Shared::map(fd.as_fd(), BANK_BYTES, false, "a bank").ok()
        });
        let bank = bank.as_ref()?;
        let row = |index: u32| bank.u32((first + index) as usize * 4);
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if u64::from(row(middle)? >> 16) <= offset & 0xffff {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let number = low.checked_sub(1).map_or(Some(0), |last| row(last).map(|row| row & 0xffff))?;
        let mut bytes = [0; abi::RULE_BYTES];
        for (index, four) in bytes.chunks_exact_mut(4).enumerate() {
            four.copy_from_slice(&rules.u32(number as usize * abi::RULE_BYTES + index * 4)?.to_ne_bytes());
        }
        Some(bytes)
    }
}

/// Types of the contract that are made of integers without padding, so that each byte is initialised.
pub(crate) trait Plain {}
impl Plain for ObjectKey {}
impl Plain for abi::Object {}
impl Plain for Interpreter {}
impl Plain for Live {}
impl Plain for abi::Config {}

pub(crate) fn plain_bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: by `Plain`, asserted by their sizes in abi.rs.
    unsafe { std::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }
}
