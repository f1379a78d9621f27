//! Mounts of the spec, as covers of the root filesystem: what lies at or below one is hidden.

use std::path::{Path, PathBuf};

use nvidia_oci::SpecMount;

use crate::Rootfs;

/// A mount, at its resolved place.
#[derive(Clone, Debug)]
pub(crate) struct Cover {
    pub place: PathBuf,
    /// Whether it shows files of the host, such as a volume.
    pub bind: bool,
}

/// The mounts of a spec.
#[derive(Clone, Debug, Default)]
pub(crate) struct Covers(Vec<Cover>);

impl Covers {
    /// Resolves the destinations as runc does, in the root filesystem.
    pub(crate) fn new(view: &Rootfs, mounts: &[SpecMount<'_>]) -> Self {
        let cover = |mount: &SpecMount<'_>| Cover {
            // What cannot be resolved, runc refuses in its own words.
            place: view
                .canonical(mount.destination)
                .unwrap_or_else(|_| Path::new("/").join(mount.destination)),
            bind: mount.kind == Some("bind")
                || mount.options.iter().any(|&option| option == "bind" || option == "rbind"),
        };
        Self(mounts.iter().map(cover).collect())
    }

    /// The mount that hides `place`.
    pub(crate) fn hiding(&self, place: &Path) -> Option<&Cover> {
        self.0.iter().find(|cover| place.starts_with(&cover.place))
    }

    /// The mount in which a mount point at `place` lies.
    pub(crate) fn holding(&self, place: &Path) -> Option<&Cover> {
        self.0.iter().find(|cover| place != cover.place && place.starts_with(&cover.place))
    }
}
