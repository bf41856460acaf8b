//! Not yet.

use lightfoot_model::Profile;
use std::io::{self, Write};

/// Writes `profile`.
///
/// # Errors
/// Always, for now.
pub fn write(_profile: &Profile, _out: &mut dyn Write) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this format is not written yet"))
}
