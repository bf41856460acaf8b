//! The guest's file system: a `newc` cpio archive, uncompressed (unpacking gzip without KVM costs more than reading it).
//! Written here because device nodes in an archive need no privilege, while making them on disk does.
//! Format: Documentation/driver-api/early-userspace/buffer-format.rst in the kernel.
use super::{NotHere, output, which};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

enum Entry {
    Folder,
    Device { major: u32, minor: u32 },
    Text(String),
    File { source: PathBuf, mode: u32 },
}

/// Entries by path without leading slash. Parents come first because a prefix sorts before the longer path.
pub struct Initramfs {
    entries: BTreeMap<String, Entry>,
}

/// A busybox without shared libraries.
pub fn busybox() -> Result<PathBuf> {
    let Some(path) = which("busybox") else {
        return Err(NotHere("busybox is missing: install the package busybox-static".into()).into());
    };
    if !libraries(&path)?.is_empty() {
        return Err(NotHere(format!(
            "{} needs shared libraries: install the package busybox-static",
            path.display()
        ))
        .into());
    }
    Ok(path)
}

impl Initramfs {
    /// Busybox and the folders and devices that a start needs.
    pub fn new(busybox: &Path) -> Result<Self> {
        let mut image = Initramfs { entries: BTreeMap::new() };
        for folder in ["dev", "proc", "sys", "tmp", "root", "out", "lightfoot/bin", "lightfoot/guest"] {
            image.folders(&format!("{folder}/"));
        }
        image.entries.insert("dev/console".into(), Entry::Device { major: 5, minor: 1 });
        image.file("bin/busybox", busybox, 0o755)?;
        Ok(image)
    }

    /// A file of this machine at another path in the guest.
    pub fn file(&mut self, path: &str, source: &Path, mode: u32) -> Result<()> {
        if !source.is_file() {
            bail!("no such file: {}", source.display());
        }
        let path = path.trim_start_matches('/');
        self.folders(path);
        self.entries.insert(path.into(), Entry::File { source: source.into(), mode });
        Ok(())
    }

    /// A file of this machine under its own path.
    pub fn same_path(&mut self, source: &Path) -> Result<()> {
        let path = std::path::absolute(source)?;
        self.file(&path.to_string_lossy(), source, 0o755)
    }

    /// A program, and the shared libraries it needs under their own paths.
    pub fn program(&mut self, path: &str, source: &Path) -> Result<()> {
        self.file(path, source, 0o755)?;
        for library in libraries(source)? {
            self.same_path(&library)?;
        }
        Ok(())
    }

    pub fn text(&mut self, path: &str, text: &str) {
        self.folders(path);
        self.entries.insert(path.into(), Entry::Text(text.into()));
    }

    /// All folders above `path`.
    fn folders(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            self.entries.insert(path[..at].into(), Entry::Folder);
        }
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let file = std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        self.write_to(&mut std::io::BufWriter::new(file))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn write_to(&self, out: &mut impl Write) -> Result<()> {
        for (number, (path, entry)) in (1u32..).zip(&self.entries) {
            let (mode, device, data) = match entry {
                Entry::Folder => (0o040_755, (0, 0), Vec::new()),
                Entry::Device { major, minor } => (0o020_600, (*major, *minor), Vec::new()),
                Entry::Text(text) => (0o100_644, (0, 0), text.clone().into_bytes()),
                Entry::File { source, mode } => {
                    let data =
                        std::fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
                    (0o100_000 | mode, (0, 0), data)
                }
            };
            member(out, number, path, mode, device, &data)?;
        }
        member(out, 0, "TRAILER!!!", 0, (0, 0), &[])?;
        out.flush()?;
        Ok(())
    }
}

/// One member: 110 bytes of header, name and data, each padded to four bytes.
fn member(
    out: &mut impl Write,
    inode: u32,
    name: &str,
    mode: u32,
    device: (u32, u32),
    data: &[u8],
) -> Result<()> {
    let size = u32::try_from(data.len()).context("a file in an initramfs has at most 4 GiB")?;
    let fields = [inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name.len() as u32 + 1, 0];
    write!(out, "070701")?;
    for field in fields {
        write!(out, "{field:08x}")?;
    }
    write!(out, "{name}\0")?;
    out.write_all(&[0; 3][..padding(110 + name.len() + 1)])?;
    out.write_all(data)?;
    out.write_all(&[0; 3][..padding(data.len())])?;
    Ok(())
}

fn padding(length: usize) -> usize {
    length.next_multiple_of(4) - length
}

/// The shared libraries and the loader that a program needs; nothing for a static one. Source: `ldd`.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let out = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&out.stdout);
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        bail!("{} cannot start here: {}", program.display(), line.trim());
    }
    Ok(parse_ldd(&text))
}

fn parse_ldd(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| {
            let path = line.split(" (0x").next()?.split("=> ").last()?.trim();
            path.starts_with('/').then(|| PathBuf::from(path))
        })
        .collect()
}

/// SHA-256 of a file, in hexadecimal.
pub fn sha256(file: &Path) -> Result<String> {
    let text = output(Command::new("sha256sum").arg("--").arg(file))?;
    Ok(text.trim_start_matches('\\').split_whitespace().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_gives_libraries_and_the_loader_but_not_the_vdso() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libelf.so.1", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(parse_ldd(text), expected.map(PathBuf::from));
        assert_eq!(parse_ldd("\tstatically linked\n"), Vec::<PathBuf>::new());
    }

    #[test]
    fn members_are_padded_and_parents_come_first() {
        let mut image = Initramfs { entries: BTreeMap::new() };
        image.text("a/b/c", "12345");
        let mut bytes = Vec::new();
        image.write_to(&mut bytes).unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let at = |what: &str| text.find(what).unwrap();
        assert!(at("a\0") < at("a/b\0") && at("a/b\0") < at("a/b/c\0"));
        assert!(at("a/b/c\0") < at("12345") && at("12345") < at("TRAILER!!!"));
        // Header of the first member, a folder: inode 1, mode 040755.
        assert!(text.starts_with("07070100000001000041ed"));
    }
}
