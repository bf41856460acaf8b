//! What a reader relies on, checked without the reader: every index in range, every column as long as its table, nothing lost. The
//! readers themselves are asked in `consumers.rs`.

mod common;

use lightfoot_export::{Format, TextOptions};
use lightfoot_model::Profile;
use serde_json::Value;
use std::collections::BTreeMap;

fn written(profile: &Profile, format: Format) -> Vec<u8> {
    let mut out = Vec::new();
    lightfoot_export::write(profile, format, &mut out, &TextOptions::default()).unwrap();
    out
}

fn profiles() -> [Profile; 4] {
    [common::no_samples(), common::varied(), common::hostile(), common::large(500)]
}

/// Samples by thread: (count, ns).
fn by_thread(profile: &Profile) -> BTreeMap<u32, (u64, u64)> {
    let mut sums = BTreeMap::new();
    for sample in &profile.samples {
        let (count, weight_ns) = sums.entry(sample.thread.0).or_insert((0, 0));
        *count += sample.count;
        *weight_ns += sample.weight_ns;
    }
    sums
}

#[test]
fn speedscope_profiles_add_up() {
    for profile in profiles() {
        let value: Value = serde_json::from_slice(&written(&profile, Format::Speedscope)).unwrap();
        let frames = value["shared"]["frames"].as_array().unwrap().len() as u64;
        let profiles = value["profiles"].as_array().unwrap();
        let totals: Vec<u64> = profiles
            .iter()
            .map(|one| {
                let weights = one["weights"].as_array().unwrap();
                let samples = one["samples"].as_array().unwrap();
                assert_eq!(weights.len(), samples.len());
                assert!(
                    samples.iter().flat_map(|s| s.as_array().unwrap()).all(|f| f.as_u64().unwrap() < frames)
                );
                let total: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
                assert_eq!((&one["endValue"], &one["unit"]), (&total.into(), &"nanoseconds".into()));
                total
            })
            .collect();
        assert_eq!(totals[0], profile.total_weight_ns(), "the first is everything");
        let expected: Vec<u64> = by_thread(&profile).values().map(|sums| sums.1).collect();
        assert_eq!(totals[1..], expected, "then each thread");
    }
}

#[test]
fn speedscope_keeps_a_line_only_where_all_samples_agree() {
    let value: Value = serde_json::from_slice(&written(&common::varied(), Format::Speedscope)).unwrap();
    let frames = value["shared"]["frames"].as_array().unwrap();
    let of = |name: &str| {
        let found: Vec<&Value> = frames.iter().filter(|frame| frame["name"] == name).collect();
        assert_eq!(found.len(), 1, "{name}: one function, one frame");
        (found[0]["file"].as_str(), found[0]["line"].as_u64())
    };
    assert_eq!(of("lzma_encode"), (Some("src/lzma_encoder.c"), None));
    assert_eq!(of("lzma_mf_bt4_find"), (Some("src/lz_encoder_mf.c"), Some(722)));
    assert_eq!(of("_start"), (Some("/usr/bin/xz"), None));
}

/// Columns of a table of the Firefox format and what they may hold.
enum Holds {
    /// Indices below a limit.
    Index(usize),
    /// As `Index`, or null.
    IndexOrNull(usize),
    /// As `Index`, or -1.
    IndexOrMinusOne(usize),
    /// Numbers.
    Number,
    /// Numbers or null.
    NumberOrNull,
    /// Truth values.
    Bool,
    /// Nothing but null.
    Null,
    /// Strings.
    Text,
}

fn check_table(table: &Value, what: &str, columns: &[(&str, Holds)]) -> usize {
    let length = table["length"].as_u64().unwrap_or_else(|| panic!("{what} has a length")) as usize;
    let members: Vec<&String> = table.as_object().unwrap().keys().collect();
    for member in &members {
        let known = columns.iter().any(|(column, _)| column == member);
        assert!(known || ["length", "weightType"].contains(&member.as_str()), "{what}.{member} is unknown");
    }
    for (column, holds) in columns {
        let values = table[column].as_array().unwrap_or_else(|| panic!("{what}.{column} is a list"));
        assert_eq!(values.len(), length, "{what}.{column}");
        for value in values {
            let below = |limit: usize| value.as_u64().is_some_and(|index| (index as usize) < limit);
            let good = match holds {
                Holds::Index(limit) => below(*limit),
                Holds::IndexOrNull(limit) => value.is_null() || below(*limit),
                Holds::IndexOrMinusOne(limit) => value == -1 || below(*limit),
                Holds::Number => value.is_number(),
                Holds::NumberOrNull => value.is_number() || value.is_null(),
                Holds::Bool => value.is_boolean(),
                Holds::Null => value.is_null(),
                Holds::Text => value.is_string(),
            };
            assert!(good, "{what}.{column} holds {value}");
        }
    }
    length
}

