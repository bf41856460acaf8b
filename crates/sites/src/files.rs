//! Which file a probe means: paths, globs, names of programs and libraries, files as another process sees them.

use crate::error::{Error, Kind, Result};
use crate::glob;
use crate::system::System;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files that a glob may stand for.
const FILES_MAX: usize = 1_000;
/// Folders that one element of a glob looks into.
const FOLDERS_MAX: usize = 10_000;
/// Folders of libraries, besides those of the CPU (`x86_64-linux-gnu`).
const LIBRARY_FOLDERS: [&str; 6] =
    ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/lib64"];

/// A file to put probes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// As this process reaches it.
    pub path: PathBuf,
    /// As the user knows it.
    pub shown: String,
    /// Why this file.
    pub choices: Vec<String>,
    /// What users should know.
    pub warnings: Vec<String>,
}

/// The files that `name` stands for, at least one. With a process: as that process sees them.
pub(crate) fn find(system: &System, name: &str, pid: Option<u32>) -> Result<Vec<Found>> {
    let process = pid.map(|pid| Process::new(system, pid)).transpose()?;
    let root = process.as_ref().and_then(|process| process.root.clone());
    let below = |path: &Path| match &root {
        Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
        None => system.file(path),
    };
    let (paths, mut choices) = if !name.contains('/') {
        let (path, why) = by_name(system, name, process.as_ref(), &below)?;
        (vec![path], vec![why])
    } else if glob::is_glob(name) {
        (expand(name, &below)?, Vec::new())
    } else {
        (vec![absolute(name)?], Vec::new())
    };
    if let (Some(root), Some(pid)) = (&root, pid) {
        choices
            .push(format!("process {pid} has other mounts: the file is reached through {}", root.display()));
    }
    paths.into_iter().map(|path| found(&path, below(&path), choices.clone(), process.as_ref())).collect()
}

fn found(
    path: &Path,
    reached: PathBuf,
    mut choices: Vec<String>,
    process: Option<&Process>,
) -> Result<Found> {
    let shown = path.display().to_string();
    let mut warnings = Vec::new();
    let mut reached = reached;
    if let Some(process) = process {
        let real = std::fs::canonicalize(&reached).ok();
        let real = real.as_deref().map(|real| {
            process
                .root
                .as_ref()
                .and_then(|root| real.strip_prefix(root).ok())
                .map_or(real.to_owned(), |below| Path::new("/").join(below))
        });
        let real = real.unwrap_or_else(|| path.to_owned());
        match process.mapping_of(&real) {
            Mapped::Replaced(mapped) => {
                choices.push(format!("{shown} was replaced on disk since process {} started: the file that the process runs is probed", process.pid));
                reached = mapped;
            }
            Mapped::No => {
                warnings.push(format!(
                    "process {} has not mapped {shown} so far: its probes fire once it does",
                    process.pid
                ));
            }
            Mapped::Yes => {}
        }
    }
    match std::fs::metadata(&reached) {
        Ok(metadata) if metadata.is_file() => Ok(Found { path: reached, shown, choices, warnings }),
        Ok(_) => Err(Error::usage(format!("{shown} is not a file; give a program or a library"))),
        Err(error) => Err(Error::io(&shown, &error)),
    }
}

/// Opens a file.
pub(crate) fn open(found: &Found) -> Result<(File, Metadata)> {
    let file = File::open(&found.path).map_err(|error| Error::io(&found.shown, &error))?;
    let metadata = file.metadata().map_err(|error| Error::io(&found.shown, &error))?;
    Ok((file, metadata))
}

/// A path from this process's folder as a path from the root. Links stay.
fn absolute(name: &str) -> Result<PathBuf> {
    std::path::absolute(name).map_err(|error| Error::io(name, &error))
}

