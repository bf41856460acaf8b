//! A small ELF file for x86-64, as a linker would make it.

/// Address of the first byte of code; it stands at the same offset in the file.
pub const TEXT: u64 = 0x400;
/// Address of a page of data, behind the code.
pub const DATA: u64 = 0x800;

/// Name, type, flags, address, content, the section that it refers to.
type Section<'a> = (&'a str, u32, u64, u64, Vec<u8>, u32);

/// What the file is made of.
#[derive(Default)]
pub struct Elf {
    code: Vec<u8>,
    symbols: Vec<(String, u64, u64, u8)>,
    notes: Vec<u8>,
    go: bool,
    stripped: bool,
}

impl Elf {
    pub fn new() -> Elf {
        Elf::default()
    }

    /// A function, at a multiple of 16.
    pub fn function(mut self, name: &str, code: &[u8]) -> Elf {
        self.code.resize(self.code.len().next_multiple_of(16), 0xcc);
        self.symbols.push((name.into(), TEXT + self.code.len() as u64, code.len() as u64, 2));
        self.code.extend(code);
        self
    }

    /// Another name for the last function.
    pub fn alias(mut self, name: &str) -> Elf {
        let (_, address, size, kind) = self.symbols.last().expect("a function comes first").clone();
        self.symbols.push((name.into(), address, size, kind));
        self
    }

    /// A function that is a choice among several.
    pub fn chooser(self, name: &str, code: &[u8]) -> Elf {
        let mut elf = self.function(name, code);
        elf.symbols.last_mut().expect("just added").3 = 10;
        elf
    }

    /// Code without a symbol.
    pub fn code(mut self, code: &[u8]) -> Elf {
        self.code.extend(code);
        self
    }

    /// A USDT probe so many bytes into the last function.
    pub fn usdt(mut self, into: u64, semaphore: u64, provider: &str, name: &str, arguments: &str) -> Elf {
        let address = self.symbols.last().expect("a function comes first").1 + into;
        let mut content: Vec<u8> =
            [address, 0, semaphore].iter().flat_map(|number| number.to_le_bytes()).collect();
        content.extend(format!("{provider}\0{name}\0{arguments}\0").bytes());
        self.notes.extend([8, content.len() as u32, 3].iter().flat_map(|number| number.to_le_bytes()));
        self.notes.extend(b"stapsdt\0");
        self.notes.extend(content);
        self.notes.resize(self.notes.len().next_multiple_of(4), 0);
        self
    }

    /// Written in Go.
    pub fn go(mut self) -> Elf {
        self.go = true;
        self
    }

    /// Without its symbols.
    pub fn stripped(mut self) -> Elf {
        self.stripped = true;
        self
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut file = vec![0; TEXT as usize];
        file.extend(&self.code);
        file.resize(DATA as usize + 64, 0);
        let mut sections: Vec<Section> = vec![
            (".text", 1, 6, TEXT, self.code.clone(), 0),
            (".note.stapsdt", 7, 0, 0, self.notes.clone(), 0),
        ];
        if self.go {
            sections.push((".go.buildinfo", 1, 2, 0, vec![0; 16], 0));
        }
        if !self.stripped {
            let (mut symbols, mut strings) = (vec![0; 24], vec![0]);
            for (name, address, size, kind) in &self.symbols {
                symbols.extend((strings.len() as u32).to_le_bytes());
                symbols.extend([0x10 | kind, 0, 1, 0]);
                symbols.extend(address.to_le_bytes());
                symbols.extend(size.to_le_bytes());
                strings.extend(name.bytes().chain([0]));
            }
            let strings_at = sections.len() as u32 + 2;
            sections.push((".symtab", 2, 0, 0, symbols, strings_at));
            sections.push((".strtab", 3, 0, 0, strings, 0));
        }
        let mut names = vec![0];
        let mut headers = vec![0; 64];
        let name_section = sections.len() as u16 + 1;
        sections.push((".shstrtab", 3, 0, 0, Vec::new(), 0));
        let mut all_names = vec![0];
        sections.iter().for_each(|(name, ..)| all_names.extend(name.bytes().chain([0])));
        for (name, kind, flags, address, content, link) in &sections {
            let content = if *name == ".shstrtab" { &all_names } else { content };
            let offset = if *name == ".text" { TEXT } else { file.len() as u64 };
            headers.extend((names.len() as u32).to_le_bytes());
            names.extend(name.bytes().chain([0]));
            headers.extend(kind.to_le_bytes());
            for number in [*flags, *address, offset, content.len() as u64] {
                headers.extend(number.to_le_bytes());
            }
            headers.extend(link.to_le_bytes());
            headers.extend([0; 20]);
            if *name != ".text" {
                file.extend(content);
            }
        }
        let sections_at = file.len() as u64;
        file.extend(headers);
        let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
        for number in [TEXT, 64, sections_at] {
            header.extend(number.to_le_bytes());
        }
        header.extend(0_u32.to_le_bytes());
        for number in [64, 56, 2, 64, sections.len() as u16 + 1, name_section] {
            header.extend(number.to_le_bytes());
        }
        for (flags, at, size) in [(5_u32, TEXT, self.code.len() as u64), (6, DATA, 64)] {
            header.extend(1_u32.to_le_bytes());
            header.extend(flags.to_le_bytes());
            for number in [at, at, at, size, size, 0x1000] {
                header.extend(number.to_le_bytes());
            }
        }
        file[..header.len()].copy_from_slice(&header);
        file
    }
}
