//! One module per format: text, HTML, SVG, folded, pprof, speedscope, Firefox, JSON.
//!
//! A format takes a finished [`Profile`] and writes it to a given writer, in one pass and without a copy of the profile. What a
//! format loses is said at the top of its module and in `docs/formats.md`.
//!
//! Not here: opening or naming files, deciding about colour (crate `cli`), finding names (crate `symbolize`).
#![forbid(unsafe_code)]

mod colors;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
mod debts;
pub mod firefox;
pub mod folded;
mod format;
pub mod html;
pub mod json;
mod names;
mod paths;
pub mod pprof;
pub mod speedscope;
mod stream;
pub mod svg;
pub mod text;
mod units;

pub use format::{EXTENSIONS, Format, UnknownFormat, extensions_for_people};
pub use text::{TextOptions, ledger};

use lightfoot_model::Profile;
use std::io::{self, Write};

/// Writes `profile` to `out` as `format`. `options` matter to [`Format::Text`] only.
///
/// The writer is buffered here and flushed at the end; it need not be buffered itself.
///
/// # Errors
/// Those of the writer.
pub fn write(
    profile: &Profile,
    format: Format,
    out: &mut dyn Write,
    options: &TextOptions,
) -> io::Result<()> {
    match format {
        Format::Text => text::write(profile, out, options),
        Format::Html => html::write(profile, out),
        Format::Svg => svg::write(profile, out),
        Format::Folded => folded::write(profile, out),
        Format::Pprof => pprof::write(profile, out),
        Format::Speedscope => speedscope::write(profile, out),
        Format::Firefox => firefox::write(profile, out),
        Format::Json => json::write(profile, out),
    }
}
