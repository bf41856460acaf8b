//! Unwind tables kept on disk between runs. A table is used only if its bytes are exactly those that were written (`unwind::Table::decode`
//! checks), so a damaged or foreign file costs a rebuild and nothing else.

use lightfoot_unwind::Table;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes and files kept; the files that were written longest ago are removed beyond it.
const BYTES_MAX: u64 = 256 << 20;
const FILES_MAX: usize = 2000;
/// A file longer than this is none of ours: 4 M rows take about 10 MB.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Of such a file what is not rows: rules above all, 65,536 of 12 bytes at most.
const ROWLESS_BYTES_MAX: u64 = 1 << 20;
/// Bytes written in less than a millisecond.
const WRITTEN_AT_ONCE: usize = 256 << 10;
const SUFFIX: &str = "rows";

/// A folder of tables.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: Option<PathBuf>,
    written: bool,
}

impl Cache {
    /// The user's cache: `$XDG_CACHE_HOME/lightfoot/unwind`, else `~/.cache/lightfoot/unwind`. Without such a folder, or if it belongs to somebody
    /// else, nothing is kept.
    pub fn open() -> Cache {
        Cache::at(user_folder("XDG_CACHE_HOME", ".cache").map(|base| base.join("lightfoot/unwind")))
    }

    /// A cache that keeps nothing.
    #[cfg(test)]
    pub fn none() -> Cache {
        Cache { folder: None, written: false }
    }

    fn at(folder: Option<PathBuf>) -> Cache {
        let usable = |path: &PathBuf| {
            DirBuilder::new().recursive(true).mode(0o700).create(path).ok()?;
            let metadata = fs::symlink_metadata(path).ok()?;
            // Nobody else may put tables there: they would decide what our stacks look like.
            (metadata.is_dir() && metadata.uid() == own_uid()? && metadata.mode() & 0o022 == 0).then_some(())
        };
        Cache { folder: folder.filter(|path| usable(path).is_some()), written: false }
    }

    /// The table kept under `key`, unless it has more than `rows_max` rows. `pause` is called about each millisecond.
    pub fn load(&self, key: &[u8], rows_max: usize, pause: &dyn Fn()) -> Option<Table> {
        // A row takes two bytes at least.
        let bytes_max = FILE_BYTES_MAX.min(rows_max as u64 * 2 + ROWLESS_BYTES_MAX);
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(NO_FOLLOW)
            .open(self.folder.as_ref()?.join(name(key)))
            .ok()?;
        let metadata = file.metadata().ok().filter(|m| m.is_file() && m.len() <= bytes_max)?;
        let mut bytes = Vec::with_capacity(metadata.len() as usize);
        Read::by_ref(&mut file).take(bytes_max).read_to_end(&mut bytes).ok()?;
        pause();
        Table::decode_in_pieces(&bytes, key, pause).ok().filter(|table| table.rows.len() <= rows_max)
    }

    /// Keeps a table. A full disk or a folder that cannot be written is no error: the table is built again next time. `pause` is called about
    /// each millisecond.
    pub fn store(&mut self, key: &[u8], table: &Table, pause: &dyn Fn()) {
        let Some(folder) = &self.folder else { return };
        self.written = true;
        // Complete or not at all, also for another lightfoot that reads at the same time.
        let temporary = folder.join(format!("{}.{}", name(key), std::process::id()));
        let write = || -> std::io::Result<()> {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .custom_flags(NO_FOLLOW)
                .open(&temporary)?;
            for piece in table.encode_in_pieces(key, pause).chunks(WRITTEN_AT_ONCE) {
                file.write_all(piece)?;
                pause();
            }
            fs::rename(&temporary, folder.join(name(key)))
        };
        if write().is_err() {
            fs::remove_file(&temporary).ok();
        }
    }

