//! Notes: what a vendor wrote into a library for those who look at it from outside.

use std::fs::File;

use elf::abi;
use elf::parse::{ParseAt, ParsingTable};
use elf::section::SectionHeader;

use super::{ElfError, HEAD, header, read_at};

/// More sections than any library of a driver has.
const MAX_SECTIONS: u16 = 1024;
/// Names of sections, and what a note says, in bytes.
const MAX_TEXT: u64 = 64 * 1024;
/// Three numbers: size of the owner's name, size of the description, kind.
const NOTE_HEADER: usize = 12;

/// What the first note of the section `name` says, if it is `owner`'s. Its end is the end of the
/// text: NULs that fill it up are cut off.
///
/// # Errors
/// It is no ELF file, ends too early, or contradicts itself.
pub fn note(file: &File, name: &str, owner: &str) -> Result<Option<Vec<u8>>, ElfError> {
    let head = read_at(file, 0, HEAD)?;
    let header = header(&head)?;
    if header.e_shnum == 0 {
        return Ok(None);
    }
    if header.e_shnum > MAX_SECTIONS {
        return Err(ElfError::Damaged("too many sections"));
    }
    if SectionHeader::validate_entsize(header.class, header.e_shentsize.into()).is_err() {
        return Err(ElfError::Damaged("section headers of an unknown size"));
    }
    let size = u64::from(header.e_shnum) * u64::from(header.e_shentsize);
    let bytes = read_at(file, header.e_shoff, size)?;
    let sections: Vec<SectionHeader> =
        ParsingTable::new(header.endianness, header.class, &bytes).iter().collect();
    let Some(names) = sections.get(usize::from(header.e_shstrndx)) else { return Ok(None) };
    let names = read_at(file, names.sh_offset, names.sh_size.min(MAX_TEXT))?;
    let is_named_so = |section: &&SectionHeader| {
        section.sh_type == abi::SHT_NOTE && starts_with_text(&names, section.sh_name, name)
    };
    let Some(section) = sections.iter().find(is_named_so) else { return Ok(None) };
    let bytes = read_at(file, section.sh_offset, section.sh_size.min(MAX_TEXT))?;
    let number = |at: usize| -> Option<usize> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        let number = match header.endianness {
            elf::endian::AnyEndian::Little => u32::from_le_bytes(*bytes),
            elf::endian::AnyEndian::Big => u32::from_be_bytes(*bytes),
        };
        usize::try_from(number).ok()
    };
    let (Some(owner_size), Some(size)) = (number(0), number(4)) else {
        return Err(ElfError::Truncated("note"));
    };
    let text = |start: usize, size: usize| {
        let text = bytes.get(start..start.checked_add(size)?)?;
        let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        text.get(..end)
    };
    // Both parts begin at a multiple of the section's alignment, 4 in any case.
    let align = usize::try_from(section.sh_addralign).unwrap_or(4).clamp(4, 8);
    let start = owner_size.checked_next_multiple_of(align).map(|size| size + NOTE_HEADER);
    match (text(NOTE_HEADER, owner_size), start.and_then(|start| text(start, size))) {
        (Some(found), Some(description)) if found == owner.as_bytes() => {
            Ok(Some(description.to_vec()))
        }
        (Some(_), Some(_)) => Ok(None),
        _ => Err(ElfError::Truncated("note")),
    }
}

fn starts_with_text(names: &[u8], at: u32, name: &str) -> bool {
    let found = usize::try_from(at).ok().and_then(|at| names.get(at..));
    found
        .and_then(|found| found.strip_prefix(name.as_bytes()))
        .is_some_and(|rest| rest.first() == Some(&0))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::super::testing::with_note;
    use super::*;

    fn read(bytes: &[u8]) -> Result<Option<Vec<u8>>, ElfError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        note(&file, ".note.vendor", "Vendor")
    }

    #[test]
    fn the_owners_note_is_read_in_both_classes() {
        for wide in [true, false] {
            let file = with_note(wide, ".note.vendor", "Vendor", b"{\"a\":1}");
            assert_eq!(read(&file).unwrap().unwrap(), b"{\"a\":1}");
        }
    }

    #[test]
    fn a_note_of_another_name_or_owner_is_none() {
        for (name, owner) in [(".note.vendor2", "Vendor"), (".note.vendor", "Other")] {
            assert_eq!(read(&with_note(true, name, owner, b"x")).unwrap(), None);
        }
        let library = super::super::testing::library("libx.so.1", true, true);
        assert_eq!(read(&library).unwrap(), None);
    }

    proptest! {
        #[test]
        fn a_changed_file_never_panics(
            changes in prop::collection::vec((0_usize..400, any::<u8>()), 1..12),
            wide: bool,
        ) {
            let mut bytes = with_note(wide, ".note.vendor", "Vendor", b"{}");
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            let _ = read(&bytes);
        }
    }
}