/// A program in `PATH`, a library that the process has mapped, or one in the folders of libraries. Why this one.
fn by_name(
    system: &System,
    name: &str,
    process: Option<&Process>,
    below: &dyn Fn(&Path) -> PathBuf,
) -> Result<(PathBuf, String)> {
    if let Some(path) = process.and_then(|process| process.mapped_called(name)) {
        return Ok((path.clone(), format!("{name} is {}, which the process has mapped", path.display())));
    }
    let programs = system.path.iter().map(|folder| folder.join(name)).filter(|path| {
        std::fs::metadata(below(path))
            .is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0)
    });
    let programs = distinct(programs, below);
    let (kind, all) =
        if programs.is_empty() { ("library", libraries(name, below)) } else { ("program in PATH", programs) };
    match all.as_slice() {
        [] => Err(Error::not_found(format!(
            "no program in PATH and no library is called \"{name}\"; give its path"
        ))),
        [path] => Ok((path.clone(), format!("{name} is the {kind} {}", path.display()))),
        several => {
            let several: Vec<String> = several.iter().map(|path| path.display().to_string()).collect();
            let message = format!("\"{name}\" is ambiguous: {}; give the path of one", several.join(", "));
            Err(Error::new(Kind::Ambiguous, message))
        }
    }
}

/// Libraries of this name: `libc`, `libc.so.6`, `c`.
fn libraries(name: &str, below: &dyn Fn(&Path) -> PathBuf) -> Vec<PathBuf> {
    let arch = if cfg!(target_arch = "aarch64") { "aarch64-linux-gnu" } else { "x86_64-linux-gnu" };
    let own = [format!("/lib/{arch}"), format!("/usr/lib/{arch}"), format!("/usr/local/lib/{arch}")];
    let folders = own.iter().map(String::as_str).chain(LIBRARY_FOLDERS).map(Path::new);
    let stems = [name.to_owned(), format!("lib{name}")];
    let fits = |file: &str, stem: &str| {
        file == stem && file.contains(".so")
            || file.strip_prefix(stem).is_some_and(|rest| {
                rest == ".so"
                    || rest.strip_prefix(".so.").is_some_and(|version| {
                        version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
                    })
            })
    };
    for stem in &stems {
        let mut paths = Vec::new();
        for folder in folders.clone() {
            let Ok(entries) = std::fs::read_dir(below(folder)) else { continue };
            let names =
                entries.flatten().take(100_000).filter_map(|entry| entry.file_name().into_string().ok());
            let mut names: Vec<String> = names.filter(|file| fits(file, stem)).collect();
            names.sort();
            // Scripts for the linker are called libc.so, too.
            paths.extend(names.into_iter().map(|file| folder.join(file)).filter(|path| is_elf(&below(path))));
        }
        let paths = distinct(paths.into_iter(), below);
        if !paths.is_empty() {
            return paths;
        }
    }
    Vec::new()
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).is_ok_and(|mut file| std::io::Read::read_exact(&mut file, &mut magic).is_ok())
        && &magic == b"\x7fELF"
}

/// Paths of different files: links to one file count once.
fn distinct(paths: impl Iterator<Item = PathBuf>, below: &dyn Fn(&Path) -> PathBuf) -> Vec<PathBuf> {
    let mut seen = Vec::new();
    let mut all = Vec::new();
    for path in paths {
        let Ok(metadata) = std::fs::metadata(below(&path)) else { continue };
        let identity = (metadata.dev(), metadata.ino());
        if !seen.contains(&identity) {
            seen.push(identity);
            all.push(path);
        }
    }
    all
}

