//! Which group of control frames belongs to which native activation of the loop.
//!
//! The kernel side hands out groups as it meets activations, from the leaf. At the leaf they may differ by one: a frame is made before
//! the loop is entered, and left before the loop is. At the root they always agree.

use super::frame;

const KIND_SHIFT: u32 = 56;
const RUBY: u64 = 3;
const PYTHON: u64 = 2;
/// So many groups behind the last activation, and there may be more: `RUBY_REST_GROUPS` in `bpf/ruby.h`.
const REST_GROUPS: u32 = 64;

/// What [`align`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aligned {
    /// No frames of Ruby, or each group was with its activation.
    AsItWas,
    /// The newest frame was not run yet, or was left already: groups were moved.
    Moved,
    /// Frames and activations differ by more than one: left as they were.
    Inconsistent,
}

/// Puts each group of Ruby's frames before the native frame of the activation that runs it, and takes out what stands for "nothing".
///
/// `words` is the user part of a stack whose walk was complete (`lf_record` in `bpf/lightfoot.h`), leaf first. The number of words
/// never grows. Of a stack that was cut the root side is not there: pass `complete = false`, and only the marks are taken out.
pub fn align(words: &mut Vec<u64>, complete: bool) -> Aligned {
    if !words.iter().any(|word| word >> KIND_SHIFT == RUBY) {
        return Aligned::AsItWas;
    }
    let (mut natives, mut groups, mut activations) =
        (Vec::with_capacity(words.len()), Vec::new(), Vec::new());
    let mut group: Vec<u64> = Vec::new();
    let mut at = 0;
    // Several groups before one native frame: those behind the last activation, at the end of the walk.
    while let Some(&word) = words.get(at) {
        match (word >> KIND_SHIFT, words.get(at + 1)) {
            (RUBY, Some(&position)) => {
                if activations.last() != Some(&natives.len()) {
                    activations.push(natives.len());
                }
                if position & frame::NOTHING != 0 {
                    groups.push(Vec::new());
                } else {
                    group.extend([word, position]);
                    if position & frame::FINISH != 0 {
                        groups.push(std::mem::take(&mut group));
                    }
                }
                at += 2;
            }
            (PYTHON, Some(&position)) => {
                natives.extend([word, position]);
                at += 2;
            }
            _ => {
                natives.push(word);
                at += 1;
            }
        }
    }
    if !group.is_empty() {
        groups.push(group);
    }
    // What came after the last native frame has no activation.
    if activations.last() == Some(&natives.len()) {
        activations.pop();
    }
    let left = groups.iter().filter(|group| group.is_empty()).count();
    groups.retain(|group| !group.is_empty());
    if !complete
        || activations.is_empty()
        || groups.len() > activations.len() + 1
        || groups.len() + 1 < activations.len()
    {
        let consistent = !complete || activations.is_empty();
        let mut at = 0;
        while at + 1 < words.len() {
            let pair = matches!(words[at] >> KIND_SHIFT, RUBY | PYTHON);
            if words[at] >> KIND_SHIFT == RUBY && words[at + 1] & frame::NOTHING != 0 {
                words.drain(at..at + 2);
            } else {
                at += if pair { 2 } else { 1 };
            }
        }
        return if consistent { Aligned::AsItWas } else { Aligned::Inconsistent };
    }
    let moved = groups.len() != activations.len() || left != 0;
    // From the root: one group for each activation; one more is the newest frame, which runs next.
    let extra = groups.len().saturating_sub(activations.len());
    let without = activations.len().saturating_sub(groups.len());
    words.clear();
    words.extend(groups.iter().take(extra).flatten());
    let mut pairs = activations.iter().skip(without).zip(groups.iter().skip(extra)).peekable();
    for (index, native) in natives.iter().enumerate() {
        while let Some((_, group)) = pairs.next_if(|(place, _)| **place == index) {
            words.extend(group);
        }
        words.push(*native);
    }
    if moved { Aligned::Moved } else { Aligned::AsItWas }
}

