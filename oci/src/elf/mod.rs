//! What is read of an ELF file: class, machine, kind, loader and SONAME.
//!
//! Only headers are read, never the file: driver libraries have up to 100 MB. The SONAME is found
//! the way the loader finds it (`PT_DYNAMIC`, `DT_STRTAB`, the `PT_LOAD` that holds it), so that a
//! library without section headers is read as well. Each read is bounded, whatever the file says.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use elf::abi;
use elf::dynamic::Dyn;
use elf::endian::AnyEndian;
use elf::file::{FileHeader, parse_ident};
use elf::parse::{ParseAt, ParseError, ParsingTable};
use elf::segment::ProgramHeader;
use serde::Serialize;

mod note;
#[cfg(test)]
pub(crate) mod testing;

pub use note::note;

/// Read at once at the start: the header, and in all but odd files the program headers.
const HEAD: u64 = 4096;
/// More program headers than any linker writes.
const MAX_SEGMENTS: u16 = 512;
/// The dynamic sections of the driver's largest libraries have less than 1 KiB.
const MAX_DYNAMIC: u64 = 64 * 1024;
/// `NAME_MAX` and its NUL: a longer SONAME could be no file name.
const MAX_SONAME: u64 = 256;
/// `PATH_MAX`, with its NUL.
const MAX_INTERPRETER: u64 = 4096;

/// 32 or 64 bits (`e_ident[EI_CLASS]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Elf32,
    Elf64,
}

/// The instruction set (`e_machine`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Machine {
    X86,
    X86_64,
    Aarch64,
    Arm,
    /// Any other, by its number.
    Other(u16),
}

/// What kind of object file (`e_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// `ET_EXEC`
    Executable,
    /// `ET_DYN`: a shared library, or a position independent executable.
    Shared,
    /// Any other, by its number.
    Other(u16),
}

/// The facts of an ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    pub class: Class,
    pub machine: Machine,
    pub kind: ObjectKind,
    /// The loader that a program asks for (`PT_INTERP`).
    pub interpreter: Option<String>,
    /// The name under which programs ask for a library (`DT_SONAME`).
    pub soname: Option<String>,
}

