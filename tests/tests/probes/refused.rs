//! What cannot be attached: the reason and the place are told, and nothing is attached.

use super::*;
use lightfoot_kernel::Kind;
use lightfoot_kernel::probes::targets;

/// A kind that this kernel has not is Unsupported, with a reason; the others load with every body.
#[test]
fn a_missing_kind_says_so() {
    let Some(_turn) = privileged("a_missing_kind_says_so") else { return };
    for mechanism in Mechanism::ALL {
        match support::check(mechanism) {
            Ok(()) => {
                for body in Body::ALL {
                    for bare in [false, true] {
                        let both = Options { bare, gate: true, ..options(mechanism, body) };
                        Group::load(&both).unwrap_or_else(|e| {
                            panic!("{} {}: {}", mechanism.name(), body.name(), chain(&e))
                        });
                    }
                }
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::Unsupported, "{}: {}", mechanism.name(), chain(&error));
                let refused = Group::load(&options(mechanism, Body::Empty)).map(drop).unwrap_err();
                assert_eq!(refused.kind(), Kind::Unsupported);
                assert!(refused.to_string().starts_with(mechanism.name()), "{refused}");
            }
        }
    }
    let kprobes = std::path::Path::new("/sys/bus/event_source/devices/kprobe").exists();
    assert_eq!(support::check(Mechanism::Kprobe).is_ok(), kprobes);
    assert!(support::check(Mechanism::RawTracepoint).is_ok());
}

/// One place of many that does not exist: it is named, and none is attached.
#[test]
fn all_or_nothing() {
    let Some(_turn) = turn("all_or_nothing", Mechanism::UprobeMulti) else { return };
    let good = targets::all().iter().map(|target| target.place.clone());
    let Place::User { file, .. } = targets::all()[0].place.clone() else { panic!("a user place") };
    let bad = Place::User { file, offset: 1 << 40, semaphore: None };
    let mut places: Vec<Place> = good.collect();
    places.insert(3, bad);
    let points: Vec<Point> = (0..).zip(places).map(|(slot, place)| Point { slot, place }).collect();
    let several = Options { slots: points.len() as u32, ..options(Mechanism::UprobeMulti, Body::Empty) };
    let mut group = Group::load(&several).expect("load");
    let links = || objects(std::process::id()).iter().filter(|object| object.kind == BpfKind::Link).count();
    assert_eq!(links(), 0);
    let error = group.attach(&points).unwrap_err();
    assert!(error.to_string().contains("0x10000000000"), "{error}");
    assert_eq!(links(), 0);
    targets::all()[0].run(EVENTS);
    assert_eq!(group.counts().expect("counts")[0].fired, 0);
}

/// Places that are not there.
#[test]
fn nothing_is_there() {
    let Some(_turn) = privileged("nothing_is_there") else { return };
    let user = |file: &str| Place::User { file: file.into(), offset: 0x1000, semaphore: None };
    let tracepoint =
        |category: &str, name: &str| Place::Tracepoint { category: category.into(), name: name.into() };
    let kernel = |function: &str| Place::Kernel { function: function.into(), offset: 0 };
    let cases = [
        (Mechanism::UprobeMulti, user("/no/such/file"), Kind::NotFound),
        (Mechanism::Uprobe, user("/no/such/file"), Kind::NotFound),
        (Mechanism::UprobeMulti, getppid_entry(), Kind::Usage),
        (Mechanism::Tracepoint, tracepoint("sched", "no_such_thing"), Kind::NotFound),
        (Mechanism::RawTracepoint, tracepoint("", "no_such_thing"), Kind::NotFound),
        (Mechanism::TpBtf, tracepoint("", "no_such_thing"), Kind::NotFound),
        (Mechanism::RawTracepoint, Place::Syscall { number: 5000, exit: false }, Kind::Usage),
        (Mechanism::Kprobe, kernel("no_such_function"), Kind::NotFound),
        (Mechanism::KprobeMulti, kernel("no_such_function"), Kind::NotFound),
        (Mechanism::KprobeSession, kernel("no_such_function"), Kind::NotFound),
        (Mechanism::Fentry, kernel("no_such_function"), Kind::NotFound),
    ];
    for (mechanism, place, kind) in cases {
        if support::check(mechanism).is_err() {
            continue;
        }
        let mut group = Group::load(&Options::new(mechanism, Body::Empty)).expect("load");
        let error = group.attach(&[Point { slot: 0, place }]).unwrap_err();
        assert_eq!(error.kind(), kind, "{}: {}", mechanism.name(), chain(&error));
    }
    let gone = Options { pid: Some(u32::MAX >> 2), ..Options::new(Mechanism::UprobeMulti, Body::Empty) };
    let mut group = Group::load(&gone).expect("load");
    let point = Point { slot: 0, place: targets::all()[0].place.clone() };
    let error = group.attach(&[point]).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{}", chain(&error));
}
