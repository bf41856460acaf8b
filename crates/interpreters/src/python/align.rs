//! Which frame belongs to which native activation of the loop, up to 3.10.
//!
//! Each activation runs one frame, but the innermost makes it known a few instructions after it began, and forgets it a few before it
//! ends. The kernel side hands out frames from the leaf, so in between all of them stand one activation too far to the leaf, and the
//! outermost activations are left without, which it marks.

const KIND_SHIFT: u32 = 56;
const ADDRESS: u64 = (1 << KIND_SHIFT) - 1;
const PYTHON: u64 = 2;
const RUBY: u64 = 3;

/// Puts each frame before the native frame of the activation that runs it, and takes the marks out. `words` is the user part of a stack
/// (`lf_record` in `bpf/lightfoot.h`), leaf first. Later versions have no marks: nothing is changed.
pub fn align(words: &mut Vec<u64>) {
    let mut at = 0;
    let (mut frames, mut marks) = (Vec::new(), 0);
    while let Some(&word) = words.get(at) {
        let kind = word >> KIND_SHIFT;
        if kind == PYTHON {
            if word & ADDRESS == 0 {
                marks += 1;
            } else if marks == 0
                && let Some(&position) = words.get(at + 1)
            {
                frames.push([word, position]);
            }
        }
        at += if matches!(kind, PYTHON | RUBY) { 2 } else { 1 };
    }
    if marks == 0 {
        return;
    }
    let mut aligned = Vec::with_capacity(words.len());
    let (mut at, mut activation) = (0, 0);
    while let Some(&word) = words.get(at) {
        match word >> KIND_SHIFT {
            PYTHON => {
                let frame = usize::checked_sub(activation, marks).and_then(|index| frames.get(index));
                aligned.extend(frame.into_iter().flatten());
                activation += 1;
                at += 2;
            }
            RUBY => {
                aligned.extend(words.get(at..at + 2).unwrap_or_default());
                at += 2;
            }
            _ => {
                aligned.push(word);
                at += 1;
            }
        }
    }
    *words = aligned;
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn frame(number: u64) -> u64 {
        PYTHON << KIND_SHIFT | number
    }

    #[test]
    fn frames_move_to_the_root_by_the_number_of_marks() {
        let words = vec![1, frame(0xa), 10, 2, 3, frame(0xb), 20, 4, frame(0), 0, 5, 6];
        let mut aligned = words.clone();
        align(&mut aligned);
        assert_eq!(aligned, [1, 2, 3, frame(0xa), 10, 4, frame(0xb), 20, 5, 6]);
        // Positions may look like kinds of frames.
        let mut aligned = vec![frame(0xa), frame(0), 2, frame(0), 0, 5];
        align(&mut aligned);
        assert_eq!(aligned, [2, frame(0xa), frame(0), 5]);
    }

    #[test]
    fn without_marks_nothing_moves() {
        let mut words = vec![1, frame(0xa), 10, 2, frame(0xb), 20, frame(0xc), 30, 4];
        let before = words.clone();
        align(&mut words);
        assert_eq!(words, before);
    }

    #[test]
    fn what_breaks_off_is_no_panic() {
        for words in [vec![frame(1)], vec![frame(0)], vec![RUBY << KIND_SHIFT], vec![frame(0), 0, frame(1)]] {
            let mut words = words;
            align(&mut words);
        }
    }
}
