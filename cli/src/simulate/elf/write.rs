//! The writer: where the parts of a file lie and how they are encoded in either class.

use nvidia_oci::elf::{Class, Machine};

// elf(5)
const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
/// Without it, a loader takes the library to want an executable stack; glibc 2.41 refuses that.
const PT_GNU_STACK: u32 = 0x6474_e551;
const R: u32 = 4;
const W: u32 = 2;
const X: u32 = 1;
const DT_NULL: u32 = 0;
const DT_NEEDED: u32 = 1;
const DT_HASH: u32 = 4;
const DT_STRTAB: u32 = 5;
const DT_SYMTAB: u32 = 6;
const DT_STRSZ: u32 = 10;
const DT_SYMENT: u32 = 11;
const DT_SONAME: u32 = 14;
/// `STB_GLOBAL << 4 | STT_FUNC`
const GLOBAL_FUNCTION: u8 = 0x12;
/// Any section that is neither "undefined" (0) nor "absolute": loaders ask no more of it.
const SOME_SECTION: u16 = 1;

/// The largest page of the machines written for (64 KiB on aarch64): segments that differ in
/// rights lie this far apart.
const PAGE: u32 = 0x1_0000;
/// Where the linker puts a program that is not position independent (GNU ld on x86-64).
const PROGRAM_BASE: u32 = 0x40_0000;

/// A function that a library exports, by its offset in the code.
pub(super) struct Export {
    pub(super) name: &'static str,
    pub(super) offset: u32,
}

/// What goes into a library.
pub(super) struct Library<'a> {
    pub(super) soname: Option<&'a str>,
    pub(super) class: Class,
    pub(super) machine: Machine,
    pub(super) code: &'a [u8],
    pub(super) exports: &'a [Export],
}

impl Library<'_> {
    /// The file: headers, hash table, symbols, strings and code in one segment, the dynamic
    /// section in another, since a loader writes to it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut strings = Strings::new();
        let needed = strings.add("libc.so.6");
        let soname = self.soname.map(|name| strings.add(name));
        let names: Vec<u32> = self.exports.iter().map(|e| strings.add(e.name)).collect();

        let hash = header_size(self.class, 4);
        let symbols = align(hash + hash_size(self.exports), 8);
        let symbols_end = symbols + (1 + len(self.exports)) * symbol_size(self.class);
        let code = align(symbols_end + len(&strings.bytes), 16);
        let code_end = code + len(self.code);
        let dynamic = align(code_end, 16);

        let mut entries = vec![(DT_NEEDED, needed)];
        entries.extend(soname.map(|name| (DT_SONAME, name)));
        entries.extend([
            (DT_HASH, hash),
            (DT_STRTAB, symbols_end),
            (DT_SYMTAB, symbols),
            (DT_STRSZ, len(&strings.bytes)),
            (DT_SYMENT, symbol_size(self.class)),
            (DT_NULL, 0),
        ]);
        let dynamic_size = len(&entries) * 2 * word_size(self.class);

        let mut out = Output::new(self.class);
        out.header(ET_DYN, self.machine, 0, 4);
        let text = Segment { offset: 0, address: 0, size: code_end };
        let data = Segment { offset: dynamic, address: dynamic + PAGE, size: dynamic_size };
        out.program_header(PT_LOAD, R | X, text, PAGE);
        out.program_header(PT_LOAD, R | W, data, PAGE);
        out.program_header(PT_DYNAMIC, R | W, data, 8);
        out.program_header(PT_GNU_STACK, R | W, Segment::NONE, 16);
        out.pad_to(hash);
        out.hash_table(self.exports);
        out.pad_to(symbols);
        out.symbol(0, 0, 0, 0);
        for (name, export) in names.iter().zip(self.exports) {
            out.symbol(*name, code + export.offset, GLOBAL_FUNCTION, SOME_SECTION);
        }
        out.bytes.extend(&strings.bytes);
        out.pad_to(code);
        out.bytes.extend(self.code);
        out.pad_to(dynamic);
        for (tag, value) in entries {
            out.word(tag);
            out.word(value);
        }
        out.bytes
    }
}

/// A static 64-bit program: `code` starts running at its first byte and finds, right behind its
/// last, the address and the length of each of `texts` as 64-bit words.
pub(super) fn executable(machine: Machine, code: &[u8], texts: &[&str]) -> Vec<u8> {
    let entry = align(header_size(Class::Elf64, 2), 16);
    let table = entry + len(code);
    let mut text = table + len(texts) * 16;
    let size = text + texts.iter().map(|text| len(text.as_bytes())).sum::<u32>();

    let mut out = Output::new(Class::Elf64);
    out.header(ET_EXEC, machine, PROGRAM_BASE + entry, 2);
    out.program_header(PT_LOAD, R | X, Segment { offset: 0, address: PROGRAM_BASE, size }, PAGE);
    out.program_header(PT_GNU_STACK, R | W, Segment::NONE, 16);
    out.pad_to(entry);
    out.bytes.extend(code);
    for each in texts {
        out.word(PROGRAM_BASE + text);
        out.word(len(each.as_bytes()));
        text += len(each.as_bytes());
    }
    for each in texts {
        out.bytes.extend(each.as_bytes());
    }
    out.bytes
}

