//! The inner shim: the stock `containerd-shim-runc-v2`, found, started and watched.

use std::process::ExitStatus;

use nvidia_oci::Result;

/// A running inner shim, a child of this process.
#[derive(Debug)]
pub(crate) struct Inner {
    child: std::process::Child,
}

/// How an inner shim ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// The last of what it wrote to standard error, one line, at most 1 KiB; often empty.
    pub(crate) words: String,
}

impl Inner {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Blocks until the inner shim has ended, and reaps it.
    pub(crate) fn wait(self) -> std::io::Result<Ended> {
        todo!()
    }
}

/// Starts the inner shim `args.shim` with the listener that is our standard output on its
/// descriptor 3.
///
/// # Errors
/// `InnerShim` with the system's words.
pub(crate) fn spawn(_args: &crate::args::Args) -> Result<Inner> {
    todo!()
}
