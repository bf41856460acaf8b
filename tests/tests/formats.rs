//! Each format comes out whole, by `-f` and by file name. (Their content is validated beside their code, in `crates/export`.)

use lightfoot_tests::{Lightfoot, Report, Workload, privileged};
use serde_json::Value;

/// What every file of a format must look like.
fn check(format: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match format {
        "text" => {
            for word in [
                "work_70",
                "%",
                "complete:",
                "fired",
                "recorded",
                "filtered",
                "lost",
                "failed",
                "interrupt",
                "BPF",
            ] {
                assert!(text.to_lowercase().contains(&word.to_lowercase()), "text: {word} is missing");
            }
        }
        "json" => {
            drop(Report::parse(bytes));
            let json: Value = serde_json::from_slice(bytes).expect("JSON");
            let sum = |list: &str, wanted: &dyn Fn(&Value) -> bool| -> u64 {
                let rows = json[list].as_array().unwrap_or_else(|| panic!("json: {list} is a list"));
                rows.iter().filter(|row| wanted(row)).map(|row| row["count"].as_u64().expect("count")).sum()
            };
            let incomplete = |row: &Value| row["outcome"] != "complete";
            assert_eq!(sum("outcomes", &|_| true), sum("stacks", &|_| true), "every sample ended in one way");
            assert_eq!(sum("outcomes", &incomplete), sum("stacks", &incomplete));
            assert!(sum("debt", &|_| true) <= sum("stacks", &incomplete), "no more debt than short stacks");
            assert_eq!(sum("debt", &|row| row["outcome"] == "complete"), 0);
        }
        "folded" => {
            let mut counts = 0;
            for line in text.lines() {
                let (stack, count) = line.rsplit_once(' ').unwrap_or_else(|| panic!("folded: {line:?}"));
                assert!(!stack.is_empty());
                counts += count.parse::<u64>().unwrap_or_else(|_| panic!("folded: {line:?}"));
            }
            assert!(counts > 100, "folded: {counts}");
            assert!(text.contains("rotate;work_70"), "root first");
        }
        "pprof" => assert_eq!(&bytes[..2], b"\x1f\x8b", "pprof is gzip"),
        "speedscope" => {
            let json: Value = serde_json::from_slice(bytes).expect("speedscope is JSON");
            assert_eq!(json["$schema"], "https://www.speedscope.app/file-format-schema.json");
        }
        "firefox" => {
            let json: Value = serde_json::from_slice(bytes).expect("firefox is JSON");
            assert!(json["meta"]["version"].is_number() && json["threads"].is_array());
        }
        "svg" => assert!(text.contains("<svg") && text.trim_end().ends_with("</svg>"), "svg"),
        "html" => {
            assert!(
                text.trim_start().to_lowercase().starts_with("<!doctype html>")
                    && text.trim_end().ends_with("</html>")
            );
            for forbidden in ["src=\"http", "href=\"http", "@import", "fetch(", "XMLHttpRequest", "src=\"//"]
            {
                assert!(!text.contains(forbidden), "html: no request to any host: {forbidden}");
            }
        }
        other => panic!("{other}"),
    }
}

const FORMATS: [(&str, &str); 8] = [
    ("text", "txt"),
    ("json", "json"),
    ("folded", "folded"),
    ("pprof", "pb.gz"),
    ("speedscope", "speedscope.json"),
    ("firefox", "firefox.json"),
    ("svg", "svg"),
    ("html", "html"),
];

#[test]
fn every_format_to_stdout() {
    let Some(_turn) = privileged("every_format_to_stdout") else { return };
    let target = Workload::start("split", "--seconds 100");
    for (format, _) in FORMATS {
        let run = Lightfoot::new(&format!("profile -F 499 -d 1s -f {format} -p {}", target.pid())).run();
        assert_eq!(run.code, Some(0), "{format}: {}", run.stderr);
        check(format, &run.stdout);
    }
}

#[test]
fn the_file_name_chooses_the_format() {
    let Some(_turn) = privileged("the_file_name_chooses_the_format") else { return };
    let target = Workload::start("split", "--seconds 100");
    let dir = tempfile::tempdir().expect("folder");
    for (format, extension) in FORMATS {
        let path = dir.path().join(format!("out.{extension}"));
        let run = Lightfoot::new(&format!("profile -F 499 -d 1s -p {} -o", target.pid())).arg(&path).run();
        assert_eq!(run.code, Some(0), "{format}: {}", run.stderr);
        assert!(run.stdout.is_empty() || format != "text", "the result is in the file");
        check(format, &std::fs::read(&path).expect("file"));
    }
    // -f wins over the name.
    let path = dir.path().join("folded.html");
    let run =
        Lightfoot::new(&format!("profile -F 499 -d 1s -f folded -p {} -o", target.pid())).arg(&path).run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    check("folded", &std::fs::read(&path).expect("file"));
}

/// The ledger is beside the result in text and JSON; text to a pipe has no colours and no progress line.
#[test]
fn text_to_a_pipe_is_plain() {
    let Some(_turn) = privileged("text_to_a_pipe_is_plain") else { return };
    let target = Workload::start("split", "--seconds 6");
    let run = Lightfoot::new(&format!("profile -F 499 -d 1s -p {}", target.pid())).run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(!run.stdout.contains(&0x1b), "no escape codes on stdout");
    assert!(
        !run.stderr.contains('\x1b') && !run.stderr.contains('\r'),
        "no progress line in a pipe: {:?}",
        run.stderr
    );
    check("text", &run.stdout);
}

/// An empty profile is a valid file of each format.
#[test]
fn nothing_sampled() {
    let Some(_turn) = privileged("nothing_sampled") else { return };
    let target = Workload::start("exiter", "--after-ms 20000");
    for (format, _) in FORMATS {
        let run = Lightfoot::new(&format!("profile -d 300ms -f {format} -p {}", target.pid())).run();
        assert_eq!(run.code, Some(0), "{format}: {}", run.stderr);
        match format {
            "json" => assert_eq!(Report::parse(&run.stdout).accounting.recorded, 0),
            "folded" => assert!(run.stdout.is_empty()),
            "speedscope" | "firefox" => drop(serde_json::from_slice::<Value>(&run.stdout).expect("JSON")),
            _ => assert!(!run.stdout.is_empty(), "{format}"),
        }
    }
}
