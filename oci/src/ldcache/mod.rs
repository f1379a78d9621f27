//! glibc's `ld.so.cache`: reading, adding entries, writing.
//!
//! The format is that of glibc's `dl-cache.h`, magic `glibc-ld.so.cache1.1`, in little-endian; one
//! that follows a cache of the older format `ld.so-1.7.0` is found too. Written is the new format
//! alone, which every glibc since 2.2 reads. The cache of an image is hostile: all is bounded.

mod order;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use self::order::compare;
pub use self::read::CacheError;
use crate::elf::{Class, Machine};

/// As much as is ever read: ten times the cache of a full desktop.
pub const MAX_SIZE: u64 = 4 * 1024 * 1024;

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const HEADER_SIZE: usize = 48;
const ENTRY_SIZE: usize = 24;
const OLD_HEADER_SIZE: usize = 16;
const OLD_ENTRY_SIZE: usize = 12;
const EXTENSION_MAGIC: u32 = 0xEAA4_2174;
const SECTION_GENERATOR: u32 = 0;
const SECTION_HWCAPS: u32 = 1;

/// A cache, its entries in the order in which the loader looks at them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    entries: Vec<Entry>,
    /// Which program wrote the cache (extension section 0).
    generator: Vec<u8>,
    /// Names of the `glibc-hwcaps` directories (section 1), which entries count by their index.
    hwcaps: Vec<Vec<u8>>,
}

/// An entry of a cache. Names are those of an image, and so any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Kind of library and ABI, such as `0x0303`; see [`flags`].
    pub flags: u32,
    /// What programs ask for: `libcuda.so.1`.
    pub key: Vec<u8>,
    /// The path of the library.
    pub value: Vec<u8>,
    /// Of no meaning since glibc 2.36; kept.
    pub os_version: u32,
    /// 0, or what the processor must have; kept.
    pub hwcap: u64,
}

impl Entry {
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.value))
    }
}

/// The flags of entries for libraries of this ABI: `FLAG_ELF_LIBC6` (3) and the architecture's
/// part (glibc, `sysdeps/generic/ldconfig.h`). `None` where we know of no driver.
pub fn flags(class: Class, machine: Machine) -> Option<u32> {
    match (machine, class) {
        (Machine::X86_64, Class::Elf64) => Some(0x0303),
        (Machine::X86_64, Class::Elf32) => Some(0x0803),
        (Machine::X86, Class::Elf32) => Some(0x0003),
        (Machine::Aarch64, Class::Elf64) => Some(0x0a03),
        // Every 32-bit ARM driver is of the hard-float ABI.
        (Machine::Arm, Class::Elf32) => Some(0x0903),
        _ => None,
    }
}

impl Cache {
    /// The entries, in the loader's order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Adds an entry before those of the same name and ABI, so that the loader takes it instead
    /// of them. Whether it was added: an ABI without known [`flags`] is not, and an equal entry
    /// is there once.
    pub fn insert(&mut self, soname: &str, path: &Path, class: Class, machine: Machine) -> bool {
        let Some(flags) = flags(class, machine) else {
            return false;
        };
        let entry = Entry {
            flags,
            key: soname.as_bytes().to_vec(),
            value: path.as_os_str().as_bytes().to_vec(),
            os_version: 0,
            hwcap: 0,
        };
        self.entries.retain(|old| *old != entry);
        let at = self.entries.partition_point(|old| old.order(&entry).is_lt());
        self.entries.insert(at, entry);
        true
    }

    /// Keeps the entries of which `keep` is true.
    pub fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        self.entries.retain(keep);
    }

    /// The path that a loader of this ABI finds for `soname` on a processor without extensions.
    pub fn find(&self, soname: &str, class: Class, machine: Machine) -> Option<&Path> {
        let flags = flags(class, machine)?;
        let mut found = self.entries.iter().filter(|entry| {
            entry.flags == flags && entry.hwcap == 0 && entry.key == soname.as_bytes()
        });
        found.next().map(Entry::path)
    }
}

impl Entry {
    /// The place in the cache: names descending, then flags descending. Entries that are equal
    /// here stay in the order that they have, which is the loader's preference.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        compare(&other.key, &self.key).then_with(|| other.flags.cmp(&self.flags))
    }
}
