//! The fix-ups as one small overlay layer in front of the image's, or written in place where the
//! root filesystem is no overlay.

use std::path::Path;

use nvidia_oci::{Edits, Fixups, Result, Spec};

use crate::Rootfs;

/// A mount of the root filesystem, as `CreateTaskRequest.rootfs` carries it
/// (containerd's `types.Mount`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootfsMount {
    pub kind: String,
    pub source: String,
    pub target: String,
    pub options: Vec<String>,
}

/// A root filesystem looked at before the container exists, without a writable mount of it.
#[derive(Debug)]
pub struct Look {
    _private: (),
}

/// How the root filesystem is mounted after the fix-ups.
#[derive(Debug)]
pub struct Prepared {
    pub mounts: Vec<RootfsMount>,
    /// For a person, in the log.
    pub warnings: Vec<String>,
}

impl Look {
    /// Opens what the container will have as its root: `mounts` of the Create request, or, where
    /// there are none, the directory that `root.path` of the spec names (relative to `bundle`).
    pub fn open(mounts: &[RootfsMount], bundle: &Path, spec: &Spec) -> Result<Self> {
        let _ = (mounts, bundle, spec);
        todo!()
    }

    pub fn rootfs(&self) -> &Rootfs {
        todo!()
    }

    /// Brings the fix-ups and the mount points of the edits' bind mounts into the root
    /// filesystem. `spec` is the edited one: what lies below a mount of it would be hidden.
    pub fn apply(self, fixups: &Fixups, edits: &Edits, spec: &Spec) -> Result<Prepared> {
        let _ = (fixups, edits, spec);
        todo!()
    }
}