    /// Removes the oldest files beyond the bounds, if this run wrote any.
    pub fn tidy(&mut self) {
        let Some(folder) = self.folder.as_ref().filter(|_| std::mem::take(&mut self.written)) else { return };
        let Ok(entries) = fs::read_dir(folder) else { return };
        let mut files: Vec<(std::time::SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
                Some((metadata.modified().ok()?, metadata.len(), entry.path()))
            })
            .collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.0));
        let mut bytes = 0;
        for (index, (_, size, path)) in files.iter().enumerate() {
            bytes += size;
            let foreign = path.extension() != Some(OsStr::new(SUFFIX));
            let abandoned = foreign && path.metadata().is_ok_and(|m| is_old(&m));
            if bytes > BYTES_MAX || index >= FILES_MAX || abandoned {
                fs::remove_file(path).ok();
            }
        }
    }
}

/// A base folder of the user's: what the variable says, else the folder in his home. Source: XDG Base Directory Specification.
pub(crate) fn user_folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let said = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    // A home that does not exist is not made: users without one, nobody above all, have a name of a folder all the same.
    let home = || std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_dir());
    said.or_else(|| Some(home()?.join(in_home)))
}

/// `O_NOFOLLOW`.
const NO_FOLLOW: i32 = 0o400_000;

/// Left behind by a lightfoot that ended while it wrote.
fn is_old(metadata: &fs::Metadata) -> bool {
    metadata.modified().is_ok_and(|time| time.elapsed().is_ok_and(|age| age.as_secs() > 3600))
}

fn own_uid() -> Option<u32> {
    Some(File::open("/proc/self/status").ok()?.metadata().ok()?.uid())
}

fn name(key: &[u8]) -> String {
    use std::fmt::Write;
    let mut name = String::with_capacity(key.len() * 2 + 5);
    for byte in key {
        // Writing to a string does not fail.
        write!(name, "{byte:02x}").ok();
    }
    name + "." + SUFFIX
}

/// What a file's table is kept under: its build ID and size, or, without one, what identifies its content on this machine.
pub(crate) fn key_of(build_id: &[u8], file: &Path, metadata: &fs::Metadata) -> Vec<u8> {
    let mut key = Vec::with_capacity(48);
    if (8..=32).contains(&build_id.len()) {
        key.push(1);
        key.extend_from_slice(build_id);
    } else {
        key.push(2);
        key.extend(metadata.dev().to_le_bytes());
        key.extend(metadata.ino().to_le_bytes());
        key.extend(metadata.mtime().to_le_bytes());
        key.extend(metadata.mtime_nsec().to_le_bytes());
    }
    key.extend(metadata.len().to_le_bytes());
    // The same build ID stands in a program and in its separate debug file.
    key.push(u8::from(file.extension() == Some(OsStr::new("debug"))));
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn table() -> Table {
        let program = fs::read("/proc/self/exe").unwrap();
        Table::build(&program, &lightfoot_unwind::Options::default()).unwrap()
    }

    #[test]
    fn a_table_comes_back_and_damage_does_not() {
        let folder = std::env::temp_dir().join(format!("lightfoot-cache-{}", std::process::id()));
        let mut cache = Cache::at(Some(folder.clone()));
        let (key, table) = ([7; 20], table());
        assert!(cache.load(&key, usize::MAX >> 8, &|| {}).is_none());
        cache.store(&key, &table, &|| {});
        assert_eq!(cache.load(&key, usize::MAX >> 8, &|| {}).as_ref(), Some(&table));
        assert!(cache.load(&key, table.rows.len() - 1, &|| {}).is_none(), "more rows than there is room for");
        assert!(cache.load(&[8; 20], usize::MAX >> 8, &|| {}).is_none());

        let path = folder.join(name(&key));
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!(cache.load(&key, usize::MAX >> 8, &|| {}).is_none(), "one bit is enough");
        cache.store(&key, &table, &|| {});
        assert!(cache.load(&key, usize::MAX >> 8, &|| {}).is_some(), "and it is replaced");
        cache.tidy();
        assert!(cache.load(&key, usize::MAX >> 8, &|| {}).is_some());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(
            Cache::at(Some(folder.clone())).load(&key, usize::MAX >> 8, &|| {}).is_none(),
            "a folder that others may write to"
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
