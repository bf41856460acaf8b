//! Walks saved as small files (`--save-failed`), to be replayed by `cargo xtask replay` and to become tests.
//!
//! The kernel sends what a walk began with right before the stack itself. Both are joined here and kept until the run is over; then the
//! rows of the code pages that the walk touched are added, object by object.

use crate::deferred::{native_frames, registers};
use crate::error::{Error, Result};
use crate::library::Library;
use crate::request::Save;
use crate::stacks::file_key;
use lightfoot_kernel::abi::{Failed, ObjectKey, Record, Segment, VDSO_DEVICE};
use lightfoot_kernel::sampler::SaveWalks;
use lightfoot_process::Processes;
use lightfoot_unwind::{Arch, Frozen, FrozenMapping, Options, Outcome, ReadAt, State, Table, Walked};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Files of a run, of failed walks and of all.
const FILES_MAX: usize = 100;
const ALL_FILES_MAX: usize = 4096;
/// Bytes of all files of a run.
const BYTES_MAX: u64 = 64 << 20;
/// Walks whose stack has not arrived. It comes next, unless the ring was full in between.
const BEGUN_MAX: usize = 64;

/// Where a walk ended, and how: one file for each.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Place {
    object: Option<ObjectKey>,
    outcome: u32,
    /// File offset of the last frame; its address without a file.
    offset: u64,
    /// Where all walks are saved: the stack.
    stack: u64,
}

#[derive(Debug)]
struct Kept {
    place: Place,
    frozen: Frozen,
    /// By index of [`Frozen::mappings`].
    segments: Vec<Segment>,
}

/// What is saved of a run.
#[derive(Debug)]
pub(crate) struct Saving {
    folder: PathBuf,
    all: bool,
    begun: HashMap<u64, Failed>,
    kept: Vec<Kept>,
    places: HashSet<Place>,
    /// Walks that ended where another one did that is kept, and walks for which there was no room.
    like_others: u64,
    left_out: u64,
}

impl Saving {
    /// Makes the folder.
    pub fn new(save: &Save) -> Result<Saving> {
        let folder = save.folder.clone();
        std::fs::create_dir_all(&folder).map_err(|e| {
            let plain = lightfoot_kernel::os::plain(&e);
            Error::target_because(format!("cannot make the folder {}: {plain}", folder.display()), e)
        })?;
        Ok(Saving {
            folder,
            all: save.which == SaveWalks::All,
            begun: HashMap::new(),
            kept: Vec::new(),
            places: HashSet::new(),
            like_others: 0,
            left_out: 0,
        })
    }

    /// What a walk began with.
    pub fn began(&mut self, failed: Failed) {
        if self.begun.len() >= BEGUN_MAX {
            self.begun.clear();
        }
        self.begun.insert(failed.stack, failed);
    }

    /// The stack that a walk became.
    pub fn stack(&mut self, record: &Record<'_>, library: &Library) {
        let header = &record.header;
        let Some(began) = self.begun.remove(&header.stack) else { return };
        let Some(outcome) = Outcome::ALL.get(header.outcome as usize).copied() else { return };
        let segments: Vec<Segment> = record.segments().collect();
        let words: Vec<u64> = record.user().collect();
        let frames = native_frames(&words);
        if frames.is_empty() {
            // No user part: the task was on its way out, or into a new program.
            return;
        }
        let last = frames.last().map(|frame| frame.address.wrapping_sub(u64::from(!frame.exact)));
        let ended_in = last.and_then(|at| segments.iter().find(|s| (s.start..s.end).contains(&at)));
        let place = Place {
            object: ended_in.map(Segment::key),
            outcome: header.outcome,
            offset: match (last, ended_in) {
                (Some(at), Some(segment)) => (at - segment.start).wrapping_add(segment.file_offset),
                (at, _) => at.unwrap_or(0),
            },
            stack: if self.all { header.stack } else { 0 },
        };
        if self.places.contains(&place) {
            self.like_others += 1;
            return;
        }
        if self.kept.len() >= if self.all { ALL_FILES_MAX } else { FILES_MAX } {
            self.left_out += 1;
            return;
        }
        self.places.insert(place.clone());
        let mappings = segments.iter().map(|segment| mapping(segment, library)).collect();
        let frozen = Frozen {
            arch: if cfg!(target_arch = "aarch64") { Arch::Arm64 } else { Arch::X86_64 },
            registers: registers(&began),
            frames_max: lightfoot_kernel::abi::MAX_USER_FRAMES,
            memory: vec![(began.sp, began.bytes)],
            mappings,
            tables: vec![],
            found: Walked { frames, outcome },
        };
        self.kept.push(Kept { place, frozen, segments });
    }