/// Why a file cannot be read as ELF.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    #[error("not an ELF file")]
    NotElf,
    #[error("the ELF file ends within its {0}")]
    Truncated(&'static str),
    #[error("the ELF file is damaged: {0}")]
    Damaged(&'static str),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Elf {
    /// Reads the facts of `file`, wherever it was read to.
    ///
    /// # Errors
    /// It is no ELF file, ends too early, or contradicts itself.
    pub fn read(file: &File) -> Result<Self, ElfError> {
        let head = read_at(file, 0, HEAD)?;
        let header = header(&head)?;
        let segments = segments(file, &header, &head)?;
        let mut elf = Self {
            class: class(header.class),
            machine: machine(header.e_machine),
            kind: kind(header.e_type),
            interpreter: None,
            soname: None,
        };
        if let Some(segment) = find(&segments, abi::PT_INTERP) {
            let length = segment.p_filesz.min(MAX_INTERPRETER);
            elf.interpreter = Some(string(file, segment.p_offset, length, "loader name")?);
        }
        if let Some(segment) = find(&segments, abi::PT_DYNAMIC) {
            elf.soname = soname(file, &header, &segments, segment)?;
        }
        Ok(elf)
    }
}

fn header(head: &[u8]) -> Result<FileHeader<AnyEndian>, ElfError> {
    if !head.starts_with(&abi::ELFMAGIC) {
        return Err(ElfError::NotElf);
    }
    let (ident, tail) =
        head.split_at_checked(abi::EI_NIDENT).ok_or(ElfError::Truncated("header"))?;
    let ident = parse_ident(ident).map_err(|error| match error {
        ParseError::UnsupportedElfClass(_) => ElfError::Damaged("neither 32 nor 64 bit"),
        ParseError::UnsupportedElfEndianness(_) => ElfError::Damaged("no known byte order"),
        _ => ElfError::Damaged("no known version"),
    })?;
    FileHeader::parse_tail(ident, tail).map_err(|_| ElfError::Truncated("header"))
}

fn segments(
    file: &File,
    header: &FileHeader<AnyEndian>,
    head: &[u8],
) -> Result<Vec<ProgramHeader>, ElfError> {
    if header.e_phnum == 0 {
        return Ok(Vec::new());
    }
    if header.e_phnum > MAX_SEGMENTS {
        return Err(ElfError::Damaged("too many program headers"));
    }
    if ProgramHeader::validate_entsize(header.class, header.e_phentsize.into()).is_err() {
        return Err(ElfError::Damaged("program headers of an unknown size"));
    }
    let size = u64::from(header.e_phnum) * u64::from(header.e_phentsize);
    let within = |start: usize, size: usize| head.get(start..start.checked_add(size)?);
    let bytes = match (usize::try_from(header.e_phoff), usize::try_from(size)) {
        (Ok(start), Ok(size)) if within(start, size).is_some() => {
            within(start, size).unwrap_or_default().to_vec()
        }
        _ => read_at(file, header.e_phoff, size)?,
    };
    if bytes.len() as u64 != size {
        return Err(ElfError::Truncated("program headers"));
    }
    Ok(ParsingTable::<_, ProgramHeader>::new(header.endianness, header.class, &bytes)
        .iter()
        .collect())
}

fn find(segments: &[ProgramHeader], kind: u32) -> Option<&ProgramHeader> {
    segments.iter().find(|segment| segment.p_type == kind)
}

fn soname(
    file: &File,
    header: &FileHeader<AnyEndian>,
    segments: &[ProgramHeader],
    dynamic: &ProgramHeader,
) -> Result<Option<String>, ElfError> {
    let size = dynamic.p_filesz.min(MAX_DYNAMIC);
    let bytes = read_at(file, dynamic.p_offset, size)?;
    if bytes.len() as u64 != size {
        return Err(ElfError::Truncated("dynamic section"));
    }
    let (mut soname, mut strings, mut strings_size) = (None, None, None);
    let table = ParsingTable::<_, Dyn>::new(header.endianness, header.class, &bytes);
    for entry in table.iter().take_while(|entry| entry.d_tag != abi::DT_NULL) {
        match entry.d_tag {
            abi::DT_SONAME => soname = Some(entry.d_val()),
            abi::DT_STRTAB => strings = Some(entry.d_ptr()),
            abi::DT_STRSZ => strings_size = Some(entry.d_val()),
            _ => {}
        }
    }
    let Some(name) = soname else {
        return Ok(None);
    };
    let (Some(strings), Some(strings_size)) = (strings, strings_size) else {
        return Err(ElfError::Damaged("a SONAME without string table"));
    };
    let left = strings_size
        .checked_sub(name)
        .filter(|left| *left > 0)
        .ok_or(ElfError::Damaged("its SONAME lies outside of the string table"))?;
    let offset = strings
        .checked_add(name)
        .and_then(|address| file_offset(segments, address))
        .ok_or(ElfError::Damaged("its string table is in no segment"))?;
    string(file, offset, left.min(MAX_SONAME), "SONAME").map(Some)
}

/// Where in the file a virtual address is.
fn file_offset(segments: &[ProgramHeader], address: u64) -> Option<u64> {
    segments.iter().filter(|segment| segment.p_type == abi::PT_LOAD).find_map(|segment| {
        let within = address.checked_sub(segment.p_vaddr).filter(|at| *at < segment.p_filesz)?;
        segment.p_offset.checked_add(within)
    })
}

/// The NUL-terminated text at `offset`, of at most `limit` bytes with its NUL.
fn string(file: &File, offset: u64, limit: u64, what: &'static str) -> Result<String, ElfError> {
    let bytes = read_at(file, offset, limit)?;
    let Some(end) = bytes.iter().position(|byte| *byte == 0) else {
        return Err(match bytes.len() as u64 == limit {
            true => ElfError::Damaged("a name without end"),
            false => ElfError::Truncated(what),
        });
    };
    let text = bytes.get(..end).unwrap_or_default();
    match std::str::from_utf8(text) {
        Ok(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(ElfError::Damaged("a name that is no text")),
    }
}

/// Up to `limit` bytes at `offset`; fewer at the end of the file.
fn read_at(file: &File, offset: u64, limit: u64) -> Result<Vec<u8>, ElfError> {
    // Beyond what a file offset can be, and so beyond the end of every file.
    if i64::try_from(offset).is_err() {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; usize::try_from(limit).unwrap_or_default()];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn class(class: elf::file::Class) -> Class {
    match class {
        elf::file::Class::ELF32 => Class::Elf32,
        elf::file::Class::ELF64 => Class::Elf64,
    }
}

fn machine(number: u16) -> Machine {
    match number {
        abi::EM_386 => Machine::X86,
        abi::EM_X86_64 => Machine::X86_64,
        abi::EM_AARCH64 => Machine::Aarch64,
        abi::EM_ARM => Machine::Arm,
        other => Machine::Other(other),
    }
}

fn kind(number: u16) -> ObjectKind {
    match number {
        abi::ET_EXEC => ObjectKind::Executable,
        abi::ET_DYN => ObjectKind::Shared,
        other => ObjectKind::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::testing::library;
    use super::*;

    fn read(bytes: &[u8]) -> Result<Elf, ElfError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Elf::read(&file)
    }

    #[test]
    fn soname_in_both_classes_and_byte_orders() {
        for (wide, little) in [(true, true), (true, false), (false, true), (false, false)] {
            let elf = read(&library("libcuda.so.1", wide, little)).unwrap();
            assert_eq!(elf.soname.as_deref(), Some("libcuda.so.1"));
            assert_eq!(elf.class, if wide { Class::Elf64 } else { Class::Elf32 });
            assert_eq!(elf.machine, if wide { Machine::X86_64 } else { Machine::X86 });
            assert_eq!(elf.kind, ObjectKind::Shared);
            assert_eq!(elf.interpreter, None);
        }
    }

    #[test]
    fn a_truncated_library_is_an_error_at_every_length() {
        let whole = library("libcuda.so.1", true, true);
        // The SONAME is followed by the name of libc.
        let end = whole.len() - b"libc.so.6\0".len();
        for length in 0..end {
            assert!(read(&whole[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_program_names_its_loader() {
        let elf = Elf::read(&File::open("/proc/self/exe").unwrap()).unwrap();
        if let Some(interpreter) = elf.interpreter {
            assert!(interpreter.starts_with("/lib"), "{interpreter}");
        }
    }

    #[test]
    fn what_is_no_elf_is_named_so() {
        assert!(matches!(read(b"#!/bin/sh\n"), Err(ElfError::NotElf)));
        assert!(matches!(read(b""), Err(ElfError::NotElf)));
    }

    proptest! {
        #[test]
        fn a_changed_library_never_panics(
            changes in prop::collection::vec((0_usize..320, any::<u8>()), 1..12),
            wide: bool,
            little: bool,
        ) {
            let mut bytes = library("libcuda.so.1", wide, little);
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            let _ = read(&bytes);
        }
    }
}
