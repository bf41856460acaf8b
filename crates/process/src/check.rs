//! What must hold for any bytes; called by the fuzz targets and, over their corpus, by plain tests.

use crate::{for_each_line, maps, perf_map};
use std::ops::ControlFlow;

/// Any bytes as `/proc/PID/maps`.
///
/// # Panics
/// If a parsed mapping is not what it promises to be: that is a bug.
pub fn proc_maps(bytes: &[u8]) {
    let mut reader = bytes;
    let result = for_each_line(&mut reader, u64::MAX, &mut |line| {
        assert!(!line.contains(&b'\n'));
        if let Ok(Some(mapping)) = maps::parse_line(line) {
            assert!(mapping.start < mapping.end);
            assert!(mapping.path.len() <= line.len());
        }
        ControlFlow::Continue(())
    });
    assert!(result.is_ok(), "memory cannot fail to be read");
}

/// Any bytes as a perf map.
///
/// # Panics
/// If an entry does not cover the address that it was found for, or has a name that a terminal would obey: that is a bug.
pub fn perf_map(bytes: &[u8]) {
    // Addresses that occur in the text, and some that may not.
    let mut addresses: Vec<u64> = vec![0, 1, 0x1000, 0x7fff_ffff_ffff, u64::MAX];
    let starts = bytes.split(|&byte| byte == b'\n').filter_map(perf_map::parse_line).take(100);
    addresses.extend(starts.flat_map(|(start, size, _)| [start, start + size / 2, start + size]));
    addresses.sort_unstable();
    addresses.dedup();
    let mut reader = bytes;
    let Ok((found, _)) = perf_map::find(&mut reader, &addresses, u64::MAX) else {
        panic!("memory cannot fail to be read");
    };
    assert_eq!(found.len(), addresses.len());
    for (address, entry) in addresses.iter().zip(found) {
        if let Some(entry) = entry {
            assert!(entry.start <= *address && *address - entry.start < entry.size);
            assert!(!entry.name.chars().any(char::is_control));
        }
    }
}
