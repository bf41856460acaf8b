//! Each format's output, kept in `golden/` in files named after what they prove. After an intended change:
//! `LIGHTFOOT_BLESS=1 cargo test -p lightfoot-export --test golden`, and read the difference.

mod common;

use lightfoot_export::{Format, TextOptions};
use lightfoot_model::Profile;
use std::path::Path;

fn written(profile: &Profile, format: Format, options: &TextOptions) -> Vec<u8> {
    let mut out = Vec::new();
    lightfoot_export::write(profile, format, &mut out, options).unwrap();
    out
}

fn check(name: &str, actual: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("LIGHTFOOT_BLESS").is_some() {
        std::fs::write(&path, actual).unwrap();
        return;
    }
    let expected = std::fs::read(&path).unwrap_or_default();
    assert!(
        expected == actual,
        "{name} differs. Now:\n{}\n(LIGHTFOOT_BLESS=1 accepts it)",
        String::from_utf8_lossy(actual)
    );
}

fn layout(width: usize, color: bool) -> TextOptions {
    TextOptions { color, width, rows: 20 }
}

#[test]
fn text() {
    check("text-every-kind-and-outcome.txt", &written(&common::varied(), Format::Text, &layout(100, false)));
    check("text-in-40-columns.txt", &written(&common::varied(), Format::Text, &layout(40, false)));
    check("text-in-color.txt", &written(&common::varied(), Format::Text, &layout(100, true)));
    check("text-no-samples.txt", &written(&common::no_samples(), Format::Text, &layout(80, false)));
    check("text-hostile-names.txt", &written(&common::hostile(), Format::Text, &layout(80, false)));
}

#[test]
fn ledger_stands_alone() {
    let mut out = Vec::new();
    let mut profile = common::varied();
    lightfoot_export::ledger(&profile, &mut out, &layout(80, false)).unwrap();
    check("ledger-alone.txt", &out);
    out.clear();
    profile.cost.interrupt_calibrated = false;
    profile.cost.phases.clear();
    profile.accounting.fired += 1;
    lightfoot_export::ledger(&profile, &mut out, &layout(80, false)).unwrap();
    check("ledger-unknown-price-and-unbalanced.txt", &out);
}

#[test]
fn a_budget_is_in_the_ledger() {
    use lightfoot_model::{BudgetAccount, HeldBack};
    let mut profile = common::varied();
    let held = |what, sentence: &str| HeldBack { what, sentence: sentence.into(), ..Default::default() };
    profile.cost.budget = Some(BudgetAccount {
        ns_per_s: 5_000_000,
        windows: 51,
        windows_over: 1,
        dearest_window_ns: 52_000_000,
        samples_not_taken: 1234,
        held_back: vec![held("rate", "rate 999 -> 420 Hz for 3.1 s"), held("work", "work for 800 ms")],
        ..Default::default()
    });
    let mut out = Vec::new();
    lightfoot_export::ledger(&profile, &mut out, &layout(80, false)).unwrap();
    check("ledger-with-a-budget.txt", &out);
    profile.cost.budget.as_mut().unwrap().windows = 0;
    out.clear();
    lightfoot_export::ledger(&profile, &mut out, &layout(40, false)).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.split_whitespace().collect::<Vec<_>>().join(" ").contains("too short for a window"),
        "{text}"
    );
}

#[test]
fn lines_are_never_wider_than_asked() {
    for profile in [common::varied(), common::hostile(), common::no_samples()] {
        for width in 40..130 {
            let text = String::from_utf8(written(&profile, Format::Text, &layout(width, false))).unwrap();
            for line in text.lines() {
                assert!(unicode_width::UnicodeWidthStr::width(line) <= width, "{width}: {line}");
                assert!(!line.contains(char::is_control), "{line:?}");
                assert_eq!(line, line.trim_end(), "no blanks at the end");
            }
        }
        let tiny = written(&profile, Format::Text, &layout(0, false));
        assert_eq!(tiny, written(&profile, Format::Text, &layout(40, false)));
    }
}

