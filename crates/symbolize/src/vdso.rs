//! Names in the vDSO: the code that the kernel maps into every process. It is the same in all 64-bit processes, so it is
//! read from our own memory.

use crate::Named;
use crate::elf::Elf;
use crate::symbols;
use lightfoot_process::{Host, System};
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

/// Largest vDSO read. It has two pages on x86-64.
const BYTES_MAX: u64 = 256 << 10;

/// Names for offsets in the vDSO's image, in their order.
pub fn vdso(offsets: &[u64]) -> Vec<Named> {
    let Some(image) = vdso_image() else {
        return vec![Named::Unknown { reason: "vDSO unreadable" }; offsets.len()];
    };
    let bytes = &image[..];
    let Ok(elf) = Elf::parse(&bytes) else {
        return vec![Named::Unknown { reason: "vDSO unreadable" }; offsets.len()];
    };
    symbols::find_at_offsets(&[&elf], offsets).into_iter().map(Named::from).collect()
}

/// The image of the vDSO, as it is mapped into this process.
pub fn vdso_image() -> Option<Vec<u8>> {
    let mut range = None;
    Host::default()
        .executable_mappings(std::process::id(), &mut |mapping| {
            if *mapping.path == *b"[vdso]" {
                range = Some((mapping.start, mapping.end));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })
        .ok()?;
    let (start, end) = range?;
    let mut image = vec![0; (end - start).min(BYTES_MAX) as usize];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut image, start).ok()?;
    Some(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_in_the_vdso() {
        let image = vdso_image().expect("a vDSO");
        let names: Vec<String> = vdso(&(0..image.len() as u64).step_by(16).collect::<Vec<_>>())
            .into_iter()
            .filter_map(|named| match named {
                Named::Known { frames } => Some(frames[0].name.clone()),
                Named::Unknown { .. } => None,
            })
            .collect();
        assert!(names.iter().any(|name| name.contains("gettime")), "{names:?}");
    }
}
