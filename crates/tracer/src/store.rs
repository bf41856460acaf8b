//! The prices of this machine between runs of the same boot: one small file in the user's cache.

use lightfoot_cost::probes::Prices;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

const NAME: &str = "probe-prices";
/// A file longer than this is none of ours.
const BYTES_MAX: u64 = 64 << 10;
/// `O_NOFOLLOW`.
const NO_FOLLOW: i32 = libc::O_NOFOLLOW;

/// Where prices are kept, if anywhere.
#[derive(Debug)]
pub(crate) struct Store {
    folder: Option<PathBuf>,
    machine: String,
}

impl Store {
    /// The user's cache: `$XDG_CACHE_HOME/lightfoot`, else `~/.cache/lightfoot`. Without such a folder, or if others may write to it, nothing is
    /// kept.
    pub fn open() -> Store {
        let said = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        // A home that does not exist is not made.
        let home = || std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_dir());
        let base = said.or_else(|| Some(home()?.join(".cache")));
        Store::at(base.map(|base| base.join("lightfoot")), machine())
    }

    /// A store that keeps nothing.
    pub fn none() -> Store {
        Store { folder: None, machine: machine() }
    }

    fn at(folder: Option<PathBuf>, machine: String) -> Store {
        let usable = |path: &PathBuf| {
            DirBuilder::new().recursive(true).mode(0o700).create(path).ok()?;
            let metadata = fs::symlink_metadata(path).ok()?;
            let own = File::open("/proc/self/status").ok()?.metadata().ok()?.uid();
            // Nobody else may say what our probes cost.
            (metadata.is_dir() && metadata.uid() == own && metadata.mode() & 0o022 == 0).then_some(())
        };
        Store { folder: folder.filter(|path| usable(path).is_some()), machine }
    }

    /// The prices that were kept for this kernel, boot and CPU; none if there are none, or if a bit of them is wrong.
    pub fn load(&self) -> Prices {
        let read = || {
            let path = self.folder.as_ref()?.join(NAME);
            let file = OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(path).ok()?;
            let mut bytes = Vec::new();
            file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
            Prices::decode(&bytes, &self.machine).ok()
        };
        read().unwrap_or_default()
    }

    /// Keeps prices, complete or not at all. A folder that cannot be written is no error: they are measured again next time.
    pub fn save(&self, prices: &Prices) {
        let Some(folder) = &self.folder else { return };
        let temporary = folder.join(format!("{NAME}.{}", std::process::id()));
        let write = || -> std::io::Result<()> {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).custom_flags(NO_FOLLOW);
            options.open(&temporary)?.write_all(&prices.encode(&self.machine))?;
            fs::rename(&temporary, folder.join(NAME))
        };
        if write().is_err() {
            fs::remove_file(&temporary).ok();
        }
    }
}

/// What prices hold for: kernel, boot, CPU, and the programs of this build.
fn machine() -> String {
    let build = fs::metadata("/proc/self/exe")
        .map_or_else(|_| String::new(), |exe| format!("{} {} {}", exe.len(), exe.mtime(), exe.mtime_nsec()));
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or("", |(_, value)| value.trim()).to_string()
    };
    [
        env!("CARGO_PKG_VERSION").to_string(),
        build,
        read("/proc/sys/kernel/osrelease"),
        read("/proc/sys/kernel/version"),
        read("/proc/sys/kernel/random/boot_id"),
        field("model name"),
        field("CPU part"),
        field("microcode"),
    ]
    .join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightfoot_cost::probes::{Family, Price};
    use std::os::unix::fs::PermissionsExt;

    fn prices() -> Prices {
        let mut prices = Prices::default();
        prices.gate.insert(Family::User, Price { ns: 7.0, error_ns: 1.0 });
        prices
    }

    #[test]
    fn prices_are_kept_for_this_machine_and_damage_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("cache/lightfoot");
        let store = Store::at(Some(place.clone()), "here".into());
        assert_eq!(store.load(), Prices::default());
        store.save(&prices());
        assert_eq!(store.load(), prices());
        assert_eq!(Store::at(Some(place.clone()), "there".into()).load(), Prices::default());
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "nothing else is left");

        let path = place.join(NAME);
        let mut bytes = fs::read(&path).unwrap();
        bytes[30] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(store.load(), Prices::default(), "one bit is enough");
        store.save(&prices());
        assert_eq!(store.load(), prices(), "and it is replaced");

        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(Store::at(Some(place), "here".into()).load(), Prices::default(), "others may write");
    }

    #[test]
    fn without_a_folder_nothing_is_kept() {
        let store = Store::none();
        store.save(&prices());
        assert_eq!(store.load(), Prices::default());
    }

    #[test]
    fn a_machine_is_known_by_its_boot() {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert!(machine().contains(boot.trim()));
    }
}
