//! Where a watcher of OpenSSL stands: at the first bytes of its functions, or where it is cheapest.

use super::{Error, Result, failed};
use lightfoot_kernel::probes::tls::{FUNCTIONS, Function, Leaving};
use lightfoot_kernel::probes::{self, support, tls};
use lightfoot_model::{Instruction, Mechanism};
use lightfoot_sites::leave::{self, End};
use lightfoot_sites::{Options, Place, Site, Spec};
use std::path::Path;

/// Places in each function, and what they are, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    /// The functions that the library has.
    pub functions: Vec<Function>,
    /// How they are attached.
    pub manner: tls::Manner,
    /// One line for each function.
    pub words: Vec<String>,
}

/// The first byte of each function, and the return address that is there: where tracers attach that do not look.
///
/// # Errors
/// If the library has none of the functions, or what is wrong with it.
pub fn naive(library: &Path) -> Result<Places> {
    let mut places = Places { functions: Vec::new(), manner: tls::Manner::One, words: Vec::new() };
    for name in FUNCTIONS {
        let Some(site) = resolve(library, name, true)? else { continue };
        let (entry, class) = (offset(&site)?, site.instruction);
        places.words.push(format!("{name}: first byte ({}), return address", class_name(class)));
        places.functions.push(Function { name, entry, leaving: Leaving::Return });
    }
    some(places, library)
}

/// The cheapest places with the same meaning.
///
/// # Errors
/// As [`naive`].
pub fn chosen(library: &Path) -> Result<Places> {
    let manner =
        if support::check(Mechanism::UprobeMulti).is_ok() { tls::Manner::Multi } else { tls::Manner::One };
    let mut places = Places { functions: Vec::new(), manner, words: Vec::new() };
    for name in FUNCTIONS {
        let (Some(first), Some(moved)) = (resolve(library, name, true)?, resolve(library, name, false)?)
        else {
            continue;
        };
        let start = offset(&first)?;
        let ends = leave::ends_in(library, name, probes::capabilities().nop5);
        let (function, words) =
            choose(name, start, first.instruction, offset(&moved)?, moved.instruction, ends);
        places.functions.push(function);
        places.words.push(words);
    }
    some(places, library)
}

/// Each single step costs a second trap, in a virtual machine of some microseconds. The kernel's own return address, which needs the first
/// byte, costs less than another breakpoint. So the first byte is left only if that saves a step.
fn choose(
    name: &'static str,
    start: u64,
    first: Option<Instruction>,
    moved: u64,
    class: Option<Instruction>,
    ends: std::result::Result<Vec<End>, String>,
) -> (Function, String) {
    let stepped =
        |class: Option<Instruction>| u32::from(class.is_none_or(|class| class == Instruction::SingleStepped));
    let ends_stepped = |ends: &[End]| ends.iter().map(|end| stepped(Some(end.class))).max().unwrap_or(1);
    match ends {
        Ok(ends) if stepped(class) + ends_stepped(&ends) < stepped(first) => {
            let at = |end: &End| format!("+{} ({})", end.offset - start, end.class.name());
            let words = format!(
                "{name}: entry at +{} ({}), end at {}",
                moved - start,
                class_name(class),
                ends.iter().map(at).collect::<Vec<_>>().join(" and ")
            );
            let leaving = Leaving::Instructions(ends.iter().map(|end| end.offset).collect());
            (Function { name, entry: moved, leaving }, words)
        }
        ends => {
            let why = match ends {
                Err(why) => format!(": {why}"),
                Ok(_) if stepped(first) == 0 => String::new(),
                Ok(_) => ": nothing cheaper in front of the return".into(),
            };
            let words = format!("{name}: first byte ({}), return address{why}", class_name(first));
            (Function { name, entry: start, leaving: Leaving::Return }, words)
        }
    }
}

fn some(places: Places, library: &Path) -> Result<Places> {
    match places.functions.is_empty() {
        true => {
            Err(Error::NotPossible(format!("{} has none of {}", library.display(), FUNCTIONS.join(", "))))
        }
        false => Ok(places),
    }
}

/// The site of a function's entry; `None` if the library does not have the function.
fn resolve(library: &Path, name: &str, naive: bool) -> Result<Option<Site>> {
    let spec = Spec::parse(&format!("uprobe:{}:{name}", library.display())).map_err(|e| failed(name, e))?;
    let options = Options { naive, ..Options::new(probes::capabilities()) };
    match lightfoot_sites::resolve(&[spec], &options) {
        Ok(sites) => Ok(sites.into_iter().next()),
        Err(error) if error.kind() == lightfoot_sites::Kind::NotFound => Ok(None),
        Err(error) => Err(failed(name, error)),
    }
}

fn offset(site: &Site) -> Result<u64> {
    match &site.place {
        Place::User { offset, .. } => Ok(*offset),
        _ => Err(Error::Failed(format!("{} is not in a file", site.name))),
    }
}

fn class_name(class: Option<Instruction>) -> &'static str {
    class.map_or("unknown", Instruction::name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Instruction::{Jump, Push, SingleStepped};

    fn ends(class: Instruction) -> std::result::Result<Vec<End>, String> {
        Ok(vec![End { offset: 0x138, class }])
    }

    #[test]
    fn the_first_byte_is_left_if_that_saves_a_single_step() {
        let choose = |first, class, ends| choose("SSL_write", 0x100, Some(first), 0x116, Some(class), ends).0;
        let moved = Function { name: "SSL_write", entry: 0x116, leaving: Leaving::Instructions(vec![0x138]) };
        let stays = Function { name: "SSL_write", entry: 0x100, leaving: Leaving::Return };
        assert_eq!(choose(SingleStepped, Jump, ends(Jump)), moved);
        assert_eq!(choose(SingleStepped, Jump, ends(SingleStepped)), stays, "one step either way");
        assert_eq!(choose(Push, Push, ends(Jump)), stays, "there is none to save");
        assert_eq!(choose(SingleStepped, Jump, Err("it is not known".into())), stays);
    }
}