    /// Writes the files. Returns what a user should know.
    pub fn write(mut self, processes: &mut Processes) -> Vec<String> {
        let mut tables: HashMap<ObjectKey, Option<Table>> = HashMap::new();
        let (mut files, mut bytes) = (0, 0);
        let mut trouble = None;
        for mut kept in std::mem::take(&mut self.kept) {
            let mut indices: HashMap<ObjectKey, usize> = HashMap::new();
            for (mapping, segment) in kept.frozen.mappings.iter_mut().zip(&kept.segments) {
                let key = segment.key();
                if let Some(id) = (key.inode != 0).then(|| processes.object_of(&file_key(&key))).flatten() {
                    mapping.path = processes.objects()[id.0 as usize].path().display().to_string();
                }
                if mapping.state != State::Ready {
                    continue;
                }
                let table = tables.entry(key).or_insert_with(|| table(&key, processes));
                match (indices.get(&key), table) {
                    (Some(&index), _) => mapping.table = index,
                    (None, Some(table)) => {
                        mapping.table = kept.frozen.tables.len();
                        indices.insert(key, mapping.table);
                        kept.frozen.tables.push(table.clone());
                    }
                    (None, None) => mapping.state = State::Nothing,
                }
            }
            kept.frozen.shrink();
            let encoded = kept.frozen.encode();
            bytes += encoded.len() as u64;
            if bytes > BYTES_MAX {
                self.left_out += 1;
                continue;
            }
            let path = self.folder.join(file_name(&kept, processes, self.all));
            match std::fs::write(&path, encoded) {
                Ok(()) => files += 1,
                Err(e) => {
                    let plain = lightfoot_kernel::os::plain(&e);
                    trouble = Some(format!("cannot write {}: {plain}", path.display()));
                    self.left_out += 1;
                }
            }
        }
        let mut note = format!("{files} walks were saved in {}", self.folder.display());
        if self.like_others > 0 {
            note += &format!(", {} more ended at the same places", self.like_others);
        }
        if self.left_out > 0 {
            note += &format!(", {} were left out (at most {FILES_MAX} files, 64 MiB)", self.left_out);
        }
        note += ": they hold stack memory, which may contain secrets";
        [Some(note), trouble].into_iter().flatten().collect()
    }
}

fn mapping(segment: &Segment, library: &Library) -> FrozenMapping {
    let key = segment.key();
    let is_file = segment.inode != 0;
    let state = if !is_file && segment.device != VDSO_DEVICE || library.why_without(&key).is_some() {
        State::Nothing
    } else if segment.object == 0 {
        State::NotYet
    } else {
        State::Ready
    };
    FrozenMapping {
        start: segment.start,
        end: segment.end,
        file_offset: segment.file_offset,
        is_file,
        state,
        table: 0,
        path: if segment.device == VDSO_DEVICE { "[vdso]".into() } else { String::new() },
    }
}

fn table(key: &ObjectKey, processes: &mut Processes) -> Option<Table> {
    if key.device == VDSO_DEVICE {
        return Table::build(&lightfoot_symbolize::vdso_image()?, &Options::default()).ok();
    }
    let open = processes.open(processes.object_of(&file_key(key))?).ok()?;
    Table::build(&FileBytes { size: open.size, file: open.file }, &Options::default()).ok()
}

/// A file as bytes.
struct FileBytes {
    file: File,
    size: u64,
}

impl ReadAt for FileBytes {
    fn len(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        self.file.read_exact_at(into, offset).ok()
    }
}

/// Such as `no_rows-libfoo.so-1a2b.lfw`.
fn file_name(kept: &Kept, processes: &Processes, all: bool) -> String {
    let place = &kept.place;
    let object = match &place.object {
        Some(key) if key.device == VDSO_DEVICE => "vdso".to_string(),
        Some(key) if key.inode == 0 => "anonymous".to_string(),
        Some(key) => {
            let id = processes.object_of(&file_key(key));
            let name = id.and_then(|id| processes.objects()[id.0 as usize].path().file_name());
            name.map_or("unknown".into(), |name| name.to_string_lossy().into_owned())
        }
        None => "unmapped".to_string(),
    };
    // Names of files are foreign bytes.
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".-_+".contains(c) { c } else { '_' };
    let object: String = object.chars().map(plain).take(64).collect();
    let outcome = Outcome::from_number(place.outcome).map_or("unknown", |o| o.name());
    match all {
        true => format!("{outcome}-{object}-{:x}-{:016x}.lfw", place.offset, place.stack),
        false => format!("{outcome}-{object}-{:x}.lfw", place.offset),
    }
}