/// The ELF files that a glob stands for, sorted.
fn expand(pattern: &str, below: &dyn Fn(&Path) -> PathBuf) -> Result<Vec<PathBuf>> {
    let whole = absolute(pattern)?;
    let mut paths = vec![PathBuf::from("/")];
    let elements: Vec<&str> = whole.iter().skip(1).filter_map(|element| element.to_str()).collect();
    for (index, element) in elements.iter().enumerate() {
        let last = index + 1 == elements.len();
        if !glob::is_glob(element) {
            paths.iter_mut().for_each(|path| path.push(element));
            continue;
        }
        let mut next = Vec::new();
        for path in &paths {
            let Ok(entries) = std::fs::read_dir(below(path)) else { continue };
            let names =
                entries.flatten().take(FOLDERS_MAX).filter_map(|entry| entry.file_name().into_string().ok());
            let fits = |name: &String| {
                glob::matches(element, name) && (!name.starts_with('.') || element.starts_with('.'))
            };
            next.extend(names.filter(fits).map(|name| path.join(name)));
        }
        next.retain(|path| if last { is_elf(&below(path)) } else { below(path).is_dir() });
        next.sort();
        paths = next;
    }
    let paths = distinct(paths.into_iter().filter(|path| below(path).is_file()), below);
    match paths.len() {
        0 => Err(Error::not_found(format!("no program or library matches \"{pattern}\""))),
        many if many > FILES_MAX => Err(Error::new(
            Kind::TooMany,
            format!(
                "\"{pattern}\" matches {many} files, at most {FILES_MAX} are looked at; make it narrower"
            ),
        )),
        _ => Ok(paths),
    }
}

/// What a process has mapped.
struct Process {
    pid: u32,
    /// Its root, if it has other mounts than we.
    root: Option<PathBuf>,
    folder: PathBuf,
    /// Executable mappings: the range as in `map_files`, the path, whether the file is gone from there.
    mapped: Vec<(String, PathBuf, bool)>,
}

enum Mapped {
    Yes,
    No,
    /// Another file has its path now; reached here.
    Replaced(PathBuf),
}

impl Process {
    fn new(system: &System, pid: u32) -> Result<Process> {
        let folder = system.file(format!("/proc/{pid}"));
        let maps = std::fs::read(folder.join("maps")).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::not_found(format!("there is no process {pid}")),
            _ => Error::io(format!("process {pid}"), &error),
        })?;
        let namespace = |folder: &Path| std::fs::read_link(folder.join("ns/mnt")).ok();
        let other = match (namespace(&folder), namespace(&system.file("/proc/self"))) {
            (Some(theirs), Some(ours)) => theirs != ours,
            _ => false,
        };
        // chroot changes the root without a namespace.
        let elsewhere = std::fs::read_link(folder.join("root")).is_ok_and(|root| root != Path::new("/"));
        let root = (other || elsewhere).then(|| folder.join("root"));
        let mapped = maps.split(|&byte| byte == b'\n').filter_map(mapping).collect();
        Ok(Process { pid, root, folder, mapped })
    }

    fn mapping_of(&self, path: &Path) -> Mapped {
        let mut mapped = self.mapped.iter().filter(|(_, other, _)| other == path);
        match mapped.clone().find(|(.., deleted)| !deleted).or_else(|| mapped.next()) {
            Some((range, _, true)) => Mapped::Replaced(self.folder.join("map_files").join(range)),
            Some(_) => Mapped::Yes,
            None => Mapped::No,
        }
    }

    /// The mapped file called `name`, `libname.so.1`, `name.so.1` or `name-1.2.so`.
    fn mapped_called(&self, name: &str) -> Option<&PathBuf> {
        let stems = [name.to_owned(), format!("lib{name}")];
        let fits = |path: &Path| {
            let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
            stems.iter().any(|stem| {
                file.strip_prefix(stem.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(".so") || rest.starts_with('-'))
            })
        };
        self.mapped.iter().map(|(_, path, _)| path).find(|path| fits(path))
    }
}

