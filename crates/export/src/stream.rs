//! Writing JSON as it is produced: no list is built in memory first.

use serde::{Serialize, Serializer};
use std::io::{self, BufWriter, Write};

/// Bytes collected before they are handed to the writer.
const BUFFER_BYTES: usize = 64 * 1024;

/// Runs `body` with a buffered writer on `out` and flushes it.
pub(crate) fn buffered(
    out: &mut dyn Write,
    body: impl FnOnce(&mut BufWriter<&mut dyn Write>) -> io::Result<()>,
) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, out);
    body(&mut writer)?;
    writer.flush()
}

/// A JSON array whose elements come from an iterator that is made when the array is written.
pub(crate) struct Seq<F>(pub F);

impl<F, I> Serialize for Seq<F>
where
    F: Fn() -> I,
    I: IntoIterator,
    I::Item: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}
