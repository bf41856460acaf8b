//! What this machine says about its kernel: BTF, kallsyms, tracefs. Everything is read when it is first asked for.

use crate::btf::Btf;
use crate::error::{Error, Result};
use crate::syscalls;
use lightfoot_unwind::Arch;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes of BTF that are read; the kernel's has about 6 MB.
const BTF_BYTES: u64 = 64 << 20;
/// Bytes of one line of kallsyms or of one file of tracefs.
const TEXT_BYTES: u64 = 64 << 10;

/// A machine: where its files are. Tests have their own.
pub struct System {
    root: PathBuf,
    pub(crate) path: Vec<PathBuf>,
    tracefs: Option<PathBuf>,
    btf: OnceCell<Option<Btf>>,
    syscalls: OnceCell<BTreeSet<&'static str>>,
}

impl Default for System {
    fn default() -> Self {
        System::new()
    }
}

impl System {
    /// This machine; programs are looked up in `PATH`.
    pub fn new() -> System {
        let path = std::env::var_os("PATH")
            .unwrap_or_else(|| "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
        System::at("/", std::env::split_paths(&path).collect())
    }

    /// A machine whose files lie below `root`, with this `PATH`.
    pub fn at(root: impl Into<PathBuf>, path: Vec<PathBuf>) -> System {
        System { root: root.into(), path, tracefs: None, btf: OnceCell::new(), syscalls: OnceCell::new() }
    }

    /// The same machine, with tracefs in this folder: where it is mounted for one process alone.
    pub fn with_tracefs(self, folder: impl Into<PathBuf>) -> System {
        System { tracefs: Some(folder.into()), ..self }
    }

    /// A file of this machine.
    pub(crate) fn file(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The kernel's types, if it has any.
    pub fn btf(&self) -> Option<&Btf> {
        self.btf
            .get_or_init(|| {
                let mut bytes = Vec::new();
                let file = File::open(self.file("/sys/kernel/btf/vmlinux")).ok()?;
                file.take(BTF_BYTES).read_to_end(&mut bytes).ok()?;
                Btf::parse(bytes)
            })
            .as_ref()
    }

    /// The folder of events, if tracefs is mounted and may be read.
    pub(crate) fn events(&self) -> Option<PathBuf> {
        let folders = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];
        let own = self.tracefs.iter().map(|folder| folder.join("events"));
        own.chain(folders.iter().map(|folder| self.file(folder)))
            .find(|folder| std::fs::read_dir(folder).is_ok_and(|mut all| all.next().is_some()))
    }

    /// Calls `each` with the name and the module of every function of the kernel, in the order of addresses, until it says false.
    /// From kallsyms; from BTF where that may not be read.
    pub(crate) fn functions(&self, mut each: impl FnMut(&str, Option<&str>) -> bool) -> Result<()> {
        let path = self.file("/proc/kallsyms");
        let mut reader = match File::open(&path) {
            Ok(file) => BufReader::with_capacity(64 << 10, file),
            Err(error) => {
                let Some(btf) = self.btf() else { return Err(Error::io("/proc/kallsyms", &error)) };
                for (_, name) in btf.functions() {
                    if !each(name, None) {
                        break;
                    }
                }
                return Ok(());
            }
        };
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut reader).take(TEXT_BYTES).read_until(b'\n', &mut line);
            if read.map_err(|error| Error::io("/proc/kallsyms", &error))? == 0 {
                return Ok(());
            }
            if let Some((name, module)) = function_line(&line)
                && !each(name, module)
            {
                return Ok(());
            }
        }
    }

    /// Bytes from a function of the kernel to the next symbol; `None` if addresses are hidden.
    pub(crate) fn function_size(&self, name: &str) -> Option<u64> {
        let (mut start, mut addresses) = (None, Vec::new());
        let mut reader = BufReader::with_capacity(64 << 10, File::open(self.file("/proc/kallsyms")).ok()?);
        let mut line = Vec::new();
        loop {
            line.clear();
            if (&mut reader).take(TEXT_BYTES).read_until(b'\n', &mut line).ok()? == 0 {
                break;
            }
            let text = std::str::from_utf8(&line).unwrap_or_default();
            let address =
                text.split_ascii_whitespace().next().and_then(|word| u64::from_str_radix(word, 16).ok());
            let Some(address) = address.filter(|&address| address != 0) else { continue };
            if function_line(&line).is_some_and(|(other, _)| other == name) {
                start.get_or_insert(address);
            }
            addresses.push(address);
        }
        let start = start?;
        addresses.into_iter().filter(|&address| address > start).min().map(|next| next - start)
    }

    /// The system calls that this kernel has, of those we know the number of; all that we know if it does not say.
    pub(crate) fn syscalls(&self) -> &BTreeSet<&'static str> {
        self.syscalls.get_or_init(|| {
            let known: BTreeSet<&'static str> =
                syscalls::table(syscalls::own_arch()).iter().map(|(_, name)| *name).collect();
            let prefix = if syscalls::own_arch() == Arch::X86_64 { "__x64_sys_" } else { "__arm64_sys_" };
            let mut found = BTreeSet::new();
            let mut note = |name: &str| {
                found.extend(name.strip_prefix(prefix).and_then(|name| known.get(name)));
                true
            };
            if self.functions(|name, _| note(name)).is_err() || found.is_empty() { known } else { found }
        })
    }

    /// Fields of an event as tracefs describes them: type and name, for example `const char * filename`.
    pub(crate) fn fields(&self, category: &str, name: &str) -> Vec<String> {
        let Some(folder) = self.events() else { return Vec::new() };
        let mut text = String::new();
        let read = File::open(folder.join(category).join(name).join("format"))
            .map(|file| file.take(TEXT_BYTES).read_to_string(&mut text));
        if !matches!(read, Ok(Ok(_))) {
            return Vec::new();
        }
        let field = |line: &str| Some(line.trim().strip_prefix("field:")?.split(';').next()?.to_owned());
        text.lines()
            .filter_map(field)
            .filter(|field| !field.split(' ').any(|word| word.starts_with("common_")))
            .collect()
    }
}

