//! Walks that failed once, or that must never fail: each is saved by `lightfoot profile --save-failed` and kept with
//! `cargo xtask replay FILE --as-test NAME`. The name says what it proves.

use lightfoot_unwind::{Agreement, Frozen, compare};
use std::path::Path;

#[test]
fn walks_in_user_space_find_what_the_kernel_found() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frozen");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let frozen =
            Frozen::decode(&std::fs::read(&path).unwrap()).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let (walked, _, agreement) = compare(&frozen);
        assert_eq!(agreement, Agreement::Same, "{path:?}: {walked:x?}\nkernel: {:x?}", frozen.found);
        assert!(!walked.frames.is_empty(), "{path:?}");
        files += 1;
    }
    assert!(files >= 2, "only {files} walks");
}
