//! What the decision must know of the container's image. Found by `nvidia-hook` in the root
//! filesystem; here it is only data, so that deciding stays a pure function.

use std::path::PathBuf;

use crate::elf::Machine;

/// The C library of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    Glibc,
    Musl,
}

/// Facts of the image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// What its loader is built for; `None` where it has no dynamic loader.
    pub machine: Option<Machine>,
    pub libc: Option<Libc>,
    /// The directory where the image's own loader looks for 64-bit libraries,
    /// such as `/usr/lib/x86_64-linux-gnu` or `/usr/lib64`.
    pub library_dir: Option<PathBuf>,
    /// The same for 32-bit libraries.
    pub library_dir_32: Option<PathBuf>,
}
