//! Stacks that did not reach their root, as the formats for people show them: every such sample is in exactly one row.

use lightfoot_model::{Profile, StackOutcome};

/// One object and one reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row<'p> {
    /// Path of the object; empty if not known.
    pub object: &'p str,
    pub outcome: StackOutcome,
    /// Samples.
    pub count: u64,
    pub detail: &'p str,
    pub remedy: &'p str,
}

/// The profile's debt, most samples first. Samples that it leaves out make a row without an object for each outcome, so that the rows add
/// up to all samples that are not complete.
pub(crate) fn rows(profile: &Profile) -> Vec<Row<'_>> {
    let mut missing = [0u64; StackOutcome::ALL.len()];
    for sample in &profile.samples {
        missing[sample.outcome as usize] += sample.count;
    }
    let mut rows: Vec<Row> = Vec::new();
    for debt in profile.debt.iter().filter(|debt| debt.outcome != StackOutcome::Complete) {
        let missing = &mut missing[debt.outcome as usize];
        let count = debt.count.min(*missing);
        *missing -= count;
        rows.push(Row {
            object: &debt.object,
            outcome: debt.outcome,
            count,
            detail: &debt.detail,
            remedy: debt.remedy,
        });
    }
    for outcome in StackOutcome::ALL.into_iter().filter(|&outcome| outcome != StackOutcome::Complete) {
        let count = missing[outcome as usize];
        rows.push(Row { object: "", outcome, count, detail: "", remedy: outcome.remedy() });
    }
    rows.retain(|row| row.count > 0);
    rows.sort_by(|a, b| {
        b.count.cmp(&a.count).then_with(|| (a.outcome, a.object).cmp(&(b.outcome, b.object)))
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common;

    #[test]
    fn rows_hold_every_sample_that_is_not_complete_once() {
        let mut profile = common::varied();
        let incomplete = |profile: &Profile| -> u64 {
            profile.samples.iter().filter(|s| s.outcome != StackOutcome::Complete).map(|s| s.count).sum()
        };
        let total = |profile: &Profile| rows(profile).iter().map(|row| row.count).sum::<u64>();
        assert_eq!(total(&profile), incomplete(&profile));
        assert!(rows(&profile).is_sorted_by(|a, b| a.count >= b.count));
        assert_eq!(rows(&profile).len(), profile.debt.len(), "nothing beside the debt");
        // More debt than samples, or none at all: the samples win.
        profile.debt[0].count += 1000;
        assert_eq!(total(&profile), incomplete(&profile));
        profile.debt.clear();
        assert_eq!(total(&profile), incomplete(&profile));
        assert!(rows(&profile).iter().all(|row| row.object.is_empty() && !row.remedy.is_empty()));
    }
}