fn length_of(table: &Value) -> usize {
    table["length"].as_u64().unwrap() as usize
}

/// Follows firefox-devtools/profiler, `src/types/profile.ts`, at format version 61.
#[test]
fn firefox_tables_are_complete_and_every_index_is_in_range() {
    use Holds::*;
    for profile in profiles() {
        let value: Value = serde_json::from_slice(&written(&profile, Format::Firefox)).unwrap();
        let meta = &value["meta"];
        assert_eq!(meta["preprocessedProfileVersion"], 61);
        for number in ["interval", "startTime", "processType", "stackwalk", "version"] {
            assert!(meta[number].is_number(), "meta.{number}");
        }
        assert!(meta["product"].is_string() && meta["markerSchema"].is_array());
        assert_eq!(meta["symbolicated"], true);
        let categories = meta["categories"].as_array().unwrap();
        assert_eq!(categories[0]["color"], "grey", "the default category");
        for category in categories {
            assert_eq!(category["subcategories"], serde_json::json!(["Other"]));
        }

        let libs = value["libs"].as_array().unwrap();
        for lib in libs {
            for text in ["arch", "name", "path", "debugName", "debugPath", "breakpadId"] {
                assert!(lib[text].is_string(), "lib.{text}");
            }
            assert!(lib["codeId"].is_null());
        }

        let shared = &value["shared"];
        let strings = shared["stringArray"].as_array().unwrap();
        assert!(strings.iter().all(Value::is_string));
        let [frames, functions, resources, symbols, sources, stacks] =
            ["frameTable", "funcTable", "resourceTable", "nativeSymbols", "sources", "stackTable"]
                .map(|table| length_of(&shared[table]));
        check_table(
            &shared["stackTable"],
            "stackTable",
            &[("frame", Index(frames)), ("prefix", IndexOrNull(stacks))],
        );
        for (row, prefix) in shared["stackTable"]["prefix"].as_array().unwrap().iter().enumerate() {
            assert!(prefix.as_u64().is_none_or(|prefix| (prefix as usize) < row), "callers come first");
        }
        check_table(
            &shared["frameTable"],
            "frameTable",
            &[
                ("address", Number),
                ("inlineDepth", Number),
                ("category", Index(categories.len())),
                ("subcategory", Index(1)),
                ("func", Index(functions)),
                ("nativeSymbol", IndexOrNull(symbols)),
                ("innerWindowID", Null),
                ("line", NumberOrNull),
                ("column", Null),
            ],
        );
        check_table(
            &shared["funcTable"],
            "funcTable",
            &[
                ("name", Index(strings.len())),
                ("isJS", Bool),
                ("relevantForJS", Bool),
                ("resource", IndexOrMinusOne(resources)),
                ("source", IndexOrNull(sources)),
                ("lineNumber", Null),
                ("columnNumber", Null),
            ],
        );
        check_table(
            &shared["resourceTable"],
            "resourceTable",
            &[("type", Number), ("lib", Index(libs.len())), ("name", Index(strings.len())), ("host", Null)],
        );
        check_table(
            &shared["nativeSymbols"],
            "nativeSymbols",
            &[
                ("libIndex", Index(libs.len())),
                ("address", Number),
                ("name", Index(strings.len())),
                ("functionSize", Null),
            ],
        );
        check_table(
            &shared["sources"],
            "sources",
            &[
                ("id", Null),
                ("filename", Index(strings.len())),
                ("startLine", Number),
                ("startColumn", Number),
                ("sourceMapURL", Null),
            ],
        );

        let threads = value["threads"].as_array().unwrap();
        let expected = by_thread(&profile);
        assert_eq!(threads.len(), expected.len().max(1), "readers want at least one");
        for (thread, (&id, &(count, weight_ns))) in threads.iter().zip(&expected) {
            let of = &profile.threads[id as usize];
            assert_eq!((&thread["pid"], &thread["tid"]), (&of.pid.to_string().into(), &of.tid.into()));
            assert_eq!(thread["name"], of.comm.as_str());
            assert_eq!(thread["isMainThread"], of.pid == of.tid);
            let samples = &thread["samples"];
            check_table(
                samples,
                "samples",
                &[
                    ("stack", IndexOrNull(stacks)),
                    ("time", Number),
                    ("weight", Number),
                    ("threadCPUDelta", Number),
                ],
            );
            assert_eq!(samples["weightType"], "samples");
            let numbers = |column: &str| {
                let values = samples[column].as_array().unwrap();
                values.iter().map(|value| value.as_f64().unwrap()).collect::<Vec<f64>>()
            };
            let (weights, deltas, times) = (numbers("weight"), numbers("threadCPUDelta"), numbers("time"));
            assert_eq!(weights.iter().sum::<f64>(), count as f64);
            assert_eq!(deltas[1..].iter().sum::<f64>(), weight_ns as f64, "the first is not counted");
            assert!(times.is_sorted() && times[0] == 0.0);
            let (last, duration_ms) = (times[times.len() - 1], profile.meta.duration_ns as f64 / 1e6);
            assert!(last < duration_ms && last > duration_ms * 0.999, "the times fill the run");
            let closing = &samples["stack"].as_array().unwrap()[times.len() - 1];
            assert!(closing.is_null() && weights[times.len() - 1] == 0.0, "a row closes the run");
            check_table(
                &thread["markers"],
                "markers",
                &[
                    ("data", Null),
                    ("name", Text),
                    ("startTime", Number),
                    ("endTime", Number),
                    ("phase", Number),
                    ("category", Number),
                ],
            );
        }
        for list in ["initialVisibleThreads", "initialSelectedThreads"] {
            let shown = meta[list].as_array().unwrap();
            assert!(shown.iter().all(|thread| (thread.as_u64().unwrap() as usize) < threads.len()));
        }
    }
}

