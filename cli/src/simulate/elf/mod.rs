//! Small real shared libraries and programs, written without compiler, assembler or linker.
//!
//! What is written is what loaders, `ldconfig`, `readelf -d` and `file` look at: headers, two
//! load segments, the dynamic section and, where a library answers calls, a few hundred bytes of
//! machine code (`code`). There are no section headers, as in a stripped file.
//!
//! Sources: elf(5); System V gABI, "Program Loading and Dynamic Linking"; glibc
//! `elf/dl-load.c`, `elf/readelflib.c` (ldconfig); musl `ldso/dynlink.c`.

mod code;
mod write;

use nvidia_oci::elf::{Class, Machine};

use self::write::{Export, Library};

/// A library that a loader loads and that exports nothing.
///
/// It needs `libc.so.6`, as every library of the driver does: `ldconfig` of older glibc takes a
/// library without it for one of libc 5. (musl knows the name and answers it with itself.)
pub fn library(soname: Option<&str>, class: Class, machine: Machine) -> Vec<u8> {
    Library { soname, class, machine, code: &[], exports: &[] }.bytes()
}

/// A `libcuda.so.1` that answers `cuInit` with success, `cuDriverGetVersion` with
/// `cuda_version` (1000 × major + 10 × minor) and `cuDeviceGetCount` with the number of
/// `/dev/nvidia0` … `/dev/nvidia31` that the caller may open: a node without a driver behind it
/// fails with `ENXIO` where the device cgroup allows it and counts, with `EPERM` where not.
///
/// `None` for a machine without code: x86-64 and aarch64 have it.
pub fn libcuda(machine: Machine, cuda_version: u32) -> Option<Vec<u8>> {
    let cuda = code::of(machine)?.cuda;
    let mut bytes = cuda.bytes.to_vec();
    bytes.extend(cuda_version.to_le_bytes());
    let exports = cuda.symbols.map(|(name, offset)| Export { name, offset });
    let library = Library {
        soname: Some("libcuda.so.1"),
        class: Class::Elf64,
        machine,
        code: &bytes,
        exports: &exports,
    };
    Some(library.bytes())
}

/// An `nvidia-smi` that prints `list` for `-L` and `query` for `-q -x`; for anything else it
/// prints `usage` on standard error and exits with 2 ("a supplied argument or flag is invalid",
/// nvidia-smi(1)). A static program: it runs in any root file system.
///
/// `None` for a machine without code: x86-64 and aarch64 have it.
pub fn nvidia_smi(machine: Machine, list: &str, query: &str, usage: &str) -> Option<Vec<u8>> {
    let smi = code::of(machine)?.smi;
    Some(write::executable(machine, smi, &[list, query, usage]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: [(Class, Machine); 4] = [
        (Class::Elf64, Machine::X86_64),
        (Class::Elf64, Machine::Aarch64),
        (Class::Elf32, Machine::X86),
        (Class::Elf32, Machine::Arm),
    ];

    #[test]
    fn an_elf_reader_finds_the_soname_in_every_target() {
        for (class, machine) in TARGETS {
            let bytes = library(Some("libx.so.1"), class, machine);
            let file = elf::ElfBytes::<elf::endian::AnyEndian>::minimal_parse(&bytes).unwrap();
            let dynamic = file.dynamic().unwrap().unwrap();
            let value = |tag| dynamic.iter().find(|d| d.d_tag == tag).unwrap().d_val();
            let strings = usize::try_from(value(elf::abi::DT_STRTAB)).unwrap();
            let size = usize::try_from(value(elf::abi::DT_STRSZ)).unwrap();
            let table = elf::string_table::StringTable::new(&bytes[strings..strings + size]);
            let soname = usize::try_from(value(elf::abi::DT_SONAME)).unwrap();
            assert_eq!(table.get(soname).unwrap(), "libx.so.1");
        }
    }

    #[test]
    fn a_library_without_soname_has_no_such_entry() {
        let bytes = library(None, Class::Elf64, Machine::X86_64);
        let file = elf::ElfBytes::<elf::endian::AnyEndian>::minimal_parse(&bytes).unwrap();
        let dynamic = file.dynamic().unwrap().unwrap();
        assert!(dynamic.iter().all(|entry| entry.d_tag != elf::abi::DT_SONAME));
    }
}
