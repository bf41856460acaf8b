//! What the terminal can do.

use lightfoot_export::TextOptions;
use lightfoot_kernel::os::terminal_columns;
use std::io::IsTerminal;
use std::os::fd::AsFd;

/// Layout of text for a stream: colour and width of its terminal; 100 columns without colour where it is none.
pub fn text_options(stream: &(impl IsTerminal + AsFd), rows: usize) -> TextOptions {
    let terminal = stream.is_terminal();
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let width = if terminal { terminal_columns(stream.as_fd()).unwrap_or(80) } else { 100 };
    TextOptions { color: terminal && !dumb && !no_color, width, rows }
}