/// Texts and `<title>`s of an SVG, unescaped, from a strict XML reader.
fn svg_texts(svg: &[u8]) -> Vec<String> {
    use quick_xml::events::Event;
    let text = std::str::from_utf8(svg).unwrap();
    let forbidden = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t' | '\r')) || matches!(c, '\u{FFFE}' | '\u{FFFF}')
    };
    assert_eq!(text.find(forbidden), None, "characters that XML does not allow");
    let mut reader = quick_xml::Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    let (mut texts, mut current) = (Vec::new(), String::new());
    loop {
        match reader.read_event().unwrap() {
            Event::Text(text) => current.push_str(&text.decode().unwrap()),
            Event::GeneralRef(name) => {
                let name = name.decode().unwrap();
                current.push_str(quick_xml::escape::resolve_predefined_entity(&name).unwrap_or("?"));
            }
            Event::End(_) => texts.push(std::mem::take(&mut current)),
            Event::Eof => return texts,
            _ => {}
        }
    }
}

#[test]
fn svg_is_xml_and_shows_every_function() {
    let texts = svg_texts(&written(&common::varied(), Format::Svg));
    for (start, what) in [
        ("process 1234 (xz)", "target"),
        ("fired 1,161 = recorded 1,140", "ledger"),
        ("lzma_mf_bt4_find (600 samples, 52.63%)", "a function"),
        ("read64ne (447 samples", "an inlined function"),
        ("[no stack] (2 samples", "samples without a stack"),
    ] {
        assert!(texts.iter().any(|text| text.starts_with(start)), "{what}: {texts:#?}");
    }
    let texts = svg_texts(&written(&common::hostile(), Format::Svg));
    assert!(texts.iter().any(|text| text.starts_with("</script><script>alert(1)</script> (")), "{texts:#?}");
    let texts = svg_texts(&written(&common::no_samples(), Format::Svg));
    assert!(texts.iter().any(|text| text == "No samples"), "{texts:?}");
}

