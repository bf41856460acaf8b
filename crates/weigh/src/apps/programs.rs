//! The programs of the distribution that are needed.

use super::{Error, Result, failed};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folders of programs for administrators, which are not in everybody's `PATH`.
const MORE_FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Where they are, and which they are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The server.
    pub nginx: PathBuf,
    /// The load.
    pub wrk: PathBuf,
    /// Makes a certificate.
    pub openssl: PathBuf,
}

impl Programs {
    /// Looks for all of them.
    ///
    /// # Errors
    /// [`Error::NotPossible`] with the packages of those that are missing.
    pub fn find() -> Result<Programs> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> =
            std::env::split_paths(&path).chain(MORE_FOLDERS.map(PathBuf::from)).collect();
        find_in(&folders)
    }

    /// Names and versions, as the programs tell them.
    pub fn versions(&self) -> Vec<String> {
        let tell = |program: &Path, argument: &str| {
            let out = Command::new(program).arg(argument).stdin(Stdio::null()).output().ok()?;
            let (stdout, stderr) =
                (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
            stdout.lines().chain(stderr.lines()).find(|line| !line.is_empty()).map(version)
        };
        let told = [tell(&self.nginx, "-v"), tell(&self.wrk, "-v"), tell(&self.openssl, "version")];
        told.into_iter().flatten().collect()
    }
}

fn find_in(folders: &[PathBuf]) -> Result<Programs> {
    let mut missing = Vec::new();
    let mut find = |name: &'static str| {
        let found = folders.iter().map(|folder| folder.join(name)).find(|path| is_executable(path));
        found.unwrap_or_else(|| {
            missing.push(name);
            PathBuf::new()
        })
    };
    // The packages are called like the programs, in Debian and in most others.
    let programs = Programs { nginx: find("nginx"), wrk: find("wrk"), openssl: find("openssl") };
    match missing.is_empty() {
        true => Ok(programs),
        false => Err(Error::NotPossible(format!(
            "programs are missing: {}. To install them: apt-get install {}",
            missing.join(", "),
            missing.join(" ")
        ))),
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// `nginx version: nginx/1.22.1` -> `nginx/1.22.1`; `wrk debian/4.1.0-3+b3 [epoll] Copyright ...` -> up to the bracket.
fn version(line: &str) -> String {
    let line = line.strip_prefix("nginx version: ").unwrap_or(line);
    line.split([' ', '('])
        .take_while(|word| !word.starts_with('['))
        .take(2)
        .collect::<Vec<_>>()
        .join(" ")
        .trim()
        .to_string()
}

/// The libraries `libssl` and `libcrypto` that a program loads. Source: the loader itself, which lists them instead of running the program.
///
/// # Errors
/// [`Error::NotPossible`] if it loads none.
pub fn tls_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let mut command = Command::new(program);
    command.env("LD_TRACE_LOADED_OBJECTS", "1").env_remove("LD_LIBRARY_PATH").stdin(Stdio::null());
    let out = command.output().map_err(|e| failed(program.display(), e))?;
    let libraries = libraries_in(&String::from_utf8_lossy(&out.stdout));
    if !libraries.iter().any(|path| file_name(path).starts_with("libssl.so")) {
        return Err(Error::NotPossible(format!(
            "{} does not load libssl: there is nothing to watch",
            program.display()
        )));
    }
    Ok(libraries)
}

/// Lines like `libssl.so.3 => /lib/x86_64-linux-gnu/libssl.so.3 (0x00007f...)`.
fn libraries_in(text: &str) -> Vec<PathBuf> {
    let path = |line: &str| Some(PathBuf::from(line.split_once(" => ")?.1.rsplit_once(" (")?.0));
    let wanted =
        |path: &PathBuf| ["libssl.so", "libcrypto.so"].iter().any(|name| file_name(path).starts_with(name));
    text.lines().filter_map(path).filter(wanted).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_named_with_their_packages() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("nginx"), "not executable").unwrap();
        let said = find_in(&[folder.path().to_path_buf()]).unwrap_err().to_string();
        assert_eq!(
            said,
            "programs are missing: nginx, wrk, openssl. To install them: apt-get install nginx wrk openssl"
        );
    }

    #[test]
    fn versions_are_short() {
        assert_eq!(version("nginx version: nginx/1.22.1"), "nginx/1.22.1");
        assert_eq!(version("nginx version: nginx/1.24.0 (Ubuntu)"), "nginx/1.24.0");
        assert_eq!(
            version("wrk debian/4.1.0-3+b3 [epoll] Copyright (C) 2012 Will Glozer"),
            "wrk debian/4.1.0-3+b3"
        );
        assert_eq!(version("OpenSSL 3.0.19 27 Jan 2026 (Library: OpenSSL 3.0.19)"), "OpenSSL 3.0.19");
    }

    #[test]
    fn the_loader_names_libraries() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd3)\n\tlibssl.so.3 => /lib/x/libssl.so.3 (0x00007f1)\n\
                    \tlibcrypto.so.3 => /lib/x/libcrypto.so.3 (0x00007f2)\n\tlibz.so.1 => /lib/x/libz.so.1 (0x0)\n\
                    \tlibssl.so.9 => not found\n";
        assert_eq!(libraries_in(text), [Path::new("/lib/x/libssl.so.3"), Path::new("/lib/x/libcrypto.so.3")]);
    }
}
