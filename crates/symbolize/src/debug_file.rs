//! Separate debug files: by build ID, and by the name and checksum in `.gnu_debuglink`. Source: GDB manual, "Debugging
//! Information in Separate Files".

use crate::bytes::read_some;
use crate::elf::Elf;
use lightfoot_process::{Host, System};
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where distributions put debug files.
const DEBUG_FOLDER: &str = "/usr/lib/debug";
/// Largest debug file whose checksum is computed; only needed where there is no build ID to compare.
const CHECKSUM_BYTES_MAX: u64 = 16 << 20;

/// The build ID of an object: at most 64 bytes.
pub(crate) fn build_id(elf: &Elf<'_>) -> Option<Vec<u8>> {
    let section = elf.section_named(b".note.gnu.build-id")?;
    let note = read_some(elf.data, section.offset, section.size, 128);
    let (name, length) = (elf.endian.u32(&note, 0) as usize, elf.endian.u32(&note, 4) as usize);
    let id = (name == 4 && note.get(12..16)? == b"GNU\0").then(|| note.get(16..16 + length.min(64)))??;
    (id.len() >= 2).then(|| id.to_vec())
}

/// The separate debug file that belongs to an object, open; `display_path` is the object's own path.
pub(crate) fn find(elf: &Elf<'_>, display_path: &Path) -> Option<File> {
    let id = build_id(elf);
    let by_id = id.as_ref().and_then(|id| {
        let (first, rest) = id.split_first()?;
        let mut path = format!("{DEBUG_FOLDER}/.build-id/{first:02x}/");
        for byte in rest {
            let _ = write!(path, "{byte:02x}");
        }
        path.push_str(".debug");
        open_matching(Path::new(&path), id, None)
    });
    by_id.or_else(|| {
        let (name, checksum) = debug_link(elf)?;
        let folder = display_path.parent()?;
        let in_debug_folder = Path::new(DEBUG_FOLDER).join(folder.strip_prefix("/").ok()?).join(&name);
        [folder.join(&name), folder.join(".debug").join(&name), in_debug_folder]
            .iter()
            .filter(|path| *path != display_path)
            .find_map(|path| open_matching(path, id.as_deref().unwrap_or_default(), Some(checksum)))
    })
}

/// The supplementary file that `dwz` made of what several debug files have in common, open. `file` is the file of `elf`.
pub(crate) fn find_shared(elf: &Elf<'_>, file: &File) -> Option<File> {
    let section = elf.section_named(b".gnu_debugaltlink")?;
    let bytes = read_some(elf.data, section.offset, section.size, 4096);
    let length = bytes.iter().position(|&byte| byte == 0)?;
    let (path, id) = (Path::new(OsStr::from_bytes(&bytes[..length])), &bytes[length + 1..]);
    // A relative path counts from the debug file's folder.
    let own = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    (id.len() >= 2).then(|| open_matching(&own.parent()?.join(path), id, None))?
}

/// Opens a debug file if it belongs to the object: the same build ID or, without one, the checksum.
fn open_matching(path: &Path, id: &[u8], checksum: Option<u32>) -> Option<File> {
    // Distributions link from the build ID to the file; only the end of the links is opened, and only a regular file.
    let opened = Host::default().open(&path.canonicalize().ok()?).ok()?;
    let matches = if id.is_empty() {
        opened.identity.size <= CHECKSUM_BYTES_MAX && Some(crc32(&opened.file)) == checksum
    } else {
        build_id(&Elf::parse(&opened.file).ok()?)? == id
    };
    matches.then_some(opened.file)
}

/// Name and checksum of the debug file, as the object gives them.
fn debug_link(elf: &Elf<'_>) -> Option<(PathBuf, u32)> {
    let section = elf.section_named(b".gnu_debuglink")?;
    let bytes = read_some(elf.data, section.offset, section.size, 4096);
    let length = bytes.iter().position(|&byte| byte == 0)?;
    let name = &bytes[..length];
    // A file name: nothing that leads to another folder.
    if name.is_empty() || name.contains(&b'/') {
        return None;
    }
    let at = (length + 4) & !3;
    bytes.get(at..at + 4)?;
    Some((PathBuf::from(OsStr::from_bytes(name)), elf.endian.u32(&bytes, at)))
}

/// CRC-32 of a whole file (polynomial 0x04c11db7, reflected), as `.gnu_debuglink` uses it.
fn crc32(file: &File) -> u32 {
    let table: Vec<u32> = (0..256u32)
        .map(|byte| (0..8).fold(byte, |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }))
        .collect();
    let (mut crc, mut offset) = (!0u32, 0);
    loop {
        let bytes = read_some(file, offset, u64::MAX, 64 << 10);
        if bytes.is_empty() {
            return !crc;
        }
        for byte in &bytes {
            crc = crc >> 8 ^ table[(crc as u8 ^ byte) as usize];
        }
        offset += bytes.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn checksum_is_the_usual_crc() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"123456789").unwrap();
        assert_eq!(crc32(&file), 0xcbf4_3926);
    }
}
