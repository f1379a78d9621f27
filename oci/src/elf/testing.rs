//! ELF files for tests.

/// What a 32-bit library must need for ldconfig to call it one of glibc 2.
const LIBC: &[u8] = b"libc.so.6\0";

/// A minimal library: one load segment that maps the file at `0x10000`, a dynamic section,
/// no section headers.
pub(crate) fn library(soname: &str, wide: bool, little: bool) -> Vec<u8> {
    let mut file = Vec::new();
    let half = |n: u16| if little { n.to_le_bytes() } else { n.to_be_bytes() };
    let word = |n: u32| if little { n.to_le_bytes() } else { n.to_be_bytes() };
    let address = |n: u32| {
        let long = u64::from(n);
        match (wide, little) {
            (true, true) => long.to_le_bytes().to_vec(),
            (true, false) => long.to_be_bytes().to_vec(),
            (false, _) => word(n).to_vec(),
        }
    };
    let (ehdr, phdr, dyn_size): (u16, u16, u32) = if wide { (64, 56, 16) } else { (52, 32, 8) };
    let dynamic = u32::from(ehdr) + 2 * u32::from(phdr);
    let strings = dynamic + 5 * dyn_size;
    let needed = u32::try_from(soname.len()).unwrap() + 2;
    let length = needed + u32::try_from(LIBC.len()).unwrap();
    file.extend(b"\x7fELF");
    file.extend([if wide { 2 } else { 1 }, if little { 1 } else { 2 }, 1, 0]);
    file.extend([0; 8]);
    file.extend(half(3));
    file.extend(half(if wide { 62 } else { 3 }));
    file.extend(word(1));
    file.extend(address(0));
    file.extend(address(ehdr.into()));
    file.extend(address(0));
    file.extend(word(0));
    for n in [ehdr, phdr, 2, 0, 0, 0] {
        file.extend(half(n));
    }
    for (kind, start, size) in [(1, 0, strings + length), (2, dynamic, 5 * dyn_size)] {
        file.extend(word(kind));
        if wide {
            file.extend(word(5));
        }
        for n in [start, start + 0x10000, start + 0x10000, size, size] {
            file.extend(address(n));
        }
        if !wide {
            file.extend(word(5));
        }
        file.extend(address(1));
    }
    for (tag, value) in [(5, strings + 0x10000), (10, length), (14, 1), (1, needed), (0, 0)] {
        file.extend(address(tag));
        file.extend(address(value));
    }
    file.push(0);
    file.extend(soname.as_bytes());
    file.push(0);
    file.extend(LIBC);
    file
}

/// A 64-bit program of which nothing is there but the header and the name of its loader.
pub(crate) fn program(loader: &str) -> Vec<u8> {
    let mut file = vec![0_u8; 64];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    // e_type ET_EXEC, e_machine x86-64, e_version
    file[16..24].copy_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    // e_phoff
    file[32] = 64;
    // e_ehsize, e_phentsize, e_phnum
    file[52..58].copy_from_slice(&[64, 0, 56, 0, 1, 0]);
    let length = u64::try_from(loader.len()).unwrap() + 1;
    // PT_INTERP
    file.extend(3_u32.to_le_bytes());
    file.extend(4_u32.to_le_bytes());
    for number in [120, 120, 120, length, length, 1_u64] {
        file.extend(number.to_le_bytes());
    }
    file.extend(loader.as_bytes());
    file.push(0);
    file
}

/// A little-endian file of nothing but section headers, their names, and a note.
pub(crate) fn with_note(wide: bool, name: &str, owner: &str, description: &[u8]) -> Vec<u8> {
    let (ehdr, shdr): (u16, u16) = if wide { (64, 64) } else { (52, 40) };
    let address = |n: u64| {
        let bytes = n.to_le_bytes();
        if wide { bytes.to_vec() } else { bytes[..4].to_vec() }
    };
    let size = |text: &[u8]| u32::try_from(text.len()).unwrap();
    let padded = |text: &[u8]| {
        let mut text = text.to_vec();
        text.resize(text.len().next_multiple_of(4), 0);
        text
    };
    let names = [b"\0".as_slice(), name.as_bytes(), b"\0"].concat();
    let owner = [owner.as_bytes(), b"\0"].concat();
    let mut note = Vec::new();
    for number in [size(&owner), size(description), 1] {
        note.extend(number.to_le_bytes());
    }
    note.extend(padded(&owner));
    note.extend(padded(description));
    let mut file = b"\x7fELF".to_vec();
    file.extend([if wide { 2 } else { 1 }, 1, 1]);
    file.resize(16, 0);
    file.extend([3, 0, if wide { 62 } else { 3 }, 0, 1, 0, 0, 0]);
    for number in [0, 0, u64::from(ehdr)] {
        file.extend(address(number));
    }
    file.extend([0; 4]);
    for half in [ehdr, 0, 0, shdr, 2, 0] {
        file.extend(half.to_le_bytes());
    }
    let data = u64::from(ehdr) + 2 * u64::from(shdr);
    let names_size = u64::try_from(names.len()).unwrap();
    let note_size = u64::try_from(note.len()).unwrap();
    // Kinds: string table, note.
    for (name, kind, start, size) in
        [(0_u32, 3_u32, data, names_size), (1, 7, data + names_size, note_size)]
    {
        file.extend(name.to_le_bytes());
        file.extend(kind.to_le_bytes());
        for number in [0, 0, start, size] {
            file.extend(address(number));
        }
        file.extend([0; 8]);
        for number in [4, 0] {
            file.extend(address(number));
        }
    }
    file.extend(names);
    file.extend(note);
    file
}
