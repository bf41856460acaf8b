//! Debian's kernel image, out of its package and without installing it.
use super::{NotHere, output, which};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of a kernel image of `series` (for example `6.12`): the newest unpacked earlier in `folder`, else downloaded
/// with apt and unpacked there.
pub fn find(folder: &Path, series: &str, refresh: bool) -> Result<PathBuf> {
    let folder = folder.join(series);
    if !refresh && let Some(image) = newest(&folder) {
        return Ok(image);
    }
    match download(&folder, series) {
        Ok(image) => Ok(image),
        // Without network an older kernel is as good.
        Err(error) => newest(&folder).ok_or(error),
    }
}

fn newest(folder: &Path) -> Option<PathBuf> {
    let mut images: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vmlinuz-")))
        .collect();
    images.sort_by_key(|path| version_key(&path.to_string_lossy()));
    images.pop()
}

fn download(folder: &Path, series: &str) -> Result<PathBuf> {
    for tool in ["apt-get", "apt-cache", "dpkg-deb", "tar"] {
        if which(tool).is_none() {
            return Err(NotHere(format!(
                "the guest's kernel comes out of a Debian package, and {tool} is missing: give a kernel image with --vmlinuz FILE"
            ))
            .into());
        }
    }
    let Some(package) = package(series) else {
        return Err(NotHere(format!(
            "no package linux-image-{series}-cloud-amd64 is known to apt (run `apt-get update`, or give a kernel image with --vmlinuz FILE)"
        ))
        .into());
    };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    eprintln!("vm: downloading {package} into {} (not installed)", folder.display());
    let download = Command::new("apt-get")
        .args(["-qq", "-o", "APT::Sandbox::User=root", "download", &package])
        .current_dir(folder)
        .output()
        .context("cannot run apt-get")?;
    if !download.status.success() {
        let why = String::from_utf8_lossy(&download.stderr);
        return Err(NotHere(format!("cannot download {package}: {}", why.trim().replace('\n', "; "))).into());
    }
    let archive = std::fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|e| e == "deb"))
        .context("apt-get download left no package")?;
    // Only the image: its modules are 100 MB, and everything the tests need is built in.
    output(Command::new("sh").args([
        "-c",
        r#"dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --strip-components=2 --wildcards './boot/vmlinuz-*' './boot/config-*'"#,
        "sh",
        &archive.to_string_lossy(),
        &folder.to_string_lossy(),
    ]))
    .context("cannot unpack the kernel package")?;
    std::fs::remove_file(&archive)?;
    newest(folder).context("the kernel package has no ./boot/vmlinuz-*")
}

/// The package that holds the image: what the meta package of the series depends on, else the newest of the series.
fn package(series: &str) -> Option<String> {
    let meta = format!("linux-image-{series}-cloud-amd64");
    let shown =
        output(Command::new("apt-cache").args(["show", "--no-all-versions", &meta])).unwrap_or_default();
    if !shown.is_empty() {
        // A full version names the real package itself.
        return Some(image_dependency(&shown).unwrap_or(meta));
    }
    let prefix = format!("linux-image-{series}.");
    let names = output(Command::new("apt-cache").args(["pkgnames", &prefix])).ok()?;
    names
        .lines()
        .filter(|name| name.ends_with("-cloud-amd64"))
        .max_by_key(|name| version_key(name))
        .map(str::to_owned)
}

/// `linux-image-...` in the `Depends:` of a package record.
fn image_dependency(record: &str) -> Option<String> {
    let depends = record.lines().find_map(|line| line.strip_prefix("Depends:"))?;
    depends
        .split([',', '|'])
        .filter_map(|part| part.split_whitespace().next())
        .find(|name| name.starts_with("linux-image-") && name.ends_with("-cloud-amd64"))
        .map(str::to_owned)
}

/// The numbers in a text, so that 6.12.9 comes before 6.12.107.
fn version_key(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meta_package_leads_to_the_image() {
        let record = "Package: linux-image-6.12-cloud-amd64\nDepends: linux-image-6.12.117+deb12-cloud-amd64 (= 6.12.117-1~deb12u1)\n";
        assert_eq!(image_dependency(record).as_deref(), Some("linux-image-6.12.117+deb12-cloud-amd64"));
        assert_eq!(image_dependency("Package: x\nDepends: kmod, linux-base\n"), None);
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(version_key("vmlinuz-6.12.107+deb12") > version_key("vmlinuz-6.12.9+deb12"));
    }
}
