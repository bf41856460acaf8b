//! The `lightfoot` command.
fn main() {}
