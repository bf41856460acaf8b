//! Folded stacks, one line each: `thread;root;...;leaf count`. The common denominator of flame graph tools.
//!
//! Sorted as bytes, equal lines added up, counts are samples. Kernel, inlined and JIT frames end in `_[k]`, `_[i]`, `_[j]`; there is no
//! such custom for Python and Ruby, so theirs are bare. A sample
//! without a known frame is `thread;[no stack]`. Loses process and thread ids, objects, files and lines, outcomes, the ledger.

use crate::paths::Paths;
use crate::stream::buffered;
use lightfoot_model::Profile;
use std::io::{self, Write};

/// Writes `profile` as folded stacks.
///
/// # Errors
/// Those of the writer.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let paths = Paths::new(profile);
    buffered(out, |writer| paths.for_each(|labels, count| write_line(writer, labels, count)))
}

/// One line, newline included.
pub(crate) fn write_line(
    out: &mut dyn Write,
    labels: &mut dyn Iterator<Item = &str>,
    count: u64,
) -> io::Result<()> {
    for (number, label) in labels.enumerate() {
        if number > 0 {
            out.write_all(b";")?;
        }
        out.write_all(label.as_bytes())?;
    }
    writeln!(out, " {count}")
}