#[test]
fn folded() {
    let options = TextOptions::default();
    check(
        "folded-kinds-recursion-and-no-stack.folded",
        &written(&common::varied(), Format::Folded, &options),
    );
    check("folded-hostile-names.folded", &written(&common::hostile(), Format::Folded, &options));
    assert!(written(&common::no_samples(), Format::Folded, &options).is_empty());
}

#[test]
fn folded_is_sorted_as_bytes_without_repeats_and_complete() {
    for profile in [common::varied(), common::hostile(), common::large(2000)] {
        let text = String::from_utf8(written(&profile, Format::Folded, &TextOptions::default())).unwrap();
        let rows: Vec<(&str, u64)> = text
            .lines()
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(stack, count)| (stack, count.parse().unwrap()))
            .collect();
        assert!(rows.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(rows.iter().map(|row| row.1).sum::<u64>(), profile.total_count());
    }
}

#[test]
fn json() {
    let options = TextOptions::default();
    check("json-every-field.json", &written(&common::varied(), Format::Json, &options));
    check("json-no-samples.json", &written(&common::no_samples(), Format::Json, &options));
    for profile in [common::varied(), common::hostile(), common::large(300)] {
        let value: serde_json::Value =
            serde_json::from_slice(&written(&profile, Format::Json, &options)).unwrap();
        assert_eq!(value["schema"], "lightfoot.profile/1");
        let stacks = value["stacks"].as_array().unwrap();
        assert_eq!(stacks.len(), profile.samples.len());
        for (stack, sample) in stacks.iter().zip(&profile.samples) {
            assert_eq!(stack["count"], sample.count);
            assert_eq!(stack["weight_ns"], sample.weight_ns);
            let thread = &profile.threads[sample.thread.0 as usize];
            assert_eq!(
                (&stack["pid"], &stack["tid"], &stack["comm"]),
                (&thread.pid.into(), &thread.tid.into(), &thread.comm.as_str().into())
            );
            let ids = sample.stack.map(|id| profile.stacks.root_first(id)).unwrap_or_default();
            let names: Vec<&str> = ids.iter().map(|&id| profile.frame_name(id)).collect();
            assert_eq!(stack["frames"], serde_json::json!(names));
            for (id, name) in stack["frame_ids"].as_array().unwrap().iter().zip(names) {
                assert_eq!(value["frames"][id.as_u64().unwrap() as usize]["name"], name);
            }
        }
    }
}

#[test]
fn html_data() {
    let mut out = Vec::new();
    lightfoot_export::html::write_data(&common::varied(), &mut out).unwrap();
    check("html-data-every-column.json", &out);
}

#[test]
fn html_page_cannot_be_broken_by_names() {
    let page_of =
        |profile| String::from_utf8(written(profile, Format::Html, &TextOptions::default())).unwrap();
    let profile = common::hostile();
    let page = page_of(&profile);
    let plain = page_of(&common::no_samples());
    for tag in ["<script", "</script", "<title", "</title", "<!--"] {
        assert_eq!(page.matches(tag).count(), plain.matches(tag).count(), "{tag}");
    }
    assert!(page.contains("<title>command &#39;&lt;/title&gt;"));
    assert!(
        !page.contains("LIGHTFOOT_PROFILE") && !page.contains("LIGHTFOOT_TITLE"),
        "both marks are replaced"
    );
    let start = page.find("{\"schema\":\"lightfoot.page/1\"").unwrap();
    let data = &page[start..start + page[start..].find("</script").unwrap()];
    assert!(!data.contains(['<', '\u{2028}', '\u{2029}']));
    let value: serde_json::Value = serde_json::from_str(data).unwrap();
    let strings: Vec<&str> =
        value["strings"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
    assert_eq!(strings, profile.strings.iter().collect::<Vec<_>>());
    for table in ["frames", "stacks", "samples"] {
        let columns = value[table].as_object().unwrap();
        let lengths: Vec<usize> = columns.values().map(|column| column.as_array().unwrap().len()).collect();
        assert!(lengths.iter().all(|&length| length == lengths[0]), "{table}");
    }
    assert_eq!(value["samples"]["stack"].as_array().unwrap().len(), profile.samples.len());
}