/// The fill of each frame says its kind: kinds differ, and frames of one kind are near each other.
#[test]
fn svg_colours_follow_the_kind_of_code() {
    let svg = String::from_utf8(written(&common::varied(), Format::Svg)).unwrap();
    let fill_of = |name: &str| {
        let frame = &svg[svg.find(&format!("<title>{name} (")).unwrap_or_else(|| panic!("{name}"))..];
        let fill = &frame[frame.find("fill=\"rgb(").unwrap() + 10..];
        let numbers = fill[..fill.find(')').unwrap()].split(',').map(|n| n.parse::<i32>().unwrap());
        numbers.collect::<Vec<i32>>()
    };
    let distance =
        |a: &str, b: &str| -> i32 { fill_of(a).iter().zip(fill_of(b)).map(|(a, b)| (a - b).abs()).sum() };
    let kinds = [
        ["main", "lzma_encode"],
        ["vfs_read", "entry_SYSCALL_64"],
        ["read64ne", "lzma_memcmplen"],
        ["Handler.handle", "&lt;module&gt;"],
        ["Array#each", "block in Report#rows"],
        ["[libplugin.so+0x29d90]", "[libplugin.so+0x29d90]"],
        ["JS:~handler app.js:10", "JS:~handler app.js:10"],
    ];
    for (number, [one, same]) in kinds.iter().enumerate() {
        assert!(distance(one, same) < 60, "{one} {:?}, {same} {:?}", fill_of(one), fill_of(same));
        for [other, _] in &kinds[number + 1..] {
            assert!(distance(one, other) > 30, "{one} {:?}, {other} {:?}", fill_of(one), fill_of(other));
        }
    }
}

#[test]
fn svg_of_very_many_stacks_stays_small_and_says_what_it_left_out() {
    let profile = common::large(20_000);
    let svg = written(&profile, Format::Svg);
    assert!(svg.len() < 6_000_000, "{} bytes", svg.len());
    let texts = svg_texts(&svg);
    assert!(texts.iter().any(|text| text.contains("samples are not drawn")));
    let all = format!("all ({} samples, 100%)", {
        let digits = profile.total_count().to_string();
        format!("{},{}", &digits[..digits.len() - 3], &digits[digits.len() - 3..])
    });
    assert!(texts.contains(&all), "the whole is exact: {all}");
    assert_eq!(svg, written(&profile, Format::Svg), "the same profile gives the same picture");
}

/// inferno with its defaults, as `inferno-flamegraph FILE` runs it, reads what the folded format writes.
#[test]
fn folded_goes_through_inferno() {
    for profile in [common::varied(), common::hostile(), common::large(500)] {
        let folded = String::from_utf8(written(&profile, Format::Folded)).unwrap();
        let mut svg = Vec::new();
        let mut options = inferno::flamegraph::Options::default();
        options.min_width = 0.0;
        inferno::flamegraph::from_lines(&mut options, folded.lines(), &mut svg).unwrap();
        let all = svg_texts(&svg).into_iter().find(|text| text.starts_with("all (")).unwrap();
        let digits: String = all.split(' ').nth(1).unwrap().chars().filter(char::is_ascii_digit).collect();
        assert_eq!(digits.parse(), Ok(profile.total_count()), "{all}");
    }
}

/// Work that grows with the square of the stacks would take hours here.
#[test]
fn a_hundred_thousand_stacks_are_written_in_seconds() {
    let profile = common::large(100_000);
    for format in Format::ALL {
        let start = std::time::Instant::now();
        lightfoot_export::write(&profile, format, &mut std::io::sink(), &TextOptions::default()).unwrap();
        assert!(start.elapsed().as_secs() < 60, "{format}: {:?}", start.elapsed());
    }
}

/// A writer that takes so many bytes and then fails, as a full disk does.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0 == 0 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_in_every_format() {
    let profile = common::varied();
    for format in Format::ALL {
        let length = written(&profile, format).len();
        for room in [0, 1, length / 2, length - 1] {
            let mut out = Full(room);
            let error =
                lightfoot_export::write(&profile, format, &mut out, &TextOptions::default()).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{format} in {room} of {length} bytes");
        }
        lightfoot_export::write(&profile, format, &mut Full(length), &TextOptions::default()).unwrap();
    }
}
