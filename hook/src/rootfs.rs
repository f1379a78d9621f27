//! A root filesystem held by a directory handle. Every path of an image is resolved here, beneath
//! the handle and by the kernel, and nowhere else.

use std::os::fd::OwnedFd;

/// A root filesystem.
#[derive(Debug)]
pub struct Rootfs {
    _root: OwnedFd,
}
