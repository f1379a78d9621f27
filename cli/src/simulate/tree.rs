//! Writes files below one directory; every path is relative to it and gets its parents.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use super::DeviceNodes;

/// A directory that is being filled.
pub(crate) struct Tree {
    root: PathBuf,
}

/// A character device.
#[derive(Clone, Copy)]
pub(crate) struct Node {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) mode: u32,
    pub(crate) gid: u32,
}

impl Tree {
    /// The directory `root`, made if it is not there.
    pub(crate) fn new(root: &Path) -> Result<Self> {
        let tree = Self { root: root.to_owned() };
        tree.dir("")?;
        Ok(tree)
    }

    /// The tree below a directory of this one.
    pub(crate) fn below(&self, path: &str) -> Self {
        Self { root: self.root.join(path) }
    }

    /// Where the tree lies on this machine.
    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    pub(crate) fn dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = self.root.join(path);
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(&path);
        made.with_context(|| format!("cannot make the directory {}", path.display()))
    }

    pub(crate) fn file(
        &self,
        path: impl AsRef<Path>,
        mode: u32,
        content: impl AsRef<[u8]>,
    ) -> Result<()> {
        let path = self.place(path)?;
        fs::write(&path, content)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    pub(crate) fn link(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<()> {
        let path = self.place(path)?;
        symlink(target, &path).with_context(|| format!("cannot make the link {}", path.display()))
    }

    /// A character device; left out without the right to make one (`CAP_MKNOD`).
    pub(crate) fn node(&self, path: impl AsRef<Path>, node: Node) -> Result<DeviceNodes> {
        let path = self.place(path)?;
        let device = makedev(node.major.into(), node.minor.into());
        match mknod(&path, SFlag::S_IFCHR, Mode::empty(), device) {
            Err(Errno::EPERM) => return Ok(DeviceNodes::LeftOut),
            made => made.map_err(io::Error::from),
        }
        .and_then(|()| chown(&path, Some(0), Some(node.gid)))
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(node.mode)))
        .with_context(|| format!("cannot make the device node {}", path.display()))?;
        Ok(DeviceNodes::Made)
    }

    /// A socket that nobody listens on.
    pub(crate) fn socket(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = self.place(path)?;
        mknod(&path, SFlag::S_IFSOCK, Mode::from_bits_truncate(0o777), 0)
            .with_context(|| format!("cannot make the socket {}", path.display()))
    }

    /// Where `path` lies, its parents made.
    fn place(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        if let Some(parent) = path.parent() {
            self.dir(parent)?;
        }
        Ok(self.root.join(path))
    }
}
