//! `cargo run -p lightfoot-interpreters --example detect -- FILE...`: what each file turns out to be, and how long that took.
#![expect(clippy::print_stdout, reason = "an example")]

use std::os::unix::fs::FileExt;
use std::time::Instant;

use lightfoot_interpreters::{Detected, Layouts, ReadAt, detect};

struct File(std::fs::File, u64);

impl ReadAt for File {
    fn len(&self) -> u64 {
        self.1
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        self.0.read_exact_at(into, offset).ok()
    }
}

fn main() -> std::io::Result<()> {
    let layouts = Layouts::built_in();
    for path in std::env::args().skip(1) {
        let file = std::fs::File::open(&path)?;
        let length = file.metadata()?.len();
        let begin = Instant::now();
        let found = detect(&File(file, length), &path, &layouts);
        let spent = begin.elapsed();
        match found {
            Detected::Nothing => println!("{path}: nothing, {spent:.0?}"),
            Detected::Unsupported { language, reason } => {
                println!("{path}: {language}: {reason}, {spent:.0?}")
            }
            Detected::Interpreter(found) => {
                println!("{path}: {} {}, {spent:.0?}", found.language, found.version);
                println!("  loop {:x?}, symbols {:x?}", found.loop_code, found.symbols);
                println!("  offsets {:?}", found.offsets);
            }
        }
    }
    Ok(())
}
