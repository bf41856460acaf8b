// Shared by the plain tests that run the fuzz targets' checks without cargo-fuzz.

use std::path::Path;

/// Calls `check` for each file of `fuzz/corpus/<target>` and for `rounds` mutations of each, always the same ones: bytes
/// changed, removed, repeated, and the file cut short.
pub fn run(target: &str, rounds: usize, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no corpus for {target}");
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    // xorshift64
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below.max(1) as u64) as usize
    };
    for file in files {
        let original = std::fs::read(file).unwrap();
        check(&original);
        for _ in 0..rounds {
            let mut bytes = original.clone();
            for _ in 0..=random(8) {
                let at = random(bytes.len());
                match random(6) {
                    0 if !bytes.is_empty() => bytes[at] = random(256) as u8,
                    1 if !bytes.is_empty() => bytes[at] ^= 1 << random(8),
                    2 => bytes.truncate(at),
                    3 => {
                        let end = (at + random(64)).min(bytes.len());
                        bytes.drain(at..end);
                    }
                    4 => {
                        let end = (at + random(64)).min(bytes.len());
                        let piece = bytes[at..end].to_vec();
                        bytes.splice(at..at, piece);
                    }
                    _ => {
                        // Extreme numbers where a number may be.
                        let extreme =
                            [0u64, 1, 0x7fff_ffff_ffff_ffff, u64::MAX, 0xffff_ffff][random(5)].to_le_bytes();
                        let end = (at + 8).min(bytes.len());
                        bytes[at..end].copy_from_slice(&extreme[..end - at]);
                    }
                }
            }
            check(&bytes);
        }
    }
}
