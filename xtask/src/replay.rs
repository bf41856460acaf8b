//! `cargo xtask replay FILE...`: walks stacks again that `lightfoot profile --save-failed DIR` saved, and says whether the walk in user
//! space finds what the one in the kernel found.
use anyhow::{Context, bail};
use lightfoot_unwind::{Agreement, CfaKind, Frame, Frozen, Rule, Saved, State, compare};
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Args {
    /// Saved walks.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Copy the (only) file to crates/unwind/tests/frozen/NAME.lfw, where a test replays it.
    #[arg(long, value_name = "NAME")]
    as_test: Option<String>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut differ = 0;
    for path in &args.files {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let frozen = Frozen::decode(&bytes).with_context(|| format!("cannot replay {}", path.display()))?;
        writeln!(out, "{} ({} bytes)", path.display(), bytes.len())?;
        differ += usize::from(matches!(show(&frozen, &mut out)?, Agreement::Differs(_)));
    }
    if let Some(name) = &args.as_test {
        let [path] = args.files.as_slice() else { bail!("--as-test takes one file") };
        keep(path, name)?;
    }
    if differ > 0 {
        bail!("{differ} of {} walks differ from what the kernel found", args.files.len());
    }
    Ok(())
}

fn show(frozen: &Frozen, out: &mut impl Write) -> anyhow::Result<Agreement> {
    let (walked, steps, agreement) = compare(frozen);
    for (depth, frame) in walked.frames.iter().enumerate() {
        write!(out, "{depth:4} {}", place(frozen, frame))?;
        match steps.get(depth) {
            Some(step) => {
                let fp = step.fp.map_or("unknown".into(), |fp| format!("{fp:#x}"));
                writeln!(out, "  sp {:#x}, fp {fp}: {}", step.sp, rule(&step.rule))?;
            }
            None => writeln!(out)?,
        }
    }
    writeln!(out, "     ends: {:?}; the kernel found {:?}", walked.outcome, frozen.found.outcome)?;
    match agreement {
        Agreement::Same => writeln!(out, "     both agree")?,
        Agreement::MemoryEnds => {
            writeln!(out, "     both agree, up to where the saved memory ends")?;
        }
        Agreement::Differs(at) => {
            let theirs = frozen.found.frames.get(at).map_or("nothing".into(), |frame| place(frozen, frame));
            writeln!(out, "     DIFFERS at frame {at}: the kernel found {theirs}")?;
        }
    }
    Ok(agreement)
}

/// Address, and object with offset.
fn place(frozen: &Frozen, frame: &Frame) -> String {
    let lookup = frame.address.wrapping_sub(u64::from(!frame.exact));
    let exact = if frame.exact { "=" } else { " " };
    match frozen.mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&lookup)) {
        Some(mapping) => {
            let offset = (lookup - mapping.start).wrapping_add(mapping.file_offset);
            let name = Path::new(&mapping.path)
                .file_name()
                .map_or("[no file]".into(), |name| name.to_string_lossy());
            let state = match mapping.state {
                State::Ready => "",
                State::NotYet => " (not prepared yet)",
                State::Nothing => " (no table)",
            };
            format!("{exact}{:#018x} {name}+{offset:#x}{state}", frame.address)
        }
        None => format!("{exact}{:#018x} in no mapping", frame.address),
    }
}

fn rule(rule: &Rule) -> String {
    let offset = rule.cfa_offset;
    let cfa = match rule.cfa {
        CfaKind::None => return "no rule".into(),
        CfaKind::Stop => return "outermost frame".into(),
        CfaKind::Signal => return "signal frame".into(),
        CfaKind::Unsupported => return "beyond what rules can say".into(),
        CfaKind::FramePointer if rule.cfa_register != 0 => return "frame record, on another stack".into(),
        CfaKind::FramePointer => return "frame record".into(),
        CfaKind::Sp => format!("sp{offset:+}"),
        CfaKind::Fp => format!("fp{offset:+}"),
        CfaKind::Bx => format!("rbx{offset:+}"),
        CfaKind::Register => format!("register {}{offset:+}", rule.cfa_register),
        CfaKind::DerefSp => format!("*(sp{offset:+}){:+}", rule.cfa_register),
        CfaKind::DerefFp => format!("*(fp{offset:+}){:+}", rule.cfa_register),
        CfaKind::Plt => format!("PLT, pushed from byte {offset} on"),
        CfaKind::Clone => format!("a system call that makes a thread, sp{offset:+}"),
    };
    let saved = |saved: Saved, offset: i16| match saved {
        Saved::Same => "same".to_string(),
        Saved::Undefined => "lost".to_string(),
        Saved::AtCfa => format!("*(CFA{offset:+})"),
        Saved::AtFp => format!("*(fp{offset:+})"),
        Saved::InRegister => format!("register {offset}"),
    };
    format!("CFA {cfa}, return {}, fp {}", saved(rule.ra, rule.ra_offset), saved(rule.fp, rule.fp_offset))
}

fn keep(path: &Path, name: &str) -> anyhow::Result<()> {
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
        bail!("a test's name has letters, digits, - and _ only");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/unwind/tests/frozen");
    std::fs::create_dir_all(&folder)?;
    let to = folder.join(format!("{name}.lfw"));
    std::fs::copy(path, &to).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(())
}
