//! `lightfoot system-info`.

use crate::args::SystemInfoArguments;
use crate::exit::{DONE, Failure};

/// Prints what works here. Returns the exit code.
pub fn run(arguments: &SystemInfoArguments) -> Result<u8, Failure> {
    println!("{}", arguments.format);
    Ok(DONE)
}