/// An executable mapping of a file in a line of `/proc/PID/maps`.
fn mapping(line: &[u8]) -> Option<(String, PathBuf, bool)> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let (range, access) = (words.next()?, words.next()?);
    let path = &line[line.find('/')?..];
    let (path, deleted) = path.strip_suffix(" (deleted)").map_or((path, false), |path| (path, true));
    access.contains('x').then(|| (range.to_owned(), PathBuf::from(path), deleted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn machine() -> (tempfile::TempDir, System) {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, mode: u32| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, b"\x7fELF").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for (path, mode) in [
            ("bin/one", 0o755),
            ("bin/two", 0o755),
            ("sbin/two", 0o755),
            ("bin/data", 0o644),
            ("usr/lib/libx.so.1.2", 0o644),
            ("usr/lib/libxy.so", 0o644),
        ] {
            write(path, mode);
        }
        symlink("libx.so.1.2", root.path().join("usr/lib/libx.so.1")).unwrap();
        symlink("one", root.path().join("bin/uno")).unwrap();
        let system = System::at(root.path(), vec!["/bin".into(), "/sbin".into()]);
        (root, system)
    }

    fn shown(system: &System, name: &str) -> std::result::Result<Vec<String>, Kind> {
        find(system, name, None)
            .map(|all| all.into_iter().map(|found| found.shown).collect())
            .map_err(|error| error.kind())
    }

    #[test]
    fn names_paths_and_globs() {
        let (_root, system) = machine();
        let shown = |name| shown(&system, name);
        assert_eq!(shown("/bin/one"), Ok(vec!["/bin/one".into()]));
        assert_eq!(shown("one"), Ok(vec!["/bin/one".into()]));
        assert_eq!(shown("two"), Err(Kind::Ambiguous));
        assert_eq!(shown("data"), Err(Kind::NotFound), "not executable");
        assert_eq!(shown("libx"), Ok(vec!["/usr/lib/libx.so.1".into()]), "a link and its file are one");
        assert_eq!(shown("x"), Ok(vec!["/usr/lib/libx.so.1".into()]));
        assert_eq!(shown("libx.so.1"), Ok(vec!["/usr/lib/libx.so.1".into()]));
        assert_eq!(shown("/bin/*o*"), Ok(vec!["/bin/one".into(), "/bin/two".into()]));
        assert_eq!(shown("/*bin/two"), Ok(vec!["/bin/two".into(), "/sbin/two".into()]));
        assert_eq!(shown("/bin"), Err(Kind::Usage), "a folder");
        assert_eq!(shown("/bin/three"), Err(Kind::NotFound));
        assert_eq!(shown("/bin/z*"), Err(Kind::NotFound));
    }

    #[test]
    fn files_as_a_process_sees_them() {
        let (root, system) = machine();
        let process = |pid: u32, namespace: &str, maps: &str| {
            let folder = root.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(folder.join("ns")).unwrap();
            symlink(namespace, folder.join("ns/mnt")).unwrap();
            std::fs::write(folder.join("maps"), maps).unwrap();
            folder
        };
        std::fs::create_dir_all(root.path().join("proc/self/ns")).unwrap();
        symlink("mnt:[1]", root.path().join("proc/self/ns/mnt")).unwrap();
        let one = root.path().join("bin/one").canonicalize().unwrap();
        process(7, "mnt:[1]", &format!("1000-2000 r-xp 00000000 08:01 5  {}\n", one.display()));
        let found = find(&system, "/bin/one", Some(7)).unwrap();
        assert_eq!((found[0].choices.len(), found[0].warnings.len()), (0, 0));
        assert_eq!(find(&system, "/bin/two", Some(7)).unwrap()[0].warnings.len(), 1, "not mapped");
        let other = process(8, "mnt:[2]", "");
        std::fs::create_dir_all(other.join("root/bin")).unwrap();
        std::fs::write(other.join("root/bin/one"), b"\x7fELF").unwrap();
        let found = find(&system, "/bin/one", Some(8)).unwrap();
        assert_eq!(found[0].path, other.join("root/bin/one"));
        assert_eq!(found[0].shown, "/bin/one");
        let replaced =
            process(9, "mnt:[1]", &format!("1000-2000 r-xp 00000000 08:01 5  {} (deleted)\n", one.display()));
        std::fs::create_dir_all(replaced.join("map_files")).unwrap();
        std::fs::write(replaced.join("map_files/1000-2000"), b"\x7fELF").unwrap();
        assert_eq!(find(&system, "/bin/one", Some(9)).unwrap()[0].path, replaced.join("map_files/1000-2000"));
        assert_eq!(find(&system, "/bin/one", Some(10)).unwrap_err().kind(), Kind::NotFound);
    }
}