#[derive(Clone, Copy)]
struct Segment {
    offset: u32,
    address: u32,
    size: u32,
}

impl Segment {
    const NONE: Self = Self { offset: 0, address: 0, size: 0 };
}

/// The file so far.
struct Output {
    class: Class,
    bytes: Vec<u8>,
}

impl Output {
    fn new(class: Class) -> Self {
        Self { class, bytes: Vec::new() }
    }

    fn half(&mut self, value: u16) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn int(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    /// An address, offset or size: as wide as the class.
    fn word(&mut self, value: u32) {
        self.int(value);
        if self.class == Class::Elf64 {
            self.int(0);
        }
    }

    fn pad_to(&mut self, offset: u32) {
        self.bytes.resize(offset as usize, 0);
    }

    fn header(&mut self, kind: u16, machine: Machine, entry: u32, program_headers: u16) {
        let (class, header, program_header, section_header) = match self.class {
            Class::Elf32 => (1, 52, 32, 40),
            Class::Elf64 => (2, 64, 56, 64),
        };
        // Little-endian (1), version 1, System V ABI.
        self.bytes.extend([0x7f, b'E', b'L', b'F', class, 1, 1, 0]);
        self.pad_to(16);
        self.half(kind);
        self.half(machine_number(machine));
        self.int(1);
        self.word(entry);
        self.word(u32::from(header));
        self.word(0);
        self.int(machine_flags(machine));
        self.half(header);
        self.half(program_header);
        self.half(program_headers);
        self.half(section_header);
        self.half(0);
        self.half(0);
    }

    fn program_header(&mut self, kind: u32, rights: u32, segment: Segment, alignment: u32) {
        self.int(kind);
        if self.class == Class::Elf64 {
            self.int(rights);
        }
        self.word(segment.offset);
        self.word(segment.address);
        self.word(segment.address);
        self.word(segment.size);
        self.word(segment.size);
        if self.class == Class::Elf32 {
            self.int(rights);
        }
        self.word(alignment);
    }

    fn symbol(&mut self, name: u32, value: u32, info: u8, section: u16) {
        self.int(name);
        match self.class {
            Class::Elf32 => {
                self.int(value);
                self.int(0);
                self.bytes.extend([info, 0]);
                self.half(section);
            }
            Class::Elf64 => {
                self.bytes.extend([info, 0]);
                self.half(section);
                self.word(value);
                self.word(0);
            }
        }
    }

    /// The System V hash table with one bucket: a chain through all symbols, last to first.
    fn hash_table(&mut self, exports: &[Export]) {
        let count = len(exports);
        self.int(1);
        self.int(count + 1);
        self.int(count);
        self.int(0);
        for next in 0..count {
            self.int(next);
        }
    }
}

/// A string table: starts with the empty string.
struct Strings {
    bytes: Vec<u8>,
}

impl Strings {
    fn new() -> Self {
        Self { bytes: vec![0] }
    }

    fn add(&mut self, text: &str) -> u32 {
        let offset = len(&self.bytes);
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
        offset
    }
}

/// `e_machine`
fn machine_number(machine: Machine) -> u16 {
    match machine {
        Machine::X86 => 3,
        Machine::Arm => 40,
        Machine::X86_64 => 62,
        Machine::Aarch64 => 183,
        Machine::Other(number) => number,
    }
}

/// `e_flags`: on arm, EABI 5 with floating-point registers, as armhf has it.
fn machine_flags(machine: Machine) -> u32 {
    if machine == Machine::Arm { 0x0500_0400 } else { 0 }
}

fn header_size(class: Class, program_headers: u32) -> u32 {
    match class {
        Class::Elf32 => 52 + program_headers * 32,
        Class::Elf64 => 64 + program_headers * 56,
    }
}

fn symbol_size(class: Class) -> u32 {
    match class {
        Class::Elf32 => 16,
        Class::Elf64 => 24,
    }
}

fn word_size(class: Class) -> u32 {
    match class {
        Class::Elf32 => 4,
        Class::Elf64 => 8,
    }
}

/// Bucket count, chain count, one bucket, and a chain of all symbols and the first, empty one.
fn hash_size(exports: &[Export]) -> u32 {
    4 * (3 + 1 + len(exports))
}

fn align(offset: u32, alignment: u32) -> u32 {
    offset.next_multiple_of(alignment)
}

fn len<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).expect("a simulated file is far below 4 GiB")
}