/// Adds the native frames that a walk found later, `(word, whether it is an activation of the loop)`, leaf first, to the words of a stack
/// that the kernel side could not end: Ruby's frames that it had no activation for go behind them, for [`align`] to deal out. False if
/// there are no frames of Ruby, or not all of them.
pub fn go_on(words: &mut Vec<u64>, further: &[(u64, bool)]) -> bool {
    let (mut at, mut natives_end, mut groups, mut any) = (0, 0, 0, false);
    while let Some(&word) = words.get(at) {
        match word >> KIND_SHIFT {
            RUBY => {
                any = true;
                groups += u32::from(words.get(at + 1).is_some_and(|position| position & frame::FINISH != 0));
                at += 2;
            }
            PYTHON => at += 2,
            _ => {
                at += 1;
                (natives_end, groups) = (at, 0);
            }
        }
    }
    let mut rest = words.split_off(natives_end.min(words.len()));
    let all = any && groups < REST_GROUPS;
    if !all {
        rest.clear();
    }
    for &(word, is_loop) in further {
        if all && is_loop {
            words.extend([RUBY << KIND_SHIFT, frame::NOTHING]);
        }
        words.push(word);
    }
    words.append(&mut rest);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: [u64; 2] = [RUBY << KIND_SHIFT, frame::NOTHING];

    fn ruby(address: u64, last: bool) -> [u64; 2] {
        [RUBY << KIND_SHIFT | address, if last { frame::FINISH } else { 0 }]
    }

    fn check(input: &[&[u64]], expected: &[&[u64]], outcome: Aligned) {
        let mut words = input.concat();
        assert_eq!(align(&mut words, true), outcome);
        assert_eq!(words, expected.concat());
    }

    #[test]
    fn native_stacks_stay_as_they_are() {
        check(&[&[1, 2, 3]], &[&[1, 2, 3]], Aligned::AsItWas);
    }

    #[test]
    fn groups_with_their_activations_stay() {
        let stack: &[&[u64]] =
            &[&[1], &ruby(10, false), &ruby(11, true), &[100, 2], &ruby(12, true), &[100, 3]];
        check(stack, stack, Aligned::AsItWas);
    }

    #[test]
    fn a_frame_that_was_not_run_yet_goes_to_the_leaf() {
        // A block's frame (10) is made, the loop is not entered: all groups stand one too far to the leaf, the last one at the end.
        check(
            &[
                &[1, 2],
                &ruby(10, true),
                &[100, 3],
                &ruby(11, false),
                &ruby(12, true),
                &[100, 4],
                &ruby(13, true),
            ],
            &[
                &ruby(10, true),
                &[1, 2],
                &ruby(11, false),
                &ruby(12, true),
                &[100, 3],
                &ruby(13, true),
                &[100, 4],
            ],
            Aligned::Moved,
        );
    }

    #[test]
    fn an_activation_that_has_left_its_frames_gets_none() {
        check(
            &[&[1], &ruby(11, true), &[100, 3], &ruby(12, true), &[100, 4], &MARK, &[100, 5]],
            &[&[1, 100, 3], &ruby(11, true), &[100, 4], &ruby(12, true), &[100, 5]],
            Aligned::Moved,
        );
    }

    #[test]
    fn a_cut_stack_keeps_its_order() {
        let mut words = [&[1][..], &ruby(10, true), &[100], &ruby(11, true)].concat();
        let before = words.clone();
        assert_eq!(align(&mut words, false), Aligned::AsItWas);
        assert_eq!(words, before);
    }

    #[test]
    fn too_many_groups_are_left_alone() {
        let stack: &[&[u64]] =
            &[&[1], &ruby(10, true), &[100, 2], &ruby(11, true), &ruby(12, true), &ruby(13, true)];
        check(stack, stack, Aligned::Inconsistent);
    }

    #[test]
    fn what_the_kernel_side_had_no_activation_for_goes_to_those_found_later() {
        let cut = [&[1][..], &ruby(10, true), &[100, 2], &ruby(11, false), &ruby(12, true), &ruby(13, true)];
        let mut words = cut.concat();
        assert!(go_on(&mut words, &[(3, false), (101, true), (4, false), (102, true), (5, false)]));
        assert_eq!(align(&mut words, true), Aligned::Moved);
        let whole: [&[u64]; 8] = [
            &[1],
            &ruby(10, true),
            &[100, 2, 3],
            &ruby(11, false),
            &ruby(12, true),
            &[101, 4],
            &ruby(13, true),
            &[102, 5],
        ];
        assert_eq!(words, whole.concat());
    }

    #[test]
    fn a_rest_that_may_not_be_all_is_left_out() {
        let mut words = [&[1][..], &ruby(9, true), &[100]].concat();
        let before = words.clone();
        for number in 0..64 {
            words.extend(ruby(10 + number, true));
        }
        assert!(!go_on(&mut words, &[(101, true)]));
        assert_eq!(words, [&before[..], &[101]].concat());
        let mut native = vec![1, 2];
        assert!(!go_on(&mut native, &[(101, true)]));
        assert_eq!(native, [1, 2, 101]);
    }

    #[test]
    fn any_words_are_survived() {
        let mut seed = 7u64;
        for _ in 0..20_000 {
            let mut words: Vec<u64> = (0..seed >> 8 & 31)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 33 & 15) << KIND_SHIFT | seed >> 60
                })
                .collect();
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let before = words.len();
            go_on(&mut words.clone(), &[(1, true), (2, false)]);
            align(&mut words, seed >> 63 == 1);
            assert!(words.len() <= before);
        }
    }
}
