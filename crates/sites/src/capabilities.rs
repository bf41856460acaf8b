//! What the kernel can do, as far as the choice of a site depends on it. Found out by crate `kernel`, by trying.

use lightfoot_model::Mechanism;

/// What the kernel does with a five-byte nop under a uprobe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Nop5 {
    /// A trap, then the nop is emulated: kernels before 6.18, and those that went on to a ten-byte nop.
    #[default]
    Trap,
    /// From the second hit on a call, which writes below the stack pointer (Linux 6.18): it destroys what a leaf function keeps there.
    Call,
}

/// What the kernel can do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    mechanisms: u32,
    /// What becomes of a five-byte nop under a uprobe.
    pub nop5: Nop5,
}

impl Capabilities {
    /// These mechanisms work.
    pub fn new(mechanisms: impl IntoIterator<Item = Mechanism>, nop5: Nop5) -> Capabilities {
        let mechanisms = mechanisms.into_iter().fold(0, |bits, mechanism| bits | bit(mechanism));
        Capabilities { mechanisms, nop5 }
    }

    /// Everything that any kernel has: for looking at choices without a kernel.
    pub fn all() -> Capabilities {
        Capabilities::new(Mechanism::ALL, Nop5::Call)
    }

    /// Whether a mechanism works.
    pub fn has(&self, mechanism: Mechanism) -> bool {
        self.mechanisms & bit(mechanism) != 0
    }

    /// Adds or takes away a mechanism.
    pub fn set(&mut self, mechanism: Mechanism, works: bool) {
        if works {
            self.mechanisms |= bit(mechanism);
        } else {
            self.mechanisms &= !bit(mechanism);
        }
    }
}

fn bit(mechanism: Mechanism) -> u32 {
    1 << Mechanism::ALL.iter().position(|other| *other == mechanism).unwrap_or(31)
}
