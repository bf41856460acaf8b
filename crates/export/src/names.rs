//! Names as they may be shown: foreign text made harmless, and shortened to a width.

use std::borrow::Cow;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Whether `c` could move the cursor, start a terminal sequence, break a line or turn the direction of writing.
fn is_unsafe_to_show(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
}

/// `text` for one line of a terminal: control characters and characters that change the direction of writing become `\u{FFFD}`.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if text.contains(is_unsafe_to_show) {
        Cow::Owned(text.replace(is_unsafe_to_show, "\u{FFFD}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// The last part of a path: `/usr/lib/libc.so.6` is `libc.so.6`; `[kernel]` stays.
pub(crate) fn short_object(object: &str) -> &str {
    if object.starts_with('[') {
        return object;
    }
    match object.trim_end_matches('/').rsplit('/').next() {
        Some(last) if !last.is_empty() => last,
        _ => object,
    }
}

/// Columns that `text` takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// `text` in at most `columns` columns: what does not fit is cut out of the middle, because in long names both the namespace and the
/// function matter.
pub(crate) fn shorten_middle(text: &str, columns: usize) -> Cow<'_, str> {
    if text.width() <= columns {
        return Cow::Borrowed(text);
    }
    if columns <= 1 {
        return Cow::Borrowed(if columns == 1 { "…" } else { "" });
    }
    let head_columns = (columns - 1) / 2;
    let tail_columns = columns - 1 - head_columns;
    let head = prefix_len(text.chars(), head_columns);
    let tail = prefix_len(text.chars().rev(), tail_columns);
    Cow::Owned(format!("{}…{}", &text[..head], &text[text.len() - tail..]))
}

/// Bytes of the longest run of characters from the start of `chars` that fits in `columns`.
fn prefix_len(chars: impl Iterator<Item = char>, columns: usize) -> usize {
    let (mut used, mut bytes) = (0, 0);
    for c in chars {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        bytes += c.len_utf8();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_cannot_reach_the_terminal() {
        assert_eq!(printable("plain <name>"), "plain <name>");
        assert_eq!(printable("a\x1b[31mb\nc\u{202E}d\u{9b}"), "a\u{FFFD}[31mb\u{FFFD}c\u{FFFD}d\u{FFFD}");
    }

    #[test]
    fn objects_are_shown_by_their_last_part() {
        for (object, short) in [
            ("/usr/lib/libc.so.6", "libc.so.6"),
            ("[kernel]", "[kernel]"),
            ("[anon:a/b]", "[anon:a/b]"),
            ("x", "x"),
            ("", ""),
            ("/", "/"),
            ("/a/", "a"),
        ] {
            assert_eq!(short_object(object), short);
        }
    }

    #[test]
    fn shortening_keeps_both_ends_and_counts_wide_characters() {
        assert_eq!(shorten_middle("abcdef", 6), "abcdef");
        assert_eq!(shorten_middle("abcdefg", 6), "ab…efg");
        assert_eq!(shorten_middle("世界世界世界", 7), "世…界");
        for columns in 0..20 {
            for text in
                ["世界世界世界世界世界", "std::vector<int>::push_back", "e\u{301}e\u{301}e\u{301}e\u{301}"]
            {
                assert!(width(&shorten_middle(text, columns)) <= columns, "{text} in {columns}");
            }
        }
    }
}
