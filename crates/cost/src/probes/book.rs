//! Prices as bytes, for the cache. Lines of words, a checksum last; what does not check is not used.

use super::{Around, Family, Price, Prices};
use lightfoot_model::{Body, Instruction, Mechanism, Trigger};
use std::fmt::Write;

const FIRST_LINE: &str = "lightfoot-prices 1";
/// Longer than this is none of ours.
const BYTES_MAX: usize = 64 << 10;
/// No firing costs more than a second.
const NS_MAX: f64 = 1e9;

/// These bytes are not what was written, or were written for another machine, kernel or boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damaged;

impl Prices {
    /// As bytes; `machine` says what they hold for (one line).
    pub fn encode(&self, machine: &str) -> Vec<u8> {
        let mut text = format!("{FIRST_LINE}\nmachine {}\n", one_line(machine));
        let mut line = |words: &str, price: &Price| {
            // Writing to a string does not fail.
            writeln!(text, "{words} {} {}", price.ns, price.error_ns).ok();
        };
        for ((trigger, around), price) in &self.triggers {
            line(&format!("trigger {} {}", around.name(), words(trigger)), price);
        }
        for (trigger, price) in &self.bias {
            line(&format!("trigger bias {}", words(trigger)), price);
        }
        for ((family, body), price) in &self.bodies {
            line(&format!("body {} {}", family.name(), body.name()), price);
        }
        for (what, prices) in [("gate", &self.gate), ("statistics", &self.statistics)] {
            for (family, price) in prices {
                line(&format!("{what} {}", family.name()), price);
            }
        }
        let checksum = crc32fast::hash(text.as_bytes());
        writeln!(text, "crc32 {checksum:08x}").ok();
        text.into_bytes()
    }

    /// From bytes, if they are exactly what [`Prices::encode`] wrote for this machine.
    ///
    /// # Errors
    /// [`Damaged`] otherwise.
    pub fn decode(bytes: &[u8], machine: &str) -> Result<Prices, Damaged> {
        read(bytes, machine).ok_or(Damaged)
    }
}

fn read(bytes: &[u8], machine: &str) -> Option<Prices> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= BYTES_MAX)?;
    let end = text.rfind("crc32 ")?;
    let (body, checksum) = (&text[..end], text[end..].strip_prefix("crc32 ")?.strip_suffix('\n')?);
    if u32::from_str_radix(checksum, 16).ok()? != crc32fast::hash(body.as_bytes()) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next()? != FIRST_LINE || lines.next()?.strip_prefix("machine ")? != one_line(machine) {
        return None;
    }
    let mut prices = Prices::default();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["trigger", what, mechanism, instruction, syscall, ns, error] => {
                let trigger = Trigger {
                    mechanism: Mechanism::ALL.into_iter().find(|m| m.name() == mechanism)?,
                    instruction: match instruction {
                        "-" => None,
                        name => Some(Instruction::ALL.into_iter().find(|i| i.name() == name)?),
                    },
                    syscall: syscall == "syscall",
                };
                match Around::ALL.into_iter().find(|around| around.name() == what) {
                    Some(around) => prices.triggers.insert((trigger, around), price(ns, error)?),
                    None if what == "bias" => prices.bias.insert(trigger, price(ns, error)?),
                    None => return None,
                };
            }
            ["body", family, body, ns, error] => {
                let body = Body::ALL.into_iter().find(|b| b.name() == body)?;
                prices.bodies.insert((family_named(family)?, body), price(ns, error)?);
            }
            [what, family, ns, error] => {
                let table = match what {
                    "gate" => &mut prices.gate,
                    "statistics" => &mut prices.statistics,
                    _ => return None,
                };
                table.insert(family_named(family)?, price(ns, error)?);
            }
            _ => return None,
        }
    }
    Some(prices)
}

fn words(trigger: &Trigger) -> String {
    let instruction = trigger.instruction.map_or("-", Instruction::name);
    let syscall = if trigger.syscall { "syscall" } else { "-" };
    format!("{} {instruction} {syscall}", trigger.mechanism.name())
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn family_named(name: &str) -> Option<Family> {
    Family::ALL.into_iter().find(|family| family.name() == name)
}

fn price(ns: &str, error: &str) -> Option<Price> {
    let number = |text: &str| text.parse::<f64>().ok().filter(|ns| (0.0..=NS_MAX).contains(ns));
    Some(Price { ns: number(ns)?, error_ns: number(error)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices() -> Prices {
        let mut prices = Prices::default();
        let mut ns = 100.25;
        for mechanism in Mechanism::ALL {
            for instruction in [None, Some(Instruction::Push), Some(Instruction::SingleStepped)] {
                for syscall in [false, true] {
                    ns += 1.5;
                    let trigger = Trigger { mechanism, instruction, syscall };
                    for around in Around::ALL {
                        ns += 3.25;
                        prices.triggers.insert((trigger, around), Price { ns, error_ns: 0.1 + ns / 100.0 });
                    }
                    prices.bias.insert(trigger, Price { ns: 53.0, error_ns: ns / 500.0 });
                }
            }
        }
        for body in Body::ALL {
            prices.bodies.insert((Family::User, body), Price { ns: 3.0, error_ns: 0.5 });
        }
        prices.gate.insert(Family::Kernel, Price { ns: 6.5, error_ns: 0.25 });
        prices.statistics.insert(Family::Event, Price { ns: 70.0, error_ns: 5.0 });
        prices
    }

    #[test]
    fn prices_come_back_and_damage_does_not() {
        let bytes = prices().encode("6.18 boot-1 a CPU");
        assert_eq!(Prices::decode(&bytes, "6.18 boot-1 a CPU"), Ok(prices()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Prices::decode(&damaged, "6.18 boot-1 a CPU"), Err(Damaged), "bit of byte {at}");
        }
        for length in 0..bytes.len() {
            assert_eq!(Prices::decode(&bytes[..length], "6.18 boot-1 a CPU"), Err(Damaged), "{length} bytes");
        }
    }

    #[test]
    fn another_kernel_boot_or_cpu_is_another_machine() {
        let bytes = prices().encode("6.18 boot-1 a CPU");
        for other in ["6.18 boot-2 a CPU", "6.12 boot-1 a CPU", "6.18 boot-1 another CPU", ""] {
            assert_eq!(Prices::decode(&bytes, other), Err(Damaged), "{other}");
        }
    }

    #[test]
    fn impossible_prices_are_refused_even_with_a_right_checksum() {
        for wrong in ["-1", "nan", "inf", "1e10", "x"] {
            let text = format!("{FIRST_LINE}\nmachine m\ngate user {wrong} 1\n");
            let text = format!("{text}crc32 {:08x}\n", crc32fast::hash(text.as_bytes()));
            assert_eq!(Prices::decode(text.as_bytes(), "m"), Err(Damaged), "{wrong}");
        }
    }
}
