//! What is read of an ELF file: class, machine, SONAME. Headers only, never the whole library.

use serde::Serialize;

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