/// A line of kallsyms that describes a function: its name and module.
fn function_line(line: &[u8]) -> Option<(&str, Option<&str>)> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (_, kind, name) = (words.next()?, words.next()?, words.next()?);
    let module = words.next().and_then(|module| module.strip_prefix('[')?.strip_suffix(']'));
    // Entries made for tools, not functions that are called.
    let hidden = ["__cfi_", "__pfx_", "__SCT__", "__tracepoint_", "__kstrtab", "__ksymtab"];
    let fine = matches!(kind, "t" | "T" | "w" | "W")
        && !hidden.iter().any(|prefix| name.starts_with(prefix))
        && !name.ends_with(".cold");
    fine.then_some((name, module))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_kallsyms() {
        assert_eq!(function_line(b"ffffffff81000000 T vfs_read\n"), Some(("vfs_read", None)));
        assert_eq!(
            function_line(b"0000000000000000 t ext4_open\t[ext4]\n"),
            Some(("ext4_open", Some("ext4")))
        );
        assert_eq!(function_line(b"ffffffff81000000 D jiffies\n"), None);
        assert_eq!(function_line(b"ffffffff81000000 t __pfx_vfs_read\n"), None);
        assert_eq!(function_line(b"ffffffff81000000 t vfs_read.cold\n"), None);
        assert_eq!(function_line(b"\n"), None);
        assert_eq!(function_line(&[0xff, b' ', b't', b' ', 0xff]), None);
    }

    #[test]
    fn syscalls_are_those_of_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        let system = System::at(root.path(), vec![]);
        assert!(system.syscalls().contains("read"), "nothing is known of the kernel");
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let prefix = if cfg!(target_arch = "aarch64") { "__arm64_sys_" } else { "__x64_sys_" };
        let text = format!("0 T {prefix}read\n0 T {prefix}nonsense\n0 T vfs_read\n");
        std::fs::write(root.path().join("proc/kallsyms"), text).unwrap();
        let system = System::at(root.path(), vec![]);
        assert_eq!(system.syscalls().iter().copied().collect::<Vec<_>>(), ["read"]);
    }

    #[test]
    fn fields_of_an_event() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/kernel/tracing/events/sched/sched_switch");
        std::fs::create_dir_all(&folder).unwrap();
        let format = "name: sched_switch\nID: 1\nformat:\n\tfield:unsigned short common_type;\toffset:0;\n\n\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\n";
        std::fs::write(folder.join("format"), format).unwrap();
        assert_eq!(System::at(root.path(), vec![]).fields("sched", "sched_switch"), ["pid_t prev_pid"]);
    }

    #[test]
    fn tracefs_may_be_elsewhere() {
        let (root, tracefs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = tracefs.path().join("events/sched/sched_switch");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("format"), "format:\n\n\tfield:int prev_prio;\toffset:24;\tsize:4;\n")
            .unwrap();
        let system = System::at(root.path(), vec![]);
        assert_eq!(system.events(), None);
        let system = system.with_tracefs(tracefs.path());
        assert_eq!(system.events(), Some(tracefs.path().join("events")));
        assert_eq!(system.fields("sched", "sched_switch"), ["int prev_prio"]);
    }
}
