//! What the kernel makes of a five-byte nop under a uprobe, found by trying.

use super::{Group, Options, Point, support, targets};
use lightfoot_model::{Body, Instruction, Mechanism};
use lightfoot_sites::{Capabilities, Nop5};
use std::sync::OnceLock;

/// Hits after which the kernel has replaced the breakpoint, if it does.
const HITS: u64 = 10;
/// First byte of `call`.
const CALL: u8 = 0xe8;

/// What this kernel can do, as far as the choice of sites depends on it. Remembered for the life of the process.
pub fn capabilities() -> Capabilities {
    static KNOWN: OnceLock<Capabilities> = OnceLock::new();
    let find = || {
        let working = Mechanism::ALL.into_iter().filter(|mechanism| support::check(*mechanism).is_ok());
        Capabilities::new(working, nop5())
    };
    KNOWN.get_or_init(find).clone()
}

/// A uprobe on a function of ours that begins with such a nop: what stands there after a few hits? Where this cannot be tried, the form that harms
/// leaf functions is assumed: there are cheaper mistakes than leaving such places out.
fn nop5() -> Nop5 {
    let Some(target) = targets::of(Instruction::Nop5) else { return Nop5::Call };
    let options = Options {
        pid: Some(std::process::id()),
        bare: true,
        ..Options::new(Mechanism::UprobeMulti, Body::Empty)
    };
    let Ok(mut group) = Group::load(&options) else { return Nop5::Call };
    if group.attach(&[Point { slot: 0, place: target.place.clone() }]).is_err() {
        return Nop5::Call;
    }
    target.run(HITS);
    // SAFETY: the function's code is mapped and readable as long as this program runs. The kernel writes it whole.
    let first = unsafe { (target.call as *const u8).read_volatile() };
    if first == CALL { Nop5::Call } else { Nop5::Trap }
}
