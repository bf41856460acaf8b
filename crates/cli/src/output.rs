//! Where the result goes: opened before the run, complete or not there at all afterwards.

use crate::exit::{FAILED, Failure};
use lightfoot_kernel::os::plain;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// An output that could be opened.
#[derive(Debug)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// A regular file: written beside its place and moved there when it is complete. Dropped before that, it is removed.
    File { unfinished: NamedTempFile, path: PathBuf },
    /// A pipe, terminal or device: written directly.
    Direct { file: File, path: PathBuf },
}

impl Output {
    /// Opens `path`, or standard output for `None` and `-`.
    pub fn open(path: Option<&Path>) -> Result<Output, Failure> {
        match path {
            None => Ok(Output::Stdout),
            Some(path) if path.as_os_str() == "-" => Ok(Output::Stdout),
            Some(path) => Output::open_path(path).map_err(|e| {
                Failure::because(FAILED, format!("cannot write {}: {}", path.display(), plain(&e)), e)
            }),
        }
    }

    fn open_path(path: &Path) -> io::Result<Output> {
        // What a link points to is replaced, not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        if let Ok(metadata) = path.metadata() {
            let kind = metadata.file_type();
            if kind.is_fifo() || kind.is_char_device() || kind.is_block_device() || kind.is_socket() {
                let file = OpenOptions::new().write(true).open(&path)?;
                return Ok(Output::Direct { file, path });
            }
            if kind.is_dir() {
                return Err(io::Error::from(io::ErrorKind::IsADirectory));
            }
            // Whoever may not write the file shall not replace it either.
            OpenOptions::new().append(true).open(&path)?;
        }
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_string_lossy().into_owned();
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let unfinished = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .suffix(".tmp")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)?;
        Ok(Output::File { unfinished, path })
    }

    /// Whether it is standard output.
    pub fn is_stdout(&self) -> bool {
        matches!(self, Output::Stdout)
    }

    /// Writes with `write` and finishes. A reader that has gone away (a closed pipe) is no failure.
    pub fn deliver(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        let (result, name) = match self {
            Output::Stdout => {
                let mut stdout = io::stdout().lock();
                (write(&mut stdout).and_then(|()| stdout.flush()), "standard output".to_string())
            }
            Output::Direct { mut file, path } => (write(&mut file), path.display().to_string()),
            Output::File { mut unfinished, path } => {
                let name = path.display().to_string();
                let written = write(unfinished.as_file_mut());
                (written.and_then(|()| unfinished.persist(&path).map(drop).map_err(|e| e.error)), name)
            }
        };
        match result {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::because(FAILED, format!("cannot write {name}: {}", plain(&e)), e))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_complete_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.txt");
        let names = || std::fs::read_dir(folder.path()).unwrap().count();

        let output = Output::open(Some(&path)).unwrap();
        assert!(!path.exists());
        let failed = output.deliver(|out| {
            out.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert!(failed.is_err());
        assert_eq!(names(), 0, "nothing is left behind");

        drop(Output::open(Some(&path)).unwrap());
        assert_eq!(names(), 0, "nothing is left behind");

        Output::open(Some(&path)).unwrap().deliver(|out| out.write_all(b"whole")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(), 1);
    }

    #[test]
    fn places_that_cannot_be_written_are_found_when_opening() {
        let folder = tempfile::tempdir().unwrap();
        for wrong in [folder.path().to_path_buf(), folder.path().join("no/such/folder/x.txt")] {
            assert!(Output::open(Some(&wrong)).is_err(), "{}", wrong.display());
        }
    }

    #[test]
    fn devices_are_written_in_place() {
        let output = Output::open(Some(Path::new("/dev/null"))).unwrap();
        assert!(matches!(output, Output::Direct { .. }));
        output.deliver(|out| out.write_all(b"gone")).unwrap();
        assert!(Path::new("/dev/null").metadata().unwrap().file_type().is_char_device());
    }
}
