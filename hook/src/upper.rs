//! The upper directory of an overlay that is not mounted, and where it hides what lies below it.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::Rootfs;
use crate::directory::Owner;

/// What the container will see of a directory that is not the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// Both what the upper directory and what the lower layers have in it.
    Merged,
    /// What the lower layers have: the upper directory lacks it.
    Lower,
    /// What the upper directory has, for which the lower layers count no more.
    Upper,
}

/// An upper directory.
#[derive(Debug)]
pub(crate) struct Upper {
    pub rootfs: Rootfs,
    /// Who owns what is new in it.
    pub owner: Owner,
    /// Whether overlayfs keeps its notes in `user.overlay.*`.
    userxattr: bool,
    /// Looked at once: nothing that is written here changes it.
    seen: HashMap<PathBuf, Seen>,
}

impl Upper {
    pub(crate) fn new(rootfs: Rootfs, userxattr: bool, owner: Owner) -> Self {
        Self { rootfs, owner, userxattr, seen: HashMap::new() }
    }

    /// Whether it hides what a lower layer has at `place`, an absolute path without links.
    pub(crate) fn hides(&mut self, place: &Path) -> io::Result<bool> {
        Ok(match self.seen_in(place.parent())? {
            Seen::Upper => true,
            Seen::Lower => false,
            Seen::Merged => self.look(place)?.is_some(),
        })
    }

    /// What is seen in `directory`.
    fn seen_in(&mut self, directory: Option<&Path>) -> io::Result<Seen> {
        let Some(path) = directory.filter(|path| path.parent().is_some()) else {
            return Ok(Seen::Merged);
        };
        if let Some(seen) = self.seen.get(path) {
            return Ok(*seen);
        }
        let seen = match self.seen_in(path.parent())? {
            Seen::Merged => match self.look(path)? {
                None => Seen::Lower,
                Some(metadata) if metadata.is_dir() && !self.replaces(path)? => Seen::Merged,
                Some(_) => Seen::Upper,
            },
            above => above,
        };
        self.seen.insert(path.to_owned(), seen);
        Ok(seen)
    }

    fn look(&self, path: &Path) -> io::Result<Option<Metadata>> {
        match self.rootfs.symlink_metadata(path) {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a directory stands in place of those below it.
    fn replaces(&self, path: &Path) -> io::Result<bool> {
        let directory = self.rootfs.directory(path)?;
        let redirect =
            if self.userxattr { c"user.overlay.redirect" } else { c"trusted.overlay.redirect" };
        Ok(directory.has_xattr(self.opaque())? || directory.has_xattr(redirect)?)
    }

    /// Whether the container removed what the lower layers have at `path`.
    pub(crate) fn is_whiteout(&self, path: &Path) -> io::Result<bool> {
        let metadata = self.rootfs.symlink_metadata(path)?;
        Ok(metadata.file_type().is_char_device() && metadata.rdev() == 0)
    }

    /// The attribute by which a directory stands in place of those below it.
    pub(crate) fn opaque(&self) -> &'static CStr {
        if self.userxattr { c"user.overlay.opaque" } else { c"trusted.overlay.opaque" }
    }
}
