//! Names that a user may have meant.

/// Names looked at; what comes after is not compared.
const NAMES_MAX: usize = 1_000_000;

/// Up to `most` names near to `wanted`, the nearest first: by edit distance, then those that contain it.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>, most: usize) -> Vec<String> {
    let plain = wanted.trim_matches('*');
    let length = plain.chars().count();
    if length == 0 {
        return Vec::new();
    }
    // One slip in three characters, at most three.
    let slips = (length / 3).clamp(1, 3);
    let mut near: Vec<(usize, usize, String)> = Vec::new();
    for name in names.take(NAMES_MAX) {
        let rank = match distance(plain, name, slips) {
            Some(slips) => slips,
            None if length >= 3 && name.len() <= 256 && contains(name, plain) => {
                10 + name.len() - plain.len().min(name.len())
            }
            None => continue,
        };
        near.push((rank, name.len(), name.to_owned()));
        if near.len() > 64 * most.max(1) {
            keep(&mut near, most);
        }
    }
    keep(&mut near, most);
    near.into_iter().map(|(_, _, name)| name).collect()
}

/// "; did you mean a, b or c?", or nothing.
pub(crate) fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [first @ .., last] => format!("; did you mean {} or {last}?", first.join(", ")),
    }
}

fn keep(near: &mut Vec<(usize, usize, String)>, most: usize) {
    near.sort();
    near.dedup_by(|a, b| a.2 == b.2);
    near.truncate(most);
}

fn contains(name: &str, part: &str) -> bool {
    name.to_ascii_lowercase().contains(&part.to_ascii_lowercase())
}

/// The number of characters to insert, remove, replace or swap with their neighbour, if at most `most`; upper and lower case are the same.
fn distance(a: &str, b: &str, most: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > most || b.len() > 256 {
        return None;
    }
    let (a, b) = (a.to_ascii_lowercase().into_bytes(), b.to_ascii_lowercase().into_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut previous: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = previous[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(previous[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        if row.iter().all(|&slips| slips > most) {
            return None;
        }
        before = std::mem::replace(&mut previous, row);
    }
    previous.last().copied().filter(|&slips| slips <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 7] =
        ["malloc", "calloc", "realloc", "free", "malloc_usable_size", "SSL_read", "SSL_read_ex"];

    #[test]
    fn slips_come_first_then_longer_names() {
        let near = |wanted| nearest(wanted, NAMES.into_iter(), 3);
        assert_eq!(near("maloc"), ["malloc"]);
        assert_eq!(near("mlaloc"), ["malloc", "calloc"]);
        assert_eq!(near("malloc"), ["malloc", "calloc", "realloc"]);
        assert_eq!(near("ssl_read"), ["SSL_read", "SSL_read_ex"]);
        assert_eq!(near("usable"), ["malloc_usable_size"]);
        assert_eq!(near("zzzz"), Vec::<String>::new());
        assert_eq!(near(""), Vec::<String>::new());
    }

    #[test]
    fn the_question() {
        assert_eq!(did_you_mean(&[]), "");
        assert_eq!(did_you_mean(&["a".into()]), "; did you mean a?");
        assert_eq!(did_you_mean(&["a".into(), "b".into(), "c".into()]), "; did you mean a, b or c?");
    }
}
