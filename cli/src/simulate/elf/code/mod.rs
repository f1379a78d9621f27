//! The few functions that simulated files have, as machine code.
//!
//! Position independent and free of relocations; what differs between two nodes follows the code
//! as data. `cuDeviceGetCount` opens `/dev/nvidia0` to `/dev/nvidia31` with
//! `O_RDWR | O_CLOEXEC`, counts those that open or fail with `ENXIO` (6) and closes what it
//! opened; a null pointer is `CUDA_ERROR_INVALID_VALUE` (1).

mod aarch64;
mod x86_64;

use nvidia_oci::elf::Machine;

/// What there is for one machine.
#[derive(Clone, Copy)]
pub(super) struct Code {
    /// Of `libcuda`; the CUDA version as a 32-bit word belongs right behind it.
    pub(super) cuda: Cuda,
    /// Of `nvidia-smi`; address and length of three texts belong right behind it.
    pub(super) smi: &'static [u8],
}

/// The functions of `libcuda`.
#[derive(Clone, Copy)]
pub(super) struct Cuda {
    pub(super) bytes: &'static [u8],
    /// Names with their offsets.
    pub(super) symbols: [(&'static str, u32); 3],
}

/// The code for `machine`, if there is some.
pub(super) fn of(machine: Machine) -> Option<Code> {
    match machine {
        Machine::X86_64 => Some(x86_64::CODE),
        Machine::Aarch64 => Some(aarch64::CODE),
        _ => None,
    }
}
