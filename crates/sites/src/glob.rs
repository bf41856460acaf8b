//! Patterns as a shell has them: `*`, `?`, `[abc]`, `[a-z]`, `[!abc]`.

/// Whether the text is a pattern at all.
pub(crate) fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Whether `text` matches `pattern` as a whole. Time: at most the product of both lengths.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to go on if the last `*` takes one character more.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        match one(&pattern[p..], text[t]) {
            Some(length) => {
                p += length;
                t += 1;
            }
            None => {
                let Some((after_star, taken)) = retry else { return false };
                retry = Some((after_star, taken + 1));
                p = after_star;
                t = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Length of the pattern's first element if it matches one byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern.first()? {
        b'?' => Some(1),
        b'[' => class(pattern, byte),
        first => (*first == byte).then_some(1),
    }
}

/// `[...]`; without its end the bracket is an ordinary character.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let start = 1 + usize::from(negated);
    // A bracket that comes first is a member.
    let end = pattern.iter().skip(start + 1).position(|&c| c == b']').map(|at| at + start + 1);
    let Some(end) = end else { return (byte == b'[').then_some(1) };
    let members = &pattern[start..end];
    let mut found = false;
    let mut at = 0;
    while at < members.len() {
        if members.get(at + 1) == Some(&b'-') && at + 2 < members.len() {
            found |= (members[at]..=members[at + 2]).contains(&byte);
            at += 3;
        } else {
            found |= members[at] == byte;
            at += 1;
        }
    }
    (found != negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let yes = [
            ("", ""),
            ("*", ""),
            ("*", "anything"),
            ("SSL_*", "SSL_read"),
            ("*read", "SSL_read"),
            ("a*b*c", "aXbYbZc"),
            ("vfs_?pen", "vfs_open"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[]]", "]"),
            ("[", "["),
            ("[ab", "[ab"),
            ("***a", "ba"),
            ("a[0-9]*", "a7z"),
        ];
        let no = [
            ("", "a"),
            ("SSL_*", "ssl_read"),
            ("a*b*c", "aXbYbZ"),
            ("vfs_?pen", "vfs_pen"),
            ("[a-c]x", "dx"),
            ("[!a-c]x", "bx"),
            ("?", ""),
            ("[ab", "a"),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in no {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        assert!(!matches(&"*a".repeat(60), &"a".repeat(59)));
    }
}
