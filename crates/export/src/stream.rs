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

/// A JSON object with the given members, in that order, made from a view of the profile when it is written:
/// `json_object!(Name, view: View, { "member": expression, ... })` defines `Name(&view)`.
macro_rules! json_object {
    ($name:ident, $view:ident: $type:ident, { $($key:literal: $value:expr),* $(,)? }) => {
        struct $name<'v>(&'v $type<'v>);

        impl ::serde::Serialize for $name<'_> {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use ::serde::ser::SerializeMap;
                let $view = self.0;
                let mut map = serializer.serialize_map(None)?;
                $(map.serialize_entry($key, &$value)?;)*
                map.end()
            }
        }
    };
}
pub(crate) use json_object;
