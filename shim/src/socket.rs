//! The two sockets of a group: where they are, who made them, when they go.

use std::path::{Path, PathBuf};

/// The socket files of a group.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// What containerd connects to.
    pub(crate) outer: PathBuf,
    /// What the inner shim listens on; its listener is its own, connect by this path.
    pub(crate) inner: PathBuf,
}

impl Sockets {
    /// Those that this process serves and has to remove when it ends.
    pub(crate) fn adopt(outer: &Path, inner: &Path) -> Self {
        Self { outer: outer.to_owned(), inner: inner.to_owned() }
    }

    /// Unlinks both, unless another relay has them by now. For the relay, when its inner shim has
    /// ended and before it exits.
    pub(crate) fn remove(&self) {
        todo!()
    }
}
